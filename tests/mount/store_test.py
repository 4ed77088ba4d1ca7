"""Stores: directories of many checkpoints, mirrored, with a directory X.d for each checkpoint X."""

import errno
import filecmp
import os
import shutil
import socket
import stat
import threading
import time
from pathlib import Path

import ckptfs
from ckptfs import FORMAT, USAGE
from store_case import Case, names, write_safetensors


class Mirror(Case):
    def test_shows_files_and_trees(self):
        self.write_two()
        self.write("sub/z.safetensors", b"zzzz")
        (self.folder / "notes.txt").write_text("notes\n")
        mount = self.mount(self.folder)
        self.assertEqual(names(mount), ["notes.txt", "sub", "sub.d", "x.safetensors",
                                        "x.safetensors.d", "y.safetensors", "y.safetensors.d"])
        self.assertEqual(names(mount / "sub"), ["z.safetensors", "z.safetensors.d"])
        for file in ("notes.txt", "x.safetensors", "sub/z.safetensors"):
            self.assertTrue(filecmp.cmp(self.folder / file, mount / file, shallow=False), file)
            mine, shown = os.stat(self.folder / file), os.stat(mount / file)
            self.assertEqual((mine.st_size, mine.st_mtime_ns), (shown.st_size, shown.st_mtime_ns))
        for file in ("x.safetensors.d", "sub.d", "sub/z.safetensors.d"):
            letter = file[0] if file[0] != "s" else "z"
            self.assertEqual(ckptfs.read(mount / file / "a.memmap"), letter.encode() * 4)
            self.assertEqual(ckptfs.meta(mount / file)["a"]["shape"], [4])
        self.assertFalse((mount / "notes.txt.d").exists())
        self.assertFalse((mount / "meta.json").exists())

    def test_is_a_store_on_request(self):
        self.write("model.safetensors")
        self.assertEqual(names(self.mount(self.folder)), ["a.memmap", "meta.json"])
        mount = self.mount(self.folder, "-o", "store")
        self.assertEqual(names(mount), ["model.safetensors", "model.safetensors.d"])
        mount = self.mount(self.folder, "-o", "store=trees")
        self.assertEqual(names(mount), ["model.safetensors.d"])
        self.assertErrno(errno.ENOENT, os.stat, mount / "model.safetensors")
        done = self.ckptfs("-o", "store=all", self.folder, self.mountpoint())
        self.assertRefused(done, USAGE, "option store: invalid value 'all' (expected trees, or "
                                        "none); see ckptfs -h")
        file = self.folder / "model.safetensors"
        self.assertRefused(self.ckptfs("-o", "store", file, self.mountpoint()), USAGE,
                           f"option store: {file} is a file, but a store is a directory")

    def test_a_directory_without_checkpoints_is_none(self):
        (self.folder / "a").mkdir()
        (self.folder / "a/notes.txt").write_text("notes\n")
        self.assertRefused(self.ckptfs(self.folder, self.mountpoint()), FORMAT,
                           f"{self.folder}: directory without a checkpoint in a supported format")

    def test_names_that_clash(self):
        self.write_two()
        (self.folder / "x.safetensors.d").write_text("a file\n")
        (self.folder / "y.safetensors.d").mkdir()
        (self.folder / "y.safetensors.d~").write_text("another\n")
        mount = self.mount(self.folder)
        self.assertEqual(ckptfs.read(mount / "x.safetensors.d"), b"a file\n")
        self.assertEqual(ckptfs.read(mount / "x.safetensors.d~/a.memmap"), b"xxxx")
        self.assertEqual(names(mount / "y.safetensors.d"), [])
        self.assertEqual(ckptfs.read(mount / "y.safetensors.d~~/a.memmap"), b"yyyy")
        for name in names(mount):
            os.stat(mount / name)

    def test_links_to_directories_are_links(self):
        self.write("step-1/model.safetensors", b"1111")
        self.write("step-2/model.safetensors", b"2222")
        self.write("other.safetensors")
        (self.folder / "latest").symlink_to("step-2")
        (self.folder / "absolute").symlink_to(self.folder / "step-1")
        (self.folder / "outside").symlink_to("/usr")
        (self.folder / "itself").symlink_to("itself")
        (self.folder / "here").symlink_to(".")
        (self.folder / "link.safetensors").symlink_to("other.safetensors")
        mount = self.mount(self.folder)
        self.assertEqual(names(mount), [
            "absolute", "absolute.d", "here", "latest", "latest.d", "link.safetensors",
            "link.safetensors.d", "other.safetensors", "other.safetensors.d", "step-1", "step-1.d",
            "step-2", "step-2.d"])
        self.assertEqual(os.readlink(mount / "latest"), "step-2")
        self.assertEqual(os.readlink(mount / "absolute"), "step-1")
        self.assertEqual(ckptfs.read(mount / "latest.d/a.memmap"), b"2222")
        self.assertEqual(ckptfs.read(mount / "absolute/model.safetensors.d/a.memmap"), b"1111")
        self.assertEqual(ckptfs.read(mount / "link.safetensors.d/a.memmap"), b"aaaa")
        self.assertEqual(len(list(os.walk(mount.path))), 1 + 2 + 2 + 2 + 2)

    def test_the_mount_point_may_be_inside(self):
        self.write_two()
        mountpoint = self.folder / "sub/mnt"
        mountpoint.mkdir(parents=True)
        mount = self.mount(self.folder, mountpoint=mountpoint)
        self.assertEqual(names(mount / "sub"), [])
        self.assertFalse((mount / "sub/mnt").exists())
        mount.unmount()

    def test_space_attributes_and_tables(self):
        self.write_two()
        mount = self.mount(self.folder, "-o", "xattr,flat")
        self.assertEqual(ckptfs.read(mount / "x.safetensors.d/a.memmap"), b"xxxx")
        self.assertEqual(os.getxattr(mount / "x.safetensors.d/a.memmap", "user.ckptfs.dtype"),
                         b"uint8")
        self.assertGreater(os.statvfs(mount.path).f_blocks, 0)


