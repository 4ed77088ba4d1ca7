"""Small files that would cost a reader its memory or its time: "billion laughs" and the like.

Nothing of them runs code; what they exhaust is who believes the numbers in them, follows every
path, or looks at everything again and again. Each is mounted or refused within a second and
64 MiB, and where there is a good tensor beside the bomb, and the file is mounted, it is right.
"""

import json
import struct

import ckptfs
from canary import A, Attack
from ckptfs import CORRUPT, FORMAT, LIMITS
from craft import (PROTO, STOP, Record, array, call, glob, integer, mapping, sequence, storage,
                   tensor, text, write_archive, write_checkpoint)

try:
    import numpy
except ImportError as error:
    numpy = None
    MISSING = str(error)

PROTO3, PROTO4, PROTO5 = b"\x80\x03", b"\x80\x04", b"\x80\x05"
MILLION = 1_000_000


def put(index):
    return b"r" + struct.pack("<I", index)


def get(index):
    return b"j" + struct.pack("<I", index)


class Bomb(Attack):
    def assertSurvives(self, opcodes, proto=PROTO):
        """With the value in it a checkpoint is mounted, and its tensor right; or it is refused."""
        self.craft(opcodes, proto)
        mount = self.survive(self.file)
        if mount:
            self.assertEqual(ckptfs.read(mount / "a.memmap"), A)

    def survive(self, source):
        """Returns the mount of `source`, or None if it is refused, which it may be."""
        code, said, mountpoint = self.assertBounded(source)
        if code == 0:
            return self.mounted(mountpoint, said)
        self.assertIn(code, (FORMAT, CORRUPT, LIMITS), said)
        self.assertEqual(said.count("\n"), 1, said)
        return None

    def assertRefused(self, code, pattern, opcodes, proto=PROTO):
        """A checkpoint with the value in it is refused."""
        self.craft(opcodes, proto)
        self.refuse(code, f"(data.pkl: )?{pattern}")


class Laughs(Bomb):
    """GHSA-g53j-hmj6-fqvw: few objects, and many paths to them."""

    def test_tuples_of_the_same_tuple_twice(self):
        self.assertRefused(LIMITS, ".*", text("ha") + put(0) + b"".join(
            get(i) + get(i) + b"\x86" + put(i + 1) for i in range(60)))

    def test_lists_of_the_same_list_ten_times(self):
        self.assertRefused(LIMITS, ".*", text("ha") + put(0) + b"".join(
            array(*[get(i)] * 10) + put(i + 1) for i in range(20)))

    def test_dicts_of_the_same_dict_twice(self):
        self.assertRefused(LIMITS, ".*", text("ha") + put(0) + b"".join(
            mapping(("x", get(i)), ("y", get(i))) + put(i + 1) for i in range(60)))

    def test_objects_of_the_same_object_twice(self):
        self.assertRefused(LIMITS, ".*", text("ha") + put(0) + b"".join(
            call(glob("m", "C"), get(i), get(i)) + put(i + 1) for i in range(60)))

    def test_states_of_the_same_state_twice(self):
        self.assertRefused(LIMITS, ".*", text("ha") + put(0) + b"".join(
            glob("m", "C") + b")\x81" + mapping(("x", get(i)), ("y", get(i))) + b"b" + put(i + 1)
            for i in range(60)))

    def test_keys_of_the_same_key_twice(self):
        self.assertRefused(LIMITS, ".*", text("ha") + put(0) + b"".join(
            get(i) + get(i) + b"\x86" + put(i + 1) for i in range(60)) + put(99) + b"0}"
            + get(99) + b"Ns")

    def test_with_a_tensor_at_the_end_of_each_path(self):
        self.assertRefused(LIMITS, ".*", tensor("1", [6]) + put(0) + b"".join(
            get(i) + get(i) + b"\x86" + put(i + 1) for i in range(60)))

    def test_names_of_classes_that_grow(self):
        # Each class is what another one returned.
        self.assertSurvives(glob("m", "C") + put(0) + b"".join(
            get(i) + get(i) + get(i) + b"\x86R" + put(i + 1) for i in range(60)))

    def test_bytes_of_bytes(self):
        self.assertSurvives(text("x" * 10_000) + put(0) + b"".join(
            call(glob("_codecs", "encode"), get(0), text("latin1")) for _ in range(2_000))
            + b"0" * 1_999)


