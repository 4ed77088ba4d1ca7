"""Files that are no checkpoints, broken ones, and ones that were made to do harm.

Each is refused with one sentence and the exit code of its kind, within a second and 64 MiB; or,
where one tensor alone is damaged, mounts with a warning, and only that tensor cannot be read.
"""

import errno
import os
import struct
import zipfile
import zlib

import ckptfs
import craft
import view
from ckptfs import CORRUPT, FORMAT, LIMITS, SOURCE
from craft import Record, array, call, glob, integer, mapping, sequence, tensor, text

A = b"".join(struct.pack("<f", i) for i in range(6))
GOOD = mapping(("a", tensor("0", [6])), ("b", tensor("1", [2])))
STORAGES = [("0", A), ("1", A[:8])]


class Refusal(ckptfs.Case):
    def setUp(self):
        self.file = self.scratch() / "model.pth"

    def refuse(self, code, pattern):
        """Checks the sentence, the time and the memory that it takes to refuse self.file."""
        returned, told, mountpoint = self.assertBounded(self.file)
        self.assertEqual((returned, told.count("\n")), (code, 1), told)
        self.assertRegex(told, rf"\Ackptfs: {self.file}: {pattern}\n\Z")
        self.assertTrue(told[:-1].isprintable(), told)
        self.assertFalse(ckptfs.is_mounted(mountpoint))

    def craft(self, root, storages=STORAGES, **options):
        craft.write_checkpoint(self.file, root, storages, **options)


class NoCheckpoint(Refusal):
    def test_a_missing_file(self):
        self.refuse(SOURCE, "cannot open: No such file or directory")

    def test_a_directory(self):
        self.file.mkdir()
        self.refuse(FORMAT, "directory without a checkpoint in a supported format")

    def test_a_pipe_does_not_hang(self):
        os.mkfifo(self.file)
        self.refuse(SOURCE, ".*not a regular file.*")

    def test_a_symbolic_link_to_nothing(self):
        self.file.symlink_to("nothing")
        self.refuse(SOURCE, "cannot open: No such file or directory")

    def test_an_empty_file(self):
        self.file.touch()
        self.refuse(FORMAT, ".*empty.*")

    def test_a_picture(self):
        self.file.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(1000))
        self.refuse(FORMAT, ".*not a checkpoint.*PNG.*")

    def test_a_text(self):
        self.file.write_text("this is not a checkpoint\n" * 100)
        self.refuse(FORMAT, ".*not a checkpoint.*")

    def test_random_bytes(self):
        self.file.write_bytes(zlib.compress(bytes(range(256)) * 100))
        self.refuse(FORMAT, ".*not a checkpoint.*")

    def test_a_pointer_of_git_lfs(self):
        self.file.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
        self.refuse(FORMAT, ".*git lfs pull.*")

    def test_a_zip_of_something_else(self):
        with zipfile.ZipFile(self.file, "w") as archive:
            archive.writestr("letter.txt", "dear")
        self.refuse(FORMAT, "zip archive without a checkpoint in a supported format")

    def test_a_save_that_failed(self):
        self.file.write_bytes((ckptfs.SAMPLES / "torch-2.13/failed_save.pth").read_bytes())
        self.refuse(CORRUPT, ".*data.pkl.*")

    def test_an_exported_program_without_weights(self):
        craft.write_archive(self.file, [Record("archive_format", b"pt2"),
                                        Record("models/model.json", b"{}")])
        self.refuse(CORRUPT, ".*torch.export without weights")

    def test_a_package_whose_only_pickle_is_incomplete(self):
        craft.write_archive(self.file, [Record("model/m.pkl", craft.PROTO + b"}"),
                                        Record(".data/extern_modules", b""),
                                        Record(".data/version", b"6\n")])
        self.refuse(CORRUPT, ".*model/m.pkl: unexpected end of pickle at byte 3: STOP is missing")

    def test_a_script_without_an_object(self):
        craft.write_archive(self.file, [Record("data.pkl", craft.PROTO),
                                        Record("constants.pkl", craft.PROTO + b")."),
                                        Record("version", b"3\n")])
        self.refuse(CORRUPT, ".*data.pkl: unexpected end of pickle at byte 2: STOP is missing")


