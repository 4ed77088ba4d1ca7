"""Tensors that are made of other tensors: their parts on the mount, put together by their recipes."""

import ckptfs
import craft
import view

try:
    import torch
    from tensordict import TensorDict
except ImportError as error:
    torch = None
    MISSING = str(error)


def sparse_tensors():
    dense = torch.tensor([[1.0, 0, 2, 0], [0, 0, 3, 0], [0, 4, 0, 0], [0, 0, 0, 5]])
    return {
        "coo": torch.sparse_coo_tensor([[0, 1, 1], [2, 0, 0]], [3.0, 4.0, 5.0], (2, 3)),
        "coalesced": torch.sparse_coo_tensor([[0, 1, 1], [2, 0, 0]], [3.0, 4.0, 5.0],
                                             (2, 3)).coalesce(),
        "hybrid": torch.sparse_coo_tensor([[0, 2]], [[1.0, 2], [3, 4]], (4, 2)),
        "empty": torch.sparse_coo_tensor(size=(5, 6)),
        "half": dense.to(torch.bfloat16).to_sparse(),
        "csr": dense.to_sparse_csr(),
        "csc": dense.to_sparse_csc(),
        "bsr": dense.to_sparse_bsr((2, 2)),
        "bsc": dense.to_sparse_bsc((2, 2)),
        "batched": torch.stack([dense, dense.flip(0)]).to_sparse_csr(),
        "parameter": torch.nn.Parameter(dense.to_sparse()),
    }


def quantized_tensors():
    weight = torch.linspace(-1, 1, 24).reshape(4, 6)
    scales, zeros = torch.linspace(0.1, 0.4, 4), torch.tensor([0, 1, 2, 3])
    return {
        "int8": torch.quantize_per_tensor(weight, 0.05, 3, torch.qint8),
        "uint8": torch.quantize_per_tensor(weight, 0.05, 3, torch.quint8),
        "int32": torch.quantize_per_tensor(weight, 0.05, 0, torch.qint32),
        "view": torch.quantize_per_tensor(weight, 0.05, 3, torch.quint8)[1:3, ::2],
        "channel": torch.quantize_per_channel(weight, scales.double(), zeros, 0, torch.qint8),
        "columns": torch.quantize_per_channel(weight.t(), scales.double(), zeros, 1, torch.quint8),
        "nibbles": torch.quantize_per_channel(weight, scales, zeros.float(), 0, torch.quint4x2),
        "crumbs": torch.quantize_per_channel(weight, scales, zeros.float(), 0, torch.quint2x4),
    }


def recipe_of(mount, key):
    """What the mount tells of a tensor: its entry, or what the directory of a composite one tells."""
    entry = ckptfs.meta(mount.path)[key]
    return ckptfs.meta(mount / key)["_ckptfs"] if entry.get("type") == "TensorDict" else entry


def assemble(mount, key, **names):
    """Puts a tensor together by its recipe."""
    loaded = TensorDict.load_memmap(mount.path)[key]
    parts = dict(loaded.items()) if isinstance(loaded, TensorDict) else {"tensor": loaded}
    return eval(recipe_of(mount, key)["recipe"],
                {**parts, **names, "torch": torch, "__builtins__": {}})


