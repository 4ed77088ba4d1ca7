"""Files of old torch: the stream of pickles and storages, the tar archive, and pickles that have
whole files of torch.save inside. Written here by torch and Python, cut, and made to do harm."""

import collections
import io
import pickle
import pickletools
import struct
import tarfile

import ckptfs
import craft
import damage_test
import view
from ckptfs import CORRUPT, FORMAT, LIMITS
from craft import array, glob, integer, mapping, tensor, text

try:
    import oracle
    import torch
except ImportError as error:
    torch = None
    MISSING = str(error)

SAMPLE = ckptfs.SAMPLES / "torch-2.13" / "state_dict.legacy.pth"

MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
VERSION = b"\x80\x02M\xe9\x03."
SYSTEM = craft.PROTO + mapping(("protocol_version", integer(1001)), ("little_endian", b"\x88")) + b"."

A = damage_test.A


def keys(*names):
    return craft.PROTO + array(*map(text, names)) + b"."


def stored(numel, data):
    return struct.pack("<q", numel) + data


def stream(objects, names, payload):
    """A file around the opcodes of an object."""
    return MAGIC + VERSION + SYSTEM + craft.PROTO + objects + b"." + keys(*names) + payload


def pickles_of(data, count):
    """Where each of the pickles at the beginning of `data` ends."""
    ends, file = [], io.BytesIO(data)
    for _ in range(count):
        for _ in pickletools.genops(file):
            pass
        ends.append(file.tell())
    return ends


class Torch(ckptfs.Case):
    def setUp(self):
        if torch is None:
            self.skip_avoidable(MISSING)
        self.file = self.scratch() / "model.pth"

    def assertHolds(self, root, quiet=True):
        """The mount of self.file has the tensors of `root`."""
        mount = self.mount(self.file, quiet=quiet)
        expected, without_elements = oracle.tensors(root)
        self.assertEqual(without_elements, [])
        self.assertEqual(view.tensors(mount.path), expected)
        return mount


class Stream(Torch):
    """What torch.save(_use_new_zipfile_serialization=False) writes."""

    def save(self, root, protocol=2):
        torch.save(root, self.file, pickle_protocol=protocol, _use_new_zipfile_serialization=False)

    def test_a_module_whose_source_code_is_saved_with_it(self):
        net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
        self.save(net)
        self.assertIn(b"class Linear(Module):", self.file.read_bytes())
        mount = self.assertHolds(net)
        self.assertEqual(ckptfs.meta(mount.path)["_ckptfs"]["python_type"],
                         "torch.nn.modules.container.Sequential")

    def test_two_checkpoints_in_one_file(self):
        with open(self.file, "wb") as file:
            for root in {"a": torch.arange(3)}, {"b": torch.arange(4)}:
                torch.save(root, file, _use_new_zipfile_serialization=False)
        mount = self.mount(self.file)
        self.assertEqual(ckptfs.read(mount / "0/a.memmap"), torch.arange(3).numpy().tobytes())
        self.assertEqual(ckptfs.read(mount / "1/b.memmap"), torch.arange(4).numpy().tobytes())

    def test_a_file_offset_is_where_the_bytes_are(self):
        root = {"a": torch.arange(5.0), "b": torch.arange(7, dtype=torch.int16)}
        self.save(root)
        mount = self.assertHolds(root)
        for name, value in root.items():
            offset = view.places(mount.path)[mount / f"{name}.memmap"]["file_offset"]
            data = oracle.raw(value)
            self.assertEqual(self.file.read_bytes()[offset:offset + len(data)], data)

    def test_shared_tensors_are_hard_links(self):
        shared = torch.arange(6.0)
        self.save({"a": shared, "b": shared, "c": shared[2:4]})
        mount = self.assertHolds({"a": shared, "b": shared, "c": shared[2:4]})
        self.assertEqual((mount / "a.memmap").stat().st_ino, (mount / "b.memmap").stat().st_ino)


class Protocol0(ckptfs.Case):
    """Torch writes it and cannot read it."""

    def test_holds_what_protocol_1_does(self):
        folder = ckptfs.SAMPLES / "torch-1.13"
        mounts = [self.mount(folder / f"proto{i}_legacy.pth") for i in (0, 1)]
        self.assertEqual(view.tensors(mounts[0].path), view.tensors(mounts[1].path))


