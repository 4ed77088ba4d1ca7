"""A web server that fails: reads return valid bytes, or the right error, in time."""

import errno
import hashlib
import json
import mmap
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import ckptfs
import craft
import view
from ckptfs import SOURCE

sys.path.insert(0, str(ckptfs.TESTS / "servers"))
from fault_server import FaultServer

SIZE = 1 << 20  # Of each tensor, in bytes.
NAMES = "abcde"
MIDDLE = "c"  # Opening reads the beginning and the end, so its bytes are still to be fetched.

# A fetch that gets nothing is given up after so many seconds, and the kernel asks twice. A machine that
# is busy may add some.
TIMEOUT = 3
SOON = 15


def content(name):
    return hashlib.sha256(name.encode()).digest() * (SIZE // 32)


def write_model(path):
    header = {name: {"dtype": "U8", "shape": [SIZE], "data_offsets": [i * SIZE, (i + 1) * SIZE]}
              for i, name in enumerate(NAMES)}
    craft.write_safetensors(path, json.dumps(header), b"".join(map(content, NAMES)))


def model_size():
    with tempfile.NamedTemporaryFile() as file:
        write_model(file.name)
        return os.stat(file.name).st_size


class Faults(ckptfs.Case):
    def setUp(self):
        root = self.scratch()
        self.file = root / "m.safetensors"
        write_model(self.file)
        self.server = FaultServer(root)
        self.addCleanup(self.server.__exit__)
        self.url = self.server.url("/m.safetensors")

    def start(self, timeout, quiet=True):
        """Mounts it; a fetch is given up after `timeout` seconds."""
        return self.mount(self.url, "-o", f"timeout={timeout}", quiet=quiet)

    def assertRight(self, mount):
        for name in NAMES:
            self.assertEqual(ckptfs.read(mount / f"{name}.memmap"), content(name))


class Together(ckptfs.Case):
    """Faults that last, each with a file of its own. All are tried at once, because each takes the time
    that the user allows; then the tests say what was to come out."""

    FAULTS = {}

    @classmethod
    def setUpClass(cls):
        cls.keeper = cls()
        cls.addClassCleanup(cls.keeper.doCleanups)
        root = cls.keeper.scratch()
        write_model(root / "m")
        for name in cls.FAULTS:
            os.link(root / "m", root / name)
        cls.server = FaultServer(root)
        cls.addClassCleanup(cls.server.__exit__)
        cls.prepare()
        cls.server.rules([{"path": f"/{name}"} | fault for name, fault in cls.FAULTS.items()])
        with ThreadPoolExecutor(len(cls.FAULTS)) as threads:
            cls.outcomes = dict(zip(cls.FAULTS, threads.map(cls.timed, cls.FAULTS)))
        cls.server.rules([])

    @classmethod
    def prepare(cls):
        """Before the faults."""

    @classmethod
    def timed(cls, name):
        began = time.monotonic()
        outcome = cls.attempt(name)
        return outcome, time.monotonic() - began

    def outcome(self, name):
        """The result of the fault, in time."""
        outcome, seconds = self.outcomes[name]
        self.assertLess(seconds, SOON)
        return outcome


class FailingParts(ckptfs.Case):
    """A server that fails on one file of several, while they are parsed: nothing is corrupt, so the mount
    fails, too, and works as soon as the server does."""

    def setUp(self):
        self.root = self.scratch()
        self.server = FaultServer(self.root)
        self.addCleanup(self.server.__exit__)

    def assertFails(self, source, part, fault, sentence):
        """`part` fails with `fault`; returns a mount of the time after that."""
        url = self.server.url(f"/{source}")
        self.server.rules([{"path": f"*/{part}"} | fault])
        done = self.ckptfs("-o", "timeout=2", url, self.mountpoint())
        self.assertEqual(done.returncode, SOURCE, done.stderr)
        self.assertRegex(done.stderr.splitlines()[-1], rf"\Ackptfs: .*{re.escape(part)}: .*{sentence}")
        nofail = self.ckptfs("-o", "timeout=2,nofail", url, self.mountpoint())
        self.assertEqual(nofail.returncode, 0, nofail.stderr)
        self.assertIn("nothing is mounted (nofail)", nofail.stderr)
        self.server.rules([])
        mount = self.mount(url)
        self.assertEqual([line for line in view.lines(mount.path) if line["error"]], [])
        return mount

    def write_shards(self):
        """Two files with long headers."""
        count = 60_000
        header = json.dumps({f"w{i}": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}
                             for i in range(count)})
        for name in "a", "b":
            craft.write_safetensors(self.root / f"{name}.safetensors", header.replace("w", name))
        index = {"weight_map": {f"{name}{i}": f"{name}.safetensors" for i in range(count) for name in "ab"}}
        (self.root / "model.safetensors.index.json").write_text(json.dumps(index))

    def test_of_headers_that_take_too_long(self):
        """Each request makes progress, but all of them together take more than twice the timeout."""
        self.write_shards()
        for name, fault in (("a.safetensors", {"reset": 70_000, "delay_ms": 200}),
                            ("model.safetensors.index.json", {"reset": 70_000, "delay_ms": 200}),
                            ("model.safetensors.index.json", {"delay_ms": 900})):
            with self.subTest(name=name, fault=fault):
                self.server.rules([fault])
                done = self.ckptfs("-o", "timeout=2", self.server.url(f"/{name}"), self.mountpoint())
                self.assertEqual(done.returncode, SOURCE, done.stderr)
                self.assertRegex(done.stderr.splitlines()[-1], ": reading the headers timed out after 4 s")

    def copy(self, sample):
        shutil.copytree(ckptfs.SAMPLES / sample, self.root / "model")

    def test_of_an_index(self):
        self.write_shards()
        for fault, sentence in (({"status": 503}, "status 503; gave up after 2 s"),
                                ({"status": 503, "after": 1}, "status 503; gave up after 2 s"),
                                ({"stall_head": 60}, "gave up after 2 s")):
            with self.subTest(fault):
                mount = self.assertFails("model.safetensors.index.json", "b.safetensors", fault, sentence)
                self.assertEqual(len(os.listdir(mount.path)), 120_001)

    def test_of_a_gguf_split(self):
        self.copy("gguf")
        self.assertFails("model/w_split-00001-of-00003.gguf", "w_split-00002-of-00003.gguf",
                         {"status": 503}, "status 503")

    def test_of_dcp(self):
        self.copy("dcp/torch-2.13/dcp")
        part = next(self.root.glob("model/*.distcp")).name
        self.assertFails("model/.metadata", part, {"status": 503}, "status 503")

    def test_of_a_tensordict(self):
        self.copy("tensordict/tensordict_memmap_v0.15.3")
        part = next(self.root.glob("model/*.memmap")).name
        self.assertFails("model/meta.json", part, {"status": 503}, "status 503")


