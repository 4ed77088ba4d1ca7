"""Programs that read what takes very long to decode: they can be killed, they hinder nobody else,
and they fill no disk.

The archive is what an attacker makes: a few hundred KB that decode to 64 GiB and more for each of
many arrays, and beside them arrays that are as they should be.
"""

import bz2
import contextlib
import lzma
import os
import resource
import signal
import struct
import subprocess
import sys
import time
import zipfile
import zlib
from pathlib import Path

import ckptfs

MIB = 1 << 20
LARGE = 64 << 30  # Bytes of an array that nobody will see the end of.
SCRATCH = 8 * MIB
PLAIN = os.urandom(4 * MIB)
GOOD = os.urandom(1 * MIB) + bytes(4 * MIB) + os.urandom(1 * MIB)

# Reads the last block of the file argv[1] without the page cache.
DIRECT = """
import mmap, os, sys
file = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
os.preadv(file, [mmap.mmap(-1, 4096)], os.fstat(file).st_size - 4096 & -4096)
"""


def npy(size):
    text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({size},), }}".ljust(117) + "\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text.encode()


def bits(data):
    return bin(int.from_bytes(b"\1" + data, "big"))[3:]


def deflated(size):
    """An array of zeros: its header, and one block again and again."""
    def raw(data):
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        return packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH)
    return raw(npy(size)) + raw(bytes(8 * MIB)) * (size // (8 * MIB)) + b"\3\0"


BZIP2_BLOCK = bits(b"\x31\x41\x59\x26\x53\x59")


def bzip2(size):
    """As deflated. A block need not end where a byte does."""
    def block(data, index):
        stream = bits(bz2.compress(data))
        begins = [-1]
        while (begin := stream.find(BZIP2_BLOCK, begins[-1] + 1)) >= 0:
            begins.append(begin)
        end = stream.find(bits(b"\x17\x72\x45\x38\x50\x90"))
        return stream[begins[index]:([*begins, end])[index + 1]]
    zeros = block(bytes(46 * MIB), 1)  # The first of those that are full.
    decoded = 45 * MIB  # About.
    stream = bits(b"BZh9") + block(npy(size), 1) + zeros * (size // decoded)
    stream += "0" * (-len(stream) % 8)
    return int(stream, 2).to_bytes(len(stream) // 8, "big")


def lzma1(size):
    filters = [{"id": lzma.FILTER_LZMA1, "dict_size": 1 << 16, "mode": lzma.MODE_FAST,
                "nice_len": 273, "mf": lzma.MF_HC3, "depth": 1}]
    packer = lzma.LZMACompressor(lzma.FORMAT_RAW, filters=filters)
    coded = packer.compress(npy(size) + bytes(size)) + packer.flush()
    return b"\x09\x04\x05\0" + bytes([93]) + struct.pack("<I", 1 << 16) + coded


class Archive:
    """A zip archive whose members say what they like of themselves."""

    def __init__(self, path):
        self.file = open(path, "wb")
        self.entries = []

    def add(self, name, method, coded, size, crc=0):
        name = name.encode()
        begin = self.file.tell()
        # A descriptor follows, whose size nobody needs.
        common = struct.pack("<HHHHHI", 20, 0, method, 0, 0x21, crc)
        wide = struct.pack("<HHQQ", 1, 16, size, len(coded))
        self.file.write(b"PK\3\4" + common + struct.pack("<IIHH", 0xFFFFFFFF, 0xFFFFFFFF,
                                                         len(name), len(wide)))
        self.file.write(name + wide + coded)
        self.entries.append(b"PK\1\2" + struct.pack("<H", 20) + common + struct.pack(
            "<IIHHHHHII", 0xFFFFFFFF, 0xFFFFFFFF, len(name), len(wide), 0, 0, 0, 0, begin)
            + name + wide)

    def close(self):
        begin = self.file.tell()
        directory = b"".join(self.entries)
        self.file.write(directory + b"PK\5\6" + struct.pack(
            "<HHHHIIH", 0, 0, len(self.entries), len(self.entries), len(directory), begin, 0))
        self.file.close()


def write_bombs(path):
    archive = Archive(path)
    for i in range(2):
        archive.add(f"deflate{i}.npy", zipfile.ZIP_DEFLATED, deflated(LARGE >> 5),
                    128 + (LARGE >> 5))
    stream = bzip2(LARGE)
    for i in range(12):
        archive.add(f"bzip2{i}.npy", zipfile.ZIP_BZIP2, stream, 128 + LARGE)
    size = 24 * MIB
    archive.add("lzma.npy", zipfile.ZIP_LZMA, lzma1(size), 128 + size)
    archive.add("plain.npy", zipfile.ZIP_STORED, npy(len(PLAIN)) + PLAIN, 128 + len(PLAIN))
    data = npy(len(GOOD)) + GOOD
    packer = zlib.compressobj(1, zlib.DEFLATED, -15)
    archive.add("good.npy", zipfile.ZIP_DEFLATED, packer.compress(data) + packer.flush(), len(data),
                zlib.crc32(data))
    archive.close()


class Readers(ckptfs.Case):
    @classmethod
    def setUpClass(cls):
        directory = ckptfs.tempfile.TemporaryDirectory(prefix="ckptfs-test.")
        cls.addClassCleanup(directory.cleanup)
        cls.bombs = Path(directory.name, "bombs.npz")
        write_bombs(cls.bombs)

    def start(self, *command):
        reader = subprocess.Popen([str(c) for c in command], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL)
        self.addCleanup(reader.wait)
        self.addCleanup(reader.kill)
        return reader

    def hang(self, mount):
        """Readers of all that takes long, with and without the page cache."""
        names = [path for path in mount.path.iterdir()
                 if path.name.startswith(("deflate", "bzip2", "lzma"))]
        readers = [self.start("tail", "-c", 1, name) for name in names for _ in range(2)]
        readers += [self.start(sys.executable, "-I", "-S", "-c", DIRECT, name) for name in names]
        time.sleep(1)
        return readers

    def assertQuick(self, what, function):
        """Most of some calls do not wait for who reads. One may wait for a busy processor."""
        seconds = []
        for i in range(5):
            begin = time.monotonic()
            function(i)
            seconds.append(time.monotonic() - begin)
        print(f"# {what}: {sorted(round(1000 * s, 1) for s in seconds)} ms", flush=True)
        self.assertLess(sorted(seconds)[2], 1, what)

    def assertGone(self, readers, seconds=5):
        begin = time.monotonic()
        for reader in readers:
            self.assertIn(reader.wait(max(0.1, begin + seconds - time.monotonic())),
                          (-signal.SIGKILL, -signal.SIGINT, 0))
        print(f"# gone after {1000 * (time.monotonic() - begin):.0f} ms", flush=True)

    def processor_seconds(self, mount):
        fields = Path(f"/proc/{mount.daemon}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def processor_seconds_of_children(self):
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    def temporary_files(self, mount):
        """The sizes of the unnamed files that the daemon has open."""
        sizes = []
        for entry in Path(f"/proc/{mount.daemon}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                link = os.readlink(entry)
                if link.endswith(" (deleted)") and "/memfd:" not in link:
                    sizes.append(os.stat(entry).st_blocks * 512)
        return sizes

    def mount_bombs(self, *options):
        return self.mount(self.bombs, "-o", f"xattr,scratch={SCRATCH >> 20}m", *options)

    def read_direct(self, path, offset):
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
            return os.pread(file.fileno(), 4096, offset)

    def test_others_go_on_while_all_that_decodes_is_busy(self):
        mount = self.mount_bombs()
        readers = self.hang(mount)
        self.assertQuick("stat of another name", lambda i: self.assertErrno(
            2, os.stat, mount / f"missing{i}"))
        self.assertQuick("a listing", lambda i: os.listdir(mount.path))
        self.assertQuick("an attribute", lambda i: os.getxattr(mount / "plain.memmap",
                                                               "user.ckptfs.dtype"))
        self.assertQuick("a stored array", lambda i: self.assertEqual(
            self.read_direct(mount / "plain.memmap", i << 19), PLAIN[i << 19:][:4096]))
        self.assertQuick("a compressed array", lambda i: self.assertEqual(
            self.read_direct(mount / "good.memmap", i << 20), GOOD[i << 20:][:4096]))
        endless = [reader for reader in readers if "bzip2" in reader.args[-1]]
        self.assertEqual([reader.poll() for reader in endless], [None] * len(endless))
        for reader in readers:
            reader.kill()
        self.assertGone(readers)

    def test_killed_readers_are_gone_and_leave_no_work(self):
        mount = self.mount_bombs()
        readers = self.hang(mount)
        for reader in readers:
            reader.kill()
        self.assertGone(readers)
        time.sleep(1)
        before = self.processor_seconds(mount)
        time.sleep(0.5)
        self.assertLess(self.processor_seconds(mount) - before, 0.2)
        self.assertEqual(ckptfs.read(mount / "good.memmap"), GOOD)
        self.assertEqual(os.getxattr(mount / "good.memmap", "user.ckptfs.verified"), b"yes")
        self.assertEqual(ckptfs.read(mount / "bzip20.memmap", 100 * MIB, 4096), bytes(4096))
        self.assertEqual(mount.unmount(), 0)

    def test_interrupted_readers_are_gone(self):
        mount = self.mount_bombs()
        readers = self.hang(mount)
        for reader in readers:
            reader.send_signal(signal.SIGINT)
        begin = time.monotonic()
        for reader in readers:
            reader.wait(5)
        self.assertLess(time.monotonic() - begin, 5)

    def test_the_mount_ends_in_time(self):
        mount = self.mount_bombs()
        readers = self.hang(mount)
        begin = time.monotonic()
        os.kill(mount.daemon, signal.SIGTERM)
        self.assertEqual(mount.wait(), 0)
        print(f"# unmounted after {1000 * (time.monotonic() - begin):.0f} ms", flush=True)
        self.assertLess(time.monotonic() - begin, 3)
        self.assertFalse(ckptfs.is_mounted(mount.path))
        for reader in readers:
            reader.wait(5)

    def test_temporary_files_have_a_limit(self):
        for scratch, most in ("8m", 8 * MIB), ("0", 0):
            with self.subTest(scratch):
                mount = self.mount(self.bombs, "-o", f"scratch={scratch}")
                self.assertEqual(self.temporary_files(mount), [])
                ckptfs.read(mount / "bzip20.memmap", 200 * MIB, 1)
                self.assertLessEqual(sum(self.temporary_files(mount)), most)
                self.assertGreaterEqual(sum(self.temporary_files(mount)), most * 3 // 4)
                self.assertEqual(ckptfs.read(mount / "good.memmap"), GOOD)
                self.assertEqual(ckptfs.read(mount / "good.memmap", 4096, 4096), GOOD[4096:8192])
                self.assertEqual(mount.unmount(), 0)

    def test_many_heads_that_take_long_to_decode_are_refused(self):
        for name, method, pack, size in (("bzip2", zipfile.ZIP_BZIP2, bzip2, 90 * MIB),
                                         ("lzma", zipfile.ZIP_LZMA, lzma1, 4 * MIB)):
            coded = pack(size)
            with self.subTest(name):
                file = self.scratch() / "m.npz"
                archive = Archive(file)
                for i in range(900_000 // (len(coded) + 150)):
                    archive.add(f"{i}.npy", method, coded, 128 + size)
                archive.close()
                mountpoint = self.mountpoint()
                before = self.processor_seconds_of_children()
                done = self.ckptfs(file, mountpoint)
                if done.returncode == 0:
                    ckptfs.Mount(mountpoint, self.daemon_of(mountpoint), "").unmount()
                self.assertIn(done.returncode, (0, ckptfs.LIMITS), done.stderr)
                if not ckptfs.IS_SANITIZED:
                    self.assertLess(self.processor_seconds_of_children() - before, 1)

    def test_many_small_heads_are_not(self):
        file = self.scratch() / "m.npz"
        methods = zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA
        with zipfile.ZipFile(file, "w") as archive:
            for i in range(1000):
                archive.writestr(f"{i}.npy", npy(100) + bytes([i % 251]) * 100, methods[i % 3])
        mount = self.mount(file)
        self.assertEqual(ckptfs.read(mount / "999.memmap"), bytes([999 % 251]) * 100)

    def test_who_waits_for_a_reader_that_is_killed_goes_on(self):
        data = os.urandom(12 * MIB)
        file = self.scratch() / "m.npz"
        archive = Archive(file)
        for name, method, coded in (
                ("bzip2", zipfile.ZIP_BZIP2, bz2.compress(npy(len(data)) + data)),
                ("deflate", zipfile.ZIP_DEFLATED, zlib.compress(npy(len(data)) + data)[2:-4])):
            archive.add(f"{name}.npy", method, coded, 128 + len(data),
                        zlib.crc32(npy(len(data)) + data))
        archive.close()
        for name in "bzip2", "deflate":
            with self.subTest(name):
                mount = self.mount(file, "-o", "xattr")
                path = mount / f"{name}.memmap"
                killed = [self.start(sys.executable, "-I", "-S", "-c", DIRECT, path)
                          for _ in range(3)]
                waiting = [subprocess.Popen(["tail", "-c", "5000", path], stdout=subprocess.PIPE)
                           for _ in range(3)]
                time.sleep(0.2)
                for reader in killed:
                    reader.kill()
                for reader in waiting:
                    self.assertEqual(reader.communicate(timeout=60)[0], data[-5000:])
                self.assertEqual(ckptfs.read(path), data)
                self.assertEqual(os.getxattr(path, "user.ckptfs.verified"), b"yes")
                self.assertEqual(mount.unmount(), 0)
