"""A checkpoint whose headers take too long to read is refused, with the exit code for limits."""

import http.server
import json
import threading
import time

import ckptfs
from ckptfs import LIMITS

TYPE = "<class 'tensordict._td.TensorDict'>"


class Slow(http.server.BaseHTTPRequestHandler):
    """Serves a TensorDict of many directories, with a pause before each meta.json."""

    pause = 0.3

    def do_GET(self):
        is_root = self.path == "/model/meta.json"
        children = {f"k{i}": {"type": "TensorDict"} for i in range(200)} if is_root else {
            "w": {"device": "cpu", "shape": [0], "dtype": "torch.uint8"}}
        data = json.dumps(children | {"shape": [], "device": "cpu", "_type": TYPE}).encode()
        found = self.path.endswith("/meta.json")
        if found and not is_root:
            time.sleep(self.pause)
        try:
            self.send_response(206 if found else 404)
            self.send_header("ETag", '"1"')
            self.send_header("Content-Range", f"bytes 0-{len(data) - 1}/{len(data)}")
            self.send_header("Content-Length", str(len(data) if found else 0))
            self.end_headers()
            self.wfile.write(data if found else b"")
        except OSError:
            pass  # It is given up.

    def log_message(self, *_):
        pass


class Deadline(ckptfs.Case):
    def setUp(self):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Slow)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(lambda: (server.shutdown(), server.server_close()))
        self.url = f"http://127.0.0.1:{server.server_port}/model/meta.json"

    def test_a_server_that_answers_each_request_but_there_are_too_many(self):
        start = time.monotonic()
        mountpoint = self.mountpoint()
        done = self.ckptfs("-o", "timeout=1", self.url, mountpoint)
        self.assertRefusedLike(done, LIMITS, ".*meta.json: .*parsing takes longer than [23] s, "
                               "the limit for a checkpoint of this size")
        self.assertFalse(ckptfs.is_mounted(mountpoint))
        self.assertLess(time.monotonic() - start, 20)  # Of 60 s that all of it would take.

    def test_nofail_is_not_for_that(self):
        done = self.ckptfs("-o", "timeout=1,nofail", self.url, self.mountpoint())
        self.assertEqual(done.returncode, LIMITS, done.stderr)
