"""The cost of reading a checkpoint: one budget of memory, work and time for all its files.

Each bomb is a value of a few bytes that asks for much more: by references to one long text, by
numbers that are dear to convert, by going through one large object again and again. Each is put
into every container that has pickles. Whether it is mounted or refused, it costs no more than
assertBounded allows.
"""

import json
import os
import struct
import sys

import ckptfs
from bombs_test import Bomb, distributed, get, instance, put
from ckptfs import CORRUPT, FORMAT, LIMITS
from craft import (PROTO, STOP, Record, array, call, glob, integer, mapping, sequence, tensor, text,
                   write_archive, write_checkpoint, write_safetensors)

sys.path.insert(0, str(ckptfs.TESTS / "servers"))
from fault_server import FaultServer

CONTROL = "\1"  # A byte that takes six in JSON.


def shared(value, index=0):
    """Puts a value into the memo, and leaves nothing on the stack."""
    return value + put(index) + b"0"


def number(size):
    return b"\x8b" + struct.pack("<i", size) + b"\x7f" * size


def array_of(dtype):
    """An array of NumPy with one element."""
    return call(glob("numpy.core.multiarray", "_reconstruct"), glob("numpy", "ndarray"),
                sequence(integer(0)), text("b")) + sequence(
                    integer(1), sequence(integer(1)), dtype, b"\x89", text("x")) + b"b"


def legacy(root):
    """A stream as torch.save wrote it, with the storages 0 and 1."""
    magic = b"\x8a\x0a" + 0x1950A86A20F9469CFC6C.to_bytes(10, "little")
    system = mapping(("protocol_version", integer(1001)), ("little_endian", b"\x88"))
    pickles = magic, integer(1001), system, root, array(text("0"), text("1"))
    data = struct.pack("<q", 6) + bytes(24)
    return b"".join(PROTO + pickle + STOP for pickle in pickles) + data + data


class Costs(Bomb):
    STORAGES = [("0", bytes(24)), ("1", bytes(24))]

    def in_torch(self, value):
        """Writes the value beside a tensor into each container of PyTorch; yields the files."""
        root = mapping(("evil", value), ("a", tensor("0", [6])))
        write_checkpoint(self.file, root, self.STORAGES)
        yield "stored", self.file
        write_checkpoint(self.file, root, self.STORAGES, deflate=True)
        yield "deflated", self.file
        self.file.write_bytes(legacy(root))
        yield "legacy", self.file
        self.file.write_bytes(PROTO + value + STOP)
        yield "pickle", self.file
        write_archive(self.file, [
            Record("x.pkl", PROTO + root + STOP, deflate=True), Record(".data/extern_modules"),
            Record(".data/0.storage", bytes(24)), Record(".data/1.storage", bytes(24))])
        yield "package", self.file

    def in_others(self, value):
        """The same for those that have pickles for values alone."""
        kind = "<class 'tensordict.tensorclass.NonTensorData'>"
        meta = {"shape": [], "device": "cpu", "_type": "<class 'tensordict._td.TensorDict'>",
                "n": {"type": "NonTensorData"}}
        pickled = PROTO + mapping(("data", value)) + STOP
        write_archive(self.file, [
            Record("meta.json", json.dumps(meta).encode()),
            Record("n/meta.json", json.dumps({"_type": kind}).encode()),
            Record("n/other.pickle", pickled, deflate=True)], folder=".")
        yield "tensordict", self.file
        folder = self.folder / "dcp"
        folder.mkdir(exist_ok=True)
        (folder / ".metadata").write_bytes(PROTO + instance(
            "torch.distributed.checkpoint.metadata", "Metadata", state_dict_metadata=b"}",
            planner_data=b"}", storage_data=b"}", storage_meta=value) + STOP)
        (folder / "__0_0.distcp").write_bytes(b"")
        yield "dcp", folder

    def assertCheap(self, value):
        for name, source in [*self.in_torch(value), *self.in_others(value)]:
            with self.subTest(name):
                self.survive(source)


