"""Random reads of a checkpoint on a server that fails at random: all bytes are right, no read fails,
and memory stays within its limits. Runs for $CKPTFS_SOAK_SECONDS; for ten minutes of it:

    CKPTFS_SOAK_SECONDS=600 CKPTFS=build/release/fs/ckptfs tests/mount/run tests/mount/soak_test.py

The seed of what was random is told when it fails; CKPTFS_SOAK_SEED takes it.
"""

import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import ckptfs
import craft

sys.path.insert(0, str(ckptfs.TESTS / "servers"))
from fault_server import FaultServer

SECONDS = float(os.environ.get("CKPTFS_SOAK_SECONDS", 20))
SEED = int(os.environ.get("CKPTFS_SOAK_SEED", time.time_ns() % 1_000_000))

MIB = 1 << 20
MEMORY = 32  # MiB, as the option says.
TENSORS = 12
TENSOR = 8 * MIB - 4321  # They end and begin in the middle of blocks.

# Each lets a request fail in a way of its own, and says so honestly or not. None tells of another
# version, or of another size, which would be one.
FAULTS = [
    {"delay_ms": 300}, {"drop": 1}, {"status": 500}, {"status": 503, "retry_after": 0},
    {"status": 429, "retry_after": 1}, {"status": 408}, {"ignore_range": 1}, {"shift_range": 4096},
    {"content_range": "bytes 0-9/SIZE"}, {"length_delta": 5}, {"length_delta": -5}, {"chunked": 1},
    {"stall_body": 1000, "stall_s": 1}, {"truncate": 1000}, {"truncate": 0}, {"truncate": 200_000},
    {"reset": 0}, {"reset": 1000}, {"reset": 300_000}, {"trickle": 500_000}, {"close": 1},
]


