"""Files in which evil pickles hide from who looks for them before a checkpoint is loaded.

Each is one that scanners have let pass, or that torch has run even when it was asked for weights
only. On a mount the canary (canary.py) is silent, and what the pickle would have imported is told;
or the file is refused, where it is not clear what another reader would find in it.
"""

import errno
import io
import json
import os
import struct
import tarfile
import zipfile
import zlib

import ckptfs
import craft
from canary import A, Attack
from ckptfs import CORRUPT, FORMAT
from craft import PROTO, STOP, Record, call, glob, integer, mapping, sequence, tensor, text

try:
    import torch
    import torch.distributed.checkpoint as dcp
except ImportError as error:
    torch = None
    MISSING = str(error)

PROTO4 = b"\x80\x04"

LEGACY_MAGIC = b"\x8a\x0a" + 0x1950A86A20F9469CFC6C.to_bytes(10, "little")

# What old torch tells of the machine that it ran on.
SYSTEM = mapping(("protocol_version", integer(1001)), ("little_endian", b"\x88"),
                 ("type_sizes", b"}"))


class Torch(Attack):
    """Attacks of which torch itself is the control."""

    def setUp(self):
        super().setUp()
        if torch is None:
            self.skip_avoidable(MISSING)

    def load(self):
        torch.load(self.file, weights_only=False)

    def assertToldOrRefused(self, *codes, source=None):
        """Either mounts and tells the name, or refuses with one of these codes."""
        code, said, mountpoint = self.assertBounded(source or self.file)
        self.assertFalse(self.canary.exists())
        if code == 0:
            self.assertNames(self.mounted(mountpoint, said), "posix.system")
        else:
            self.assertIn(code, codes, said)


