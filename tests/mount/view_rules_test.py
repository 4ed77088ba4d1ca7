"""Views obey the rules of safetensors and of NumPy, whatever is in the checkpoint."""

import errno
import json
import math
import mmap
import os
import signal
import struct
import subprocess
import sys

import ckptfs
import craft
import view
from ckptfs import SAMPLES, SOURCE, USAGE

try:
    import numpy
    import torch
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file
except ImportError as error:
    torch = None
    MISSING = str(error)

FILE = "model.safetensors"

# As the headers of safetensors have them, by the names of torch.
DTYPES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "uint32": "U32",
    "int32": "I32", "uint64": "U64", "int64": "I64", "float16": "F16", "bfloat16": "BF16",
    "float32": "F32", "float64": "F64", "complex64": "C64", "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2", "float8_e8m0fnu": "F8_E8M0", "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ", "float4_e2m1fn_x2": "F4"}
NUMPY = {"bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64",
         "float16", "float32", "float64", "complex64", "complex128"}


def header_of(path):
    """The header of a safetensors file, and where its data begin."""
    length, = struct.unpack("<Q", ckptfs.read(path, 0, 8))
    text = ckptfs.read(path, 8, length)

    def unique(pairs):
        members = dict(pairs)
        if len(members) != len(pairs):
            raise ValueError("a key is there twice")
        return members
    return json.loads(text, object_pairs_hook=unique), 8 + length


def left_out(mount):
    return ckptfs.meta(mount.path)["_ckptfs"].get("view", {}).get("left_out", [])


class Case(ckptfs.Case):
    def setUp(self):
        if torch is None:
            self.skip_avoidable(MISSING)

    def saved(self, tensors, name="m.pth"):
        file = self.scratch() / name
        torch.save(tensors, file)
        return file

    def viewed(self, source, *options, quiet=True):
        return self.mount(source, "-o", "view=safetensors:npy", *options, quiet=quiet)

    def assertTiled(self, file):
        """The rules of the reference: the data have no holes, and nothing is behind them."""
        header, begin = header_of(file)
        self.assertEqual(begin % 8, 0)
        self.assertEqual(header["__metadata__"]["format"], "pt")
        self.assertTrue(all(isinstance(v, str) for v in header["__metadata__"].values()))
        end = 0
        tensors = {k: v for k, v in header.items() if k != "__metadata__"}
        for entry in tensors.values():
            self.assertEqual(entry["data_offsets"][0], end)
            end = entry["data_offsets"][1]
        self.assertEqual(file.stat().st_size, begin + end)
        return tensors, begin

    def assertSame(self, mount):
        """Each tensor of the mount is in the view with the same bytes, or the view says that it
        is left out. Returns how many are in it."""
        file = mount / FILE
        tensors, begin = self.assertTiled(file)
        with safe_open(file, "pt") as reference:
            self.assertEqual(set(reference.keys()), set(tensors))
            for key in tensors:
                reference.get_tensor(key)
        missing = set(left_out(mount))
        seen = set()
        for kind, keys, what in view.walk(mount.path):
            key = ".".join(keys)
            if kind != "tensor" or key in seen:
                continue
            if key not in tensors:
                # The view omits composite tensors with all their parts.
                self.assertTrue(any(key == m or key.startswith(m + ".") for m in missing) or
                                "foreign_dtype" in what.entry or len(missing) == 1000, key)
                continue
            seen.add(key)
            entry = tensors[key]
            self.assertEqual(entry["dtype"], DTYPES[what.dtype.removeprefix("torch.")], key)
            shape = list(what.shape)
            if entry["dtype"] == "F4":
                shape[-1] *= 2
            self.assertEqual(entry["shape"], shape, key)
            first, last = entry["data_offsets"]
            self.assertEqual(ckptfs.read(file, begin + first, last - first),
                             ckptfs.read(what.path), key)
            self.assertNpy(what)
        self.assertEqual(seen, set(tensors))
        return len(seen)

    def assertNpy(self, tensor):
        """NumPy maps the tensor, if it has the dtype."""
        file = tensor.path.with_suffix(".npy")
        dtype = tensor.dtype.removeprefix("torch.")
        is_countable = math.prod(max(size, 1) for size in tensor.shape) < 1 << 56
        self.assertEqual(file.exists(), dtype in NUMPY and is_countable, file)
        if not file.exists():
            return
        array = numpy.load(file, mmap_mode="r")
        self.assertEqual((array.dtype.name, array.shape), (dtype, tensor.shape))
        self.assertTrue(array.flags.c_contiguous)
        self.assertEqual(array.tobytes(), ckptfs.read(tensor.path))