class Texts(Costs):
    """One long text that many refer to."""

    LONG = shared(text(CONTROL * 100_000))

    def test_as_the_names_of_attributes_of_a_tensor(self):
        kind = glob("m", "C")
        self.assertCheap(self.LONG + distributed(kind, b"}(" + (get(0) + b"N") * 3_000 + b"u"))

    def test_as_the_only_attribute_of_many_tensors(self):
        kind = glob("m", "C")
        one = shared(distributed(kind, b"}(" + get(0) + b"Nu"), 1)
        self.assertCheap(self.LONG + one + array(*[get(1)] * 3_000))

    def test_as_keys_on_a_thousand_levels(self):
        self.assertCheap(self.LONG + (b"}" + get(0)) * 950 + tensor("0", [6]) + b"s" * 950)

    def test_as_keys_of_values(self):
        self.assertCheap(self.LONG + array(*[b"}" + get(0) + b"Ns"] * 3_000))

    def test_as_attributes_of_containers(self):
        one = (glob("collections", "OrderedDict") + b")R" + text("t") + tensor("0", [6]) + b"s}"
               + get(0) + b"Nsb")
        self.assertCheap(self.LONG + array(*[one] * 300))

    def test_as_paths_to_values_with_types(self):
        self.assertCheap(self.LONG + b"}" + get(0) + array(*[b")"] * 3_000) + b"s")

    def test_as_where_a_storage_was(self):
        where = sequence(text("storage"), glob("torch", "FloatStorage"), text("0"), get(0),
                         integer(6)) + b"Q"
        one = call(glob("torch._utils", "_rebuild_tensor_v2"), where, integer(0),
                   sequence(integer(6)), sequence(integer(1)), b"\x89", b"}")
        self.assertCheap(self.LONG + shared(one, 1) + array(*[get(1)] * 3_000))

    def test_as_bytes_in_latin1(self):
        one = call(glob("_codecs", "encode"), get(0), text("latin1"))
        self.assertCheap(shared(text("é" * 100_000)) + array(*[one] * 3_000))

    def test_as_placements_of_a_class_that_nobody_knows(self):
        mesh = instance("torch.distributed.device_mesh", "DeviceMesh",
                        mesh=tensor("1", [1], numel=3, kind="LongStorage"))
        placement = shared(glob("m" * 60_000, "C") + b")\x81", 0)
        spec = instance("torch.distributed.tensor._dtensor_spec", "DTensorSpec", mesh=mesh,
                        placements=sequence(*[get(0)] * 10_000))
        state = mapping(("_local_tensor", tensor("0", [6])), ("_spec", spec))
        self.assertCheap(placement + distributed(glob("torch.distributed.tensor", "DTensor"), state))

    def test_as_a_dtype_that_is_none(self):
        raw = sequence(text("storage"), glob("torch", "UntypedStorage"), text("0"), text("cpu"),
                       integer(24)) + b"Q"
        one = call(glob("torch._utils", "_rebuild_tensor_v3"), raw, integer(0),
                   sequence(integer(6)), sequence(integer(1)), b"\x89", b"}",
                   glob("m" * 60_000, "C"))
        self.assertCheap(shared(one) + array(*[get(0)] * 3_000))

    def test_as_a_dtype_of_numpy(self):
        dtype = call(glob("numpy", "dtype"), get(0), b"\x89", b"\x88")
        self.assertCheap(self.LONG + shared(dtype, 1) + array(*[array_of(get(1))] * 3_000))


class Numbers(Costs):
    def test_that_python_does_not_convert(self):
        self.assertCheap(shared(number(4_096)) + array(*[get(0)] * 20_000))

    def test_that_python_converts(self):
        self.assertCheap(shared(number(1_785)) + array(*[get(0)] * 20_000))

    def test_as_keys(self):
        self.assertCheap(shared(number(1_785)) + array(*[b"}" + get(0) + b"Ns"] * 20_000))

    def test_beyond_what_python_converts_are_in_hex(self):
        self.craft(array(number(1_785), number(1_786)))
        mount = self.show()
        short, long = ckptfs.meta(mount / "evil")["data"]
        self.assertEqual(int(short), int.from_bytes(b"\x7f" * 1_785, "little"))
        self.assertEqual(long, "0x" + "7f" * 1_786)


class Work(Costs):
    """Data that are read repeatedly."""

    def test_keywords_of_objects(self):
        keywords = shared(mapping(*((f"k{i}", b"N") for i in range(10_000))))
        self.assertCheap(keywords + array(*[glob("m", "C") + b")" + get(0) + b"\x92"] * 5_000))

    def test_opcodes_that_leave_nothing(self):
        self.assertCheap(b"N0" * 8_000_000 + b"N")

    def test_records_that_are_no_pickles(self):
        # Each of many entries has the same one, in which STOP is searched for in vain.
        entry = json.dumps({"path_name": "w", "use_pickle": True, "is_param": False,
                            "tensor_meta": None})
        table = '{"config":{' + ",".join(f'"{i}":{entry}' for i in range(2_000)) + "}}"
        write_archive(self.file, [
            Record("archive_format", b"pt2"),
            Record("data/weights/w", b"N0" * 4_000_000, deflate=True),
            Record("data/weights/model_weights_config.json", table.encode(), deflate=True)])
        self.survive(self.file)

    def test_pickles_of_many_values(self):
        # Each costs what it may, and leaves nothing.
        kind = "<class 'tensordict.tensorclass.NonTensorData'>"
        names = [f"n{i}" for i in range(100)]
        meta = {"shape": [], "device": "cpu", "_type": "<class 'tensordict._td.TensorDict'>",
                **{name: {"type": "NonTensorData"} for name in names}}
        pickled = PROTO + b"N0" * 500_000 + mapping(("data", b"N")) + STOP
        records = [Record("meta.json", json.dumps(meta).encode())]
        for name in names:
            records += [Record(f"{name}/meta.json", json.dumps({"_type": kind}).encode()),
                        Record(f"{name}/other.pickle", pickled, deflate=True)]
        write_archive(self.file, records, folder=".")
        self.survive(self.file)

    def test_shards_that_are_links_to_one_bomb(self):
        folder = self.folder / "model"
        folder.mkdir()
        write_checkpoint(folder / "0.bin", b"N0" * 1_000_000 + mapping(("t0", tensor("0", [6]))),
                         self.STORAGES, deflate=True)
        names = [f"{i}.bin" for i in range(1_000)]
        for name in names[1:]:
            os.link(folder / "0.bin", folder / name)
        (folder / "pytorch_model.bin.index.json").write_text(json.dumps(
            {"weight_map": {f"t{i}": name for i, name in enumerate(names)}}))
        self.survive(folder)