class Archives(Torch):
    """Archives in which scanners and torch do not find the same."""

    def evil(self):
        """An archive whose pickle is evil, as bytes to be changed."""
        self.craft(self.payload)
        return bytearray(self.file.read_bytes())

    def assertHidden(self, data):
        """torch is taken in by these bytes, while Python's zipfile, as scanners use it, is not."""
        self.file.write_bytes(data)
        self.assertSings(self.load)
        with self.assertRaises((zipfile.BadZipFile, RuntimeError, NotImplementedError)):
            with zipfile.ZipFile(self.file) as archive:
                archive.read("archive/data.pkl")

    def test_a_local_header_of_another_name(self):
        # CVE-2025-1944: zipfile compares the names, torch does not.
        data = self.evil()
        place = data.index(b"archive/data.pkl")
        data[place:place + 16] = b"archive/data.txt"
        self.assertHidden(data)
        self.refuse(CORRUPT, "zip: .*data.txt.*")

    def test_a_flag_for_encryption(self):
        # CVE-2025-1945: torch does not look at the flags of a local header.
        data = self.evil()
        data[6] |= 1
        data[data.index(b"PK\1\2") + 8] |= 1
        self.file.write_bytes(data)
        with self.assertRaises(RuntimeError), zipfile.ZipFile(self.file) as archive:
            archive.read("archive/data.pkl")
        self.refuse(CORRUPT, ".*data.pkl.*encryption.*")

    def test_a_flag_for_encryption_in_the_local_header_alone(self):
        data = self.evil()
        data[6] |= 1
        self.file.write_bytes(data)
        self.assertSings(self.load)
        self.assertNames(self.show(), "posix.system")

    def test_a_checksum_that_is_wrong(self):
        # CVE-2025-10156: torch does not check it.
        data = self.evil()
        place = data.index(b"PK\1\2") + 16
        data[place] ^= 0xFF
        self.assertHidden(data)
        self.assertNames(self.show(), "posix.system")

    def test_a_pickle_of_another_extension(self):
        # CVE-2025-1889: the pickle of the archive loads another record, which looks harmless.
        keywords = mapping(("pickle_file", text("config.p")), ("weights_only", b"\x89"))
        state = sequence(glob("torch.serialization", "load"), sequence(text(str(self.file))),
                         keywords, b"N")
        loading = call(glob("functools", "partial"), glob("torch.serialization", "load")) + state
        craft.write_archive(self.file, [
            Record("data.pkl", PROTO + mapping(("evil", call(loading + b"b")),
                                               ("a", tensor("0", [6]))) + STOP),
            Record("config.p", PROTO + self.payload + STOP), Record("data/0", A),
            Record("version", b"3\n")])
        self.assertSings(self.load)
        self.assertNames(self.show(), "functools.partial", "torch.serialization.load")

    def test_a_checkpoint_of_another_extension(self):
        # CVE-2025-10155: scanners that go by the extension read it as what it is not.
        self.craft(self.payload)
        for name in "model.txt", "model.safetensors", "config.json", "model":
            with self.subTest(name):
                self.file = self.file.rename(self.folder / name)
                self.assertNames(self.show(), "posix.system")

    def test_two_pickles_of_one_name(self):
        # torch takes one of them, zipfile the other.
        craft.write_archive(self.file, [
            Record("data.pkl", PROTO + self.payload + STOP),
            Record("data.pkl", PROTO + mapping(("a", tensor("0", [6]))) + STOP),
            Record("data/0", A), Record("version", b"3\n")])
        self.assertSingsInPickle(PROTO + self.payload + STOP)
        self.refuse(CORRUPT, "zip: .*data.pkl.*")

    def test_a_pickle_whose_name_differs_in_case(self):
        # torch finds it all the same.
        craft.write_archive(self.file, [
            Record("DATA.PKL", PROTO + self.payload + STOP), Record("data/0", A),
            Record("version", b"3\n")])
        self.assertSings(self.load)
        self.refuse(CORRUPT, ".*data.pkl.*")

    def test_a_second_archive_behind_the_first(self):
        # torch takes the last end record, and so the archive behind.
        good = self.folder / "good.pth"
        craft.write_checkpoint(good, mapping(("a", tensor("0", [6]))), [("0", A)])
        front, behind = good.read_bytes(), self.evil()
        self.file.write_bytes(front + behind)
        self.assertToldOrRefused(CORRUPT)

    def test_an_archive_around_the_archive(self):
        # A zip of a checkpoint, as nullifAI's 7-Zip archives: what is in it is told all the same.
        inner = bytes(self.evil())
        with zipfile.ZipFile(self.file, "w") as archive:
            archive.writestr("model/pytorch_model.bin", inner)
        self.assertSingsInPickle(PROTO + self.payload + STOP)
        self.assertNames(self.show(), "posix.system")

    def test_a_7_zip_archive(self):
        # "nullifAI": stored in it as it is, so that the pickle's bytes are there.
        packed = PROTO + self.payload + STOP
        header = struct.pack("<QQI", len(packed), 0, 0)
        self.file.write_bytes(b"7z\xbc\xaf'\x1c\0\4" + struct.pack("<I", zlib.crc32(header))
                              + header + packed)
        self.assertSingsInPickle(packed)
        self.refuse(FORMAT, ".*7-Zip.*")

    def test_a_plain_pickle_of_any_extension(self):
        for name in "model.bin", "model.pt", "model.npy", "notes.txt":
            with self.subTest(name):
                self.file = self.folder / name
                self.file.write_bytes(PROTO + craft.array(self.payload, integer(5)) + STOP)
                self.assertSingsInPickle(self.file.read_bytes())
                self.assertNames(self.show(), "posix.system")

    def test_a_file_of_torch_in_the_pickle(self):
        inner = self.legacy(PROTO + self.payload + STOP)
        data = b"B" + struct.pack("<I", len(inner)) + inner
        self.assertHarmless(call(glob("torch.storage", "_load_from_bytes"), data),
                            "torch.storage._load_from_bytes", proto=b"\x80\x03")

    def test_a_file_of_torch_in_the_place_of_a_storage(self):
        inner = self.legacy(PROTO + self.payload + STOP)
        data = b"B" + struct.pack("<I", len(inner)) + inner
        loaded = call(glob("torch.storage", "_load_from_bytes"), data)
        evil = call(glob("torch._utils", "_rebuild_tensor_v2"), loaded, integer(0),
                    sequence(integer(6)), sequence(integer(1)), b"\x89",
                    glob("collections", "OrderedDict") + b")R")
        self.assertHarmless(evil, "torch.storage._load_from_bytes", "posix.system",
                            proto=b"\x80\x03")

    def legacy(self, root):
        """A stream of old torch, without tensors, with this pickle as its object."""
        return b"".join((PROTO + LEGACY_MAGIC + STOP, PROTO + integer(1001) + STOP,
                         PROTO + SYSTEM + STOP, root, PROTO + craft.array() + STOP))


