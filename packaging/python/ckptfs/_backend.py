"""What a model needs of a backend: a list of tensors, their bytes and the values."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Optional, Protocol

from ckptfs._errors import Error


@dataclass(frozen=True)
class TensorInfo:
    """A tensor of a checkpoint: one line of tensors.jsonl."""

    key: str  # In the mapping.
    dtype: str  # "float32"; of types that PyTorch does not have with their origin: "numpy.<M8[D]".
    shape: tuple[int, ...]
    nbytes: int
    path: Optional[str]  # Relative to the root of the mount; None if it is too long for open().
    error: Optional[str]  # Why the tensor cannot be read.


class Buffer:
    """The bytes of a tensor in memory. Writes are seen by this process only."""

    def __init__(self, memory: Any) -> None:
        self.memory = memory  # Supports the buffer protocol.
        self.storage: Any = None  # A tensor of these bytes, once there is one.


class Backend(Protocol):
    """A source of bytes. All methods are safe for several threads at once."""

    @property
    def path(self) -> str:
        """The directory of the mount. Raises Error without a mount."""

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """All tensors, in the order of the checkpoint."""

    def buffer(self, info: TensorInfo) -> Buffer:
        """The bytes of a tensor, which is not empty."""

    def values(self) -> Mapping[str, Any]:
        """The values that are no tensors."""

    def recipes(self) -> Mapping[str, str]:
        """Key -> the expression that rebuilds a composite tensor from the tensors below this key."""

    def recipe(self, info: TensorInfo) -> Optional[str]:
        """The expression that rebuilds a quantized tensor from `tensor`, its bytes."""

    def attributes(self, prefix: str) -> Mapping[str, Any]:
        """The attributes of the dict at this key; "" is the root."""

    def close(self) -> None:
        """Releases the mount. Memory of buffers stays valid. A second call does nothing."""


def by_key(tensors: Sequence[TensorInfo]) -> dict[str, TensorInfo]:
    """The tensors by key. In {"a.b": x, "a": {"b": y}}, two tensors have the key a.b: their key becomes
    their path. A key of more than 4,096 bytes, which is truncated, may have no path either."""
    counts = Counter(info.key for info in tensors)
    named = [info if counts[info.key] == 1 else replace(info, key=info.path or info.key) for info in tensors]
    return {info.key: info for info in named}


def info_of(row: Mapping[str, Any]) -> TensorInfo:
    """Parses one tensor of tensors.jsonl or of `ckpt ls --json`."""
    try:
        return TensorInfo(
            key=row["key"], dtype=(row["dtype"] or "unknown").removeprefix("torch."), shape=tuple(row["shape"]),
            nbytes=row["bytes"], path=row.get("path"), error=row.get("error"))
    except (KeyError, TypeError) as error:
        raise Error(f"cannot parse the list of tensors: {error!r} in {row!r}") from error
