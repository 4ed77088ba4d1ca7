"""What tensordict has saved, on a mount: TensorDict.load_memmap gives what it gives without one.

Samples are of tensordict 0.3.2 to 0.15.3; random ones are saved here and now, in each of the three
ways. What cannot be equal, and what is there instead, is told in tests/tensordict.md.
"""

import enum
import json
import math
import os
import random
import shutil
import struct
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path

import ckptfs
from ckptfs import DAMAGED, FORMAT, SAMPLES

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
COUNT = 4 if ckptfs.IS_SANITIZED else 12

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
            for one, other in zip(mine.unbind(), wanted.unbind(), strict=True):
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
        answers = []
        for environment in ({}, {"PYTHONPATH": old}):
            done = ckptfs.run(sys.executable, "-B", Path(__file__).with_name("loader.py"),
                              input="".join(json.dumps(str(m)) + "\n" for m in mounts), stdin=None,
                              env=os.environ | environment, timeout=120)
            answers.append([json.loads(line) for line in done.stdout.splitlines()])
        for new, old in zip(*answers, strict=True):
            self.assertNotIn("", old)
            self.assertTrue(old)
            # Before 0.13, a key with a slash is a path.
            self.assertEqual(old, {key: leaf for key, leaf in new.items() if "/" not in key})


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
