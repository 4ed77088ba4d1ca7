"""Objects in pickles beside tensors of torch: arrays and scalars of NumPy by all the libraries
that pickle them, TensorDicts, modules, times, kinds of dicts.

tests/samples/pickles has files of libraries that are not needed here, with what they read back.
"""

import json
import os
import pickle
import subprocess
import sys

import ckptfs
import view
from ckptfs import FORMAT

FOLDER = ckptfs.SAMPLES / "pickles"
EXPECTED = json.loads((FOLDER / "expected.json").read_text())

try:
    import ml_dtypes
    import numpy as np
except ImportError as error:
    np = None
    MISSING = str(error)

COMPRESSED = {"joblib_zlib.joblib": "zlib", "joblib_bz2.joblib": "bzip2",
              "joblib_xz.joblib": "xz", "joblib_lzma.joblib": "lzma", "joblib_lz4.joblib": "lz4"}


def leaves(data, keys):
    """{dotted keys: leaf} of JSON."""
    if not isinstance(data, (dict, list)):
        return {keys: data}
    found = {}
    if isinstance(data, dict) and set(data) <= {"class", "items", "state"} and "class" in data:
        return leaves(data.get("items", []), keys) | leaves(data.get("state", {}), keys)
    for key, member in data.items() if isinstance(data, dict) else enumerate(data):
        found |= leaves(member, f"{keys}.{key}")
    return found


def values(mount):
    """{dotted keys: leaf} of all values."""
    found = {}
    for keys, members in view.values(mount.path).items():
        for data in members:
            found |= leaves(data, keys)
    return found