class Memo(Bomb):
    def test_an_entry_four_billion_away(self):
        self.assertRefused(LIMITS, r".*memo index is too large \(found 4294967295, .*", b"N" + put(0xFFFFFFFF))

    def test_an_entry_beyond_64_bits(self):
        self.assertRefused(CORRUPT, ".*", b"Np99999999999999999999999999\n")

    def test_a_negative_entry(self):
        self.assertRefused(CORRUPT, ".*", b"Np-1\n")

    def test_a_million_entries(self):
        self.assertSurvives(b"N" + b"\x94" * MILLION, PROTO4)

    def test_entries_that_are_far_apart(self):
        self.assertSurvives(b"".join(b"N" + put(i * 4_000) + b"0" for i in range(1000)) + b"N")

    def test_fetching_what_was_never_put(self):
        self.assertRefused(CORRUPT, ".*memo.*", get(7))


class Stack(Bomb):
    def test_a_million_values(self):
        self.assertSurvives(b"N" * MILLION)

    def test_a_million_copies(self):
        self.assertSurvives(b"N" + b"2" * MILLION)

    def test_a_million_marks(self):
        self.assertSurvives(b"(" * MILLION)

    def test_a_million_marks_that_are_taken_back(self):
        self.assertSurvives(b"(" * MILLION + b"1" * MILLION + b"N")

    def test_a_hundred_thousand_levels_of_tuples(self):
        self.assertSurvives(b"(" * 100_000 + b"t" * 100_000)

    def test_a_hundred_thousand_levels_of_states(self):
        # Each object is the state of the next.
        self.assertSurvives(b"N" + (b"0cm\nC\n)\x81" + b"2b") * 100_000)

    def test_a_hundred_thousand_calls_of_what_a_call_returned(self):
        self.assertSurvives(glob("m", "C") + b")R" * 100_000)

    def test_taking_from_an_empty_stack(self):
        self.assertRefused(CORRUPT, ".*", b"0" * 10)

    def test_taking_what_is_below_a_mark(self):
        self.assertRefused(CORRUPT, ".*", b"N(R")


class Sizes(Bomb):
    """Lengths that are a promise."""

    def test_a_text_of_four_gigabytes(self):
        self.assertRefused(CORRUPT, ".*", b"X\xff\xff\xff\xff")

    def test_bytes_of_exabytes(self):
        self.assertRefused(CORRUPT, ".*", b"\x8e" + struct.pack("<Q", 1 << 60), PROTO4)

    def test_a_bytearray_of_exabytes(self):
        self.assertRefused(CORRUPT, ".*", b"\x96" + struct.pack("<Q", (1 << 64) - 1), PROTO5)

    def test_a_frame_of_exabytes(self):
        self.assertRefused(CORRUPT, ".*", b"\x95" + struct.pack("<Q", 1 << 63), PROTO4)

    def test_a_negative_length(self):
        self.assertRefused(CORRUPT, ".*", b"T\xff\xff\xff\xff")

    def test_a_buffer_from_outside(self):
        self.assertRefused(FORMAT, ".*NEXT_BUFFER.*", b"\x97", PROTO5)

    def test_a_number_of_a_megabyte(self):
        self.assertSurvives(b"\x8b" + struct.pack("<i", MILLION) + b"\x7f" * MILLION)

    def test_a_number_of_a_million_digits(self):
        self.assertSurvives(b"L" + b"9" * MILLION + b"L\n")

    def test_a_line_that_does_not_end(self):
        self.assertSurvives(b"V" + b"x" * MILLION)

    def test_a_tensor_of_an_exabyte_from_one_element(self):
        self.assertSurvives(tensor("1", [1 << 58], numel=6, stride=[0]))

    def test_a_tensor_of_a_thousand_dimensions(self):
        self.assertSurvives(tensor("1", [1] * 1_000, numel=6))

    def test_an_array_of_numpy_of_exabytes(self):
        dtype = call(glob("numpy", "dtype"), text("f8"), b"\x89", b"\x88")
        state = sequence(integer(1), sequence(integer(1 << 60)), dtype, b"\x89", b"C\1x")
        self.assertSurvives(call(glob("numpy._core.multiarray", "_reconstruct"),
                                 glob("numpy", "ndarray"), sequence(integer(0)), b"C\1b")
                            + state + b"b", PROTO3)

    def test_a_range_of_an_exabyte(self):
        self.assertSurvives(call(glob("builtins", "range"), integer(1 << 60)))

    def test_bytes_made_of_a_number(self):
        # Python would make so many zeros.
        for name in "bytes", "bytearray":
            with self.subTest(name):
                self.assertSurvives(call(glob("builtins", name), integer(1 << 40)))

    def test_a_text_repeated_by_an_operator(self):
        self.assertSurvives(call(glob("operator", "mul"), text("x"), integer(1 << 40)))


