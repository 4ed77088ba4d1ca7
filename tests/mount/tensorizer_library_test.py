"""The tests of tensorizer itself, carried out on mounts (docs/compatibility/tensorizer.md), and random files.

Whatever it writes here and now is compared with what was written, and with what it reads back.
"""

import os
import random
import subprocess
import zlib
from pathlib import Path

import ckptfs
import sealed
import tensors_craft
import view
from ckptfs import SOURCE

try:
    import numpy
    import torch
    from tensordict import TensorDict
    from tensorizer import DecryptionParams, EncryptionParams, TensorDeserializer
    from tensorizer.serialization import TensorType
    from tensorizer.torch_compat import tensorizer_loading, tensorizer_saving
except ImportError as error:
    torch = None
    MISSING = str(error)


def raw(tensor):
    tensor = tensor.detach().contiguous().reshape(-1)
    return tensor.view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def leaf(tensor):
    """As returned by found(); a meta tensor is shown as zeros."""
    if tensor.is_meta:
        tensor = torch.zeros(tensor.shape, dtype=tensor.dtype)
    return str(tensor.dtype), tuple(tensor.shape), raw(tensor)


def found(mount):
    """{dotted key: (dtype, shape, bytes)}"""
    return {".".join(keys): (what.dtype, what.shape, ckptfs.read(what.path))
            for kind, keys, what in view.walk(mount.path) if kind == "tensor"}


def of_module(module):
    """The output of write_module, in which names of the root begin with a dot."""
    out = {}
    for path, part in module.named_modules():
        for name, tensor in (*part.named_parameters(recurse=False),
                             *part.named_buffers(recurse=False)):
            out[f"{path}.{name}"] = leaf(tensor)
    return out


class Network(torch.nn.Module if torch else object):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(50, 16)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(16, 16) for _ in range(3))
        self.norm = torch.nn.BatchNorm1d(16)
        self.head = torch.nn.Linear(16, 50, bias=False)
        self.head.weight = self.embed.weight
        self.scale = torch.nn.Parameter(torch.randn(3).bfloat16())
        self.register_buffer("mask", torch.ones(4, 4, dtype=torch.bool))
        self.register_buffer("cache", torch.arange(5), persistent=False)


class Written(ckptfs.Case):
    def setUp(self):
        if torch is None:
            self.skip_avoidable(MISSING)
        torch.manual_seed(0)
        self.file = self.scratch() / "model.tensors"

    def write(self, state, encryption=None):
        with sealed.writing(self.file, encryption) as writer:
            writer.write_state_dict(state)

    def write_module(self, module, encryption=None, **options):
        with sealed.writing(self.file, encryption) as writer:
            writer.write_module(module, **options)


def weak(passphrase="secret"):
    """As tensorizer's tests have it: what costs least."""
    limits = EncryptionParams
    return limits.from_string(passphrase, opslimit=limits.OpsLimit.MIN,
                              memlimit=limits.MemLimit.MIN, salt=bytes(16))


