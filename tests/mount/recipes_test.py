"""The recipe of every tensor of every sample is evaluated, and the tensor it makes is the one that
PyTorch loads.

docs/layout.md lists the names that a recipe needs; `Assembly` does just that.
"""

import gc
import gzip
import importlib
import json

import ckptfs
import view

try:
    import oracle
    import torch
    from tensordict import TensorDict
except ImportError as error:
    torch = None
    MISSING = str(error)

GOLDEN = ckptfs.TESTS / "golden"

# Folders whose samples golden_test.py mounts, each with the folder of their trees.
WITH_TREES = {"dcp": "dcp", "frameworks": "frameworks", "gguf": "gguf", "npy": "npy",
              "sharded": "sharded", "tensordict": "tensordict", "tensorizer": "tensorizer",
              "tensorizer/handmade": "handmade", "torch-1.13": "torch-1.13",
              "torch-2.13": "torch-2.13", "zanj/zanj-0.6": "zanj-0.6",
              "zanj/zanj-older": "zanj-older"}

# What PyTorch cannot load, so that only dtype, shape and bytes are compared.
NOT_LOADED = {"dtypes_v3.legacy.pth": "torch 2.13 cannot load what it saves so"}


def names_of_distributed():
    """The names that a recipe of a DTensor needs."""
    from torch.distributed import tensor
    from torch.distributed.tensor import placement_types
    return {name: getattr(module, name) for module, names in (
        (tensor, ("DeviceMesh", "DTensor")),
        (placement_types, ("Partial", "Replicate", "Shard", "_StridedShard"))) for name in names}


class Assembly:
    """The tensors of a mount, each made what it is by its recipe."""

    def __init__(self, root, convert=lambda attributes: attributes, **names):
        self.names = {**names, "torch": torch, "__builtins__": {}}
        self.convert = convert  # Makes of attributes in JSON what they were.
        self.made = {}          # Dotted keys -> tensor made by a recipe.
        self.root = self.assemble(TensorDict.load_memmap(root), root, ())

    def evaluate(self, recipe, keys, **names):
        tensor = self.made[".".join(keys)] = eval(recipe, {**self.names, **names})
        return tensor

    def assemble(self, loaded, directory, keys):
        """The object of a directory of the mount: a dict, or a tensor assembled from its parts."""
        parts, meta = {}, ckptfs.meta(directory)
        for name, entry in view.entries(directory).items():
            inner = (*keys, view.original(name, entry))
            if entry.get("type") == "TensorDict":
                parts[name] = self.assemble(loaded[name], directory / view.encode(name), inner)
            elif "recipe" in entry:
                tensor = {} if "type" in entry else {"tensor": loaded[name]}
                parts[name] = self.evaluate(entry["recipe"], inner, **tensor)
            elif "bytes" not in entry:  # Those are tables, which are no part of a TensorDict.
                parts[name] = loaded[name]
        about = meta.get("_ckptfs", {})
        if "recipe" not in about:
            return parts
        module, _, name = about["class"].rpartition(".")
        cls = getattr(importlib.import_module(module), name)
        return self.evaluate(about["recipe"], keys, **parts, cls=cls, parts=parts,
                             attributes=self.convert(about.get("attributes", {})))


def describe(tensor):
    """All that makes a tensor what it is, in a form that can be compared."""
    told = {"dtype": tensor.dtype, "layout": tensor.layout}
    if tensor.is_nested:
        pieces = zip(tensor.unbind(), strict=True) if tensor.layout is torch.strided else (
            (piece,) for piece in tensor.unbind())
        return told | {"pieces": [describe(piece) for piece, in pieces]}
    told["shape"] = tensor.shape
    if type(tensor).__name__ == "DTensor":
        mesh = tensor.device_mesh
        return told | {"placements": tensor.placements, "mesh": mesh.mesh.tolist(),
                       "names": mesh.mesh_dim_names,
                       "local": describe(tensor.to_local())}
    if hasattr(tensor, "__tensor_flatten__"):
        return told | {"class": type(tensor), "state": describe_value(state_of(tensor))}
    tensor = tensor.detach()
    if tensor.layout is not torch.strided:
        if tensor.layout is torch.sparse_coo:
            told["is_coalesced"] = tensor.is_coalesced()
        return told | {"dense": describe(tensor.to_dense())}
    if tensor.device.type == "meta":
        return told | {"stride": tensor.stride(), "device": "meta"}
    if tensor.is_quantized:
        told["scheme"] = tensor.qscheme()
        if tensor.dtype in (torch.quint4x2, torch.quint2x4):  # Which torch cannot dequantize all.
            data = tensor.untyped_storage()
            return told | {"scales": tensor.q_per_channel_scales().tolist(), "data": bytes(data)}
        return told | {"dequantized": describe(tensor.dequantize())}
    data = tensor.as_subclass(torch.Tensor).resolve_conj().resolve_neg().contiguous()
    return told | {"data": data.reshape(-1).view(torch.uint8).numpy().tobytes()}


