"""Files of tensorizer that want to do harm: each is refused, or costs what is wrong with it, in a
second and 64 MiB."""

import errno
import os
import struct

import ckptfs
import sealed
from ckptfs import CORRUPT, FORMAT, LIMITS
from tensors_craft import MAGIC, File, header

COUNT, LENGTH, INDEX = 57, 65, 73  # Where the number of tensors, of bytes of the index, and it are.


def u64(number):
    return struct.pack("<Q", number)


class Hostile(ckptfs.Case):
    def written(self, file, **options):
        path = self.scratch() / "hostile.tensors"
        self.places = file.write(path, **options)
        return path

    def patched(self, *patches, file=None):
        """A file of two tensors in which bytes were replaced: (offset, bytes)."""
        path = self.written(file or File().add("a", "<f4", [2], b"aaaabbbb")
                            .add("b", "<f4", [1], b"cccc"))
        with open(path, "r+b") as out:
            for offset, data in patches:
                out.seek(offset)
                out.write(data)
        return path

    def assertRefusal(self, path, pattern, code=CORRUPT):
        found, said, _ = self.assertBounded(path)
        self.assertEqual((found, said.count("\n")), (code, 1), said)
        self.assertRegex(said, rf"\Ackptfs: {path}: {pattern}\n\Z")

    def assertCosts(self, path, broken, code=errno.EIO):
        """Mounts; those tensors are errors, and the others are not."""
        found, said, mountpoint = self.assertBounded(path)
        self.assertEqual(found, 0, said)
        for name in ("a", "b"):
            file = mountpoint / f"{name}.memmap"
            with self.subTest(name):
                if name in broken:
                    self.assertIn(f"tensor '{name}'", said)
                    self.assertErrno(code, ckptfs.read, file)
                else:
                    ckptfs.read(file)
        return mountpoint

    # The beginning of the file.

    def test_versions_that_do_not_exist(self):
        for version in (0, 6, 0xffffffff):
            with self.subTest(version=version):
                self.assertRefusal(self.patched((5, struct.pack("<I", version))),
                                   f".*version {version}.*", FORMAT)

    def test_flags_that_nobody_knows(self):
        for bit in (2, 77, 255):
            with self.subTest(bit=bit):
                flags = (1 << bit).to_bytes(32, "little")
                self.assertRefusal(self.patched((5, b"\5"), (9, flags)), ".*flag.*", FORMAT)

    def test_tagged_entries_before_version_5(self):
        self.assertRefusal(self.patched((5, b"\4"), (9, b"\2")), ".*flag.*", FORMAT)

    def test_a_file_of_the_magic_alone(self):
        path = self.scratch() / "hostile.tensors"
        for length in (5, 9, 41, 65, 72):
            with self.subTest(length=length):
                path.write_bytes((MAGIC + struct.pack("<I", 1)).ljust(100, b"\0")[:length])
                self.assertRefusal(path, ".+")

    def test_more_tensors_than_the_index_has_room_for(self):
        for count in (3, 1000, 1 << 32, (1 << 64) - 1):
            with self.subTest(count=count):
                self.assertRefusal(self.patched((COUNT, u64(count))), f".*{count}.*")

    def test_an_index_beyond_the_file(self):
        for length in (1 << 20, 1 << 40, (1 << 64) - 1, (1 << 64) - 73):
            with self.subTest(length=length):
                found, said, _ = self.assertBounded(self.patched((LENGTH, u64(length))))
                self.assertIn(found, (CORRUPT, LIMITS), said)

    def test_an_index_of_gigabytes_that_is_a_hole(self):
        path = self.patched((LENGTH, u64(1 << 40)), (COUNT, u64(1 << 30)))
        os.truncate(path, 2 << 40)
        found, said, _ = self.assertBounded(path)
        self.assertIn(found, (CORRUPT, LIMITS), said)

    def test_an_empty_index(self):
        self.assertRefusal(self.patched((LENGTH, u64(0))), ".+")

    def test_an_index_that_ends_in_zeros(self):
        file = File(index=4096).add("a", "<f4", [2], b"aaaabbbb")
        self.assertRefusal(self.written(file, count=9), ".*1 of .*9.*")

    # Names.

    def refused_names(self, *names, pattern=".+"):
        file = File()
        for name in names:
            file.add(name, "|u1", [1], b"x")
        self.assertRefusal(self.written(file), pattern)

    def test_names_that_are_no_names(self):
        for name in (b"", b"\xff\xfe", b"\x1e", b"\x1e[]", b"\x1e[1.5]", b"\x1e[-1]", b"\x1e[null]",
                     b"\x1e[true]", b'\x1e[["a"]]', b'\x1e{"a":1}', b'\x1e["a"', b'\x1e["a"]x',
                     b'\x1e["a",\n"b"]', b'\x1e["a\x01"]', b"\x1e[9223372036854775808]",
                     b"\x1e[1e2]", b"\x1e[NaN]", b"\x1e" + b"[" * 5000 + b"]" * 5000):
            with self.subTest(name[:20]):
                self.refused_names(b"fine", name)

    def test_one_name_in_two_encodings(self):
        self.refused_names("a", b'\x1e["a"]', pattern=".*twice.*|.*already.*|.*same.*")

    def test_a_tensor_that_is_a_mapping_too(self):
        self.refused_names(b'\x1e["a"]', b'\x1e["a","b"]')
        self.refused_names(b'\x1e["a","b"]', b'\x1e["a"]')

    def test_keys_of_two_kinds_in_one_mapping(self):
        self.refused_names(b'\x1e["a",0]', b'\x1e["a","b"]')

    def test_names_that_are_very_deep(self):
        deep = b"\x1e[" + b",".join([b"0"] * 30_000) + b"]"
        self.refused_names(deep)

    def test_many_names_that_are_quite_deep(self):
        file = File()
        for i in range(400):
            path = ",".join(f'"{i}"' for _ in range(60))
            file.add(f"\x1e[{path}]", "|u1", [1], b"x")
        found, said, _ = self.assertBounded(self.written(file))
        self.assertIn(found, (0, LIMITS), said)

    def test_names_that_would_leave_the_mount(self):
        names = ("../../etc/passwd", "..", ".", "/abs", "a\0b", "a/../../b", "\x1b[31m", "\u202e",
                 "meta.json")
        file = File()
        for name in names:
            file.add(name, "|u1", [1], b"x")
        found, said, mountpoint = self.assertBounded(self.written(file))
        self.assertEqual(found, 0, said)
        below = [p for p in mountpoint.rglob("*.memmap")]
        self.assertGreaterEqual(len(below), len(names))
        for path in below:
            self.assertEqual(ckptfs.read(path), b"x")
        found, said, mountpoint = self.assertBounded(self.written(
            File().add(b'\x1e["..","\\u0000","/etc"]', "|u1", [1], b"x")))
        self.assertEqual(found, 0, said)

    def test_very_long_names(self):
        file = File()
        for i in range(40):
            file.add(b"n" * 65_000 + bytes(f"{i}", "ascii"), "|u1", [1], b"x")
        found, said, _ = self.assertBounded(self.written(file))
        self.assertIn(found, (0, LIMITS), said)

    # The fields of an entry.

    def test_a_kind_that_does_not_exist(self):
        self.assertRefusal(self.written(File().add("a", "<f4", [2], b"aaaabbbb", kind=3)), ".+")

    def test_too_many_dimensions(self):
        self.assertRefusal(self.written(File().add("a", "|u1", [1] * 65, b"x")), ".*65.*")

    def test_shapes_whose_product_overflows(self):
        for shape in ([1 << 31] * 3, [0xffffffff] * 8):
            with self.subTest(shape):
                file = File().add("a", "<f8", shape, b"").add("b", "<f4", [1], b"cccc")
                found, said, mountpoint = self.assertBounded(self.written(file))
                self.assertEqual(found, 0, said)
                self.assertIn("tensor 'a'", said)
                self.assertEqual(ckptfs.read(mountpoint / "b.memmap"), b"cccc")

    def test_exabytes_of_zeros(self):
        file = File().add("a", "|u1", [1 << 31, 1 << 31], b"").add("b", "<f4", [1], b"cccc")
        found, said, mountpoint = self.assertBounded(self.written(file))
        self.assertEqual(found, 0, said)
        self.assertIn("tensor 'a'", said)

    def test_lengths_that_shape_and_dtype_do_not_imply(self):
        for shape in ([3], [1], [2, 2]):
            with self.subTest(shape):
                file = File().add("a", "<f4", shape, b"aaaabbbb").add("b", "<f4", [1], b"cccc")
                self.assertCosts(self.written(file), {"a"})

    def test_dtypes_that_are_none(self):
        for dtype in ("", "<", "<f", "<f3", "<V2\0\0torch.x", "<V99999999999999999999\0torch.x",
                      "|O8", "\xff", "<V2\0notorch"):
            with self.subTest(dtype):
                file = File().add("a", dtype, [2], b"aaaabbbb").add("b", "<f4", [1], b"cccc")
                found, said, mountpoint = self.assertBounded(self.written(file))
                self.assertEqual(found, 0, said)
                self.assertEqual(ckptfs.read(mountpoint / "b.memmap"), b"cccc")

    # Where things are.

    def entry(self, number):
        """Where the offset of the header of tensor 0 or 1 stands, for names of one letter."""
        sizes = [2 + 1 + 1 + 1 + 3 + 1 + 4 + 24] * 2
        return INDEX + sum(sizes[:number]) + sizes[number] - 24

    def test_offsets_beyond_everything(self):
        for offset in (0, 72, (1 << 64) - 1, (1 << 63), 10_000):
            for field in (0, 8, 16):
                with self.subTest(offset=offset, field=field):
                    if field == 16 and offset == 0:
                        continue
                    self.assertCosts(self.patched((self.entry(0) + field, u64(offset))), {"a"})

    def test_a_header_that_two_entries_share(self):
        path = self.patched()
        first = path.read_bytes()[self.entry(0):self.entry(0) + 16]
        self.assertCosts(self.patched((self.entry(1), first)), {"b"})

    def test_tensors_that_overlap(self):
        # The data of the first has a right header for the second in it.
        inner = header("b", "|u1", [4], 4)
        file = File().add("a", "|u1", [len(inner) + 4], inner + b"cccc").add("b", "|u1", [4], b"xxxx")
        path = self.written(file)
        outer = len(header("a", "|u1", [0], 0))
        place = self.places[0] + outer
        with open(path, "r+b") as out:
            out.seek(self.entry(1))
            out.write(u64(place) + u64(place + len(inner)))
        self.assertRefusal(path, ".*overlap.*")

    def test_headers_of_any_length(self):
        for size in (0, 7, 8, 25, 1 << 20, 1 << 40, (1 << 64) - 1):
            with self.subTest(size=size):
                path = self.patched()
                self.assertCosts(self.patched((self.places[0], u64(size))), {"a"})
                del path

    def test_a_negative_length(self):
        path = self.patched()
        end = self.places[0] + len(header("a", "<f4", [2], 8))
        self.assertCosts(self.patched((end - 8, struct.pack("<q", -8))), {"a"})
        del path

    def test_hash_sections_that_lie(self):
        for hashes in (b"\2\0\4aaaa", b"\1\0\xffaaaa", b"\1\1\4aaaa", b"\1\7\4aaaa", b"\xff",
                       b"\0aaaa", b"\1\0\4aaaab", b"\2\0\4aaaa\0\4aaaa"):
            with self.subTest(hashes):
                file = File().add("a", "<f4", [2], b"aaaabbbb", hashes=hashes)
                self.assertCosts(self.written(file.add("b", "<f4", [1], b"cccc")), {"a"})

    def test_no_hashes_are_no_error(self):
        found, said, mountpoint = self.assertBounded(self.patched())
        self.assertEqual((found, said), (0, ""))
        self.assertEqual(ckptfs.read(mountpoint / "a.memmap"), b"aaaabbbb")

    # Encryption.

    def sealed_file(self, crypt, data=b"aaaabbbb"):
        """Tensor a has this crypt section, b is right."""
        right = self.crypt(self.message(16, 1))
        return self.written(File(version=3).add("a", "|u1", [len(data)], data, crypt=crypt)
                            .add("b", "|u1", [16], bytes(16), crypt=right))

    def crypt(self, *chunks):
        body = struct.pack("<H", len(chunks)) + b"".join(u64(len(c)) + c for c in chunks)
        return u64(len(body)) + body

    def message(self, chunk_size, macs, count=None):
        return (struct.pack("<HQ", 2, chunk_size) + bytes(24)
                + u64(macs if count is None else count) + bytes(16 * macs))

    def test_crypt_sections_that_lie(self):
        derivation = struct.pack("<HHQQiH", 1, 1, 1, 8192, 2, 16) + bytes(16)
        bad = {
            "no chunk": self.crypt(),
            "no message": self.crypt(derivation),
            "two messages": self.crypt(self.message(2048, 1), self.message(2048, 1)),
            "unknown chunk": self.crypt(self.message(2048, 1), struct.pack("<H", 9)),
            "no tags": self.crypt(self.message(2048, 0)),
            "too many tags": self.crypt(self.message(2048, 3)),
            "tags that are not there": self.crypt(self.message(2048, 1, count=1 << 60)),
            "tags that overflow": self.crypt(self.message(2048, 1, count=(1 << 60) + 1)),
            "a section beyond the header": u64(1 << 40) + bytes(4),
            "a chunk beyond the section": u64(10) + struct.pack("<HQ", 1, 1 << 63),
            "many chunks": u64(2) + struct.pack("<H", 65_535),
            "a method that does not exist": self.crypt(
                struct.pack("<HHQQiH", 1, 2, 1, 8192, 2, 16) + bytes(16), self.message(2048, 1)),
            "an algorithm that does not exist": self.crypt(
                struct.pack("<HHQQiH", 1, 1, 1, 8192, 1, 16) + bytes(16), self.message(2048, 1)),
            "a salt of 8 bytes": self.crypt(
                struct.pack("<HHQQiH", 1, 1, 1, 8192, 2, 8) + bytes(8), self.message(2048, 1)),
        }
        for what, crypt in bad.items():
            with self.subTest(what):
                found, said, mountpoint = self.assertBounded(self.sealed_file(crypt))
                self.assertEqual(found, 0, said)
                self.assertIn("tensor 'a'", said)
                self.assertErrno(errno.EIO, ckptfs.read, mountpoint / "a.memmap")
                self.assertErrno(errno.ENOKEY, ckptfs.read, mountpoint / "b.memmap")

    def test_chunks_of_odd_sizes(self):
        data = bytes(5000)
        for size in (0, 1, 1000, 1023, 1 << 63, 128 << 20):
            with self.subTest(size=size):
                macs = max(2, -(-len(data) // size) if size else 2)
                macs = min(macs, 5000)
                path = self.sealed_file(self.crypt(self.message(size, macs)), data)
                found, said, mountpoint = self.assertBounded(path)
                self.assertEqual(found, 0, said)
                self.assertErrno(errno.EIO, ckptfs.read, mountpoint / "a.memmap")

    def test_a_tensor_that_is_not_encrypted_in_a_file_that_is(self):
        path = self.sealed_file(self.crypt())
        found, said, mountpoint = self.assertBounded(path)
        self.assertEqual(found, 0, said)
        self.assertErrno(errno.EIO, ckptfs.read, mountpoint / "a.memmap")

    def test_fifty_thousand_derivations(self):
        file = File(version=3)
        for i in range(3000):
            derivation = (struct.pack("<HHQQiH", 1, 1, 4, 1 << 30, 2, 16)
                          + i.to_bytes(16, "little"))
            file.add(f"t{i}", "|u1", [16], bytes(16),
                     crypt=self.crypt(derivation, self.message(2048, 1)))
        path = self.written(file)
        found, said, _ = self.assertBounded(path)
        self.assertEqual(found, 0, said)
        done = self.ckptfs(sealed.passphrase_file(self, "x"), path, self.mountpoint())
        self.assertRefusedLike(done, LIMITS, ".+")

    # Versions that share a number.

    def test_layouts_that_were_never_released(self):
        block = u64(45) + b"\1\3\1" + u64(118)
        path = self.patched((5, b"\5"), (LENGTH, block.ljust(53, b"\0")))
        self.assertRefusal(path, ".*development.*", FORMAT)
        path = self.patched((5, b"\5"), (INDEX, struct.pack("<I", 5)))
        self.assertRefusal(path, ".*development.*", FORMAT)

    def test_a_tag_that_nobody_knows(self):
        path = self.patched((INDEX, struct.pack("<I", 3)),
                            file=File(version=5, flags=2).add("a", "|u1", [1], b"x"))
        self.assertRefusal(path, ".*3.*")