class Theirs(Written):
    def test_serialization(self):
        module = Network()
        self.write_module(module)
        mount = self.mount(self.file)
        self.assertEqual(found(mount), of_module(module))
        self.assertEqual(found(mount), {k: leaf(v) for k, v in sealed.library(self.file).items()})
        mount.unmount()
        self.write(module.state_dict())
        self.assertEqual(found(self.mount(self.file)),
                         {k: leaf(v) for k, v in module.state_dict().items()})

    def test_large_unbuffered_tensor(self):
        # 36,000 x 36,000 of float32, and another one behind it; they are holes in the file.
        side, size = 36_000, 36_000 ** 2 * 4
        file = tensors_craft.File().add("before", "<f4", [2], b"before!!")
        file.add("large", "<f4", [side, side], size).add("behind", "<f4", [2], b"behind!!")
        places = file.write(self.file)
        with open(self.file, "r+b") as out:
            out.seek(places[2] - 4)
            out.write(b"last")
        mount = self.mount(self.file)
        self.assertEqual((mount / "large.memmap").stat().st_size, size)
        self.assertEqual(ckptfs.read(mount / "large.memmap", size - 6), b"\0\0last")
        self.assertEqual(ckptfs.read(mount / "behind.memmap"), b"behind!!")

    def test_bfloat16(self):
        tensor = torch.normal(0, 0.5, (1024, 1024), dtype=torch.bfloat16)
        self.write({"test_tensor": tensor})
        mount = self.mount(self.file)
        loaded = TensorDict.load_memmap(mount.path)["test_tensor"]
        self.assertTrue(torch.equal(loaded, tensor))
        del loaded

    def test_meta_tensors(self):
        state = {"meta": torch.empty((5, 3), device="meta", dtype=torch.bfloat16),
                 "real": torch.randn(7)}
        state["meta"] = state["meta"].float()  # Of bfloat16 the library cannot read it back.
        for encryption in (None, EncryptionParams.random()):
            with self.subTest(encrypted=encryption is not None):
                self.write(state, encryption)
                options = [sealed.key_file(self, encryption.key)] if encryption else []
                mount = self.mount(self.file, *options)
                self.assertEqual(found(mount), {k: leaf(v) for k, v in state.items()})
                summary = ckptfs.meta(mount.path)["_ckptfs"]
                self.assertEqual(summary["data_version"], 4)
                self.assertEqual(summary["feature_flags"], int(encryption is not None))
                mount.unmount()

    def test_meta_tensor_module(self):
        with torch.device("meta"):
            module = torch.nn.Linear(30, 20)
        self.write_module(module)
        mount = self.mount(self.file)
        self.assertEqual(found(mount), of_module(module))
        self.assertEqual((mount / ".weight.memmap").stat().st_blocks, 0)

    def test_persistent_buffers(self):
        module = Network()
        self.write_module(module)
        self.assertIn(".cache", found(self.mount(self.file)))
        self.write_module(module.norm, include_non_persistent_buffers=False)
        self.assertNotIn(".cache", found(self.mount(self.file)))

    def test_structure(self):
        tensors = [torch.tensor([float(i)]) for i in range(12)]
        nested = {"a": tensors[0], "list": [tensors[1], {"x": tensors[2], "y": [tensors[3]]}],
                  "deep": {"er": {"est": tensors[4], "0": tensors[5]}}, "t": (tensors[6],)}
        for state, paths in (
                (tensors, {str(i): t for i, t in enumerate(tensors)}),
                (nested, {"a": tensors[0], "list.0": tensors[1], "list.1.x": tensors[2],
                          "list.1.y.0": tensors[3], "deep.er.est": tensors[4],
                          "deep.er.0": tensors[5], "t.0": tensors[6]})):
            with self.subTest(type(state).__name__):
                self.write(state)
                mount = self.mount(self.file)
                self.assertEqual(found(mount), {k: leaf(v) for k, v in paths.items()})
                mount.unmount()
        self.write(tensors)
        mount = self.mount(self.file)
        self.assertEqual(list(view.entries(mount.path)), [str(i) for i in range(12)])
        self.assertEqual(ckptfs.meta(mount.path)["_ckptfs"]["python_type"], "list")
        mount.unmount()
        self.write(nested)
        mount = self.mount(self.file)
        subtree = TensorDict.load_memmap(mount / "deep")
        self.assertTrue(torch.equal(subtree["er", "est"], tensors[4]))
        del subtree

    def test_encryption(self):
        module = torch.nn.Linear(30, 20)
        self.write_module(module, weak())
        right, wrong = (sealed.passphrase_file(self, text) for text in ("secret", "wrong"))
        self.assertEqual(found(self.mount(self.file, right)), of_module(module))
        mount = self.mount(self.file, quiet=False)
        self.assertErrno(126, ckptfs.read, mount / ".weight.memmap")  # ENOKEY
        self.assertEqual(self.ckptfs(wrong, self.file, self.mountpoint()).returncode, SOURCE)
        self.write_module(module)
        self.assertEqual(found(self.mount(self.file, right, quiet=False)), of_module(module))

    def test_from_string(self):
        self.write({"x": torch.randn(100)}, EncryptionParams.from_string("secret"))
        mount = self.mount(self.file, sealed.passphrase_file(self, "secret"))
        theirs = sealed.library(self.file, encryption=DecryptionParams.from_string("secret"))
        self.assertEqual(found(mount), {"x": leaf(theirs["x"])})

    def test_random_encryption_params(self):
        parameters = EncryptionParams.random()
        state = {"x": torch.randn(1000), "y": torch.randint(0, 9, (3, 3))}
        self.write(state, parameters)
        mount = self.mount(self.file, sealed.key_file(self, parameters.key))
        self.assertEqual(found(mount), {k: leaf(v) for k, v in state.items()})
        done = self.ckptfs(sealed.key_file(self, bytes(32)), self.file, self.mountpoint())
        self.assertEqual(done.returncode, SOURCE)

    def test_default_cpu_and_lazy_load(self):
        module = Network()
        self.write_module(module)
        for options in ({}, {"lazy_load": True}, {"num_readers": 1}):
            with self.subTest(**options):
                theirs = sealed.library(self.file, **options)
                self.assertEqual(found(self.mount(self.file)),
                                 {k: leaf(v) for k, v in theirs.items()})

    def test_cpu_multiple_readers(self):
        state = {f"t{i}": torch.randn(1 << 18) for i in range(8)}
        self.write(state)
        mount = self.mount(self.file)
        readers = [subprocess.Popen(["cat", mount / f"t{i}.memmap"], stdout=subprocess.PIPE)
                   for i in range(8)]
        self.assertEqual([reader.communicate()[0] for reader in readers],
                         [raw(state[f"t{i}"]) for i in range(8)])

    def test_filter_func(self):
        self.write_module(Network())
        mount = self.mount(self.file)
        theirs = sealed.library(self.file, filter_func=lambda name: name.endswith("bias"))
        here = ckptfs.run("find", mount.path, "-regex", r".*bias\.memmap").stdout.split()
        paths = {str(Path(p).relative_to(mount.path)).removesuffix(".memmap").replace("/", ".")
                 for p in here}
        self.assertEqual(paths, set(theirs))

    def test_verification(self):
        module = Network()
        self.write_module(module)
        mount = self.mount(self.file, "-overify=enforce,xattr")
        self.assertEqual(found(mount), of_module(module))
        verdicts = {os.getxattr(path, "user.ckptfs.verified")
                    for path in mount.path.rglob("*.memmap")}
        self.assertEqual(verdicts, {b"yes"})

    def test_verification_fail(self):
        module = Network()
        self.write_module(module)
        mount = self.mount(self.file)
        hashes = view.places(mount.path)[mount / "norm/weight.memmap"]["hashes"]
        mount.unmount()
        data = self.file.read_bytes()
        place = data.index(bytes.fromhex(hashes["sha256"]))
        self.file.write_bytes(data[:place] + bytes(32) + data[place + 32:])
        mount = self.mount(self.file, "-overify=enforce,xattr")
        bad = mount / "norm/weight.memmap"
        self.assertErrno(5, ckptfs.read, bad)
        self.assertErrno(5, ckptfs.read, bad)
        self.assertEqual(os.getxattr(bad, "user.ckptfs.verified"), b"no")
        self.assertEqual(ckptfs.read(mount / "norm/bias.memmap"), raw(module.norm.bias))
        mount.unmount()
        mount = self.mount(self.file, "-overify=warn,xattr")
        bad = mount / "norm/weight.memmap"
        self.assertEqual(ckptfs.read(bad), raw(module.norm.weight))
        self.assertEqual(os.getxattr(bad, "user.ckptfs.verified"), b"no")

    def test_module_verification(self):
        module = Network()
        self.write_module(module)
        mount = self.mount(self.file)
        live = of_module(module)
        differing = [k for k, leaf_ in found(mount).items() if leaf_ != live[k]]
        self.assertEqual(differing, [])
        with torch.no_grad():
            module.norm.weight[3] = 7
        live = of_module(module)
        differing = [k for k, leaf_ in found(mount).items() if leaf_ != live[k]]
        self.assertEqual(differing, ["norm.weight"])

    def test_long_dimensions(self):
        # Meta tensors, which cost no disk; then one with bytes, which is a hole in the file.
        long = torch.empty(((1 << 32) + 128,), dtype=torch.int8, device="meta")
        with sealed.writing(self.file) as writer:
            writer.write_state_dict({"first": torch.ones(3)})
            writer.write_tensor(0, "second", TensorType.STATE_DICT, torch.ones(4))
            writer.write_state_dict({"long": long})
            writer.write_state_dict({"last": torch.ones(5)})
        mount = self.mount(self.file)
        self.assertEqual(ckptfs.meta(mount.path)["_ckptfs"]["feature_flags"], 2)
        self.assertEqual((mount / "long.memmap").stat().st_size, (1 << 32) + 128)
        for name, count in (("first", 3), ("second", 4), ("last", 5)):
            self.assertEqual(ckptfs.read(mount / f"{name}.memmap"), raw(torch.ones(count)))
        mount.unmount()
        size = (1 << 32) + 128
        file = tensors_craft.File(version=5, flags=2).add("a", "|i1", [3], b"abc")
        file.add("long", "|i1", [size], size, wide=True).add("z", "|i1", [3], b"xyz")
        places = file.write(self.file)
        with open(self.file, "r+b") as out:
            out.seek(places[2] - 3)
            out.write(b"end")
        mount = self.mount(self.file)
        self.assertEqual(ckptfs.read(mount / "long.memmap", size - 4), b"\0end")
        self.assertEqual(ckptfs.read(mount / "z.memmap"), b"xyz")

    def test_ranges(self):
        # test_stream_io.py: begin, end, both, behind the end, back and forth.
        tensor = torch.randint(0, 256, (300_000,), dtype=torch.uint8)
        self.write({"x": tensor})
        path, data = self.mount(self.file) / "x.memmap", raw(tensor)
        for begin, length in ((0, 10), (1000, None), (0, 1000), (12_345, 54_321), (299_990, 100),
                              (300_000, 5), (300_500, 5), (4096, 4096), (4095, 2)):
            with self.subTest(begin=begin, length=length):
                end = None if length is None else begin + length
                self.assertEqual(ckptfs.read(path, begin, length), data[begin:end])
        with open(path, "rb", buffering=0) as file:
            for place in (250_000, 10, 200_000, 0):
                file.seek(place)
                self.assertEqual(file.read(100), data[place:place + 100])


