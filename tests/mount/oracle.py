"""The contents that torch finds in a checkpoint, as leaves (see view.py).

Classes that are not installed here are replaced by stand-ins that keep what they are given, so that
any checkpoint of the samples can be read. Only for files that we trust: this does unpickle.
"""

import collections
import hashlib
import pickle
import types

import numpy
import torch
from view import Leaf

MODULE_PARTS = ("_parameters", "_buffers", "_modules")


class StandIn:
    """An instance of an unknown class: arguments become indices, state becomes attributes."""

    def __new__(cls, *arguments, **_):
        self = object.__new__(cls)
        self.__dict__["_arguments"] = list(arguments)
        return self

    def __init__(self, *_, **__):
        pass

    def __setstate__(self, state):
        for part in state if isinstance(state, tuple) else (state,):
            if isinstance(part, dict):
                self.__dict__.update(part)

    def append(self, item):
        self._arguments.append(item)

    def extend(self, items):
        self._arguments.extend(items)

    def __setitem__(self, key, value):
        self.__dict__.setdefault("_items", {})[key] = value

    def __hash__(self):
        return id(self)


def without_elements(*_):
    """Stands in for a constructor of composite tensors that torch no longer has."""
    return torch.empty(0, device="meta")


def sparse_csr(_, data):
    """Stands in for a constructor that torch no longer has under its old name."""
    rows, columns, values, size = data
    return torch.sparse_csr_tensor(rows, columns, values, size)


def attribute(owner, name):
    """Stands in for getattr, by which enums travel."""
    return None if issubclass(owner, StandIn) else getattr(owner, name)


def rebuild_from_type(function, kind, arguments, state):
    """Stands in for torch's function, which wants to have the class of a subclass."""
    if issubclass(kind, StandIn):
        return function(*arguments)
    return torch._tensor._rebuild_from_type_v2(function, kind, arguments, state)


class Unpickler(pickle.Unpickler):
    REPLACED = {("builtins", "getattr"): attribute, ("__builtin__", "getattr"): attribute,
                ("torch._tensor", "_rebuild_from_type_v2"): rebuild_from_type,
                ("torch._utils", "_rebuild_sparse_csr_tensor"): sparse_csr}

    def find_class(self, module, name):
        if (module, name) in self.REPLACED:
            return self.REPLACED[module, name]
        try:
            return super().find_class(module, name)
        except (ImportError, AttributeError):
            if module == "torch._utils":
                return without_elements
            return type(name, (StandIn,), {"__module__": module})


def load(path):
    """Returns the root object of a checkpoint."""
    # The attributes are those that torch looks for in a module that stands in for pickle.
    module = types.SimpleNamespace(Unpickler=Unpickler, load=pickle.load, __name__="pickle")
    try:
        return torch.load(path, pickle_module=module, weights_only=False)
    except RuntimeError:
        # A storage that is longer than its elements loads only this way.
        return torch.load(path, pickle_module=module, weights_only=False, mmap=True)


def key_text(key):
    if isinstance(key, str):
        return key
    if isinstance(key, type):
        return f"{key.__module__}.{key.__qualname__}"
    return str(key) if type(key) is int else repr(key)


def is_composite(tensor):
    """Whether a tensor has no plain elements of its own."""
    return (tensor.layout is not torch.strided or tensor.is_nested or tensor.is_meta
            or tensor.is_quantized and tensor.qscheme() not in (torch.per_tensor_affine,
                                                                 torch.per_tensor_symmetric)
            or isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin))


def parts(tensor):
    """The tensors that a composite one is made of: [(name, tensor)]."""
    if tensor.is_quantized:
        return [("int_repr", tensor.int_repr()), ("scales", tensor.q_per_channel_scales()),
                ("zero_points", tensor.q_per_channel_zero_points())]
    if tensor.is_nested and tensor.layout is torch.jagged:
        inner = [("_values", tensor._values), ("_offsets", tensor._offsets),
                 ("_lengths", tensor._lengths)]
        return [(name, part) for name, part in inner if part is not None]
    if tensor.is_nested:
        return [("buffer", tensor.values()), ("sizes", tensor._nested_tensor_size()),
                ("strides", tensor._nested_tensor_strides()),
                ("offsets", tensor._nested_tensor_storage_offsets())]
    if tensor.layout is torch.sparse_coo:
        return [("indices", tensor._indices()), ("values", tensor._values())]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [("crow_indices", tensor.crow_indices()), ("col_indices", tensor.col_indices()),
                ("values", tensor.values())]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [("ccol_indices", tensor.ccol_indices()), ("row_indices", tensor.row_indices()),
                ("values", tensor.values())]
    return []


