#!/usr/bin/env python3
"""Writes the files of this folder, each with the library that it is named after, and expected.json
with what that library reads back. README.md says how to install them. Usage: make_samples.py NAME...
"""

import collections
import dataclasses
import datetime
import decimal
import fractions
import hashlib
import json
import pathlib
import pickle
import sys
import uuid
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent

TORCH = {"bfloat16": "bfloat16", "complex32": "complex32", "float8_e4m3fn": "float8_e4m3fn",
         "float8_e4m3fnuz": "float8_e4m3fnuz", "float8_e5m2": "float8_e5m2",
         "float8_e5m2fnuz": "float8_e5m2fnuz", "float8_e8m0fnu": "float8_e8m0fnu"}


def dump(name, value, library=pickle, **options):
    (HERE / name).write_bytes(library.dumps(value, **options))


def weights():
    return {"w": np.arange(6, dtype="f4").reshape(2, 3), "step": np.int64(7)}


def ml_dtypes():
    import ml_dtypes as library
    names = [name for name in dir(library) if isinstance(getattr(library, name), type)
             and name not in ("finfo", "iinfo")]
    arrays = {name: np.array([0, 1, 0, 1]).astype(getattr(library, name)) for name in names}
    dump("ml_dtypes.pkl", arrays)
    dump("ml_dtypes_2.pkl", {name: arrays[name].astype(arrays[name].dtype.newbyteorder(">"))
                             for name in ("bfloat16", "complex32", "bcomplex32", "int4")}, protocol=2)


def dill():
    import dill as library
    dump("dill.pkl", weights() | {"f": np.asfortranarray(np.eye(2, 3)),
                                  "o": np.array([1, "a", None], object)}, library)


def cloudpickle():
    import cloudpickle as library
    dump("cloudpickle.pkl", weights(), library)


def jax():
    import jax as library
    numpy = library.numpy
    dump("jax.pkl", {"w": numpy.arange(6, dtype="float32").reshape(2, 3),
                     "b": numpy.ones(3, "bfloat16"), "key": library.random.PRNGKey(5)})


def masked():
    plain = np.ma.array([[1, 2, 3], [4, 5, 6]], mask=[[0, 1, 0], [0, 0, 1]], fill_value=9)
    fields = np.ma.array([(1, 2.), (3, 4.)], mask=[(0, 1), (1, 0)], dtype=[("a", "i4"), ("b", "f8")])
    for protocol in 2, 5:
        dump(f"masked_{protocol}.pkl", {"plain": plain, "fortran": plain.copy(order="F"),
                                        "fields": fields, "nomask": np.ma.array([1., 2.])},
             protocol=protocol)


def joblib():
    import joblib as library
    import ml_dtypes as types
    data = weights() | {"f": np.asfortranarray(np.arange(6.).reshape(2, 3)), "empty": np.empty((0, 3)),
                        "o": np.array([{"k": 1}, "a"], object), "scalar": np.array(5, ">i4"),
                        "b": np.ones(3, types.bfloat16), "after": "text",
                        "r": np.array([(1, 2.)], [("a", "i4"), ("b", "f8")])}
    library.dump(data, HERE / "joblib.joblib")
    library.dump(data, HERE / "joblib_2.joblib", protocol=2)
    for method in "zlib", "gzip", "bz2", "xz", "lzma", "lz4":
        library.dump(weights(), HERE / f"joblib_{method}.joblib", compress=(method, 3))


def sklearn():
    import joblib as library
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    x = np.random.default_rng(0).random((20, 3))
    model = make_pipeline(StandardScaler(), RandomForestClassifier(2, max_depth=2, random_state=0))
    library.dump(model.fit(x, x[:, 0] > .5), HERE / "sklearn.joblib")


def objects():
    np.save(HERE / "dict.npy", {"w": np.arange(3.), "name": "run", "n": {"k": [1, 2]}})
    np.save(HERE / "list.npy", np.array([np.arange(2), "a", None, 5], object))
    np.save(HERE / "matrix.npy", np.array([[1, "a", None], [2, "b", {"c": 3}]], object))
    np.save(HERE / "object_fields.npy", np.array([(1, {"k": 2})], [("a", "i4"), ("o", "O")]))
    members = {"w": np.arange(3.), "state": np.array({"m": np.arange(4), "lr": .5}),
               "names": np.array(["a", "b"], object)}
    np.savez(HERE / "objects.npz", **members)
    np.savez_compressed(HERE / "objects_compressed.npz", **members)


@dataclasses.dataclass
class Settings:
    lr: float = .5


Point = collections.namedtuple("Point", "x y")


def standard():
    zone = datetime.timezone(datetime.timedelta(hours=5, minutes=30), "there")
    values = {
        "datetime": datetime.datetime(2020, 2, 29, 1, 2, 3, 45),
        "whole": datetime.datetime(1, 1, 1),
        "fold": datetime.datetime(2020, 10, 25, 2, 30, fold=1),
        "zoned": datetime.datetime(2020, 2, 29, 1, 2, 3, tzinfo=zone),
        "utc": datetime.datetime(2020, 2, 29, tzinfo=datetime.timezone.utc),
        "date": datetime.date(9999, 12, 31), "time": datetime.time(23, 59, 59, 999999),
        "zoned_time": datetime.time(1, tzinfo=zone), "zone": zone,
        "delta": datetime.timedelta(1, 3723, 500000), "negative": datetime.timedelta(-1, 86399),
        "zero": datetime.timedelta(), "days": datetime.timedelta(7),
        "decimal": decimal.Decimal("1.50"), "fraction": fractions.Fraction(-1, 3),
        "integer": fractions.Fraction(4), "uuid": uuid.UUID("00112233-4455-6677-8899-aabbccddeeff"),
        "small_uuid": uuid.UUID(int=5), "path": pathlib.PurePosixPath("a/b"), "point": Point(1, 2),
        "settings": Settings()}
    for protocol in range(6):
        dump(f"standard_{protocol}.pkl", values, protocol=protocol)