class Safetensors(Case):
    def test_it_holds_a_nested_checkpoint_under_dotted_keys(self):
        state = {"model": {"a.weight": torch.rand(3, 4), "b": [torch.arange(5), torch.ones(())]},
                 "epoch": 3, "note": "caf\u00e9 \"quoted\"", "format": "mine",
                 "empty": torch.ones(0, 3)}
        mount = self.viewed(self.saved(state))
        self.assertEqual(self.assertSame(mount), 4)
        with safe_open(mount / FILE, "pt") as file:
            self.assertEqual(file.metadata(), {"format": "pt", "note": "caf\u00e9 \"quoted\""})
        loaded = load_file(mount / FILE)
        self.assertTrue(torch.equal(loaded["model.a.weight"], state["model"]["a.weight"]))
        self.assertTrue(torch.equal(loaded["model.b.0"], torch.arange(5)))
        self.assertEqual(loaded["empty"].shape, (0, 3))

    def test_it_is_not_there_by_default_beside_a_file(self):
        mount = self.mount(self.saved({"a": torch.ones(2)}))
        self.assertEqual(sorted(os.listdir(mount.path)), ["a.memmap", "meta.json"])

    def test_tied_tensors_have_bytes_under_each_key(self):
        weight = torch.rand(64, 64)
        mount = self.viewed(self.saved({"a": weight, "b": weight, "t": weight.t()}))
        self.assertEqual(self.assertSame(mount), 3)
        self.assertGreater((mount / FILE).stat().st_size, 3 * 64 * 64 * 4)

    def test_views_of_storages_are_dense(self):
        weight = torch.rand(10, 20)
        mount = self.viewed(self.saved({
            "t": weight.t(), "s": weight[::2, 3:9], "e": weight[:1].expand(7, 20),
            "c": torch.rand(3, dtype=torch.complex64).conj()}))
        self.assertEqual(self.assertSame(mount), 4)

    def test_what_the_format_lacks_is_left_out_and_reported_once(self):
        state = {"a": torch.ones(2), "z": torch.ones(2, dtype=torch.complex128),
                 "q": torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
                 "s": torch.eye(3).to_sparse()}
        file = self.saved(state)
        mount = self.viewed(file, quiet=False)
        self.assertEqual(self.assertSame(mount), 1)
        self.assertEqual(sorted(left_out(mount)), ["q", "s", "z"])
        self.assertEqual(mount.messages.count("\n"), 1)
        self.assertRegex(mount.messages, rf"\Ackptfs: warning: {file}: model\.safetensors .*'q'")

    def test_equal_keys_are_there_once(self):
        file = self.saved({"a.b": torch.ones(1), "a": {"b": torch.zeros(1)}})
        mount = self.viewed(file, quiet=False)
        tensors, _ = self.assertTiled(mount / FILE)
        self.assertEqual(set(tensors), {"a.b"})
        self.assertEqual(left_out(mount), ["a.b"])
        self.assertTrue(torch.equal(load_file(mount / FILE)["a.b"], torch.ones(1)))

    def test_hostile_keys(self):
        keys = ["", ".", "..", "a/b", "__metadata__", "\n\x1b[31m", "\u202e", "\"\\", "x" * 5000,
                "\0", "model.safetensors", "\ud800"]
        mount = self.viewed(self.saved({key: torch.full((2,), i) for i, key in enumerate(keys)}),
                            quiet=False)
        tensors, _ = self.assertTiled(mount / FILE)
        self.assertEqual(set(keys) - set(tensors), {"__metadata__", "\ud800"})
        loaded = load_file(mount / FILE)
        for key in tensors:
            self.assertEqual(int(loaded[key][0]), keys.index(key))

    def test_strings_that_are_no_text_are_not_in_the_metadata(self):
        file = self.saved({"a": torch.ones(1), "half": "\ud800", "whole": "\U0001f600"})
        mount = self.viewed(file)
        with safe_open(mount / FILE, "pt") as file:
            self.assertEqual(file.metadata(), {"format": "pt", "whole": "\U0001f600"})

    def test_a_shape_that_the_reference_cannot_count_is_left_out(self):
        # It would refuse the whole file.
        file = self.scratch() / "m.pth"
        pickle = craft.mapping(
            (craft.text("ok"), craft.tensor("0", (2,))),
            (craft.text("huge"), craft.tensor("0", (2**40, 2**40, 0), 2, stride=(1, 1, 1))))
        craft.write_checkpoint(file, pickle, [("0", b"01234567")])
        mount = self.viewed(file, quiet=False)
        with safe_open(mount / FILE, "pt") as reference:
            self.assertEqual(list(reference.keys()), ["ok"])
        self.assertEqual(left_out(mount), ["huge"])
        self.assertFalse((mount / "huge.npy").exists())

    def test_a_file_of_safetensors_is_passed_through(self):
        file = self.scratch() / "x.safetensors"
        save_file({"a": torch.rand(5), "b": torch.rand(3).half()}, file, metadata={"who": "me"})
        mount = self.viewed(file)
        self.assertEqual(ckptfs.read(mount / FILE), ckptfs.read(file))

    def test_a_compressed_file_of_safetensors_is_not(self):
        file = self.scratch() / "x.safetensors"
        save_file({"a": torch.rand(5000), "b": torch.rand(3).half()}, file)
        subprocess.run(["gzip", file], check=True)
        mount = self.viewed(file.with_name(file.name + ".gz"))
        self.assertEqual(len(load_file(mount / FILE)), 2)

    def test_slices_read_only_what_they_need(self):
        weight = torch.rand(1000, 100)
        mount = self.viewed(self.saved({"w": weight}))
        with safe_open(mount / FILE, "pt") as file:
            self.assertTrue(torch.equal(file.get_slice("w")[10:20, 3:5], weight[10:20, 3:5]))

    def test_many_tensors_in_the_order_of_the_source(self):
        state = {f"layer.{i}.w": torch.full((i % 7 + 1,), float(i)) for i in range(3000)}
        mount = self.viewed(self.saved(state))
        loaded = load_file(mount / FILE)
        self.assertEqual(len(loaded), 3000)
        self.assertTrue(all(torch.equal(loaded[key], state[key]) for key in state))
        header, _ = header_of(mount / FILE)
        places = {line["key"]: line["file_offset"] for line in view.lines(mount.path)}
        order = [places[key] for key in header if key != "__metadata__"]
        self.assertEqual(order, sorted(order))