class LastingFaults(Together):
    """Faults of requests for data that do not pass."""

    FAULTS = {
        "drop": {"drop": 1},
        "status": {"status": 503},
        "retry_after": {"status": 503, "retry_after": 3600},
        "reset": {"reset": 0},
        "truncate": {"truncate": 0},
        "stall_head": {"stall_head": 60},
        "stall_body": {"stall_body": 0},
        "trickle": {"trickle": 10},
        "no_ranges": {"no_ranges": 1},
        "shift_range": {"shift_range": 4096},
        "content_range": {"content_range": f"bytes 0-9/{model_size()}"},
        "length_delta": {"length_delta": -5},
        "denied": {"status": 403},
        "missing": {"status": 404},
        "loop": {"redirect": "loop"},
        "etag": {"etag": "new"},
        "no_etag": {"etag": "none"},
        "total": {"content_range": "bytes 0-9/10"},
        "not_satisfiable": {"status": 416},
        "precondition": {"status": 412},
        "byte_by_byte": {"short_range": 1, "delay_ms": 20},  # A page takes longer than the timeout.
    }

    @classmethod
    def prepare(cls):
        cls.mounts = {name: cls.keeper.mount(cls.server.url(f"/{name}"), "-o", f"timeout={TIMEOUT}")
                      for name in cls.FAULTS}

    @classmethod
    def attempt(cls, name):
        try:
            return ckptfs.read(cls.mounts[name] / f"{MIDDLE}.memmap")
        except OSError as error:
            return error.errno

    def assertPassing(self, code, name):
        """The read failed, and the mount did not: it goes on as soon as the server does."""
        self.assertEqual(self.outcome(name), code)
        for tensor in NAMES:
            self.assertEqual(ckptfs.read(self.mounts[name] / f"{tensor}.memmap"), content(tensor))
        self.assertEqual(self.mounts[name].unmount(), 0)

    def assertStaleForEver(self, name):
        """The read failed, and so does each later one, though the server has the old version again."""
        self.assertEqual(self.outcome(name), errno.ESTALE)
        self.assertErrno(errno.ESTALE, ckptfs.read, self.mounts[name] / f"{MIDDLE}.memmap")
        self.assertEqual(self.mounts[name].unmount(), 0)

    def test_connections_that_are_closed(self):
        self.assertPassing(errno.EIO, "drop")

    def test_a_server_that_is_busy(self):
        self.assertPassing(errno.EIO, "status")

    def test_a_server_that_asks_for_more_time_than_there_is(self):
        self.assertPassing(errno.EIO, "retry_after")

    def test_resets(self):
        self.assertPassing(errno.EIO, "reset")

    def test_answers_without_a_body(self):
        self.assertPassing(errno.EIO, "truncate")

    def test_a_server_that_is_silent(self):
        self.assertPassing(errno.ETIMEDOUT, "stall_head")

    def test_a_server_that_is_silent_after_the_headers(self):
        self.assertPassing(errno.ETIMEDOUT, "stall_body")

    def test_bytes_that_trickle(self):
        self.assertPassing(errno.ETIMEDOUT, "trickle")

    def test_a_server_that_has_no_ranges_any_more(self):
        self.assertPassing(errno.EIO, "no_ranges")

    def test_answers_with_other_bytes(self):
        self.assertPassing(errno.EIO, "shift_range")

    def test_answers_with_another_content_range(self):
        self.assertPassing(errno.EIO, "content_range")

    def test_a_length_that_is_wrong(self):
        self.assertPassing(errno.EIO, "length_delta")

    def test_ranges_of_single_bytes(self):
        self.assertPassing(errno.ETIMEDOUT, "byte_by_byte")

    def test_access_that_is_denied(self):
        self.assertPassing(errno.EACCES, "denied")

    def test_a_file_that_is_gone(self):
        self.assertPassing(errno.ENOENT, "missing")

    def test_redirects_in_circles(self):
        self.assertPassing(errno.EIO, "loop")

    def test_a_new_version(self):
        self.assertStaleForEver("etag")

    def test_a_version_that_is_missing_later(self):
        self.assertStaleForEver("no_etag")

    def test_another_length_of_the_same_version(self):
        self.assertPassing(errno.EIO, "total")

    def test_an_end_that_comes_sooner(self):
        self.assertStaleForEver("not_satisfiable")

    def test_a_version_that_fails_its_precondition(self):
        self.assertStaleForEver("precondition")


