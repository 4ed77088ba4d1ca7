"""Files of gguf: each sample, files that the gguf package writes here and now, and hostile ones.

samples/gguf/expected.json has what an independent reader finds in each sample: `ours` says whether
we accept it, `gguf_py` what the package says of it. Hashes are of what a mount shows: plain types
little-endian, blocks as they are stored.
"""

import hashlib
import json
import os
import random
import shutil
import struct
from pathlib import Path

import ckptfs
import view
from ckptfs import CORRUPT, FORMAT, LIMITS

try:
    import gguf
    import numpy as np
except ImportError as error:
    gguf = None
    MISSING = str(error)

FOLDER = ckptfs.SAMPLES / "gguf"
EXPECTED = {name: sample
            for name, sample in json.loads((FOLDER / "expected.json").read_text()).items() if name}
SPLIT = ("m", "w_split", "w_split_align", "w_first_empty")


def tensors(mount):
    """{key: Tensor} of a mount."""
    return {".".join(keys): what for kind, keys, what in view.walk(mount.path) if kind == "tensor"}


def summary(mount):
    return ckptfs.meta(mount.path)["_ckptfs"]


def shown(value):
    """A value of expected.json as meta.json has it."""
    if isinstance(value, dict):
        return value.get("$float", value)
    return [shown(item) for item in value] if isinstance(value, list) else value


def type_of(entry):
    """The type of a value of expected.json in the form of metadata_types; None if JSON expresses it."""
    if entry["type"] in ("string", "bool"):
        return None
    if entry["type"] != "array":
        return entry["type"]
    return "[[u32],[u32]]" if entry["item"] == "array" else f"[{entry['item']}]"


def parts_of(model):
    """The names of the parts of a sample."""
    return sorted(p.name for p in FOLDER.glob(f"{model}-0*.gguf"))