class Samples(ckptfs.Case):
    def readable(self):
        return {name: wanted for name, wanted in EXPECTED.items() if name not in COMPRESSED}

    def test_every_array_is_there_and_right(self):
        for name, wanted in self.readable().items():
            with self.subTest(name), self.mount(FOLDER / name) as mount:
                tensors = {keys: [view.Leaf(dtype, tuple(shape), digest)]
                           for keys, (dtype, shape, digest) in wanted["tensors"].items()}
                found = view.tensors(mount.path)
                for keys, [wanted_leaf] in tensors.items():
                    if wanted_leaf.sha256 is None:  # What lies between fields is not kept.
                        found[keys] = [leaf._replace(sha256=None) for leaf in found[keys]]
                self.assertEqual(found, tensors)

    def test_every_plain_value_is_there_and_right(self):
        for name, wanted in self.readable().items():
            with self.subTest(name), self.mount(FOLDER / name) as mount:
                found = values(mount)
                self.assertEqual({keys: found.get(keys, "missing") for keys in wanted["values"]},
                                 wanted["values"])

    def test_arrays_are_served_from_the_file(self):
        for name in "dill.pkl", "joblib.joblib", "dict.npy":
            with self.subTest(name), self.mount(FOLDER / name) as mount:
                found = ckptfs.read(mount / "w.memmap")
                self.assertGreater(len(found), 0)
                self.assertIn(found, (FOLDER / name).read_bytes())

    def test_several_files_of_joblib_in_one(self):
        file = self.scratch() / "two.joblib"
        sample, wanted = next((FOLDER / name, wanted) for name, wanted in EXPECTED.items()
                              if name.endswith(".joblib") and name not in COMPRESSED)
        file.write_bytes(2 * sample.read_bytes())
        with self.mount(file) as mount:
            self.assertEqual(set(view.entries(mount.path)), {"0", "1"})
            tensors = {f"{number}.{keys}": [view.Leaf(dtype, tuple(shape), digest)]
                       for keys, (dtype, shape, digest) in wanted["tensors"].items()
                       for number in (0, 1)}
            self.assertEqual(view.tensors(mount.path), tensors)

    def test_bytes_behind_a_file_of_joblib_are_reported(self):
        file = self.scratch() / "more.joblib"
        sample = next(FOLDER / name for name in EXPECTED
                      if name.endswith(".joblib") and name not in COMPRESSED)
        file.write_bytes(sample.read_bytes() + b"more")
        with self.mount(file, quiet=False) as mount:
            self.assertIn("4 bytes follow the pickle", mount.messages)

    def test_compressed_joblib_fails_with_the_next_step(self):
        for name, method in COMPRESSED.items():
            with self.subTest(name):
                done = self.ckptfs(FOLDER / name, self.mountpoint())
                self.assertRefusedLike(done, FORMAT, rf".*compressed by {method}.*: .*")

    def test_a_masked_array_is_its_data_and_its_mask(self):
        mount = self.mount(FOLDER / "masked_5.pkl")
        about = ckptfs.meta(mount / "plain")["_ckptfs"]
        self.assertEqual(about["class"], "numpy.ma.MaskedArray")
        self.assertEqual(list(view.entries(mount / "plain")), ["data", "mask", "fill_value"])

    def test_an_array_knows_its_class(self):
        mount = self.mount(FOLDER / "jax.pkl")
        self.assertEqual(view.entries(mount.path)["w"]["python_type"], "jax.Array")

    def test_kinds_of_dicts_are_shown_once(self):
        content = {"lr": .5, "names": ["a"], "model": {"depth": 2, "kind": {"deep": None}}}
        for name in "dicts_2.pkl", "dicts_4.pkl":
            mount = self.mount(FOLDER / name)
            found = view.values(mount.path)
            for key, python_type in (("easydict", "easydict.EasyDict"), ("addict", "addict.addict.Dict"),
                                     ("mmengine", "mmengine.config.config.ConfigDict")):
                with self.subTest(name + key):
                    self.assertEqual(found[key], [content])
                    self.assertEqual(view.entries(mount.path)[key]["python_type"], python_type)
            for key in "easydict_tensor", "addict_tensor":
                self.assertEqual(set(view.entries(mount / key)), {"w", "a"})

    def test_texts_of_the_standard_library(self):
        wanted = {
            "datetime": "2020-02-29T01:02:03.000045", "whole": "0001-01-01T00:00:00",
            "fold": "2020-10-25T02:30:00", "zoned": "2020-02-29T01:02:03+05:30",
            "utc": "2020-02-29T00:00:00+00:00", "date": "9999-12-31", "time": "23:59:59.999999",
            "zoned_time": "01:00:00+05:30", "zone": "+05:30", "delta": "P1DT1H2M3.500000S",
            "negative": "-PT1S", "zero": "PT0S", "days": "P7D", "decimal": "1.50",
            "fraction": "-1/3", "integer": "4", "uuid": "00112233-4455-6677-8899-aabbccddeeff",
            "small_uuid": "00000000-0000-0000-0000-000000000005", "path": "a/b"}
        for protocol in range(6):
            found = values(self.mount(FOLDER / f"standard_{protocol}.pkl"))
            with self.subTest(protocol):
                self.assertEqual({key: found.get(f"value.{key}", found.get(key)) for key in wanted},
                                 wanted)

    def test_modules_have_the_names_of_their_state_dict(self):
        mount = self.mount(FOLDER / "compiled.pt")
        self.assertIn("model._orig_mod.0.weight", view.tensors(mount.path))
        mount = self.mount(FOLDER / "graph_module.pt")
        self.assertIn("0.weight", view.tensors(mount.path))

    def test_a_pickle_in_npy_is_reported_and_not_run(self):
        for name in "dict.npy", "objects.npz", "objects_compressed.npz":
            with self.subTest(name):
                summary = ckptfs.meta(self.mount(FOLDER / name).path)["_ckptfs"]
                self.assertIn("numpy.ndarray", summary["globals"])
                self.assertEqual(summary["format"], name[-3:])


