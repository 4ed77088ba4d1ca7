"""A checkpoint as a mapping of tensors."""

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, ValuesView
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Optional

from ckptfs._arrays import QUANTIZED, has_torch, module, rebuild, to_numpy, to_torch
from ckptfs._backend import Backend, Buffer, TensorInfo
from ckptfs._errors import Error

if TYPE_CHECKING:
    import numpy as np
    from tensordict import TensorDict
    from torch import Tensor


class Values(Mapping[str, Any]):
    """Model.values."""

    def __init__(self, model: "Model") -> None:
        self._model = model

    def __call__(self) -> ValuesView[Any]:
        return ValuesView(self._model)

    def __getitem__(self, key: str) -> Any:
        return self._model._values()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._model._values())

    def __len__(self) -> int:
        return len(self._model._values())

    def __repr__(self) -> str:
        return f"<values {list(self)}>"


class Model(Mapping[str, Any]):
    """An open checkpoint: dotted key -> tensor of PyTorch, or without PyTorch, array of NumPy.

    Tensors share memory with private maps of the files: reads come from the page cache, and a write
    changes a copy of the page that only this process sees. Tied tensors share their memory, and a
    tensor that is requested again is the same memory. Tensors stay valid after close(). With the
    backend "pipe", each request makes a tensor of its own. All methods are safe for several threads
    at once.
    """

    def __init__(self, source: str, backend: Backend) -> None:
        self._source = source
        self._backend = backend
        self._lock = threading.Lock()  # Guards Buffer.storage.
        self._is_closed = False

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, kind: Optional[type[BaseException]], value: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<ckptfs.Model {self._source!r}{', closed' if self._is_closed else ''}: {len(self)} tensors>"

    def __len__(self) -> int:
        return len(self._backend.tensors)

    def __iter__(self) -> Iterator[str]:
        return iter(self._backend.tensors)

    def __contains__(self, key: object) -> bool:
        return key in self._backend.tensors

    def __getitem__(self, key: str) -> Any:
        return self.torch(key) if has_torch() else self.numpy(key)

    # Two models are equal if they are the same; Mapping would compare tensors.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @property
    def path(self) -> Path:
        """The directory of the mount. Raises Error if the backend has none."""
        return Path(self._backend.path)

    @property
    def values(self) -> "Values":
        """The values that are not tensors, by dotted key: model.values["epoch"]. They are JSON, as
        docs/layout.md describes it. Called, it is the method of a mapping: model.values() are the
        tensors."""
        return Values(self)

    def info(self, key: str) -> TensorInfo:
        """The type, shape and size of a tensor. Raises KeyError."""
        return self._backend.tensors[key]

    def raw(self, key: str) -> memoryview:
        """The bytes of a tensor: dense, in C order, little-endian. Raises KeyError and Error."""
        buffer = self._buffer(self._backend.tensors[key])
        return memoryview(bytearray() if buffer is None else buffer.memory).cast("B")

    def numpy(self, key: str) -> "np.ndarray[Any, Any]":
        """An array; bfloat16 and float8 need ml_dtypes. Raises KeyError, and Error if NumPy has no such
        type, or the tensor cannot be read."""
        info = self._backend.tensors[key]
        buffer = self._buffer(info)
        return to_numpy(b"" if buffer is None else buffer.memory, info)

    def torch(self, key: str) -> "Tensor":
        """A tensor. Only a quantized tensor is a copy. Raises KeyError, and Error if PyTorch has no such
        type, or the tensor cannot be read."""
        info = self._backend.tensors[key]
        storage = self._storage(info)
        if info.dtype not in QUANTIZED:
            return to_torch(storage, info)
        recipe = self._backend.recipe(info)
        if recipe is None:
            raise Error(f"{key}: cannot rebuild a tensor of {info.dtype}: raw() returns the bytes")
        return rebuild(key, recipe, {"tensor": storage})

    def composite(self, key: str) -> "Tensor":
        """Rebuilds a composite tensor, such as a sparse or nested one, from its components, whose keys
        begin with this key. Raises KeyError if there is no such tensor, as always with the backend "pipe",
        and Error if its class is not one of PyTorch's own."""
        self._check_open()
        recipes = self._backend.recipes()
        recipe = recipes[key]
        before = key + "." if key else ""
        parts: dict[str, Any] = {}
        for name in self:
            part = name[len(before):]
            if name.startswith(before) and "." not in part:
                parts[part] = self.torch(name)
        for name in recipes:
            part = name[len(before):]
            if name != key and name.startswith(before) and "." not in part:
                parts[part] = self.composite(name)
        return rebuild(key, recipe, parts)

    def state_dict(self, prefix: str = "") -> "OrderedDict[str, Tensor]":
        """All tensors, or those in the dict at the key `prefix`, by the rest of their keys, for
        load_state_dict(..., assign=True). Composite tensors are rebuilt, except by the backend "pipe".
        Raises KeyError if `prefix` has none, and Error."""
        self._check_open()
        before = prefix + "." if prefix else ""
        state: OrderedDict[str, Tensor] = OrderedDict()
        recipes = self._backend.recipes()
        for key in self:
            if not key.startswith(before):
                continue
            dots = (i for i, c in enumerate(key) if c == "." and i >= len(before))
            composite = next((key[:dot] for dot in dots if key[:dot] in recipes), None)
            if composite is None:
                state[key[len(before):]] = self.torch(key)
            elif composite[len(before):] not in state:
                state[composite[len(before):]] = self.composite(composite)
        if prefix and not state:
            raise KeyError(prefix)
        # The versions of the modules, which load_state_dict reads.
        metadata = self._backend.attributes(prefix).get("_metadata")
        if isinstance(metadata, dict):
            state._metadata = metadata  # type: ignore[attr-defined]
        return state

    def tensordict(self) -> "TensorDict":
        """TensorDict.load_memmap of the mount, which has values, too. It is read-only, and belongs to the
        mount: use it before close(). Raises Error if the backend has no mount."""
        self._check_open()
        path = self._backend.path
        return module("tensordict", "tensordict()").TensorDict.load_memmap(path)  # type: ignore[no-any-return]

    def close(self) -> None:
        """Unmounts. Tensors stay valid; the daemon ends when the last of them is gone. A second call does
        nothing."""
        self._is_closed = True
        self._backend.close()

    def _values(self) -> Mapping[str, Any]:
        self._check_open()
        return self._backend.values()

    def _check_open(self) -> None:
        if self._is_closed:
            raise Error(f"{self._source}: the model is closed")

    def _buffer(self, info: TensorInfo) -> Optional[Buffer]:
        """The bytes of a tensor, None if it is empty."""
        self._check_open()
        if info.error is not None:
            raise Error(f"{info.key}: {info.error}")
        return self._backend.buffer(info) if info.nbytes else None

    def _storage(self, info: TensorInfo) -> "Tensor":
        """A tensor of the bytes."""
        buffer = self._buffer(info)
        torch = module("torch", "a tensor")
        if buffer is None:
            return torch.empty(0, dtype=torch.uint8)  # type: ignore[no-any-return]
        with self._lock:
            if buffer.storage is None:
                buffer.storage = torch.frombuffer(buffer.memory, dtype=torch.uint8)
        return buffer.storage  # type: ignore[no-any-return]