class Samples(ckptfs.Case):
    def assertHolds(self, mount, expected, big=False):
        found, places = tensors(mount), view.places(mount.path)
        for tensor in expected:
            there = found.pop(tensor["path"][0])
            entry = there.entry
            self.assertEqual(hashlib.sha256(ckptfs.read(there.path)).hexdigest(), tensor["sha256"])
            self.assertEqual(there.path.stat().st_size, tensor["nbytes"])
            self.assertEqual(entry["ggml_type"], tensor["ggml_type"])
            self.assertEqual(entry["dims"], tensor["shape"][::-1])
            is_plain = tensor["dtype"] is not None
            is_stored = tensor.get("sha256_stored", tensor["sha256"]) == tensor["sha256"]
            self.assertEqual(places[there.path]["file_offset"],
                             tensor["offset"] if is_stored else None)
            if is_plain:
                self.assertEqual(there.dtype, tensor["dtype"])
                self.assertEqual(list(there.shape), tensor["shape"])
                continue
            self.assertEqual(entry["dtype"], "torch.uint8")
            self.assertEqual(entry["logical_shape"], tensor["shape"])
            self.assertEqual(entry.get("byte_order"), "big" if big else None)
            self.assertEqual("unknown_type" in entry, isinstance(tensor["ggml_type"], int))
            if isinstance(tensor["ggml_type"], str):
                rows = tensor["shape"][-1] // entry["block_elements"] * entry["block_bytes"]
                self.assertEqual(entry["shape"], [*tensor["shape"][:-1], rows])
        self.assertEqual(found, {})

    def assertTells(self, told, sample):
        self.assertEqual(told["gguf_version"], sample["version"])
        self.assertEqual(told["byte_order"], sample["byte_order"])
        self.assertEqual(told["alignment"], sample["alignment"])
        self.assertEqual(told["metadata"],
                         {k: shown(v["value"]) for k, v in sample["metadata"].items()})
        types = {k: type_of(v) for k, v in sample["metadata"].items()}
        self.assertEqual(told["metadata_types"], {k: v for k, v in types.items() if v})

    def test_every_file_is_shown_or_refused_as_expected(self):
        counts = {"accept": 0, "refuse": 0}
        for name, sample in EXPECTED.items():
            with self.subTest(name):
                # By itself: the parts of models are another test.
                source = self.scratch() / "file"
                shutil.copyfile(FOLDER / name, source)
                if "-of-" in name:
                    continue
                mountpoint = self.mountpoint()
                done = self.ckptfs(source, mountpoint)
                if sample["ours"] == "refuse":
                    counts["refuse"] += 1
                    self.assertIn(done.returncode, (FORMAT, CORRUPT, LIMITS))
                    self.assertRegex(done.stderr, rf"\Ackptfs: {source}: .+\n\Z")
                    self.assertTrue(done.stderr[:-1].isprintable())
                    continue
                counts["accept"] += 1
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                with ckptfs.Mount(mountpoint, self.daemon_of(mountpoint), done.stderr) as mount:
                    self.assertHolds(mount, sample["tensors"], sample["byte_order"] == "big")
                    told = summary(mount)
                    self.assertEqual(told["format"], "gguf")
                    self.assertTells(told, sample)
        self.assertEqual(counts, {"accept": 44, "refuse": 21})

    def test_any_part_and_the_directory_show_the_whole_model(self):
        for model in SPLIT:
            names = parts_of(model)
            expected = [t for name in names for t in EXPECTED[name]["tensors"]]
            directory = self.scratch() / "model"
            directory.mkdir()
            for name in names:
                shutil.copyfile(FOLDER / name, directory / name)
            (directory / "README.md").write_text("# Model\n")
            for source in (directory, *(directory / name for name in names)):
                with self.subTest(source.name):
                    mount = self.mount(source)
                    self.assertHolds(mount, expected)
                    told = summary(mount)
                    self.assertEqual(told["format"], "gguf_split")
                    self.assertTells(told, EXPECTED[names[0]])
                    self.assertEqual(list(told["shards"]), names[1:])
                    for name in names[1:]:
                        self.assertTells(told["shards"][name], EXPECTED[name])
                    self.assertEqual(
                        [line["file"] for line in view.lines(mount.path)],
                        [name for name in names for _ in EXPECTED[name]["tensors"]])
                    mount.unmount()

    def test_a_missing_part_costs_its_tensors_and_strict_refuses_it(self):
        directory = self.scratch() / "model"
        directory.mkdir()
        names = parts_of("w_split")
        for name in (names[0], names[2]):
            shutil.copyfile(FOLDER / name, directory / name)
        for source in (directory, directory / names[2]):
            mount = self.mount(source, quiet=False)
            self.assertEqual(mount.messages,
                             f"ckptfs: warning: {source}: {names[1]}: cannot open: No such file or "
                             "directory: its tensors are missing (2 of 5 tensors)\n")
            self.assertHolds(mount, [t for name in (names[0], names[2])
                                     for t in EXPECTED[name]["tensors"]])
            told = summary(mount)
            self.assertEqual((told["lost"], told["lost_tensors"]), ([names[1]], 2))
            self.assertIn("error", told["shards"][names[1]])
            mount.unmount()
        self.assertRefusedLike(self.ckptfs("-o", "strict", directory, self.mountpoint()), CORRUPT,
                               rf".*: value '{names[1]}': .* are unreadable \(strict\)")