class Legacy(Torch):
    """The five pickles of the stream that torch wrote before 1.6, and the four of its tar."""

    def write(self, at, opcodes):
        """A stream of one tensor whose pickle number `at`, from 1, begins with these opcodes."""
        storage = sequence(text("storage"), glob("torch", "FloatStorage"), text("0"), text("cpu"),
                           integer(6), b"N") + b"Q"
        a = call(glob("torch._utils", "_rebuild_tensor_v2"), storage, integer(0),
                 sequence(integer(6)), sequence(integer(1)), b"\x89",
                 glob("collections", "OrderedDict") + b")R")
        pickles = [LEGACY_MAGIC, integer(1001),
                   SYSTEM,
                   mapping(("a", a)), craft.array(text("0"))]
        pickles[at - 1] = opcodes + b"0" + pickles[at - 1]
        self.file.write_bytes(b"".join(PROTO + p + STOP for p in pickles)
                              + struct.pack("<q", 6) + A)

    def assertSilent(self, at):
        self.write(at, self.payload)
        self.assertSings(self.load)
        self.assertToldOrRefused(CORRUPT, FORMAT)

    def test_in_the_magic_number(self):
        self.assertSilent(1)

    def test_in_the_version(self):
        self.assertSilent(2)

    def test_in_the_description_of_the_system(self):
        self.assertSilent(3)

    def test_in_the_object(self):
        self.write(4, self.payload)
        self.assertSings(self.load)
        mount = self.show()
        self.assertEqual(ckptfs.read(mount / "a.memmap"), A)
        self.assertNames(mount, "posix.system")

    def test_in_the_keys_of_the_storages(self):
        self.assertSilent(5)

    def test_a_module_with_source_code(self):
        # Its class is told with its source, which torch compares and does not run.
        source = text(f"open({str(self.canary)!r}, 'w')")
        module = sequence(text("module"), glob("posix", "system"), text("x.py"), source) + b"Q"
        self.write(4, call(module, text(self.command)))
        self.assertSings(self.load)
        self.assertNames(self.show(), "posix.system")

    def tar(self, **members):
        """The tar of oldest torch; CVE-2025-32434 was that weights_only did not concern it."""
        good = {"sys_info": SYSTEM,
                "pickle": b"}", "storages": integer(0), "tensors": integer(0)}
        with tarfile.open(self.file, "w") as archive:
            for name, opcodes in (good | members).items():
                data = PROTO + opcodes + STOP
                if name == "storages":
                    data += PROTO + craft.array() + STOP
                member = tarfile.TarInfo(name)
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))

    def assertSilentTar(self, **members):
        self.tar(**members)
        self.assertSings(self.load)
        self.assertToldOrRefused(CORRUPT, FORMAT)

    def test_in_the_storages_of_a_tar(self):
        self.assertSilentTar(storages=self.payload + b"0" + integer(0))

    def test_in_the_tensors_of_a_tar(self):
        self.assertSilentTar(tensors=self.payload + b"0" + integer(0))

    def test_in_the_object_of_a_tar(self):
        self.assertSilentTar(pickle=self.payload + b"0}")

    def test_in_the_description_of_the_system_of_a_tar(self):
        # torch does not read it; Python would run it.
        self.tar(sys_info=self.payload + b"0}")
        self.assertSingsInPickle(PROTO + self.payload + b"0}" + STOP)
        self.assertBounded(self.file)
        self.assertFalse(self.canary.exists())