class Hostile(Case):
    def test_a_corrupt_checkpoint_shows_its_error(self):
        self.write_two()
        path = self.folder / "x.safetensors"
        path.write_bytes(path.read_bytes()[:-1])
        os.utime(path, (1, 1))
        mount = self.mount_logged()
        alone = self.ckptfs(path, self.mountpoint()).stderr
        for _ in range(3):
            self.assertEqual(names(mount / "x.safetensors.d"), ["error.txt"])
        self.assertEqual("ckptfs: " + (mount / "x.safetensors.d/error.txt").read_text(), alone)
        self.assertEqual(self.log.read_text().count("x.safetensors"), 1)
        self.assertEqual(ckptfs.read(mount / "y.safetensors.d/a.memmap"), b"yyyy")
        self.assertTrue(filecmp.cmp(path, mount / "x.safetensors", shallow=False))

    def test_a_checkpoint_without_the_subtree_shows_that(self):
        self.write_two()
        for name in ("x.safetensors", "y.safetensors"):
            os.utime(self.folder / name, (1, 1))
        mount = self.mount(self.folder, "-o", "subtree=model", quiet=False)
        text = (mount / "x.safetensors.d/error.txt").read_text()
        self.assertIn("subtree 'model': no dict of that key", text)

    def test_a_file_that_is_being_written_has_an_empty_directory(self):
        self.write_two()
        path = self.folder / "x.safetensors"
        whole = path.read_bytes()
        mount = self.mount(self.folder)
        path.write_bytes(whole[:-1])
        # It stays young, however slow this machine is.
        os.utime(path, (time.time() + 60, time.time() + 60))
        time.sleep(1.1)
        self.assertEqual(names(mount / "x.safetensors.d"), [])
        path.write_bytes(whole)
        ckptfs.wait_until(lambda: names(mount / "x.safetensors.d") == ["a.memmap", "meta.json"], 5)

    def test_odd_files(self):
        self.write_two()
        os.mkfifo(self.folder / "fifo.safetensors")
        server = socket.socket(socket.AF_UNIX)
        self.addCleanup(server.close)
        server.bind(str(self.folder / "socket"))
        raw = os.fsencode(self.folder) + b"/\xff\xfe.safetensors"
        shutil.copy(self.folder / "x.safetensors", raw)
        (self.folder / "empty.safetensors").touch()
        mount = self.mount(self.folder)
        self.assertEqual(sorted(os.listdir(os.fsencode(mount.path))), [
            b"empty.safetensors", b"x.safetensors", b"x.safetensors.d", b"y.safetensors",
            b"y.safetensors.d", b"\xff\xfe.safetensors", b"\xff\xfe.safetensors.d"])
        file = os.fsencode(mount.path) + b"/\xff\xfe.safetensors.d/a.memmap"
        self.assertEqual(ckptfs.read(file), b"xxxx")

    def test_deep_directories(self):
        self.write_two()
        here = os.open(self.folder, os.O_RDONLY)
        for _ in range(3000):
            os.mkdir("d" * 2, dir_fd=here)
            below = os.open("d" * 2, os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = below
        os.close(here)
        self.addCleanup(ckptfs.run, "rm", "-rf", self.folder)
        mount = self.mount(self.folder)
        done = ckptfs.run("find", mount.path)
        self.assertIn("File name too long", done.stderr)
        self.assertGreater(done.stdout.count("\n"), 1000)

    def test_permissions_are_those_of_the_files(self):
        if os.geteuid() != 0:
            self.skipTest("needs root")
        self.write_two()
        self.write("private/z.safetensors")
        (self.folder / "y.safetensors").chmod(0o600)
        (self.folder / "private").chmod(0o700)
        mount = self.mount(self.folder, "-o", "allow_other")
        mode = lambda name: stat.S_IMODE(os.stat(mount / name).st_mode)
        self.assertEqual(mode("x.safetensors"), 0o444)
        self.assertEqual(mode("x.safetensors.d/a.memmap"), 0o444)
        self.assertEqual(mode("y.safetensors"), 0o400)
        self.assertEqual(mode("y.safetensors.d/a.memmap"), 0o400)
        self.assertEqual(mode("private"), 0o500)
        reader = ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "cat")
        for name in ("y.safetensors", "y.safetensors.d/a.memmap", "private/z.safetensors",
                     "private/z.safetensors.d/a.memmap"):
            self.assertIn("Permission denied", ckptfs.run(*reader, mount / name).stderr, name)
        self.assertEqual(ckptfs.run(*reader, mount / "x.safetensors.d/a.memmap").stdout, "xxxx")

    def test_the_directory_itself_may_be_private(self):
        if os.geteuid() != 0:
            self.skipTest("needs root")
        self.write_two()
        self.folder.chmod(0o700)
        mount = self.mount(self.folder, "-o", "allow_other")
        self.assertEqual(stat.S_IMODE(os.stat(mount.path).st_mode), 0o500)