class WithNumpy(ckptfs.Case):
    def setUp(self):
        if np is None:
            self.skip_avoidable(MISSING)
        self.folder = self.scratch()

    def mounted(self, value, protocol=4):
        file = self.folder / f"{protocol}.pkl"
        file.write_bytes(pickle.dumps(value, protocol))
        return self.mount(file)

    def assertValues(self, scalars, wanted, python_types=None):
        for protocol in range(6):
            with self.subTest(protocol), self.mounted({"values": scalars, "w": np.zeros(1)},
                                                      protocol) as mount:
                found = view.values(mount.path)["values"][0]
                self.assertEqual(found, wanted)
                if python_types:
                    told = view.entries(mount.path)["values"]["python_types"]
                    self.assertEqual(told, {f"/{i}": t for i, t in enumerate(python_types)})

    def test_times_are_printed_as_numpy_does(self):
        units = ["Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as", "25s", "7D",
                 "2M", "3W", "100ns", "15m", "6h"]
        numbers = [0, 1, -1, 59, -61, 18321, 123456789012, -987654321098, "NaT"]
        times = [kind(number, unit) for kind in (np.datetime64, np.timedelta64)
                 for unit in units for number in numbers]
        times += [np.timedelta64(5), np.datetime64("NaT"), np.datetime64("0000-01-01"),
                  np.datetime64("-0001-12-31"), np.datetime64("1969-12-31T23:59:59.999999999")]
        self.assertValues(times, [str(time) for time in times],
                          [f"numpy.{np.dtype(time.dtype).name}" for time in times])

    def test_texts_bytes_and_structures(self):
        record = np.array([(1, 2.5, [1, 2], b"ab")],
                          [("a", ">i4"), ("b", "f8"), ("c", "i2", (2,)), ("d", "S2")])[0]
        nested = np.array([((1, "x"), True)], [("in", [("p", "u1"), ("q", "U2")]), ("t", "?")])[0]
        scalars = [np.str_("h\xe9\U0001f600"), np.str_(""), np.bytes_(b"ab\xff"), np.void(b"\0\1"),
                   record, nested, np.rec.array([(1, 2.)], [("a", "i4"), ("b", "f8")])[0]]
        self.assertValues(
            scalars, ["h\xe9\U0001f600", "", "6162ff", "0001",
                      {"a": 1, "b": 2.5, "c": [1, 2], "d": "6162"},
                      {"in": {"p": 1, "q": "x"}, "t": True}, {"a": 1, "b": 2.}],
            ["numpy.str_", "numpy.str_", "numpy.bytes_", "numpy.void", "numpy.void", "numpy.void",
             "numpy.record"])

    def test_numbers(self):
        third = np.longdouble(1) / 3
        scalars = [np.bool_(True), np.int8(-5), np.uint64(2**64 - 1), np.float16(1.5),
                   np.float32(.1), np.float64("nan"), np.complex64(1 + 2j), np.longdouble(.5), third,
                   np.clongdouble(1 - 2j), np.float16(6e-8), np.longdouble("inf")]
        self.assertValues(scalars, [True, -5, 2**64 - 1, 1.5, .1, "NaN", [1., 2.], .5, str(third),
                                    [1., -2.], float(np.float16(6e-8)), "Infinity"])

    def test_numbers_of_ml_dtypes(self):
        names = ["bfloat16", "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "float8_e3m4",
                 "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz",
                 "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "int2", "int4", "uint2", "uint4"]
        special = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}
        for name in names:
            dtype = np.dtype(getattr(ml_dtypes, name))
            bits = {"4": 16, "6": 64}.get(name[5:6], 256) if "float" in name else \
                1 << int(name[-1])
            raw = np.arange(bits, dtype="u1")
            array = (raw.astype("u2") * 251 if dtype.itemsize == 2 else raw).view(dtype)
            numbers = [float(number) for number in array]
            if "int" in name:
                numbers = [int(number) for number in numbers]
            with self.subTest(name), self.mounted({"values": list(array), "w": array}) as mount:
                self.assertEqual(view.values(mount.path)["values"][0],
                                 [special.get(str(number), number) for number in numbers])
                self.assertEqual(ckptfs.read(mount / "w.memmap"), array.tobytes())

    def test_every_spelling_of_an_array(self):
        dtypes = ["?", "i1", "u2", ">i4", "<f2", ">f8", "c8", ">c16", "S3", "U2", ">U2", "V3", "M8[s]",
                  ">m8[25us]", "g", [("a", "<i4", (2,)), ("b", [("c", ">M8[D]")])],
                  np.dtype([("a", "i1"), ("b", "f8")], align=True),
                  np.dtype({"names": ["b", "a"], "formats": ["i4", "i2"], "offsets": [4, 0]}),
                  np.dtype({"names": ["a"], "formats": ["i4"], "titles": ["T"]})]
        rng = np.random.default_rng(0)
        arrays = {}
        for i, dtype in enumerate(map(np.dtype, dtypes)):
            raw = rng.integers(0, 2 if dtype.kind in "?bU" else 100, 6 * dtype.itemsize, "u1")
            array = np.frombuffer(raw.tobytes(), dtype).reshape(2, 3)
            arrays |= {f"c{i}": array, f"f{i}": np.asfortranarray(array), f"s{i}": array[:, ::2],
                       f"r{i}": array.view(np.recarray) if dtype.names else array}
        for protocol in range(6):
            with self.subTest(protocol), self.mounted(arrays, protocol) as mount:
                for key, array in arrays.items():
                    entry = view.entries(mount.path)[key]
                    shown = array.astype(array.dtype.newbyteorder("<")) \
                        if array.dtype.kind in "biufcMmU" else array
                    found = ckptfs.read(mount / f"{key}.memmap")
                    if shown.dtype.names:  # NumPy does not keep what lies between fields.
                        found = np.frombuffer(found, shown.dtype).tolist()
                        self.assertEqual(repr(found), repr(np.asarray(shown).ravel().tolist()), key)
                    elif shown.dtype.char != "g":
                        self.assertEqual(found, shown.tobytes(), key)
                    if array.dtype.names and key[1:] != "17":
                        descr = np.lib.format.dtype_to_descr(array.dtype)
                        self.assertEqual(entry["numpy_dtype"], json.loads(json.dumps(descr)))
                    elif array.dtype.names:
                        told = {k: v for k, v in entry["numpy_dtype"].items()}
                        self.assertEqual(np.dtype(told), array.dtype)

    def test_a_class_of_arrays_with_attributes_of_its_own(self):
        state = np.arange(3.).__reduce__()[2]

        class Informed(np.ndarray):
            def __reduce__(self):
                function, arguments, _ = np.arange(3.).__reduce__()
                return function, arguments, (*state, {"unit": "m"})

        with self.mounted({"w": np.arange(3.).view(Informed)}) as mount:
            self.assertEqual(view.entries(mount.path)["w"]["attributes"], [{"unit": "m"}])
            self.assertEqual(ckptfs.read(mount / "w.memmap"), np.arange(3.).tobytes())