class Circles(Bomb):
    def test_a_list_in_itself(self):
        self.assertSurvives(b"]" + put(0) + get(0) + b"a")

    def test_a_list_in_itself_beside_a_tensor(self):
        self.assertSurvives(b"]" + put(0) + get(0) + b"a" + tensor("1", [6]) + b"a")

    def test_a_dict_in_itself(self):
        self.assertSurvives(b"}" + put(0) + text("x") + get(0) + b"s" + text("t")
                            + tensor("1", [6]) + b"s")

    def test_an_object_in_its_own_state(self):
        self.assertSurvives(glob("m", "C") + b")\x81" + put(0) + mapping(
            ("me", get(0)), ("t", tensor("1", [6]))) + b"b")

    def test_a_tuple_in_itself(self):
        self.assertSurvives(b"](" + b"(" + b"K\1" + b"t" + put(0) + b"0" + get(0) + b"e")

    def test_a_module_in_its_own_modules(self):
        self.assertSurvives(glob("m", "C") + b")\x81" + put(0) + mapping(
            ("_parameters", mapping(("w", tensor("1", [6])))), ("_buffers", b"}"),
            ("_modules", mapping(("m", get(0))))) + b"b")

    def test_two_thousand_lists_each_in_all_others(self):
        count = 1_000
        lists = b"".join(b"]" + put(i) + b"0" for i in range(count))
        links = b"".join(get(i) + b"(" + get((i + 1) % count) + get((i + 7) % count) + b"e0"
                         for i in range(count))
        self.assertSurvives(lists + links + get(0) + tensor("1", [6]) + b"a")


def instance(module, name, **attributes):
    """An object with these attributes."""
    return glob(module, name) + b")\x81" + mapping(*attributes.items()) + b"b"


def distributed(kind, state):
    """A DTensor or a ShardedTensor."""
    size = sequence(integer(6))
    return call(glob("torch._tensor", "_rebuild_from_type_v2"),
                glob("torch._utils", "_rebuild_wrapper_subclass"), kind,
                sequence(kind, glob("torch", "float32"), size, size), state)


class Shared(Bomb):
    """Many objects that share one large part: to look at it for each of them is quadratic."""

    LARGE = mapping(*((f"k{i}", b"N") for i in range(30_000))) + put(0) + b"0"

    def test_a_state(self):
        self.assertSurvives(self.LARGE + b"](" + (glob("m", "C") + b")\x81" + get(0) + b"b") * 30_000
                            + b"e")

    def test_a_state_of_modules(self):
        tables = mapping(*((name, b"}") for name in ("_parameters", "_buffers", "_modules")))
        self.assertSurvives(self.LARGE + b"](" + (glob("m", "C") + b")\x81" + tables + b"b" + get(0)
                                                 + b"b") * 20_000 + b"e")

    def test_the_arguments_of_a_dict(self):
        self.assertSurvives(self.LARGE + b"](" + (glob("collections", "OrderedDict") + get(0)
                                                 + b"\x85R") * 30_000 + b"e")

    def test_the_metadata_of_a_tensor(self):
        # Which says whether its elements are conjugated.
        arguments = (integer(0), sequence(integer(1)), sequence(integer(1)), b"\x89", b"}", get(0))
        self.assertSurvives(self.LARGE + tensor("1", [6]) + b"0" + array(*(
            call(glob("torch._utils", "_rebuild_tensor_v2"),
                 sequence(text("storage"), glob("torch", "FloatStorage"), text("1"), text("cpu"),
                          integer(6)) + b"Q", *arguments) for _ in range(5_000))))

    def test_the_state_of_distributed_tensors(self):
        kind = glob("torch.distributed.tensor", "DTensor")
        self.assertSurvives(self.LARGE + array(*[distributed(kind, get(0))] * 5_000))


