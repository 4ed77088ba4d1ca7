"""What zipslicer does, done by a mount: see docs/compatibility/zipslicer.md for the table.

zipslicer is a Python package that loads tensors of a checkpoint one by one. Its own tests are
repeated here with its expectations, and then what it says it cannot do, or not yet.
"""

import json
import os
import random
import shutil
import struct
import zipfile
from pathlib import Path

import ckptfs
import craft
import view
from ckptfs import SAMPLES
from craft import Record, mapping, tensor

try:
    import numpy as np
    import oracle
    import safetensors.torch
    import torch
    from tensordict import TensorDict
except ImportError as error:
    torch = None
    MISSING = str(error)

TEN_DTYPES = ("float64", "float32", "bfloat16", "float16", "int64", "int32", "int16", "uint8",
              "int8", "bool")
MIB = 1 << 20


# ---- What users of a mount write, as in docs/examples.md.

def tensors(folder, prefix=""):
    """Yields key, dtype, shape and file of each tensor below a directory of a mount."""
    for name, entry in json.load(open(f"{folder}/meta.json")).items():
        if isinstance(entry, dict) and "dtype" in entry:
            yield prefix + name, entry["dtype"][6:], entry["shape"], f"{folder}/{name}.memmap"
        elif isinstance(entry, dict) and entry.get("type") == "TensorDict":
            yield from tensors(f"{folder}/{name}", f"{prefix}{name}.")


def rows(file, dtype, shape, rank, ranks):
    whole = np.memmap(file, dtype, "r", shape=tuple(shape))
    return np.array_split(whole, ranks)[rank]


def columns(file, dtype, shape, rank, ranks):
    whole = np.memmap(file, dtype, "r", shape=tuple(shape))
    return np.array_split(whole, ranks, axis=1)[rank].copy()


def to_npz(mount, path):
    with zipfile.ZipFile(path, "w") as npz:
        for key, dtype, shape, file in tensors(mount):
            with npz.open(f"{key}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.fromfile(file, dtype).reshape(shape))


NAMES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "bool": "BOOL",
         "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8", "uint8": "U8"}


