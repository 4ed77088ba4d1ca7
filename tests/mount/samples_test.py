"""Every tensor of every sample, bit for bit, in each way in which people read it."""

import ast
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import ckptfs
import view

try:
    import numpy
    import oracle
    import torch
    from tensordict import TensorDict
except ImportError as error:
    numpy = None
    MISSING = str(error)

NEW, OLD = ckptfs.SAMPLES / "torch-2.13", ckptfs.SAMPLES / "torch-1.13"

# Not readable for torch and ckptfs: golden_test.py has the message for each.
BROKEN = {"failed_save.pth", "conjneg.pth", "sparse_csc.pth", "big.head512"}

# Read by something else than torch.load: archives_test.py.
ARCHIVES = {"script.pt", "script_attrs.pt", "traced.pt", "package.pt"}

# Readable for us only: torch writes protocol 0 and cannot read it.
OURS_ALONE = {"proto0_zip.pth", "proto0_legacy.pth"}


# What the integers are of a quantized tensor; of other types several share a byte.
INTEGERS = {"torch.qint8": "torch.int8", "torch.quint8": "torch.uint8", "torch.qint32": "torch.int32"}


def samples(folder):
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != "expected.json")
    return [f for f in files if f.name not in BROKEN]


def expected_tensors(sample):
    """What expected.json tells of a sample: as oracle.tensors does."""
    found, composite = {}, []
    containers = {tuple(map(str, c["path"])): c["how"] for c in sample["containers"]}

    def dotted(path):
        keys = []
        for depth, key in enumerate(path):
            parent = tuple(map(str, path[:depth]))
            if key in oracle.MODULE_PARTS and containers.get(parent) == "attrs":
                continue
            keys.append(key["repr"] if isinstance(key, dict) else str(key))
        return ".".join(keys) if path else "tensor"

    def add(keys, t):
        for name, part in t.get("parts", {}).items():
            add(f"{keys}.{name}", part)
        if t.get("sha256") is None:
            if "parts" not in t:
                composite.append(keys)
            return
        leaf = view.Leaf(t["dtype"], tuple(t["shape"]), t["sha256"])
        if "parts" in t:  # Quantized per channel: the integers.
            keys += ".int_repr"
            if t["dtype"] in INTEGERS:
                leaf = leaf._replace(dtype=INTEGERS[t["dtype"]])
            else:
                leaf = leaf._replace(dtype="torch.uint8", shape=(t["nbytes"],))
        found.setdefault(keys, []).append(leaf)

    for t in sample["tensors"]:
        add(dotted(t["path"]), t)
    for leaf in sample["leaves"]:
        if leaf.get("type") != "numpy.ndarray" or "sha256" not in leaf:
            continue
        kind = leaf["dtype"]
        dtype = numpy.dtype(ast.literal_eval(kind) if kind.startswith("[(") else kind)
        # The digest of a big-endian array is of its bytes as they are in the file.
        if not leaf["dtype"].startswith(">"):
            found.setdefault(dotted(leaf["path"]), []).append(
                oracle.array_description(dtype, tuple(leaf["shape"]), leaf["sha256"]))
    return {keys: sorted(leaves) for keys, leaves in found.items()}, composite


