"""What the meta.json files of a mount have: values, and how tensors are rebuilt.

docs/layout.md describes the files.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from ckptfs._errors import Error

_TENSORDICT = "<class 'tensordict._td.TensorDict'>"  # Its meta.json has an entry for each directory.
_VALUES = {f"<class 'tensordict.tensorclass.{name}'>" for name in ("NonTensorData", "NonTensorStack")}
_PLAIN = re.compile(r"\w[\w-]*", re.ASCII)  # A name that is not encoded.


class Contents:
    """The values, composite tensors and attributes of a mount, by dotted key, in order."""

    def __init__(self, root: str, files: Mapping[str, str]) -> None:
        """Reads all meta.json files. `files` are the values that are files of their own: key -> path."""
        self.recipes: dict[str, str] = {}  # Of composite tensors.
        self.attributes: dict[str, Mapping[str, Any]] = {}  # Of dicts.
        found: dict[str, str] = {}
        directories = [(root, "")]
        while directories:
            directory, key = directories.pop()
            meta = _read(os.path.join(directory, "meta.json"))
            if meta.get("_type") in _VALUES and "data" in meta:
                found[key] = os.path.join(directory, "meta.json")
            else:
                directories += reversed(list(self._add(directory, key, meta)))
        found.update((key, os.path.join(root, path)) for key, path in files.items())
        self.values: Mapping[str, Any] = Files(found)

    def _add(self, directory: str, key: str, meta: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Adds a dict; returns the directories in it, and their keys."""
        about = meta.get("_ckptfs", {})
        if "recipe" in about:
            self.recipes[key] = about["recipe"]
        if not key and "attributes" in about:
            self.attributes[key] = about["attributes"]
        for name, below in _directories(directory, meta):
            entry = meta.get(name)
            entry = entry if isinstance(entry, dict) else {}
            key_below = str(entry.get("key", name))
            key_below = f"{key}.{key_below}" if key else key_below
            if "attributes" in entry:
                self.attributes[key_below] = entry["attributes"]
            yield below, key_below


class Files(Mapping[str, Any]):
    """Values by key, which are read when they are requested."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = files

    def __getitem__(self, key: str) -> Any:
        path = self._files[key]
        if path.endswith(".jsonl"):
            return _rows(path)
        value = _read(path)
        return value["data"] if os.path.basename(path) == "meta.json" else value

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def _directories(directory: str, meta: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The names of the directories in a directory, decoded, and their paths, in the order of meta.json."""
    # A listing of each directory would take as long as all else, and few need it.
    entries = [name for name, entry in meta.items() if isinstance(entry, dict) and "type" in entry]
    if meta.get("_type") == _TENSORDICT and all(map(_PLAIN.fullmatch, entries)):
        yield from ((name, os.path.join(directory, name)) for name in entries)
        return
    with os.scandir(directory) as listing:
        names = {unquote(entry.name): entry.path for entry in listing if entry.is_dir()}
    order = {name: i for i, name in enumerate(meta)}
    yield from sorted(names.items(), key=lambda item: order.get(item[0], len(order)))


def entry_of(root: str, path: str) -> dict[str, Any]:
    """The entry of a tensor file in the meta.json beside it; empty if it has none."""
    directory, name = os.path.split(os.path.join(root, path))
    entry = _read(os.path.join(directory, "meta.json")).get(unquote(name.removesuffix(".memmap")))
    return entry if isinstance(entry, dict) else {}


def _read(path: str) -> Any:
    try:
        # Without a buffer, open() does not ask whether the file is a terminal, which takes a request.
        with open(path, "rb", buffering=0) as file:
            return json.loads(file.read())
    except (OSError, ValueError, RecursionError) as error:
        raise Error(f"{path}: cannot read: {error}") from error


def _rows(path: str) -> list[Any]:
    try:
        with open(path, encoding="utf-8") as file:
            return [json.loads(line) for line in file]
    except (OSError, ValueError, RecursionError) as error:
        raise Error(f"{path}: cannot read: {error}") from error
