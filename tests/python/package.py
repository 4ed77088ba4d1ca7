"""Shared by the tests of the Python package: the package, and a check for remaining mounts.

The module of the mount tests has the name of the package, ckptfs, so it is loaded by another one.
"""

import gc
import importlib.util
import os
import signal
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "packaging" / "python"
sys.path.insert(0, str(PACKAGE))

import ckptfs  # noqa: E402 (it is in the directory above)


def load(name, path):
    """The module in a file."""
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


mounts = load("mounts", ROOT / "tests" / "mount" / "ckptfs.py")

try:
    import ml_dtypes
    import numpy
    import torch
except ImportError as error:
    ml_dtypes = numpy = torch = None
    MISSING = str(error)


class Case(mounts.Case):
    """A test in a directory of its own, which contains the temporary directories of its models."""

    def setUp(self):
        if torch is None:
            self.skip_avoidable(MISSING)
        self.addCleanup(setattr, tempfile, "tempdir", tempfile.tempdir)
        self.directory = self.scratch()
        self.temporary = self.directory / "tmp"
        self.temporary.mkdir()
        tempfile.tempdir = str(self.temporary)
        os.environ.update(CKPTFS_PROGRAM=mounts.CKPTFS, TMPDIR=str(self.temporary))
        self.addCleanup(os.environ.pop, "TMPDIR")
        self.addCleanup(self.check_no_mount)

    def check_no_mount(self):
        """Every model has been closed, and its daemon, which this process has adopted, ends."""
        left = self.mounted()
        for path in left:
            mounts.run("umount", "-l", path)
        self.assertEqual((left, list(self.temporary.glob("ckptfs.*"))), ([], []))
        gc.collect()  # The maps of a tensor that an exception refers to.
        mounts.wait_until(lambda: not self.daemons())

    def mounted(self):
        """The mounts in the directory of this test."""
        with open("/proc/self/mountinfo", encoding="latin1") as lines:
            paths = [mounts.unescape(line.split()[4]) for line in lines]
        return [path for path in paths if path.startswith(f"{self.directory}/")]

    def daemons(self):
        """The processes that serve mounts of this test; collects those that have ended."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                is_ours = os.fsencode(f"{self.directory}/") in (entry / "cmdline").read_bytes()
                state = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
            except OSError:
                continue
            if int(state[1]) == os.getpid() and state[0] == "Z":
                os.waitpid(int(entry.name), os.WNOHANG)
            elif is_ours and int(state[1]) == os.getpid():
                found.append(int(entry.name))
        return found

    def kill_daemon(self):
        """Kills the only daemon."""
        (daemon,) = self.daemons()
        os.kill(daemon, signal.SIGKILL)
        mounts.wait_until(lambda: not self.daemons())

    def save(self, value, name="model.pth"):
        """Saves a checkpoint with torch.save; returns its path."""
        file = self.directory / name
        torch.save(value, file)
        return file

    def python(self, code, *arguments, **environment):
        """Runs Python code that can import the package; returns what it prints."""
        environment = os.environ | {"PYTHONPATH": str(PACKAGE)} | environment
        done = mounts.run(sys.executable, "-B", "-c", code, *arguments, env=environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def assertSame(self, found, wanted):
        """Two tensors have the same type, shape and bytes."""
        self.assertEqual((found.dtype, found.shape), (wanted.dtype, wanted.shape))
        dense = wanted.detach().resolve_conj().resolve_neg().contiguous()
        self.assertTrue(torch.equal(found.reshape(-1).view(torch.uint8), dense.reshape(-1).view(torch.uint8)))

    def assertFails(self, pattern, function, *arguments, code=None, **options):
        """The call raises ckptfs.Error with this message and exit code."""
        with self.assertRaisesRegex(ckptfs.Error, pattern) as caught:
            function(*arguments, **options)
        self.assertEqual(caught.exception.exit_code, code)
        return str(caught.exception)