class Samples(ckptfs.Case):
    def setUp(self):
        if numpy is None:
            self.skip_avoidable(MISSING)

    def assertHolds(self, mount, expected, composite, ignored=()):
        found = view.tensors(mount.path)
        for keys in ignored:
            found.pop(keys, None)
        self.assertEqual(found, expected)
        # A value each, or where another tensor has the same keys, at least that.
        missing = set(composite) - set(view.values(mount.path)) - set(found)
        self.assertEqual(missing, set())

    def test_samples_of_torch_2_13_hold_what_torch_reads(self):
        expected = json.loads((NEW / "expected.json").read_text())
        for file in samples(NEW):
            with self.subTest(file.name):
                tensors, composite = expected_tensors(expected[file.name])
                mount = self.mount(file, quiet=False)
                constants = [keys for keys in view.tensors(mount.path) if file.name == "traced.pt"
                             and keys.startswith("constants.")]
                big_endian = [keys for keys in view.tensors(mount.path)
                              if keys.endswith("arr.be") and keys not in tensors]
                self.assertHolds(mount, tensors, composite, big_endian + constants)
                mount.unmount()

    def test_big_endian_arrays_of_numpy_are_little_endian_on_the_mount(self):
        mount = self.mount(NEW / "pyobjs_p5.pth", quiet=False)
        array = oracle.load(NEW / "pyobjs_p5.pth")["arr"]["be"]
        self.assertEqual(array.dtype, numpy.dtype(">i4"))
        self.assertEqual(view.tensors(mount.path)["arr.be"], [oracle.array_leaf(array)])

    def test_samples_of_torch_1_13_hold_what_torch_reads(self):
        for file in samples(OLD):
            if file.name in OURS_ALONE | ARCHIVES:
                continue
            with self.subTest(file.name):
                tensors, composite = oracle.tensors(oracle.load(file))
                mount = self.mount(file, quiet=False)
                self.assertHolds(mount, tensors, composite)
                mount.unmount()

    def test_a_checkpoint_of_protocol_0_which_torch_cannot_read(self):
        mount, other = self.mount(OLD / "proto0_zip.pth"), self.mount(OLD / "proto1_zip.pth")
        self.assertEqual(view.tensors(mount.path), view.tensors(other.path))

    def test_values_are_those_of_the_checkpoint(self):
        expected = json.loads((NEW / "expected.json").read_text())
        for name in ("train.pth", "lightning.ckpt", "optimizers.pth"):
            with self.subTest(name):
                sample = expected[name]
                mount = self.mount(NEW / name, quiet=False)
                found = {}
                for keys, datas in view.values(mount.path).items():
                    for data in datas:
                        found |= flat(data, keys)
                objects = [c["path"] for c in sample["containers"] if c["how"] == "attrs" or
                           c["type"] in ("set", "frozenset")]
                told = {".".join(map(str, leaf["path"])): leaf["value"] for leaf in sample["leaves"]
                        if "value" in leaf and not any(leaf["path"][:len(o)] == o for o in objects)
                        and all(isinstance(k, (str, int)) for k in leaf["path"])}
                self.assertGreater(len(told), 10)
                self.assertEqual({k: found.get(k, "missing") for k in told}, told)
                mount.unmount()

    def test_cat_and_numpy_read_the_same_bytes(self):
        mount = self.mount(NEW / "views.pth", quiet=False)
        for kind, keys, tensor in view.walk(mount.path):
            if kind != "tensor":
                continue
            with self.subTest(".".join(keys)):
                cat = subprocess.run(["cat", tensor.path], capture_output=True, check=True).stdout
                self.assertEqual(cat, ckptfs.read(tensor.path))
                self.assertEqual(numpy.fromfile(tensor.path, numpy.uint8).tobytes(), cat)
                if cat:
                    mapped = numpy.memmap(tensor.path, numpy.uint8, "r")
                    self.assertEqual(mapped.tobytes(), cat)

    def test_read_at_any_offset_and_length_gives_those_bytes(self):
        file = self.scratch() / "model.pth"
        torch.manual_seed(1)
        wide = torch.randint(0, 255, (300, 517), dtype=torch.uint8)
        torch.save({"dense": wide, "turned": wide.t(), "halved": wide[::2, 1::3]}, file)
        mount = self.mount(file)
        for name, tensor in ("dense", wide), ("turned", wide.t()), ("halved", wide[::2, 1::3]):
            whole = oracle.raw(tensor)
            path = mount / f"{name}.memmap"
            for offset, length in ((0, 1), (1, 1), (4095, 2), (4096, 4096), (516, 518),
                                   (len(whole) - 1, 1), (len(whole) - 1, 100), (len(whole), 10),
                                   (12345, 54321), (0, len(whole))):
                with self.subTest(name, offset=offset, length=length):
                    descriptor = os.open(path, os.O_RDONLY)
                    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                    found = os.pread(descriptor, length, offset)
                    os.close(descriptor)
                    self.assertEqual(found, whole[offset:offset + length])


def flat(data, keys):
    """{dotted keys: leaf} of JSON; empty containers have no leaf."""
    if isinstance(data, (dict, list)):
        pairs = data.items() if isinstance(data, dict) else enumerate(data)
        out = {}
        for key, member in pairs:
            out |= flat(member, f"{keys}.{key}")
        return out
    return {keys: data}