class Cut(ckptfs.Case):
    """A real file, cut where one part of it ends and the next one begins."""

    def setUp(self):
        self.data = SAMPLE.read_bytes()
        self.file = self.scratch() / "model.pth"
        whole = self.mount(SAMPLE)
        self.whole = view.tensors(whole.path)
        # By their offsets; the chain of storages is: 8 bytes, then the elements.
        ends = pickles_of(self.data, 5)
        self.ends, self.storages = ends, []
        offset = ends[-1]
        lengths = {line["file_offset"]: line["bytes"] for line in view.lines(whole.path)}
        while offset < len(self.data):
            self.storages.append((offset, offset + 8, offset + 8 + lengths[offset + 8]))
            offset = self.storages[-1][-1]
        whole.unmount()

    def cut(self, length):
        self.file.write_bytes(self.data[:length])

    def test_in_the_mark(self):
        self.cut(self.ends[0] - 1)
        done = self.ckptfs(self.file, self.mountpoint())
        self.assertRefusedLike(
            done, CORRUPT, f"{self.file}: unexpected end of pickle at byte 14: STOP is missing")

    def test_behind_the_first_pickle(self):
        self.refuse(0, "pickle 2 at byte 15: unexpected end of pickle at byte 0: STOP is missing")

    def test_behind_the_second_pickle(self):
        self.refuse(1, "pickle 3 at byte 21: unexpected end of pickle at byte 0: STOP is missing")

    def test_behind_the_third_pickle(self):
        self.refuse(2, r"pickle 4 at byte \d+: unexpected end of pickle at byte 0: STOP is missing")

    def test_behind_the_fourth_pickle(self):
        self.refuse(3, r"pickle 5 at byte \d+: unexpected end of pickle at byte 0: STOP is missing")

    def test_behind_the_last_pickle(self):
        self.refuse(4, r"pickle 4: tensor '.*': (the offset of storage '\d+' is unknown: )?"
                       r"storage '\d+' at byte \d+: unexpected end of file at byte \d+")

    def refuse(self, pickle_number, pattern):
        self.cut(self.ends[pickle_number])
        done = self.ckptfs(self.file, self.mountpoint())
        self.assertRefusedLike(done, CORRUPT, f"{self.file}: {pattern}")

    def test_behind_the_first_storage(self):
        self.keep(self.storages[0][2], 1)

    def test_behind_the_number_of_elements_of_the_second_storage(self):
        self.keep(self.storages[1][1], 1)

    def test_in_the_number_of_elements_of_the_second_storage(self):
        self.keep(self.storages[1][1] - 1, 1)

    def test_before_the_last_byte(self):
        self.keep(len(self.data) - 1, len(self.storages) - 1)

    def keep(self, length, readable):
        """Cut there, so many tensors are as good as ever, and each other one says why not."""
        self.cut(length)
        mount = self.mount(self.file, quiet=False)
        good = 0
        for kind, names, what in view.walk(mount.path):
            if kind != "tensor":
                continue
            if "error" in what.entry:
                self.assertIn(f"unexpected end of file at byte {length}", what.entry["error"])
                self.assertRaises(OSError, ckptfs.read, what.path)
            else:
                self.assertIn(what.leaf(), self.whole[".".join(names)])
                good += 1
        self.assertEqual(good, readable)
        self.assertEqual(mount.messages.count("reading it will fail"),
                         sum(map(len, self.whole.values())) - readable)


class Large(ckptfs.Case):
    def test_a_storage_behind_five_gibibytes(self):
        file = self.scratch() / "model.pth"
        elements = 5 << 28
        head = stream(mapping(("far", tensor("1", [6])), ("huge", tensor("0", [elements]))),
                      ("0", "1"), struct.pack("<q", elements))
        with open(file, "wb") as out:
            out.write(head)
            out.truncate(len(head) + 4 * elements)
            out.seek(0, io.SEEK_END)
            out.write(stored(6, A))
        mount = self.mount(file)
        self.assertEqual(ckptfs.read(mount / "far.memmap"), A)
        self.assertEqual((mount / "huge.memmap").stat().st_size, 4 * elements)
        self.assertEqual(ckptfs.read(mount / "huge.memmap", 4 * elements - 3), bytes(3))


