"""Servers on loopback that answer what they like, byte for byte, and record what they are told.

    with RedisLiar(answer) as server:      answer(words) returns the bytes of a reply in RESP; None closes
        server.uri("key"), server.commands
    with WebLiar(answer) as server:        answer(request) returns bytes, or an iterator of them; then it is closed,
        server.url("/x"), server.requests  unless answer returns response(...), which has a length

All listen on `host`, which "0.0.0.0" makes every address of this machine. Of a request there are method, target,
headers (names in lower case).
"""
import contextlib
import socket
import threading
import types


class Liar:
    def __init__(self, answer, host="127.0.0.1"):
        self.answer = answer
        self.sent = 0         # Bytes.
        self.connections = 0
        self.is_closed = False
        self.socket = socket.create_server((host, 0), backlog=512)
        self.port = self.socket.getsockname()[1]
        self.thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_closed = True
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self.thread.join()

    def _accept(self):
        while not self.is_closed:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with connection, contextlib.suppress(OSError, ValueError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with connection.makefile("rb") as lines:
                while not self.is_closed and self.talk(connection, lines):
                    pass

    def send(self, connection, data):
        connection.sendall(data)
        self.sent += len(data)


class RedisLiar(Liar):
    def __init__(self, answer, host="127.0.0.1"):
        super().__init__(answer, host)
        self.commands = []

    def uri(self, key, host="127.0.0.1"):
        return f"redis://{host}:{self.port}/{key}"

    def talk(self, connection, lines):
        count = lines.readline()
        if not count:
            return False
        words = [lines.read(int(lines.readline()[1:]) + 2)[:-2] for _ in range(int(count[1:]))]
        self.commands.append(words)
        reply = self.answer(words)
        if reply is not None:
            self.send(connection, reply)
        return reply is not None


def bulk(data):
    """A value as a reply of Redis."""
    return b"$%d\r\n%s\r\n" % (len(data), data)


class WebLiar(Liar):
    def __init__(self, answer, host="127.0.0.1"):
        super().__init__(answer, host)
        self.requests = []

    def url(self, target, host="127.0.0.1"):
        return f"http://{host}:{self.port}{target}"

    def talk(self, connection, lines):
        first = lines.readline().decode("latin-1").split()
        if len(first) != 3:
            return False
        headers = {}
        while (line := lines.readline().decode("latin-1").strip()):
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        request = types.SimpleNamespace(method=first[0], target=first[1], headers=headers)
        self.requests.append(request)
        data = self.answer(request)
        is_whole = isinstance(data, bytes)
        for piece in [data] if is_whole else data:
            self.send(connection, piece)
        return is_whole and b"\r\nContent-Length: " in data


def response(status, body=b"", **headers):
    """An answer with its length, after which the connection stays open."""
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


def file_response(request, body, **headers):
    """The range that `request` asks for of a file with these bytes."""
    asked = request.headers.get("range", "")
    if not asked:
        return response(200, body, ETag='"1"', **headers)
    first, _, last = asked.removeprefix("bytes=").partition("-")
    last = min(int(last), len(body) - 1)
    return response(206, body[int(first):last + 1], ETag='"1"',
                    Content_Range=f"bytes {first}-{last}/{len(body)}", **headers)
