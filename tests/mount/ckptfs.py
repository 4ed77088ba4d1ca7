"""What all mount tests share: running ckptfs, mounting, and cleaning up whatever happens.

The program under test is $CKPTFS. This process adopts the daemons that ckptfs leaves behind (it is
their "subreaper"), so that it learns their exit status, and so that none outlives its test.
"""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

CKPTFS = os.environ.get("CKPTFS", "")
TESTS = Path(__file__).resolve().parent.parent
SAMPLES = TESTS / "samples"

# A build with sanitizers is slower, takes more memory, and writes what it finds to files whose
# names begin with this. See Case.run.
SANITIZER_LOG = os.environ.get("CKPTFS_SANITIZER_LOG", "")
IS_SANITIZED = bool(SANITIZER_LOG)

# The program explains a mount to users of sudo, and tests compare what it says.
os.environ.pop("SUDO_UID", None)

PR_SET_CHILD_SUBREAPER = 36
ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

# What a hostile file may cost. What sanitizers cost is not what is tested.
# What a hostile file may cost: seconds of CPU, less if it is small, and bytes of memory.
SECONDS = 60 if IS_SANITIZED else 1
SECONDS_OF_SMALL = 60 if IS_SANITIZED else 0.3
SMALL = 64 << 10
MEMORY = 64 << 20

# Runs a command in a process of its own and prints its exit status, seconds of CPU, and peak of
# memory in KiB. The peak of a process counts that of the one it was forked from, so that has to be
# small.
MEASURE = """
import os, sys
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)
_, status, usage = os.wait4(pid, 0)
print(os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime, usage.ru_maxrss)
"""


def disk_usage(source):
    """Bytes that a file, or all files of a directory, take; of a sparse one those that are there."""
    files = [source] if not os.path.isdir(source) else [
        os.path.join(folder, name) for folder, _, names in os.walk(source) for name in names]
    there = [file for file in files if os.path.exists(file)]
    return sum(min(s.st_size, 512 * s.st_blocks) for s in map(os.stat, there))


def cpu_seconds(process):
    """What all threads of a process have taken."""
    return sum(int((task / "schedstat").read_text().split()[0])
               for task in Path(f"/proc/{process}/task").iterdir()) / 1e9

# Exit codes of ckptfs.
USAGE, SOURCE, FORMAT, CORRUPT, LIMITS, MOUNTPOINT, FUSE = 2, 3, 4, 5, 6, 7, 8


def run(*command, **options):
    """Runs a command to its end, which must come soon; returns CompletedProcess with text."""
    options = {"capture_output": True, "text": True, "errors": "surrogateescape", "timeout": 60,
               "stdin": subprocess.DEVNULL} | options
    return subprocess.run([str(c) for c in command], **options)


def wait_until(condition, timeout=20):
    """Waits until `condition` holds, which must be soon."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("it did not happen")
        time.sleep(0.005)


def unescape(field):
    """A path as /proc/self/mountinfo writes it, with \\040 for a space."""
    return field.encode("latin1").decode("unicode_escape").encode("latin1").decode(
        "utf-8", "surrogateescape")


def is_mounted(path):
    """Whether something is mounted on exactly this path, be its daemon alive or dead."""
    path = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    with open("/proc/self/mountinfo", encoding="latin1") as lines:
        return any(unescape(line.split()[4]) == path for line in lines)


def read(path, offset=0, length=None):
    """Reads with system calls, without Python's buffers, to the end or `length` bytes."""
    with open(path, "rb", buffering=0) as file:
        pieces = []
        while length is None or length > 0:
            piece = os.pread(file.fileno(), min(length or 1 << 20, 1 << 20), offset)
            if not piece:
                break
            pieces.append(piece)
            offset += len(piece)
            if length is not None:
                length -= len(piece)
        return b"".join(pieces)


def meta(directory):
    """The meta.json of a directory, parsed as strictly as JSON is defined."""
    def refuse(constant):
        raise ValueError(f"{directory}: {constant} is not JSON")

    def unique(pairs):
        members = dict(pairs)
        if len(members) != len(pairs):
            raise ValueError(f"{directory}: a member is there twice")
        return members

    text = read(Path(directory, "meta.json")).decode("utf-8")
    return json.loads(text, parse_constant=refuse, object_pairs_hook=unique)


class Mount:
    """A mounted checkpoint. Use Case.mount, which undoes it."""

    def __init__(self, path, daemon, messages):
        self.path = Path(path)
        self.daemon = daemon      # Process id.
        self.messages = messages  # What ckptfs said on stderr.
        self.code = None          # Exit code of the daemon, once it has ended.

    def __truediv__(self, name):
        return self.path / name

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()

    def unmount(self):
        """Unmounts as users do and returns the exit code of the daemon."""
        run("fusermount3", "-u", self.path, check=True)
        return self.wait()

    def wait(self, timeout=20):
        """Waits until the daemon has ended; returns its exit code."""
        if self.code is None:
            deadline = time.monotonic() + timeout
            pid = 0
            while pid == 0:
                pid, status = os.waitpid(self.daemon, os.WNOHANG)
                if pid == 0:
                    if time.monotonic() > deadline:
                        raise TimeoutError(f"daemon {self.daemon} still runs after {timeout} s")
                    time.sleep(0.002)
            self.code = os.waitstatus_to_exitcode(status)
        return self.code

    def release(self):
        """Leaves nothing behind, in whatever state things are."""
        if is_mounted(self.path):
            if run("fusermount3", "-u", self.path).returncode != 0:
                run("umount", "-l", self.path)
        try:
            self.wait(5)
        except TimeoutError:
            os.kill(self.daemon, signal.SIGKILL)
            self.wait()
        except ChildProcessError:
            pass