# Which clock is over first depends on how busy the machine is.
SILENT = r"no data received for [\d.]+ s|transfer too slow: \d+ bytes received"


class LastingFaultsOfOpening(Together):
    """Faults of the first request that do not pass."""

    FAULTS = {
        "drop": {"drop": 1},
        "status": {"status": 503},
        "stall_head": {"stall_head": 60},
        "stall_body": {"stall_body": 1000},
        "reset": {"reset": 0},
        "content_range": {"content_range": "bytes 5-9/10"},
        "length_delta": {"length_delta": 5},
        "denied": {"status": 403},
        "no_ranges": {"no_ranges": 1},
        "loop": {"redirect": "loop"},
    }

    @classmethod
    def attempt(cls, name):
        return cls.keeper.ckptfs("-o", f"timeout={TIMEOUT}", cls.server.url(f"/{name}"),
                                 cls.keeper.mountpoint())

    def assertGivenUp(self, name, sentence, after=f"{TIMEOUT} s"):
        """The last line says why, by a regular expression, and those before it, what was tried
        again."""
        done = self.outcome(name)
        url = self.server.url(f"/{name}")
        *warnings, last = done.stderr.splitlines()
        self.assertEqual(done.returncode, SOURCE)
        self.assertRegex(last, rf"\Ackptfs: {url}: (?:{sentence}); gave up after {after}\Z")
        for warning in warnings:
            self.assertRegex(warning, rf"\Ackptfs: warning: {url}: .*; retrying")

    def assertRefusedAtOnce(self, name, sentence):
        self.assertRefused(self.outcome(name), SOURCE,
                           f"{self.server.url(f'/{name}')}: {sentence}")

    def test_connections_that_are_closed(self):
        self.assertGivenUp("drop", "connection closed without a response")

    def test_a_server_that_is_busy(self):
        self.assertGivenUp("status", "server returned status 503")

    def test_a_server_that_is_silent(self):
        self.assertGivenUp("stall_head", SILENT)

    def test_a_server_that_is_silent_after_the_headers(self):
        # The file is open by then: the clock of the fetch or that of its reader is over first.
        outcome = self.outcome("stall_body")
        self.assertEqual(outcome.returncode, SOURCE)
        self.assertRegex(outcome.stderr.splitlines()[-1],
                         rf": (timed out|bytes 0 to 65535: ({SILENT}); gave up) after {TIMEOUT} s\Z")

    def test_resets(self):
        self.assertGivenUp("reset", "bytes 0 to 65535: connection reset after 0 bytes")

    def test_a_range_that_is_wrong(self):
        self.assertGivenUp("content_range", "unexpected content range "
                           r"\(found 'bytes 5-9/10', expected bytes 0 to 65535\)", "5 attempts")

    def test_a_length_that_is_wrong(self):
        self.assertGivenUp("length_delta", "unexpected content length "
                           r"\(found '65541', expected 65536\)", "5 attempts")

    def test_access_that_is_denied(self):
        self.assertRefusedAtOnce("denied", "permission denied")

    def test_a_server_without_ranges(self):
        self.assertRefusedAtOnce("no_ranges",
                                 "server does not support range requests: use -o download to fetch "
                                 "the file")

    def test_redirects_in_circles(self):
        self.assertRefusedAtOnce("loop", "too many redirects: more than 10")


