"""Web servers whose responses begin right and end wrong, or answer no request."""

import sys
import threading
import time

import ckptfs
from ckptfs import SOURCE

sys.path.insert(0, str(ckptfs.TESTS / "servers"))
import servers_test
from fault_server import FaultServer
from liars import Liar, WebLiar, file_response, response

BYTES = bytes(range(256)) * 1024
# Opening reads the beginning and the end.
TENSORS = {"first": bytes(1 << 19), "w": BYTES, "last": bytes(1 << 19)}


def model():
    return servers_test.model(**TENSORS)


class Endings(servers_test.Case):
    def setUp(self):
        self.body = model()
        self.is_open = False

    def read(self, rest):
        """Mounts a file whose later ranges are one chunk each, which `rest` sends and continues; reads it."""
        def answer(request):
            whole = file_response(request, self.body)
            if not self.is_open:
                return whole
            head, _, data = whole.partition(b"\r\n\r\n")
            lines = [line for line in head.split(b"\r\n") if not line.startswith(b"Content-Length")]
            begin = b"\r\n".join([*lines, b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(data)])
            return rest(begin + data + b"\r\n")
        server = self.start(WebLiar(answer))
        mount = self.mount(server.url("/m"), "-o", "timeout=3", env=servers_test.environment())
        self.is_open = True
        for name, value in TENSORS.items():
            self.assertEqual(ckptfs.read(mount / f"{name}.memmap"), value)
        time.sleep(0.3)  # Longer than until the first retry.
        for request in server.requests:
            first, last = map(int, request.headers["range"].removeprefix("bytes=").split("-"))
            self.assertLessEqual(first, last)

    def test_trailers_without_end_are_not_kept(self):
        def trailers(chunk):
            yield chunk + b"0\r\n"
            while True:
                yield b"X-Trailer: value\r\n" * 1000
        self.read(trailers)

    def test_nothing_is_requested_after_the_last_byte(self):
        self.read(lambda chunk: [chunk])

    def test_a_file_that_is_read_while_its_first_bytes_arrive(self):
        root = self.scratch()
        (root / "m").write_bytes(self.body)
        with FaultServer(root) as server:
            server.rules([{"times": 1, "stall_body": 0, "stall_s": 0.3}])
            mount = self.mount(server.url("/m"))
            self.assertEqual(ckptfs.read(mount / "w.memmap"), BYTES)


class Unrequested(servers_test.Case):
    def test_responses_are_not_those_to_the_next_request(self):
        body = model()
        mounted = threading.Event()

        class Repeating(WebLiar):
            """Says after each response, until the file is mounted, that the file has changed."""

            def talk(self, connection, lines):
                is_kept = super().talk(connection, lines)
                time.sleep(0.05)
                if not mounted.is_set():
                    connection.sendall(response(412))
                return is_kept
        server = self.start(Repeating(lambda request: file_response(request, body)))
        mount = self.mount(server.url("/m"), env=servers_test.environment())
        time.sleep(0.2)
        mounted.set()
        self.assertEqual(ckptfs.read(mount / "w.memmap"), BYTES)


class Handshakes(servers_test.Case):
    def test_that_are_broken_off_are_begun_again(self):
        class Closing(Liar):
            def talk(self, connection, lines):
                connection.recv(1 << 16)
                return False
        server = self.start(Closing(None))
        url = f"https://127.0.0.1:{server.port}/m"
        code, said = self.refused(url, "-o", "timeout=5")
        self.assertEqual((code, said.splitlines()[-1]), (
            SOURCE, f"ckptfs: {url}: connection closed during the TLS handshake; gave up after 5 s"))
        self.assertGreater(server.connections, 1)


if __name__ == "__main__":
    ckptfs.unittest.main()