def state_of(tensor):
    """The attributes of a tensor, as torch.save takes them, slots included."""
    state = torch._utils._get_obj_state(tensor)
    return state if isinstance(state, dict) else (state[0] or {}) | state[1]


def describe_value(value):
    """The same of anything: the types count."""
    if isinstance(value, torch.Tensor):
        return describe(value)
    if type(value) in (list, tuple, torch.Size):
        return (type(value), [describe_value(item) for item in value])
    if type(value) is dict:
        return {key: describe_value(item) for key, item in value.items()}
    return (type(value), value)


def tensors_of(value, keys=()):
    """Yields the dotted keys of all tensors that torch has loaded, and the tensors."""
    if isinstance(value, torch.Tensor):
        yield ".".join(keys) or "tensor", value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from tensors_of(item, (*keys, str(key)))
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from tensors_of(item, (*keys, str(index)))


class Case(ckptfs.Case):
    def setUp(self):
        if torch is None:
            self.skip_avoidable(MISSING)

    def compare(self, found, wanted):
        """Compares {keys: tensor}, made by recipes, with what torch has loaded."""
        for keys, tensor in found.items():
            with self.subTest(keys):
                if keys not in wanted:  # Part of one that is compared.
                    self.assertIn(keys.rpartition(".")[0], found)
                    continue
                self.assertEqual(describe(tensor), describe(wanted[keys]))


class Samples(Case):
    """The recipes of all samples."""

    def setUp(self):
        super().setUp()
        from torch.testing._internal.distributed.fake_pg import FakeStore
        torch.distributed.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
        self.addCleanup(torch.distributed.destroy_process_group)

    def check_entries(self, root, made):
        """The entries of a mount have the dtypes, shapes and sizes of the tensors."""
        for kind, keys, what in view.walk(root):
            if kind == "tensor" and "x_dtype" in what.entry and "recipe" in what.entry:
                tensor = made[".".join(keys)]
                if not tensor.is_quantized:
                    self.assertEqual((str(tensor.dtype), tuple(tensor.shape)),
                                     (what.dtype, what.shape))
                    self.assertEqual(describe(tensor)["data"], ckptfs.read(what.path))

    def evaluate(self, file):
        """Evaluates all recipes of a checkpoint; returns how many there are."""
        with self.mount(file, quiet=False) as mount:
            count = self.evaluate_mount(mount.path, file)
            gc.collect()  # A mount is busy as long as tensors are mapped.
            return count

    def evaluate_mount(self, root, file):
        made = Assembly(root, **names_of_distributed()).made
        recipes = json.dumps(entries_below(root)).count('"recipe":')
        self.assertEqual(len(made), recipes)
        self.check_entries(root, made)
        if file.suffix in (".pth", ".pt") and made and file.name not in NOT_LOADED:
            self.compare(made, dict(tensors_of(oracle.load(file))))
        return len(made)

    def evaluate_samples(self, folder):
        """Evaluates those samples of a folder in whose trees there are recipes."""
        trees = GOLDEN / WITH_TREES[folder]
        found = 0
        for tree in sorted(trees.glob("*.txt")):
            if '"recipe": ' not in tree.read_text():
                continue
            with self.subTest(tree.stem):
                found += self.evaluate(self.sample(ckptfs.SAMPLES / folder, tree.stem))
        return found

    def sample(self, folder, name):
        """The sample of a tree: a file, one that is packed, or a directory."""
        if (folder / f"{name}.gz").exists():
            file = self.scratch() / name
            file.write_bytes(gzip.decompress((folder / f"{name}.gz").read_bytes()))
            return file
        found = [path for path in folder.rglob("*")
                 if str(path.relative_to(folder)).replace("/", "_") == name]
        self.assertEqual(len(found), 1, name)
        return found[0]

    def test_of_samples_of_torch_1_13(self):
        self.assertGreater(self.evaluate_samples("torch-1.13"), 8)

    def test_of_samples_of_torch_2_13(self):
        self.assertGreater(self.evaluate_samples("torch-2.13"), 40)

    def test_of_all_other_samples_that_have_trees(self):
        for folder in sorted(set(WITH_TREES) - {"torch-1.13", "torch-2.13"}):
            with self.subTest(folder):
                found = self.evaluate_samples(folder)
                self.assertEqual(found > 0, folder in {"dcp", "tensorizer", "zanj/zanj-0.6"})

    def test_of_distributed_tensors_name_the_dimensions_of_the_mesh(self):
        names = names_of_distributed()
        mesh = names["DeviceMesh"]("cpu", [[0], [1]], mesh_dim_names=("data", "model"))
        placements = {"plain": [names["Shard"](0), names["Replicate"]()],
                      "partial": [names["Partial"]("avg"), names["Shard"](1)],
                      "strided": [names["_StridedShard"](0, split_factor=1), names["Shard"](0)]}
        saved = {key: names["DTensor"].from_local(torch.ones(2, 4), mesh, each, run_check=False)
                 for key, each in placements.items()}
        file = self.scratch() / "distributed.pth"
        torch.save(saved, file)
        self.assertEqual(self.evaluate(file), len(saved))

    def test_no_folder_of_samples_is_forgotten(self):
        self.assertEqual(set(WITH_TREES.values()), {p.name for p in GOLDEN.iterdir()})

    def test_of_safetensors(self):
        self.assertGreater(self.evaluate(ckptfs.SAMPLES / "safetensors/dtypes.safetensors"), 4)


