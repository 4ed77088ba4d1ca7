"""A web server that misbehaves: the bytes are right, or there is the error that says why, in time."""

import errno
import hashlib
import json
import os
import signal
import sys
import threading
import time

import ckptfs
import craft
from ckptfs import SOURCE

sys.path.insert(0, str(ckptfs.TESTS / "servers"))
from fault_server import FaultServer

SIZE = 1 << 20  # Of each tensor, in bytes.
NAMES = "abcde"
MIDDLE = "c"  # Opening reads the beginning and the end, so its bytes are still to be fetched.

# What a fetch may take that is given up after a second, and what a machine that is busy may add.
SOON = 8


def content(name):
    return hashlib.sha256(name.encode()).digest() * (SIZE // 32)


class Faults(ckptfs.Case):
    def setUp(self):
        root = self.scratch()
        self.file = root / "m.safetensors"
        header = {name: {"dtype": "U8", "shape": [SIZE], "data_offsets": [i * SIZE, (i + 1) * SIZE]}
                  for i, name in enumerate(NAMES)}
        craft.write_safetensors(self.file, json.dumps(header),
                                b"".join(map(content, NAMES)))
        self.server = FaultServer(root)
        self.addCleanup(self.server.__exit__)
        self.url = self.server.url("/m.safetensors")

    def start(self, timeout=1, quiet=True):
        """Mounts it; a fetch is given up after `timeout` seconds."""
        return self.mount(self.url, "-o", f"timeout={timeout}", quiet=quiet)

    def assertRight(self, mount):
        for name in NAMES:
            self.assertEqual(ckptfs.read(mount / f"{name}.memmap"), content(name))


class Reads(Faults):
    """Faults of requests for data: those that pass are not noticed, those that stay are errors."""

    def assertSurvives(self, **fault):
        mount = self.start(timeout=20)
        self.server.rules([{"times": 2} | fault])
        self.assertRight(mount)
        self.assertEqual(mount.unmount(), 0)

    def assertFails(self, code, **fault):
        mount = self.start()
        self.server.rules([fault])
        began = time.monotonic()
        self.assertErrno(code, ckptfs.read, mount / f"{MIDDLE}.memmap")
        self.assertLess(time.monotonic() - began, SOON)
        # It is the request that has failed, not the mount.
        self.server.rules([])
        self.assertRight(mount)
        self.assertEqual(mount.unmount(), 0)

    def test_survive_a_connection_that_is_closed(self):
        self.assertSurvives(drop=1)

    def test_fail_if_connections_are_always_closed(self):
        self.assertFails(errno.EIO, drop=1)

    def test_survive_a_server_that_is_busy(self):
        self.assertSurvives(status=503)

    def test_fail_if_the_server_is_always_busy(self):
        self.assertFails(errno.EIO, status=503)

    def test_wait_as_long_as_the_server_asks(self):
        mount = self.start(timeout=20)
        self.server.rules([{"times": 1, "status": 429, "retry_after": 1}])
        began = time.monotonic()
        self.assertEqual(ckptfs.read(mount / f"{MIDDLE}.memmap"), content(MIDDLE))
        self.assertGreater(time.monotonic() - began, 0.9)

    def test_survive_a_reset(self):
        self.assertSurvives(reset=100_000)

    def test_go_on_where_a_reset_was(self):
        mount = self.start(timeout=20)
        before = len(self.server.stats()["log"])
        self.server.rules([{"times": 1, "reset": 100_000}])
        self.assertEqual(ckptfs.read(mount / f"{MIDDLE}.memmap"), content(MIDDLE))
        ranges = [entry["range"] for entry in self.server.stats()["log"][before:]]
        begins = [int(text[len("bytes="):].split("-")[0]) for text in ranges]
        ends = [int(text.split("-")[1]) for text in ranges]
        again = [i for i in range(1, len(ranges)) if ends[i] == ends[0]]
        self.assertEqual([begins[i] for i in again], [begins[0] + 100_000])

    def test_fail_if_all_is_reset(self):
        self.assertFails(errno.EIO, reset=0)

    def test_survive_an_answer_that_ends_early(self):
        self.assertSurvives(truncate=100_000)

    def test_fail_if_no_answer_has_a_body(self):
        self.assertFails(errno.EIO, truncate=0)

    def test_survive_a_server_that_is_silent(self):
        mount = self.start(timeout=2)
        self.server.rules([{"times": 1, "stall_head": 60}])
        self.assertRight(mount)

    def test_fail_if_the_server_is_always_silent(self):
        self.assertFails(errno.ETIMEDOUT, stall_head=60)

    def test_fail_if_every_body_stalls(self):
        self.assertFails(errno.ETIMEDOUT, stall_body=0)

    def test_fail_if_bytes_only_trickle(self):
        self.assertFails(errno.ETIMEDOUT, trickle=10)

    def test_survive_an_answer_with_all_bytes(self):
        self.assertSurvives(ignore_range=1)

    def test_fail_if_there_are_no_ranges_any_more(self):
        self.assertFails(errno.EIO, no_ranges=1)

    def test_survive_an_answer_with_other_bytes(self):
        self.assertSurvives(shift_range=4096)

    def test_fail_if_it_is_always_other_bytes(self):
        self.assertFails(errno.EIO, shift_range=4096)

    def test_fail_if_the_server_says_that_it_is_other_bytes(self):
        self.assertFails(errno.EIO, content_range=f"bytes 0-9/{self.file.stat().st_size}")

    def test_survive_an_answer_that_announces_too_much(self):
        self.assertSurvives(length_delta=5)

    def test_survive_an_answer_that_announces_too_little(self):
        self.assertSurvives(length_delta=-5)

    def test_fail_if_the_announced_length_is_always_wrong(self):
        self.assertFails(errno.EIO, length_delta=-5)

    def test_survive_chunks(self):
        self.assertSurvives(chunked=1, times=1000)

    def test_survive_connections_that_are_used_once(self):
        self.assertSurvives(close=1, times=1000)

    def test_survive_delays(self):
        self.assertSurvives(delay_ms=200)

    def test_fail_if_access_is_denied_any_more(self):
        self.assertFails(errno.EACCES, status=403)

    def test_fail_if_the_file_is_not_there_any_more(self):
        self.assertFails(errno.ENOENT, status=404)

    def test_fail_if_they_are_redirected_in_circles(self):
        self.assertFails(errno.ELOOP, redirect="loop")


class Versions(Faults):
    def assertStaleForEver(self, **fault):
        mount = self.start()
        self.server.rules([fault])
        self.assertErrno(errno.ESTALE, ckptfs.read, mount / f"{MIDDLE}.memmap")
        # There is no way back, though the server has the old version again.
        self.server.rules([])
        self.assertErrno(errno.ESTALE, ckptfs.read, mount / f"{MIDDLE}.memmap")
        self.assertEqual(mount.unmount(), 0)

    def test_that_are_new_are_stale(self):
        self.assertStaleForEver(etag="new")

    def test_that_have_no_tag_any_more_are_stale(self):
        self.assertStaleForEver(etag="none")

    def test_of_another_length_are_stale(self):
        self.assertStaleForEver(content_range="bytes 0-9/10")

    def test_that_end_sooner_are_stale(self):
        self.assertStaleForEver(status=416)

    def test_that_the_server_says_it_does_not_have_are_stale(self):
        self.assertStaleForEver(status=412)


class Opening(Faults):
    """Faults of the first requests."""

    def assertSurvives(self, **fault):
        self.server.rules([{"times": 2} | fault])
        mount = self.start(timeout=20, quiet=False)
        self.assertRight(mount)

    def assertRefusedSoon(self, pattern, **fault):
        self.server.rules([fault])
        began = time.monotonic()
        done = self.ckptfs("-o", "timeout=1", self.url, self.mountpoint())
        self.assertLess(time.monotonic() - began, SOON)
        self.assertEqual(done.returncode, SOURCE, done.stderr)
        *warnings, last = done.stderr.splitlines()
        self.assertRegex(last, rf"\Ackptfs: {self.url}: {pattern}\Z")
        for warning in warnings:
            self.assertRegex(warning, rf"\Ackptfs: warning: {self.url}: .*; trying again")

    def test_survives_a_connection_that_is_closed(self):
        self.assertSurvives(drop=1)

    def test_survives_a_server_that_is_busy(self):
        self.assertSurvives(status=500)

    def test_survives_a_reset(self):
        self.assertSurvives(reset=1000)

    def test_survives_other_bytes(self):
        self.assertSurvives(shift_range=10)

    def test_survives_chunks(self):
        self.assertSurvives(chunked=1, times=1000)

    def test_fails_if_connections_are_always_closed(self):
        self.assertRefusedSoon("connection closed without an answer; gave up after 1 s", drop=1)

    def test_fails_if_the_server_is_always_busy(self):
        self.assertRefusedSoon("the server answers with status 503; gave up after 1 s", status=503)

    def test_fails_if_the_server_is_silent(self):
        self.assertRefusedSoon("the server is silent for 0.333 s; gave up after 1 s", stall_head=60)

    def test_fails_if_the_range_is_wrong(self):
        self.assertRefusedSoon("the server sends 'bytes 0-9/10' instead of the first bytes; "
                               "gave up after 1 s", content_range="bytes 0-9/10")

    def test_fails_if_the_length_is_wrong(self):
        self.assertRefusedSoon("the server announces '65541' bytes instead of 65536; "
                               "gave up after 1 s", length_delta=5)

    def test_fails_at_once_if_access_is_denied(self):
        self.assertRefusedSoon("the server denies access", status=403)

    def test_fails_at_once_if_there_are_no_ranges(self):
        self.assertRefusedSoon("the server cannot serve parts of a file: -o download fetches all "
                               "of it first", no_ranges=1)

    def test_fails_at_once_for_redirects_in_circles(self):
        self.assertRefusedSoon("the server redirects more than 10 times", redirect="loop")

    def test_downloads_again_what_was_broken_off(self):
        self.server.rules([{"no_ranges": 1}, {"times": 1, "reset": 1_000_000}])
        mount = self.mount(self.url, "-o", "timeout=20,download", quiet=False)
        self.assertIn("connection reset after 1000000 bytes; trying again", mount.messages)
        self.assertRight(mount)


class Ending(Faults):
    """Nobody waits for a server that is silent, once he does not want to."""

    def read_in_vain(self, mount):
        """Starts a read that the server does not answer."""
        self.server.rules([{"stall_head": 3600}])
        failed = []

        def read():
            try:
                ckptfs.read(mount / f"{MIDDLE}.memmap")
            except OSError as error:
                failed.append(error.errno)

        before = len(self.server.stats()["log"])
        reader = threading.Thread(target=read)
        reader.start()
        self.addCleanup(reader.join)
        ckptfs.wait_until(lambda: len(self.server.stats()["log"]) > before)
        return reader, failed

    def test_a_daemon_that_is_terminated_ends_soon(self):
        mount = self.start(timeout=300)
        reader, failed = self.read_in_vain(mount)
        began = time.monotonic()
        os.kill(mount.daemon, signal.SIGTERM)
        self.assertEqual(mount.wait(), 0)
        self.assertLess(time.monotonic() - began, 5)
        reader.join(5)
        self.assertEqual(len(failed), 1)


if __name__ == "__main__":
    ckptfs.unittest.main()