class Sizes(Costs):
    """Claimed sizes raise no limit."""

    BOMB = b"N" * (64 << 20)

    def survive(self, source):
        # Nothing is read: there are terabytes of holes.
        code, said, _ = self.assertBounded(source)
        self.assertIn(code, (0, FORMAT, CORRUPT, LIMITS), said)

    def test_of_a_sparse_file(self):
        write_checkpoint(self.file, self.BOMB, deflate=True)
        os.truncate(self.file, 16 << 30)  # A zip with something behind it; and one before it:
        self.survive(self.file)
        hole = Record("data/0", hole=16 << 30)
        write_checkpoint(self.file, self.BOMB, [("0", hole)], deflate=True)
        self.survive(self.file)

    def test_of_holes_in_a_header(self):
        header = self.folder / "model.gguf"
        # An array of 50,000,000 empty texts, all of zeros, and none of it on the disk.
        count = 50_000_000
        header.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"k"
                           + struct.pack("<IIQ", 9, 8, count))
        os.truncate(header, header.stat().st_size + 8 * count)
        self.survive(header)

    def test_of_files_beside_a_value(self):
        folder = self.folder / "td"
        folder.mkdir()
        meta = {"shape": [], "device": "cpu", "_type": "<class 'tensordict._td.TensorDict'>",
                "n": {"type": "NonTensorData"}}
        for i in range(20):
            meta[f"t{i}"] = {"device": "cpu", "shape": [1 << 30], "dtype": "torch.uint8"}
            with open(folder / f"t{i}.memmap", "wb") as file:
                file.truncate(1 << 30)
        (folder / "meta.json").write_text(json.dumps(meta))
        (folder / "n").mkdir()
        (folder / "n/meta.json").write_text(
            '{"_type": "<class \'tensordict.tensorclass.NonTensorData\'>"}')
        (folder / "n/other.pickle").write_bytes(
            PROTO + mapping(("data", array(*[b"}"] * 900_000))) + STOP)
        self.survive(folder)


class Honest(Costs):
    """Large checkpoints go on being mounted."""

    def test_a_hundred_thousand_tensors(self):
        count = 100_000
        root = mapping(*((f"model.layers.{i // 100}.weights.{i}", tensor("0", [2, 3]))
                         for i in range(count)))
        write_checkpoint(self.file, root, self.STORAGES)
        mount = self.mount(self.file)
        self.assertEqual(len(os.listdir(mount / "model/layers/7/weights")), 101)

    def test_a_pickle_that_compresses_well(self):
        root = mapping(*((f"model.layers.{i // 100}.weights.{i}", tensor("0", [2, 3]))
                         for i in range(10_000)))
        write_checkpoint(self.file, root, self.STORAGES, deflate=True)
        self.mount(self.file)


class Time(ckptfs.Case):
    def test_a_header_that_trickles(self):
        folder = self.scratch()
        header = {f"t{i}": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}
                  for i in range(20_000)}
        write_safetensors(folder / "m.safetensors", json.dumps(header))
        with FaultServer(folder) as server:
            server.rules([{"path": "/m.safetensors", "trickle": 20_000, "after": 1}])
            for option in ["-f"], []:
                with self.subTest(option):
                    mountpoint = self.mountpoint()
                    done = self.ckptfs(*option, "-o", "timeout=2", server.url("/m.safetensors"),
                                       mountpoint)
                    # Whichever comes first: the server pauses for too long (it sends once a second) or
                    # is too slow, or all of it takes too long.
                    self.assertIn(done.returncode, (ckptfs.SOURCE, LIMITS), done.stderr)
                    last = done.stderr.splitlines()[-1]
                    self.assertRegex(last, r"\Ackptfs: http://.*(too slow|timed out after \d+ s|"
                                           r"gave up after 2 s|(longer|more) than \d+ s)")
                    self.assertFalse(ckptfs.is_mounted(mountpoint))


if __name__ == "__main__":
    ckptfs.main()
