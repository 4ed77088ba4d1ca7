"""Compressed members: what is read from anywhere in them, and what of them is refused."""

import errno
import os
import random
import struct
import subprocess
import zipfile
from pathlib import Path

import ckptfs
import craft

METHODS = {"deflate": zipfile.ZIP_DEFLATED, "bzip2": zipfile.ZIP_BZIP2, "lzma": zipfile.ZIP_LZMA}
SIZE = (5 << 19) + 4
ATTRIBUTE = "user.ckptfs.verified"
CRC, COMPRESSED_SIZE, DECODED_SIZE = 16, 20, 24  # Where they are in an entry.


def weights(size, seed=1):
    """Bytes of which a quarter can be foretold."""
    rng = random.Random(seed)
    data = bytearray(rng.randbytes(size))
    data[3::4] = bytes([63]) * len(data[3::4])
    return bytes(data)


def pack(file, tensors, method):
    """Writes a checkpoint, as somebody does who packs an archive anew; returns how long the members
    with the tensors' bytes are."""
    pairs = [(name, craft.tensor(str(i), [len(data) // 4]))
             for i, (name, data) in enumerate(tensors.items())]
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", craft.PROTO + craft.mapping(*pairs) + b".",
                         compress_type=method)
        for i, data in enumerate(tensors.values()):
            archive.writestr(f"archive/data/{i}", data, compress_type=method, compresslevel=1)
        return [archive.getinfo(f"archive/data/{i}").compress_size for i in range(len(tensors))]


class Compressed(ckptfs.Case):
    def setUp(self):
        self.file = self.scratch() / "model.pth"

    def assertAtRandom(self, path, data, count=60, seed=1):
        rng = random.Random(seed)
        with open(path, "rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
            for _ in range(count):
                offset = rng.randrange(len(data))
                length = min(rng.choice((1, 4096, 300_000)), len(data) - offset)
                found = os.pread(file.fileno(), length, offset)
                self.assertTrue(found == data[offset:offset + length], (offset, length))

    def change_entry(self, name, field, value):
        """Changes the entry of a member in the central directory."""
        content = bytearray(self.file.read_bytes())
        place = content.rindex(f"archive/{name}".encode()) - 46 + field
        struct.pack_into("<I", content, place, value)
        self.file.write_bytes(content)

    def test_bytes_are_right_wherever_they_are_read(self):
        data = weights(SIZE)
        for name, method in METHODS.items():
            with self.subTest(method=name):
                pack(self.file, {"w": data, "small": data[:4], "empty": b""}, method)
                mount = self.mount(self.file, "-o", "xattr")
                self.assertAtRandom(mount / "w.memmap", data)
                self.assertTrue(ckptfs.read(mount / "w.memmap") == data)
                self.assertEqual(ckptfs.read(mount / "small.memmap"), data[:4])
                self.assertEqual(ckptfs.read(mount / "empty.memmap"), b"")
                self.assertEqual(os.getxattr(mount / "w.memmap", ATTRIBUTE), b"yes")
                self.assertEqual(mount.unmount(), 0)

    def test_several_readers_at_once(self):
        data = weights(SIZE)
        pack(self.file, {"w": data}, zipfile.ZIP_DEFLATED)
        mount = self.mount(self.file)
        expected = self.scratch() / "expected"
        expected.write_bytes(data)
        readers = [subprocess.Popen(["cmp", "-i", str(skipped), expected, mount / "w.memmap"])
                   for skipped in (0, SIZE // 2, SIZE - 9, 0)]
        self.assertEqual([reader.wait(60) for reader in readers], [0] * 4)

    def test_a_full_disk_stops_nothing(self):
        if os.geteuid() != 0:
            self.skipTest("only root can mount a small disk")
        disk = self.scratch() / "disk"
        disk.mkdir()
        mounted = ckptfs.run("mount", "-t", "tmpfs", "-o", "size=160k", "none", disk)
        if mounted.returncode != 0:
            self.skipTest("there are no small disks here")
        self.addCleanup(ckptfs.run, "umount", "-l", disk)
        data = weights(SIZE)
        for name, method in METHODS.items():
            pack(self.file, {"w": data}, method)
            for filled in 0, 160 << 10:
                with self.subTest(method=name, filled=filled):
                    (disk / "filling").write_bytes(bytes(filled))
                    mount = self.mount(self.file, env=os.environ | {"TMPDIR": str(disk)})
                    self.assertAtRandom(mount / "w.memmap", data, count=10)
                    self.assertTrue(ckptfs.read(mount / "w.memmap") == data)
                    self.assertEqual(mount.unmount(), 0)

    def test_a_limit_for_the_size_of_files_stops_nothing(self):
        data = weights(SIZE)
        pack(self.file, {"w": data}, zipfile.ZIP_BZIP2)
        mountpoint = self.mountpoint()
        done = ckptfs.run("sh", "-c", 'ulimit -f 1; exec "$@"', "sh", ckptfs.CKPTFS, self.file,
                          mountpoint)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        with ckptfs.Mount(mountpoint, self.daemon_of(mountpoint), "") as mount:
            self.assertAtRandom(mount / "w.memmap", data, count=10)

    def test_much_that_is_read_at_random_takes_little_memory(self):
        data = weights(8 << 20)
        names = [f"t{i}" for i in range(5)]
        pack(self.file, dict.fromkeys(names, data), zipfile.ZIP_DEFLATED)
        mount = self.mount(self.file)
        for seed, name in enumerate(names):
            self.assertAtRandom(mount / f"{name}.memmap", data, count=25, seed=seed)
        if not ckptfs.IS_SANITIZED:
            status = Path(f"/proc/{mount.daemon}/status").read_text()
            self.assertLess(int(status.partition("VmHWM:")[2].split()[0]), 48 << 10)

    def test_what_is_before_the_place_where_a_member_is_cut_off_can_be_read(self):
        data = weights(SIZE)
        for name, method in METHODS.items():
            with self.subTest(method=name):
                lengths = pack(self.file, {"bad": data, "good": data[:4096]}, method)
                self.change_entry("data/0", COMPRESSED_SIZE, lengths[0] * 3 // 4)
                mount = self.mount(self.file)
                self.assertErrno(errno.EIO, ckptfs.read, mount / "bad.memmap", SIZE - 4, 4)
                self.assertEqual(ckptfs.read(mount / "bad.memmap", 1 << 20, 4096),
                                 data[1 << 20:(1 << 20) + 4096])
                self.assertEqual(ckptfs.read(mount / "good.memmap"), data[:4096])
                self.assertEqual(mount.unmount(), 0)

    def test_a_wrong_hash_shows_at_the_end_and_costs_all(self):
        data = weights(SIZE)
        pack(self.file, {"bad": data, "good": data[:-1] + b"x"}, zipfile.ZIP_DEFLATED)
        self.change_entry("data/0", CRC, 1)
        mount = self.mount(self.file, "-o", "xattr")
        bad = mount / "bad.memmap"
        self.assertEqual(ckptfs.read(bad, 0, 4096), data[:4096])
        self.assertEqual(os.getxattr(bad, ATTRIBUTE), b"unread")
        self.assertErrno(errno.EIO, ckptfs.read, bad, SIZE - 4, 4)
        self.assertEqual(os.getxattr(bad, ATTRIBUTE), b"no")

        def is_refused():
            try:
                ckptfs.read(bad, 0, 1)
            except OSError as error:
                return error.errno == errno.EIO
            return False
        ckptfs.wait_until(is_refused)
        self.assertTrue(ckptfs.read(mount / "good.memmap") == data[:-1] + b"x")

    def test_a_size_that_cannot_be_costs_that_tensor(self):
        for name, method in METHODS.items():
            with self.subTest(method=name):
                pack(self.file, {"good": b"abcd", "bad": b"abcd"}, method)
                self.change_entry("data/1", DECODED_SIZE, 4_000_000_000)
                mount = self.mount(self.file, quiet=False)
                self.assertRegex(mount.messages, "claims 4000000000 bytes, but .* compressed bytes "
                                                 "cannot decode to more than [0-9]+")
                self.assertErrno(errno.EIO, ckptfs.read, mount / "bad.memmap", 0, 1)
                self.assertEqual(ckptfs.read(mount / "good.memmap"), b"abcd")
                self.assertEqual(mount.unmount(), 0)

    def test_a_bomb_costs_only_what_is_read(self):
        size = 64 << 20
        pack(self.file, {"w": bytes(size)}, zipfile.ZIP_BZIP2)
        self.assertLess(self.file.stat().st_size, 1000)
        code, said, mountpoint = self.assertBounded(self.file)
        self.assertEqual((code, said), (0, ""))
        self.assertEqual(ckptfs.read(mountpoint / "w.memmap", 0, 4096), bytes(4096))
        status = Path(f"/proc/{self.daemon_of(mountpoint)}/status").read_text()
        if not ckptfs.IS_SANITIZED:
            self.assertLess(int(status.partition("VmHWM:")[2].split()[0]), 24 << 10)
