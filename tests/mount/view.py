"""What is on a mount, and what torch says should be there, in forms that can be compared.

Both are told as leaves: the keys on the way to a tensor or a value, joined by dots. That is the
same text for a key "a.b" and for "a" and "b" in one another, so that where the keys are split (the
golden trees tell) does not matter here. Two leaves may have the same text.
"""

import collections
import hashlib
import json
from pathlib import Path
from typing import NamedTuple

import ckptfs

# What tensordict encodes, and what we do beside that.
ENCODED = {*'/<>:"\\|?* %\x7f', *map(chr, range(32))}
COMMANDS = {chr(c) for c in (*range(0x80, 0xA0), 0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F),
                             *range(0x2066, 0x206A))}


def encode(key):
    """The name under which a mount lists the file of a key."""
    if key in ("", ".", ".."):
        return {"": "%", ".": "%2E", "..": "%2E%2E"}[key]
    return "".join("".join(f"%{b:02X}" for b in c.encode()) if c in ENCODED | COMMANDS else c
                   for c in key)


class Leaf(NamedTuple):
    dtype: str
    shape: tuple
    sha256: str


class Tensor(NamedTuple):
    path: Path
    entry: dict  # Of the directory's meta.json.

    @property
    def dtype(self):
        return self.entry.get("x_dtype", self.entry["dtype"])

    @property
    def shape(self):
        return tuple(self.entry.get("x_shape", self.entry["shape"]))

    def leaf(self):
        digest = hashlib.sha256(ckptfs.read(self.path)).hexdigest()
        return Leaf(self.dtype, self.shape, digest)


class Table(NamedTuple):
    path: Path
    entry: dict  # What meta.json tells of it.


RESERVED = {"shape", "device", "_type", "_ckptfs"}


def entries(directory):
    """The members of a directory's meta.json, without those about the directory itself."""
    return {k: v for k, v in ckptfs.meta(directory).items()
            if k not in RESERVED and isinstance(v, dict)}


def original(name, entry):
    """The key as it is in the checkpoint; bytes that are no UTF-8 as Python's surrogates."""
    if "key_hex" in entry:
        raw = bytes.fromhex(entry["key_hex"])
        try:
            return raw.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            return raw.decode("utf-8", "surrogateescape")
    return str(entry.get("key", name))


def walk(directory, prefix=()):
    """Yields ("tensor", "value" or "table", keys, what): a Tensor, the value's data, or a Table."""
    directory = Path(directory)
    for name, entry in entries(directory).items():
        keys = (*prefix, original(name, entry))
        if "data_file" in entry:
            yield "value", keys, json.loads(ckptfs.read(directory / entry["data_file"]))
            continue
        table = entry if "bytes" in entry else entry.get("lines")
        if table:
            yield "table", keys, Table(directory / (encode(name) + ".jsonl"), table)
        if "bytes" in entry:
            continue
        if "type" not in entry:
            yield "tensor", keys, Tensor(directory / (encode(name) + ".memmap"), entry)
            continue
        below = directory / encode(name)
        if not below.is_dir():
            below = directory / name
        if entry["type"] == "NonTensorData":
            value = ckptfs.meta(below)
            assert set(value) == {"_type", "data", "_metadata", "_is_non_tensor"}, value
            yield "value", keys, value["data"]
        else:
            yield from walk(below, keys)


def lines(root):
    """The lines of the tensors.jsonl of a mount."""
    return [json.loads(line) for line in ckptfs.read(Path(root, "tensors.jsonl")).splitlines()]


def places(root):
    """{path: line} of the tensors.jsonl of a mount."""
    return {Path(root, line["path"]): line for line in lines(root)}


def tensors(directory):
    """{dotted keys: sorted leaves} of all tensors of a mount that can be read."""
    found = collections.defaultdict(list)
    for kind, keys, what in walk(directory):
        if kind == "tensor":
            found[".".join(keys)].append(what.leaf())
    return {keys: sorted(leaves) for keys, leaves in found.items()}


def values(directory):
    """{dotted keys: [data]} of all values."""
    found = collections.defaultdict(list)
    for kind, keys, what in walk(directory):
        if kind == "value":
            found[".".join(keys)].append(what)
    return dict(found)
