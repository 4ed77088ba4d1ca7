"""Samples of tensorizer, secrets for them, and what the library itself finds in a file."""

import contextlib
import gzip
import json
import os
import sys

import ckptfs

FOLDER = ckptfs.SAMPLES / "tensorizer"
EXPECTED = json.loads((FOLDER / "expected.json").read_text())

# The handmade samples have one key and one passphrase.
HANDMADE_KEY = bytes(range(32))
HANDMADE_PASSPHRASE = "test"

# What that passphrase is in the one that has it.
HANDMADE_DERIVED = bytes.fromhex("185d9543e6945bb30c6ecb2d1ac58a388ddfe954c34cf395a4fa12f986897662")

# They have no index that could be read.
UNREADABLE = {"2.12.1-unfinished.tensors", "2.12.1-overflow.tensors"}


def unpack(case, name):
    """The file of a sample, in a directory of its own."""
    file = case.scratch() / name
    file.write_bytes(gzip.decompress((FOLDER / f"{name}.gz").read_bytes()))
    return file


def key_file(case, key):
    """The option for a key of 32 bytes."""
    file = case.scratch() / "model.key"
    file.write_bytes(key)
    return f"-okey_file={file}"


def passphrase_file(case, text):
    """The option for a passphrase."""
    file = case.scratch() / "passphrase"
    file.write_text(text + "\n", encoding="utf-8")
    return f"-opassphrase_file={file}"


def options_of(case, sample):
    """The options needed to read a sample."""
    return [key_file(case, bytes.fromhex(sample["key"]))] if "key" in sample else []


def dotted(path):
    return ".".join(map(str, path))


@contextlib.contextmanager
def writing(file, encryption=None):
    """A TensorSerializer, which is closed at the end."""
    from tensorizer import TensorSerializer
    writer = TensorSerializer(str(file), encryption=encryption)
    try:
        yield writer
    finally:
        writer.close()


def library(file, **options):
    """{dotted key: tensor} as TensorDeserializer reads a file."""
    from tensorizer import TensorDeserializer
    with TensorDeserializer(str(file), device="cpu", **options) as reader:
        return dict(flat(reader, ()))


def flat(tree, path):
    """The tensors of nested mappings and sequences, by their dotted keys."""
    for key in tree.keys() if hasattr(tree, "keys") else range(len(tree)):
        what = tree[key]
        if hasattr(what, "dtype"):
            yield dotted((*path, key)), what.clone()
        else:
            yield from flat(what, (*path, key))


def flip(file, offset):
    """Changes a byte."""
    descriptor = os.open(file, os.O_RDWR)
    byte = os.pread(descriptor, 1, offset)[0]
    os.pwrite(descriptor, bytes([byte ^ 0x40]), offset)
    os.close(descriptor)


def mapped_flags(pid):
    """The sets of flags of the mappings of a process."""
    lines = open(f"/proc/{pid}/smaps", encoding=sys.getfilesystemencoding(), errors="replace")
    with lines:
        return [set(line.split()[1:]) for line in lines if line.startswith("VmFlags:")]