# Runs every case in one process, of a version of tensordict: argument 2 is "save" or "load".
CASES = """
import sys, torch
from tensordict import (TensorDict, tensorclass, NonTensorData, NonTensorStack, LazyStackedTensorDict,
                        TensorDictParams)

@tensorclass
class Item:
    x: torch.Tensor
    s: str

torch.manual_seed(0)
plain = TensorDict({"a": torch.rand(2, 3), "b": {"c": torch.ones(2, dtype=torch.int8)},
                    "d.e": torch.zeros(2)}, [2])
MADE = {
    "plain": plain,
    "named": TensorDict({"a": torch.rand(2, 3), "n": "hello", "b": {"c": torch.ones(2, 3)}},
                        [2, 3], device="cpu", names=["x", "y"]),
    "empty": TensorDict({"a": torch.rand(2), "none": TensorDict({}, [2])}, [2]),
    "item": TensorDict({"i": Item(x=torch.rand(2), s="q", batch_size=[2])}, [2]),
    "root_item": Item(x=torch.rand(2), s="q", batch_size=[2]),
    "stack": TensorDict({"s": NonTensorStack("a", "b"), "t": torch.rand(2)}, [2]),
    "batches": TensorDict({"s": NonTensorStack(NonTensorData("a", batch_size=[3]),
                                               NonTensorData({"k": 1}, batch_size=[3])),
                           "t": torch.rand(2, 3)}, [2, 3]),
    "lazy": LazyStackedTensorDict(TensorDict({"a": torch.rand(2), "k": "v"}, []),
                                  TensorDict({"a": torch.rand(3), "k": "w"}, [])),
    "locked": plain.clone().lock_(),
    "params": TensorDictParams(TensorDict({"w": torch.rand(2), "l": {"b": torch.rand(1)}})),
    "inside": {"model": plain, "epoch": "third"},
}

# Old versions lose the names of dimensions in their own files.
MADE["named"].memmap(f"{sys.argv[1]}/own-{sys.argv[2]}")
KEEPS_NAMES = TensorDict.load_memmap(f"{sys.argv[1]}/own-{sys.argv[2]}").names == ["x", "y"]

def same(a, b, where):
    if isinstance(b, dict):
        b = TensorDict(b, [])
    assert a.batch_size == b.batch_size, (where, a.batch_size, b.batch_size)
    if not isinstance(b, TensorDictParams):
        assert type(a) is type(b), (where, type(a), type(b))
    if isinstance(b, LazyStackedTensorDict):
        for i, (c, d) in enumerate(zip(a.tensordicts, b.tensordicts)):
            same(c, d, f"{where}.{i}")
        return
    if KEEPS_NAMES:
        assert getattr(a, "names", None) == getattr(b, "names", None), (where, a.names, b.names)
    assert set(a.keys()) == set(b.keys()), (where, set(a.keys()), set(b.keys()))
    for key in b.keys():
        c, d = a.get(key), b.get(key)
        if isinstance(d, torch.Tensor):
            assert c.dtype == d.dtype and torch.equal(c, d.data), (where, key)
        elif isinstance(d, (NonTensorData, NonTensorStack)):
            assert c.tolist() == d.tolist(), (where, key, c, d)
        elif hasattr(d, "batch_size"):
            same(c, d, f"{where}.{key}")
        else:
            assert c == d, (where, key, c, d)

for name, made in MADE.items():
    if sys.argv[2] == "save":
        torch.save(made, f"{sys.argv[1]}/{name}.pt")
    else:
        same(TensorDict.load_memmap(f"{sys.argv[1]}/{name}"), made, name)
"""


