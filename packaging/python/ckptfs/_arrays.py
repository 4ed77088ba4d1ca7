"""Arrays of NumPy and tensors of PyTorch that share memory with a buffer."""

import importlib
import math
from typing import TYPE_CHECKING, Any

from ckptfs._backend import TensorInfo
from ckptfs._errors import Error

if TYPE_CHECKING:
    import numpy
    import torch

_NUMPY = {"bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16",
          "float32", "float64", "complex64", "complex128"}
_ML_DTYPES = {"bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"}

# PyTorch makes tensors of these by functions only, which take scales.
QUANTIZED = {"qint8", "quint8", "qint32", "quint4x2", "quint2x4"}


def module(name: str, purpose: str) -> Any:
    """Imports an optional dependency. Raises Error if it is missing."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Error(f"{purpose} needs {name}: pip install {name}") from error


def has_torch() -> bool:
    """Whether PyTorch can be imported."""
    try:
        importlib.import_module("torch")
    except ImportError:
        return False
    return True


def is_foreign(info: TensorInfo) -> bool:
    """Whether the type belongs to NumPy or ml_dtypes: the last dimension is the bytes of an element."""
    return info.dtype.startswith(("numpy.", "ml_dtypes."))


def numpy_dtype(info: TensorInfo) -> "numpy.dtype[Any]":
    """The type of the elements. Raises Error if NumPy has none."""
    np = module("numpy", "an array")
    origin, _, name = info.dtype.rpartition(".")
    try:
        if origin == "numpy":
            return np.dtype(name)  # type: ignore[no-any-return]
        if origin == "ml_dtypes" or info.dtype in _ML_DTYPES:
            return np.dtype(getattr(module("ml_dtypes", f"{info.key}: {name}"), name))  # type: ignore[no-any-return]
        if info.dtype in _NUMPY:
            return np.dtype(info.dtype)  # type: ignore[no-any-return]
    except (AttributeError, TypeError):
        pass
    raise Error(f"{info.key}: NumPy has no type {info.dtype}: raw() returns the bytes")


def to_numpy(buffer: Any, info: TensorInfo) -> "numpy.ndarray[Any, Any]":
    """An array of a buffer. Raises Error."""
    np = module("numpy", "an array")
    dtype = numpy_dtype(info)
    shape = info.shape[:-1] if is_foreign(info) else info.shape
    if math.prod(shape) * dtype.itemsize != info.nbytes:
        raise Error(f"{info.key}: {info.dtype} of shape {shape} does not take {info.nbytes} bytes: "
                    "raw() returns the bytes")
    if not info.nbytes:
        return np.empty(shape, dtype)  # type: ignore[no-any-return]
    return np.frombuffer(buffer, dtype).reshape(shape)  # type: ignore[no-any-return]


def torch_dtype(info: TensorInfo) -> "torch.dtype":
    """The type of the elements. Raises Error if this PyTorch has none."""
    torch = module("torch", "a tensor")
    dtype = getattr(torch, info.dtype, None)
    if not isinstance(dtype, torch.dtype):
        other = "numpy() returns an array" if is_foreign(info) else "raw() returns the bytes"
        raise Error(f"{info.key}: PyTorch {torch.__version__} has no type {info.dtype}: {other}")
    return dtype  # type: ignore[no-any-return]


def to_torch(storage: "torch.Tensor", info: TensorInfo) -> "torch.Tensor":
    """A tensor of a tensor of bytes. Raises Error."""
    dtype = torch_dtype(info)
    try:
        return storage.view(dtype).reshape(info.shape)
    except RuntimeError as error:
        raise Error(f"{info.key}: PyTorch cannot represent {info.dtype} of shape {info.shape}: {error}") from error


def rebuild(key: str, recipe: str, names: dict[str, Any]) -> "torch.Tensor":
    """Evaluates a recipe, whose words ckptfs has written (docs/layout.md). Raises Error."""
    torch = module("torch", "a tensor")
    try:
        # The indices of a sparse tensor come from the checkpoint.
        with torch.sparse.check_sparse_tensor_invariants():
            return eval(recipe, {**names, "torch": torch, "__builtins__": {}})  # type: ignore[no-any-return]
    except Exception as error:
        raise Error(f"{key}: cannot rebuild it: {error}: the recipe is {recipe}") from error
