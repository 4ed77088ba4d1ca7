"""The command line: nofail, arguments that are swapped, and the options of other FUSE programs."""

import http.server
import shutil
import socket
import threading

import ckptfs

SAMPLE = ckptfs.SAMPLES / "demo.pth"


class Forbidding(http.server.BaseHTTPRequestHandler):
    """Answers every request with the status that its path begins with."""

    def answer(self):
        self.send_response(int(self.path.split("/")[1]))
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_HEAD = answer

    def log_message(self, *_):
        pass


class Failing(http.server.BaseHTTPRequestHandler):
    """Answers the first request with the beginning of a file, and every later one with 503."""

    def do_GET(self):
        data, self.server.data = self.server.data, b""
        first, last = (int(n) for n in self.headers["Range"].removeprefix("bytes=").split("-"))
        part = data[first:last + 1]
        self.send_response(206 if part else 503)
        if part:
            self.send_header("ETag", '"1"')
            self.send_header("Content-Range", f"bytes {first}-{first + len(part) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.wfile.write(part)

    def log_message(self, *_):
        pass


class NoFail(ckptfs.Case):
    """-o nofail is for a checkpoint that is not available, and for no other failure."""

    def assertNoFailure(self, source, pattern, *options):
        mountpoint = self.mountpoint()
        self.assertRefusedLike(self.ckptfs(*options, source, mountpoint), ckptfs.SOURCE, pattern)
        done = self.ckptfs("-o", "nofail", *options, source, mountpoint)
        self.assertEqual((done.returncode, done.stdout), (0, ""))
        self.assertRegex(done.stderr,
                         rf"\Ackptfs: warning: {pattern}; nothing is mounted \(nofail\)\n\Z")
        self.assertFalse(ckptfs.is_mounted(mountpoint))

    def assertFailure(self, source, code, mountpoint=None):
        done = self.ckptfs("-o", "nofail", source, mountpoint or self.mountpoint())
        self.assertEqual(done.returncode, code, done.stderr)

    def test_a_file_that_does_not_exist(self):
        self.assertNoFailure(self.scratch() / "missing.pth", ".*missing.pth: .*")
        self.assertNoFailure(SAMPLE / "model.pth", ".*model.pth: .*Not a directory")

    def test_a_sidecar_that_does_not_exist(self):
        self.assertNoFailure(SAMPLE, ".*missing.tensors: .*", "-o",
                             f"sidecar={self.scratch()}/missing.tensors")

    def test_a_server_that_does_not_listen(self):
        with socket.create_server(("127.0.0.1", 0)) as unused:
            port = unused.getsockname()[1]
        for scheme in "http", "https", "redis":
            with self.subTest(scheme):
                self.assertNoFailure(f"{scheme}://127.0.0.1:{port}/model.pth", ".*model.pth: .*",
                                     "-o", "timeout=1")

    def test_a_host_without_an_address(self):
        self.assertNoFailure("http://host.invalid/model.pth", ".*model.pth: .*host.*", "-o",
                             "timeout=1")

    def test_a_server_that_refuses(self):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Forbidding)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(lambda: (server.shutdown(), server.server_close()))
        for status in 401, 403, 404:
            with self.subTest(status):
                self.assertNoFailure(f"http://127.0.0.1:{server.server_port}/{status}/model.pth",
                                     ".*model.pth: .*", "-o", "timeout=1")

    def test_a_server_that_fails_while_the_headers_are_read(self):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Failing)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(lambda: (server.shutdown(), server.server_close()))
        header = b'{"w":{"dtype":"U8","shape":[8000000],"data_offsets":[0,8000000]}}'
        header = header.ljust(4_000_000)
        file = len(header).to_bytes(8, "little") + header + bytes(8_000_000)
        for options in [], ["-o", "nofail"]:
            server.data = file
            done = self.ckptfs("-o", "timeout=1", *options,
                               f"http://127.0.0.1:{server.server_port}/m.safetensors",
                               self.mountpoint())
            self.assertEqual(done.returncode, 0 if options else ckptfs.SOURCE, done.stderr)
            self.assertRegex(done.stderr, r"m\.safetensors: .*status 503; gave up after 1 s"
                             + (r"; nothing is mounted \(nofail\)\n\Z" if options else r"\n\Z"))

    def test_anything_else_is_a_failure(self):
        directory = self.scratch()
        (directory / "text").write_text("no checkpoint\n" * 100)
        self.assertFailure(directory / "text", ckptfs.FORMAT)
        (directory / "truncated.pth").write_bytes(SAMPLE.read_bytes()[:-100])
        self.assertFailure(directory / "truncated.pth", ckptfs.CORRUPT)
        self.assertFailure("http://", ckptfs.SOURCE)
        self.assertFailure("nowhere://host/model.pth", ckptfs.SOURCE)
        (directory / "file").touch()
        self.assertFailure(SAMPLE, ckptfs.MOUNTPOINT, directory / "file")


class Operands(ckptfs.Case):
    def assertSwapped(self, first, last):
        self.assertRefused(self.ckptfs(first, last), ckptfs.USAGE,
                           "arguments are swapped: the checkpoint is the first one "
                           "(usage: ckptfs [OPTION]... CHECKPOINT MOUNTPOINT)")

    def test_swapped_ones_are_recognised(self):
        mountpoint, directory = self.mountpoint(), self.scratch()
        shutil.copy(SAMPLE, directory)
        self.assertSwapped(mountpoint, SAMPLE)
        self.assertSwapped(mountpoint, directory)
        self.assertSwapped(directory / "missing", SAMPLE)
        self.assertSwapped(mountpoint, "https://host/model.pth")
        self.assertSwapped(directory / "missing", "s3://bucket/model.pth")

    def test_others_are_not(self):
        directory = self.scratch()
        shutil.copy(SAMPLE, directory)
        self.mount(directory)  # A directory on an empty one.
        (directory / "more").mkdir()
        self.mount(SAMPLE, "-o", "nonempty", mountpoint=directory)


class OtherPrograms(ckptfs.Case):
    def test_options_that_change_nothing_are_accepted(self):
        self.mount(SAMPLE, "-s", "-o", "ro,kernel_cache,auto_cache,max_read=131072,big_writes",
                   "-o", "entry_timeout=1,attr_timeout=1,noforget,use_ino,default_permissions")
