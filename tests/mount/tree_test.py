"""What files and directories look like: names, links, times, sizes, owners, attributes."""

import errno
import json
import os
import stat

import ckptfs
import craft
import view
from craft import Record, integer, mapping, tensor, text

A, B = bytes(range(24)), bytes(range(100, 108))


class Tree(ckptfs.Case):
    def checkpoint(self, *pairs, storages=(("0", A), ("1", B))):
        file = self.scratch() / "model.pth"
        craft.write_checkpoint(file, mapping(*pairs), storages)
        return file

    def plain(self):
        return self.checkpoint(("layer.0.weight", tensor("0", [2, 3])),
                               ("layer.0.bias", tensor("1", [2])),
                               ("head.weight", tensor("0", [2, 3])),
                               ("step", integer(5)))

    def names(self, mount):
        """All paths of a mount but meta.json, sorted."""
        return sorted(os.path.relpath(os.path.join(d, f), mount.path)
                      for d, _, files in os.walk(mount.path) for f in files if f != "meta.json")

    def test_dotted_keys_become_directories(self):
        mount = self.mount(self.plain())
        self.assertEqual(self.names(mount), ["head/weight.memmap", "layer/0/bias.memmap",
                                             "layer/0/weight.memmap"])
        self.assertEqual(sorted(os.listdir(mount.path)), ["head", "layer", "meta.json", "step"])
        self.assertEqual(ckptfs.meta(mount / "step")["data"], 5)

    def test_flat_keeps_dotted_keys_whole(self):
        nested = mapping(("a.b", tensor("1", [2])))
        file = self.checkpoint(("x.y", tensor("0", [6])), ("n.m", nested))
        mount = self.mount(file, "-o", "flat")
        self.assertEqual(self.names(mount), ["n.m/a.b.memmap", "x.y.memmap"])

    def test_both_spellings_of_a_key_open_the_same_file(self):
        mount = self.mount(self.plain())
        inode = os.stat(mount / "layer/0/bias.memmap").st_ino
        for spelling in "layer.0.bias.memmap", "layer/0.bias.memmap":
            with self.subTest(spelling):
                self.assertEqual(os.stat(mount / spelling).st_ino, inode)
                self.assertEqual(ckptfs.read(mount / spelling), B)
        self.assertNotIn("layer.0.bias.memmap", os.listdir(mount.path))

    def test_the_dotted_spelling_of_what_is_not_there_is_not_there(self):
        mount = self.mount(self.plain())
        for name in ("layer.1.bias.memmap", "layer.0.memmap", "layer.0", "layer..0.bias.memmap",
                     ".layer.0.bias.memmap", "layer.0.bias"):
            with self.subTest(name):
                self.assertErrno(errno.ENOENT, os.stat, mount / name)

    def test_a_key_that_cannot_be_split_stays_whole(self):
        mount = self.mount(self.checkpoint(
            ("a", tensor("0", [6])), ("a.b", tensor("1", [2])), ("x.shape", tensor("1", [2])),
            ("p..q", tensor("1", [2])), (".y", tensor("1", [2])), ("z.", tensor("1", [2]))))
        found = {".".join(keys): what.path.name for _, keys, what in view.walk(mount.path)}
        self.assertEqual(set(found), {"a", "a.b", "x.shape", "p..q", ".y", "z."})
        self.assertEqual(found["a.b"], "a.b.memmap")
        self.assertEqual(ckptfs.read(mount / "a.memmap"), A)
        self.assertEqual(ckptfs.read(mount / "a.b.memmap"), B)
        self.assertEqual(ckptfs.read(mount / "x.shape.memmap"), B)

    def test_a_reserved_key_gets_an_underscore_and_an_annotation(self):
        mount = self.mount(self.checkpoint(
            ("shape", tensor("0", [6])), ("shape_", tensor("1", [2])), ("device", integer(1))))
        keys = {".".join(keys): what for _, keys, what in view.walk(mount.path)}
        self.assertEqual(set(keys), {"shape", "shape_", "device"})
        self.assertEqual(ckptfs.read(keys["shape"].path), A)
        self.assertEqual(ckptfs.read(keys["shape_"].path), B)
        self.assertEqual(ckptfs.meta(mount.path)["shape"], [])

    def test_odd_keys_are_listed_percent_encoded_and_open_by_their_raw_name_too(self):
        mount = self.mount(self.checkpoint(("a b", tensor("0", [6])), ("c/d", tensor("1", [2]))))
        self.assertEqual(self.names(mount), ["a%20b.memmap", "c%2Fd.memmap"])
        encoded, raw = os.stat(mount / "a%20b.memmap"), os.stat(mount / "a b.memmap")
        self.assertEqual((encoded.st_ino, encoded.st_nlink), (raw.st_ino, 1))

    def test_hostile_keys_stay_inside_the_mount_and_are_in_meta_json(self):
        keys = ["..", ".", "", "/", "../../etc/passwd", "/etc/passwd", "x\0y", "a\nb", "\x1b[31m",
                "é", "e\u0301", "A", "a", "meta.json", "x" * 300, "y" * 5000, "ü" * 200, " ", "%",
                "..memmap", "C:d", "\ud800", "-rf", "_type", "meta", "a.memmap", "\u202egnp"]
        data = {k: bytes([i]) * 4 for i, k in enumerate(keys)}
        mount = self.mount(self.checkpoint(
            *((k, tensor(str(i), [1])) for i, k in enumerate(keys)),
            storages=[(str(i), data[k]) for i, k in enumerate(keys)]))
        found = {}
        for kind, path, what in view.walk(mount.path):
            self.assertEqual(kind, "tensor")
            found[".".join(path)] = ckptfs.read(what.path)
        self.assertEqual(found, data)
        for _directory, directories, files in os.walk(os.fsencode(mount.path)):
            for name in directories + files:
                self.assertLessEqual(len(name), 1024)
                self.assertNotIn(name, (b".", b".."))

    def test_equal_keys_of_different_types_are_two_tensors(self):
        file = self.scratch() / "model.pth"
        root = mapping((integer(1), tensor("0", [6])), ("1", tensor("1", [2])))
        craft.write_checkpoint(file, root, [("0", A), ("1", B)])
        mount = self.mount(file)
        entries = view.entries(mount.path)
        self.assertEqual(list(entries), ["1", "1_"])
        self.assertEqual(entries["1_"]["key"], "1")
        self.assertEqual(ckptfs.read(mount / "1.memmap"), A)
        self.assertEqual(ckptfs.read(mount / "1_.memmap"), B)

    def test_tensors_of_the_same_bytes_are_hard_links(self):
        mount = self.mount(self.plain())
        first = os.stat(mount / "layer/0/weight.memmap")
        second = os.stat(mount / "head/weight.memmap")
        self.assertEqual(first.st_ino, second.st_ino)
        self.assertEqual((first.st_nlink, second.st_nlink), (2, 2))
        self.assertEqual(os.stat(mount / "layer/0/bias.memmap").st_nlink, 1)

    def test_views_of_one_storage_that_differ_are_two_files(self):
        mount = self.mount(self.checkpoint(
            ("a", tensor("0", [6])), ("b", tensor("0", [2, 3])), ("c", tensor("0", [5], numel=6))))
        inodes = {os.stat(mount / f"{n}.memmap").st_ino for n in "abc"}
        self.assertEqual(len(inodes), 3)

    def test_empty_tensors_are_files_of_size_zero(self):
        mount = self.mount(self.checkpoint(("e", tensor("0", [0, 3], numel=6)),
                                           ("f", tensor("0", [0, 3], numel=6)),
                                           ("w", tensor("0", [6]))))
        status = os.stat(mount / "e.memmap")
        self.assertEqual((status.st_size, status.st_blocks), (0, 0))
        self.assertEqual(ckptfs.read(mount / "e.memmap"), b"")

    def test_modes_owner_and_times_of_files_and_directories(self):
        file = self.plain()
        os.utime(file, ns=(1_600_000_000_123_456_789, 1_500_000_000_987_654_321))
        mount = self.mount(file)
        for name, mode in (("", stat.S_IFDIR | 0o555), ("layer/0", stat.S_IFDIR | 0o555),
                           ("meta.json", stat.S_IFREG | 0o444),
                           ("layer/0/bias.memmap", stat.S_IFREG | 0o444)):
            with self.subTest(name):
                status = os.stat(mount / name)
                self.assertEqual(oct(status.st_mode), oct(mode))
                self.assertEqual((status.st_uid, status.st_gid), (os.getuid(), os.getgid()))
                self.assertEqual(status.st_mtime_ns, 1_500_000_000_987_654_321)

    def test_sizes_and_blocks(self):
        mount = self.mount(self.plain())
        status = os.stat(mount / "layer/0/weight.memmap")
        self.assertEqual((status.st_size, status.st_blocks), (24, 1))
        self.assertEqual(os.stat(mount.path).st_nlink, 2 + 3)
        self.assertEqual(os.stat(mount / "layer/0").st_nlink, 2)

    def test_inode_numbers_are_the_same_at_every_mount(self):
        file = self.plain()

        def inodes(mount):
            paths = [os.path.join(d, n) for d, directories, files in os.walk(mount.path)
                     for n in directories + files]
            return {os.path.relpath(p, mount.path): os.stat(p).st_ino for p in paths}
        first = inodes(self.mount(file))
        self.assertEqual(first, inodes(self.mount(file)))
        self.assertGreater(len(first), 6)

    def test_uid_gid_and_umask(self):
        mount = self.mount(self.plain(), "-o", "uid=1234,gid=2345,umask=027")
        for name, mode in ("layer", 0o550), ("meta.json", 0o440):
            status = os.stat(mount / name)
            self.assertEqual((status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)),
                             (1234, 2345, mode))

    def test_the_file_system_is_full_and_knows_its_size(self):
        mount = self.mount(self.plain())
        whole = os.statvfs(mount.path)
        self.assertEqual((whole.f_bfree, whole.f_bavail, whole.f_ffree), (0, 0, 0))
        self.assertGreaterEqual(whole.f_blocks * whole.f_frsize, len(A) + len(B))
        inodes = {os.lstat(os.path.join(d, n)).st_ino
                  for d, directories, files in os.walk(mount.path) for n in directories + files}
        self.assertEqual(whole.f_files, len(inodes) + 2)  # The root, and tensors.jsonl.

    def test_a_name_that_is_too_long_is_refused_as_such(self):
        mount = self.mount(self.plain())
        longest = os.statvfs(mount.path).f_namemax
        self.assertErrno(errno.ENOENT, os.lstat, mount / ("x" * longest))
        self.assertErrno(errno.ENAMETOOLONG, os.lstat, mount / ("x" * (longest + 1)))

    def test_dot_and_dotdot_are_listed_with_the_right_inodes(self):
        mount = self.mount(self.plain())
        done = ckptfs.run("ls", "-ai1", mount / "layer/0", check=True)
        inodes = dict(reversed(line.split()) for line in done.stdout.splitlines())
        self.assertEqual(int(inodes["."]), os.stat(mount / "layer/0").st_ino)
        self.assertEqual(int(inodes[".."]), os.stat(mount / "layer").st_ino)

    def test_a_directory_of_thousands_is_listed_whole(self):
        pairs = [(f"t{i:05}", tensor("1", [2])) for i in range(5000)]
        mount = self.mount(self.checkpoint(*pairs))
        self.assertEqual(sorted(os.listdir(mount.path)),
                         sorted(["meta.json", *(f"{name}.memmap" for name, _ in pairs)]))
        self.assertEqual(os.stat(mount / "t00000.memmap").st_nlink, 5000)

    def test_meta_json_keeps_the_order_and_tensors_jsonl_has_offsets(self):
        file = self.scratch() / "model.pth"
        offsets = craft.write_checkpoint(
            file, mapping(("z", tensor("0", [2, 3])), ("a", tensor("1", [1], numel=2, offset=1)),
                          ("m", text("é"))), [("0", A), ("1", B)])
        mount = self.mount(file)
        entries = view.entries(mount.path)
        self.assertEqual(list(entries), ["z", "a", "m"])
        self.assertEqual(entries["z"], {"dtype": "torch.float32", "shape": [2, 3], "device": "cpu",
                                        "is_nested": False})
        usual = {"stride": None, "file": None, "storage_offset": None, "error": None}
        self.assertEqual(view.lines(mount.path), [
            {"key": "z", "dtype": "torch.float32", "shape": [2, 3], "path": "z.memmap", "bytes": 24,
             "member": "data/0", "file_offset": offsets["data/0"], **usual},
            {"key": "a", "dtype": "torch.float32", "shape": [1], "path": "a.memmap", "bytes": 4,
             "member": "data/1", "file_offset": offsets["data/1"] + 4, **usual,
             "storage_offset": 1}])
        self.assertEqual(ckptfs.meta(mount / "m"), {
            "_type": "<class 'tensordict.tensorclass.NonTensorData'>", "data": "é",
            "_metadata": None, "_is_non_tensor": True})

    def test_a_dtype_that_tensordict_does_not_know_is_shown_as_bytes(self):
        file = self.scratch() / "model.pth"
        call = craft.call(craft.glob("torch._utils", "_rebuild_tensor_v3"),
                          craft.storage("0", 24, "UntypedStorage").replace(
                              b"ctorch\n", b"ctorch.storage\n"),
                          integer(0), craft.sequence(integer(4), integer(6)),
                          craft.sequence(integer(6), integer(1)), b"\x89",
                          craft.glob("collections", "OrderedDict") + b")R",
                          craft.glob("torch", "float8_e4m3fn"))
        craft.write_checkpoint(file, mapping(("w", call)), [("0", A)])
        mount = self.mount(file)
        entry = view.entries(mount.path)["w"]
        self.assertEqual((entry["dtype"], entry["x_dtype"], entry["x_shape"]),
                         ("torch.uint8", "torch.float8_e4m3fn", [4, 6]))
        self.assertEqual(ckptfs.read(mount / "w.memmap"), A)

    def test_extended_attributes_are_there_when_asked_for(self):
        mount = self.mount(self.plain(), "-o", "xattr")
        path = mount / "layer/0/bias.memmap"
        self.assertEqual(os.getxattr(path, "user.ckptfs.dtype"), b"float32")
        self.assertEqual(json.loads(os.getxattr(path, "user.ckptfs.shape")), [2])
        self.assertEqual(os.getxattr(path, "user.ckptfs.key"), b"layer.0.bias")
        self.assertEqual(os.getxattr(path, "user.ckptfs.member"), b"data/1")
        self.assertIn("user.ckptfs.offset", os.listxattr(path))
        self.assertErrno(errno.ENODATA, os.getxattr, path, "user.other")
        self.assertErrno(errno.EROFS, os.setxattr, path, "user.x", b"")
        self.assertEqual(os.listxattr(mount / "layer"), [])
        self.assertIn("user.ckptfs.source", os.listxattr(mount.path))

    def test_without_the_option_there_are_no_extended_attributes(self):
        mount = self.mount(self.plain())
        self.assertErrno(errno.ENOTSUP, os.getxattr, mount / "meta.json", "user.ckptfs.dtype")

    def test_a_deflated_archive_reads_as_the_same_bytes(self):
        file = self.scratch() / "model.pth"
        data = bytes(range(256)) * 4096
        craft.write_checkpoint(file, mapping(("w", tensor("0", [len(data) // 4]))),
                               [("0", Record("data/0", data, deflate=True))], deflate=True)
        mount = self.mount(file)
        self.assertEqual(ckptfs.read(mount / "w.memmap", 500_001, 77), data[500_001:500_078])
        self.assertEqual(ckptfs.read(mount / "w.memmap"), data)


class ReadOnly(ckptfs.Case):
    """What would change the mount is refused, for root too."""

    def setUp(self):
        file = self.scratch() / "model.pth"
        craft.write_checkpoint(file, mapping(("w", tensor("0", [6]))), [("0", A)])
        self.root = self.mount(file)
        self.path = self.root / "w.memmap"

    def test_files_do_not_open_for_writing(self):
        self.assertErrno(errno.EROFS, os.open, self.path, os.O_WRONLY)
        self.assertErrno(errno.EROFS, os.open, self.path, os.O_RDWR)
        self.assertErrno(errno.EROFS, os.open, self.path, os.O_WRONLY | os.O_TRUNC)
        self.assertErrno(errno.EROFS, os.truncate, self.path, 0)

    def test_access_denies_writing(self):
        self.assertFalse(os.access(self.path, os.W_OK))
        self.assertFalse(os.access(self.root.path, os.W_OK))
        self.assertTrue(os.access(self.path, os.R_OK))

    def test_nothing_is_made_removed_or_renamed(self):
        self.assertErrno(errno.EROFS, os.open, self.root / "new", os.O_CREAT | os.O_WRONLY)
        self.assertErrno(errno.EROFS, os.mkdir, self.root / "new")
        self.assertErrno(errno.EROFS, os.unlink, self.path)
        self.assertErrno(errno.EROFS, os.rename, self.path, self.root / "new")
        self.assertErrno(errno.EROFS, os.link, self.path, self.root / "new")
        self.assertErrno(errno.EROFS, os.symlink, "x", self.root / "new")

    def test_attributes_are_not_changed(self):
        self.assertErrno(errno.EROFS, os.chmod, self.path, 0o777)
        self.assertErrno(errno.EROFS, os.chown, self.path, 1, 1)
        self.assertErrno(errno.EROFS, os.utime, self.path)
        self.assertErrno(errno.EROFS, os.setxattr, self.path, "user.x", b"")

    def test_even_remounted_for_writing_it_takes_no_byte(self):
        if os.geteuid() != 0:
            self.skipTest("needs root")
        ckptfs.run("mount", "-i", "-o", "remount,rw", self.root.path)
        with self.assertRaises(OSError):
            self.path.write_bytes(b"x")
        self.assertEqual(ckptfs.read(self.path), A)

    def test_the_kernel_lists_it_as_read_only_and_by_our_type(self):
        with open("/proc/self/mountinfo", encoding="latin1") as lines:
            fields = next(line.split() for line in lines if line.split()[4] == str(self.root.path))
        options = set(fields[5].split(",")) | set(fields[-1].split(","))
        self.assertLessEqual({"ro", "nosuid", "nodev", "default_permissions"}, options)
        self.assertEqual(fields[-3], "fuse.ckptfs")
