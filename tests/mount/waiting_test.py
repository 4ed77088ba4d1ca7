"""Programs that wait for a server: they can be ended, they do not hinder others, and what they no
longer want is no longer fetched."""

import json
import os
import signal
import subprocess
import sys
import time

import ckptfs
import craft

sys.path.insert(0, str(ckptfs.TESTS / "servers"))
from fault_server import FaultServer

SIZE = 16 << 20  # Of each tensor, in bytes.
NAMES = "abcd"

# Maps the file argv[1], has a timer send signals, and reads a byte at argv[2].
TIMER = """
import mmap, signal, sys
fired = 0
def count(*_):
    global fired
    fired += 1
signal.signal(signal.SIGALRM, count)
with open(sys.argv[1], "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
byte = mapped[int(sys.argv[2])]
signal.setitimer(signal.ITIMER_REAL, 0)
print(byte, fired)
"""


def byte_at(offset):
    return (offset >> 12) % 251


class Waiting(ckptfs.Case):
    @classmethod
    def setUpClass(cls):
        directory = ckptfs.tempfile.TemporaryDirectory(prefix="ckptfs-test.")
        cls.addClassCleanup(directory.cleanup)
        header = {name: {"dtype": "U8", "shape": [SIZE], "data_offsets": [i * SIZE, (i + 1) * SIZE]}
                  for i, name in enumerate(NAMES)}
        page = b"".join(bytes([byte_at(i << 12)]) * 4096 for i in range(SIZE >> 12))
        craft.write_safetensors(os.path.join(directory.name, "m.safetensors"), json.dumps(header),
                                page * len(NAMES))
        cls.content = page
        cls.server = FaultServer(directory.name)
        cls.addClassCleanup(cls.server.__exit__, None, None, None)

    def setUp(self):
        self.server.reset()
        self.url = self.server.url("/m.safetensors")

    def waiting_cat(self, file):
        """A program that waits for the bytes of a file."""
        before = self.server.stats()["requests"]
        cat = subprocess.Popen(["cat", file], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(cat.wait)
        self.addCleanup(cat.kill)
        ckptfs.wait_until(lambda: self.server.stats()["requests"] > before)
        return cat

    def in_foreground(self, *options):
        """Starts ckptfs -f; returns the process and the mount point."""
        mountpoint = self.mountpoint()
        errors = self.scratch() / "errors"
        with open(errors, "wb") as file:
            daemon = subprocess.Popen([ckptfs.CKPTFS, "-f", *options, self.url, mountpoint],
                                      stderr=file)
        self.addCleanup(daemon.wait)
        self.addCleanup(daemon.kill)
        self.addCleanup(lambda: ckptfs.is_mounted(mountpoint) and
                        ckptfs.run("umount", "-l", mountpoint))
        ckptfs.wait_until(lambda: ckptfs.is_mounted(mountpoint) and os.listdir(mountpoint))
        return daemon, mountpoint, errors

    def test_an_interrupted_program_ends(self):
        with self.mount(self.url) as mount:
            self.server.rules([{"stall_head": 3600}])
            cat = self.waiting_cat(mount / "a.memmap")
            cat.send_signal(signal.SIGINT)
            self.assertEqual(cat.wait(5), -signal.SIGINT)

    def test_a_killed_program_ends(self):
        with self.mount(self.url) as mount:
            self.server.rules([{"stall_head": 3600}])
            cat = self.waiting_cat(mount / "b.memmap")
            cat.kill()
            self.assertEqual(cat.wait(5), -signal.SIGKILL)

    def test_a_timer_is_no_error_to_who_has_mapped_a_file(self):
        with self.mount(self.url) as mount:
            self.server.rules([{"delay_ms": 500}])
            place = 3 << 20
            done = ckptfs.run(sys.executable, "-c", TIMER, mount / "c.memmap", place)
            self.assertEqual(done.returncode, 0, done.stderr)
            byte, fired = map(int, done.stdout.split())
            self.assertEqual(byte, byte_at(place))
            self.assertGreater(fired, 0)

    def test_others_go_on_while_many_wait(self):
        with self.mount(self.url) as mount:
            a = ckptfs.read(mount / "a.memmap", 0, 4096)
            self.server.rules([{"stall_head": 3600}])
            waiting = [self.waiting_cat(mount / "d.memmap")]
            waiting += [subprocess.Popen(["cat", mount / "d.memmap"], stdout=subprocess.DEVNULL)
                        for _ in range(7)]
            self.assertEqual(len(ckptfs.run("ls", "-lR", mount.path, timeout=10).stdout.split("memmap")), 5)
            self.assertEqual(ckptfs.read(mount / "a.memmap", 0, 4096), a)
            for cat in waiting:
                cat.kill()
                cat.wait(5)

    def test_the_mount_ends_in_time_while_programs_wait(self):
        mount = self.mount(self.url)
        self.server.rules([{"stall_head": 3600}])
        cat = self.waiting_cat(mount / "a.memmap")
        started = time.monotonic()
        os.kill(mount.daemon, signal.SIGTERM)
        self.assertEqual(mount.wait(), 0)
        self.assertLess(time.monotonic() - started, 5)
        self.assertEqual(cat.wait(5), 1)
        self.assertFalse(ckptfs.is_mounted(mount.path))

    def test_what_nobody_reads_any_more_is_not_fetched_any_more(self):
        self.server.link(mb_per_s=2)
        with self.mount(self.url) as mount:
            before = self.server.stats()["bytes"]
            with open(mount / "a.memmap", "rb", buffering=0) as file:
                for _ in range(8):
                    file.read(128 << 10)
            self.server.link(mb_per_s=0.2)  # What is asked for takes longer than anybody waits.
            time.sleep(7)
            self.server.link()
            time.sleep(0.5)
            self.assertLess(self.server.stats()["bytes"] - before, 6 << 20)
            self.assertEqual(ckptfs.read(mount / "a.memmap"), self.content)

    def test_a_signal_logs_the_state_of_the_cache(self):
        daemon, mountpoint, errors = self.in_foreground("-o", "memory=16m")
        self.assertEqual(ckptfs.read(mountpoint / "a.memmap"), self.content)

        def status():
            before = errors.read_text().count("cache: ")
            daemon.send_signal(signal.SIGUSR1)
            ckptfs.wait_until(lambda: errors.read_text().count("cache: ") > before)
            return errors.read_text().splitlines()[-1]

        ckptfs.wait_until(lambda: " by 0 requests, 0 readers " in status())
        self.assertRegex(status(), r"^ckptfs: cache: [0-9.]+ of 8.0 MiB in use, 0.0 MiB being fetched"
                         r" by 0 requests, 0 readers waiting; so far \d+ bytes fetched, 0 from the"
                         r" disk, \d+ read$")
        daemon.send_signal(signal.SIGTERM)
        self.assertEqual(daemon.wait(5), 0)

    def test_little_memory_is_enough(self):
        with self.mount(self.url, "-o", "memory=8m") as mount:
            for name in NAMES:
                self.assertEqual(ckptfs.read(mount / f"{name}.memmap"), self.content)
