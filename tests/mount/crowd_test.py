"""A hundred and a thousand readers at once: each gets the right bytes, and nobody waits for ever."""

import http.server
import os
import random
import struct
import sys
import threading
import time
import zipfile

import ckptfs
from craft import write_safetensors

SIZE = 8 << 20
PIECE = 16 << 10
DATA = random.Random(0).randbytes(SIZE)
TIMEOUT = 60  # Seconds; it takes one or two.


class Ranges(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        file = self.server.file
        first, last = (int(n) for n in self.headers["Range"].removeprefix("bytes=").split("-"))
        part = file[first:last + 1]
        self.send_response(206)
        self.send_header("ETag", '"1"')
        self.send_header("Content-Range", f"bytes {first}-{first + len(part) - 1}/{len(file)}")
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.wfile.write(part)

    def log_message(self, *_):
        pass


class Crowd(ckptfs.Case):
    def local(self):
        file = self.scratch() / "m.safetensors"
        write_safetensors(file, f'{{"w":{{"dtype":"U8","shape":[{SIZE}],"data_offsets":[0,{SIZE}]}}}}',
                          DATA)
        return file

    def compressed(self):
        file = self.scratch() / "m.npz"
        text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({SIZE},), }}".ljust(117) + "\n"
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            archive.writestr("w.npy", b"\x93NUMPY\1\0" + struct.pack("<H", len(text))
                             + text.encode() + DATA)
        return file

    def web(self):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Ranges)
        server.file = self.local().read_bytes()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(lambda: (server.shutdown(), server.server_close()))
        return f"http://127.0.0.1:{server.server_port}/m.safetensors"

    def assertServes(self, source, count):
        mount = self.mount(source)
        # From here on, `count` readers wait for one another and begin at once.
        gate, failures, done = threading.Barrier(count + 1), [], []

        def read(number):
            numbers = random.Random(number)
            try:
                gate.wait(TIMEOUT)
                file = os.open(mount / "w.memmap", os.O_RDONLY)
                for _ in range(4):
                    at = numbers.randrange(SIZE - PIECE)
                    if os.pread(file, PIECE, at) != DATA[at:at + PIECE]:
                        failures.append(f"reader {number}: other bytes at {at}")
                os.close(file)
            except (OSError, threading.BrokenBarrierError) as error:
                failures.append(f"reader {number}: {error!r}")
            done.append(number)
        threads = [threading.Thread(target=read, args=(n,), daemon=True) for n in range(count)]
        for thread in threads:
            thread.start()
        gate.wait(TIMEOUT)
        end = time.monotonic() + TIMEOUT
        looks = 0
        while looks == 0 or any(thread.is_alive() for thread in threads):
            self.assertLess(time.monotonic(), end, f"{count - len(done)} readers still wait")
            begin = time.monotonic()
            self.assertEqual(sorted(os.listdir(mount.path)), ["meta.json", "w.memmap"])
            self.assertEqual(os.stat(mount / "w.memmap").st_size, SIZE)
            ckptfs.meta(mount.path)
            self.assertLess(time.monotonic() - begin, TIMEOUT / 4)  # This process is busy, too.
            looks += 1
            time.sleep(0.02)
        self.assertEqual(failures, [])
        self.assertEqual(len(done), count)
        self.assertEqual(mount.unmount(), 0)

    def setUp(self):
        # So many threads need so much address space, and take turns more often than by default.
        before = threading.stack_size(256 << 10), sys.getswitchinterval()
        self.addCleanup(lambda: (threading.stack_size(before[0]),
                                 sys.setswitchinterval(before[1])))
        sys.setswitchinterval(0.001)

    def test_a_hundred_readers_of_a_local_file(self):
        self.assertServes(self.local(), 100)

    def test_a_thousand_readers_of_a_local_file(self):
        self.assertServes(self.local(), 1_000)

    def test_a_hundred_readers_of_a_compressed_file(self):
        self.assertServes(self.compressed(), 100)

    def test_a_thousand_readers_of_a_compressed_file(self):
        self.assertServes(self.compressed(), 1_000)

    def test_a_hundred_readers_of_a_web_server(self):
        self.assertServes(self.web(), 100)

    def test_a_thousand_readers_of_a_web_server(self):
        self.assertServes(self.web(), 1_000)