class Archive(Refusal):
    """Broken directories."""

    def good(self):
        self.craft(GOOD)
        return bytearray(self.file.read_bytes())

    def test_truncated_anywhere(self):
        data = self.good()
        for length in sorted({1, 3, 30, 100, len(data) // 2, len(data) - 400, len(data) - 100,
                              len(data) - 23, len(data) - 22, len(data) - 1}):
            with self.subTest(length=length):
                self.file.write_bytes(data[:length])
                self.refuse(FORMAT if length < 4 else CORRUPT, ".*")

    def test_truncated_is_reported(self):
        data = self.good()
        self.file.write_bytes(data[:len(data) // 2])
        self.refuse(CORRUPT, ".*truncated.*")

    def test_every_byte_of_the_directory_changed_is_refused_or_harmless(self):
        data = self.good()
        start = data.index(b"PK\1\2")
        outcomes = set()
        for place in range(start, len(data), 7):
            with self.subTest(place=place):
                changed = bytearray(data)
                changed[place] ^= 0xFF
                self.file.write_bytes(changed)
                mountpoint = self.mountpoint()
                done = self.ckptfs(self.file, mountpoint)
                self.assertIn(done.returncode, (0, FORMAT, CORRUPT, LIMITS), done.stderr)
                outcomes.add(done.returncode)
                if done.returncode == 0:
                    with ckptfs.Mount(mountpoint, self.daemon_of(mountpoint), "") as mount:
                        for name, wanted in (("a", A), ("b", A[:8])):
                            try:
                                self.assertEqual(ckptfs.read(mount / f"{name}.memmap"), wanted)
                            except OSError as error:
                                self.assertIn(error.errno, (errno.EIO, errno.ENOENT))
                else:
                    self.assertEqual(done.stderr.count("\n"), 1)
        self.assertIn(CORRUPT, outcomes)

    def test_the_directory_lies_beyond_the_file(self):
        data = self.good()
        end = data.rindex(b"PK\6\6")
        data[end + 48:end + 56] = struct.pack("<Q", 1 << 62)
        self.file.write_bytes(data)
        self.refuse(CORRUPT, "zip: .*")

    def test_a_directory_of_exabytes(self):
        data = self.good()
        end = data.rindex(b"PK\6\6")
        data[end + 40:end + 48] = struct.pack("<Q", 1 << 60)
        self.file.write_bytes(data)
        self.refuse(CORRUPT, "zip: .*")

    def test_members_that_overlap(self):
        data = self.good()
        entry = data.index(b"PK\1\2", data.index(b"PK\1\2") + 1)
        first = data.index(b"archive/data/0", entry) - 46
        second = data.index(b"archive/data/1", entry) - 46
        data[first + 42:first + 46] = data[second + 42:second + 46]
        self.file.write_bytes(data)
        self.refuse(CORRUPT, "zip: .*")

    def test_two_members_of_one_name(self):
        craft.write_archive(self.file, [Record("data.pkl", craft.PROTO + GOOD + craft.STOP),
                                        Record("data/0", A), Record("data/0", A), Record("data/1")])
        self.refuse(CORRUPT, "zip: .*data/0.*")

    def test_two_members_whose_names_differ_in_case_alone(self):
        craft.write_archive(self.file, [Record("data.pkl", craft.PROTO + GOOD + craft.STOP),
                                        Record("DATA.PKL", craft.PROTO + b"}."),
                                        Record("data/0", A), Record("data/1", A[:8])])
        self.refuse(CORRUPT, "zip: .*")

    def test_a_member_that_would_leave_the_folder(self):
        craft.write_archive(self.file, [Record("data.pkl", craft.PROTO + GOOD + craft.STOP),
                                        Record("../../etc/passwd", A)])
        self.refuse(CORRUPT, "zip: .*")

    def test_a_local_header_of_another_name(self):
        data = self.good()
        place = data.index(b"archive/data/0")
        data[place:place + 14] = b"archive/data/9"
        self.file.write_bytes(data)
        self.refuse(CORRUPT, "zip: .*")

    def test_a_pickle_of_exabytes(self):
        self.craft(GOOD, size=1 << 60, deflate=True)
        self.refuse(CORRUPT, r"data.pkl: claims 1152921504606846976 bytes, but \d+ compressed "
                             r"bytes cannot decode to more than \d+")

    def test_a_pickle_that_inflates_without_end(self):
        bomb = b"N0" * (150 << 20) + b"N"
        self.craft(bomb, deflate=True)
        self.assertLess(self.file.stat().st_size, 2 << 20)
        self.refuse(LIMITS, ".*MiB of memory.*")

    def test_a_pickle_that_is_incomplete_deflate(self):
        self.craft(GOOD + b"\x88" * 10000, deflate=True)
        data = bytearray(self.file.read_bytes())
        place = data.index(b"PK\7\x08")
        data[place - 20:place - 4] = bytes(16)
        self.file.write_bytes(data)
        self.refuse(CORRUPT, ".*deflate stream.*")


class Pickle(Refusal):
    """Programs of pickle."""

    def refuse_pickle(self, code, pattern, opcodes):
        craft.write_archive(self.file, [Record("data.pkl", opcodes), Record("data/0", A),
                                        Record("version", b"3\n")])
        self.refuse(code, pattern)

    def test_that_is_empty(self):
        self.refuse_pickle(CORRUPT, ".*data.pkl.*", b"")

    def test_that_is_cut(self):
        self.refuse_pickle(CORRUPT, ".*", craft.PROTO + GOOD[:-40])

    def test_that_is_no_pickle(self):
        self.refuse_pickle(CORRUPT, ".*", b"hello world")

    def test_with_an_entry_of_the_memo_four_billion_away(self):
        self.craft(b"}r" + struct.pack("<I", 4_000_000_000) + b"(" + text("a") + tensor("0", [6])
                   + b"u")
        self.refuse(LIMITS, ".*memo index is too large .found 4000000000,.*")

    def test_that_fetches_what_is_not_in_the_memo(self):
        self.refuse_pickle(CORRUPT, ".*memo.*", craft.PROTO + b"h\x07.")

    def test_nested_a_hundred_thousand_deep(self):
        self.refuse_pickle(LIMITS, ".*(deep|nest|levels).*",
                           craft.PROTO + b"]" * 100_000 + tensor("0", [6]) + b"a" * 100_000 + b".")

    def test_nested_a_million_tuples_deep(self):
        self.refuse_pickle(LIMITS, ".*(deep|nest|levels).*",
                           craft.PROTO + tensor("0", [6]) + b"\x85" * 1_000_000 + b".")

    def test_that_doubles_sixty_times(self):
        # 300 bytes of pickle with 2^60 paths.
        self.refuse_pickle(LIMITS, ".*", craft.PROTO + tensor("0", [6]) + b"q\0"
                           + b"".join(b"h" + bytes([i]) + b"\x86q" + bytes([i + 1])
                                      if i else b"h\0\x86q\1" for i in range(60)) + b".")

    def test_with_a_text_longer_than_the_file(self):
        self.refuse_pickle(CORRUPT, ".*", craft.PROTO + b"X\xff\xff\xff\x7fabc.")

    def test_with_bytes_of_exabytes(self):
        self.refuse_pickle(CORRUPT, ".*", b"\x80\x04\x8e" + struct.pack("<Q", 1 << 62) + b"a.")

    def test_with_a_million_marks(self):
        self.refuse_pickle(CORRUPT, ".*", craft.PROTO + b"(" * 1_000_000 + b".")

    def test_with_a_million_keys_in_a_megabyte(self):
        # Each pair is two bytes, None: None.
        opcodes = craft.PROTO + b"}(" + text("t") + tensor("0", [6]) + b"NN" * 500_000 + b"u."
        craft.write_archive(self.file, [Record("data.pkl", opcodes), Record("data/0", A)])
        self.bounded()

    def bounded(self):
        """Either refused or mounted, within the limits of time and memory."""
        code, told, _ = self.assertBounded(self.file)
        self.assertIn(code, (0, CORRUPT, LIMITS), told)

    def test_with_a_million_different_keys(self):
        keys = b"".join(b"J" + struct.pack("<I", i | 1 << 24) + b"N" for i in range(200_000))
        self.craft(b"}(" + text("t") + tensor("0", [6]) + keys + b"u")
        self.bounded()

    def test_with_a_tensor_used_a_hundred_thousand_times(self):
        keys = b"".join(b"J" + struct.pack("<I", i | 1 << 24) + b"h\0" for i in range(100_000))
        self.craft(b"}(" + text("t") + tensor("0", [6]) + b"q\0" + keys + b"u")
        self.bounded()

    def test_that_would_run_a_command_runs_nothing(self):
        marker = self.file.with_name("marker")
        self.craft(mapping(("a", tensor("0", [6])),
                           ("evil", call(glob("os", "system"), text(f"touch {marker}")))))
        mount = self.mount(self.file)
        self.assertEqual(ckptfs.read(mount / "a.memmap"), A)
        self.assertFalse(marker.exists())
        self.assertIn("os.system", str(ckptfs.meta(mount / "evil")["data"]) + view.entries(
            mount.path)["evil"].get("python_type", ""))

    def test_a_terminal_is_not_commanded_by_names(self):
        self.craft(mapping(("\x1b]0;evil\x07", tensor("0", [1 << 40])), ("b", tensor("1", [2]))))
        mount = self.mount(self.file, quiet=False)
        self.assertTrue(mount.messages.replace("\n", "").isprintable(), mount.messages)


class OneTensor(ckptfs.Case):
    """Damage of one tensor: the others are as good as ever."""

    def setUp(self):
        self.file = self.scratch() / "model.pth"

    def assertDamaged(self, opcodes, pattern, storages=STORAGES):
        craft.write_checkpoint(self.file, mapping(("bad", opcodes), ("good", tensor("0", [6]))),
                               storages)
        mount = self.mount(self.file, quiet=False)
        self.assertRegex(mount.messages, rf"\Ackptfs: warning: {self.file}: .*bad.*{pattern}.*\n\Z")
        self.assertEqual(ckptfs.read(mount / "good.memmap"), A)
        self.assertRegex(view.entries(mount.path)["bad"]["error"], pattern)
        self.assertErrno(errno.EIO, ckptfs.read, mount / "bad.memmap")
        self.assertEqual(ckptfs.read(mount / "good.memmap"), A)

    def test_a_storage_that_is_not_there(self):
        self.assertDamaged(tensor("7", [2]), "data/7")

    def test_a_storage_that_is_too_small(self):
        self.assertDamaged(tensor("1", [6]), "8")

    def test_a_view_that_leaves_its_storage(self):
        self.assertDamaged(tensor("1", [2], numel=2, offset=1), "view out of range: 8 bytes from element 1")

    def test_a_view_with_strides_that_leave_the_storage(self):
        self.assertDamaged(tensor("1", [2], numel=2, stride=[2]), "view out of range: 12 bytes from element 0")

    def test_a_deflated_storage_that_is_broken(self):
        data = bytes(range(256)) * 64
        offsets = craft.write_checkpoint(
            self.file, mapping(("bad", tensor("1", [len(data) // 4])), ("good", tensor("0", [6]))),
            [("0", A), ("1", Record("data/1", data, deflate=True))])
        content = bytearray(self.file.read_bytes())
        content[offsets["data/1"] + 100:offsets["data/1"] + 120] = bytes(20)
        self.file.write_bytes(content)
        mount = self.mount(self.file, quiet=False)
        self.assertErrno(errno.EIO, ckptfs.read, mount / "bad.memmap")
        self.assertEqual(ckptfs.read(mount / "good.memmap"), A)

    def test_all_tensors_damaged_is_a_damaged_checkpoint(self):
        craft.write_checkpoint(self.file, mapping(("x", tensor("1", [6])), ("y", tensor("7", [2]))),
                               STORAGES)
        self.assertRefusedLike(self.ckptfs(self.file, self.mountpoint()), CORRUPT,
                               f"{self.file}: .*")


class Overflow(Refusal):
    """Sizes that do not fit, in a file of which all tensors have them."""

    def test_a_shape_whose_product_overflows(self):
        self.craft(mapping(("a", tensor("0", [1 << 33, 1 << 33], numel=6, stride=[0, 0]))))
        self.refuse_any(".*")

    def refuse_any(self, pattern):
        done = self.ckptfs(self.file, self.mountpoint())
        self.assertIn(done.returncode, (CORRUPT, LIMITS), done.stderr)
        self.assertRegex(done.stderr, rf"\Ackptfs: {self.file}: {pattern}\n\Z")

    def test_a_negative_size(self):
        self.craft(mapping(("a", tensor("0", [-6], numel=6, stride=[1]))))
        self.refuse_any(".*")

    def test_an_offset_that_overflows(self):
        self.craft(mapping(("a", tensor("0", [6], numel=6, offset=(1 << 63) - 1))))
        self.refuse_any(".*")

    def test_sixty_five_dimensions(self):
        self.craft(mapping(("a", tensor("0", [1] * 65, numel=6))))
        self.refuse_any(".*")

    def test_a_number_of_elements_that_overflows(self):
        self.craft(mapping(("a", tensor("0", [6], numel=1 << 62))))
        self.refuse_any(".*")

    def test_a_stride_of_zero_that_makes_petabytes_of_a_byte(self):
        self.craft(mapping(("a", tensor("0", [1 << 50], numel=6, stride=[0])),
                           ("l", array(sequence(integer(1))))))
        self.refuse_any(".*")