class Library(ckptfs.Case):
    """Files that the gguf package writes and reads."""

    def setUp(self):
        if gguf is None:
            self.skip_avoidable(MISSING)

    def write(self, file, rng, order, **split):
        types = [q for q in gguf.GGMLQuantizationType if q.name != "Q8_1"]
        writer = gguf.GGUFWriter(file, "llama", endianess=order, **split)
        if rng.random() < 0.5:
            writer.add_custom_alignment(rng.choice((8, 32, 64, 4096)))
        words = ["".join(rng.choice("ab é漢\n\0\"\\") for _ in range(rng.randrange(6)))
                 for _ in range(rng.randrange(1, 50))]
        writer.add_array("tokenizer.ggml.tokens", words)
        writer.add_array("tokenizer.ggml.scores", [rng.uniform(-9, 9) for _ in words])
        writer.add_array("tokenizer.ggml.token_type", [rng.randrange(-5, 5) for _ in words])
        writer.add_uint64("u", rng.randrange(1 << 64))
        writer.add_float64("f", rng.uniform(-1, 1))
        writer.add_bool("b", rng.random() < 0.5)
        plain = (np.float32, np.float16, np.float64, np.int8, np.int16, np.int32, np.int64)
        for i in range(rng.randrange(2, 12)):
            name = f"blk.{i % 3}.w{i}"
            rows = [rng.randrange(1, 4) for _ in range(rng.randrange(3))]
            if rng.random() < 0.5:
                dtype = np.dtype(rng.choice(plain))
                shape = (*rows, rng.randrange(1, 6))
                data = rng.randbytes(int(np.prod(shape)) * dtype.itemsize)
                writer.add_tensor(name, np.frombuffer(data, dtype).reshape(shape).copy())
                continue
            kind = rng.choice([q for q in types if gguf.GGML_QUANT_SIZES[q][0] > 1])
            size = gguf.GGML_QUANT_SIZES[kind][1] * rng.randrange(1, 3)
            data = rng.randbytes(int(np.prod(rows)) * size)
            writer.add_tensor(name, np.frombuffer(data, np.uint8).reshape(*rows, size).copy(),
                              raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()

    def assertReadsAs(self, mount, reader):
        found = tensors(mount)
        for tensor in reader.tensors:
            there = found.pop(tensor.name)
            entry = there.entry
            self.assertEqual(entry["ggml_type"], tensor.tensor_type.name)
            self.assertEqual(entry["dims"], [int(n) for n in tensor.shape])
            data = np.ascontiguousarray(tensor.data)
            self.assertEqual(entry["shape"], list(data.shape))
            if data.dtype != np.uint8:
                self.assertEqual(there.dtype, f"torch.{data.dtype.name}")
            data = data.astype(data.dtype.newbyteorder("<"))
            self.assertEqual(ckptfs.read(there.path), data.tobytes())
        self.assertEqual(found, {})
        metadata = summary(mount)["metadata"]
        fields = {k: v for k, v in reader.fields.items() if not k.startswith("GGUF.")}
        self.assertEqual(metadata, {k: v.contents() for k, v in fields.items()})

    def test_random_files_are_as_the_package_reads_them(self):
        for seed in range(8 if ckptfs.IS_SANITIZED else 20):
            with self.subTest(seed=seed):
                rng = random.Random(seed)
                file = self.scratch() / "model.gguf"
                big = rng.random() < 0.3
                self.write(file, rng, gguf.GGUFEndian.BIG if big else gguf.GGUFEndian.LITTLE)
                mount = self.mount(file)
                self.assertReadsAs(mount, gguf.GGUFReader(file))
                mount.unmount()

    def test_random_split_models_have_the_tensors_of_the_whole_one(self):
        for seed in range(3 if ckptfs.IS_SANITIZED else 6):
            with self.subTest(seed=seed):
                whole, parts = self.scratch() / "model.gguf", self.scratch()
                self.write(whole, random.Random(seed), gguf.GGUFEndian.LITTLE)
                self.write(parts / "model.gguf", random.Random(seed), gguf.GGUFEndian.LITTLE,
                           split_max_tensors=2, small_first_shard=seed % 2 == 0)
                one, several = self.mount(whole), self.mount(parts)
                self.assertEqual(view.tensors(several.path), view.tensors(one.path))
                metadata = summary(several)["metadata"]
                for key in ("split.no", "split.count", "split.tensors.count"):
                    metadata.pop(key, None)
                self.assertEqual(metadata, summary(one)["metadata"])
                one.unmount()
                several.unmount()

    def test_a_vocabulary_of_a_quarter_of_a_million_texts_is_complete(self):
        file = self.scratch() / "model.gguf"
        words = [f"▁{i:x}" for i in range(262_144)]
        writer = gguf.GGUFWriter(file, "llama")
        writer.add_array("tokenizer.ggml.tokens", words)
        writer.add_array("tokenizer.ggml.scores", [float(-i) for i in range(len(words))])
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        code, said, mountpoint = self.assertBounded(file)
        self.assertEqual((code, said), (0, ""))
        metadata = ckptfs.meta(mountpoint)["_ckptfs"]["metadata"]
        self.assertEqual(metadata["tokenizer.ggml.tokens"], words)
        self.assertEqual(metadata["tokenizer.ggml.scores"][-1], -262_143.0)


def text(value):
    return struct.pack("<Q", len(value)) + value


def pair(key, kind, value):
    return text(key) + struct.pack("<I", kind) + value


def entry(name, dims, kind, offset):
    return (text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset))


