"""Writes files of tensorizer byte by byte: hostile ones, and ones too large to be written whole."""

import struct

MAGIC = b"|TZR|"


def name_bytes(name):
    return name if isinstance(name, bytes) else name.encode()


def dims(shape, wide):
    return struct.pack(f"<B{len(shape)}{'Q' if wide else 'I'}", len(shape), *shape)


def described(name, kind, dtype, shape, wide=False):
    name, dtype = name_bytes(name), dtype.encode()
    return (struct.pack("<H", len(name)) + name + bytes([kind, len(dtype)]) + dtype
            + dims(shape, wide))


def header(name, dtype, shape, length, *, kind=2, module=0, hashes=b"\0", crypt=b"", wide=False):
    """The header of a tensor: `hashes` begins with their count, `crypt` with its length."""
    name, text = name_bytes(name), dtype.encode()
    body = (struct.pack("<HBH", module, kind, len(name)) + name + bytes([len(text)]) + text
            + dims(shape, wide) + struct.pack("<H", len(hashes)) + hashes + crypt
            + struct.pack("<q", length))
    return struct.pack("<Q", 8 + len(body)) + body


class File:
    """Tensors to be written; what is wrong with the file is up to the caller."""

    def __init__(self, version=1, flags=0, index=None):
        self.version, self.flags, self.index_size = version, flags, index
        self.tensors = []

    def add(self, name, dtype, shape, data, *, wide=False, kind=2, **options):
        """`data` is bytes, or the length of a hole."""
        length = data if isinstance(data, int) else len(data)
        self.tensors.append((name, dtype, shape, data, length, wide, kind,
                             header(name, dtype, shape, length, wide=wide, kind=kind, **options)))
        return self

    def index(self, base):
        """The entries, and where each header begins, for headers that begin at `base`."""
        entries, places, offset = b"", [], base
        for name, dtype, shape, _, length, wide, kind, head in self.tensors:
            if self.flags & 2:
                entries += struct.pack("<I", 5 if wide else 1)
            entries += described(name, kind, dtype, shape, wide)
            entries += struct.pack("<QQQ", offset, offset + len(head), length)
            places.append(offset)
            offset += len(head) + length
        return entries, places

    def start(self, entries, count, size):
        return (MAGIC + struct.pack("<I", self.version) + self.flags.to_bytes(32, "little")
                + struct.pack("<QQQ", sum(t[4] for t in self.tensors), 0, count)
                + struct.pack("<Q", size) + entries)

    def write(self, file, count=None):
        size = self.index_size or len(self.index(0)[0])
        entries, places = self.index(73 + size)
        with open(file, "wb") as out:
            count = len(self.tensors) if count is None else count
            out.write(self.start(entries.ljust(size, b"\0"), count, size))
            for place, (*_, data, length, _, _, head) in zip(places, self.tensors):
                out.seek(place)
                out.write(head)
                if isinstance(data, bytes):
                    out.write(data)
                else:
                    out.seek(length, 1)
            out.write(bytes(8))
        return places