class Composite(ckptfs.Case):
    def setUp(self):
        if torch is None:
            self.skip_avoidable(MISSING)

    def saved(self, root, **options):
        file = self.scratch() / "model.pth"
        torch.save(root, file, **options)
        return self.mount(file)

    def test_sparse_tensors_are_put_together_by_their_recipes(self):
        tensors = sparse_tensors()
        mount = self.saved(tensors)
        for key, tensor in tensors.items():
            with self.subTest(key):
                again = assemble(mount, key)
                self.assertEqual(again.layout, tensor.layout)
                self.assertEqual(again.dtype, tensor.dtype)
                self.assertTrue(torch.equal(again.to_dense(), tensor.detach().to_dense()))
                told = recipe_of(mount, key)
                self.assertEqual(told["shape"], list(tensor.shape))
                self.assertEqual(told["layout"], str(tensor.layout))
                if tensor.layout is torch.sparse_coo:
                    self.assertEqual(again.is_coalesced(), tensor.is_coalesced())

    def test_quantized_tensors_are_put_together_by_their_recipes(self):
        tensors = quantized_tensors()
        mount = self.saved(tensors)
        for key, tensor in tensors.items():
            with self.subTest(key):
                again = assemble(mount, key)
                self.assertEqual((again.dtype, again.qscheme(), again.shape),
                                 (tensor.dtype, tensor.qscheme(), tensor.shape))
                self.assertTrue(torch.equal(again.dequantize(), tensor.dequantize()))

    def test_nested_tensors_are_put_together_by_their_recipes(self):
        pieces = [torch.arange(6.0).reshape(2, 3), torch.arange(9.0).reshape(3, 3)]
        tensors = {"strided": torch.nested.nested_tensor(pieces),
                   "jagged": torch.nested.nested_tensor(pieces, layout=torch.jagged)}
        mount = self.saved(tensors)
        for key in tensors:
            with self.subTest(key):
                again = assemble(mount, key)
                self.assertEqual(again.layout, tensors[key].layout)
                for found, piece in zip(again.unbind(), pieces, strict=True):
                    self.assertTrue(torch.equal(found, piece))

    def test_types_that_numpy_and_tensordict_do_not_know_are_views_of_bytes(self):
        tensors = {"f8": torch.arange(6.0).reshape(2, 3).to(torch.float8_e4m3fn),
                   "scalar": torch.tensor(1.5).to(torch.float8_e5m2),
                   "bits": torch.arange(4, dtype=torch.uint8).view(torch.bits8)}
        mount = self.saved(tensors)
        for key, tensor in tensors.items():
            with self.subTest(key):
                again = assemble(mount, key)
                self.assertEqual((again.dtype, again.shape), (tensor.dtype, tensor.shape))
                self.assertTrue(torch.equal(again.view(torch.uint8), tensor.view(torch.uint8)))

    def test_a_complex_tensor_of_halves_is_loaded_as_it_is(self):
        tensor = torch.tensor([1 + 2j, 3 - 4j], dtype=torch.complex32)
        mount = self.saved({"c": tensor})
        self.assertEqual(ckptfs.read(mount / "c.memmap"), tensor.view(torch.uint8).numpy().tobytes())
        self.assertEqual(ckptfs.meta(mount.path)["c"]["dtype"], "torch.complex32")

    def test_a_tensor_on_the_device_meta_is_a_value_with_a_recipe(self):
        mount = self.saved({"m": torch.empty_strided((3, 4), (1, 3), device="meta"),
                            "real": torch.ones(2)})
        recipe = view.entries(mount.path)["m"]["recipe"]
        self.assertNotIn("recipe", ckptfs.meta(mount / "m")["data"])
        again = eval(recipe, {"__builtins__": {}, "torch": torch})
        self.assertEqual((again.shape, again.stride(), again.device.type), ((3, 4), (1, 3), "meta"))

    def test_an_uninitialised_parameter_is_a_value(self):
        mount = self.saved({"u": torch.nn.parameter.UninitializedParameter(), "real": torch.ones(2)})
        self.assertEqual(ckptfs.meta(mount / "u")["data"]["class"],
                         "torch.nn.parameter.UninitializedParameter")

    def test_a_wrapper_subclass_shows_what_it_wraps_and_its_attributes(self):
        mount = self.mount(ckptfs.SAMPLES / "torch-2.13/two_tensor.pth")
        told = recipe_of(mount, "tt")
        self.assertEqual(told["class"], "torch.testing._internal.two_tensor.TwoTensor")
        self.assertEqual(told["shape"], [2, 2])
        self.assertTrue((mount / "nested/a/b.memmap").is_file())

    def test_a_distributed_tensor_has_mesh_and_placements(self):
        mount = self.mount(ckptfs.SAMPLES / "torch-2.13/dtensor.pth")
        told = {key: recipe_of(mount, key) for key in ("shard0", "shard1", "rep", "partial")}
        self.assertEqual({key: t["placements"] for key, t in told.items()},
                         {"shard0": ["Shard(dim=0)"], "shard1": ["Shard(dim=1)"],
                          "rep": ["Replicate()"], "partial": ["Partial('sum')"]})
        self.assertEqual({tuple(t["mesh"]) for t in told.values()}, {(0, 1)})
        self.assertEqual(told["shard1"]["shape"], [2, 5])
        self.assertEqual([p.name for p in (mount / "shard1").iterdir() if p.name != "meta.json"],
                         ["_local_tensor.memmap"])

    def test_a_distributed_tensor_is_put_together_by_its_recipe(self):
        from torch.distributed.tensor import DeviceMesh, DTensor, Partial, Replicate, Shard
        from torch.testing._internal.distributed.fake_pg import FakeStore
        mount = self.mount(ckptfs.SAMPLES / "torch-2.13/dtensor.pth")
        names = {c.__name__: c for c in (DeviceMesh, DTensor, Partial, Replicate, Shard)}
        torch.distributed.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
        try:
            whole = assemble(mount, "shard1", **names)
            self.assertEqual((whole.shape, whole.placements), ((2, 5), (Shard(1),)))
            self.assertEqual(whole.to_local().shape, (2, 3))
        finally:
            torch.distributed.destroy_process_group()

    def test_a_sharded_tensor_has_the_places_of_its_shards(self):
        mount = self.mount(ckptfs.SAMPLES / "torch-2.13/sharded_tensor.pth")
        told = recipe_of(mount, "s")
        self.assertEqual(told["shards"], [{"offsets": [0, 0], "sizes": [3, 3], "rank": 0},
                                          {"offsets": [3, 0], "sizes": [2, 3], "rank": 1}])
        self.assertEqual(told["local_shards"], told["shards"][:1])
        self.assertEqual((mount / "s/shard0.memmap").stat().st_size, 36)

    def test_a_wrapped_tensor_that_wraps_itself_is_cut_there(self):
        file = self.scratch() / "loop.pth"
        size = craft.sequence(craft.integer(4))
        kind = craft.glob("package", "Wrapper")
        state = craft.mapping(("a", craft.tensor("0", [4], kind="ByteStorage")))
        wrapper = craft.call(
            craft.glob("torch._tensor", "_rebuild_from_type_v2"),
            craft.glob("torch._utils", "_rebuild_wrapper_subclass"), kind,
            craft.sequence(kind, craft.glob("torch", "uint8"), size, size), state + b"q\1")
        # The state, memo 1, gets the tensor, memo 2, as another attribute.
        loop = wrapper + b"q\2h\1" + craft.text("self") + b"h\2s0"
        craft.write_checkpoint(file, craft.mapping(("w", loop)), [("0", b"abcd")])
        mount = self.mount(file)
        self.assertEqual(ckptfs.read(mount / "w/a.memmap"), b"abcd")
        self.assertEqual(ckptfs.meta(mount / "w")["_ckptfs"]["attributes"], {"self": "..."})
