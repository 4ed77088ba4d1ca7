"""Archives over 4 GiB and of more than 65,535 members. They are mostly holes and cost no disk."""

import hashlib
import os
import time

import ckptfs
import craft
from craft import Record, mapping, tensor

SECONDS = 60 if ckptfs.IS_SANITIZED else 3


class Large(ckptfs.Case):
    def test_an_archive_of_more_than_4_gib(self):
        file = self.scratch() / "model.pth"
        gib = 1 << 30
        large = 4 * gib + 64
        offsets = craft.write_checkpoint(
            file, mapping(("small", tensor("0", [2])), ("large", tensor("1", [large // 4])),
                          ("beyond", tensor("2", [2])),
                          ("turned", tensor("1", [2, large // 8], numel=large // 4,
                                            stride=[1, 2]))),
            [("0", b"before!!"), ("1", Record("data/1", hole=large)), ("2", b"after!!!")])
        marks = {0: b"head", 2 * gib - 2: b"half", 4 * gib - 2: b"4gib", large - 4: b"tail"}
        with open(file, "r+b") as target:
            for place, mark in marks.items():
                target.seek(offsets["data/1"] + place)
                target.write(mark)
        self.assertGreater(file.stat().st_size, 4 * gib)
        mount = self.mount(file)
        self.assertEqual(ckptfs.read(mount / "small.memmap"), b"before!!")
        self.assertEqual(ckptfs.read(mount / "beyond.memmap"), b"after!!!")
        self.assertEqual(os.stat(mount / "large.memmap").st_size, large)
        for place, mark in marks.items():
            with self.subTest(place=place):
                found = ckptfs.read(mount / "large.memmap", max(0, place - 2), 8)
                wanted = (b"\0\0" + mark + b"\0\0")[2 if place == 0 else 0:][:8]
                self.assertEqual(found[:len(wanted)], wanted[:len(found)])
        # Columns of two: the last element of the large one is the last of the turned one, too.
        self.assertEqual(ckptfs.read(mount / "turned.memmap", large - 4), b"tail")
        self.assertEqual(ckptfs.read(mount / "turned.memmap", 0, 4), b"head")

    def test_an_archive_of_70000_members(self):
        file = self.scratch() / "model.pth"
        count = 70_000
        data = [i.to_bytes(4, "little") for i in range(count)]
        craft.write_checkpoint(
            file,
            mapping(*((f"block.{i // 1000}.t{i}", tensor(str(i), [1])) for i in range(count))),
            [(str(i), piece) for i, piece in enumerate(data)])
        start = time.monotonic()
        mount = self.mount(file)
        self.assertLess(time.monotonic() - start, SECONDS)
        self.assertEqual(len(os.listdir(mount / "block")), count // 1000 + 1)
        digest = hashlib.sha256()
        for i in range(0, count, 97):
            digest.update(ckptfs.read(mount / f"block/{i // 1000}/t{i}.memmap"))
        self.assertEqual(digest.digest(), hashlib.sha256(b"".join(data[::97])).digest())
        done = ckptfs.run("find", mount.path, "-name", "*.memmap", check=True)
        self.assertEqual(done.stdout.count("\n"), count)