class Told(Bomb):
    """What many share and each of them tells: it need not be large to be told very often."""

    def test_the_mesh_of_distributed_tensors(self):
        # 65,536 ranks, which cost nothing: each is the same one.
        mesh = instance("torch.distributed.device_mesh", "DeviceMesh",
                        mesh=tensor("1", [65_536], numel=3, stride=[0], kind="LongStorage"))
        spec = instance("torch.distributed.tensor._dtensor_spec", "DTensorSpec", mesh=mesh,
                        placements=b")")
        state = mapping(("_local_tensor", tensor("0", [6])), ("_spec", spec))
        kind = glob("torch.distributed.tensor", "DTensor")
        self.assertSurvives(state + put(0) + b"0"
                            + array(*[distributed(kind, get(0))] * 1_000))

    def test_the_shards_of_tensors(self):
        large = sequence(*[integer((1 << 63) - 1)] * 64) + put(0) + b"0"
        shard = instance("torch.distributed._shard.metadata", "ShardMetadata",
                         shard_offsets=get(0), shard_sizes=get(0)) + put(1) + b"0"
        metadata = instance("torch.distributed._shard.sharded_tensor.metadata",
                            "ShardedTensorMetadata", shards_metadata=array(*[get(1)] * 100_000))
        kind = glob("torch.distributed._shard.sharded_tensor.api", "ShardedTensor")
        self.assertSurvives(large + shard + distributed(kind, sequence(b"]", metadata)))

    def test_paths_of_one_long_part(self):
        part = text("x" * 100_000) + put(0) + b"0"
        path = call(glob("pathlib", "PosixPath"), get(0))
        self.assertSurvives(part + array(*[path] * 5_000))

    def test_a_path_of_one_part_many_times(self):
        part = text("x" * 100_000) + put(0) + b"0"
        self.assertSurvives(part + call(glob("pathlib", "PosixPath"), *[get(0)] * 5_000))

    def test_numbers_of_numpy_of_one_long_type(self):
        dtype = call(glob("numpy", "dtype"), text("V100000"), b"\x89", b"\x88")
        scalar = call(glob("numpy.core.multiarray", "scalar"), get(0), get(1))
        self.assertSurvives(dtype + put(0) + b"0" + text("x" * 100_000) + put(1) + b"0"
                            + array(*[scalar] * 5_000))

    def test_types_of_numpy_of_one_long_name(self):
        name = text("V" + "x" * 100_000) + put(0) + b"0"
        dtype = call(glob("numpy", "dtype"), get(0), b"\x89", b"\x88")
        scalar = call(glob("numpy.core.multiarray", "scalar"), dtype, text(""))
        self.assertSurvives(name + mapping(*((f"{i}", scalar) for i in range(2_000)),
                                           ("t", tensor("1", [6]))))

    def test_classes_of_one_long_name(self):
        name = glob("m" * 1_024, "C" * 1_024) + put(0) + b"0"
        thing = get(0) + b")\x81" + mapping(("t", get(1))) + b"b"
        self.assertSurvives(name + tensor("1", [6]) + put(1) + b"0" + array(*[thing] * 50_000))

    def test_arrays_of_numpy_of_one_long_type(self):
        dtype = call(glob("numpy", "dtype"), text("V1" + "x" * 100_000), b"\x89", b"\x88")
        empty = call(glob("numpy.core.multiarray", "_reconstruct"), glob("numpy", "ndarray"),
                     sequence(integer(0)), text("b")) + sequence(
                         integer(1), sequence(integer(0)), get(0), b"\x89", text("")) + b"b"
        self.assertSurvives(dtype + put(0) + b"0" + array(*[empty] * 5_000))

    def test_tensors_of_one_class_of_a_long_name(self):
        name = glob("m" * 2_000, "C" * 2_000) + put(0) + b"0"
        function = glob("torch._tensor", "_rebuild_from_type_v2") + put(1) + b"0"
        inner = glob("torch._utils", "_rebuild_tensor_v2") + put(2) + b"0"
        arguments = sequence(storage("1", 6), integer(0), sequence(integer(6)),
                             sequence(integer(1)), b"\x89", b"}") + put(3) + b"0"
        one = call(get(1), get(2), get(0), get(3), b"}")
        self.assertSurvives(name + function + inner + arguments + array(*[one] * 50_000))

    def test_quantizers_of_one_long_name(self):
        scheme = glob("torch", "q" * 4_000) + put(0) + b"0"
        quantizer = sequence(get(0), b"G" + struct.pack(">d", 1.0), integer(0)) + put(1) + b"0"
        one = call(glob("torch._utils", "_rebuild_qtensor"), storage("1", 24, "QInt8Storage"),
                   integer(0), sequence(integer(24)), sequence(integer(1)), get(1), b"\x89", b"}")
        self.assertSurvives(scheme + quantizer + one + put(2) + b"0" + array(*[get(2)] * 20_000))

    def test_devices_of_one_long_name(self):
        name = text("x" * 100_000) + put(0) + b"0"
        self.assertSurvives(name + array(*[call(glob("torch", "device"), get(0))] * 5_000))

    def names(self, count, start=0):
        """Deflates well. A control character takes six bytes in JSON."""
        return b"".join(glob("\1" * 256, f"{i:07}" + "\1" * 249) + b"0"
                        for i in range(start, start + count))

    def test_names_of_classes(self):
        write_checkpoint(self.file, self.names(6_000) + tensor("0", [6]), [("0", A)], deflate=True)
        self.survive(self.file)

    def test_names_of_classes_in_many_files(self):
        folder = self.folder / "model"
        folder.mkdir()
        shards = [f"{i}.bin" for i in range(30)]
        for i, shard in enumerate(shards):
            root = self.names(700, 700 * i) + mapping((f"t{i}", tensor("0", [6])))
            write_checkpoint(folder / shard, root, [("0", A)], deflate=True)
        (folder / "pytorch_model.bin.index.json").write_text(json.dumps(
            {"weight_map": {f"t{i}": shard for i, shard in enumerate(shards)}}))
        self.survive(folder)


