"""Files that the library itself writes in the test, with objects at random and in every mode."""

import hashlib
import random
import warnings
import zipfile

import ckptfs
import view
from zanj_test import Look, flat, plain

try:
    import ml_dtypes
    import numpy
    import pandas
    import torch
    from muutils.json_serialize import SerializableDataclass, serializable_dataclass
    from tensordict import TensorDict
    from zanj import ZANJ
    from zanj.torchutil import ConfiguredModel, set_config_class
    MISSING = ""
except ImportError as error:
    MISSING = str(error)

NUMPY = ("bool", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8")
TORCH = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")

if not MISSING:
    @serializable_dataclass(kw_only=True)
    class Config(SerializableDataclass):
        inputs: int
        hidden: int
        name: str

    @set_config_class(Config)
    class Model(ConfiguredModel[Config]):
        def __init__(self, config):
            super().__init__(config)
            self.layers = torch.nn.Sequential(
                torch.nn.Linear(config.inputs, config.hidden), torch.nn.ReLU(),
                torch.nn.BatchNorm1d(config.hidden), torch.nn.Linear(config.hidden, 2))


def random_array(rng, dtype, shape):
    """Any bits that are elements of the type, NaN and infinities too."""
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    kind = numpy.dtype(dtype)
    raw = rng.integers(0, 256, (*shape, kind.itemsize), dtype="u1").view(kind)[..., 0]
    # JSON has one NaN only.
    return numpy.where(numpy.isnan(raw), kind.type("nan"), raw) if kind.kind == "f" else raw


def random_shape(rng):
    return tuple(int(n) for n in rng.integers(1, 7, rng.integers(0, 5)))


def random_object(rng, depth=0):
    """A dict with arrays and other things in it, and what it should be on the mount."""
    made = {}
    for i in range(rng.integers(1, 6)):
        key = rng.choice(["w", "layer.weight", "a/b", "é", "x y"]) + str(i)
        kind = rng.integers(0, 7)
        if kind == 0 and depth < 3:
            made[key] = random_object(rng, depth + 1)
        elif kind == 1:
            made[key] = [int(n) for n in rng.integers(-9, 9, rng.integers(0, 40))]
        elif kind == 2:
            made[key] = rng.choice([1.5, float("nan"), float("inf"), -0.25]).item()
        elif kind == 3:
            made[key] = [random_array(rng, "f4", (3,)), "text", None]
        elif kind == 4:
            made[key] = torch.from_numpy(
                random_array(rng, "i8", random_shape(rng))).to(getattr(torch, rng.choice(TORCH)))
        else:
            made[key] = random_array(rng, rng.choice(NUMPY), random_shape(rng))
    return made


def leaf_of(array):
    array = array.detach().numpy() if isinstance(array, torch.Tensor) else array
    raw = numpy.ascontiguousarray(array).tobytes()
    return view.Leaf("torch." + array.dtype.name, array.shape, hashlib.sha256(raw).hexdigest())


def expected(x, keys=()):
    """The leaves and the scalars of an object."""
    if isinstance(x, (numpy.ndarray, torch.Tensor)):
        return {".".join(keys): leaf_of(x)}, {}
    if not isinstance(x, (dict, list)) or not x:
        return {}, flat(plain(x), keys)
    tensors, values = {}, {}
    for key, part in x.items() if isinstance(x, dict) else enumerate(x):
        below = expected(part, (*keys, str(key)))
        tensors |= below[0]
        values |= below[1]
    return tensors, values


class Library(ckptfs.Case):
    def setUp(self):
        if MISSING:
            self.skip_avoidable(MISSING)
        warnings.simplefilter("ignore")
        self.folder = self.scratch()

    def save(self, obj, **options):
        file = self.folder / "saved.zanj"
        ZANJ(**options).save(obj, str(file))
        return file

    def assertOnMount(self, obj, **options):
        file = self.save(obj, **options)
        mount = self.mount(file)
        look = Look(mount.path)
        tensors, values = expected(obj)
        self.assertEqual(look.tensors, tensors)
        self.assertEqual(look.values, values)
        self.assertEqual(mount.unmount(), 0)

    def test_random_objects(self):
        for seed in range(12):
            with self.subTest(seed):
                rng = numpy.random.default_rng(seed)
                self.assertOnMount(random_object(rng),
                                   external_array_threshold=int(rng.integers(2, 40)),
                                   external_list_threshold=int(rng.integers(60, 400)),
                                   compress=bool(rng.integers(0, 2)))

    def test_random_objects_with_arrays_in_hex(self):
        self.assertOnMount(random_object(numpy.random.default_rng(100)),
                           internal_array_mode="array_hex_meta")

    def test_random_objects_with_arrays_in_base64(self):
        self.assertOnMount(random_object(numpy.random.default_rng(101)),
                           internal_array_mode="array_b64_meta")

    def test_lists_that_are_shorter_than_arrays_in_them(self):
        # Then data of an inline array are a list outside, and rows of that may be, too.
        obj = {"a": numpy.arange(60.0).reshape(6, 10), "b": torch.arange(20), "l": list(range(7))}
        self.assertOnMount(obj, external_array_threshold=100, external_list_threshold=5)

    def test_every_type_of_ml_dtypes_that_torch_has(self):
        arrays = {name: numpy.arange(300).astype(getattr(ml_dtypes, name)) for name in (
            "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
            "float8_e8m0fnu")}
        self.assertOnMount(arrays | {"small": numpy.arange(4).astype(ml_dtypes.bfloat16)})

    def test_files_compressed_by_bzip2(self):
        self.assertOnMount({"a": numpy.arange(300), "b": numpy.arange(3)},
                           compress=zipfile.ZIP_BZIP2)

    def test_files_compressed_by_lzma(self):
        self.assertOnMount({"a": numpy.arange(300), "b": numpy.arange(3)},
                           compress=zipfile.ZIP_LZMA)

    def test_optimizer_states_which_zanj_cannot_read_itself(self):
        model = torch.nn.Linear(30, 10)
        optimizer = torch.optim.Adam(model.parameters())
        model(torch.ones(30)).sum().backward()
        optimizer.step()
        mount = self.mount(self.save({"opt": optimizer.state_dict()}))
        look = Look(mount.path)
        state = optimizer.state_dict()["state"]
        self.assertEqual(look.tensors, {f"opt.state.{i}.{k}": leaf_of(v)
                                        for i, s in state.items() for k, v in s.items()})
        self.assertEqual(look.values["opt.param_groups.0.lr"], 0.001)

    def test_a_model_is_restored_from_the_mount(self):
        torch.manual_seed(7)
        model = Model(Config(inputs=40, hidden=20, name="tiny"))
        model.training_records = {"loss": [1.0, 0.5]}
        mount = self.mount(self.save(model))
        loaded = TensorDict.load_memmap(mount / "state_dict")
        restored = Model(Config(inputs=40, hidden=20, name="other"))
        restored.load_state_dict({k: v.as_subclass(torch.Tensor) for k, v in
                                  loaded.flatten_keys(".").items()})
        for (key, mine), theirs in zip(restored.state_dict().items(), model.state_dict().values()):
            self.assertTrue(torch.equal(mine, theirs), key)
        whole = TensorDict.load_memmap(mount.path)
        self.assertEqual(whole["zanj_model_config"],
                         {"inputs": 40, "hidden": 20, "name": "tiny"})
        self.assertEqual(ckptfs.meta(mount.path)["_ckptfs"]["python_type"], "Model")

    def test_a_state_dict_is_loaded_whole_from_the_root(self):
        model = torch.nn.Linear(30, 10)
        loaded = TensorDict.load_memmap(self.mount(self.save(model.state_dict())).path)
        restored = torch.nn.Linear(30, 10)
        restored.load_state_dict({k: v.as_subclass(torch.Tensor) for k, v in loaded.items()})
        self.assertTrue(torch.equal(restored.weight, model.weight))

    def test_data_frames_are_what_pandas_reads(self):
        rng = random.Random(3)
        frame = pandas.DataFrame({"step": range(300), "loss": [rng.random() for _ in range(300)],
                                  "label": [f"é{i}" for i in range(300)],
                                  "gap": [None if i % 7 else i / 2 for i in range(300)]})
        mount = self.mount(self.save({"log": frame, "none": frame.head(0)}))
        read = pandas.read_json(mount / "log.jsonl", lines=True, precise_float=True)
        pandas.testing.assert_frame_equal(read, frame)
        entries = ckptfs.meta(mount.path)
        self.assertEqual((entries["log"]["rows"], entries["log"]["columns"]),
                         (300, list(frame.columns)))
        self.assertEqual(ckptfs.read(mount / "none.jsonl"), b"")

    def test_rows_with_arrays_are_beside_their_lines(self):
        rows = [{"i": i, "w": numpy.arange(300) + i} for i in range(300)]
        file = self.save({"rows": rows})
        mount = self.mount(file)
        look = Look(mount.path)
        self.assertEqual(look.tensors, {f"rows.{i}.w": leaf_of(r["w"]) for i, r in enumerate(rows)})
        self.assertEqual(look.values, {f"rows.{i}.i": i for i in range(300)})
        with zipfile.ZipFile(file) as archive:
            self.assertEqual(ckptfs.read(mount / "rows.jsonl"), archive.read("rows.jsonl"))

    def test_dataclasses_have_their_class_names(self):
        mount = self.mount(self.save([Config(inputs=1, hidden=2, name="x"), numpy.arange(3)]))
        entries = ckptfs.meta(mount.path)
        self.assertEqual(entries["0"]["python_type"], "Config(SerializableDataclass)")
        self.assertEqual(ckptfs.meta(mount / "0")["data"], {"inputs": 1, "hidden": 2, "name": "x"})
