"""What tensordict has saved, on a mount: TensorDict.load_memmap gives what it gives without one.

Samples are of tensordict 0.3.2 to 0.15.3; random ones are saved here and now, in each of the three
ways. Values that cannot be equal, and what a mount shows instead, are listed in docs/compatibility/tensordict.md.
"""

import json
import math
import os
import random
import shutil
import struct
import sys
import warnings
import zipfile
from pathlib import Path

import ckptfs
import view
from ckptfs import CORRUPT, FORMAT, SAMPLES

try:
    import tensordict
    import torch
    from tensordict import (LazyStackedTensorDict, NonTensorData, NonTensorStack, TensorDict,
                            is_tensorclass, lazy_stack, tensorclass)
    warnings.simplefilter("ignore")

    @tensorclass
    class Episode:
        """What users make of their own: tensors, and fields that are none."""
        steps: torch.Tensor
        name: str
        info: object
        inner: TensorDict = None
except ImportError as error:
    tensordict = None
    MISSING = str(error)

FOLDER = SAMPLES / "tensordict"
COUNT = 3 if ckptfs.IS_SANITIZED else 6

KEYS = ["a", "A", "a.b", "a.b.c", "layer.0.weight", "x y", "p/q", "é", ".", "..", "%41", "c:d",
        "type", "m.memmap", "0", "data", "_names", "tab\there", "k" * 200, "_source"]

DTYPES = ("bool uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 bfloat16 float32 float64 "
          "complex32 complex64 complex128").split()


