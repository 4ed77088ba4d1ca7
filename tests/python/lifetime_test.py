"""A model of the Python package is unmounted, whatever ends it."""

import os
import shutil
import signal
import sys
import warnings

from package import PACKAGE, Case, ckptfs, mounts, torch


class Lifetime(Case):
    def setUp(self):
        super().setUp()
        self.file = self.save({"w": torch.arange(4.), "h.0.v": torch.ones(2), "epoch": 3})

    def test_with(self):
        with ckptfs.open(self.file) as model:
            path = model.path
            self.assertEqual(self.mounted(), [str(path)])
            self.assertEqual((path / "h" / "0" / "v.memmap").stat().st_size, 8)
        self.assertFalse(path.exists())

    def test_an_exception_unmounts(self):
        with self.assertRaises(ZeroDivisionError):
            with ckptfs.open(self.file) as model:
                tensor = model["w"]
                raise ZeroDivisionError
        self.assertEqual(self.mounted(), [])
        self.assertEqual(tensor.tolist(), [0, 1, 2, 3])

    def test_an_exception_in_nested_models_unmounts_all(self):
        with self.assertRaisesRegex(ckptfs.Error, "none.pth"):
            with ckptfs.open(self.file) as outer, ckptfs.open(self.file) as inner:
                self.assertEqual(self.mounted(), [str(outer.path), str(inner.path)])
                with inner:  # Again, which closes it.
                    pass
                self.assertEqual(self.mounted(), [str(outer.path)])
                ckptfs.open(self.directory / "none.pth")
        self.assertEqual(self.mounted(), [])

    def test_signals_that_raise_an_exception_unmount(self):
        code = """
import ckptfs, os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
with ckptfs.open(sys.argv[1]) as model, ckptfs.open(sys.argv[1]) as other:
    os.kill(os.getpid(), getattr(signal, sys.argv[2]))
    signal.pause()
"""
        for name, status in ("SIGTERM", 143), ("SIGINT", -signal.SIGINT):
            environment = os.environ | {"PYTHONPATH": str(PACKAGE)}
            done = mounts.run(sys.executable, "-B", "-c", code, self.file, name, env=environment)
            self.assertEqual((done.returncode, self.mounted()), (status, []), done.stderr)

    def test_close(self):
        model = ckptfs.open(self.file)
        tensor, array = model["w"], model.numpy("h.0.v")
        model.close()
        model.close()
        self.assertEqual(self.mounted(), [])
        self.assertEqual((tensor.tolist(), array.tolist()), ([0, 1, 2, 3], [1, 1]))
        tensor += 1
        for function in (lambda: model["w"], lambda: model.values["epoch"], model.state_dict, model.tensordict,
                         lambda: model.raw("w"), lambda: model.composite("w")):
            self.assertFails("model.pth: the model is closed", function)
        # The daemon serves the maps that are left, and ends after them.
        self.assertEqual(len(self.daemons()), 1)
        del tensor, array
        mounts.wait_until(lambda: not self.daemons())

    def test_close_needs_fusermount3_only(self):
        tools = self.directory / "bin"
        tools.mkdir()
        (tools / "fusermount3").symlink_to(shutil.which("fusermount3"))
        self.addCleanup(os.environ.update, PATH=os.environ["PATH"])
        model = ckptfs.open(self.file)
        os.environ["PATH"] = str(tools)
        tensor = model["w"]
        model.close()
        self.assertEqual((self.mounted(), tensor.tolist()), ([], [0, 1, 2, 3]))

    def test_a_forgotten_model_is_unmounted(self):
        model = ckptfs.open(self.file)
        self.assertEqual(len(self.mounted()), 1)
        del model
        self.assertEqual(self.mounted(), [])

    def test_exit_of_the_interpreter_unmounts(self):
        for end in "", "import os; sys.exit(0)", "model = None":
            with self.subTest(end):
                self.assertEqual(self.python(
                    "import ckptfs, sys; model = ckptfs.open(sys.argv[1]); print(model['w'][3].item())\n" + end,
                    self.file), "3.0\n")
                self.assertEqual(self.mounted(), [])

    def test_a_forked_child_leaves_the_mount(self):
        self.assertEqual(self.python("""
import ckptfs, os, sys
model = ckptfs.open(sys.argv[1])
child = os.fork()
if child == 0:
    assert model["w"].tolist() == [0, 1, 2, 3]
    model.close()
    sys.exit(5)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), os.path.ismount(model.path), model["h.0.v"].tolist())
""", self.file), "5 True [1.0, 1.0]\n")

    def test_two_models(self):
        other = self.save({"w": torch.zeros(1)}, "other.pth")
        with ckptfs.open(self.file) as first, ckptfs.open(other) as second, ckptfs.open(self.file) as third:
            self.assertEqual(len({first.path, second.path, third.path}), 3)
            self.assertEqual([m["w"].numel() for m in (first, second, third)], [4, 1, 4])
            self.assertNotEqual(first, third)
            self.assertEqual(len(self.mounted()), 3)
            second.close()
            self.assertEqual(first["h.0.v"].tolist(), [1, 1])

    def test_path(self):
        there, new = self.directory / "there", self.directory / "new"
        there.mkdir()
        with ckptfs.open(self.file, path=there) as model, ckptfs.open(self.file, path=str(new)):
            self.assertEqual(model.path, there)
            self.assertEqual(self.mounted(), [str(there), str(new)])
            self.assertFails("there: .*", ckptfs.open, self.file, path=there, code=mounts.MOUNTPOINT)
            self.assertEqual(self.mounted(), [str(there), str(new)])
        self.assertTrue(there.is_dir())

    def test_a_killed_daemon(self):
        model = ckptfs.open(self.file)
        self.kill_daemon()
        self.assertFails("w: cannot map: (Transport endpoint is not connected|Software caused connection abort)", lambda: model["w"])
        self.assertFails("meta.json: cannot read: .*connect", lambda: model.values["epoch"])
        model.close()
        self.assertEqual(self.mounted(), [])

    def test_a_model_that_somebody_unmounts(self):
        with ckptfs.open(self.file) as model:
            mounts.run("fusermount3", "-u", model.path, check=True)
            self.assertFails("w: cannot map: No such file or directory", lambda: model["w"])