class Loaded(ckptfs.Case):
    """TensorDict.load_memmap of every sample."""

    def setUp(self):
        if numpy is None:
            self.skip_avoidable(MISSING)

    def loader(self, **environment):
        process = subprocess.Popen(
            [sys.executable, "-B", Path(__file__).with_name("loader.py")], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | environment)
        self.addCleanup(lambda: (process.stdin.close(), process.wait(), process.stdout.close()))

        def load(directory):
            process.stdin.write(json.dumps(str(directory)) + "\n")
            process.stdin.flush()
            answer = json.loads(process.stdout.readline())
            self.assertNotIn("", answer)
            return {tuple(json.loads(keys)): leaf for keys, leaf in answer.items()}
        return load

    def on_mount(self, directory, knows_encoding, prefix=()):
        """What load_memmap should give: keys as in meta.json, dtypes that tensordict knows."""
        found = {}
        for key, entry in view.entries(directory).items():
            # Before 0.13, a key with a slash is a path, and one with NUL is no path at all.
            name = view.encode(key) if knows_encoding else key
            if "dtype" in entry:
                path = Path(directory, f"{name}.memmap")
                if "\0" not in name and path.exists():
                    found[(*prefix, key)] = [entry["dtype"], entry["shape"],
                                             hashlib.sha256(ckptfs.read(path)).hexdigest()]
            elif entry["type"] == "TensorDict":
                path = Path(directory, name)
                if knows_encoding and not path.is_dir():
                    path = Path(directory, key)
                if "\0" not in str(path) and path.is_dir():
                    found |= self.on_mount(path, knows_encoding, (*prefix, key))
        return found

    def assertLoads(self, load, knows_encoding):
        for file in samples(NEW) + samples(OLD):
            with self.subTest(f"{file.parent.name}/{file.name}"):
                mount = self.mount(file, quiet=False)
                self.assertEqual(load(mount.path), self.on_mount(mount.path, knows_encoding))
                mount.unmount()

    def test_tensordict_loads_every_sample(self):
        self.assertLoads(self.loader(), knows_encoding=True)

    def test_tensordict_0_10_loads_every_sample(self):
        # It looks for files and directories under their raw names only. Files have both names, but
        # a directory has one: what is below "a b", which is there as "a%20b", it leaves out.
        old = os.environ.get("CKPTFS_OLD_TENSORDICT")
        if not old:
            self.skip_avoidable("$CKPTFS_OLD_TENSORDICT is not set")
        self.assertLoads(self.loader(PYTHONPATH=old), knows_encoding=False)

    def test_what_is_written_to_a_loaded_tensor_stays_in_memory(self):
        mount = self.mount(NEW / "state_dict.pth", quiet=False)
        before = view.tensors(mount.path)
        loaded = TensorDict.load_memmap(mount.path)
        name = next(k for k in loaded.keys(True, True)
                    if getattr(loaded.get(k), "dtype", None) is torch.float32)
        tensor = loaded.get(name)
        wanted = tensor.clone() + 1
        tensor.add_(1)
        self.assertTrue(torch.equal(loaded.get(name), wanted))
        self.assertEqual(view.tensors(mount.path), before)
        self.assertFalse(torch.equal(TensorDict.load_memmap(mount.path).get(name), wanted))

    def test_a_module_gets_its_parameters_from_the_mount(self):
        torch.manual_seed(2)

        def model():
            return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(),
                                       torch.nn.Sequential(torch.nn.BatchNorm1d(4)))
        file = self.scratch() / "model.pth"
        original = model()
        torch.save(original.state_dict(), file)

        def assert_restored(module):
            for name, value in original.state_dict().items():
                self.assertTrue(torch.equal(module.state_dict()[name], value), name)

        loaded = TensorDict.load_memmap(self.mount(file).path)
        restored = model()
        restored.load_state_dict(loaded.flatten_keys(".").to_dict())
        assert_restored(restored)
        restored = model()
        loaded.to_module(restored)
        assert_restored(restored)
        restored = model()
        loaded.to_module(restored, inplace=True)
        assert_restored(restored)
        restored = model()
        flat_loaded = TensorDict.load_memmap(self.mount(file, "-o", "flat").path)
        restored.load_state_dict(
            {k: v.as_subclass(torch.Tensor) for k, v in flat_loaded.items()}, assign=True)
        assert_restored(restored)