class Compat(Written):
    """tensorizer.torch_compat: torch.save with the tensors in a file of their own."""

    def save(self, what, **options):
        self.model = self.file.with_name("model.pt")
        with tensorizer_saving(**options):
            torch.save(what, self.model)

    def assertLoads(self, mount, state):
        self.assertEqual(found(mount), {k: leaf(v) for k, v in state.items()})

    def test_save_load(self):
        module = Network()
        self.save(module.state_dict())
        self.assertLess(self.model.stat().st_size, 10_000)
        mount = self.mount(self.model, "-oxattr")
        self.assertLoads(mount, module.state_dict())
        self.assertEqual(os.getxattr(mount.path, "user.ckptfs.sidecar"), b'"model.pt.tensors"')
        with tensorizer_loading(device="cpu"):
            theirs = torch.load(self.model)
        self.assertLoads(mount, theirs)

    def test_a_whole_module(self):
        module = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.BatchNorm1d(4))
        self.save(module)
        self.assertLoads(self.mount(self.model), module.state_dict())

    def test_a_training_checkpoint(self):
        module = torch.nn.Linear(5, 4)
        optimizer = torch.optim.AdamW(module.parameters())
        module(torch.randn(2, 5)).sum().backward()
        optimizer.step()
        self.save({"model": module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3})
        mount = self.mount(self.model)
        self.assertEqual(ckptfs.meta(mount / "epoch")["data"], 3)
        state = optimizer.state_dict()["state"]
        self.assertEqual(found(mount)["optimizer.state.0.exp_avg"], leaf(state[0]["exp_avg"]))

    def test_the_older_format_of_torch(self):
        state = {"a": torch.randn(3), "b": torch.arange(5)}
        self.model = self.file.with_name("model.pt")
        with tensorizer_saving():
            torch.save(state, self.model, _use_new_zipfile_serialization=False)
        self.assertLoads(self.mount(self.model), state)

    def test_the_directory_of_both_is_the_checkpoint(self):
        self.save({"a": torch.ones(3)})
        self.assertLoads(self.mount(self.model.parent), {"a": torch.ones(3)})

    def test_save_load_args(self):
        # Another place for the tensors, and encryption.
        parameters = EncryptionParams.random()
        other = self.scratch() / "elsewhere"
        state = {"a": torch.randn(100), "b": torch.randn(7)}
        self.save(state, file_obj=str(other), encryption=parameters)
        key = sealed.key_file(self, parameters.key)
        self.assertLoads(self.mount(self.model, f"-osidecar={other}", key), state)
        mount = self.mount(self.model, f"-osidecar={other}", quiet=False)
        self.assertErrno(126, ckptfs.read, mount / "a.memmap")  # ENOKEY
        done = self.ckptfs(f"-osidecar={other}", sealed.key_file(self, bytes(32)), self.model,
                           self.mountpoint())
        self.assertEqual(done.returncode, SOURCE)

    def test_save_load_fp8_torch(self):
        state = {"fp8": torch.randn(64).to(torch.float8_e4m3fn)}
        self.save(state)
        self.assertLoads(self.mount(self.model), state)

    def test_shared_storage(self):
        whole = torch.randn(10, 10)
        state = {"whole": whole, "again": whole, "row": whole[3], "column": whole[:, 2]}
        self.save(state)
        mount = self.mount(self.model)
        self.assertLoads(mount, state)
        self.assertEqual((mount / "whole.memmap").stat().st_ino,
                         (mount / "again.memmap").stat().st_ino)
        self.assertEqual((mount / "whole.memmap").stat().st_nlink, 2)

    def test_meta_tensors_and_empty_ones(self):
        self.save({"meta": torch.empty(3, device="meta"), "empty": torch.empty(0),
                   "real": torch.ones(2)})
        mount = self.mount(self.model)
        self.assertLoads(mount, {"empty": torch.empty(0), "real": torch.ones(2)})
        self.assertIn("meta", view.values(mount.path))

    def test_a_sidecar_that_is_missing_costs_the_tensors(self):
        self.save({"a": torch.ones(3), "epoch": 7})
        Path(f"{self.model}.tensors").unlink()
        done = self.ckptfs(self.model, self.mountpoint())
        self.assertRefusedLike(done, ckptfs.CORRUPT, ".*model.pt.tensors.*sidecar=.*")

    def test_a_sidecar_alone_is_its_storages(self):
        self.save({"a": torch.ones(3), "b": torch.ones(4)})
        self.assertEqual(found(self.mount(f"{self.model}.tensors")),
                         {"0": ("torch.uint8", (12,), raw(torch.ones(3))),
                          "1": ("torch.uint8", (16,), raw(torch.ones(4)))})


