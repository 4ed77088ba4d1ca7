"""Builds checkpoints byte by byte: hostile ones, and ones that are large and cost no disk.

torch.save writes neither. An archive is written as torch writes it (stored, padded to 64 bytes,
with data descriptors and zip64 end records), so that each test changes one thing only.
"""

import struct
import zlib
from pathlib import Path
from typing import NamedTuple


# ---- Pickles: each function returns the opcodes that push its value.

PROTO, STOP = b"\x80\x02", b"."


def text(value):
    data = value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(data)) + data


def integer(value):
    if 0 <= value < 256:
        return b"K" + bytes([value])
    if -(1 << 31) <= value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    length = value.bit_length() // 8 + 1
    return b"\x8a" + bytes([length]) + value.to_bytes(length, "little", signed=True)


def glob(module, name):
    return b"c" + module.encode() + b"\n" + name.encode() + b"\n"


def sequence(*values):
    return b"(" + b"".join(values) + b"t"


def array(*values):
    return b"](" + b"".join(values) + b"e"


def mapping(*pairs):
    """A dict of pairs of a key (a str, or opcodes) and opcodes."""
    items = b"".join((text(k) if isinstance(k, str) else k) + v for k, v in pairs)
    return b"}(" + items + b"u"


def call(function, *arguments):
    return function + sequence(*arguments) + b"R"


def storage(key, numel, kind="FloatStorage"):
    return sequence(text("storage"), glob("torch", kind), text(key), text("cpu"),
                    integer(numel)) + b"Q"


def tensor(key, shape, numel=None, stride=None, offset=0, kind="FloatStorage"):
    """A float32 tensor in storage `key`, contiguous unless there is a stride."""
    size = 1
    contiguous = []
    for length in reversed(shape):
        contiguous.insert(0, size)
        size *= length
    stride = contiguous if stride is None else stride
    return call(glob("torch._utils", "_rebuild_tensor_v2"),
                storage(key, size if numel is None else numel, kind), integer(offset),
                sequence(*map(integer, shape)), sequence(*map(integer, stride)), b"\x89",
                glob("collections", "OrderedDict") + b")R")


# ---- Archives.

class Record(NamedTuple):
    name: str
    data: bytes = b""     # Or what makes it, piece by piece, if it is large and deflated.
    hole: int = 0        # Instead of data: this many zeros that take no disk.
    deflate: bool = False
    size: int = -1       # The decoded size in the directory, if it is false.


def write_archive(path, records, folder="archive"):
    """Writes an archive as torch.save does; returns the offset of each record's bytes."""
    offsets, central = {}, []
    with open(path, "wb") as file:
        for record in records:
            name = f"{folder}/{record.name}".encode()
            data, crc, size = record.data, 0, record.hole
            if record.deflate:
                coder = zlib.compressobj(9, zlib.DEFLATED, -15)
                deflated = b""
                for piece in [data] if isinstance(data, bytes) else data:
                    deflated += coder.compress(piece)
                    crc = zlib.crc32(piece, crc)
                    size += len(piece)
                data = deflated + coder.flush()
            elif not record.hole:
                crc, size = zlib.crc32(data), len(data)
            length = len(data) if record.deflate else size
            if record.size >= 0:
                size = record.size
            start = file.tell()
            padding = -(start + 30 + len(name) + 4) % 64
            method = 8 if record.deflate else 0
            file.write(struct.pack("<4s5H3I2H", b"PK\3\4", 0, 0x0808, method, 0, 0, 0, 0, 0,
                                   len(name), 4 + padding) + name)
            file.write(b"FB" + struct.pack("<H", padding) + b"Z" * padding)
            offsets[record.name] = file.tell()
            file.write(data)
            file.seek(record.hole, 1)
            is_large = size >= 0xFFFFFFFF or start >= 0xFFFFFFFF
            file.write(struct.pack("<4sI2Q" if is_large else "<4s3I", b"PK\7\x08", crc, length,
                                   size))
            extra = b""
            if max(size, length) >= 0xFFFFFFFF:
                extra += struct.pack("<2Q", size, length)
                size = length = 0xFFFFFFFF
            if start >= 0xFFFFFFFF:
                extra += struct.pack("<Q", start)
                start = 0xFFFFFFFF
            if extra:
                extra = struct.pack("<2H", 1, len(extra)) + extra
            central.append(struct.pack("<4s6H3I5H2I", b"PK\1\2", 0, 0, 0x0808, method, 0, 0, crc,
                                       length, size, len(name), len(extra), 0, 0, 0, 0, start)
                           + name + extra)
        start = file.tell()
        directory = b"".join(central)
        file.write(directory)
        count, length = len(central), len(directory)
        file.write(struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 0x031E, 45, 0, 0, count, count, length,
                               start))
        file.write(struct.pack("<4sIQI", b"PK\6\7", 0, start + length, 1))
        file.write(struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, min(count, 0xFFFF), min(count, 0xFFFF),
                               min(length, 0xFFFFFFFF), min(start, 0xFFFFFFFF), 0))
    return offsets


def write_safetensors(path, header, data=b""):
    """Writes a file of safetensors: a header in JSON, which may be anything, and data."""
    header = header if isinstance(header, bytes) else header.encode()
    Path(path).write_bytes(struct.pack("<Q", len(header)) + header + data)


def write_checkpoint(path, root, storages=(), **pickle_options):
    """Writes a checkpoint: opcodes of its root, and pairs of a key and bytes or a Record."""
    records = [Record("data.pkl", PROTO + root + STOP, **pickle_options),
               Record("byteorder", b"little")]
    records += [data if isinstance(data, Record) else Record(f"data/{key}", data)
                for key, data in storages]
    return write_archive(path, [*records, Record("version", b"3\n")])
