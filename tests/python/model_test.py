"""The Python package shows the tensors and values of checkpoints as they were saved."""

import copy
import resource
import threading

from package import Case, ckptfs, ml_dtypes, mounts, numpy, torch

# Blocks the imports of the modules that are the arguments from the third one.
BLOCKED = """
import sys
for name in sys.argv[2:]:
    sys.modules[name] = None
import ckptfs
"""


def flatten(value, key=""):
    """The tensors of a checkpoint by dotted key."""
    if isinstance(value, dict):
        for name, below in value.items():
            yield from flatten(below, f"{key}.{name}" if key else str(name))
    elif isinstance(value, torch.Tensor):
        yield key, value


class Tensors(Case):
    def checkpoint(self):
        torch.manual_seed(0)
        weight = torch.randn(4, 3)
        floats = [torch.float16, torch.bfloat16, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2,
                  torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu]
        integers = [torch.bool, torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32,
                    torch.int32, torch.uint64, torch.int64]
        return {
            "model": {"h.0.weight": weight, "h.0.tied": weight, "h.0.row": weight[1],
                      "h.0.strided": torch.randn(3, 4).t(), "h.0.expanded": torch.ones(1, 3).expand(5, 3)},
            "types": {str(dtype): torch.randn(2, 3).abs().to(dtype) for dtype in floats} | {
                str(dtype): torch.arange(4).to(dtype) for dtype in integers},
            "complex": {"64": torch.randn(3, dtype=torch.complex64).conj(),
                        "32": torch.randn(3, dtype=torch.complex32),
                        "imaginary": torch.randn(3, dtype=torch.complex64).conj().imag},
            "scalar": torch.tensor(2.5), "empty": torch.empty(0, 7, dtype=torch.bfloat16),
            "parameter": torch.nn.Parameter(torch.randn(2)), "epoch": 3}

    def test_tensors_equal_those_of_torch_load(self):
        file = self.save(self.checkpoint())
        wanted = dict(flatten(torch.load(file)))
        with ckptfs.open(file) as model:
            self.assertEqual(list(model), list(wanted))
            for key, tensor in wanted.items():
                with self.subTest(key):
                    self.assertSame(model[key], tensor)
                    info = model.info(key)
                    self.assertEqual((info.shape, "torch." + info.dtype, info.nbytes),
                                     (tensor.shape, str(tensor.dtype), tensor.nbytes))
                    self.assertEqual(model.raw(key).nbytes, tensor.nbytes)

    def test_a_slice_is_a_view_of_the_map(self):
        with ckptfs.open(self.save(self.checkpoint())) as model:
            row = model["model.h.0.weight"][2]
            self.assertEqual(row.data_ptr(), model["model.h.0.weight"].data_ptr() + 3 * 4 * 2)

    def test_tied_tensors_share_memory(self):
        with ckptfs.open(self.save(self.checkpoint())) as model:
            weight, tied = model["model.h.0.weight"], model["model.h.0.tied"]
            self.assertEqual(weight.untyped_storage()._cdata, tied.untyped_storage()._cdata)
            weight[0, 0] = 77
            self.assertEqual(tied[0, 0], 77)
            self.assertEqual(model.numpy("model.h.0.tied")[0, 0], 77)

    def test_writes_stay_in_the_model(self):
        file = self.save(self.checkpoint())
        content = file.read_bytes()
        with ckptfs.open(file) as model, ckptfs.open(file) as other:
            path = model.path / model.info("model.h.0.weight").path
            before = path.read_bytes()
            model["model.h.0.weight"].add_(1)
            self.assertFalse(torch.equal(model["model.h.0.weight"], other["model.h.0.weight"]))
            self.assertEqual(path.read_bytes(), before)
        self.assertEqual(file.read_bytes(), content)

    def test_mapping(self):
        with ckptfs.open(self.save({"a": torch.ones(1), "b": {"c": torch.zeros(2)}, "epoch": 1})) as model:
            self.assertEqual((len(model), list(model.keys())), (2, ["a", "b.c"]))
            self.assertEqual({key: tensor.tolist() for key, tensor in model.items()}, {"a": [1], "b.c": [0, 0]})
            self.assertEqual([tensor.tolist() for tensor in model.values()], [[1], [0, 0]])
            self.assertIn("b.c", model)
            self.assertNotIn("epoch", model)
            for function in model.__getitem__, model.torch, model.numpy, model.raw, model.info, model.composite:
                self.assertRaises(KeyError, function, "epoch")
            self.assertRegex(repr(model), "model.pth': 2 tensors")

    def test_keys_that_are_unusual(self):
        checkpoint = {"a": {"b": torch.tensor(1)}, "a.b": torch.tensor(2), "shape": torch.tensor(3),
                      "_ckptfs": torch.tensor(4), "we/ird %41 é.x": {"t": torch.tensor(5), "v": 6}, 7: torch.tensor(7),
                      "l": [torch.tensor(8), "nine"]}
        with ckptfs.open(self.save(checkpoint)) as model:
            # Two tensors have the key a.b: their paths differ.
            self.assertEqual({key: tensor.item() for key, tensor in model.items()},
                             {"a/b.memmap": 1, "a.b.memmap": 2, "shape": 3, "_ckptfs": 4,
                              "we/ird %41 é.x.t": 5, "7": 7, "l.0": 8})
            self.assertEqual(dict(model.values), {"we/ird %41 é.x.v": 6, "l.1": "nine"})

    def test_more_tensors_than_descriptors(self):
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        file = self.save({f"t{i}": torch.full((2,), i) for i in range(300)})
        with ckptfs.open(file) as model:
            resource.setrlimit(resource.RLIMIT_NOFILE, (100, limits[1]))
            self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
            tensors = [model[key] for key in model]
            self.assertEqual([tensor[1].item() for tensor in tensors], list(range(300)))

    def test_threads(self):
        checkpoint = {f"t{i}": torch.full((1000,), i) for i in range(100)}
        with ckptfs.open(self.save(checkpoint)) as model:
            found = [[] for _ in range(8)]
            barrier = threading.Barrier(len(found))

            def read(tensors):
                barrier.wait()
                tensors += model.state_dict().values()

            threads = [threading.Thread(target=read, args=[tensors]) for tensors in found]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            for tensors in found:
                self.assertEqual([int(t.sum()) for t in tensors], [1000 * i for i in range(100)])
                self.assertEqual([t.data_ptr() for t in tensors], [t.data_ptr() for t in found[0]])

    def test_a_tensor_that_cannot_be_read(self):
        directory = self.directory / "sharded"
        directory.mkdir()
        torch.save({"a": torch.ones(2)}, directory / "pytorch_model-00001-of-00002.bin")
        (directory / "pytorch_model.bin.index.json").write_text(
            '{"weight_map": {"a": "pytorch_model-00001-of-00002.bin", "b": "pytorch_model-00002-of-00002.bin"}}')
        with self.assertWarnsRegex(RuntimeWarning, "00002-of-00002"):
            model = ckptfs.open(directory)
        with model:
            self.assertEqual(model["a"].tolist(), [1, 1])
            self.assertFails("^b: .*00002-of-00002", model.torch, "b")
            self.assertFails("^b: .*00002-of-00002", model.raw, "b")

    def test_safetensors(self):
        from safetensors.torch import save_file
        tensors = {"w": torch.randn(3, 2).bfloat16(), "f8": torch.randn(4).to(torch.float8_e5m2)}
        save_file(tensors, self.directory / "model.safetensors", {"epoch": "3"})
        with ckptfs.open(self.directory / "model.safetensors") as model:
            self.assertEqual(set(model), set(tensors))
            for key, tensor in tensors.items():
                self.assertSame(model[key], tensor)

    def test_tensordict(self):
        with ckptfs.open(self.save({"h.0.w": torch.arange(3), "epoch": 3})) as model:
            tensordict = model.tensordict()
            self.assertEqual(tensordict["h", "0", "w"].tolist(), [0, 1, 2])
            self.assertEqual(tensordict["epoch"], 3)