class Failures(Case):
    def test_no_checkpoint(self):
        text = self.directory / "notes.txt"
        text.write_text("no checkpoint")
        message = self.assertFails("", ckptfs.open, text, code=mounts.FORMAT)
        self.assertEqual("ckptfs: " + message + "\n", self.ckptfs(text, self.mountpoint()).stderr)
        self.assertFails(r"^nothing.pth: cannot open: No such file or directory$", ckptfs.open, "nothing.pth",
                         code=mounts.SOURCE)

    def test_a_directory_of_checkpoints(self):
        self.save({"w": torch.ones(1)}, "a.pth")
        self.save({"w": torch.ones(1)}, "b.pth")
        self.assertFails("is a directory of several checkpoints: open one of them", ckptfs.open, self.directory)

    def test_options(self):
        file = self.save({"h.0.v": torch.ones(2)})
        for options in ["flat"], "flat", {"flat": True, "xattr": False}, ("umask=022,flat",):
            with self.subTest(options), ckptfs.open(file, options=options) as model:
                self.assertEqual(model.info("h.0.v").path, "h.0.v.memmap")
        log = self.directory / "a,b\\c.log"
        with ckptfs.open(file, options={"logfile": log, "umask": "027", "uid": 7}) as model:
            self.assertEqual(os.stat(model.path / "h" / "0" / "v.memmap").st_uid, 7)
        self.assertTrue(log.exists())
        self.assertFails("flatt", ckptfs.open, file, options=["flatt"], code=mounts.USAGE)
        self.assertRaises(ValueError, ckptfs.open, file, backend="magic")

    def test_nofail(self):
        self.assertFails("nothing.pth: .*No such file", ckptfs.open, "nothing.pth", options=["nofail"])

    def test_a_source_that_looks_like_an_option(self):
        self.save({"w": torch.ones(1)}, "-u")
        before = os.getcwd()
        self.addCleanup(os.chdir, before)
        os.chdir(self.directory)
        with ckptfs.open("-u") as model:
            self.assertEqual(list(model), ["w"])

    def test_warnings(self):
        file = self.save({"w": torch.ones(1)})
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ckptfs.open(file).close()

    def program(self, text):
        """A program that is a shell script."""
        program = self.directory / "ckptfs"
        program.write_text("#!/bin/sh\n" + text)
        program.chmod(0o755)
        return program

    def test_without_fuse(self):
        program = self.program("echo 'ckptfs: FUSE is not available: no /dev/fuse' >&2; exit 8")
        message = self.assertFails("^FUSE is not available: no /dev/fuse\nInstall FUSE", ckptfs.open, "model.pth",
                                   program=program, code=mounts.FUSE)
        self.assertIn("apt install fuse3", message)
        self.assertIn('backend="pipe"', message)

    def test_a_program_that_dies(self):
        self.assertFails("^ckptfs: killed by signal 9$", ckptfs.open, "x", program=self.program("kill -9 $$"), code=-9)
        self.assertFails("^ckptfs: exit code 3$", ckptfs.open, "x", program=self.program("exit 3"), code=3)

    def test_an_interrupted_program_leaves_no_mount(self):
        file = self.save({"w": torch.ones(1)})
        # It is interrupted after it has mounted: the interrupt arrives while it is slow to end.
        program = self.program(f'"{mounts.CKPTFS}" "$@" && kill -INT $PPID && exec sleep 60')
        self.assertRaises(KeyboardInterrupt, ckptfs.open, file, program=program)
        self.assertEqual(self.mounted(), [])

    def test_programs(self):
        file = self.save({"w": torch.ones(1)})
        os.environ["CKPTFS_PROGRAM"] = str(self.program("echo 'ckptfs: from the environment' >&2; exit 1"))
        self.assertFails("^from the environment$", ckptfs.open, file, code=1)
        with ckptfs.open(file, program=mounts.CKPTFS) as model:
            self.assertEqual(list(model), ["w"])
        self.assertFails("cannot run: No such file", ckptfs.open, file, program=self.directory / "missing")
        find = "import ckptfs._programs; print(ckptfs._programs.find('ckptfs', None))"
        self.assertEqual(self.python(find, CKPTFS_PROGRAM="", PATH=f"{self.directory}:/usr/bin:/bin"),
                         f"{self.directory}/ckptfs\n")
        missing = "import ckptfs\ntry: ckptfs.open('x')\nexcept ckptfs.Error as error: print(error)"
        self.assertRegex(self.python(missing, CKPTFS_PROGRAM="", PATH="/nothing"), "^ckptfs: program not found in /")