def entries_below(directory):
    """The entries and descriptions in all meta.json below a directory, without values."""
    told = [ckptfs.meta(directory).get("_ckptfs", {})]
    for name, entry in view.entries(directory).items():
        told.append(entry)
        if entry.get("type") == "TensorDict":
            told.append(entries_below(directory / view.encode(name)))
    return told


if torch is not None:
    class Packed(torch.Tensor):
        """A wrapper subclass with attributes whose types JSON loses, some in slots."""

        __slots__ = ("_data", "_dtype", "_block")

        def __new__(cls, data, **attributes):
            self = torch.Tensor._make_wrapper_subclass(cls, data.shape, dtype=torch.float32)
            self._data = data
            for name, value in attributes.items():
                setattr(self, name, value)
            return self

        def __tensor_flatten__(self):
            return ["_data"], None

        @classmethod
        def __torch_dispatch__(cls, function, types, arguments=(), keywords=None):
            if function is torch.ops.aten.detach.default:
                return arguments[0]
            raise NotImplementedError(function)


class Wrappers(Case):
    """Wrapper subclasses, of our own and of libraries, are what they were."""

    def saved(self, root):
        """The object of torch.save, rebuilt by the recipes of a mount."""
        file = self.scratch() / "wrapped.pth"
        torch.save(root, file)
        mount = self.mount(file)
        made = Assembly(mount.path, self.convert).made
        self.addCleanup(gc.collect)
        return made

    def convert(self, attributes):
        """Builds the attributes that docs/layout.md leaves to the user: objects of the library."""
        made = {}
        for name, value in attributes.items():
            if isinstance(value, dict) and set(value.get("state", {})) == {"args"}:  # An enum.
                module, _, kind = value["class"].rpartition(".")
                value = getattr(importlib.import_module(module), kind)(*value["state"]["args"])
            made[name] = value
        return made

    def check(self, root):
        """Compares all that recipes make of a saved dict with what was saved."""
        made = self.saved(root)
        wanted = {keys: tensor for keys, tensor in tensors_of(root)
                  if hasattr(tensor, "__tensor_flatten__")}
        self.assertLessEqual(set(wanted), set(made))
        self.compare({keys: made[keys] for keys in wanted}, wanted)
        return made

    def test_types_that_json_lacks_are_restored(self):
        self.check({"w": Packed(
            torch.arange(6, dtype=torch.int8).reshape(2, 3), _dtype=torch.int4, _block=(1, 3),
            shape_before=torch.Size((2, 3)), device_before=torch.device("cuda", 1),
            limits=[float("inf"), -1.5, (2 ** 80, None)], bytes_before=b"\0'", text="a'\n\\é",
            layout_before=torch.sparse_csr, tensors=(None, torch.ones(2), (torch.zeros(1),)),
            numbers={1: (2,)}, plain={"a": [1, 2.5, "b", None, True]})})

    def test_of_pytorch_come_back(self):
        from torch.testing._internal.two_tensor import TwoTensor
        saved = TwoTensor(torch.arange(6.0).reshape(2, 3), torch.ones(2, 3))
        again = self.check({"w": saved})["w"]
        self.assertTrue(torch.equal((again + 1).a, saved.a + 1))

    def test_weights_of_torchao_come_back(self):
        quantization = self.library("torchao.quantization")
        granularity = self.library("torchao.quantization.granularity")
        weights = {
            "int8": quantization.Int8WeightOnlyConfig(),
            "float8": quantization.Float8WeightOnlyConfig(),
            "groups": quantization.IntxWeightOnlyConfig(
                weight_dtype=torch.int4, granularity=granularity.PerGroup(32)),
            "axis": quantization.IntxWeightOnlyConfig(
                weight_dtype=torch.int2, granularity=granularity.PerAxis(0))}
        saved = {}
        for name, config in weights.items():
            layer = torch.nn.Linear(64, 8, dtype=torch.bfloat16)
            quantization.quantize_(layer, config)
            saved[name] = layer.weight
        made = self.check(saved)
        row = torch.ones(1, 64, dtype=torch.bfloat16)
        for name, weight in saved.items():
            with self.subTest(name):
                self.assertTrue(torch.equal(made[name].dequantize(), weight.dequantize()))
                self.assertTrue(torch.equal(torch.nn.functional.linear(row, made[name]),
                                            torch.nn.functional.linear(row, weight)))

    def test_states_of_optimizers_of_torchao_come_back(self):
        saved = {}
        for module, kind in (("8bit", "OptimState8bit"), ("4bit", "OptimState4bit"),
                             ("fp8", "OptimStateFp8")):
            library = self.library(f"torchao.optim.subclass_{module}")
            state = getattr(library, kind).zeros((64, 128))
            state.codes.view(torch.uint8).copy_(torch.arange(state.codes.numel()).reshape(
                state.codes.shape) % 100)
            state.scale.copy_(torch.linspace(0.1, 2, state.scale.numel()))
            saved[kind] = state
        made = self.check(saved)
        for kind, state in saved.items():
            with self.subTest(kind):
                self.assertTrue(torch.equal(made[kind].dequantize(), state.dequantize()))

    def test_indices_of_pyg_come_back(self):
        geometric = self.library("torch_geometric")
        edges = [[0, 1, 1, 2], [1, 0, 2, 1]]
        cached = geometric.EdgeIndex(edges, sparse_size=(3, 3), sort_order="row")
        cached.fill_cache_()
        made = self.check({"plain": geometric.EdgeIndex(edges), "cached": cached,
                           "index": geometric.Index([0, 1, 1], dim_size=3, is_sorted=True)})
        made["cached"].validate()
        self.assertEqual((made["cached"].sort_order, made["cached"].sparse_size()), ("row", (3, 3)))
        self.assertTrue(torch.equal(made["cached"] @ torch.eye(3), cached @ torch.eye(3)))

    def test_of_jagged_tensors_in_a_batch_load_with_the_rest(self):
        pieces = [torch.ones(2), torch.arange(3.0)]
        jagged = torch.nested.nested_tensor(pieces, layout=torch.jagged)
        saved = TensorDict({"n": jagged, "x": torch.ones(2), "rest": TensorDict({}, [2]),
                            "sub": TensorDict({"m": jagged, "y": torch.ones(2)}, [2])}, [2])
        folder = self.scratch()
        torch.save(saved, folder / "saved.pt")
        saved.consolidate(folder / "consolidated.td")
        for file in folder.iterdir():
            with self.subTest(file.name), self.mount(file) as mount:
                loaded = TensorDict.load_memmap(mount.path)
                self.assertEqual((loaded.batch_size, loaded["rest"].batch_size), ((), (2,)))
                self.assertTrue(torch.equal(loaded["sub"]["y"], torch.ones(2)))
                self.assertEqual(ckptfs.meta(mount.path)["_ckptfs"]["batch_size"], [2])
                self.assertEqual(view.entries(mount.path)["sub"]["batch_size"], [2])
                made = Assembly(mount.path).made
                self.assertEqual(set(made), {"n", "sub.m"})
                self.compare(made, dict.fromkeys(made, jagged))
                del loaded, made
                gc.collect()

    def library(self, name):
        try:
            return importlib.import_module(name)
        except ImportError as error:
            self.skip_avoidable(str(error))