class Archives(Bomb):
    """Of torch.package and torch.export."""

    def test_packages_a_thousand_deep(self):
        pickles = [Record(f"{i}/" + "a/" * 2_000 + "x.pkl", PROTO + b"N" + STOP)
                   for i in range(300)]
        write_archive(self.file, [*pickles, Record(".data/extern_modules")])
        self.survive(self.file)

    def export(self, table, *records):
        """Writes an archive with a table of weights, deflated: that has a limit like all others."""
        write_archive(self.file, [
            Record("archive_format", b"pt2"), *records,
            Record("data/weights/model_weights_config.json", table, deflate=True)])
        self.survive(self.file)

    def weights(self, count, record, meta=(), **more):
        """A table of so many tensors of one byte in one record, in pieces."""
        entry = json.dumps({"path_name": record, **more, "tensor_meta": {
            "layout": 7, "dtype": 1, "sizes": [], "strides": [], "storage_offset": {"as_int": 0},
            **dict(meta)}}, ensure_ascii=False)
        yield b'{"config":{'
        for i in range(count):
            yield f'{"," if i else ""}"{i}":{entry}'.encode()
        yield b"}}"

    def test_weights_that_are_missing(self):
        self.export(self.weights(60_000, "é" * 50))

    def test_weights_in_a_record_of_a_long_name(self):
        record = "w" * 4_000
        self.export(self.weights(7_000, record), Record("data/weights/" + record, A))

    def test_weights_on_a_device_of_a_long_name(self):
        device = {"type": "é" * 2_000}
        self.export(self.weights(7_000, "w", {"device": device}), Record("data/weights/w", A))

    def test_a_table_of_blanks(self):
        self.export(iter([b" " * 1_000_000] * 300 + [b'{"config":{}}']))


class Keys(Bomb):
    def colliding(self, count):
        if numpy is None:
            self.skip_avoidable(MISSING)
        return [key.decode() for key in colliding(count)]

    def test_texts_of_one_hash(self):
        # What a table of hashes becomes when all its keys fall into one place.
        keys = self.colliding(40_000)
        self.assertEqual(len(set(keys)), 40_000)
        self.assertSurvives(mapping(*((key, b"N") for key in keys)))

    def test_tensors_whose_names_have_one_hash(self):
        keys = self.colliding(40_000)
        self.assertSurvives(tensor("1", [6]) + put(0) + b"0"
                            + mapping(*((key, get(0)) for key in keys)))

    def test_a_long_key_many_times(self):
        self.assertSurvives(text("k" * 200_000) + put(0) + b"0}(" + (get(0) + b"N") * 100_000
                            + b"u")

    def test_keys_of_a_thousand_dots(self):
        self.assertSurvives(mapping(*((".".join("abcdefghij" * 100) + str(i), tensor("1", [6]))
                                      for i in range(100))))

    def test_keys_that_all_begin_alike(self):
        self.assertSurvives(mapping(*(("a." * 400 + str(i), tensor("1", [6]))
                                      for i in range(500))))

    def test_keys_of_dots_alone(self):
        self.assertSurvives(mapping(*(("." * i, tensor("1", [6])) for i in range(1, 300))))


