"""How long a read of a remote checkpoint waits: for a server that falls silent, and for one with few
workers; and that a reader can be killed meanwhile."""

import concurrent.futures
import errno
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import ckptfs
import craft

sys.path.insert(0, str(ckptfs.TESTS / "servers"))
from fault_server import FaultServer
from few_workers import FewWorkers

MIB = 1 << 20
TENSORS = 44
TENSOR = MIB
TIMEOUT = 5
NOISE = 2  # Seconds that a busy machine adds.


class Case(ckptfs.Case):
    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory(prefix="ckptfs-test.")
        cls.addClassCleanup(directory.cleanup)
        cls.directory = directory.name
        header = {f"t{i:02}": {"dtype": "U8", "shape": [TENSOR],
                               "data_offsets": [i * TENSOR, (i + 1) * TENSOR]}
                  for i in range(TENSORS)}
        cls.content = random.Random(1).randbytes(TENSORS * TENSOR)
        craft.write_safetensors(Path(directory.name) / "m.safetensors", json.dumps(header),
                                cls.content)


class SilentServer(Case):
    def setUp(self):
        self.server = self.enterContext(FaultServer(self.directory))
        self.silent = self.mount(self.server.url("/m.safetensors"), "-o", f"timeout={TIMEOUT}")
        self.server.rules([{"stall_head": 120}])

    def tensor(self, number):
        return self.silent / f"t{number:02}.memmap"

    @staticmethod
    def failure(path):
        """The errno of a read, and how many seconds it took."""
        begin = time.monotonic()
        try:
            ckptfs.read(path)
        except OSError as error:
            return error.errno, time.monotonic() - begin
        return 0, time.monotonic() - begin

    def test_forty_readers_wait_no_longer_than_one(self):
        with concurrent.futures.ThreadPoolExecutor(40) as pool:
            for code, seconds in pool.map(self.failure, map(self.tensor, range(2, 42))):
                self.assertIn(code, (errno.EIO, errno.ETIMEDOUT))
                self.assertGreater(seconds, TIMEOUT - 1)
                self.assertLess(seconds, TIMEOUT + 2 + NOISE)

    def test_a_mapped_file(self):
        begin = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-c",
             "import mmap, sys\n"
             "with open(sys.argv[1], 'rb') as file:\n"
             "    mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)[500000]",
             self.tensor(20)], timeout=60)
        self.assertEqual(done.returncode, -signal.SIGBUS)
        self.assertLess(time.monotonic() - begin, TIMEOUT + 2 + NOISE)

    def test_a_direct_read(self):
        begin = time.monotonic()
        done = ckptfs.run("dd", f"if={self.tensor(20)}", "of=/dev/null", "bs=1M", "iflag=direct",
                          timeout=60)
        self.assertNotEqual(done.returncode, 0)
        self.assertLess(time.monotonic() - begin, TIMEOUT + 2 + NOISE)

    def test_readers_can_be_killed(self):
        for options in [], ["iflag=direct"]:
            with self.subTest(options=options), \
                    subprocess.Popen(["dd", f"if={self.tensor(30)}", "of=/dev/null", "bs=1M", *options],
                                     stderr=subprocess.DEVNULL) as process:
                time.sleep(0.5)
                begin = time.monotonic()
                process.kill()
                process.wait(timeout=30)
                self.assertLess(time.monotonic() - begin, 1)

    def test_goes_on_when_the_server_does(self):
        code, _ = self.failure(self.tensor(40))
        self.assertIn(code, (errno.EIO, errno.ETIMEDOUT))
        self.server.rules([])
        ckptfs.wait_until(lambda: self.failure(self.tensor(40))[0] == 0)
        self.assertEqual(ckptfs.read(self.tensor(40)),
                         self.content[40 * TENSOR:41 * TENSOR])


class FewWorkersServer(Case):
    def test_of_a_server_with_few_workers(self):
        for workers in 1, 2, 4:
            with self.subTest(workers=workers), FewWorkers(self.directory, workers) as server:
                mount = self.mount(server.url("/m.safetensors"))
                begin = time.monotonic()
                for i in range(TENSORS):
                    self.assertEqual(ckptfs.read(mount / f"t{i:02}.memmap"),
                                     self.content[i * TENSOR:(i + 1) * TENSOR])
                # An unanswered connection would cost five seconds: so long are others idle.
                self.assertLess(time.monotonic() - begin, 5)
                mount.release()