class PassingFaults(Faults):
    """Readers do not notice transient faults."""

    def assertSurvives(self, **fault):
        mount = self.start(timeout=20)
        self.server.rules([{"times": 2} | fault])
        self.assertRight(mount)
        self.assertEqual(mount.unmount(), 0)

    def assertOpens(self, **fault):
        self.server.rules([{"times": 2} | fault])
        self.assertRight(self.start(timeout=20, quiet=False))

    def test_a_connection_that_is_closed(self):
        self.assertSurvives(drop=1)

    def test_a_server_that_is_busy(self):
        self.assertSurvives(status=503)

    def test_a_reset(self):
        self.assertSurvives(reset=100_000)

    def test_an_answer_that_ends_early(self):
        self.assertSurvives(truncate=100_000)

    def test_an_answer_with_all_bytes(self):
        self.assertSurvives(ignore_range=1)

    def test_ranges_with_the_status_of_a_whole_file(self):
        self.server.rules([{"part_as_200": 1}])
        self.assertRight(self.start(timeout=20))
        sent = self.server.stats()["bytes"]
        self.assertLess(sent, 1.2 * model_size())

    def test_an_answer_with_other_bytes(self):
        self.assertSurvives(shift_range=4096)

    def test_ranges_that_are_shorter_than_requested(self):
        for length in 100_000, 1000:
            with self.subTest(length):
                mount = self.start(timeout=20)
                self.server.rules([{"short_range": length}])
                self.assertRight(mount)
                self.assertEqual(mount.unmount(), 0)
                self.assertNotIn("retrying", mount.messages)

    def test_ranges_that_are_shorter_than_requested_while_it_is_opened(self):
        for length in 10_000, 40_000, 1:
            with self.subTest(length):
                self.server.rules([{"short_range": length, "times": 1 if length == 1 else 1000}])
                self.assertRight(self.start(timeout=20))

    def test_an_answer_that_announces_too_much(self):
        self.assertSurvives(length_delta=5)

    def test_an_answer_that_announces_too_little(self):
        self.assertSurvives(length_delta=-5)

    def test_chunks(self):
        self.assertSurvives(chunked=1, times=1000)

    def test_connections_that_are_used_once(self):
        self.assertSurvives(close=1, times=1000)

    def test_the_rest_of_a_head_is_not_waited_for(self):
        self.server.rules([{"times": 1, "stall_body": 16384, "stall_s": 10}])
        began = time.monotonic()
        mount = self.start(timeout=60)
        self.assertLess(time.monotonic() - began, 8)
        self.server.rules([])
        self.assertRight(mount)

    def test_a_head_that_is_broken_off_is_not_fetched_twice(self):
        self.server.rules([{"times": 1, "reset": 40_000}])
        mount = self.start(timeout=20, quiet=False)
        self.assertRight(mount)
        ranges = [entry["range"] for entry in self.server.stats()["log"]]
        self.assertEqual([r for r in ranges if r.startswith("bytes=0-")], ["bytes=0-65535"])

    def test_delays(self):
        self.assertSurvives(delay_ms=200)

    def test_a_server_with_retry_after(self):
        mount = self.start(timeout=20)
        # The reader's own request is one of the first eight; the others read ahead.
        self.server.rules([{"times": 8, "status": 429, "retry_after": 1}])
        began = time.monotonic()
        self.assertEqual(ckptfs.read(mount / f"{MIDDLE}.memmap"), content(MIDDLE))
        self.assertGreater(time.monotonic() - began, 0.9)

    def test_go_on_where_a_reset_was(self):
        mount = self.start(timeout=20)
        before = len(self.server.stats()["log"])
        self.server.rules([{"times": 1, "reset": 20_000}])  # The shortest request is of 32 KiB.
        self.assertEqual(ckptfs.read(mount / f"{MIDDLE}.memmap"), content(MIDDLE))
        ranges = [entry["range"] for entry in self.server.stats()["log"][before:]]
        (begin, end), *others = (map(int, text[len("bytes="):].split("-")) for text in ranges)
        again = [first for first, _ in others if begin <= first <= end]
        self.assertEqual(again, [begin + 20_000], ranges)

    def test_a_server_that_is_silent(self):
        mount = self.start(timeout=2)
        self.server.rules([{"times": 1, "stall_head": 60}])
        self.assertRight(mount)

    def test_a_server_that_is_slow_to_answer(self):
        mount = self.start(timeout=6)
        self.server.rules([{"stall_head": 2.5}])  # More than a third: the first attempt times out.
        self.assertEqual(ckptfs.read(mount / f"{MIDDLE}.memmap"), content(MIDDLE))

    def test_a_server_that_is_slow_to_answer_while_it_is_opened(self):
        self.server.rules([{"stall_head": 2.5, "times": 2}])
        mount = self.start(timeout=6, quiet=False)
        self.assertIn("no data received for 2 s; retrying", mount.messages)
        self.assertRight(mount)

    def test_a_connection_that_is_closed_while_it_is_opened(self):
        self.assertOpens(drop=1)

    def test_a_server_that_is_busy_while_it_is_opened(self):
        self.assertOpens(status=500)

    def test_a_reset_while_it_is_opened(self):
        self.assertOpens(reset=1000)

    def test_an_answer_with_other_bytes_while_it_is_opened(self):
        self.assertOpens(shift_range=10)

    def test_a_download_that_is_broken_off(self):
        self.server.rules([{"no_ranges": 1}, {"times": 1, "reset": 1_000_000}])
        mount = self.mount(self.url, "-o", "timeout=20,download", quiet=False)
        self.assertRegex(mount.messages, "connection reset after [0-9]+ bytes; retrying")
        self.assertRight(mount)


class Pauses(Faults):
    def test_bytes_before_a_pause_are_delivered(self):
        """Those that arrive quickly are received many at a time; the last ones must not wait for more."""
        few, length = 8192, 128 << 10  # The server sends the first `length` bytes at once.
        mount = self.start(30)
        self.server.link(mb_per_s=20)
        self.server.rules([{"path": "/m.safetensors", "stall_body": length + few, "stall_s": 8}])
        file = os.open(mount / f"{MIDDLE}.memmap", os.O_RDONLY | os.O_DIRECT)
        self.addCleanup(os.close, file)
        # One response is for all of a long read.
        long_read = threading.Thread(target=os.preadv, args=(file, [mmap.mmap(-1, SIZE // 2)], 0))
        long_read.start()
        self.addCleanup(long_read.join)
        time.sleep(0.2)
        buffer = mmap.mmap(-1, length)
        began = time.monotonic()
        self.assertEqual(os.preadv(file, [buffer], 0), length)
        self.assertLess(time.monotonic() - began, 5)
        self.assertEqual(buffer[:], content(MIDDLE)[:length])


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