class Scripts(Torch):
    """TorchScript, which torch.load used to run even when it was asked for weights only."""

    def test_code_that_runs_when_the_module_is_loaded(self):
        # CVE-2025-32434: torch.load gave the file to torch.jit.load. Its code can write files.
        torch.jit.save(torch.jit.script(Evil(str(self.canary))), self.file)
        self.canary.unlink(missing_ok=True)
        self.assertSings(torch.jit.load, str(self.file))
        self.show()

    def write(self, **pickles):
        good = {"data": b"c__torch__\nM\n)\x81" + mapping(("w", tensor("0", [6]))) + b"b",
                "constants": b")"}
        craft.write_archive(self.file, [
            *(Record(f"{name}.pkl", PROTO + opcodes + STOP)
              for name, opcodes in (good | pickles).items()),
            Record("code/__torch__.py", b"class M(Module):\n  pass\n"), Record("data/0", A),
            Record("version", b"3\n")])

    def test_in_the_constants(self):
        self.write(constants=sequence(self.payload))
        self.assertSingsInPickle(PROTO + sequence(self.payload) + STOP)
        self.assertNames(self.show(), "posix.system")

    def test_in_the_data(self):
        state = mapping(("w", tensor("0", [6])), ("e", self.payload))
        self.write(data=b"c__torch__\nM\n)\x81" + state + b"b")
        self.assertSingsInPickle(PROTO + self.payload + STOP)
        self.assertNames(self.show(), "posix.system")


if torch is not None:
    class Evil(torch.nn.Module):
        """A module whose __setstate__, which runs when it is loaded, writes a file."""

        def __init__(self, path):
            super().__init__()
            self.path = path
            self.weight = torch.zeros(3)

        @torch.jit.export
        def __getstate__(self):
            return self.path, self.weight, self.training

        @torch.jit.export
        def __setstate__(self, state: tuple[str, torch.Tensor, bool]):
            self.path = state[0]
            self.weight = state[1]
            self.training = state[2]
            torch.save(self.weight, self.path)

        def forward(self, x):
            return x