def raw(tensor):
    """The elements in C order, little-endian, as bytes."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.is_quantized:
        tensor = tensor.int_repr()
    # A single element counts as contiguous whatever its stride, but cannot be viewed as bytes.
    dense = torch.empty(tensor.numel(), dtype=tensor.dtype)
    dense.copy_(tensor.as_subclass(torch.Tensor).reshape(-1))
    return dense.view(torch.uint8).numpy().tobytes() if len(dense) else b""


def leaf(tensor):
    return Leaf(str(tensor.dtype), tuple(tensor.shape), hashlib.sha256(raw(tensor)).hexdigest())


NUMPY_NAMES = {"bool": "bool", "f2": "float16", "f4": "float32", "f8": "float64",
               "c8": "complex64", "c16": "complex128"}


def numpy_dtype(dtype):
    """torch's name for a dtype of numpy, or None."""
    kind = dtype.kind + str(dtype.itemsize)
    name = {"b": "bool", "i": f"int{dtype.itemsize * 8}",
            "u": f"uint{dtype.itemsize * 8}"}.get(dtype.kind) or NUMPY_NAMES.get(kind)
    return name and "torch." + name


def array_description(dtype, shape, sha256):
    """The leaf of an array; one of texts, dates or records is shown as bytes."""
    if numpy_dtype(dtype):
        return Leaf(numpy_dtype(dtype), shape, sha256)
    return Leaf("torch.uint8", (*shape, dtype.itemsize), sha256)


def array_leaf(array):
    data = array.astype(array.dtype.newbyteorder("<")).tobytes()
    return array_description(array.dtype, array.shape, hashlib.sha256(data).hexdigest())


def flatten(value, keys=(), above=()):
    """Yields (keys, leaf) for each tensor, composite ones by their parts, and (keys, None) for each
    that has no elements anywhere."""
    if id(value) in above:
        return
    above = (*above, id(value))
    if isinstance(value, torch.Tensor):
        if not is_composite(value):
            yield keys, leaf(value)
            return
        pieces = parts(value)
        if not pieces:
            yield keys, None
        for name, part in pieces:
            yield (*keys, name), leaf(part)
    elif isinstance(value, (torch.storage.TypedStorage, torch.storage.UntypedStorage)):
        kind = getattr(value, "dtype", torch.uint8)
        yield keys, leaf(torch.empty(0, dtype=kind).set_(value.untyped(), 0, (len(value),), (1,)))
    elif isinstance(value, numpy.ndarray):
        if not value.dtype.hasobject:
            yield keys, array_leaf(value)
    elif isinstance(value, dict):
        for key, member in value.items():
            yield from flatten(member, (*keys, key_text(key)), above)
    elif isinstance(value, (list, tuple, collections.deque)):
        for index, member in enumerate(value):
            yield from flatten(member, (*keys, str(index)), above)
    elif hasattr(value, "__dict__") and not isinstance(value, (type, types.FunctionType)):
        members = dict(vars(value))
        members |= {n: getattr(value, n) for n in getattr(type(value), "__slots__", ())
                    if hasattr(value, n)}
        for index, member in enumerate(members.pop("_arguments", [])):
            yield from flatten(member, (*keys, str(index)), above)
        yield from flatten(members.pop("_items", {}), keys, above)
        is_module = all(isinstance(members.get(part), dict) for part in MODULE_PARTS)
        for key, member in members.items():
            below = keys if is_module and key in MODULE_PARTS else (*keys, key)
            yield from flatten(member, below, above)


def tensors(root):
    """As view.tensors, and the dotted keys of tensors without elements anywhere."""
    found, composite = collections.defaultdict(list), []
    if isinstance(root, (torch.Tensor, numpy.ndarray)):
        root = {"tensor": root}
    for keys, what in flatten(root):
        if what is None:
            composite.append(".".join(keys))
        else:
            found[".".join(keys)].append(what)
    return {keys: sorted(leaves) for keys, leaves in found.items()}, composite