def dicts():
    import addict
    import easydict
    content = {"lr": .5, "names": ["a"], "model": {"depth": 2, "kind": {"deep": None}}}
    values = {"easydict": easydict.EasyDict(content), "addict": addict.Dict(content)}
    values["easydict_tensor"] = easydict.EasyDict({"w": np.arange(3.), "a": 1})
    values["addict_tensor"] = addict.Dict({"w": np.arange(3.), "a": 1})
    try:
        from mmengine.config import ConfigDict
    except ImportError as error:
        sys.exit(f"mmengine: {error}")
    values["mmengine"] = ConfigDict(content)
    for protocol in 2, 4:
        dump(f"dicts_{protocol}.pkl", values, protocol=protocol)


def modules():
    import torch
    from torch import nn
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    torch.save(torch.fx.symbolic_trace(module), HERE / "graph_module.pt")
    # The settings of the compiler would have the paths of this machine in them.
    python_class = type(torch.compile(module))
    python_class.__reduce__ = lambda self: (python_class, (self._orig_mod, None))
    torch.save({"model": torch.compile(module), "epoch": 3}, HERE / "compiled.pt")


WRITERS = (ml_dtypes, dill, cloudpickle, jax, masked, joblib, sklearn, objects, standard, dicts,
           modules)


# ---- What the libraries read back.

def leaf(array):
    """dtype, shape and SHA-256 of an array as a mount shows it."""
    dtype = array.dtype
    if dtype.kind != "V" or dtype.names is None and dtype.name != f"void{dtype.itemsize * 8}":
        array = array.astype(dtype.newbyteorder("<"))
    has_padding = dtype.names and dtype.itemsize > sum(dtype[n].itemsize for n in dtype.names)
    digest = None if has_padding else hashlib.sha256(array.tobytes()).hexdigest()
    name = TORCH.get(dtype.name)
    if name is None and dtype.kind in "biufc" and dtype.name in np.sctypeDict \
            and dtype.itemsize <= 8 * (1 + (dtype.kind == "c")) and dtype.isbuiltin != 2:
        name = dtype.name
    if name is None:
        return ["torch.uint8", [*array.shape, dtype.itemsize], digest]
    return [f"torch.{name}", list(array.shape), digest]


def flatten(value, keys=""):
    """Yields (dotted keys, array or other leaf)."""
    below = lambda key: f"{keys}.{key}" if keys else str(key)
    if isinstance(value, np.ma.MaskedArray):
        yield from flatten({"data": value.data, "mask": np.ma.getmaskarray(value)}, keys)
        if not keys.endswith("nomask"):  # Where it is None, loading sets it.
            yield below("fill_value"), np.array(value._fill_value)
    elif type(value).__name__ == "Tree":
        _, arguments, state = value.__reduce__()
        yield from flatten(state | {"args": arguments}, keys)
    elif isinstance(value, np.ndarray) and value.dtype.hasobject and value.ndim:
        yield from flatten([item for item in value.ravel().tolist()] if value.dtype == object
                           else value.tolist(), keys)
    elif isinstance(value, np.ndarray) and value.dtype.hasobject:
        yield from flatten(value.item(), keys)
    elif isinstance(value, np.ndarray):
        yield keys, value
    elif hasattr(value, "state_dict"):
        for key, tensor in value.state_dict().items():
            yield below(key), tensor.numpy()
    elif isinstance(value, dict):
        for key, member in value.items():
            yield from flatten(member, below(key))
    elif isinstance(value, (list, tuple)):
        for index, member in enumerate(value):
            yield from flatten(member, below(index))
    elif type(value).__module__.startswith("sklearn.") and hasattr(value, "__getstate__"):
        state = value.__getstate__()
        yield from flatten(state[-1] if isinstance(state, tuple) else state, keys)
    elif type(value).__module__.startswith("jaxlib"):
        yield keys, np.asarray(value)
    else:
        yield keys, value


def expected(file):
    if file.suffix == ".joblib":
        import joblib as library
        root = library.load(file)
    elif file.suffix == ".pt":
        import torch
        root = torch.load(file, weights_only=False)
    elif file.suffix == ".pkl":
        root = pickle.loads(file.read_bytes())
    else:
        root = np.load(file, allow_pickle=True)
        root = dict(root) if file.suffix == ".npz" else root
    tensors, values = {}, {}
    for keys, what in flatten(root):
        if isinstance(what, np.ndarray):
            tensors[keys] = leaf(what)
        elif what is None or type(what) in (bool, int, float, str):
            values[keys] = what
        elif isinstance(what, np.generic):
            values[keys] = what.item()
    return {"tensors": tensors, "values": values}


def main():
    names = sys.argv[1:]
    for writer in WRITERS:
        if not names or writer.__name__ in names:
            writer()
    files = sorted(p for p in HERE.iterdir()
                   if p.suffix in (".pkl", ".joblib", ".npy", ".npz", ".pt"))
    lines = [f"{json.dumps(p.name)}: {json.dumps(expected(p))}" for p in files]
    (HERE / "expected.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    # So that the classes of this file have a name that others can import.
    sys.modules["make_samples"] = sys.modules["__main__"]
    for python_class in Settings, Point:
        python_class.__module__ = "make_samples"
    main()