class Files(Bomb):
    """Files in files."""

    def legacy(self, root):
        magic = b"\x8a\x0a" + 0x1950A86A20F9469CFC6C.to_bytes(10, "little")
        system = mapping(("protocol_version", integer(1001)), ("little_endian", b"\x88"),
                         ("type_sizes", b"}"))
        return b"".join(PROTO3 + p + STOP for p in (magic, integer(1001), system, root, array()))

    def inside(self, data):
        return call(glob("torch.storage", "_load_from_bytes"),
                    b"B" + struct.pack("<I", len(data)) + data)

    def of_storage(self, loaded):
        return call(glob("torch._utils", "_rebuild_tensor_v2"), loaded, integer(0),
                    sequence(integer(6)), sequence(integer(1)), b"\x89",
                    glob("collections", "OrderedDict") + b")R")

    def test_a_hundred_files_in_one_another(self):
        data = self.legacy(b"N")
        for _ in range(100):
            data = self.legacy(self.of_storage(self.inside(data)))
        self.assertSurvives(self.of_storage(self.inside(data)), PROTO3)

    def test_a_file_that_is_in_a_hundred_thousand_tensors(self):
        # If it were read for each of them, that would be gigabytes.
        data = self.legacy(b"](" + b"N" * 50_000 + b"e")
        self.assertSurvives(self.inside(data) + put(0) + b"0](" + self.of_storage(get(0)) * 10_000
                            + b"e", PROTO3)

    def test_bytes_that_are_a_file_in_a_hundred_thousand_tensors(self):
        data = self.legacy(b"](" + b"N" * 50_000 + b"e")
        once = b"B" + struct.pack("<I", len(data)) + data + put(0) + b"0"
        loaded = call(glob("torch.storage", "_load_from_bytes"), get(0))
        self.assertSurvives(once + b"](" + self.of_storage(loaded) * 10_000 + b"e", PROTO3)


def colliding(count):
    """Different keys of 24 ASCII characters to which MurmurHash64A of libstdc++ gives one hash.

    The hash takes 8 bytes at a time, and what it does with them can be undone: whatever the first
    two blocks are, there is a third one that leads to a given hash. One in 256 of these is ASCII.
    """
    multiplier = 0xC6A4A7935BD1E995
    seed = 0xC70F6907
    mask = (1 << 64) - 1
    m, inverse = numpy.uint64(multiplier), numpy.uint64(pow(multiplier, -1, 1 << 64))
    shift = numpy.uint64(47)

    def mix(block):
        block = block * m
        return (block ^ (block >> shift)) * m

    def unmix(block):
        block = block * inverse
        return (block ^ (block >> shift)) * inverse

    found = []
    start = numpy.uint64((seed ^ (24 * multiplier & mask)) & mask)
    first = numpy.frombuffer(b"collide ", numpy.uint64)
    state = (start ^ mix(first)) * m
    number = 0
    while len(found) < count:
        numbers = numpy.arange(number, number + (1 << 20), dtype=numpy.uint64)
        number += 1 << 20
        # Eight letters a to p: one for each half of a byte of the number.
        second = numpy.zeros(1 << 20, numpy.uint64)
        for place in range(8):
            letter = (numbers >> numpy.uint64(4 * place)) & numpy.uint64(15)
            second |= (letter + numpy.uint64(ord("a"))) << numpy.uint64(8 * place)
        before = (state ^ mix(second)) * m
        third = unmix(before ^ numpy.uint64(0x0123456789ABCDEF))
        is_ascii = (third & numpy.uint64(0x8080808080808080)) == 0
        for i in numpy.flatnonzero(is_ascii):
            found.append(first.tobytes() + second[i].tobytes() + third[i].tobytes())
    return found[:count]