class Random(Written):
    def state(self, rng):
        dtypes = (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int8,
                  torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool, torch.complex64,
                  torch.float8_e4m3fn, torch.float8_e5m2, torch.uint16)
        state = {}
        for i in range(rng.randrange(1, 25)):
            dtype = rng.choice(dtypes)
            # The library cannot write an encrypted tensor without elements.
            shape = [rng.choice((1, 2, 3, 7, 64)) for _ in range(rng.randrange(5))]
            count = int(numpy.prod(shape, dtype=numpy.int64))
            data = rng.randbytes(count * dtype.itemsize)
            if dtype is torch.bool:
                data = bytes(b & 1 for b in data)
            flat = torch.frombuffer(bytearray(data), dtype=torch.uint8)
            name = rng.choice((f"layer.{i}.weight", f"w{i}", f"a/b{i}", f"ü{i}", f"{i}"))
            state[name] = flat.view(dtype).reshape(shape)
        return state

    def test_what_the_library_writes_is_what_was_given_to_it(self):
        for seed in range(8 if ckptfs.IS_SANITIZED else 30):
            with self.subTest(seed=seed):
                rng = random.Random(seed)
                state = self.state(rng)
                secret = rng.choice(("none", "key", "passphrase"))
                encryption = {"none": None, "key": EncryptionParams.random(),
                              "passphrase": weak(f"secret {seed}")}[secret]
                self.write(state, encryption)
                options = []
                if secret == "key":
                    options = [sealed.key_file(self, encryption.key)]
                if secret == "passphrase":
                    options = [sealed.passphrase_file(self, f"secret {seed}")]
                mount = self.mount(self.file, "-overify=enforce", *options)
                self.assertEqual(found(mount), {k: leaf(v) for k, v in state.items()})
                mount.unmount()

    def test_a_module_from_the_mount_is_that_of_the_library(self):
        for parameters in (None, EncryptionParams.random()):
            with self.subTest(encrypted=parameters is not None):
                module = Network()
                self.write_module(module, parameters)
                options = [sealed.key_file(self, parameters.key)] if parameters else []
                theirs = Network()
                encryption = DecryptionParams.from_key(parameters.key) if parameters else None
                with TensorDeserializer(str(self.file), device="cpu",
                                        encryption=encryption) as reader:
                    reader.load_into_module(theirs)
                mount = self.mount(self.file, *options)
                loaded = TensorDict.load_memmap(mount.path).flatten_keys(".")
                state = {k.lstrip("."): loaded[k].clone() for k in loaded.keys()}
                del loaded
                ours = Network()
                ours.load_state_dict({k: v for k, v in state.items() if k in ours.state_dict()})
                self.assertEqual(of_module(ours) | {".cache": leaf(state["cache"])},
                                 of_module(theirs))
                mount.unmount()

    def test_the_hashes_are_those_of_the_bytes(self):
        # What a tool needs that checks a tensor by itself: header, hashes and bytes.
        tensor = torch.randn(1000)
        self.write({"x": tensor})
        mount = self.mount(self.file)
        [entry] = view.lines(mount.path)
        crc = int(entry["hashes"]["crc32"], 16)
        file = self.file.read_bytes()
        place = entry["file_offset"]
        begin = place - 66 - 1 - len("<f4") - 4
        header = bytearray(file[begin:place])
        for value in (bytes.fromhex(entry["hashes"]["sha256"]), crc.to_bytes(4, "little")):
            at = header.index(value)
            header[at:at + len(value)] = bytes(len(value))
        self.assertEqual(zlib.crc32(bytes(header) + raw(tensor)), crc)