class Live(Case):
    """The directory changes under the mount."""

    def setUp(self):
        super().setUp()
        self.write_two()

    def replace(self, name, data):
        write_safetensors(self.folder / ".new", data)
        os.rename(self.folder / ".new", self.folder / name)

    def test_new_checkpoints_appear_and_removed_ones_vanish(self):
        mount = self.mount(self.folder)
        self.assertFalse((mount / "new.safetensors.d").exists())
        self.replace("new.safetensors", b"new!")
        ckptfs.wait_until(lambda: (mount / "new.safetensors.d/a.memmap").exists(), 2)
        self.assertIn("new.safetensors.d", names(mount))
        os.unlink(self.folder / "x.safetensors")
        ckptfs.wait_until(lambda: not (mount / "x.safetensors.d").exists(), 2)
        self.assertNotIn("x.safetensors.d", names(mount))

    def test_open_files_keep_their_version(self):
        mount = self.mount(self.folder)
        with open(mount / "x.safetensors.d/a.memmap", "rb", buffering=0) as old:
            self.assertEqual(old.read(), b"xxxx")
            self.replace("x.safetensors", b"NEWER")
            ckptfs.wait_until(
                lambda: ckptfs.read(mount / "x.safetensors.d/a.memmap") == b"NEWER", 2)
            self.assertEqual(os.pread(old.fileno(), 9, 0), b"xxxx")

    def test_a_file_that_is_changed_in_place_is_stale(self):
        mount = self.mount(self.folder)
        with open(mount / "x.safetensors.d/a.memmap", "rb", buffering=0) as old:
            write_safetensors(self.folder / "x.safetensors", b"NEWER")
            self.assertErrno(errno.ESTALE, os.pread, old.fileno(), 9, 0)
        time.sleep(1.1)
        self.assertEqual(ckptfs.read(mount / "x.safetensors.d/a.memmap"), b"NEWER")

    def test_a_directory_remains_the_same_while_it_grows(self):
        (self.folder / "sub").mkdir()
        mount = self.mount(self.folder)
        before = os.stat(mount / "sub").st_ino
        self.write("sub/z.safetensors", b"zzzz")
        ckptfs.wait_until(lambda: (mount / "sub/z.safetensors.d/a.memmap").exists(), 2)
        self.assertEqual(os.stat(mount / "sub").st_ino, before)

    def test_each_byte_belongs_to_one_version(self):
        """A writer replaces and removes checkpoints while readers walk."""
        mount = self.mount_logged("trees=1m")
        deadline = time.monotonic() + 5
        versions = 0
        failures = []

        def write():
            nonlocal versions
            while time.monotonic() < deadline:
                versions += 1
                self.replace("live.safetensors", bytes([versions % 256]) * 100_000)
                self.replace(f"step-{versions % 7}.safetensors", bytes([versions % 256]) * 1000)
                (self.folder / f"step-{(versions + 3) % 7}.safetensors").unlink(missing_ok=True)
                time.sleep(0.01)

        def read():
            while time.monotonic() < deadline:
                for directory, _, files in os.walk(mount.path):
                    for file in files:
                        try:
                            data = (Path(directory) / file).read_bytes()
                        except OSError as e:
                            if e.errno not in (errno.ENOENT, errno.ESTALE):
                                failures.append(f"{directory}/{file}: {e}")
                            continue
                        if file == "a.memmap" and len(set(data)) != 1:
                            failures.append(f"{directory}/{file}: mixed")
                        if file == "error.txt":
                            failures.append(f"{directory}: {data}")

        threads = [threading.Thread(target=f) for f in (write, read, read)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        self.assertGreater(versions, 10)
        self.assert_nothing_is_held(mount)

    def assert_nothing_is_held(self, mount):
        if os.geteuid() != 0:
            return
        drop = Path("/proc/sys/vm/drop_caches")

        def is_free():
            drop.write_text("2\n")
            return self.status(mount)[2] == 0

        ckptfs.wait_until(is_free, 10)


class Links(Case):
    def test_a_refused_link_is_an_error_of_its_own(self):
        if os.geteuid() != 0:
            self.skipTest("needs root")
        self.write_two()
        (self.folder / "z.safetensors").symlink_to("/etc/shadow")
        os.chown(self.folder / "z.safetensors", 65534, 65534, follow_symlinks=False)
        mount = self.mount(self.folder)
        self.assertIn("x.safetensors.d", names(mount))
        self.assertNotIn("z.safetensors.d", names(mount))
        self.assertErrno(errno.EACCES, os.stat, mount / "z.safetensors")
