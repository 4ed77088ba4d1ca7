"""The list of tensors that a mount has, tensors.jsonl, of which few lines are parsed.

To parse all lines takes longer than the mount, and most programs want few tensors, or only the keys.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Union

from ckptfs._backend import TensorInfo, by_key, info_of
from ckptfs._errors import Error

# How each line begins.
_LINE = re.compile(rb'^\{"key":"([^"\\]*(?:\\.[^"\\]*)*)","dtype":(?:"[^"\\]*"|null),"shape":(\[|null)', re.MULTILINE)


class Index(Mapping[str, TensorInfo]):
    """All tensors by key, in the order of the checkpoint."""

    def __init__(self, text: bytes) -> None:
        """`text` is that of tensors.jsonl. Raises Error."""
        self.files: dict[str, str] = {}  # The values that are files of their own: key -> path.
        self._tensors: dict[str, Union[bytes, TensorInfo]] = {}  # Or the lines that are not parsed.
        lines = text.splitlines()
        heads = _LINE.findall(text)
        if len(heads) != len(lines):
            raise Error("cannot parse the list of tensors: a line has no key")
        tensors = []
        for line, (key, shape) in zip(lines, heads):
            if shape == b"[":
                tensors.append((key, line))
            else:
                row = _parse(line)
                if row["path"]:
                    self.files[row["key"]] = row["path"]
        self._tensors.update(_by_key(tensors))

    def __getitem__(self, key: str) -> TensorInfo:
        info = self._tensors[key]
        if isinstance(info, bytes):
            # If two threads come here, both parse the same line.
            info = self._tensors[key] = info_of(_parse(info))
        return info

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __contains__(self, key: object) -> bool:
        return key in self._tensors


def _by_key(tensors: Sequence[tuple[bytes, bytes]]) -> Mapping[str, Union[bytes, TensorInfo]]:
    """The lines by key, parsed only if two have the same key."""
    lines = {_text(key): line for key, line in tensors}
    return lines if len(lines) == len(tensors) else by_key([info_of(_parse(line)) for _, line in tensors])


def _text(key: bytes) -> str:
    try:
        return key.decode() if b"\\" not in key else str(json.loads(b'"' + key + b'"'))
    except ValueError as error:
        raise Error(f"cannot parse the list of tensors: {error}") from error


def _parse(line: bytes) -> dict[str, Any]:
    try:
        return json.loads(line)  # type: ignore[no-any-return]
    except ValueError as error:
        raise Error(f"cannot parse the list of tensors: {error}") from error
