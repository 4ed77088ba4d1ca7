"""A source that changes while it is mounted: old bytes or an error, never a new byte."""

import errno
import os
import time

import ckptfs
import craft

SIZE = 1 << 20
NAMES = "abcdefgh"


def fresh(path):
    """Lets go of what the kernel has cached of a file, so that the next read asks the daemon."""
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


class Change(ckptfs.Case):
    def setUp(self):
        self.file = self.scratch() / "model.pth"
        self.write(self.file, b"old!")
        # Times of files have a coarse clock: a change within the same tick would not show.
        past = time.time() - 100
        os.utime(self.file, (past, past))
        self.root = self.mount(self.file)

    def write(self, path, unit):
        pairs = [(n, craft.tensor(n, [SIZE // 4])) for n in NAMES]
        return craft.write_checkpoint(path, craft.mapping(*pairs),
                                      [(n, unit * (SIZE // 4)) for n in NAMES])

    def assertStaleOrOld(self, path):
        """A whole read of a file: an error, or what the file was when it was mounted."""
        try:
            data = ckptfs.read(path)
        except OSError as error:
            self.assertEqual(error.errno, errno.ESTALE)
            return
        self.assertEqual(data, b"old!" * (SIZE // 4))

    def assertAllStale(self):
        for name in NAMES:
            path = self.root / f"{name}.memmap"
            fresh(path)
            self.assertErrno(errno.ESTALE, ckptfs.read, path)

    def tearDown(self):
        # It lives, answers for what it knows, and ends well.
        self.assertEqual(len(os.listdir(self.root.path)), len(NAMES) + 1)
        self.assertEqual(self.root.unmount(), 0)

    def test_replaced_by_another_file_it_goes_on_with_the_old_one(self):
        other = self.file.with_name("new.pth")
        self.write(other, b"new!")
        os.rename(other, self.file)
        for name in NAMES:
            self.assertEqual(ckptfs.read(self.root / f"{name}.memmap"), b"old!" * (SIZE // 4))

    def test_removed_it_goes_on(self):
        self.file.unlink()
        self.assertEqual(ckptfs.read(self.root / "a.memmap"), b"old!" * (SIZE // 4))

    def test_rewritten_in_place_its_reads_fail(self):
        self.write(self.file, b"new!")
        self.assertAllStale()

    def test_rewritten_in_place_what_was_read_before_stays_or_fails(self):
        for name in NAMES[:4]:
            ckptfs.read(self.root / f"{name}.memmap")
        self.write(self.file, b"new!")
        for name in NAMES:
            self.assertStaleOrOld(self.root / f"{name}.memmap")

    def test_truncated_its_reads_fail(self):
        os.truncate(self.file, 1000)
        self.assertAllStale()

    def test_emptied_its_reads_fail(self):
        os.truncate(self.file, 0)
        self.assertAllStale()

    def test_with_one_byte_overwritten_its_reads_fail(self):
        with open(self.file, "r+b") as file:
            file.seek(SIZE + 12345)
            file.write(b"?")
        self.assertAllStale()

    def test_with_bytes_appended_its_reads_fail(self):
        with open(self.file, "ab") as file:
            file.write(b"?")
        self.assertAllStale()

    def test_changed_while_it_is_being_read_no_new_byte_comes(self):
        path = self.root / "h.memmap"
        with open(path, "rb", buffering=0) as reader:
            first = reader.read(4096)
            self.write(self.file, b"new!")
            try:
                rest = reader.read()
            except OSError as error:
                self.assertEqual(error.errno, errno.ESTALE)
                rest = b""
        self.assertNotIn(b"new!", first + rest)
