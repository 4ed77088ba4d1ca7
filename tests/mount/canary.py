"""What tests of attacks share: a canary, which sings where the code of a checkpoint runs.

The canary is a file. An attack is harmless but for that it creates the file; the control is that
it does when Python's own pickle or torch loads the attack, so that silence on a mount means
something.
"""

import os
import pickle
import signal
import time
from pathlib import Path

import ckptfs
from craft import PROTO, STOP, Record, call, glob, mapping, tensor, text, write_archive

A = bytes(range(24))


class Python(pickle.Unpickler):
    """Python's unpickler, for which storages are None."""

    def persistent_load(self, _):
        return None


class Attack(ckptfs.Case):
    def setUp(self):
        self.folder = self.scratch()
        self.file = self.folder / "model.pth"
        self.canary = self.folder / "canary"
        self.command = f"touch {self.canary}"
        # What most attacks do; os.system is posix.system by its real name.
        self.payload = call(glob("posix", "system"), text(self.command))

    def assertSings(self, load, *arguments):
        """Calls `load` in a process of its own, in which the canary must sing, and silences it."""
        pid = os.fork()
        if pid == 0:
            try:
                nothing = os.open(os.devnull, os.O_RDWR)
                for descriptor in 0, 1, 2:
                    os.dup2(nothing, descriptor)
                os.chdir(self.folder)
                signal.alarm(30)
                load(*arguments)
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        deadline = time.monotonic() + 2  # Some attacks start a process and do not wait for it.
        while not self.canary.exists() and time.monotonic() < deadline:
            time.sleep(0.002)
        self.assertTrue(self.canary.exists(), "the attack does nothing even to Python")
        time.sleep(0.01)
        self.canary.unlink()

    def assertSingsInPickle(self, opcodes):
        """As assertSings, for what Python's own unpickler does with a pickle."""
        with open(self.folder / "control.pkl", "wb") as file:
            file.write(opcodes)

        def load():
            with open(self.folder / "control.pkl", "rb") as file:
                Python(file, encoding="latin1").load()
        self.assertSings(load)

    def show(self, source=None):
        """Mounts within the limits; the whole tree is read, and the canary is silent."""
        code, said, mountpoint = self.assertBounded(source or self.file)
        self.assertEqual(code, 0, said)
        return self.mounted(mountpoint, said)

    def mounted(self, mountpoint, said):
        """As show, of what assertBounded has mounted."""
        mount = ckptfs.Mount(mountpoint, self.daemon_of(mountpoint), said)
        self.addCleanup(mount.release)
        for folder, _, names in os.walk(mountpoint):
            for name in names:
                try:
                    ckptfs.read(Path(folder, name))
                except OSError:
                    pass  # A damaged tensor, which has been told.
        self.assertFalse(self.canary.exists())
        return mount

    def refuse(self, code, pattern, source=None):
        """ckptfs refuses within the limits, in one sentence; the canary is silent."""
        found, said, mountpoint = self.assertBounded(source or self.file)
        self.assertEqual((found, said.count("\n")), (code, 1), said)
        self.assertRegex(said, rf"\Ackptfs: {source or self.file}: {pattern}\n\Z")
        self.assertFalse(ckptfs.is_mounted(mountpoint))
        self.assertFalse(self.canary.exists())

    def globals_of(self, mount):
        return ckptfs.meta(mount.path)["_ckptfs"]["globals"]

    def assertNames(self, mount, *names):
        """The mount tells that these globals are there, and that weights_only refuses them."""
        told = ckptfs.meta(mount.path)["_ckptfs"]
        for key in "globals", "globals_refused_by_weights_only":
            self.assertEqual(told[key], sorted(set(told[key])))
            self.assertEqual(set(names) - set(told[key]), set(), f"{key}: {told[key]}")

    def craft(self, opcodes, proto=PROTO):
        """Writes a checkpoint with the tensor `a` and, before it, `evil`; returns its pickle.

        There is a storage "1" beside that of `a`.
        """
        data = proto + mapping(("evil", opcodes), ("a", tensor("0", [6]))) + STOP
        write_archive(self.file, [Record("data.pkl", data), Record("byteorder", b"little"),
                                  Record("data/0", A), Record("data/1", A),
                                  Record("version", b"3\n")])
        return data

    def assertHarmless(self, opcodes, *names, proto=PROTO):
        """The opcodes do harm in Python, and none in a checkpoint, which tells their globals."""
        self.assertSingsInPickle(proto + opcodes + STOP)
        self.craft(opcodes, proto)
        mount = self.show()
        self.assertEqual(ckptfs.read(mount / "a.memmap"), A)
        self.assertNames(mount, *names)
        return mount
