"""Hashes: what -o verify= makes of bytes that are not those that were saved."""

import errno
import mmap
import os
import signal
import socket
import subprocess
import sys
import zlib
from pathlib import Path

import ckptfs
import craft
from ckptfs import CORRUPT, USAGE

try:
    import torch
except ImportError:
    torch = None

ATTRIBUTE = "user.ckptfs.verified"
SIZE = 3 << 20
GOOD = os.urandom(SIZE)
BAD = bytearray(GOOD)
BAD[SIZE // 2] ^= 1

# Maps a file, looks at its first byte, reads all of it, and looks again until it is killed.
LOOK_AGAIN = """
import mmap, sys, time
with open(sys.argv[1], "rb", buffering=0) as file:
    mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    mapped[0]
    try:
        while file.read(1 << 20):
            pass
    except OSError as error:
        print(error.errno, flush=True)
    end = time.monotonic() + 20
    while time.monotonic() < end:
        mapped[0]
        time.sleep(0.005)
"""


def is_refused(path):
    """Whether the first byte of a file cannot be read."""
    try:
        ckptfs.read(path, 0, 1)
    except OSError as error:
        return error.errno == errno.EIO
    return False


def xattr(path):
    return os.getxattr(path, ATTRIBUTE).decode()


class Foreground:
    """ckptfs -f, whose messages are known when it has ended."""

    def __init__(self, case, file, options):
        self.path = case.mountpoint()
        command = [ckptfs.CKPTFS, "-f", "-o", options, file, self.path]
        self.process = subprocess.Popen([str(word) for word in command], stderr=subprocess.PIPE,
                                        text=True)
        case.addCleanup(self.release)
        ckptfs.wait_until(lambda: ckptfs.is_mounted(self.path) or self.process.poll() is not None)

    def __truediv__(self, name):
        return self.path / name

    def release(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def end(self):
        """Unmounts; returns what ckptfs has logged between the mount and its end, line by line."""
        ckptfs.run("fusermount3", "-u", self.path, check=True)
        _, said = self.process.communicate(timeout=20)
        assert self.process.returncode == 0, said
        return [line for line in said.splitlines()
                if not line.startswith(("ckptfs: mounted on ", "ckptfs: unmounted from "))]


class Verify(ckptfs.Case):
    def setUp(self):
        self.file = self.scratch() / "model.pth"
        self.write()

    def write(self, root=None, deflate=False):
        """Two tensors of one storage each, "good" and "bad"."""
        root = root or craft.mapping(("good", craft.tensor("0", [SIZE // 4])),
                                     ("bad", craft.tensor("1", [SIZE // 4])))
        records = [craft.Record("data.pkl", craft.PROTO + root + b"."),
                   craft.Record("data/0", GOOD), craft.Record("data/1", GOOD, deflate=deflate)]
        offsets = craft.write_archive(self.file, records)
        if not deflate:
            self.change(offsets["data/1"] + SIZE // 2)
        return offsets

    def change(self, offset):
        """Changes a bit of a byte of the file."""
        with open(self.file, "r+b") as file:
            file.seek(offset)
            byte = file.read(1)[0]
            file.seek(offset)
            file.write(bytes([byte ^ 1]))

    def wrong(self):
        """The message about the corrupt storage."""
        return (f"ckptfs: {self.file}: member 'data/1': CRC32 mismatch "
                f"(found {zlib.crc32(BAD):#010x}, expected {zlib.crc32(GOOD):#010x})")

    def right(self, member="data/0"):
        return f"ckptfs: {self.file}: member '{member}': CRC32 matches"

    def test_nothing_is_checked_by_default(self):
        for options in "xattr", "xattr,verify=off":
            with self.subTest(options=options):
                mount = Foreground(self, self.file, options)
                self.assertEqual(ckptfs.read(mount / "bad.memmap"), BAD)
                self.assertErrno(errno.ENODATA, os.getxattr, mount / "bad.memmap", ATTRIBUTE)
                self.assertNotIn(ATTRIBUTE, os.listxattr(mount / "bad.memmap"))
                self.assertEqual(mount.end(), [])

    def test_warn_logs_mismatches_and_matches(self):
        mount = Foreground(self, self.file, "verify=warn")
        for _ in range(2):
            self.assertEqual(ckptfs.read(mount / "good.memmap"), GOOD)
            self.assertEqual(ckptfs.read(mount / "bad.memmap"), BAD)
        self.assertEqual(mount.end(), [self.right(), self.wrong()])

    def test_a_part_of_a_tensor_is_not_checked(self):
        mount = Foreground(self, self.file, "verify=enforce")
        self.assertEqual(ckptfs.read(mount / "bad.memmap", 0, 4096), BAD[:4096])
        self.assertEqual(mount.end(), [])

    def test_the_attribute_has_the_verdict(self):
        mount = self.mount(self.file, "-o", "xattr,verify=warn")
        for name in "good.memmap", "bad.memmap":
            self.assertIn(ATTRIBUTE, os.listxattr(mount / name))
            self.assertEqual(xattr(mount / name), "unread")
        ckptfs.read(mount / "good.memmap", 0, 4096)
        self.assertEqual(xattr(mount / "good.memmap"), "unread")
        ckptfs.read(mount / "good.memmap")
        ckptfs.read(mount / "bad.memmap")
        self.assertEqual(xattr(mount / "good.memmap"), "yes")
        self.assertEqual(xattr(mount / "bad.memmap"), "no")
        self.assertErrno(errno.ENODATA, os.getxattr, mount / "meta.json", ATTRIBUTE)
        self.assertErrno(errno.ENODATA, os.getxattr, mount.path, ATTRIBUTE)
        self.assertNotIn(ATTRIBUTE, os.listxattr(mount.path))

    def test_a_deflated_storage_is_always_checked(self):
        self.write(deflate=True)
        mount = self.mount(self.file, "-o", "xattr")
        self.assertEqual(xattr(mount / "bad.memmap"), "unread")
        self.assertEqual(ckptfs.read(mount / "bad.memmap"), GOOD)
        self.assertEqual(xattr(mount / "bad.memmap"), "yes")

    def test_enforce_refuses_what_is_wrong_and_goes_on_doing_so(self):
        mount = self.mount(self.file, "-o", "xattr,verify=enforce")
        bad = mount / "bad.memmap"
        with open(bad, "rb", buffering=0) as file:
            self.assertEqual(file.read(4096), BAD[:4096])
            done = ckptfs.run("cat", bad, text=False, errors=None)
            self.assertEqual((done.returncode, done.stderr.endswith(b"Input/output error\n")),
                             (1, True))
            self.assertNotEqual(done.stdout, BAD)
            ckptfs.wait_until(lambda: is_refused(bad))
            self.assertErrno(errno.EIO, os.pread, file.fileno(), 1, 0)
        done = ckptfs.run("cat", bad, text=False, errors=None)
        self.assertEqual((done.returncode, done.stdout), (1, b""))
        self.assertEqual(xattr(bad), "no")
        self.assertEqual(ckptfs.read(mount / "good.memmap"), GOOD)
        self.assertEqual(mount.unmount(), 0)

    def test_enforce_logs_why(self):
        mount = Foreground(self, self.file, "verify=enforce")
        self.assertErrno(errno.EIO, ckptfs.read, mount / "bad.memmap")
        said = mount.end()
        self.assertEqual(said[0], self.wrong())
        wrong = self.wrong().partition("member")[2]
        for line in said[1:]:
            self.assertRegex(line, r"\Ackptfs: cannot read inode \d+: member")
            self.assertEqual(line.partition("member")[2], wrong)

    def test_enforce_takes_a_mapping_away(self):
        mount = self.mount(self.file, "-o", "verify=enforce")
        done = ckptfs.run(sys.executable, "-c", LOOK_AGAIN, mount / "bad.memmap")
        self.assertEqual((done.returncode, done.stdout), (-signal.SIGBUS, f"{errno.EIO}\n"))

    def test_enforce_refuses_all_tensors_that_share_what_is_wrong(self):
        half = SIZE // 8
        self.write(craft.mapping(
            ("whole", craft.tensor("0", [SIZE // 4])),
            ("first", craft.tensor("1", [half], numel=SIZE // 4)),
            ("again", craft.tensor("1", [half], numel=SIZE // 4)),
            ("turned", craft.tensor("1", [2, half // 2], numel=SIZE // 4, stride=[1, 2])),
            ("second", craft.tensor("1", [half], numel=SIZE // 4, offset=half))))
        mount = self.mount(self.file, "-o", "verify=enforce")
        self.assertEqual(os.stat(mount / "first.memmap").st_nlink, 2)
        self.assertEqual(os.stat(mount / "first.memmap").st_ino,
                         os.stat(mount / "again.memmap").st_ino)
        self.assertEqual(ckptfs.read(mount / "first.memmap"), BAD[:SIZE // 2])
        ckptfs.read(mount / "turned.memmap", 0, 4096)
        self.assertErrno(errno.EIO, ckptfs.read, mount / "second.memmap")
        for name in "first", "again", "turned", "second":
            ckptfs.wait_until(lambda: is_refused(mount / f"{name}.memmap"))
        self.assertEqual(ckptfs.read(mount / "whole.memmap"), GOOD)
        self.assertEqual(mount.unmount(), 0)

    def test_pickles_of_a_package_share_a_storage_and_what_is_known_of_it(self):
        pickle = craft.PROTO + craft.mapping(("w", craft.tensor("0", [SIZE // 4]))) + b"."
        craft.write_archive(self.file, [
            craft.Record("model/a.pkl", pickle), craft.Record("model/b.pkl", pickle),
            craft.Record(".data/0.storage", GOOD), craft.Record(".data/extern_modules", b""),
            craft.Record(".data/version", b"6\n")])
        mount = self.mount(self.file, "-o", "xattr,verify=warn")
        ckptfs.read(mount / "model/a/w.memmap")
        self.assertEqual(xattr(mount / "model/b/w.memmap"), "yes")
        self.assertEqual(os.stat(mount / "model/b/w.memmap").st_nlink, 2)

    def test_many_wrong_tensors_at_once_and_then_the_end(self):
        count, numel = 200, 1 << 12
        pairs = [(f"t{i}", craft.tensor(str(i), [numel])) for i in range(count)]
        data = os.urandom(4 * numel)
        offsets = craft.write_checkpoint(self.file, craft.mapping(*pairs),
                                         [(str(i), data) for i in range(count)])
        for i in range(count):
            self.change(offsets[f"data/{i}"])
        mount = self.mount(self.file, "-o", "verify=enforce")
        readers = [subprocess.Popen(["sh", "-c", "cat ./*.memmap"], cwd=mount.path,
                                    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
                   for _ in range(4)]
        for reader in readers:
            reader.communicate(timeout=60)
            self.assertEqual(reader.returncode, 1)
        os.kill(mount.daemon, signal.SIGTERM)
        self.assertEqual(mount.wait(10), 0)
        self.assertFalse(ckptfs.is_mounted(mount.path))

    def test_read_in_any_order_by_several_readers(self):
        mount = Foreground(self, self.file, "verify=warn")
        with open(mount / "good.memmap", "rb") as file:
            with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
                for begin in range(SIZE - 4096, -1, -4096):
                    mapped[begin]
        readers = [subprocess.Popen(["cat", mount / "bad.memmap"], stdout=subprocess.DEVNULL)
                   for _ in range(4)]
        for reader in readers:
            self.assertEqual(reader.wait(60), 0)
        self.assertEqual(mount.end(), [self.right(), self.wrong()])

    def test_a_corrupt_pickle_is_reported_before_the_mount(self):
        offsets = self.write()
        pickle = self.file.read_bytes()[offsets["data.pkl"]:offsets["data/0"]]
        self.change(offsets["data.pkl"] + pickle.index(b"good"))
        mountpoint = self.mountpoint()
        found = r"member 'data.pkl': CRC32 mismatch \(found 0x[0-9a-f]{8}, expected 0x[0-9a-f]{8}\)"
        mount = self.mount(self.file, "-o", "verify=warn", quiet=False)
        self.assertRegex(mount.messages, rf"\Ackptfs: {self.file}: {found}\n\Z")
        done = self.ckptfs("-o", "verify=enforce", self.file, mountpoint)
        self.assertEqual((done.returncode, done.stdout), (CORRUPT, ""))
        self.assertRegex(done.stderr, rf"\A(ckptfs: {self.file}: .*{found}\n)+\Z")
        self.assertFalse(ckptfs.is_mounted(mountpoint))

    def test_a_daemon_writes_to_the_log_of_the_system(self):
        path = Path("/dev/log")
        if os.geteuid() != 0 or path.exists():
            self.skipTest("the log of the system is not ours to take")
        log = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(log.close)
        log.bind(str(path))
        self.addCleanup(path.unlink)
        log.settimeout(20)
        mount = self.mount(self.file, "-o", "verify=warn")
        ckptfs.read(mount / "good.memmap")
        ckptfs.read(mount / "bad.memmap")
        self.assertIn("mounted on", log.recv(4096).decode())
        right, wrong = log.recv(4096).decode(), log.recv(4096).decode()
        daemon_notice, daemon_error = 3 << 3 | 5, 3 << 3 | 3
        self.assertTrue(right.startswith(f"<{daemon_notice}>"), right)
        self.assertTrue(right.endswith(self.right().partition(" ")[2]), right)
        self.assertTrue(wrong.startswith(f"<{daemon_error}>"), wrong)
        self.assertTrue(wrong.endswith(self.wrong().partition(" ")[2]), wrong)

    def test_a_misspelled_way_is_refused(self):
        for value in "verify=maybe", "verify=", "verify":
            with self.subTest(value=value):
                done = self.ckptfs("-o", value, self.file, self.mountpoint())
                self.assertRefusedLike(done, USAGE,
                                       "option verify: (needs a value: verify=HOW|invalid value 'maybe' "
                                       "\\(expected off, warn or enforce\\)); see ckptfs -h")


class Torch(ckptfs.Case):
    """Files of torch.save."""

    def setUp(self):
        if torch is None:
            self.skip_avoidable("there is no torch")
        self.file = self.scratch() / "model.pth"
        self.tensor = torch.arange(100_000, dtype=torch.float32)

    def verified(self):
        mount = self.mount(self.file, "-o", "xattr,verify=enforce")
        path = mount / "w.memmap"
        self.assertEqual(ckptfs.read(path), self.tensor.numpy().tobytes())
        return xattr(path) if ATTRIBUTE in os.listxattr(path) else None

    def test_a_file_with_hashes(self):
        torch.save({"w": self.tensor}, self.file)
        self.assertEqual(self.verified(), "yes")

    def test_a_file_without_hashes_is_neither_right_nor_wrong(self):
        if not hasattr(torch.serialization, "set_crc32_options"):
            self.skip_avoidable("this torch cannot leave out hashes")
        torch.serialization.set_crc32_options(False)
        self.addCleanup(torch.serialization.set_crc32_options, True)
        torch.save({"w": self.tensor}, self.file)
        self.assertIsNone(self.verified())