class Harm(damage_test.Refusal):
    """Streams that were made to do harm: refused in a second and 64 MiB."""

    def write(self, objects, names=("0",), payload=stored(6, A)):
        self.file.write_bytes(stream(objects, names, payload))

    def test_a_number_of_elements_of_nine_quintillions(self):
        self.write(mapping(("a", tensor("0", [6]))), payload=stored((1 << 63) - 1, A))
        self.refuse(CORRUPT, "pickle 4: tensor 'a': storage '0' at byte \\d+: wrong number of "
                             "elements .found 9223372036854775807, expected 6.")

    def test_a_storage_of_exabytes(self):
        self.write(mapping(("a", tensor("0", [6], numel=1 << 60))), payload=stored(1 << 60, A))
        self.refuse(CORRUPT, r"pickle 4: tensor 'a': storage '0' of 4611686018427387904 bytes at "
                             r"byte \d+: unexpected end of file at byte \d+")

    def test_a_storage_of_more_bytes_than_there_can_be(self):
        self.write(mapping(("a", tensor("0", [6], numel=1 << 62))), payload=stored(1 << 62, A))
        self.refuse(CORRUPT, "pickle 4: tensor 'a': its storage has 4611686018427387904 elements")

    def test_objects_a_hundred_thousand_deep(self):
        self.write(b"]" * 100_000 + tensor("0", [6]) + b"a" * 100_000)
        self.refuse(LIMITS, "pickle 4: objects are nested more than 1000 levels deep")

    def test_an_entry_of_the_memo_four_billion_away(self):
        self.write(b"}r" + struct.pack("<I", 4_000_000_000))
        self.refuse(LIMITS, ".*memo index is too large .found 4000000000,.*")

    def test_a_text_longer_than_the_file(self):
        self.file.write_bytes(MAGIC + VERSION + SYSTEM + b"\x80\x04\x8d" + struct.pack("<Q", 1 << 63)
                              + b"a.")
        self.refuse(CORRUPT, "pickle 4 at byte 72: BINUNICODE8 at byte 2: argument needs "
                             "9223372036854775808 bytes, but only 2 are left")

    def test_a_hundred_thousand_keys(self):
        numbers = b"".join(b"X\4\0\0\0%04x" % i for i in range(1 << 16)) * 2
        self.file.write_bytes(MAGIC + VERSION + SYSTEM + craft.PROTO + tensor("0", [6]) + b"."
                              + craft.PROTO + b"](" + numbers + b"e.")
        self.refuse(CORRUPT, "pickle 5: duplicate key '0000'")

    def test_three_hundred_thousand_ids_that_name_no_storage(self):
        self.write(b"NQ0" * 300_000 + tensor("0", [6]), payload=stored(5, A))
        self.refuse(LIMITS, r"pickle 4: .* takes more than \d+ steps, .*")

    def test_a_thousand_names_for_a_long_file_in_a_pickle(self):
        inner = stream(b"}" * 300_000 + craft.storage("0", 6), ("0",), stored(5, A))
        file = glob("torch.storage", "_load_from_bytes") + b"q\2" + b"B" + struct.pack(
            "<I", len(inner)) + inner + b"q\1" + b"\x85R"
        again = b"h\2h\1\x85R"
        self.file.write_bytes(b"\x80\3](" + file + again * 1000 + b"e.")
        self.refuse(CORRUPT, "tensor '0': pickle 4: tensor 'tensor': storage '0' at byte .*")

    def test_a_cycle(self):
        self.write(b"}q\1" + text("me") + b"h\1s" + text("a") + tensor("0", [6]) + b"s")
        mount = self.mount(self.file)
        self.assertEqual(ckptfs.read(mount / "a.memmap"), A)


class Nested(Torch):
    """pickle.dump of tensors: each storage is a whole file of torch.save, in the pickle."""

    def root(self):
        base = torch.arange(24.0).reshape(4, 6)
        return {"base": base, "row": base[1], "turned": base.t(), "half": torch.ones(3).half(),
                "list": [torch.arange(3), torch.tensor(True)], "empty": torch.empty(0, 3),
                "float8": torch.arange(4.0).to(torch.float8_e5m2), "n": 5}

    def dump(self, protocol):
        root = self.root()
        self.file.write_bytes(pickle.dumps(root, protocol))
        mount = self.assertHolds(root)
        self.assertEqual(view.values(mount.path), {"n": [5]})
        return mount

    def test_protocol_2(self):
        mount = self.dump(2)
        self.assertIsNone(view.places(mount.path)[mount / "base.memmap"]["file_offset"])

    def test_protocol_3(self):
        self.dump(3)

    def test_protocol_5_where_the_bytes_are_in_the_file_as_they_are(self):
        mount = self.dump(5)
        offset = view.places(mount.path)[mount / "row.memmap"]["file_offset"]
        self.assertEqual(self.file.read_bytes()[offset:offset + 24], oracle.raw(torch.arange(6.0, 12)))

    def test_a_module(self):
        net = torch.nn.Linear(3, 4)
        self.file.write_bytes(pickle.dumps(net, 4))
        self.assertHolds(net)