def numpy_dtype(name, names=b"N", fields=b"N", size=-1, base=b"N", order="|"):
    """A numpy.dtype that has got its state; what is no number or text is opcodes."""
    state = sequence(integer(3), text(order), base, names, fields, integer(size), integer(-1),
                     integer(0))
    return call(glob("numpy", "dtype"), text(name), b"\x89", b"\x88") + state + b"b"


def ndarray(shape, dtype, data):
    made = call(glob("numpy.core.multiarray", "_reconstruct"), glob("numpy", "ndarray"),
                sequence(integer(0)), text("b"))
    return made + sequence(integer(1), shape, dtype, b"\x89", data) + b"b"


def scalar(dtype, data):
    return call(glob("numpy.core.multiarray", "scalar"), dtype, data)


def raw_bytes(data):
    return b"B" + struct.pack("<I", len(data)) + data


class NumpyDtypes(Bomb):
    """What a dtype may lie about: it is an object like any other, and may lie in itself."""

    def itself(self):
        """A structure whose field is the structure."""
        made = call(glob("numpy", "dtype"), text("V8"), b"\x89", b"\x88") + put(0)
        state = sequence(integer(3), text("|"), b"N", sequence(text("a")),
                         mapping(("a", sequence(get(0), integer(0)))), integer(8), integer(1),
                         integer(0))
        return made + state + b"b"

    def test_a_structure_in_itself(self):
        self.assertSurvives(scalar(self.itself(), raw_bytes(b"x" * 8)), PROTO3)
        self.assertSurvives(ndarray(sequence(integer(1)), self.itself(), raw_bytes(b"x" * 8)), PROTO3)

    def test_structures_of_the_same_structure_twice(self):
        dtype = numpy_dtype("i1", size=0) + put(0)
        for i in range(15):
            pair = mapping(*[(name, sequence(get(i), integer(0))) for name in "ab"])
            dtype += b"0" + numpy_dtype("V0", sequence(text("a"), text("b")), pair, 0) + put(i + 1)
        self.assertSurvives(scalar(dtype, raw_bytes(b"")), PROTO3)
        self.assertSurvives(ndarray(sequence(integer(1)), dtype, raw_bytes(b"")), PROTO3)

    def test_arrays_that_share_a_structure_of_many_fields(self):
        names = [f"f{i}" for i in range(5_000)]
        fields = mapping(*[(name, sequence(get(0), integer(i))) for i, name in enumerate(names)])
        dtype = numpy_dtype("V5000", sequence(*map(text, names)), fields, 5_000)
        self.assertSurvives(numpy_dtype("i1") + put(0) + b"0" + dtype + put(1) + b"0"
                            + raw_bytes(b"x" * 5_000) + put(2) + b"0"
                            + array(*[ndarray(sequence(integer(1)), get(1), get(2))] * 1_000), PROTO3)
        self.assertSurvives(numpy_dtype("i1") + put(0) + b"0" + dtype + put(1) + b"0"
                            + raw_bytes(b"x" * 5_000) + put(2) + b"0"
                            + array(*[scalar(get(1), get(2))] * 1_000), PROTO3)

    def test_long_names_of_types_and_fields(self):
        self.assertSurvives(text("x" * MILLION) + put(0) + b"0" + array(*[
            ndarray(sequence(integer(1)), call(glob("numpy", "dtype"), get(0)), raw_bytes(b""))
            for _ in range(1_000)]), PROTO3)
        field = numpy_dtype("V1", sequence(get(0)), b"}" + get(0) + sequence(get(1), integer(0)) + b"s",
                            1)
        self.assertSurvives(text("x" * 200_000) + put(0) + b"0" + numpy_dtype("i1") + put(1) + b"0"
                            + field + put(2) + b"0" + raw_bytes(b"x") + put(3) + b"0"
                            + array(*[scalar(get(2), get(3))] * 1_000), PROTO3)

    def test_an_element_that_is_a_huge_array_of_nothing(self):
        for shape in [1 << 40, 0], [1 << 20, 1 << 20, 0], [0, 1 << 62], [1 << 62]:
            base = sequence(numpy_dtype("i1"), sequence(*map(integer, shape)))
            dtype = numpy_dtype("V0", size=0, base=base)
            self.assertSurvives(scalar(dtype, raw_bytes(b"")), PROTO3)

    def test_fields_behind_the_end(self):
        for offset in 1 << 62, 8, -1:
            fields = mapping(("a", sequence(numpy_dtype("i8", order="<"), integer(offset))))
            dtype = numpy_dtype("V8", sequence(text("a")), fields, 8)
            self.assertSurvives(scalar(dtype, raw_bytes(b"x" * 8)), PROTO3)

    def test_an_array_of_objects_that_is_itself(self):
        made = call(glob("numpy.core.multiarray", "_reconstruct"), glob("numpy", "ndarray"),
                    sequence(integer(0)), text("b")) + put(0)
        state = sequence(integer(1), b")", numpy_dtype("O8"), b"\x89", array(get(0)))
        self.assertSurvives(made + state + b"b")
        self.assertSurvives(b"N" + put(0) + b"".join(
            b"0" + ndarray(b")", numpy_dtype("O8"), array(get(i))) + put(i + 1)
            for i in range(5_000)))


