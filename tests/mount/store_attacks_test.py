"""Stores of somebody who wants to harm: odd names, and directories that change while they are walked."""

import ctypes
import errno
import os
import threading
import time
from pathlib import Path

import ckptfs
from store_case import Case, names, write_safetensors

LIBC = ctypes.CDLL(None, use_errno=True)
AT_FDCWD, RENAME_EXCHANGE = -100, 2


def exchange(one, other):
    """Swaps two names in one step."""
    if LIBC.renameat2(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE):
        raise OSError(ctypes.get_errno(), "renameat2")


class Names(Case):
    def test_any_name_of_a_file_is_shown(self):
        self.write_two()
        for name in ("a\\b.safetensors", "new\nline.safetensors", "per%cent\x7f\x1b.safetensors",
                     " ", "..."):
            self.write(name, b"odd!")
        mount = self.mount(self.folder)
        self.assertLess(set(names(self.folder)), set(names(mount)))
        for name in ("a\\b.safetensors", "new\nline.safetensors", "per%cent\x7f\x1b.safetensors", " "):
            self.assertEqual(ckptfs.read(mount / f"{name}.d/a.memmap"), b"odd!", name)

    def test_companions_of_any_name_are_shown(self):
        self.write("model.safetensors")
        (self.folder / "sub").mkdir()
        for name in ("a\\b.txt", "sub/a\\b.txt"):
            (self.folder / name).write_text("odd\n")
        mount = self.mount(self.folder)
        for name in ("a\\b.txt", "sub/a\\b.txt"):
            self.assertEqual(ckptfs.read(mount / name), b"odd\n")

    def test_a_tree_whose_name_would_be_too_long_is_not_shown(self):
        longest = self.write("x" * 241 + ".safetensors")
        self.write("y" * 242 + ".safetensors")
        (self.folder / ("z" * 255)).mkdir()
        self.write("z" * 255 + "/model.safetensors")
        mount = self.mount(self.folder)
        self.assertEqual(names(mount), sorted([*names(self.folder), longest.name + ".d"]))
        self.assertEqual(ckptfs.read(mount / (longest.name + ".d") / "a.memmap"), b"aaaa")

    def test_what_is_listed_can_be_opened_however_many_names_clash(self):
        self.write_two()
        for i in range(12):
            (self.folder / ("x.safetensors.d" + i * "~")).mkdir()
        mount = self.mount(self.folder)
        self.assertEqual(len(names(mount)), 12 + 3)
        for name in names(mount):
            os.stat(mount / name)

    def test_devices_and_links_in_circles_are_not_shown(self):
        if os.geteuid() != 0:
            self.skipTest("needs root")
        self.write_two()
        os.mknod(self.folder / "null.safetensors", 0o020600, os.makedev(1, 3))
        (self.folder / "zero.safetensors").symlink_to("/dev/zero")
        (self.folder / "one").symlink_to("two")
        (self.folder / "two").symlink_to("one")
        mount = self.mount(self.folder)
        self.assertEqual(names(mount), ["x.safetensors", "x.safetensors.d", "y.safetensors",
                                        "y.safetensors.d"])
        for name in ("null.safetensors", "null.safetensors.d", "zero.safetensors", "one"):
            self.assertErrno(errno.ENOENT, os.stat, mount / name)

    def test_a_hundred_thousand_empty_files(self):
        for i in range(100_000):
            os.mknod(self.folder / f"{i:06}")
        begin = time.monotonic()
        mount = self.mount(self.folder, "-o", "store")
        self.assertLess(time.monotonic() - begin, 5)
        self.assertEqual(len(os.listdir(mount.path)), 100_000)