class Errors(Case):
    def truncated(self):
        """A mount whose source loses its second half."""
        state = {"a": torch.rand(1 << 18), "b": torch.rand(1 << 18)}
        file = self.saved(state)
        mount = self.viewed(file)
        return file, mount, state

    def test_a_truncated_source_is_stale(self):
        file, mount, _ = self.truncated()
        os.truncate(file, 1 << 20)
        for name in (FILE, "b.npy"):
            with self.assertRaises(OSError) as caught:
                ckptfs.read(mount / name)
            self.assertEqual(caught.exception.errno, errno.ESTALE)

    def test_a_truncated_source_is_a_bus_error_under_mmap(self):
        file, mount, _ = self.truncated()
        script = ("import mmap, os, sys\n"
                  "with open(sys.argv[1], 'rb') as f:\n"
                  "    m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)\n"
                  "os.truncate(sys.argv[2], 4096)\n"
                  "print(m[-4096:])\n")
        done = subprocess.run([sys.executable, "-c", script, mount / FILE, file],
                              capture_output=True, timeout=60)
        self.assertEqual(done.returncode, -signal.SIGBUS)
        self.assertEqual(done.stdout, b"")

    def test_a_lost_tensor_is_an_error_in_its_range_only(self):
        folder = self.scratch() / "model"
        folder.mkdir()
        for i, name in enumerate("abc"):
            save_file({name: torch.full((100_000,), float(i))}, folder / f"model-{i}.safetensors")
        (folder / "model.safetensors.index.json").write_text(json.dumps(
            {"weight_map": {name: f"model-{i}.safetensors" for i, name in enumerate("abc")}}))
        (folder / "model-1.safetensors").write_bytes(b"\0" * 100)
        mount = self.viewed(folder, quiet=False)
        tensors, begin = self.assertTiled(mount / FILE)
        for i, name in enumerate("abc"):
            if name not in tensors:
                continue
            first, last = tensors[name]["data_offsets"]
            if name == "b":
                with self.assertRaises(OSError) as caught:
                    ckptfs.read(mount / FILE, begin + first, 4)
                self.assertEqual(caught.exception.errno, errno.EIO)
            else:
                self.assertEqual(ckptfs.read(mount / FILE, begin + first, last - first),
                                 struct.pack("<f", i) * 100_000)
        self.assertLessEqual({"a", "c"}, set(tensors))

    def test_corrupt_bytes_are_refused_through_a_view(self):
        state = {name: torch.randint(0, 256, (1 << 20,), dtype=torch.uint8) for name in "ab"}
        file = self.saved(state)
        mount = self.mount(file)
        place = next(line["file_offset"] for line in view.lines(mount.path) if line["key"] == "b")
        mount.unmount()
        with open(file, "r+b") as changed:
            changed.seek(place + 1000)
            changed.write(bytes([int(state["b"][1000]) ^ 1]))
        mount = self.mount(file, "-o", "view=safetensors:npy,verify=enforce")
        header, begin = header_of(mount / FILE)
        first, last = header["b"]["data_offsets"]
        with self.assertRaises(OSError) as caught:
            ckptfs.read(mount / FILE, begin + first, last - first)
        self.assertEqual(caught.exception.errno, errno.EIO)
        # But for the page that it shares with the other one.
        page = mmap.PAGESIZE
        first, last = header["a"]["data_offsets"]
        self.assertEqual(ckptfs.read(mount / FILE, begin + first, last - first - page),
                         state["a"].numpy().tobytes()[:last - first - page])

    def test_an_unreadable_tensor_leaves_the_header_readable(self):
        """A page of the kernel holds the end of the header, but no byte of a tensor."""
        source = SAMPLES / "tensorizer/2.12.1-key.tensors.gz"
        mount = self.viewed(source, quiet=False)
        header_of(mount / FILE)  # An error here is a signal below.
        with safe_open(mount / FILE, "pt") as file:
            self.assertGreater(len(file.keys()), 1)
        lines = [line for line in view.lines(mount.path) if line["bytes"] > 0]
        with self.assertRaises(OSError):
            ckptfs.read(mount / lines[0]["path"])


