"""A web server with ranges and few workers, each of which serves one connection until it is closed or
idle, as apache's prefork does. Other connections wait unanswered.

    with FewWorkers(directory, workers=2) as server:
        server.url("/m.pth")

As a program, `few_workers.py DIRECTORY WORKERS ADDRESS` prints its port and serves until it is killed.
"""

import re
import signal
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path

IDLE_SECONDS = 5


class FewWorkers:
    def __init__(self, directory, workers, address="127.0.0.1"):
        root = Path(directory)

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = IDLE_SECONDS

            def do_GET(self):
                path = root / self.path.lstrip("/")
                size = path.stat().st_size
                first, last = map(int, re.fullmatch(r"bytes=(\d+)-(\d+)",
                                                    self.headers["Range"]).groups())
                last = min(last, size - 1)
                self.send_response(206)
                self.send_header("ETag", '"1"')
                self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
                self.send_header("Content-Length", str(last + 1 - first))
                self.end_headers()
                with open(path, "rb") as file:
                    self.connection.sendfile(file, first, last + 1 - first)

            def log_message(self, *_):
                pass

        self.listener = socket.create_server((address, 0), backlog=64)
        self.handler = Handler
        self.workers = [threading.Thread(target=self._work, daemon=True) for _ in range(workers)]

    def _work(self):
        while True:
            try:
                connection, address = self.listener.accept()
            except OSError:
                return
            with connection:
                try:
                    self.handler(connection, address, None)
                except OSError:
                    pass  # The client has closed it.

    def __enter__(self):
        for worker in self.workers:
            worker.start()
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def url(self, path):
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}{path}"


if __name__ == "__main__":
    with FewWorkers(sys.argv[1], int(sys.argv[2]), sys.argv[3]) as started:
        print(started.listener.getsockname()[1], flush=True)
        signal.pause()