def as_json(value):
    """The JSON that a mount has of a value, as Python reads it."""
    if isinstance(value, dict):
        return {str(k): as_json(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [as_json(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, int) and not -1 << 63 <= value < 1 << 64:
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, complex):
        return [value.real, value.imag]
    if isinstance(value, type):
        return f"builtins.{value.__name__}"
    return value


class Case(ckptfs.Case):
    def setUp(self):
        if tensordict is None:
            self.skip_avoidable(MISSING)

    def assertSameTensor(self, mine, wanted):
        self.assertEqual((mine.dtype, mine.is_nested), (wanted.dtype, wanted.is_nested))
        if wanted.is_nested:
            for one, other in zip(mine.unbind(0), wanted.unbind(0), strict=True):
                self.assertSameTensor(one, other)
            return
        self.assertEqual(mine.shape, wanted.shape)
        if wanted.numel():
            self.assertTrue(torch.equal(*(
                t.as_subclass(torch.Tensor).contiguous().reshape(-1).view(torch.uint8)
                for t in (mine, wanted))))

    def assertSame(self, mine, wanted):
        """Classes, keys, batch sizes, names, devices, types, shapes, bits, and values."""
        if isinstance(wanted, torch.Tensor):
            self.assertSameTensor(mine, wanted)
            return
        self.assertIs(type(mine), type(wanted))
        self.assertEqual(mine.batch_size, wanted.batch_size)
        if isinstance(wanted, NonTensorStack):
            self.assertEqual(mine.tolist(), as_json(wanted.tolist()))
        elif isinstance(wanted, NonTensorData):
            self.assertEqual(mine.data, as_json(wanted.data))
        elif is_tensorclass(wanted):
            self.assertEqual(mine._non_tensordict, as_json(wanted._non_tensordict))
            self.assertSame(mine._tensordict, wanted._tensordict)
        elif isinstance(wanted, LazyStackedTensorDict):
            self.assertEqual(mine.stack_dim, wanted.stack_dim)
            for one, other in zip(mine.tensordicts, wanted.tensordicts, strict=True):
                self.assertSame(one, other)
        else:
            self.assertEqual((mine.names, mine.device), (wanted.names, wanted.device))
            self.assertEqual(set(mine.keys()), set(wanted.keys()))
            for key in wanted.keys():
                self.assertSame(mine._get_str(key, None), wanted._get_str(key, None))

    def assertMounts(self, source, wanted):
        with self.mount(source) as mount:
            mine = TensorDict.load_memmap(mount.path)
            self.assertSame(mine, wanted)
            del mine  # It is mapped, and keeps the mount busy.
            self.assertEqual(ckptfs.meta(mount.path).get("_ckptfs", {}).get("format", "tensordict"),
                             "tensordict")


class Samples(Case):
    def test_every_directory_is_loaded_as_without_a_mount(self):
        for folder in sorted(FOLDER.glob("tensordict_*")):
            if folder.is_dir():
                with self.subTest(folder.name):
                    # Version 0.3.2 did not list collections, and later ones find none.
                    listed = self.scratch() / "listed"
                    shutil.copytree(folder, listed)
                    for meta in listed.rglob("meta.json"):
                        members = json.loads(meta.read_text())
                        if "NonTensor" not in members["_type"]:
                            for below in meta.parent.iterdir():
                                if below.is_dir():
                                    members.setdefault(below.name, {"type": "TensorDict"})
                        meta.write_text(json.dumps(members))
                    self.assertMounts(folder, TensorDict.load_memmap(listed))

    def test_every_archive_is_loaded_as_without_a_mount(self):
        for name in ("tensordict_0.14.tdz", "tensordict_0.15.3.tdz"):
            with self.subTest(name):
                self.assertMounts(FOLDER / name, TensorDict.load_memmap(FOLDER / name))

    def test_every_consolidated_file_is_loaded_as_without_a_mount(self):
        for name in ("tensordict_consolidated_0.14.bin", "tensordict_consolidated_0.15.3.bin"):
            with self.subTest(name):
                self.assertMounts(FOLDER / name, TensorDict.from_consolidated(FOLDER / name))

    def test_a_directory_may_be_named_by_its_meta_json(self):
        folder = FOLDER / "tensordict_memmap_v0.15.3"
        self.assertMounts(folder / "meta.json", TensorDict.load_memmap(folder))

    def test_a_copy_of_a_mount_is_mounted_again(self):
        copy = self.scratch() / "copy"
        with self.mount(FOLDER / "tensordict_0.15.3.tdz") as mount:
            shutil.copytree(mount.path, copy)
        self.assertMounts(copy, TensorDict.load_memmap(FOLDER / "tensordict_0.15.3.tdz"))

    def test_tensordict_0_10_loads_the_same_tensors(self):
        old = os.environ.get("CKPTFS_OLD_TENSORDICT")
        if not old:
            self.skip_avoidable("$CKPTFS_OLD_TENSORDICT is not set")
        folders = [FOLDER / "tensordict_memmap_v0.14.0", FOLDER / "tensordict_0.15.3.tdz",
                   FOLDER / "tensordict_consolidated_0.15.3.bin"]
        mounts = [self.mount(folder).path for folder in folders]
        done = ckptfs.run(sys.executable, "-B", Path(__file__).with_name("loader.py"),
                          input="".join(json.dumps(str(m)) + "\n" for m in mounts), stdin=None,
                          env=os.environ | {"PYTHONPATH": old}, timeout=120)
        for mount, line in zip(mounts, done.stdout.splitlines(), strict=True):
            # Before 0.13, a key with a slash is a path.
            wanted = {json.dumps(keys): [tensor.dtype, list(tensor.shape), tensor.leaf().sha256]
                      for kind, keys, tensor in view.walk(mount)
                      if kind == "tensor" and "/" not in keys[-1]}
            self.assertTrue(wanted)
            self.assertEqual(json.loads(line), wanted)


class Maker:
    """Makes a TensorDict as people save them, and stranger ones, from a seed."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.has_names = seed % 2 == 1

    def tensor(self, batch, is_json):
        # Consolidated ones of complex128 have to lie at multiples of 16, and do not always.
        dtype = getattr(torch, self.random.choice(DTYPES[:-1] if is_json else DTYPES))
        shape = [*batch, *(self.random.choice((0, 1, 2, 3, 7))
                           for _ in range(self.random.randint(0, 3)))]
        count = math.prod(shape)
        data = self.random.randbytes(count * dtype.itemsize)
        if dtype is torch.bool:
            data = bytes(b & 1 for b in data)
        flat = torch.frombuffer(bytearray(data or b"\0" * 16), dtype=torch.uint8)[:len(data)]
        return flat.clone().view(dtype).reshape(shape)

    def value(self, is_json):
        values = [None, True, -5, 2.5, "text", "\u00e9\0\"", float("nan"), float("-inf"), 1 << 70,
                  [1, [2.5, None]], {"a": {"b": [1]}}, [], {}, 2**64 - 1]
        if not is_json:
            values += [(1, (2, "x")), b"\0\xff", {1: 2}, 1 + 2j, dict]
        return self.random.choice(values)

    def info(self, is_json):
        """A value that tensordict does not take for a tensor or a TensorDict."""
        return self.random.choice(["t", None, *([] if is_json else [(1, {2: 3}), {"x"}])])

    def tensordict(self, depth=2, batch=(), is_json=False):
        # With names for all or for none: a TensorDict takes over those of what is put into it.
        names = [f"dim{i}" for i in range(len(batch))] if batch and self.has_names else None
        td = TensorDict({}, batch, names=names)
        # A member of that name leaves no room for the names of dimensions.
        keys = [key for key in KEYS if not (self.has_names and key == "_names")]
        for key in self.random.sample(keys, self.random.randint(1, 8)):
            choice = self.random.randrange(10 if depth else 5)
            if choice < 4:
                content = self.tensor(batch, is_json)
            elif choice == 4:
                content = NonTensorData(self.value(is_json), batch_size=batch)
            elif choice < 7:
                more = [self.random.randint(1, 3)] if self.random.random() < 0.5 else []
                content = self.tensordict(depth - 1, (*batch, *more), is_json)
            elif choice == 7:
                content = Episode(steps=self.tensor(batch, is_json), name="n", info=self.info(is_json),
                                  inner=self.tensordict(0, batch, is_json), batch_size=batch)
            elif choice == 8 and not batch:
                content = lazy_stack([self.tensordict(depth - 1, (), is_json) for _ in range(2)])
            else:
                content = self.tensor(batch, is_json)
            td._set_str(key, content, validated=True, inplace=False)
        if not batch and not is_json and depth == 2:
            td["stack of values"] = NonTensorStack(*(self.value(True) for _ in range(3)))
        return td


class Written(Case):
    """What tensordict saves here and now."""

    def test_random_directories(self):
        for seed in range(COUNT):
            with self.subTest(seed=seed):
                path = self.scratch() / "td"
                Maker(seed).tensordict().memmap(path)
                self.assertMounts(path, TensorDict.load_memmap(path))

    def test_random_archives(self):
        for seed in range(COUNT):
            with self.subTest(seed=seed):
                path = self.scratch() / "td.tdz"
                Maker(seed).tensordict().save(path)
                self.assertMounts(path, TensorDict.load_memmap(path))

    def test_random_compressed_archives(self):
        for method in ("deflate", "bzip2", "lzma"):
            with self.subTest(method):
                directory, path = self.scratch() / "td", self.scratch() / "td.tdz"
                Maker(7).tensordict().memmap(directory)
                tensordict.pack_memmap(directory, path, compression=method)
                self.assertMounts(path, TensorDict.load_memmap(path))

    def test_random_consolidated_files(self):
        for seed in range(COUNT):
            with self.subTest(seed=seed):
                path = self.scratch() / "td.bin"
                original = Maker(seed).tensordict(is_json=True)
                original.consolidate(path)
                self.assertMounts(path, original)


class Theirs(Case):
    """What tensordict itself tests of what it saves: see docs/compatibility/tensordict.md."""

    def saved(self, td, **options):
        path = self.scratch() / "td"
        td.memmap(path, **options)
        return path

    def test_nested_tensors(self):
        td = TensorDict({"n": torch.nested.nested_tensor([torch.rand(2, 3), torch.rand(1, 5)]),
                         "empty": torch.nested.nested_tensor([torch.rand(0, 3), torch.rand(4, 3)])})
        path = self.saved(td)
        self.assertMounts(path, TensorDict.load_memmap(path))

    def test_jagged_tensors_are_put_together_by_their_recipe(self):
        values, offsets = torch.rand(9, 2), torch.tensor([0, 2, 2, 9])
        td = TensorDict({"j": torch.nested.nested_tensor_from_jagged(values, offsets),
                         "holes": torch.nested.nested_tensor_from_jagged(
                             values, offsets, lengths=torch.tensor([1, 0, 4]))})
        path = self.scratch() / "td.bin"
        td.consolidate(path)
        mount = self.mount(path)
        loaded = TensorDict.load_memmap(mount.path)
        for key in ("j", "holes"):
            recipe = ckptfs.meta(mount / key)["_ckptfs"]["recipe"]
            parts = {name: tensor.as_subclass(torch.Tensor)
                     for name, tensor in loaded[key].items()}
            mine = eval(recipe, {"torch": torch}, parts)
            for one, other in zip(mine.unbind(0), td[key].unbind(0), strict=True):
                self.assertTrue(torch.equal(one, other))

    def test_float8_which_tensordict_cannot_load(self):
        tensor = torch.arange(6, dtype=torch.float32).view(2, 3).to(torch.float8_e4m3fn)
        mount = self.mount(self.saved(TensorDict({"w": tensor})))
        loaded = TensorDict.load_memmap(mount.path)["w"].view(torch.float8_e4m3fn)
        self.assertEqual(loaded.shape, tensor.shape)
        self.assertTrue(torch.equal(loaded.view(torch.uint8), tensor.view(torch.uint8)))

    def test_robust_keys(self):
        keys = ["a", "a/b", "../outside", "a%2Fb", "a\\b", "a b", "a:b", "<a>", "a\0", "\n", "%"]
        td = TensorDict({key: torch.full((3,), i) for i, key in enumerate(keys)})
        td["sub"] = td.clone()
        path = self.saved(td)
        self.assertMounts(path, TensorDict.load_memmap(path))

    def test_legacy_keys(self):
        td = TensorDict({"a b": torch.rand(2), "a.b": torch.rand(2), "%41": torch.rand(3)})
        path = self.saved(td, robust_key=False)
        self.assertTrue((path / "a b.memmap").exists())
        self.assertMounts(path, TensorDict.load_memmap(path))

    def test_classes_at_the_root(self):
        episode = Episode(steps=torch.rand(2, 3), name="n", info=(1, "x"), batch_size=[2])
        stack = lazy_stack([TensorDict({"a": torch.rand(3)}), TensorDict({"a": torch.rand(4)})])
        for td in (episode, stack):
            with self.subTest(type(td).__name__):
                path = self.saved(td)
                self.assertMounts(path, TensorDict.load_memmap(path))

    def test_lazy_views(self):
        with tensordict.set_lazy_legacy(True):
            td = TensorDict({"a": torch.rand(2, 3, 4)}, [2, 3])
            for view in (td.permute(1, 0), td.unsqueeze(0), td.view(6)):
                with self.subTest(type(view).__name__):
                    path = self.saved(view)
                    mine = TensorDict.load_memmap(self.mount(path).path)
                    self.assertIs(type(mine), type(view))
                    self.assertEqual(mine.batch_size, view.batch_size)
                    self.assertTrue(torch.equal(mine["a"], view["a"]))

    def test_stacks_of_what_json_cannot_hold(self):
        td = TensorDict({"s": NonTensorStack(NonTensorData((1, b"x")), NonTensorData((3, b"y")))})
        mine = TensorDict.load_memmap(self.mount(self.saved(td)).path)
        stack = mine._get_str("s", None)
        self.assertEqual(stack.batch_size, torch.Size([2]))
        self.assertEqual([item.data for item in stack.tensordicts], [[1, "78"], [3, "79"]])

    def test_no_pickle_is_left_on_a_mount(self):
        td = TensorDict({"v": NonTensorData((1, {2: b"x"}))})
        path = self.saved(td)
        with self.assertRaises(RuntimeError):
            TensorDict.load_memmap(path, allow_pickle=False)
        mount = self.mount(path)
        mine = TensorDict.load_memmap(mount.path, allow_pickle=False)
        self.assertEqual(mine._get_str("v", None).data, [1, {"2": "78"}])
        self.assertEqual(ckptfs.meta(mount.path)["v"]["python_types"],
                         {"/1": "dict[int]", "/1/2": "bytes"})

    def test_a_cuda_device_is_the_cpu_on_a_mount(self):
        path = self.saved(TensorDict({"a": torch.rand(2)}))
        meta = json.loads((path / "meta.json").read_text())
        meta["device"] = "cuda:0"
        (path / "meta.json").write_text(json.dumps(meta))
        mount = self.mount(path)
        self.assertEqual(TensorDict.load_memmap(mount.path).device, torch.device("cpu"))
        self.assertEqual(ckptfs.meta(mount.path)["_ckptfs"]["saved_device"], "cuda:0")

    def test_a_part_is_loaded_by_its_path(self):
        td = TensorDict({"a": {"b": {"c": torch.rand(2)}}})
        mount = self.mount(self.saved(td))
        self.assertTrue(torch.equal(TensorDict.load_memmap(mount / "a" / "b")["c"],
                                    td["a", "b", "c"]))

    def test_more_tensors_than_a_process_may_have_files(self):
        path = self.scratch() / "td"
        path.mkdir()
        entry = {"device": "cpu", "shape": [], "dtype": "torch.int64", "is_nested": False}
        for i in range(1300):
            (path / f"t{i}.memmap").write_bytes(struct.pack("<q", i))
        (path / "meta.json").write_text(json.dumps(
            {f"t{i}": entry for i in range(1300)} |
            {"shape": [], "device": "cpu", "_type": Hostile.TYPE}))
        mountpoint = self.mountpoint()
        done = ckptfs.run("sh", "-c", 'ulimit -n 1100; exec "$@"', "sh", ckptfs.CKPTFS, path,
                          mountpoint)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.addCleanup(ckptfs.Mount(mountpoint, self.daemon_of(mountpoint), "").release)
        loaded = TensorDict.load_memmap(mountpoint)
        self.assertEqual([int(loaded[f"t{i}"]) for i in range(1300)], list(range(1300)))


class Hostile(ckptfs.Case):
    """Damage of one member costs that member; nothing costs more than a second and 64 MiB."""

    TYPE = "<class 'tensordict._td.TensorDict'>"

    def setUp(self):
        self.folder = self.scratch() / "td"

    def write(self, entries, directory=None, **files):
        """A meta.json with these entries, and files beside it."""
        directory = directory or self.folder
        directory.mkdir(parents=True, exist_ok=True)
        meta = entries | {"shape": [], "device": "cpu", "_type": self.TYPE}
        (directory / "meta.json").write_text(json.dumps(meta))
        for name, data in files.items():
            (directory / f"{name}.memmap").write_bytes(data)

    def bytes_entry(self, count):
        return {"shape": [count], "dtype": "torch.uint8", "is_nested": False}

    def assertMountsWith(self, source, warning):
        """`source` mounts within bounds, with one warning; returns the mount point."""
        code, said, mountpoint = self.assertBounded(source)
        self.assertEqual((code, said), (0, f"ckptfs: warning: {source}: {warning}\n"))
        return mountpoint

    def test_a_pipe_or_a_directory_in_place_of_a_file_costs_its_tensor(self):
        for what, make in {"not a regular file": os.mkfifo, "is a directory": os.mkdir}.items():
            with self.subTest(what):
                self.folder = self.scratch() / "td"
                self.write({"t": self.bytes_entry(2), "u": self.bytes_entry(2)}, u=b"01")
                make(self.folder / "t.memmap")
                mount = self.assertMountsWith(
                    self.folder, f"tensor 't': {what}: reading it will fail")
                self.assertErrno(5, ckptfs.read, mount / "t.memmap")
                self.assertEqual(ckptfs.read(mount / "u.memmap"), b"01")

    def test_links_to_directories_are_not_followed(self):
        self.write({"up": {"type": "TensorDict"}, "t": self.bytes_entry(2)}, t=b"01")
        (self.folder / "up").symlink_to(".")
        mount = self.assertMountsWith(self.folder, "collection 'up': its directory is missing")
        self.assertEqual(ckptfs.read(mount / "t.memmap"), b"01")

    def test_links_to_files_are_followed(self):
        self.write({"t": self.bytes_entry(2)})
        blob = self.scratch() / "blob"
        blob.write_bytes(b"01")
        (self.folder / "t.memmap").symlink_to(blob)
        self.assertEqual(ckptfs.read(self.mount(self.folder) / "t.memmap"), b"01")

    def test_keys_lead_nowhere_else(self):
        secret = self.folder.parent / "secret.memmap"
        secret.write_bytes(b"secret")
        self.write({"t": self.bytes_entry(1), "../secret": self.bytes_entry(6),
                    str(secret)[:-7]: self.bytes_entry(6)}, t=b"0")
        code, said, mountpoint = self.assertBounded(self.folder)
        self.assertEqual((code, said.count("no such file")), (0, 2))
        for file in mountpoint.glob("*secret.memmap"):
            self.assertErrno(5, ckptfs.read, file)

    def test_a_file_that_changes_is_noticed(self):
        self.write({"t": self.bytes_entry(2)}, t=b"01")
        mount = self.mount(self.folder)
        (self.folder / "t.memmap").write_bytes(b"234")
        self.assertErrno(116, ckptfs.read, mount / "t.memmap")

    def test_shapes_beyond_all_files_cost_nothing(self):
        self.write({"t": self.bytes_entry(1)} |
                   {f"t{i}": self.bytes_entry(1 << 62) for i in range(2000)}, t=b"0")
        code, said, _ = self.assertBounded(self.folder)
        self.assertEqual(code, 0)
        self.assertIn("1990 more warnings", said)

    def test_many_entries_without_files_are_bounded(self):
        self.write({f"t{i}": self.bytes_entry(1) for i in range(10_000)})
        code, said, _ = self.assertBounded(self.folder)
        self.assertEqual((code, said), (CORRUPT, f"ckptfs: {self.folder}: meta.json: tensor 't0': "
                                                 "no such file: 't0.memmap'\n"))

    def test_a_deep_meta_json_is_refused(self):
        self.folder.mkdir()
        text = '{"_type":"<class \'x\'>","a":' + "[" * 5000
        (self.folder / "meta.json").write_text(text)
        code, said, _ = self.assertBounded(self.folder)
        self.assertEqual(code, 6)
        self.assertRegex(said, r"\Ackptfs: .*: meta.json: is nested more than \d+ deep\n\Z")

    def test_directories_in_one_another_are_bounded(self):
        directory = self.folder
        for _ in range(300):
            self.write({"a": {"type": "TensorDict"}}, directory)
            directory /= "a"
        code, said, _ = self.assertBounded(self.folder)
        self.assertEqual((code, "is nested more than 128 deep" in said), (0, True))

    def test_a_bomb_in_an_archive_costs_nothing(self):
        path = self.scratch() / "bomb.tdz"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("meta.json", '{"_type": "<class \'tensordict._td.TensorDict\'>", "a": "' +
                             "x" * (200 << 20) + '"}')
        code, said, _ = self.assertBounded(path)
        self.assertEqual((code, said.count("\n")), (6, 1), said)

    def test_a_damaged_member_of_an_archive_costs_that_one(self):
        path = self.scratch() / "td.tdz"
        self.write({"t": self.bytes_entry(5), "u": self.bytes_entry(5)}, t=b"01234", u=b"56789")
        with zipfile.ZipFile(path, "w") as archive:
            for name in ("meta.json", "t.memmap", "u.memmap"):
                archive.write(self.folder / name, name)
        data = bytearray(path.read_bytes())
        data[data.index(b"t.memmap") - 30] ^= 1  # Of the signature of its local header.
        path.write_bytes(data)
        code, _, mount = self.assertBounded(path)
        self.assertEqual(code, 0)
        self.assertErrno(5, ckptfs.read, mount / "t.memmap")
        self.assertEqual(ckptfs.read(mount / "u.memmap"), b"56789")

    def test_an_archive_that_is_cut_is_refused(self):
        path = self.scratch() / "cut.tdz"
        path.write_bytes((FOLDER / "tensordict_0.15.3.tdz").read_bytes()[:-30])
        code, said, _ = self.assertBounded(path)
        self.assertEqual((code, said.count("\n")), (CORRUPT, 1))

    def test_an_encrypted_archive_is_refused(self):
        path = self.scratch() / "encrypted.tdz"
        data = bytearray((FOLDER / "tensordict_0.15.3.tdz").read_bytes())
        for signature, flags in ((b"PK\1\2", 8), (b"PK\3\4", 6)):
            at = data.find(signature)
            while at >= 0:
                data[at + flags] |= 1
                at = data.find(signature, at + 1)
        path.write_bytes(data)
        done = self.ckptfs(path, self.mountpoint())
        self.assertRefusedLike(done, CORRUPT, ".*: meta.json: meta.json: .*encryption.*")

    def consolidated(self, level, data=b""):
        text = json.dumps(level).encode()
        path = self.scratch() / "td.bin"
        path.write_bytes(data + text + struct.pack("<q", len(text)))
        return path

    def test_consolidated_tensors_may_overlap_but_not_leave_the_data(self):
        path = self.consolidated(
            {"cls": "TensorDict", "non_tensors": {}, "cls_metadata": {"batch_size": []},
             "leaves": {"a": ["torch.uint8", [4], 0, 4, 0], "b": ["torch.uint8", [4], 0, 4, 0],
                        "c": ["torch.uint8", [4], 2, 6, 0], "d": ["torch.uint8", [40], 0, 40, 0]}},
            b"012345")
        mount = self.assertMountsWith(
            path, "tensor 'd': data out of range: bytes 0 to 40 with 0 of padding "
                  "(tensors end at byte 6): reading it will fail")
        self.assertEqual(ckptfs.read(mount / "c.memmap"), b"2345")
        self.assertEqual(os.stat(mount / "a.memmap").st_nlink, 2)

    def test_what_tensordict_before_0_3_has_saved_is_refused(self):
        self.folder.mkdir()
        for name in ("meta.pt", "a.meta.pt", "a.memmap"):
            (self.folder / name).write_bytes(b"")
        done = self.ckptfs(self.folder, self.mountpoint())
        self.assertRefused(done, FORMAT, f"{self.folder}: is a TensorDict of tensordict before 0.3, "
                           "which is not supported: load it with that version, and save its "
                           "to_dict() with torch.save")