class Joblib(Bomb):
    """Arrays between opcodes: what is an opcode, a number in the file says."""

    def wrapper(self, shape, dtype, alignment=b"N"):
        state = mapping(("subclass", glob("numpy", "ndarray")), ("shape", shape), ("dtype", dtype),
                        ("order", text("C")), ("numpy_array_alignment_bytes", alignment))
        return glob("joblib.numpy_pickle", "NumpyArrayWrapper") + b")\x81" + state + b"b"

    def dump(self, *opcodes):
        file = self.folder / "model.joblib"
        file.write_bytes(PROTO3 + b"".join(opcodes))
        return file

    def test_elements_beyond_the_end(self):
        for size in 1 << 62, 1 << 40, 100:
            file = self.dump(self.wrapper(sequence(integer(size)), numpy_dtype("f8", order="<")), b".")
            self.refuse(CORRUPT, ".*array.*", file)

    def test_more_elements_than_there_are_numbers(self):
        shape = sequence(*[integer(1 << 40)] * 3)
        self.refuse(LIMITS, ".*", self.dump(self.wrapper(shape, numpy_dtype("f8", order="<")), b"."))

    def test_padding_beyond_the_end(self):
        for padding in b"", b"\xff", b"\xff" * 20:
            file = self.dump(self.wrapper(sequence(integer(0)), numpy_dtype("f8", order="<"),
                                          integer(16)), padding)
            self.refuse(CORRUPT, ".*", file)

    def test_many_arrays_of_nothing(self):
        dtype = numpy_dtype("f8", order="<") + put(0)
        one = glob("joblib.numpy_pickle", "NumpyArrayWrapper") + b")\x81" + get(1) + b"b"
        state = mapping(("shape", sequence(integer(0))), ("dtype", get(0)), ("order", text("C")))
        self.survive(self.dump(dtype + b"0" + state + put(1) + b"0" + array(*[one] * 2_000) + b"."))

    def test_pickles_in_place_of_arrays(self):
        one = self.wrapper(sequence(integer(1)), numpy_dtype("O8"))
        self.survive(self.dump(array(*[one + b"\x80\x03]."] * 2_000) + b"."))


class SavedTensorDicts(Bomb):
    def tensordict(self, *pairs):
        return call(glob("tensordict._reductions", "_make_td"), glob("tensordict._td", "TensorDict"),
                    mapping(*pairs))

    def test_one_in_itself(self):
        state = b"}" + put(0) + b"0"
        made = call(glob("tensordict._reductions", "_make_td"), glob("tensordict._td", "TensorDict"),
                    get(0)) + put(1) + b"0"
        self.assertSurvives(state + made + get(0) + text("_tensordict") + mapping(("a", get(1)))
                            + b"s0" + get(1))

    def test_batch_sizes_that_are_none(self):
        members = mapping(("x", tensor("0", [6])))
        for size in integer(-1), text("x"), sequence(integer(-5)), sequence(*[integer(1)] * 100_000):
            self.assertSurvives(self.tensordict(("_tensordict", members), ("_batch_size", size)))

    def test_stacks_of_the_same_stack_twice(self):
        made = self.tensordict(("_tensordict", b"}")) + put(0)
        for i in range(30):
            made += b"0" + self.tensordict(("stack_dim", integer(0)),
                                           ("tensordicts", array(get(i), get(i)))) + put(i + 1)
        self.assertSurvives(made)