class Unreadable(Case):
    """What the daemon must not read, such as lost+found, takes away nothing else."""

    def setUp(self):
        super().setUp()
        if os.geteuid() != 0:
            self.skipTest("needs root")
        self.need_command("setpriv")

    def mount_without_privilege(self):
        """Mounts as a root whom permissions bind."""
        mountpoint = self.mountpoint()
        done = ckptfs.run("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all",
                          ckptfs.CKPTFS, self.folder, mountpoint)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        mount = ckptfs.Mount(mountpoint, self.daemon_of(mountpoint), done.stderr)
        self.addCleanup(mount.release)
        return mount

    def make_private(self):
        self.write("private/z.safetensors")
        (self.folder / "secret.txt").write_text("secret\n")
        for name, mode in ("private", 0o700), ("secret.txt", 0o600):
            os.chown(self.folder / name, 65534, 65534)
            os.chmod(self.folder / name, mode)

    def test_in_a_checkpoint(self):
        self.write("model.safetensors", b"mmmm")
        self.make_private()
        mount = self.mount_without_privilege()
        self.assertEqual(ckptfs.read(mount / "a.memmap"), b"mmmm")
        self.assertEqual(names(mount), ["a.memmap", "meta.json", "secret.txt"])
        self.assertErrno(errno.EACCES, ckptfs.read, mount / "secret.txt")

    def test_in_a_store(self):
        self.write_two()
        self.make_private()
        mount = self.mount_without_privilege()
        self.assertEqual(names(mount), ["private", "secret.txt", "x.safetensors", "x.safetensors.d",
                                        "y.safetensors", "y.safetensors.d"])
        self.assertEqual(ckptfs.read(mount / "x.safetensors.d/a.memmap"), b"xxxx")
        self.assertErrno(errno.EACCES, os.listdir, mount / "private")
        self.assertErrno(errno.EACCES, ckptfs.read, mount / "secret.txt")
        self.assertErrno(errno.ENOENT, os.stat, mount / "private.d")


class Races(Case):
    """Others change the directory while readers walk through it."""

    def race(self, mount, *changes, seconds=3, expected=frozenset()):
        """Calls `changes` in a loop, while others read all files. Returns what was read: names and
        contents. Goes on until `expected` is among them, which takes longer on a busy machine."""
        begin = time.monotonic()
        contents, failures = set(), []

        def is_over():
            passed = time.monotonic() - begin
            return passed > 60 or (passed > seconds and expected <= contents)

        def change():
            while not is_over():
                for each in changes:
                    each()
                time.sleep(0.002)

        def read():
            while not is_over():
                for directory, _, files in os.walk(mount.path):
                    for file in files:
                        try:
                            contents.add((file, (Path(directory) / file).read_bytes()))
                        except OSError as e:
                            # The kernel has EIO for what had another type.
                            if e.errno not in (errno.ENOENT, errno.ESTALE, errno.EISDIR, errno.ENOTDIR,
                                               errno.EIO):
                                failures.append(f"{directory}/{file}: {e}")

        threads = [threading.Thread(target=f) for f in (change, read, read)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        return contents

    def test_a_directory_that_becomes_a_link_leads_nowhere(self):
        outside = self.scratch()
        (outside / "deep").mkdir()
        for name in ("f.safetensors", "deep/g.safetensors"):
            write_safetensors(outside / name, b"outside")
            self.write(f"sub/{name}", b"in it")
        self.write("x.safetensors")
        (self.folder / ".link").symlink_to(outside)
        mount = self.mount_logged("trees=1m")
        contents = self.race(mount, lambda: exchange(self.folder / "sub", self.folder / ".link"),
                             expected={("a.memmap", b"in it")})
        self.assertIn(("a.memmap", b"in it"), contents)
        self.assertEqual([name for name, data in contents if b"outside" in data], [])

    def test_a_file_that_becomes_a_directory(self):
        self.write("x.safetensors", b"xxxx")
        self.write("swap", b"file")
        self.write(".other/h.safetensors", b"below")
        mount = self.mount_logged("trees=1m")
        contents = self.race(mount, lambda: exchange(self.folder / "swap", self.folder / ".other"),
                             expected={("a.memmap", data) for data in (b"xxxx", b"file", b"below")})
        found = {data for name, data in contents if name == "a.memmap"}
        self.assertEqual(found, {b"xxxx", b"file", b"below"})

    def test_a_file_that_is_truncated_and_written_again(self):
        self.write("x.safetensors", b"xxxx")
        path = self.folder / "t.safetensors"

        def write():
            write_safetensors(path, b"t" * 100_000)
            os.truncate(path, 20)
            os.truncate(path, 1 << 20)

        mount = self.mount_logged("trees=1m")
        contents = self.race(mount, write)
        # A hole is what the file contains at times, but never part of a tensor.
        found = {data for name, data in contents if name == "a.memmap"}
        self.assertLessEqual(found, {b"xxxx", b"t" * 100_000})