class Npy(Case):
    def test_only_npy(self):
        mount = self.mount(self.saved({"a": {"w": torch.rand(2, 3)}, "b": torch.ones(())}),
                           "-o", "view=npy")
        self.assertEqual(sorted(os.listdir(mount.path)), ["a", "b.memmap", "b.npy", "meta.json"])
        self.assertEqual(numpy.load(mount / "b.npy").shape, ())
        self.assertEqual(numpy.load(mount / "a/w.npy", mmap_mode="r").shape, (2, 3))
        self.assertEqual(numpy.load(mount / "a.w.npy").shape, (2, 3))

    def test_a_member_of_that_name_is_stronger(self):
        mount = self.mount(self.saved({"a": torch.rand(2), "a.npy": {"x": torch.ones(1)}}),
                           "-o", "view=npy,flat")
        self.assertTrue((mount / "a.npy").is_dir())

    def test_it_does_not_disturb_tensordict(self):
        from tensordict import TensorDict
        mount = self.mount(self.saved({"a": {"w": torch.rand(2, 3)}}), "-o", "view=safetensors:npy")
        loaded = TensorDict.load_memmap(mount.path)
        self.assertEqual(set(loaded.keys(True, True)), {("a", "w")})


class Subtree(Case):
    def setUp(self):
        super().setUp()
        self.model = {"l.w": torch.rand(3), "l.b": torch.rand(2)}
        self.file = self.saved({"model": self.model, "ema.l.w": torch.zeros(3),
                                "optimizer": {"state": {0: {"m": torch.ones(4)}}}})

    def test_its_members_are_in_the_root(self):
        mount = self.mount(self.file, "-o", "subtree=model,view=safetensors")
        self.assertEqual(sorted(os.listdir(mount.path)), ["l", "meta.json", FILE])
        loaded = load_file(mount / FILE)
        self.assertEqual(set(loaded), set(self.model))
        self.assertTrue(torch.equal(loaded["l.w"], self.model["l.w"]))

    def test_a_path_of_several_keys(self):
        mount = self.mount(self.file, "-o", "subtree=optimizer/state/0")
        self.assertEqual(sorted(os.listdir(mount.path)), ["m.memmap", "meta.json"])

    def test_the_beginning_of_dotted_keys(self):
        mount = self.mount(self.file, "-o", "subtree=ema,view=safetensors")
        self.assertEqual(set(load_file(mount / FILE)), {"l.w"})

    def test_of_a_file_of_safetensors_it_is_not_passed_through(self):
        file = self.scratch() / "x.safetensors"
        save_file({"a.w": torch.rand(5), "b.w": torch.rand(3)}, file)
        mount = self.mount(file, "-o", "subtree=a,view=safetensors")
        self.assertEqual(set(load_file(mount / FILE)), {"w"})

    def test_one_that_is_missing(self):
        for path in ("modle", "model/x", "optimizer/state/0/m", "model/l/w"):
            with self.subTest(path):
                done = self.ckptfs("-o", f"subtree={path}", self.file, self.mountpoint())
                self.assertEqual(done.returncode, SOURCE, done.stderr)
                self.assertRegex(done.stderr, rf"\Ackptfs: {self.file}: subtree '{path}': .+\n\Z")
        done = self.ckptfs("-o", "subtree=modle", self.file, self.mountpoint())
        self.assertIn("'model'", done.stderr)


class Options(Case):
    def test_a_view_that_does_not_exist(self):
        for value in ("onnx", "safetensors:onnx", "none:npy", ":"):
            with self.subTest(value):
                done = self.ckptfs("-o", f"view={value}", "m.pth", self.mountpoint())
                self.assertEqual(done.returncode, USAGE, done.stderr)
                self.assertIn("option view", done.stderr)

    def test_none(self):
        mount = self.mount(self.saved({"a": torch.ones(1)}), "-o", "view=none")
        self.assertEqual(sorted(os.listdir(mount.path)), ["a.memmap", "meta.json"])