class Values(Case):
    def test_values(self):
        checkpoint = {"epoch": 3, "text": "x" * (2 << 20), "config": {"lr": 0.1, "betas": (0.9, 0.99)},
                      "optimizer": {"state": {0: {"m": torch.ones(1), "step": 5}}}, "nothing": None, "raw": b"\1\2"}
        with ckptfs.open(self.save(checkpoint)) as model:
            self.assertEqual(dict(model.values), {
                "epoch": 3, "config": {"lr": 0.1, "betas": [0.9, 0.99]}, "optimizer.state.0.step": 5,
                "nothing": None, "raw": "0102", "text": "x" * (2 << 20)})
            self.assertEqual(len(model.values), 6)
            self.assertNotIn("optimizer", model.values)
            self.assertRaises(KeyError, lambda: model.values["optimizer.state.0.m"])


    def test_values_of_a_tensordict(self):
        from tensordict import NonTensorStack, TensorDict, lazy_stack
        episodes = [TensorDict({"x": torch.ones(n), "a/b": f"v{n}"}, [n]) for n in (4, 7)]
        TensorDict({"episodes": lazy_stack(episodes), "stack": NonTensorStack("a", "b")}).save(self.directory / "td")
        with ckptfs.open(self.directory / "td") as model:
            self.assertEqual(list(model), ["episodes.0.x", "episodes.1.x"])
            self.assertEqual(dict(model.values),
                             {"episodes.0.a/b": "v4", "episodes.1.a/b": "v7", "stack": ["a", "b"]})

    def test_rows_of_a_table(self):
        from zanj import ZANJ
        rows = [{"i": i, "w": numpy.full(300, i)} for i in range(300)]
        ZANJ().save({"w": numpy.arange(300.), "steps": rows}, self.directory / "run.zanj")
        with ckptfs.open(self.directory / "run.zanj") as model:
            self.assertEqual([row["i"] for row in model.values["steps"]], list(range(300)))
            self.assertEqual(model["steps.7.w"][299], 7)