class Soak(ckptfs.Case):
    """What happens goes on in threads, until the time is over or one of them has failed."""

    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory(prefix="ckptfs-test.")
        cls.addClassCleanup(directory.cleanup)
        cls.files = Path(directory.name)
        cls.data = random.Random(SEED).randbytes(TENSORS * TENSOR)
        header = {f"layer.t{i}": {"dtype": "U8", "shape": [TENSOR],
                                  "data_offsets": [i * TENSOR, (i + 1) * TENSOR]}
                  for i in range(TENSORS)}
        file = cls.files / "model.safetensors"
        craft.write_safetensors(file, json.dumps(header), cls.data)
        size = str(file.stat().st_size)
        cls.faults = [{name: value.replace("SIZE", size) if isinstance(value, str) else value
                       for name, value in fault.items()} for fault in FAULTS]

    def setUp(self):
        self.server = self.enterContext(FaultServer(self.files))
        self.failures = []
        self.over = threading.Event()
        self.reads = 0

    def start(self, *options):
        """Mounts in the foreground, so that messages can be read."""
        self.mountpoint_ = self.mountpoint()
        command = [ckptfs.CKPTFS, "-f", f"-omemory={MEMORY}m,timeout=60", *options,
                   self.server.url("/model.safetensors"), self.mountpoint_]
        self.messages = tempfile.TemporaryFile("w+")
        self.addCleanup(self.messages.close)
        self.daemon = subprocess.Popen(command, stderr=self.messages)
        self.addCleanup(lambda: (self.daemon.kill(), self.daemon.wait()))
        ckptfs.wait_until(lambda: ckptfs.is_mounted(self.mountpoint_))

    def said(self):
        self.messages.seek(0)
        return self.messages.read()

    def go_on(self, act, seed):
        """Does something again and again."""
        source = random.Random(SEED * 1000 + seed)
        try:
            while not self.over.is_set():
                act(source)
        except Exception as e:
            self.failures.append(f"{type(e).__name__}: {e}")
            self.over.set()

    def compare(self, number, offset, found):
        begin = number * TENSOR + offset
        if found != self.data[begin:begin + len(found)]:
            raise AssertionError(f"tensor {number}: wrong bytes in {len(found)} at {offset}")
        self.reads += 1

    def read_at_random(self, source):
        number = source.randrange(TENSORS)
        with open(self.mountpoint_ / f"layer/t{number}.memmap", "rb", buffering=0) as file:
            if source.random() < 0.5:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
            for _ in range(20):
                if self.over.is_set():
                    return
                length = source.choice([1, 4096, 65536, 300_000])
                offset = source.randrange(TENSOR)
                found = os.pread(file.fileno(), length, offset)
                if len(found) != min(length, TENSOR - offset):
                    raise AssertionError(f"tensor {number}: {len(found)} of {length} at {offset}")
                self.compare(number, offset, found)
            # So that it comes from ckptfs the next time, too.
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def read_in_order(self, source):
        number = source.randrange(TENSORS)
        with open(self.mountpoint_ / f"layer/t{number}.memmap", "rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            offset = 0
            while not self.over.is_set():
                found = os.pread(file.fileno(), MIB, offset)
                self.compare(number, offset, found)
                offset += len(found)
                if len(found) < MIB:
                    break
            else:
                return
            if offset != TENSOR:
                raise AssertionError(f"tensor {number}: ends at {offset}")

    def read_and_be_killed(self, source):
        path = self.mountpoint_ / f"layer/t{source.randrange(TENSORS)}.memmap"
        reader = subprocess.Popen(["cat", path], stdout=subprocess.DEVNULL)
        time.sleep(source.random() * 0.3)
        reader.kill()
        started = time.monotonic()
        reader.wait()
        if time.monotonic() - started > 5:
            raise AssertionError("a reader that was killed went on waiting")

    def change_faults(self, source):
        rules = [{"path": "/model*", "after": source.randrange(4), "times": source.randrange(1, 4),
                  **fault} for fault in source.sample(self.faults, 3)]
        self.server.rules(rules)
        self.over.wait(0.2)

    def watch_memory(self, _):
        status = Path(f"/proc/{self.daemon.pid}/status").read_text()
        used = int(status.partition("VmRSS:")[2].split()[0]) * 1024
        self.most = max(self.most, used)
        self.over.wait(0.05)

    def soak(self, seconds):
        self.most = 0
        acts = [self.change_faults, self.watch_memory, self.read_and_be_killed, self.read_in_order,
                self.read_in_order, self.read_at_random, self.read_at_random, self.read_at_random]
        threads = [threading.Thread(target=self.go_on, args=(act, i)) for i, act in enumerate(acts)]
        for thread in threads:
            thread.start()
        self.over.wait(seconds)
        self.over.set()
        self.server.rules([])
        for thread in threads:
            thread.join(90)
        self.assertEqual(self.failures, [], f"CKPTFS_SOAK_SEED={SEED}\n{self.said()[-2000:]}")
        self.assertGreater(self.reads, seconds)
        self.assertGreater(self.said().count("retrying"), seconds)
        if not ckptfs.IS_SANITIZED:
            self.assertLess(self.most, (MEMORY + 64) * MIB)

    def assertIdle(self):
        """Nothing is being fetched and nobody waits, soon after the last read."""
        def status():
            self.daemon.send_signal(signal.SIGUSR1)
            time.sleep(0.1)
            return (re.findall(r"cache: .*", self.said()) or [""])[-1]
        ckptfs.wait_until(lambda: re.search(
            r" 0\.0 MiB being fetched by 0 requests, 0 readers waiting;", status()))

    def test_all_bytes_are_right_whatever_the_server_does(self):
        self.start()
        self.soak(SECONDS / 2)
        self.assertIdle()
        ckptfs.run("fusermount3", "-u", self.mountpoint_, check=True)
        self.assertEqual(self.daemon.wait(5), 0)

    def test_all_bytes_are_right_with_a_cache_on_disk(self):
        # Less than the checkpoint: it is emptied all the time.
        self.start(f"-ocache_dir={self.scratch()}/cache,cache_size=64m")
        self.soak(SECONDS / 2)
        self.assertIdle()
        self.daemon.terminate()
        self.assertEqual(self.daemon.wait(5), 0)