def to_safetensors(mount, path):
    header, end = {}, 0
    for key, dtype, shape, file in tensors(mount):
        begin, end = end, end + os.path.getsize(file)
        header[key] = {"dtype": NAMES[dtype], "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for *_, file in tensors(mount):
            shutil.copyfileobj(open(file, "rb"), out)


class Zipslicer(ckptfs.Case):
    def setUp(self):
        if torch is None:
            self.skip_avoidable(MISSING)
        torch.manual_seed(0)
        self.file = self.scratch() / "model.pth"

    def save(self, root, **options):
        torch.save(root, self.file, **options)
        return self.mount(self.file)

    def assertHolds(self, mount, root):
        """All tensors of `root` and no others: keys both ways, dtypes, shapes and bytes."""
        self.assertEqual(view.tensors(mount.path), oracle.tensors(root)[0])

    def read_by(self, mount):
        """The number of bytes that the daemon has read so far."""
        with open(f"/proc/{mount.daemon}/io") as lines:
            return int(next(lines).split()[1])


class Theirs(Zipslicer):
    """The cases of zipslicer's tests, in its order."""

    def test_basic(self):
        root = {"a": torch.rand(2, 3), "b": torch.rand(4).bfloat16()}
        self.assertHolds(self.save(root), root)

    def test_basic_is_lazy(self):
        root = {"a": torch.rand(MIB // 4), "b": torch.rand(8 * MIB // 4)}
        mount = self.save(root)
        before = self.read_by(mount)
        self.assertEqual(ckptfs.read(mount / "a.memmap"), oracle.raw(root["a"]))
        self.assertLess(self.read_by(mount) - before, 1.5 * MIB)

    def test_various_dtypes(self):
        rng = random.Random(1)
        root = {}
        for name in TEN_DTYPES:
            key = ".".join(str(rng.randrange(100)) for _ in range(rng.randint(1, 5)))
            shape = [rng.randint(1, 20) for _ in range(3)]
            root[key] = (torch.rand(shape) * 100 - 50).to(getattr(torch, name))
        self.assertEqual(len(root), len(TEN_DTYPES))
        self.assertHolds(self.save(root), root)

    def layers(self):
        return torch.nn.ModuleList([torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)])

    def test_nn_sdict(self):
        root = self.layers().state_dict()
        self.assertEqual(len(root), 4)
        self.assertHolds(self.save(root), root)

    def test_nn_sdict_w_extra_state(self):
        state = {"a": (1 << 64) - 1, "b": "some text", "c": [1, 2, 3]}

        class Layer(torch.nn.Linear):
            def get_extra_state(self):
                return state

            def set_extra_state(self, _):
                pass
        root = torch.nn.ModuleList([Layer(8, 8), Layer(8, 8)]).state_dict()
        mount = self.save(root)
        self.assertHolds(mount, root)
        found = view.values(mount.path)
        for key in "0._extra_state", "1._extra_state":
            # JSON has no integers beyond 64 bits with sign: this one is its digits.
            self.assertEqual(found[key], [state | {"a": str(state["a"])}])
        entry = view.entries(mount / "0")["_extra_state"]
        self.assertEqual(entry["python_types"], {"/a": "int"})
        self.assertNotIn("dtype", entry)

    def test_nn_pickle_raises(self):
        # It asks people to save the state_dict instead. A mount shows what that would be.
        module = self.layers()
        self.assertHolds(self.save(module), module.state_dict())

    def test_checkpoint_readonly(self):
        file = SAMPLES / "demo.pth"
        mount = self.mount(file)
        wanted, _ = oracle.tensors(torch.load(file, weights_only=False))
        subset = random.Random(2).sample(sorted(wanted), len(wanted) // 2)
        metas = {key: tensor for key, tensor in self.found(mount)}
        self.assertEqual(sorted(metas), sorted(wanted))
        for key, what in metas.items():
            with self.subTest(key):
                self.assertEqual((what.dtype, what.shape), wanted[key][0][:2])
        for key in subset:
            with self.subTest(key):
                self.assertEqual([metas[key].leaf()], wanted[key])

    def found(self, mount):
        return ((".".join(keys), what) for kind, keys, what in view.walk(mount.path)
                if kind == "tensor")


class Limits(Zipslicer):
    """What zipslicer cannot read, or reads wrong."""

    def test_the_stream_of_old_torch(self):
        root = {"a": torch.rand(2, 3), "b": torch.arange(5)}
        self.assertHolds(self.save(root, _use_new_zipfile_serialization=False), root)

    def test_any_pickle_protocol(self):
        root = {"a": torch.rand(2, 3), "b": torch.arange(5)}
        for protocol in 2, 3, 4, 5:
            with self.subTest(protocol):
                with self.save(root, pickle_protocol=protocol) as mount:
                    self.assertHolds(mount, root)

    def test_a_training_checkpoint(self):
        model = torch.nn.Linear(3, 3)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.25)
        model(torch.rand(2, 3)).sum().backward()
        optimizer.step()
        root = {"epoch": 3, "loss": 0.5, "model": model.state_dict(),
                "optimizer": optimizer.state_dict()}
        mount = self.save(root)
        self.assertHolds(mount, root)
        self.assertEqual(view.values(mount.path)["loss"], [0.5])
        self.assertEqual(view.values(mount.path)["optimizer.param_groups"][0][0]["lr"], 0.25)

    def test_complex_numbers_parameters_storages_and_nested_lists(self):
        root = {"c": torch.rand(3, dtype=torch.complex64), "p": torch.nn.Parameter(torch.rand(2)),
                "s": torch.rand(3).untyped_storage(), "l": [torch.rand(2), (torch.rand(1),)],
                "q": torch.quantize_per_tensor(torch.rand(4), 0.1, 3, torch.quint8)}
        self.assertHolds(self.save(root), root)

    def test_views_that_are_not_contiguous(self):
        # zipslicer gives out other elements here, and no warning.
        whole = torch.arange(42.).reshape(6, 7)
        root = {"columns": whole[:, 1:3], "step": whole[::2], "turned": whole.t(),
                "expanded": whole[0].expand(3, 7), "one": whole[2, 3]}
        self.assertHolds(self.save(root), root)

    def test_a_folder_whose_name_ends_as_a_record_begins(self):
        # zipslicer takes the first record whose name ends with "data/1".
        root = mapping(("a", tensor("1", [6])))
        good, bad = bytes(range(24)), bytes(24)
        craft.write_archive(self.file, [Record("data.pkl", craft.PROTO + root + craft.STOP),
                                        Record("x/data/1", bad), Record("data/1", good),
                                        Record("version", b"3\n")], folder="metadata")
        self.assertEqual(ckptfs.read(self.mount(self.file) / "a.memmap"), good)

    def test_one_of_four_thousand_tensors_costs_no_more_than_one_of_ten(self):
        root = {f"layer.{i}": torch.full((4,), float(i)) for i in range(4_000)}
        mount = self.save(root)
        before = self.read_by(mount)
        self.assertEqual(np.fromfile(mount / "layer.3999.memmap", np.float32).tolist(), [3999.] * 4)
        # The requests of the kernel count, too.
        self.assertLess(self.read_by(mount) - before, 4096)


class Prospects(Zipslicer):
    """What zipslicer's README would like to have."""

    def test_slices_for_tensor_parallelism(self):
        weight = torch.rand(10, 7)
        mount = self.save({"weight": weight, "last": torch.rand(3)})
        _, dtype, shape, file = next(iter(tensors(mount.path)))
        for rank, wanted in enumerate(weight.tensor_split(3)):
            with self.subTest(rank=rank):
                self.assertEqual(rows(file, dtype, shape, rank, 3).tolist(), wanted.tolist())
        for rank, wanted in enumerate(weight.tensor_split(3, dim=1)):
            with self.subTest(rank=rank):
                self.assertEqual(columns(file, dtype, shape, rank, 3).tolist(), wanted.tolist())

    def test_a_slice_of_rows_reads_no_other_rows(self):
        mount = self.save({"weight": torch.rand(16 * MIB // 4).reshape(1024, -1)})
        _, dtype, shape, file = next(iter(tensors(mount.path)))
        before = self.read_by(mount)
        rows(file, dtype, shape, 3, 8).sum()
        self.assertLess(self.read_by(mount) - before, 5 * MIB)

    def checkpoint(self):
        whole = torch.rand(4, 6)
        return {"model": {"a.weight": whole, "a.bias": torch.rand(6).half(),
                          "turned": whole.t(), "scalar": torch.tensor(5),
                          "empty": torch.empty(0, 3), "flags": torch.tensor([True, False])},
                "epoch": 3}

    def test_conversion_to_safetensors(self):
        root = self.checkpoint()
        root["model"]["half"] = torch.rand(5).bfloat16()
        mount = self.save(root)
        target = self.file.with_name("model.safetensors")
        to_safetensors(mount.path, target)
        converted = safetensors.torch.load_file(target)
        self.assertEqual(oracle.tensors(converted)[0], oracle.tensors(root)[0])

    def test_conversion_to_npz(self):
        root = self.checkpoint()
        mount = self.save(root)
        target = self.file.with_name("model.npz")
        to_npz(mount.path, target)
        with np.load(target) as arrays:
            self.assertEqual(oracle.tensors(dict(arrays))[0], oracle.tensors(root)[0])

    def assertIncremental(self, convert):
        """A conversion of 256 MiB takes the memory of one tensor, 64 MiB, and not of all."""
        craft.write_checkpoint(
            self.file, mapping(*((f"t{i}", tensor(str(i), [16 * MIB])) for i in range(4))),
            [(str(i), Record(f"data/{i}", hole=64 * MIB)) for i in range(4)])
        mount = self.mount(self.file)
        target = self.file.with_name("converted")
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                Path("/proc/self/clear_refs").write_text("5")  # Forgets the peak so far.
                before = self.peak()
                convert(mount.path, target)
                os.write(writing, str(self.peak() - before).encode())
            finally:
                os._exit(0)
        os.close(writing)
        os.waitpid(pid, 0)
        with os.fdopen(reading) as answer:
            self.assertLess(int(answer.read()), 100 << 10)
        self.assertGreaterEqual(target.stat().st_size, 256 * MIB)

    def peak(self):
        with open("/proc/self/status") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

    def test_conversion_to_safetensors_takes_one_tensor_at_a_time(self):
        self.assertIncremental(to_safetensors)

    def test_conversion_to_npz_takes_one_tensor_at_a_time(self):
        self.assertIncremental(to_npz)

    def test_writing_in_place(self):
        # Where its bytes are is in tensors.jsonl, so that they can be overwritten with plain writes.
        root = {"a": torch.zeros(6), "b": torch.ones(6)}
        mount = self.save(root)
        place = view.places(mount.path)[mount / "a.memmap"]["file_offset"]
        mount.unmount()
        with open(self.file, "r+b") as file:
            file.seek(place)
            file.write(np.arange(6, dtype=np.float32).tobytes())
        wanted = {"a": torch.arange(6.), "b": torch.ones(6)}
        self.assertHolds(self.mount(self.file), wanted)
        self.assertEqual(oracle.tensors(torch.load(self.file)), oracle.tensors(wanted))

    def test_overlays_of_checkpoints(self):
        base = self.save({"layer": {"w": torch.zeros(3), "b": torch.zeros(2)}})
        other = self.file.with_name("other.pth")
        torch.save({"layer": {"w": torch.ones(3)}}, other)
        merged = TensorDict.load_memmap(base.path)
        merged.update(TensorDict.load_memmap(self.mount(other).path))
        self.assertEqual(merged["layer", "w"].tolist(), [1.] * 3)
        self.assertEqual(merged["layer", "b"].tolist(), [0.] * 2)

    def test_saving_what_was_mounted(self):
        root = {"layer": {"w": torch.rand(3), "b": torch.rand(2, 2)}}
        mount = self.save(root)
        again = self.file.with_name("again.pth")
        # A tensor that load_memmap has mapped is pickled by the name of its file; a clone is not.
        torch.save(TensorDict.load_memmap(mount.path).clone().to_dict(), again)
        self.assertHolds(self.mount(again), root)