class StateDict(Case):
    def module(self):
        torch.manual_seed(1)
        return torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))

    def test_module(self):
        source, module, reference = self.module(), self.module(), self.module()
        source.train()(torch.randn(16, 8))  # Statistics of the second layer.
        torch.nn.init.normal_(source[0].weight)
        file = self.save({"model": source.state_dict(), "optimizer": {"m": torch.ones(3)}, "epoch": 2})
        reference.load_state_dict(torch.load(file)["model"])
        with ckptfs.open(file) as model:
            state = model.state_dict("model")
            self.assertEqual(list(state), list(source.state_dict()))
            self.assertEqual(state._metadata, source.state_dict()._metadata)
            module.load_state_dict(state, assign=True)
            self.assertEqual(module[0].weight.data_ptr(), model["model.0.weight"].data_ptr())
        # The maps outlive the mount.
        for key, tensor in reference.state_dict().items():
            self.assertSame(module.state_dict()[key], tensor)
        data = torch.randn(16, 8)
        for net in module, reference:
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
            for _ in range(3):
                optimizer.zero_grad()
                net(data).square().mean().backward()
                optimizer.step()
        for key, tensor in reference.state_dict().items():
            self.assertSame(module.state_dict()[key], tensor)
        self.assertFalse(torch.equal(module[0].weight, source[0].weight))

    def test_the_whole_checkpoint(self):
        source = self.module()
        with ckptfs.open(self.save(source.state_dict())) as model:
            module = copy.deepcopy(source)
            module.load_state_dict(model.state_dict(), assign=True)
            self.assertEqual(list(model.state_dict("0")), ["weight", "bias"])
            self.assertRaises(KeyError, model.state_dict, "1.weight")
            self.assertRaises(KeyError, model.state_dict, "nothing")
        with ckptfs.open(self.save({})) as model:
            self.assertEqual((len(model), len(model.state_dict()), len(model.values)), (0, 0, 0))


class Composites(Case):
    def test_composite_tensors_are_rebuilt(self):
        matrix = torch.eye(3) * 2
        checkpoint = {"m": {"coo": matrix.to_sparse(), "csr": matrix.to_sparse_csr(), "w": matrix,
                            "quantized": torch.quantize_per_tensor(matrix, 0.5, 1, torch.qint8),
                            "channels": torch.quantize_per_channel(
                                matrix, torch.tensor([.1, .2, .3]).double(), torch.tensor([0, 1, 2]), 0, torch.qint8),
                            "nested": torch.nested.nested_tensor([torch.ones(2), torch.zeros(3)])}}
        with ckptfs.open(self.save(checkpoint)) as model:
            self.assertIn("m.coo.indices", model)
            self.assertNotIn("m.coo", model)
            state = model.state_dict("m")
            self.assertEqual(list(state), ["coo", "csr", "w", "quantized", "channels", "nested"])
            for key in "coo", "csr":
                self.assertEqual(state[key].layout, checkpoint["m"][key].layout)
                self.assertTrue(torch.equal(state[key].to_dense(), matrix))
            for key in "quantized", "channels":
                self.assertEqual(state[key].qscheme(), checkpoint["m"][key].qscheme())
                self.assertTrue(torch.equal(state[key].dequantize(), checkpoint["m"][key].dequantize()))
            self.assertTrue(all(map(torch.equal, state["nested"].unbind(), [torch.ones(2), torch.zeros(3)])))
            self.assertTrue(torch.equal(model.composite("m.coo").to_dense(), matrix))

    def test_indices_of_sparse_tensors_are_checked(self):
        tensor = torch.sparse_coo_tensor(torch.tensor([[0, 1 << 40]]), torch.ones(2), (3,), check_invariants=False)
        with ckptfs.open(self.save({"t": tensor})) as model:
            self.assertFails("t: cannot rebuild it: size is inconsistent with indices", model.composite, "t")

    def test_packed_types(self):
        packed = torch.quantize_per_tensor(torch.ones(3), 0.5, 1, torch.quint4x2)
        with ckptfs.open(self.save({"packed": packed, "w": torch.ones(1)})) as model:
            self.assertFails(r"packed: .* quint4x2: raw\(\) returns the bytes", model.torch, "packed")
            self.assertFails(r"packed: NumPy has no type quint4x2", model.numpy, "packed")
            self.assertEqual(model.raw("packed").nbytes, 2)
        with ckptfs.open(mounts.SAMPLES / "gguf" / "q8_0.gguf") as model:
            self.assertFails(r"a: PyTorch .* has no type .*Q8_0: raw\(\) returns the bytes", model.torch, "a")


