"""Files of safetensors: each rule of the format, the files that the reference writes, and hostile ones.

samples/safetensors/expected.json has what the reference (safetensors 0.8 with torch 2.13) finds in
each file, or why it refuses it, and what we do: accept, refuse, opaque (a dtype that nobody knows is
shown as bytes), or either of them.
"""

import concurrent.futures
import hashlib
import json
import os
import random
import struct
import time

import ckptfs
import view
from ckptfs import CORRUPT, FORMAT, LIMITS
from craft import write_safetensors

try:
    import numpy
    import torch
    from safetensors import safe_open
    from safetensors.torch import save_file, save_model
except ImportError as error:
    torch = None
    MISSING = str(error)

FOLDER = ckptfs.SAMPLES / "safetensors"
EXPECTED = {name: sample
            for name, sample in json.loads((FOLDER / "expected.json").read_text()).items()
            if name.endswith(".safetensors")}


def entries(directory):
    """{key: (path, entry)} of the tensors of a mount."""
    return {".".join(keys): tensor for kind, keys, tensor in view.walk(directory)
            if kind == "tensor"}


def expected_shape(tensor):
    """The shape that we show: where the header counts half bytes, of bytes."""
    if tensor["dtype"] is None:
        return [tensor["nbytes"]]
    if tensor["stored_dtype"] != "F4":
        return tensor["shape"]
    *rows, last = tensor["shape"]
    return [*rows, last // 2] if last % 2 == 0 else [tensor["nbytes"]]


class Samples(ckptfs.Case):
    def assertHolds(self, mount, sample):
        found, places = entries(mount.path), view.places(mount.path)
        for tensor in sample["tensors"]:
            there = found.pop(tensor["path"][0])
            entry = there.entry
            self.assertEqual(hashlib.sha256(ckptfs.read(there.path)).hexdigest(), tensor["sha256"])
            self.assertEqual(there.path.stat().st_size, tensor["nbytes"])
            self.assertEqual(list(there.shape), expected_shape(tensor))
            self.assertEqual(places[there.path]["file_offset"], tensor["offset"])
            if tensor["dtype"] is not None:
                self.assertEqual(there.dtype, tensor["dtype"])
            if tensor["dtype"] is None or tensor["stored_dtype"] == "F4":
                self.assertEqual(entry["stored_dtype"], tensor["stored_dtype"])
                self.assertEqual(entry["stored_shape"], tensor["shape"])
        tied = {name for name, tensor in found.items() if "tied_to" in tensor.entry}
        self.assertEqual(set(found), tied)
        summary = ckptfs.meta(mount.path)["_ckptfs"]
        self.assertEqual(summary["format"], "safetensors")
        self.assertEqual(summary.get("metadata"), sample["metadata"] or None)

    def test_every_file_is_shown_or_refused_as_the_reference_does(self):
        counts = {"accept": 0, "refuse": 0, "opaque": 0, "either": 0}
        for name, sample in EXPECTED.items():
            with self.subTest(name):
                ours = sample["ours"] if sample["ours"] in counts else "either"
                counts[ours] += 1
                mountpoint = self.mountpoint()
                done = self.ckptfs(FOLDER / name, mountpoint)
                if done.returncode != 0:
                    self.assertIn(ours, ("refuse", "either"), done.stderr)
                    self.assertIn(done.returncode, (FORMAT, CORRUPT, LIMITS))
                    self.assertRegex(done.stderr, rf"\Ackptfs: {FOLDER / name}: .+\n\Z")
                    self.assertTrue(done.stderr[:-1].isprintable())
                    continue
                with ckptfs.Mount(mountpoint, self.daemon_of(mountpoint), done.stderr) as mount:
                    self.assertNotEqual(ours, "refuse")
                    if ours == "accept":
                        self.assertHolds(mount, sample)
                    if ours == "opaque":
                        entry = entries(mount.path)["x"].entry
                        self.assertEqual(entry["stored_dtype"], sample["tensors"][0]["stored_dtype"])
        self.assertGreater(counts["accept"], 30)
        self.assertGreater(counts["refuse"], 60)
        self.assertEqual(counts["opaque"], 4)

    def test_a_directory_with_an_index_has_the_tensors_of_all_its_files(self):
        names = [name for name in EXPECTED if name.startswith("sharded/")]
        mount = self.mount(FOLDER / "sharded")
        found = entries(mount.path)
        self.assertEqual(
            {name: (tensor.dtype, hashlib.sha256(ckptfs.read(tensor.path)).hexdigest())
             for name, tensor in found.items()},
            {tensor["path"][0]: (tensor["dtype"], tensor["sha256"])
             for name in names for tensor in EXPECTED[name]["tensors"]})
        self.assertEqual(len(names), 3)

    def test_tied_names_are_hard_links_to_the_kept_ones(self):
        mount = self.mount(FOLDER / "tied_model.safetensors")
        head, embed = mount / "head/weight.memmap", mount / "embed/weight.memmap"
        self.assertEqual(head.stat().st_ino, embed.stat().st_ino)
        self.assertEqual(head.stat().st_nlink, 2)
        self.assertEqual(view.entries(mount / "head")["weight"]["tied_to"], "embed.weight")

    def test_torch_reads_the_same_values(self):
        if torch is None:
            self.skip_avoidable(MISSING)
        mount = self.mount(FOLDER / "dtypes.safetensors")
        with safe_open(FOLDER / "dtypes.safetensors", "pt") as reference:
            names = set(reference.keys())
            for name in sorted(names):
                with self.subTest(name):
                    tensor = reference.get_tensor(name)
                    leaf = entries(mount.path)[name]
                    self.assertEqual(f"{tensor.dtype}", leaf.dtype)
                    self.assertEqual(tuple(tensor.shape), leaf.shape)
                    raw = tensor.contiguous().view(torch.uint8).numpy().tobytes()
                    self.assertEqual(ckptfs.read(leaf.path), raw)
        self.assertEqual(set(entries(mount.path)), names)


class Random(ckptfs.Case):
    """Files that safetensors writes here and now."""

    def setUp(self):
        if torch is None:
            self.skip_avoidable(MISSING)

    def test_files_of_save_file_hold_what_was_saved(self):
        dtypes = (torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool,
                  torch.float8_e4m3fn, torch.complex64, torch.uint16)
        for seed in range(10 if ckptfs.IS_SANITIZED else 40):
            with self.subTest(seed=seed):
                rng = random.Random(seed)
                tensors = {}
                for i in range(rng.randrange(1, 30)):
                    dtype = rng.choice(dtypes)
                    shape = [rng.choice((0, 1, 2, 3, 7)) for _ in range(rng.randrange(4))]
                    count = int(torch.tensor(shape).prod()) if shape else 1
                    data = bytearray(rng.randbytes(count * dtype.itemsize) or b"\0")
                    if dtype is torch.bool:
                        data = bytearray(b & 1 for b in data)
                    flat = torch.frombuffer(data, dtype=torch.uint8)[:count * dtype.itemsize]
                    tensors[f"layer.{i % 5}.w{i}"] = flat.clone().view(dtype).reshape(shape)
                file = self.scratch() / "model.safetensors"
                save_file(tensors, file, {"seed": str(seed)})
                mount = self.mount(file)
                self.assertEqual(
                    {name: (t.dtype, t.shape, ckptfs.read(t.path))
                     for name, t in entries(mount.path).items()},
                    {name: (f"{t.dtype}", tuple(t.shape),
                            t.reshape(-1).view(torch.uint8).numpy().tobytes())
                     for name, t in tensors.items()})
                mount.unmount()

    def test_a_header_like_that_of_gpt2(self):
        shapes = {"wte.weight": (501, 8), "wpe.weight": (10, 8), "ln_f.weight": (8,), "ln_f.bias": (8,)}
        for i in range(12):
            for name, shape in (("ln_1.weight", (8,)), ("ln_1.bias", (8,)), ("attn.bias", (1, 1, 4, 4)),
                                ("attn.c_attn.weight", (8, 24)), ("attn.c_attn.bias", (24,)),
                                ("attn.c_proj.weight", (8, 8)), ("mlp.c_fc.weight", (8, 32))):
                shapes[f"h.{i}.{name}"] = shape
        tensors = {name: torch.randn(shape) for name, shape in shapes.items()}
        file = self.scratch() / "model.safetensors"
        save_file(tensors, file)
        mount = self.mount(file)
        self.assertEqual({name: (t.shape, ckptfs.read(t.path)) for name, t in entries(mount.path).items()},
                         {name: (tuple(t.shape), t.numpy().tobytes()) for name, t in tensors.items()})

    def test_slices_are_those_of_safe_open(self):
        file = self.scratch() / "model.safetensors"
        save_file({"w": torch.arange(7 * 11 * 5, dtype=torch.int32).reshape(7, 11, 5)}, file)
        mount = self.mount(file)
        mapped = numpy.memmap(mount / "w.memmap", numpy.int32, "r", shape=(7, 11, 5))
        with safe_open(file, "pt") as reference:
            slices = reference.get_slice("w")
            self.assertEqual(mapped[2:5].tolist(), slices[2:5].tolist())
            self.assertEqual(mapped[:, 3:4, 1:].tolist(), slices[:, 3:4, 1:].tolist())
            self.assertEqual(mapped[6, 10].tolist(), slices[6, 10].tolist())

    def test_eight_threads_read_the_same_values(self):
        tensors = {f"t{i}": torch.randn(300, 301) for i in range(8)}
        file = self.scratch() / "model.safetensors"
        save_file(tensors, file)
        mount = self.mount(file)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for _i in (0, 1):
                read = pool.map(ckptfs.read, [mount / f"{name}.memmap" for name in tensors])
                self.assertEqual(list(read), [t.numpy().tobytes() for t in tensors.values()])

    def test_a_file_that_is_saved_again_while_it_is_mounted_is_never_mixed(self):
        file = self.scratch() / "model.safetensors"
        save_file({"a": torch.zeros(4096), "b": torch.zeros(4096)}, file)
        mount = self.mount(file)
        self.assertEqual(ckptfs.read(mount / "a.memmap"), bytes(16384))
        save_file({"a": torch.ones(4096), "b": torch.ones(4096)}, file)
        self.assertEqual(ckptfs.read(mount / "b.memmap"), bytes(16384))

    def test_a_model_of_save_model_has_all_names_of_its_tied_tensors(self):
        model = torch.nn.Module()
        model.embed = torch.nn.Embedding(5, 3)
        model.head = torch.nn.Linear(3, 5, bias=False)
        model.head.weight = model.embed.weight
        file = self.scratch() / "model.safetensors"
        save_model(model, str(file))
        mount = self.mount(file)
        raw = model.embed.weight.detach().numpy().tobytes()
        self.assertEqual(ckptfs.read(mount / "embed/weight.memmap"), raw)
        self.assertEqual(ckptfs.read(mount / "head/weight.memmap"), raw)

    def test_a_file_of_another_user_is_denied(self):
        # Root may read every file, unless it lacks these capabilities.
        without = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
        file = self.scratch() / "model.safetensors"
        save_file({"w": torch.zeros(2)}, file)
        file.chmod(0)
        self.assertRefused(ckptfs.run(*without, ckptfs.CKPTFS, file, self.mountpoint()), ckptfs.SOURCE,
                           f"{file}: cannot open: Permission denied")


class Hostile(ckptfs.Case):
    """The cost of small and large headers."""

    def setUp(self):
        self.file = self.scratch() / "model.safetensors"

    def refuse(self, code, pattern, seconds=1):
        start = time.monotonic()
        done = self.ckptfs(self.file, self.mountpoint())
        self.assertRefusedLike(done, code, f"{self.file}: {pattern}")
        if not ckptfs.IS_SANITIZED:
            self.assertLess(time.monotonic() - start, seconds)

    def test_a_header_that_the_file_does_not_have(self):
        self.file.write_bytes(struct.pack("<Q", 99_999_999) + b'{"a":')
        self.refuse(CORRUPT, "header: needs 99999999 bytes, but only 5 are left: "
                             "the file is truncated")

    def test_a_header_of_exabytes(self):
        self.file.write_bytes(struct.pack("<Q", 1 << 39) + b'{"a":')
        self.refuse(LIMITS, "header: has 549755813888 bytes \\(maximum 100000000\\)")

    def test_a_hundred_thousand_tensors_on_one_range(self):
        entry = '{"dtype":"U8","shape":[4],"data_offsets":[0,4]}'
        write_safetensors(self.file, "{" + ",".join(f'"{i}":{entry}' for i in range(100_000)) + "}", b"abcd")
        self.refuse(CORRUPT, "tensor '.*': begins at byte 0 of the data, but .* ends at byte 4")

    def test_ten_million_tensors_on_one_range(self):
        # An entry has 60 bytes: too many for a header, whatever the entries are.
        self.file.write_bytes(struct.pack("<Q", 600_000_000) + b'{"0":{"dtype":"U8"')
        os.truncate(self.file, 600_000_100)
        self.refuse(LIMITS, "header: has 600000000 bytes \\(maximum 100000000\\)")

    def test_a_hundred_thousand_matrices_that_overlap(self):
        size = 200 * 200 * 4
        entries = ",".join(f'"{i}":{{"dtype":"F32","shape":[200,200],"data_offsets":[0,{size}]}}'
                           for i in range(100_000))
        write_safetensors(self.file, "{" + entries + "}", bytes(size))
        self.refuse(CORRUPT, f"tensor '.*': begins at byte 0 of the data, but .* ends at byte {size}")

    def test_offsets_that_overflow(self):
        begin, end = (1 << 64) - 5, (1 << 64) - 1
        write_safetensors(self.file, '{"w":{"dtype":"U8","shape":[4],'
                          f'"data_offsets":[{begin},{end}]}}}}', bytes(8))
        self.refuse(CORRUPT, f"tensor 'w': begins at byte {begin} of the data, but what is before "
                             "it ends at byte 0")

    def test_a_size_that_overflows(self):
        end = (1 << 61) - 1  # In bits it still fits.
        write_safetensors(self.file, f'{{"w":{{"dtype":"U8","shape":[{end}],'
                          f'"data_offsets":[0,{end}]}}}}', bytes(8))
        self.refuse(CORRUPT, f"the tensors need {end} bytes of data, but the file has 8: it is "
                             "truncated")

    def test_a_name_a_hundred_thousand_times(self):
        entry = '{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'
        write_safetensors(self.file, "{" + ",".join(f'"x":{entry}' for _ in range(100_000)) + "}")
        self.refuse(CORRUPT, "header: 'x' occurs twice")

    def test_a_million_brackets(self):
        write_safetensors(self.file, '{"x":' + "[" * 1_000_000)
        self.refuse(CORRUPT, "header: tensor 'x': is a list, but must be an object")

    def test_a_million_brackets_where_they_are_ignored(self):
        write_safetensors(self.file, '{"x":{"y":' + "[" * 1_000_000)
        self.refuse(LIMITS, "header: is nested more than 64 deep")

    def test_a_name_of_a_megabyte(self):
        entry = '{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'
        write_safetensors(self.file, '{"' + "x" * 1_000_000 + f'":{entry}}}')
        self.refuse(LIMITS, "header: a name has 1000000 bytes \\(maximum 65536\\)")

    def test_a_file_that_shrinks_while_it_is_mounted(self):
        write_safetensors(self.file, '{"w":{"dtype":"U8","shape":[8192],"data_offsets":[0,8192]}}', bytes(8192))
        mount = self.mount(self.file)
        os.truncate(self.file, 4000)
        with self.assertRaises(OSError):
            ckptfs.read(mount / "w.memmap")