class LongValues(ckptfs.Case):
    """Values that would make a meta.json longer than a MiB."""

    LIMIT = 1 << 20

    def setUp(self):
        try:
            import torch
        except ImportError as error:
            self.skip_avoidable(str(error))
        self.tensor = torch.ones(3)
        self.tensor.note = "y" * 1_500_000
        self.data = {"log": "x" * 2_000_000, "short": "x" * 1_000_000, "rows": [(i,) for i in range(300_000)],
                     "blob": bytes(range(256)) * 4096, "deep": {"list": list(range(400_000)), "w": self.tensor}}
        self.file = self.scratch() / "long.pth"
        torch.save(self.data, self.file)

    def test_are_files_of_their_own(self):
        with self.mount(self.file) as mount:
            self.assertEqual(sorted(os.listdir(mount.path)),
                             ["blob.json", "deep", "log.json", "meta.json", "rows.json", "rows.python_types.json",
                              "short"])
            self.assertEqual(sorted(os.listdir(mount / "deep")),
                             ["list.json", "meta.json", "w.attributes.json", "w.memmap"])
            values = view.values(mount.path)
            self.assertEqual(values["log"], [self.data["log"]])
            self.assertEqual(values["short"], [self.data["short"]])
            self.assertEqual(values["rows"], [[[i] for i in range(300_000)]])
            self.assertEqual(values["blob"], [self.data["blob"].hex()])
            self.assertEqual(values["deep.list"], [self.data["deep"]["list"]])
            meta = ckptfs.meta(mount.path)
            types = json.loads(ckptfs.read(mount / meta["rows"]["python_types_file"]))
            self.assertEqual(types["/299999"], "tuple")
            attributes = ckptfs.meta(mount / "deep")["w"]["attributes_file"]
            self.assertEqual(json.loads(ckptfs.read(mount / "deep" / attributes))["note"], self.tensor.note)
            for meta in mount.path.rglob("meta.json"):
                self.assertLess(meta.stat().st_size, self.LIMIT + 4096)

    def test_may_be_lists_of_a_million(self):
        import torch
        data = {"labels": [i % 256 for i in range(1_000_000)], "flags": [i % 2 == 1 for i in range(1_000_000)]}
        for key, numbers in data.items():
            with self.subTest(key):
                file = self.scratch() / f"{key}.pth"
                torch.save({"w": self.tensor, key: numbers}, file)
                with self.mount(file) as mount:
                    self.assertEqual(view.values(mount.path), {key: [numbers]})

    def save_batches(self, *sizes):
        """A stack of two values for each batch size."""
        import torch
        from tensordict import NonTensorData, NonTensorStack, TensorDict
        data = TensorDict({}, [])
        for i, size in enumerate(sizes):
            data[f"s{i}"] = NonTensorStack(*(NonTensorData(text * 100, batch_size=size) for text in "ab"))
        data["w"] = self.tensor
        torch.save(data, self.file)
        return data

    def test_of_a_batch_are_repeated(self):
        from tensordict import TensorDict
        saved = self.save_batches([12_000], [2, 6_000], [3])
        with self.mount(self.file) as mount:
            loaded = TensorDict.load_memmap(mount.path)
            for key in "s0", "s1", "s2":
                self.assertEqual(loaded.get(key).tolist(), saved.get(key).tolist(), key)

    def test_of_a_batch_of_too_many_are_errors(self):
        self.save_batches([3], [1 << 40])
        with self.mount(self.file, quiet=False) as mount:
            why = "a value repeated 1099511627776 times for its batch size exceeds 4194304 bytes of JSON"
            self.assertIn(f"value 's1': {why}", mount.messages)
            self.assertEqual(view.entries(mount.path)["s1"]["error"], why)
            self.assertEqual(ckptfs.meta(mount / "s0")["data"], [["a" * 100] * 3, ["b" * 100] * 3])
            self.assertEqual(ckptfs.read(mount / "w.memmap"), self.tensor.numpy().tobytes())

    def test_do_not_keep_tensordict_from_loading_the_rest(self):
        import tensordict
        with self.mount(self.file) as mount:
            loaded = tensordict.TensorDict.load_memmap(mount.path)
            self.assertEqual(set(loaded.keys()), {"short", "deep"})
            self.assertTrue((loaded["deep", "w"] == 1).all())


class TensorDicts(ckptfs.Case):
    """torch.save of a TensorDict: load_memmap of the mount gives it back."""

    def assertGivenBack(self, old=""):
        if np is None:
            self.skip_avoidable(MISSING)
        folder = self.scratch()
        (folder / "cases.py").write_text(CASES)
        environment = os.environ | {"PYTHONPATH": old}

        def run(what):
            done = subprocess.run([sys.executable, "-B", folder / "cases.py", folder, what], text=True,
                                  capture_output=True, timeout=300, env=environment)
            if "No module named 'tensordict'" in done.stderr:
                self.skip_avoidable("there is no tensordict")
            self.assertEqual(done.returncode, 0, done.stderr[-2000:])

        run("save")
        for file in sorted(folder.glob("*.pt")):
            mount = self.mount(file)
            (folder / file.stem).symlink_to(mount.path)
        run("load")

    def test_are_given_back(self):
        self.assertGivenBack()

    def test_of_an_old_version_are_given_back(self):
        old = os.environ.get("CKPTFS_OLD_TENSORDICT")
        if not old:
            self.skip_avoidable("$CKPTFS_OLD_TENSORDICT is not set")
        self.assertGivenBack(old)
