"""ckpt convert: files of other formats, read by the libraries that define these."""

import json
import os
import resource
import signal
import subprocess
import time
import urllib.parse

import ckptfs
from ckpt_case import CKPT, ckpt, samples

try:
    import gguf
    import numpy
    import tensordict
    import torch
    from safetensors import safe_open
    from safetensors.torch import load_file
    from tensorizer import TensorDeserializer
except ImportError as error:
    numpy = None
    MISSING = str(error)

FLOATS = ("bfloat16", "float16", "float32", "float64")


def bits(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8) if tensor.dim() else tensor.reshape(1).view(torch.uint8)


class Convert(ckptfs.Case):
    def setUp(self):
        if numpy is None:
            self.skip_avoidable(MISSING)
        self.folder = self.scratch()
        self.source = self.folder / "model.pth"

    def save(self, state):
        torch.save(state, self.source)
        return state

    def model(self):
        """Views, ties, empty tensors, scalars, and odd keys."""
        base = torch.randn(40, 30)
        return self.save({"plain": base, "tied": base, "transposed": base.t()[::2], "scalar": torch.tensor(3.5),
                          "empty": torch.empty(0, 4), "a/b": torch.arange(5), "ü %": torch.ones(3, dtype=torch.bool),
                          "c": torch.randn(3, dtype=torch.complex64)})

    def convert(self, out, *options):
        done = ckpt("convert", self.source, out, *options)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def refuse(self, code, message, *arguments):
        done = ckpt("convert", *arguments)
        self.assertEqual((done.returncode, done.stdout), (code, ""))
        self.assertRegex(done.stderr, message)

    def assertSame(self, found, expected):
        self.assertEqual(sorted(found), sorted(expected))
        for key, tensor in expected.items():
            self.assertEqual((found[key].dtype, found[key].shape), (tensor.dtype, tensor.shape), key)
            self.assertTrue(torch.equal(bits(found[key]), bits(tensor)), key)

    def files(self):
        return sorted(path.name for path in self.folder.iterdir())

    def test_safetensors(self):
        state = self.model()
        state |= {"bf16": torch.randn(7).bfloat16(), "fp8": torch.randn(9).to(torch.float8_e4m3fn)}
        torch.save(state | {"epoch": "twelve"}, self.source)
        out = self.folder / "model.safetensors"
        self.convert(out, "--verify")
        self.assertSame(load_file(out), state)
        with safe_open(out, "pt") as file:
            self.assertEqual(file.metadata(), {"format": "pt", "epoch": "twelve"})
        self.assertEqual(ckpt("diff", self.source, out).returncode, 0)

    def test_npz(self):
        state = self.model()
        out = self.folder / "arrays.npz"
        self.convert(out, "--verify")
        with numpy.load(out) as arrays:  # zipfile checks each CRC32.
            self.assertSame({key: torch.from_numpy(arrays[key]) for key in arrays}, state)
        self.assertEqual(ckpt("diff", self.source, out).returncode, 0)

    def test_npz_with_more_members_than_zip_can_count(self):
        state = self.save({str(i): torch.tensor([i], dtype=torch.int32) for i in range(70000)})
        out = self.folder / "arrays.npz"
        self.convert(out)
        with numpy.load(out) as arrays:
            self.assertEqual(len(arrays.files), len(state))
            self.assertEqual(arrays["69999"], 69999)

    def test_npz_of_more_than_4_GiB(self):
        """ZIP64, in offsets and in sizes. The tensors are holes of a file."""
        size = (1 << 32) + 8
        header = json.dumps({"a": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]},
                             "b": {"dtype": "U8", "shape": [8], "data_offsets": [size, size + 8]}}).encode()
        with open(self.source, "wb") as file:
            file.write(len(header).to_bytes(8, "little") + header)
            file.seek(size, os.SEEK_CUR)
            file.write(b"8 bytes.")
        out = self.folder / "arrays.npz"
        self.convert(out)
        import zipfile
        with zipfile.ZipFile(out) as archive:
            self.assertEqual([info.file_size for info in archive.infolist()], [size + 128, 8 + 128])
            self.assertTrue(archive.read("b.npy").endswith(b"8 bytes."))
            with archive.open("a.npy") as member:
                self.assertEqual(numpy.lib.format.read_magic(member), (1, 0))

    def test_npy(self):
        state = self.model()
        out = self.folder / "arrays"
        self.convert(out, "--to", "npy")
        names = {"a%2Fb": "a/b", "ü %25": "ü %"}
        found = {names.get(path.stem, path.stem): torch.from_numpy(numpy.load(path)) for path in out.iterdir()}
        self.assertSame(found, state)
        self.assertEqual(self.files(), ["arrays", "model.pth"])

    def test_blocks_of_gguf_are_decoded_for_a_cast(self):
        self.source = self.folder / "model.gguf"
        writer = gguf.GGUFWriter(self.source, "test")
        expected = {}
        for dtype in gguf.GGMLQuantizationType.Q4_0, gguf.GGMLQuantizationType.Q8_0:
            blocks = gguf.quantize(numpy.random.standard_normal((6, 640)).astype(numpy.float32), dtype)
            writer.add_tensor(dtype.name, blocks, raw_dtype=dtype)
            expected[dtype.name] = torch.from_numpy(gguf.dequantize(blocks, dtype))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        out = self.folder / "model.safetensors"
        for dtype in torch.float32, torch.bfloat16:
            self.convert(out, "-f", "--verify", "--dtype", str(dtype).removeprefix("torch."))
            self.assertSame(load_file(out), {key: tensor.to(dtype) for key, tensor in expected.items()})

    def test_gguf(self):
        state = self.save({"w": torch.randn(3, 4, 5, 2), "view": torch.randn(7, 9).t(), "s": torch.tensor(2.5),
                           "empty": torch.empty(0, 4), "bf16": torch.randn(5).bfloat16(), "half": torch.randn(5).half(),
                           **{str(dtype): torch.arange(3, dtype=dtype)
                              for dtype in (torch.int8, torch.int16, torch.int32, torch.int64, torch.float64)}})
        out = self.folder / "model.gguf"
        self.convert(out, "--verify")
        self.assertEqual(out.stat().st_size % 32, 0)
        for tensor in gguf.GGUFReader(out).tensors:
            expected = state.pop(tensor.name)
            self.assertEqual(tuple(tensor.shape)[::-1], expected.shape)
            self.assertEqual(tensor.data.tobytes(), bits(expected).numpy().tobytes())
        self.assertEqual(list(state), [])
        self.assertEqual(ckpt("diff", self.source, out).returncode, 0)
        self.save({"a" * 64: torch.ones(1)})
        self.refuse(4, "GGUF cannot have the key 'a+'", self.source, out, "-f")
        self.save({"a": torch.ones(1, 1, 1, 1, 1)})
        self.refuse(4, "'a': found 5 dimensions, expected at most 4", self.source, out, "-f")
        self.save({"a": torch.ones(1, dtype=torch.bool)})
        self.refuse(4, "GGUF has no dtype bool for 'a'", self.source, out, "-f")

    def test_tensordict(self):
        weight = torch.randn(3, 4)
        self.save({"model": {"h.0.weight": weight, "h.1.weight": weight, "h.1.bias": torch.randn(3).t().double()},
                   "odd/key": torch.arange(3), "fp8": torch.ones(3).to(torch.float8_e5m2), "epoch": 5,
                   "empty": torch.empty(0, 4)})
        out = self.folder / "state"
        self.convert(out, "--to", "tensordict", "--verify")
        loaded = tensordict.TensorDict.load_memmap(out)
        state = torch.load(self.source)
        for key, tensor in state.pop("model").items():
            self.assertTrue(torch.equal(loaded[("model", *key.split("."))], tensor), key)
        self.assertEqual((loaded["odd/key"].tolist(), loaded["epoch"], loaded["empty"].shape), ([0, 1, 2], 5, (0, 4)))
        self.assertTrue(torch.equal(loaded["fp8"], state["fp8"].view(torch.uint8)))
        first, second = (out / "model" / "h" / i / "weight.memmap" for i in "01")
        self.assertTrue(first.samefile(second))
        changes = json.loads(ckpt("diff", "--json", self.source, out).stdout)
        self.assertEqual([change["key"] for change in changes], ["fp8"])  # It is uint8 with a recipe.
        mount = self.mount(self.source)
        subprocess.run(["diff", "-r", "-x", "meta.json", mount.path, out], check=True)
        for meta in out.rglob("meta.json"):
            ours, mounts = (json.loads(path.read_bytes()) for path in (meta, mount / meta.relative_to(out)))
            # The mount also says what its source is.
            summary = mounts.get("_ckptfs", {}), ours.get("_ckptfs", {})
            self.assertLessEqual(summary[1].items(), summary[0].items())
            self.assertEqual({**mounts, "_ckptfs": 0}, {**ours, "_ckptfs": 0})
        self.save({"a": torch.ones(1)})
        self.refuse(2, "file exists", self.source, out, "--to", "tensordict")
        self.convert(out, "-f", "--to", "tensordict")
        self.assertEqual(sorted(path.name for path in out.iterdir()), ["a.memmap", "meta.json"])
        self.save({"a" * 300: torch.ones(1)})
        self.refuse(6, "File name too long", self.source, out, "-f", "--to", "tensordict")
        self.assertEqual(self.files(), ["model.pth", "state"])

    def test_tensorizer(self):
        state = self.model()
        state |= {str(dtype): torch.randn(9).to(dtype)
                  for dtype in (torch.bfloat16, torch.float8_e4m3fn, torch.float64, torch.uint8, torch.complex32)}
        torch.save(state, self.source)
        out = self.folder / "model.tensors"
        self.convert(out, "--verify")
        self.assertSame(dict(TensorDeserializer(out, device="cpu", verify_hash=True)), state)
        self.assertEqual(ckpt("diff", self.source, out).returncode, 0)
        self.assertEqual(ckpt("verify", out).stdout, f"{len(state) - 1} right, 0 wrong, 0 without a hash\n")
        for key in "", "\x1e[1]", "\udc80", "x" * 65536:
            self.save({key: torch.ones(1)})
            self.refuse(4, "tensorizer cannot have the key '", self.source, out, "-f")
        self.save({"a": torch.ones(0).bfloat16()})
        self.refuse(4, "tensorizer cannot read 'a': it is empty, and of bfloat16", self.source, out, "-f")
        self.save({"a": torch.quantize_per_tensor(torch.ones(3), 1, 0, torch.qint8)})
        self.refuse(4, "tensorizer has no dtype qint8 for 'a'", self.source, out, "-f")
        self.save({"a": 1})
        self.refuse(4, "tensorizer cannot read a file without tensors", self.source, out, "-f")

    def test_tensorizer_with_more_tensors_than_its_writer_allows(self):
        state = self.save({f"model.layers.{i}.self_attn.q_proj.weight": torch.tensor([i]) for i in range(5000)})
        out = self.folder / "model.tensors"
        self.convert(out)
        self.assertSame(dict(TensorDeserializer(out, device="cpu", verify_hash=True)), state)

    def test_tensorizer_with_dimensions_of_64_bits(self):
        state = self.save({"long": torch.empty(1 << 33, 0), "short": torch.ones(3)})
        out = self.folder / "model.tensors"
        self.convert(out)
        self.assertSame(dict(TensorDeserializer(out, device="cpu")), state)

    def test_shards(self):
        state = self.save({f"h.{i}.weight": torch.randn(100, i + 1) for i in range(20)})
        out = self.folder / "model.safetensors"
        self.convert(out, "--shard", "20KB")
        index = json.loads((self.folder / "model.safetensors.index.json").read_text())
        self.assertEqual(index["metadata"]["total_size"], sum(tensor.nbytes for tensor in state.values()))
        names = sorted(set(index["weight_map"].values()))
        self.assertEqual(names, [f"model-{i + 1:05}-of-{len(names):05}.safetensors" for i in range(len(names))])
        found = {}
        for name in names:
            tensors = load_file(self.folder / name)
            self.assertLessEqual(sum(tensor.nbytes for tensor in tensors.values()), 20000)
            self.assertEqual({key for key, shard in index["weight_map"].items() if shard == name}, set(tensors))
            found |= tensors
        self.assertSame(found, state)

    def test_an_index_never_names_shards_of_two_conversions(self):
        if os.geteuid() != 0:
            self.skipTest("only root mounts a file over another")
        self.save({f"h.{i}": torch.full((100,), i) for i in range(4)})
        out = self.folder / "model.safetensors"
        self.convert(out, "--shard", "1KB")
        self.assertIn("model.safetensors.index.json", self.files())
        shard = self.folder / "model-00003-of-00004.safetensors"
        subprocess.run(["mount", "--bind", shard, shard], check=True)  # Nothing can be renamed to it.
        self.addCleanup(subprocess.run, ["umount", "--lazy", shard], capture_output=True)
        self.refuse(2, "model-00003-of-00004.safetensors: Device or resource busy", self.source, out, "--shard", "1KB",
                    "-f")
        self.assertNotIn("model.safetensors.index.json", self.files())
        subprocess.run(["umount", shard], check=True)
        self.convert(out, "--shard", "1KB", "-f")
        self.assertIn("model.safetensors.index.json", self.files())

    def test_one_shard_is_a_file(self):
        state = self.model()
        self.convert(self.folder / "model.safetensors", "--shard", "5GB")
        self.assertEqual(self.files(), ["model.pth", "model.safetensors"])
        self.assertSame(load_file(self.folder / "model.safetensors"), state)

    def test_dtype(self):
        """As to() of PyTorch, for all values of 16 bits, and for what is between two of them."""
        every = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16)
        near = torch.cat([torch.randn(5000) * 10.0 ** power for power in range(-46, 40)])
        middle = torch.cat([(every.view(dtype).float().view(torch.int32)[:, None] + torch.tensor(offsets)).flatten()
                            for dtype, offsets in ((torch.float16, [4095, 4096, 4097]),
                                                   (torch.bfloat16, [32767, 32768, 32769]))]).to(torch.int32)
        state = self.save({"f16": every.clone().view(torch.float16), "bf16": every.clone().view(torch.bfloat16),
                           "near": near,
                           "middle": middle.view(torch.float32), "f64": near.double() * (1 + 1e-12),
                           "fp8": torch.arange(256, dtype=torch.uint8).view(torch.float8_e5m2),
                           "int": torch.arange(4), "complex": torch.randn(3, dtype=torch.complex64)})
        for name in FLOATS:
            out = self.folder / f"{name}.safetensors"
            self.convert(out, "--dtype", name)
            found = load_file(out)
            for key, tensor in state.items():
                expected = tensor.to(getattr(torch, name)) if tensor.is_floating_point() else tensor
                self.assertEqual(found[key].dtype, expected.dtype)
                self.assertTrue(torch.equal(found[key].isnan(), expected.isnan()), (key, name))
                self.assertTrue(torch.equal(bits(found[key].nan_to_num(0)), bits(expected.nan_to_num(0)))
                                if expected.is_floating_point() else torch.equal(found[key], expected), (key, name))

    def test_dtype_of_all_types(self):
        names = ("bool uint8 int8 int16 int32 int64 uint16 uint32 uint64 float8_e4m3fn float8_e5m2 float8_e4m3fnuz "
                 "float8_e5m2fnuz float8_e8m0fnu complex64 complex128").split()
        state = {}
        for name in names:
            dtype = getattr(torch, name)
            values = torch.arange(256, dtype=torch.uint8)
            state[name] = (values.view(dtype) if dtype.itemsize == 1 and dtype != torch.bool else values.to(dtype))
        state |= {"empty": torch.empty(0, 3), "scalar": torch.tensor(0.1), "view": torch.randn(9, 8).t()[::2]}
        self.save(state)
        for name in FLOATS:
            for target in "safetensors", "tensors":
                # These have no complex128, and no empty bfloat16.
                kept = [key for key in state if (key, target) != ("complex128", "safetensors")
                        and (key, target, name) != ("empty", "tensors", "bfloat16")]
                torch.save({key: state[key] for key in kept}, self.source)
                out = self.folder / f"out.{target}"
                self.convert(out, "-f", "--verify", "--dtype", name)
                found = load_file(out) if target == "safetensors" else TensorDeserializer(out, device="cpu")
                for key in kept:
                    tensor, dtype = state[key], getattr(torch, name)
                    expected = tensor.to(dtype) if tensor.is_floating_point() else tensor
                    self.assertEqual((found[key].dtype, found[key].shape), (expected.dtype, expected.shape), key)
                    numpy.testing.assert_array_equal(
                        *((t.double() if t.is_floating_point() else t).detach().numpy() for t in (found[key], expected)), key)

    def test_shard_sizes_at_the_boundary(self):
        for sizes, shard, wanted in (([4, 4], 8, [[0, 1]]), ([4, 4], 7, [[0], [1]]), ([4, 4, 4], 8, [[0, 1], [2]]),
                                     ([9, 1, 1], 4, [[0], [1, 2]]), ([1, 9, 1], 4, [[0], [1], [2]]), ([0, 4, 0], 4, [[0, 1, 2]]),
                                     ([4, 0, 4, 0], 4, [[0, 1], [2, 3]]), ([5], 1, [[0]])):
            self.save({str(i): torch.full((size,), i, dtype=torch.uint8) for i, size in enumerate(sizes)})
            folder = self.folder / "out"
            folder.mkdir()
            self.convert(folder / "model.safetensors", "--shard", str(shard), "--verify")
            files = sorted(folder.glob("*.safetensors"))
            self.assertEqual([sorted(map(int, load_file(file))) for file in files], wanted, (sizes, shard))
            self.assertEqual((folder / "model.safetensors.index.json").exists(), len(wanted) > 1)
            self.assertEqual(ckpt("diff", self.source, folder).returncode, 0)
            for path in folder.iterdir():
                path.unlink()
            folder.rmdir()
        for size in "0", "-5", "5TB", "5gb", "1.5GB", "99999999999GB", "GB", " 5":
            self.refuse(2, f"--shard: '{size}' is no number of bytes, such as 5GB", self.source,
                        self.folder / "x.safetensors", f"--shard={size}")

    def test_only_some_and_other_keys(self):
        state = self.save({"model": {"a": torch.ones(2), "b": torch.zeros(3)}, "other": torch.ones(1)})
        out = self.folder / "out.safetensors"
        self.convert(out, "--only", "model.*", "--map", r"s/^model\.//")
        self.assertSame(load_file(out), state["model"])
        self.convert(out, "-f", "-o", "subtree=model")
        self.assertSame(load_file(out), state["model"])

    def test_existing_files_are_kept(self):
        self.model()
        for out in self.folder / "x.npz", self.folder / "x.safetensors":
            out.write_text("old")
            self.refuse(2, f"{out}: file exists; -f replaces it", self.source, out)
            self.assertEqual(out.read_text(), "old")
            self.convert(out, "-f")
            self.assertEqual(ckpt("diff", self.source, out).returncode, 0)
        out = self.folder / "arrays"
        self.convert(out, "--to", "npy")
        (out / "old.npy").write_text("old")
        self.refuse(2, "file exists", self.source, out, "--to", "npy")
        self.assertTrue((out / "old.npy").exists())
        self.convert(out, "-f", "--to", "npy")
        self.assertFalse((out / "old.npy").exists())
        self.refuse(2, "is a directory", self.source, out, "-f", "--to", "npz")

    def test_other_folders_and_devices_are_not_replaced(self):
        self.model()
        other = self.folder / "other"
        other.mkdir()
        for target in "npy", "tensordict":
            (other / "thesis.txt").write_text("years")
            self.refuse(2, f"{other}: folder with other files than -f replaces", self.source, other, "-f", "--to", target)
            self.assertEqual((other / "thesis.txt").read_text(), "years")
            (other / "thesis.txt").unlink()
            self.convert(other, "-f", "--to", target)
            for path in other.iterdir():
                path.unlink()
        fifo, link = self.folder / "fifo", self.folder / "link"
        os.mkfifo(fifo)
        link.symlink_to("/dev/null")
        for out in fifo, link:
            self.refuse(2, f"{out}: is not a regular file", self.source, out, "-f", "--to", "npz")
            self.assertFalse(out.is_file())
        self.assertEqual(self.files(), ["fifo", "link", "model.pth", "other"])
        self.refuse(2, "Not a directory", self.source, self.source / "out.npz")
        self.refuse(2, "busy", self.source, f"{other}/.", "-f", "--to", "npy")

    def test_keys_that_are_no_file_names(self):
        state = self.save({key: torch.full((2,), i) for i, key in enumerate(
            ["..", ".", "/", "a", "a.b", "A", "", "a/../../x", "nul\0x", "-rf", ".ckpt", "a\\b", "c:", "%2F", "x" * 251])})
        out = self.folder / "arrays"
        self.convert(out, "--to", "npy", "--verify")
        self.assertEqual(self.files(), ["arrays", "model.pth"])
        self.assertSame({urllib.parse.unquote(path.name[:-4]): torch.from_numpy(numpy.load(path)) for path in out.iterdir()},
                        state)
        del state["nul\0x"]
        torch.save(state, self.source)
        self.convert(self.folder / "arrays.npz")
        with numpy.load(self.folder / "arrays.npz") as arrays:
            self.assertSame({key: torch.from_numpy(arrays[key]) for key in arrays}, state)
        for key in "x" * 252, "ü" * 126:
            self.save({key: torch.ones(1)})
            self.refuse(6, "too long for a file name", self.source, self.folder / "long", "--to", "npy")
        for keys, message in (["nul\0x"], "a zip archive cannot have the key"), (["a.npy", "a"], "NumPy confuses the keys"):
            self.save({key: torch.ones(1) for key in keys})
            self.refuse(4, message, self.source, self.folder / "x.npz")

    def test_the_source_is_replaced_by_itself(self):
        state = self.save({"a": torch.randn(1_000_000), "b": torch.randn(7)})
        self.convert(self.source, "-f", "--to", "safetensors", "--verify")
        self.assertSame(load_file(self.source), state)
        self.convert(self.source, "-f", "--to", "safetensors", "--dtype", "bf16")
        self.assertSame(load_file(self.source), {key: tensor.bfloat16() for key, tensor in state.items()})
        self.assertEqual(self.files(), ["model.pth"])

    def test_subtree(self):
        self.save({"model": {"a,b": {"w": torch.arange(3.)}, "c": torch.ones(1)}})
        for number, options in enumerate((["--subtree", "model/a,b"], ["-o", r"subtree=model/a\,b"])):
            out = self.folder / f"{number}.safetensors"
            self.convert(out, *options)
            self.assertSame(load_file(out), {"w": torch.arange(3.)})
        self.refuse(ckptfs.SOURCE, "subtree 'none': no dict of that key", self.source, self.folder / "x.safetensors",
                    "--subtree", "none")

    def test_too_little_memory_is_an_error(self):
        self.save({f"h.{i}": torch.ones(1 << 20) for i in range(8)})
        out = self.folder / "model.safetensors"
        for megabytes in range(16, 40, 2):
            limit = (megabytes << 20, megabytes << 20)
            done = ckpt("convert", self.source, out, "-f",
                        preexec_fn=lambda limit=limit: resource.setrlimit(resource.RLIMIT_AS, limit))
            with self.subTest(megabytes, stderr=done.stderr):
                self.assertIn((done.returncode, bool(done.stderr)), ((0, False), (1, True)))

    def test_writers_at_once(self):
        state = self.save({"a": torch.randn(100_000), "b": torch.randn(7)})
        for out, *options in ("x.npz",), ("x.npz", "-f"), ("x", "--to", "npy"), ("x", "-f", "--to", "npy"):
            processes = [subprocess.Popen([CKPT, "convert", self.source, self.folder / out, *options],
                                          stderr=subprocess.DEVNULL) for _ in range(6)]
            codes = sorted(process.wait(60) for process in processes)
            if "-f" not in options:
                self.assertEqual(codes, [0, *[2] * 5], (out, options))
            self.assertEqual(codes[0], 0)
            self.assertEqual(self.files(), sorted({"model.pth", "x.npz", out}))
        with numpy.load(self.folder / "x.npz") as arrays:
            self.assertSame({key: torch.from_numpy(arrays[key]) for key in arrays}, state)
        self.assertEqual(sorted(path.name for path in (self.folder / "x").iterdir()), ["a.npy", "b.npy"])

    def test_a_full_file_system(self):
        self.save({str(i): torch.randn(100_000) for i in range(20)})
        full = self.folder / "full"
        full.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", full], capture_output=True, text=True)
        if done.returncode != 0:
            self.skipTest(done.stderr)
        self.addCleanup(subprocess.run, ["umount", full], check=True)
        (full / "old.npz").write_text("old")
        for out, *options in ("old.npz", "-f"), ("x.npz",), ("x.tensors", "--verify"), ("x", "--to", "npy"):
            self.refuse(1, "No space left on device", self.source, full / out, *options)
            self.assertEqual([path.name for path in full.iterdir()], ["old.npz"])
        self.assertEqual((full / "old.npz").read_text(), "old")

    def test_refused(self):
        self.save({"w": torch.ones(2).bfloat16(), "x": torch.ones(2)})
        out = self.folder / "out"
        self.refuse(4, "NumPy has no dtype bfloat16 for 'w'; --dtype may help", self.source, out, "--to", "npz")
        self.refuse(2, "unknown format 'what'", self.source, self.folder / "out.what")
        self.refuse(2, "--shard: '5 apples' is no number of bytes", self.source, out, "--to", "safetensors", "--shard",
                  "5 apples")
        self.refuse(2, "unknown type 'int3'", self.source, out, "--to", "npz", "--dtype", "int3")
        self.refuse(3, "no tensor matches 'y'", self.source, out, "--to", "npz", "--only", "y")
        self.refuse(4, "cannot have.*'y'", self.source, out, "--to", "safetensors", "--map", "s/./y/")
        self.refuse(3, "No such file", self.source, self.folder / "no" / "out.npz", "--dtype", "float32")
        self.assertEqual(self.files(), ["model.pth"])

    def test_a_tensor_in_no_regular_file_is_no_mistake_on_the_command_line(self):
        folder = self.folder / "td"
        tensordict.TensorDict({"w": torch.ones(2), "v": torch.ones(2)}, []).memmap(folder)
        (folder / "w.memmap").unlink()
        os.mkfifo(folder / "w.memmap")
        self.refuse(ckptfs.CORRUPT, "not a regular file", folder, self.folder / "out.npz")
        (folder / "w.memmap").unlink()
        (folder / "w.memmap").mkdir()
        self.refuse(ckptfs.CORRUPT, "is a directory", folder, self.folder / "out.npz")

    def test_a_full_disk_leaves_nothing(self):
        self.save({str(i): torch.zeros(100_000) for i in range(20)})

        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

        for target in "npz", "npy", "safetensors":
            done = subprocess.run([CKPT, "convert", self.source, self.folder / "out", "--to", target],
                                  preexec_fn=limit, capture_output=True, text=True, timeout=60)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("File too large", done.stderr)
            self.assertEqual(self.files(), ["model.pth"])

    def test_killed_in_the_middle(self):
        """Nothing is left but the old file. The source is a hole, which takes seconds to read."""
        with open(self.source, "wb") as file:
            size = 6 << 30
            header = json.dumps({"a": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
            file.write(len(header).to_bytes(8, "little") + header)
            file.truncate(8 + len(header) + size)
        out = self.folder / "out.npz"
        out.write_text("old")
        for target, sent in (("npz", signal.SIGKILL), ("npz", signal.SIGTERM), ("npy", signal.SIGINT)):
            target_out = out if target == "npz" else self.folder / "arrays"
            process = subprocess.Popen([CKPT, "convert", self.source, target_out, "-f", "--to", target],
                                       stderr=subprocess.PIPE)
            time.sleep(0.3)
            self.assertIsNone(process.poll())
            process.send_signal(sent)
            process.communicate(timeout=30)
            self.assertEqual(process.returncode, -sent)
            self.assertEqual((out.read_text(), self.files()), ("old", ["model.pth", "out.npz"]))

    def test_samples(self):
        """All that have tensors which safetensors can have, and none that cannot be read."""
        count = 0
        for sample in samples():
            listed = ckpt("ls", "--json", sample)
            rows = json.loads(listed.stdout) if listed.returncode == 0 else [{"error": "not read"}]
            if any(row["error"] for row in rows) or sum(row["bytes"] for row in rows) > 1 << 30:
                continue
            out = self.folder / "out.safetensors"
            done = ckpt("convert", sample, out, "-f")
            if done.returncode != 0:
                self.assertRegex(done.stderr, "safetensors (cannot have|has no dtype)", sample)
                continue
            self.assertEqual(ckpt("diff", sample, out).stdout.count("values"), 0, sample)
            self.assertEqual(len(load_file(out)), len(rows), sample)
            count += 1
        self.assertGreater(count, 100)