class Reference(str):
    """A tensor in the object of an old archive: its key."""


def old_tar(tensors, views=()):
    """The members of a file of torch 0.1.10: {name: data}. `tensors` are {name: (key of a storage,
    offset, size, stride)}, of which "5" has six floats; `views` are parts of that."""
    dump = lambda value: pickle.dumps(value, 2)

    class Pickler(pickle.Pickler):
        def persistent_id(self, value):
            return str(value) if isinstance(value, Reference) else None

    objects = io.BytesIO()
    names = {name: Reference(100 + i) for i, name in enumerate(tensors)}
    Pickler(objects, 2).dump(collections.OrderedDict(names))
    table = dump(len(tensors))
    for i, (key, offset, size, stride) in enumerate(tensors.values()):
        table += dump((100 + i, key, torch.FloatTensor)) + struct.pack("<ii", len(size), 0)
        table += struct.pack(f"<{2 * len(size)}q", *size, *stride) + struct.pack("<q", offset)
    storages = dump(1) + dump((5, "cpu", torch.FloatStorage)) + stored(6, A) + dump(list(views))
    system = dump({"protocol_version": 1000, "little_endian": True, "type_sizes": {"long": 4}})
    return {"sys_info": system, "pickle": objects.getvalue(), "tensors": table,
            "storages": storages}


class Tar(Torch):
    def write(self, members, form=tarfile.PAX_FORMAT, **attributes):
        with tarfile.open(self.file, "w:", format=form) as archive:
            for name, data in members.items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                for attribute, value in attributes.items():
                    setattr(info, attribute, value)
                archive.addfile(info, io.BytesIO(data))

    TENSORS = {"whole": (5, 0, (2, 3), (3, 1)), "turned": (5, 0, (3, 2), (1, 3)),
               "part": (6, 1, (2,), (1,))}
    VIEWS = [(6, 5, 3, 3)]

    def test_holds_what_torch_reads(self):
        self.write(old_tar(self.TENSORS, self.VIEWS))
        self.assertHolds(oracle.load(self.file))

    def test_with_times_of_fractions_which_old_torch_wrote(self):
        self.write(old_tar(self.TENSORS, self.VIEWS), mtime=1485000000.5)
        self.assertTrue(self.file.read_bytes().startswith(b"././@PaxHeader"))
        self.assertHolds(oracle.load(self.file))

    def test_in_the_format_of_gnu(self):
        self.write(old_tar(self.TENSORS, self.VIEWS), tarfile.GNU_FORMAT)
        self.assertHolds(oracle.load(self.file))

    def test_with_members_in_another_order(self):
        members = old_tar(self.TENSORS, self.VIEWS)
        self.write(dict(reversed(members.items())))
        self.assertHolds(oracle.load(self.file))

    def test_of_which_a_member_is_missing(self):
        members = old_tar(self.TENSORS, self.VIEWS)
        del members["tensors"]
        self.write(members)
        self.assertRefused(self.ckptfs(self.file, self.mountpoint()), CORRUPT,
                           f"{self.file}: member 'tensors' not found in the archive")

    def test_of_which_a_member_is_a_link(self):
        self.write(old_tar(self.TENSORS, self.VIEWS), type=tarfile.SYMTYPE, linkname="/etc/passwd")
        # A link has no data, whatever size it tells: what follows is no header.
        self.assertRefusedLike(self.ckptfs(self.file, self.mountpoint()), CORRUPT,
                               f"{self.file}: tar: header at byte .*: checksum mismatch")

    def test_that_is_cut(self):
        self.write(old_tar(self.TENSORS, self.VIEWS))
        data = self.file.read_bytes()
        self.file.write_bytes(data[:data.rindex(A)])
        self.assertRefusedLike(self.ckptfs(self.file, self.mountpoint()), CORRUPT,
                               f"{self.file}: tar: header at byte .*: 'storages' has .*")

    def test_of_something_else(self):
        self.write({"model.pth": A})
        self.assertRefused(self.ckptfs(self.file, self.mountpoint()), FORMAT,
                           f"{self.file}: tar archive without a checkpoint in a supported format, "
                           "but with 'model.pth'")