class NumPy(Case):
    def test_arrays(self):
        arrays = {"when": numpy.array(["2020-02-29", "NaT"], "M8[D]"), "text": numpy.array(["ab", "c"]),
                  "bytes": numpy.array([b"ab", b"c"]), "big": numpy.arange(6, dtype=">f4").reshape(2, 3),
                  "fortran": numpy.asfortranarray(numpy.arange(6).reshape(2, 3)), "empty": numpy.empty((2, 0)),
                  "scalar": numpy.float32(3), "complex": numpy.array([1j, 2])}
        numpy.savez(self.directory / "arrays.npz", **arrays)
        with ckptfs.open(self.directory / "arrays.npz") as model:
            self.assertEqual(list(model), list(arrays))
            for key, array in arrays.items():
                found = model.numpy(key)
                self.assertEqual((found.dtype, found.shape), (array.dtype.newbyteorder("<"), array.shape))
                numpy.testing.assert_array_equal(found, array)
            self.assertFails(r"when: PyTorch .* has no type numpy.<M8\[D\]: numpy\(\) returns", model.torch, "when")

    def test_ml_dtypes(self):
        checkpoint = {"bf": torch.ones(2, dtype=torch.bfloat16), "f8": torch.ones(2).to(torch.float8_e4m3fn),
                      "c32": torch.ones(1, dtype=torch.complex32)}
        with ckptfs.open(self.save(checkpoint)) as model:
            self.assertEqual(model.numpy("bf").dtype, ml_dtypes.bfloat16)
            self.assertEqual(model.numpy("f8").astype("f4").tolist(), [1, 1])
            self.assertFails("c32: NumPy has no type complex32", model.numpy, "c32")

    def test_without_torch(self):
        file = self.save({"w": torch.arange(3), "bf": torch.ones(1).bfloat16()})
        self.assertEqual(self.python(BLOCKED + """
with ckptfs.open(sys.argv[1]) as model:
    print(type(model["w"]).__name__, model["w"], model["bf"].dtype)
    model["w"][0] = 5
    print(model["w"])
    try:
        model.state_dict()
    except ckptfs.Error as error:
        print(error)
""", file, "torch"), "ndarray [0 1 2] bfloat16\n[5 1 2]\na tensor needs torch: pip install torch\n")

    def test_without_torch_and_numpy(self):
        file = self.save({"w": torch.arange(2, dtype=torch.uint8)})
        self.assertEqual(self.python(BLOCKED + """
with ckptfs.open(sys.argv[1]) as model:
    print(bytes(model.raw("w")))
    try:
        model["w"]
    except ckptfs.Error as error:
        print(error)
""", file, "torch", "numpy", "ml_dtypes"), "b'\\x00\\x01'\nan array needs numpy: pip install numpy\n")

    def test_without_ml_dtypes(self):
        file = self.save({"bf": torch.ones(1).bfloat16()})
        self.assertEqual(self.python(BLOCKED + """
with ckptfs.open(sys.argv[1]) as model:
    try:
        model.numpy("bf")
    except ckptfs.Error as error:
        print(error)
""", file, "ml_dtypes"), "bf: bfloat16 needs ml_dtypes: pip install ml_dtypes\n")