def header(tensors=0, pairs=0, rest=b"", version=3):
    return b"GGUF" + struct.pack("<IQQ", version, tensors, pairs) + rest


class Hostile(ckptfs.Case):
    """One sentence, in a second and 64 MiB."""

    def setUp(self):
        self.file = self.scratch() / "hostile.gguf"

    def refuse(self, data, pattern, code=CORRUPT, size=None):
        """Writes `data`, and a hole up to `size`."""
        self.file.write_bytes(data)
        if size:
            os.truncate(self.file, size)
        found, said, _ = self.assertBounded(self.file)
        self.assertEqual((found, said.count("\n")), (code, 1), said)
        self.assertRegex(said, rf"\Ackptfs: {self.file}: {pattern}\n\Z")

    def test_counts_of_a_billion_and_beyond(self):
        for count in (10**9, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1):
            with self.subTest(count=count):
                self.refuse(header(pairs=count, rest=bytes(1000)), f".*has {count} pairs.*")
                self.refuse(header(tensors=count, rest=bytes(1000)), f"has {count} tensors.*",
                            LIMITS)

    def test_counts_of_a_billion_in_a_file_of_terabytes(self):
        self.refuse(header(pairs=10**9), ".*has 1000000000 pairs.*", LIMITS, 1 << 42)
        self.refuse(header(tensors=10**9), "has 1000000000 tensors.*", LIMITS, 1 << 42)
        self.refuse(header(tensors=2_000_000), "tensor '': occurs twice", size=1 << 42)
        self.refuse(header(pairs=7_000_000), "header at byte 24: a key is empty", size=1 << 42)

    def test_arrays_of_a_billion(self):
        for kind, size in ((0, 1), (4, 4), (12, 8), (8, 8), (9, 12)):
            for count in (10**9, (1 << 64) // size - 1, (1 << 64) - 1):
                with self.subTest(kind=kind, count=count):
                    array = pair(b"a", 9, struct.pack("<IQ", kind, count) + bytes(100))
                    self.refuse(header(pairs=1, rest=array), f"metadata 'a': .*has {count} .*")

    def test_an_array_of_a_billion_in_a_file_of_terabytes(self):
        array = pair(b"a", 9, struct.pack("<IQ", 0, 10**9))
        self.refuse(header(pairs=1, rest=array), "metadata 'a': .*has 1000000000 elements.*",
                    LIMITS, 1 << 42)

    def test_texts_of_any_length(self):
        for length in (10**9, 1 << 40, (1 << 64) - 1, (1 << 64) - 32):
            with self.subTest(length=length):
                value = pair(b"a", 8, struct.pack("<Q", length) + bytes(100))
                self.refuse(header(pairs=1, rest=value), f"metadata 'a': .*text .*{length}.*")
                self.refuse(header(pairs=1, rest=struct.pack("<Q", length) + bytes(100)),
                            f"header at byte 24: key has {length} .*")

    def test_a_text_of_a_billion_in_a_file_of_terabytes(self):
        value = pair(b"a", 8, struct.pack("<Q", 10**9))
        self.refuse(header(pairs=1, rest=value), "metadata 'a': the header has more than 100000000 "
                                                 "bytes", LIMITS, 1 << 42)

    def test_arrays_in_one_another(self):
        array = struct.pack("<IQ", 9, 1) * 100_000
        self.refuse(header(pairs=1, rest=pair(b"a", 9, array)),
                    "metadata 'a': has arrays more than 4 deep")

    def test_shapes_that_overflow(self):
        for dims in ([1 << 62, 4], [1 << 32, 1 << 32], [(1 << 63) - 1], [1 << 63],
                     [(1 << 64) - 1], [3, (1 << 64) // 3 + 1], [1 << 16] * 4):
            with self.subTest(dims):
                self.refuse(header(tensors=1, rest=entry(b"w", dims, 0, 0)) + bytes(64),
                            "tensor 'w': .+", LIMITS)

    def test_a_shape_of_exabytes_that_does_not_overflow(self):
        self.refuse(header(tensors=1, rest=entry(b"w", [1 << 60], 0, 0)) + bytes(64),
                    "tensor 'w': data out of range: 4611686018427387904 bytes at byte 64 "
                    "\\(the file has 121\\): it is truncated")

    def test_offsets_that_overflow(self):
        for offset in ((1 << 64) - 32, (1 << 63), (1 << 64) - 128):
            with self.subTest(offset=offset):
                data = header(tensors=1, rest=entry(b"w", [4], 0, offset)) + bytes(64)
                self.file.write_bytes(data)
                found, said, _ = self.assertBounded(self.file)
                self.assertIn(found, (CORRUPT, LIMITS), said)
                self.assertIn("tensor 'w'", said)

    def test_alignments(self):
        for alignment in (0, 3, 24, (1 << 32) - 1, 1 << 31):
            with self.subTest(alignment=alignment):
                value = pair(b"general.alignment", 4, struct.pack("<I", alignment))
                self.refuse(header(pairs=1, rest=value),
                            f"metadata 'general.alignment': is {alignment}, .*")

    def test_a_file_that_is_cut_anywhere(self):
        whole = (FOLDER / "w_metadata.gguf").read_bytes()
        for length in range(4, 1484, 146):
            with self.subTest(length=length):
                self.refuse(whole[:length], ".+")

    def test_many_tensors_on_one_place(self):
        rest = b"".join(entry(b"%d" % i, [32], 24, 0) for i in range(20_000))
        self.refuse(header(tensors=20_000, rest=rest) + bytes(100),
                    "tensor '1': begins at byte 728928, but tensor '0' ends at byte 728960")

    def test_many_tensors_of_unknown_types_on_one_place(self):
        rest = b"".join(entry(b"%d" % i, [32], 99, 0) for i in range(20_000))
        self.refuse(header(tensors=20_000, rest=rest) + bytes(100), "tensor '1': begins at .*")

    def test_texts_that_grow_in_json(self):
        for what in (b"\0" * 1_000_000, b"\xff" * 1_000_000):
            self.file.write_bytes(header(pairs=1, rest=pair(b"a", 8, text(what))))
            found, said, _ = self.assertBounded(self.file)
            self.assertIn(found, (0, LIMITS), said)

    def test_a_hundred_thousand_empty_tensors(self):
        count = 100_000
        rest = b"".join(entry(b"%d" % i, [0], 2, 0) for i in range(count))
        self.file.write_bytes(header(tensors=count, rest=rest) + bytes(32))
        found = self.ckptfs(self.file, self.mountpoint()).returncode
        self.assertIn(found, (0, LIMITS))

    def test_one_part_of_ten_thousand(self):
        self.file = self.scratch() / "m-00001-of-10000.gguf"
        split = (pair(b"split.no", 2, struct.pack("<H", 0))
                 + pair(b"split.count", 2, struct.pack("<H", 10_000)))
        self.file.write_bytes(header(tensors=1, pairs=2, rest=split + entry(b"w", [4], 24, 0))
                              + bytes(64))
        found, said, _ = self.assertBounded(self.file)
        self.assertIn(found, (0, LIMITS), said)

    def test_names_that_would_leave_the_mount(self):
        names = (b"../../etc/passwd", b"..", b".", b"/abs", b"a\0b", b"\x1b[31m", b"\xff\xfe",
                 b"", b"meta.json", b"shape")
        rest = b"".join(entry(name, [1], 24, 32 * i) for i, name in enumerate(names))
        data = header(tensors=len(names), rest=rest)
        data += bytes(-len(data) % 32) + b"x" * 32 * len(names)
        self.file.write_bytes(data)
        found, said, mountpoint = self.assertBounded(self.file)
        self.assertEqual((found, said), (0, ""))
        below = list(Path(mountpoint).rglob("*.memmap"))
        self.assertGreaterEqual(len(below), len(names))
        for path in below:
            self.assertEqual(ckptfs.read(path), b"x")
