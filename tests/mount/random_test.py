"""Random checkpoints, written by torch here and now: the mount has what was saved.

Seeds are fixed, and named by the test that fails.
"""

import random
import zipfile

import ckptfs
import view

try:
    import oracle
    import torch
    from torch.utils.serialization import config
except ImportError as error:
    torch = None
    MISSING = str(error)

COUNT = 40 if ckptfs.IS_SANITIZED else 200

KEYS = ["weight", "bias", "layer.0.weight", "layer.0.bias", "layer.1.weight", "layer", "a.b", "a",
        "shape", "device", "_type", "x y", "p/q", "é", "", ".", "..", "..x", "x.", "%41", "A",
        "type", "meta.json", "k" * 300, "tab\there", "C:d", "m.memmap", "0", "1", "data"]

DTYPES = ("bool uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 bfloat16 float32 "
          "float64 complex32 complex64 complex128 float8_e4m3fn float8_e5m2 float8_e4m3fnuz "
          "float8_e5m2fnuz float8_e8m0fnu").split()


class Maker:
    """Makes an object as people save them, and stranger ones, from a seed."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.tensors = []  # Made so far, to be shared and viewed.

    def base(self):
        dtype = getattr(torch, self.random.choice(DTYPES))
        lengths = (0, 1, 1, 2, 3, 5, 8, 17)
        shape = [self.random.choice(lengths) for _ in range(self.random.randint(0, 4))]
        count = 1
        for length in shape:
            count *= length
        data = self.random.randbytes(count * dtype.itemsize)
        if dtype is torch.bool:
            data = bytes(b & 1 for b in data)
        flat = torch.frombuffer(bytearray(data or b"\0" * 16), dtype=torch.uint8)[:len(data)]
        return flat.clone().view(dtype).reshape(shape)

    def view(self, tensor):
        choice = self.random.randrange(6)
        if tensor.dim() == 0:
            return tensor.expand(3) if choice == 0 else tensor
        axis = self.random.randrange(tensor.dim())
        if choice == 0:
            return tensor.transpose(axis, self.random.randrange(tensor.dim()))
        if choice == 1 and tensor.shape[axis] > 0:
            return tensor.select(axis, self.random.randrange(tensor.shape[axis]))
        if choice == 2:
            return tensor[(slice(None),) * axis + (slice(self.random.randint(0, 2), None,
                                                         self.random.randint(1, 3)),)]
        if choice == 3:
            return tensor.unsqueeze(axis).expand(*tensor.shape[:axis], 2, *tensor.shape[axis:])
        if choice == 4 and tensor.is_complex() and tensor.dtype is not torch.complex32:
            return tensor.conj()
        return tensor

    def tensor(self):
        if self.tensors and self.random.random() < 0.4:
            tensor = self.random.choice(self.tensors)
            if self.random.random() < 0.7:
                tensor = self.view(tensor)
        else:
            tensor = self.base()
            if self.random.random() < 0.3:
                tensor = self.view(tensor)
        self.tensors.append(tensor)
        if tensor.dtype in (torch.float32, torch.float64) and self.random.random() < 0.1:
            return torch.nn.Parameter(tensor)
        return tensor

    def value(self, depth=0):
        choice = self.random.random()
        if choice < 0.6 or depth > 3:
            return self.tensor()
        if choice < 0.75:
            return {self.key(): self.value(depth + 1) for _ in range(self.random.randint(0, 4))}
        if choice < 0.85:
            items = [self.value(depth + 1) for _ in range(self.random.randint(0, 3))]
            return items if self.random.random() < 0.5 else tuple(items)
        return self.random.choice([
            None, True, 5, -1.5, "text", 1 << 70, float("nan"), b"\0\xff", [1, 2],
            {"lr": 0.1, "betas": (0.9, 0.99)}, {1, 2}, torch.float16])

    def key(self):
        return self.random.choice(KEYS) if self.random.random() < 0.85 else self.random.randrange(3)

    def root(self):
        # At least one tensor, and a key that none of the others is.
        return {"first.tensor": self.tensor()} | {self.key(): self.value() for _ in range(8)}


class RandomCheckpoints(ckptfs.Case):
    def setUp(self):
        if torch is None:
            self.skip_avoidable(MISSING)

    def save(self, root, file, rng):
        """Saves in one of the ways in which files come to be."""
        if rng.random() < 0.3:
            torch.save(root, file, pickle_protocol=rng.choice((2, 2, 2, 3, 4, 5)),
                       _use_new_zipfile_serialization=False)
            return
        config.save.storage_alignment = rng.choice((64, 64, 1, 16, 100, 4096))
        config.save.compute_crc32 = rng.random() < 0.8
        try:
            torch.save(root, file, pickle_protocol=rng.choice((2, 2, 2, 3, 4, 5)))
            with_crc = config.save.compute_crc32
        finally:
            config.save.storage_alignment, config.save.compute_crc32 = 64, True
        if with_crc and rng.random() < 0.3:
            again = file.with_name("again.pth")
            with zipfile.ZipFile(file) as source, zipfile.ZipFile(again, "w") as target:
                for name in source.namelist():
                    method = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED,
                                         zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
                    target.writestr(name, source.read(name), compress_type=method)
            again.rename(file)

    def test_hold_what_was_saved(self):
        file = self.scratch() / "model.pth"
        for seed in range(COUNT):
            with self.subTest(seed=seed):
                maker = Maker(seed)
                root = maker.root()
                self.save(root, file, maker.random)
                expected, composite = oracle.tensors(root)
                self.assertEqual(composite, [])
                options = maker.random.choice(((), ("-o", "flat")))
                mount = self.mount(file, *options)
                self.assertEqual(view.tensors(mount.path), expected)
                self.assertEqual(mount.unmount(), 0)