class Memory(Torch):
    """CVE-2026-24747: pickles of allowed names that made torch write where it must not."""

    def assertRefusedByTorch(self):
        with self.assertRaises(Exception):  # noqa: B017 - torch raises several kinds.
            torch.load(self.file, weights_only=True)

    def test_an_item_that_is_set_on_a_tensor(self):
        self.craft(tensor("0", [6]) + integer(200) + integer(1) + b"s")
        self.assertRefusedByTorch()
        self.assertEqual(ckptfs.read(self.show() / "a.memmap"), A)

    def test_items_that_are_set_on_a_tensor(self):
        self.craft(tensor("0", [6]) + b"(" + integer(1 << 40) + tensor("0", [6]) + b"u")
        self.assertRefusedByTorch()
        self.assertEqual(ckptfs.read(self.show() / "a.memmap"), A)

    def test_items_that_are_appended_to_a_tensor(self):
        self.craft(tensor("0", [6]) + b"(" + integer(1) + integer(2) + b"e")
        self.assertRefusedByTorch()
        self.assertEqual(ckptfs.read(self.show() / "a.memmap"), A)

    def test_a_state_that_is_given_to_a_tensor(self):
        # torch calls Tensor.set_ with it, which makes a view of anything.
        state = sequence(craft.storage("0", 6), integer(0), sequence(integer(1 << 20)),
                         sequence(integer(1)))
        self.craft(tensor("0", [6]) + state + b"b")
        self.assertRefusedByTorch()
        self.assertEqual(ckptfs.read(self.show() / "a.memmap"), A)

    def test_a_storage_that_is_shorter_than_in_the_pickle(self):
        self.craft(tensor("1", [1 << 20]))
        self.assertRefusedByTorch()
        mount = self.show()
        self.assertErrno(errno.EIO, ckptfs.read, mount / "evil.memmap")

    def test_a_storage_that_is_two_things(self):
        # The first says how long it is, the second is believed.
        self.craft(craft.array(tensor("1", [6]), tensor("1", [24], kind="DoubleStorage")))
        mount = self.show()
        self.assertEqual(ckptfs.read(mount / "evil/0.memmap"), A)
        self.assertIn("error", ckptfs.meta(mount / "evil")["1"])

    def test_scales_of_a_quantized_tensor_that_leave_their_storage(self):
        evil = call(glob("torch._utils", "_rebuild_qtensor"),
                    craft.storage("1", 24, "QInt8Storage"), integer(0), sequence(integer(1 << 30)),
                    sequence(integer(1)),
                    sequence(glob("torch", "per_tensor_affine"), b"G" + struct.pack(">d", 1.0),
                             integer(0)),
                    b"\x89", glob("collections", "OrderedDict") + b")R")
        self.craft(craft.array(evil))
        self.assertEqual(ckptfs.read(self.show() / "a.memmap"), A)


class Command:
    """What pickles as a call of os.system."""

    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


class Folders(Torch):
    """Checkpoints of several files, of which one is evil."""

    def save_distributed(self, **objects):
        folder = self.folder / "dcp"
        dcp.save({"b": torch.arange(6.), **objects}, checkpoint_id=folder, no_dist=True)
        return folder

    def test_the_metadata_of_a_distributed_checkpoint(self):
        folder = self.save_distributed()
        metadata = (folder / ".metadata").read_bytes()
        self.assertEqual(metadata[:3], PROTO4 + b"\x95")
        # Without the frame around it, a pickle can be made longer.
        evil = PROTO4 + self.payload + b"0" + metadata[11:]
        (folder / ".metadata").write_bytes(evil)
        self.assertSings(self.load_distributed, folder)
        mount = self.show(folder)
        self.assertEqual(ckptfs.read(mount / "b.memmap"), torch.arange(6.).numpy().tobytes())
        self.assertNames(mount, "posix.system")

    def test_an_object_of_a_distributed_checkpoint(self):
        folder = self.save_distributed(evil=Command(self.command))
        self.assertFalse(self.canary.exists())
        self.assertSings(self.load_distributed, folder)
        mount = self.show(folder)
        self.assertEqual(ckptfs.read(mount / "b.memmap"), torch.arange(6.).numpy().tobytes())
        self.assertNames(mount, "posix.system")

    def load_distributed(self, folder):
        dcp.load({"b": torch.zeros(6), "evil": 0}, checkpoint_id=folder, no_dist=True)

    def test_a_shard_of_an_index(self):
        folder = self.folder / "sharded"
        folder.mkdir()
        self.craft(self.payload)
        self.file.rename(folder / "pytorch_model-00001-of-00002.bin")
        craft.write_checkpoint(folder / "pytorch_model-00002-of-00002.bin",
                               mapping(("b", tensor("0", [6]))), [("0", A)])
        names = {"a": "pytorch_model-00001-of-00002.bin", "b": "pytorch_model-00002-of-00002.bin"}
        (folder / "pytorch_model.bin.index.json").write_text(
            json.dumps({"metadata": {"total_size": 48}, "weight_map": names}))
        self.assertSingsInPickle(PROTO + self.payload + STOP)
        mount = self.show(folder)
        self.assertEqual(ckptfs.read(mount / "b.memmap"), A)
        self.assertNames(mount, "posix.system")