class Case(unittest.TestCase):
    """A test with scratch directories, mounts that are undone, and a look for reports."""

    maxDiff = 5000

    def run(self, result=None):
        if SANITIZER_LOG:
            # Runs last, after all mounts are undone and their daemons have ended.
            self.addCleanup(self.check_sanitizers)
        return super().run(result)

    def check_sanitizers(self):
        log = Path(SANITIZER_LOG)
        for report in log.parent.glob(log.name + "*"):
            text = report.read_text(errors="replace")
            report.rename(report.with_name("seen-" + report.name))
            self.fail(f"a sanitizer reports:\n{text}")

    def skip_avoidable(self, reason):
        """Skips for a reason that somebody could do something about: no skip counts as success."""
        self.skipTest("avoidable: " + reason)

    def need_command(self, name):
        if not shutil.which(name):
            self.skip_avoidable(f"there is no {name}")

    def scratch(self):
        """A new directory on a real file system, which goes away after the test."""
        directory = tempfile.mkdtemp(prefix="ckptfs-test.")
        self.addCleanup(shutil.rmtree, directory, ignore_errors=True)
        os.chmod(directory, 0o755)
        return Path(directory)

    def mountpoint(self):
        directory = self.scratch() / "mnt"
        directory.mkdir()
        # Before rmtree, whatever is mounted there has to go.
        self.addCleanup(lambda: is_mounted(directory) and run("umount", "-l", directory))
        return directory

    def ckptfs(self, *arguments, **options):
        """Runs ckptfs and returns how it ended; what it may have mounted stays."""
        return run(CKPTFS, *arguments, **options)

    def daemon_of(self, mountpoint):
        """The process that serves `mountpoint`: a child of ours that has it as an argument."""
        wanted = os.fsencode(mountpoint)
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                arguments = (entry / "cmdline").read_bytes().split(b"\0")
                status = (entry / "stat").read_text(errors="replace")
                parent = int(status.rpartition(")")[2].split()[1])
            except OSError:
                continue
            if wanted in arguments and parent == os.getpid():
                return int(entry.name)
        self.fail(f"no daemon serves {mountpoint}")

    def mount(self, source, *options, mountpoint=None, quiet=True, **run_options):
        """Mounts `source`, which must succeed, and unless not `quiet`, without a word."""
        mountpoint = mountpoint or self.mountpoint()
        done = self.ckptfs(*options, source, mountpoint, **run_options)
        self.assertEqual(done.returncode, 0, done.stderr)
        mount = Mount(mountpoint, self.daemon_of(mountpoint), done.stderr)
        self.addCleanup(mount.release)
        self.assertEqual(done.stdout, "")
        if quiet:
            self.assertEqual(done.stderr, "")
        return mount

    def assertBounded(self, source):
        """Runs ckptfs within limits of CPU and memory, whether it refuses `source` or mounts it;
        returns the exit code, what it said, and the mount point."""
        mountpoint = self.mountpoint()
        # meson has malloc fill what it gives out, so that memory which nobody uses would count.
        environment = {k: v for k, v in os.environ.items() if k != "MALLOC_PERTURB_"}
        done = run(sys.executable, "-I", "-S", "-c", MEASURE, CKPTFS, source, mountpoint,
                   errors="backslashreplace", env=environment)
        code, seconds, kilobytes = map(float, done.stdout.split())
        if code == 0:
            mount = Mount(mountpoint, self.daemon_of(mountpoint), done.stderr)
            self.addCleanup(mount.release)
            status = Path(f"/proc/{mount.daemon}/status").read_text()
            kilobytes = max(kilobytes, int(status.partition("VmHWM:")[2].split()[0]))
            seconds += cpu_seconds(mount.daemon)
        is_small = disk_usage(source) < SMALL
        self.assertLess(seconds, SECONDS_OF_SMALL if is_small else SECONDS, done.stderr)
        if not IS_SANITIZED:
            self.assertLess(kilobytes * 1024, MEMORY)
        return int(code), done.stderr, mountpoint

    def assertRefused(self, done, code, sentence):
        """ckptfs ended with `code` and exactly one line, "ckptfs: " and this sentence."""
        self.assertEqual((done.returncode, done.stdout, done.stderr),
                         (code, "", f"ckptfs: {sentence}\n"))

    def assertRefusedLike(self, done, code, pattern):
        """As assertRefused, for a regular expression."""
        self.assertEqual((done.returncode, done.stdout), (code, ""), done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertRegex(done.stderr, rf"\Ackptfs: {pattern}\n\Z")

    def assertErrno(self, code, function, *arguments):
        with self.assertRaises(OSError) as caught:
            function(*arguments)
        self.assertEqual(os.strerror(caught.exception.errno), os.strerror(code))
