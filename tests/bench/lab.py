"""What measurements are made of: checkpoints, mounts, clocks.

A `Lab` makes each checkpoint once, in a directory that goes away with it, and mounts the file
systems that are compared. Every mount is new, so that nothing of it is cached, while the archive
under it has been read before and lies in the page cache: what is measured is the file system and
not the disk. Where a row asks for it, the reader and the daemon have processors of their own: left
to the scheduler, the same read takes once or twice the time, as the two are put apart or together.

When a Lab is left, each mount is undone and each daemon has ended, also after a failure.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "mount"))
from ckptfs import Mount, is_mounted, run  # The path must be set first.

# Of what --encrypted of make_checkpoints.py writes.
KEY = bytes(range(32)).hex()

TICKS = os.sysconf("SC_CLK_TCK")


class Failure(Exception):
    """A command did not do what the benchmark needs. The message is for the user."""


class Daemon(Mount):
    """A mounted file system and the process that serves it."""

    def __init__(self, path, daemon, seconds, contender):
        super().__init__(path, daemon, "")
        self.seconds = seconds  # From the start of the program to the end of the mount.
        self.contender = contender

    def cpu(self):
        """The seconds that the process has computed, for itself and in the kernel."""
        fields = Path(f"/proc/{self.daemon}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def peak_memory(self):
        """The most memory that it had at any time, in MiB."""
        for line in Path(f"/proc/{self.daemon}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
        raise Failure(f"process {self.daemon} does not tell its memory")

    def files(self, count):
        """The files of the tensors of the checkpoint."""
        if self.contender == "fuse-zip":
            root = next(self.path.iterdir())
            return [root / "data" / str(i) for i in range(count)]
        return [self / f"f{i:06}.memmap" for i in range(count)]


class Lab:
    consumer = HERE / "consumer.py"

    def __init__(self, ckptfs, ckpt, null, reader, opener, inflater, fetcher, python):
        self.ckptfs, self.ckpt, self.null, self.reader, self.python = ckptfs, ckpt, null, reader, python
        self.opener, self.inflater, self.fetcher = opener, inflater, fetcher
        self.directory = Path(tempfile.mkdtemp(prefix="ckptfs-bench."))
        self.checkpoints = {}
        self.daemon_cpus = os.sched_getaffinity(0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.directory, ignore_errors=True)

    @contextmanager
    def apart(self):
        """Meanwhile this process and its readers have one processor, and daemons the others."""
        everywhere = self.daemon_cpus
        mine = {min(everywhere)}
        self.daemon_cpus = everywhere - mine or mine
        with running_on(mine):
            try:
                yield
            finally:
                self.daemon_cpus = everywhere

    def checkpoint(self, *shape):
        """The path of a checkpoint of (count, bytes), or of (option, ..., rows, columns): what
        make_checkpoints.py takes, without the path."""
        if shape not in self.checkpoints:
            path = self.directory / ("-".join(str(s).strip("-") for s in shape) + ".pth")
            flags, numbers = shape[:-2], shape[-2:]
            self.run(self.python, HERE / "make_checkpoints.py", *flags, path, *numbers)
            self.checkpoints[shape] = path
            self.read(*([path] if path.is_file() else path.iterdir()))  # Into the page cache.
        return self.checkpoints[shape]

    @staticmethod
    def run(*command, **options):
        """Runs a command, which must succeed, and returns what it printed."""
        if "input" in options:
            options["stdin"] = None  # The default is not to have any.
        done = run(*command, timeout=600, **options)
        if done.returncode != 0:
            raise Failure(f"{Path(command[0]).name} failed: {done.stderr.strip()}")
        return done.stdout

    def read(self, *files, kind=("sequential",), rounds=1):
        """The seconds that `reader` took for each round of reading files in a way of its."""
        names = "".join(f"{file}\n" for file in files)
        return self.seconds(self.reader, "--rounds", rounds, *kind, input=names)

    def consume(self, *arguments):
        """The seconds that each round of what a user of torch does took; see consumer.py."""
        return self.seconds(self.python, self.consumer, *arguments)

    def seconds(self, *command, **options):
        return [float(line) for line in self.run(*command, **options).split()]

    @staticmethod
    def clock(*command, **options):
        """The seconds that a command took from its start to its end; its output is dropped."""
        begin = time.perf_counter()
        done = subprocess.run([str(c) for c in command], stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, **options)
        seconds = time.perf_counter() - begin
        if done.returncode != 0:
            raise Failure(f"{Path(command[0]).name} failed with exit status {done.returncode}")
        return seconds

    @staticmethod
    def usage(*command, statuses=(0,), **options):
        """The seconds that a command took from its start to its end, and its peak memory in MiB. Its output
        is dropped."""
        begin = time.perf_counter()
        process = subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   **options)
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in statuses:
            raise Failure(f"{Path(command[0]).name} failed with exit status {process.returncode}")
        return seconds, used.ru_maxrss / 1024

    @contextmanager
    def mount(self, contender, shape):
        """Yields a new Daemon that shows the checkpoint of that shape, or what would be in it."""
        with self.mountpoint() as mountpoint:
            if contender == "null":
                command = [self.null, mountpoint, *shape]
            else:
                program = {"ckptfs": [self.ckptfs], "fuse-zip": ["fuse-zip", "-r"]}[contender]
                command = [*program, self.checkpoint(*shape), mountpoint]
            with running_on(self.daemon_cpus):
                seconds = self.clock(*command, env=os.environ | {"CKPTFS_KEY": KEY})
            with Daemon(mountpoint, daemon_of(mountpoint), seconds, contender) as daemon:
                yield daemon

    @contextmanager
    def remote(self, url, *options, env=None):
        """Yields a new Daemon of ckptfs that shows what is at a URL."""
        with self.mountpoint() as mountpoint:
            with running_on(self.daemon_cpus):
                seconds = self.clock(self.ckptfs, *options, url, mountpoint, env=env)
            with Daemon(mountpoint, daemon_of(mountpoint), seconds, "ckptfs") as daemon:
                yield daemon

    @contextmanager
    def mountpoint(self):
        """Yields a new directory, and undoes what is mounted there then."""
        path = Path(tempfile.mkdtemp(dir=self.directory, prefix="mnt."))
        try:
            yield path
        finally:
            if is_mounted(path):
                run("umount", "-l", path)

    @contextmanager
    def ext4(self, shape):
        """Yields a directory with the files that `null` shows, in an ext4 mounted just now.

        Only an image can be: nobody can empty the kernel's caches for the disk he works on.
        """
        count, size = shape
        image = self.directory / f"{count}-{size}.ext4"
        with self.mountpoint() as path:
            if not image.exists():
                with open(image, "wb") as file:
                    file.truncate(count * max(size, 4096) * 2 + (64 << 20))
                self.run("mkfs.ext4", "-q", "-N", count + 1000, image)
                self.run("mount", "-o", "loop", image, path)
                with self.mount("null", shape) as null:
                    self.run("cp", "-r", f"{null.path}/.", path)
                self.run("umount", path)
            self.run("mount", "-o", "loop,ro", image, path)
            yield path


@contextmanager
def running_on(cpus):
    """Meanwhile this process, and what it starts, is on these processors."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def daemon_of(mountpoint):
    """The process that serves `mountpoint`: one that we adopted and that has it as an argument."""
    children = Path("/proc/self/task", str(threading.get_native_id()), "children").read_text()
    for child in children.split():
        if os.fsencode(mountpoint) in Path("/proc", child, "cmdline").read_bytes().split(b"\0"):
            return int(child)
    raise Failure(f"nothing serves {mountpoint}")
