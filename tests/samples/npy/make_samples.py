"""Makes the .npy and .npz samples of this folder and expected.json.

    cd tests/samples/npy && python make_samples.py

Needs numpy 2 and ml_dtypes. Same bytes on every run.
"""

import hashlib
import io
import json
import pathlib
import re
import shutil
import struct
import warnings
import zipfile

import ml_dtypes
import numpy as np

warnings.filterwarnings("ignore")
FILES = {}


# ------------------------------------------------------------------------------------------------- expected


def dense(a):
    """Bytes of an array in C order; numbers, text and times little-endian; records and void as they are stored."""
    if a.dtype.kind in "biufcUMm" and not (a.dtype.kind in "fc" and a.dtype.itemsize > (8 if a.dtype.kind == "f" else 16)):
        a = a.astype(a.dtype.newbyteorder("<"), order="C")
    return np.ascontiguousarray(a).tobytes()


def torch_name(dt):
    n = dt.name
    return "torch." + n if n in ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64", "complex64", "complex128") else None


def entry(path, a, npy, **more):
    """The expected tensor of array `a`, which the bytes `npy` hold."""
    b = dense(a)
    off, header, descr = parse(npy)
    e = {"path": path, "dtype": torch_name(a.dtype), "numpy_dtype": descr, "shape": list(a.shape), "fortran_order": header["fortran_order"], "nbytes": len(b), "sha256": hashlib.sha256(b).hexdigest()}
    return e | more


def parse(npy):
    v = tuple(npy[6:8])
    n = struct.unpack("<H", npy[8:10])[0] if v == (1, 0) else struct.unpack("<I", npy[8:12])[0]
    off = 10 if v == (1, 0) else 12
    text = npy[off : off + n].decode("utf-8" if v == (3, 0) else "latin1")
    import ast
    h = ast.literal_eval(re.sub(r"(\d)L", r"\1", text.strip()))
    return off + n, h, h["descr"] if isinstance(h["descr"], str) else json.loads(json.dumps(h["descr"]))


def numpy_says(data):
    try:
        r = np.load(io.BytesIO(data))
        return None if not isinstance(r, np.lib.npyio.NpzFile) else {k: say(lambda: r[k]) for k in r.files}
    except Exception as e:
        return re.sub(r" at 0x\w+", "", f"{type(e).__name__}: {e}".split("\n")[0])[:160]


def say(f):
    try:
        v = f()
        return "bytes" if isinstance(v, bytes) else None
    except Exception as e:
        return f"{type(e).__name__}: {e}".split("\n")[0][:120]


# ------------------------------------------------------------------------------------------------- writing


def npy(a, version=None):
    b = io.BytesIO()
    np.lib.format.write_array(b, np.asanyarray(a), version=version)
    return b.getvalue()


def add(name, data, note, ours="accept", array=None, expect=None, values=None):
    """ours: accept | refuse.  array: what the file holds, where numpy cannot say; expect: for .npz;
    values: the keys of what is in an array of objects."""
    p = pathlib.Path(name)
    p.parent.mkdir(exist_ok=True, parents=True)
    p.write_bytes(data)
    e = {"note": note, "ours": ours, "numpy": numpy_says(data)}
    if values is not None:
        e |= {"tensors": [], "values": values}
    elif ours == "accept" and not data.startswith(b"PK"):
        a = np.load(io.BytesIO(data), max_header_size=10**8) if array is None else array
        off, h, _ = parse(data)
        e |= {"version": list(data[6:8]), "data_offset": off, "tensors": [entry([], a, data)]}
    elif expect is not None:
        e |= expect
    FILES[name] = e


def mk(text, data=b"", v=(1, 0), n=None):
    t = text if isinstance(text, bytes) else text.encode("latin1" if v < (3, 0) else "utf8")
    return b"\x93NUMPY" + bytes(v) + struct.pack("<H" if v == (1, 0) else "<I", len(t) if n is None else n) + t + data


def written():
    six = np.arange(6).reshape(2, 3)
    for d in ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"]:
        add(f"{np.dtype(d).name}.npy", npy(six.astype(d)), f"{np.dtype(d).name}")
    for d in ["i2", "f2", "f4", "u8", "c8", "c16"]:
        add(f"big_{np.dtype(d).name}.npy", npy((six * (1 + 0.5j) if d[0] == "c" else six).astype(">" + d)), "big-endian: bytes are swapped per number, complex per half")
    for n, d, note in (("longdouble", "g", "`<f16`, x87 80 bits in 16 bytes: opaque, stored bytes (numpy leaves the 6 spare bytes as they were in memory; here 0)"), ("clongdouble", "G", "`<c32`: opaque")):
        a = six.astype(d)
        a.view("u1").reshape(-1, 16)[:, 10:] = 0
        add(n + ".npy", npy(a), note)
    add("fortran.npy", npy(np.asfortranarray(six.astype("f4"))), "Fortran order: the mount shows C order")
    add("fortran_3d_big.npy", npy(np.asfortranarray(np.arange(24, dtype=">i4").reshape(2, 3, 4))), "Fortran order, three dimensions, big-endian")
    add("transposed.npy", npy(np.arange(24, dtype="i2").reshape(2, 3, 4).transpose(0, 2, 1)), "neither C nor F: written in C order")
    add("fortran_1d.npy", mk("{'descr': '<f4', 'fortran_order': True, 'shape': (3,), }\n", np.arange(3, dtype="f4").tobytes()), "fortran_order True in one dimension: same bytes")
    add("fortran_0d.npy", mk("{'descr': '<f4', 'fortran_order': True, 'shape': (), }\n", np.float32(7).tobytes()), "fortran_order True, 0-d")
    add("zero_d.npy", npy(np.float64(2.5)), "0-d")
    add("empty.npy", npy(np.zeros(0, "f4")), "shape (0,)")
    add("empty_3d.npy", npy(np.zeros((2, 0, 3), "f4")), "shape (2, 0, 3)")
    add("rank_64.npy", npy(np.ones((1,) * 64, "i1")), "64 dimensions, the most numpy 2 has")
    add("bytes.npy", npy(np.array([b"a", b"", b"xyz\0\0", b"\xff"], "S5")), "`|S5`: opaque, NUL-padded")
    add("unicode.npy", npy(np.array(["a", "", "é漢😀"])), "`<U3`: opaque, 4 bytes a character")
    add("big_unicode.npy", npy(np.array(["a", "é漢😀"], ">U3")), "`>U3`: swapped per character")
    add("void.npy", npy(np.array([b"ab\0", b"cde"], "V3")), "`|V3`")
    add("void_0.npy", npy(np.zeros(5, "V0")), "`|V0`: five elements of no bytes")
    add("datetime.npy", npy(np.array(["2020-02-29T12:34:56", "NaT"], "M8[s]")), "`<M8[s]`, NaT is the smallest int64")
    add("big_datetime.npy", npy(np.array(["2020-02-29", "NaT"], ">M8[D]")), "`>M8[D]`")
    add("timedelta.npy", npy(np.array([1, -1, "NaT"], "m8[25us]")), "`<m8[25us]`: a multiple in the unit")
    add("datetime_generic.npy", npy(np.array(["NaT"], "M8")), "`<M8` without unit")
    rec = np.zeros(3, np.dtype([("a", "i1"), ("b", "<f8"), ("c", ">i2", (2,)), ("d", [("x", "u1"), ("y", "S3")])], align=True))
    rec["a"], rec["b"], rec["c"] = [1, 2, 3], [0.5, 1.5, 2.5], [[1, 2], [3, 4], [5, 6]]
    rec["d"]["y"] = b"hey"
    rec = np.frombuffer(rec.tobytes(), rec.dtype)
    add("record.npy", npy(rec), "record: padding, sub-array, nested, one big-endian field. Opaque: stored bytes, padding included")
    add("record_titles.npy", npy(np.zeros(2, [(("a title", "a"), "<f4"), (("b", "b2"), "<i4")])), "titles")
    add("record_latin1.npy", npy(np.ones(1, [("é", "<f4")])), "a Latin-1 name stays version 1")
    add("record_utf8.npy", npy(np.ones(1, [("漢字", "<f4")])), "version 3: the name is not Latin-1")
    add("record_0_fields.npy", npy(np.zeros(2, [])), "a record without fields: 0 bytes")
    add("version_2.npy", npy(six, (2, 0)), "version 2 asked for")
    add("version_3.npy", npy(six, (3, 0)), "version 3 asked for")
    add("header_13k.npy", npy(np.ones(1, [(f"{'x' * 30}{i}", "i1") for i in range(300)])), "300 fields: 13 814 characters; numpy writes it and by default refuses to read it (cap 10 000)")
    for n, d in [("bfloat16", "bfloat16"), ("float8_e4m3fn", "float8_e4m3fn"), ("float8_e5m2", "float8_e5m2"), ("int4", "int4"), ("float4_e2m1fn", "float4_e2m1fn"), ("complex32", "complex32")]:
        a = np.arange(6).astype(np.dtype(getattr(ml_dtypes, d)))
        add(f"ml_{n}.npy", npy(a), f"ml_dtypes {d}: opaque bytes of its width", array=np.frombuffer(a.tobytes(), f"V{a.dtype.itemsize}"))
    a = np.arange(1, 4).astype(ml_dtypes.bfloat16)
    add("ml_big_bfloat16.npy", npy(a.astype(a.dtype.newbyteorder(">"))), "`>V2`: the bytes are swapped and nothing says what they are: opaque, stored bytes", array=np.frombuffer(a.view("u2").astype(">u2").tobytes(), "V2"))
    add("object.npy", npy(np.array([{"a": 1}, None], object)), "`|O`: a pickle", values=["0", "1"])
    add("object_in_record.npy", npy(np.zeros(2, [("a", "<f4"), ("o", "O")])), "a record with an object field", values=["0", "1"])
    add("stringdtype.npy", npy(np.array(["a", "bcd"], np.dtypes.StringDType())), "StringDType says `|O` and is a pickle", values=["0", "1"])


B = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }"
D = struct.pack("<2f", 1, 2)


def edges():
    one = np.array([1, 2], "f4")
    for name, text, note, ours, data in [
        ("python2_long", B.replace("2,", "2L,"), "`2L`, as Python 2 wrote it", "accept", D), ("no_padding", B, "no blanks, no newline: data at an odd place", "accept", D),
        ("wrapped", B.replace(", '", ",\n '"), "newlines inside", "accept", D), ("leading_space", "  \n" + B, "white space before", "accept", D), ("keys_reordered", "{'shape': (2,), 'fortran_order': False, 'descr': '<f4'}", "other order, no last comma", "accept", D),
        ("double_quotes", B.replace("'", '"'), "double quotes", "accept", D), ("u_prefix", B.replace("'descr': '", "u'descr': u'"), "u'…'", "accept", D), ("native_mark", B.replace("<", "="), "`=f4`", "accept or refuse", D), ("no_mark", B.replace("<", ""), "`f4`", "accept or refuse", D),
        ("bar_f4", B.replace("<", "|"), "`|f4`: native", "accept", D), ("little_bool", "{'descr': '<b1', 'fortran_order': False, 'shape': (2,), }", "`<b1`", "accept", b"\0\1"), ("a_kind", "{'descr': '|a3', 'fortran_order': False, 'shape': (2,), }", "`a3` = `S3`", "accept", b"abcdef"),
        ("comment", B + " # c", "a comment", "accept or refuse", D), ("parenthesised", "(" + B + ")", "parentheses", "accept or refuse", D), ("hex_int", B.replace("2,", "0x2,"), "hexadecimal", "accept or refuse", D), ("key_twice", B.replace("{", "{'descr': '<f8', "), "descr twice", "accept or refuse", D),
        ("plus", B.replace("2,", "+2,"), "+2", "accept or refuse", D), ("comma_dtype", "{'descr': '<f4,<i4', 'fortran_order': False, 'shape': (1,), }", "`<f4,<i4`", "accept or refuse", D),
        ("tuple_descr", "{'descr': ('<f4', (2,)), 'fortran_order': False, 'shape': (1,), }", "a sub-array at the top: numpy cannot read it either", "refuse", D),
        ("shape_int", B.replace("(2,)", "(2)"), "(2) is an int", "refuse", D), ("shape_list", B.replace("(2,)", "[2]"), "a list", "refuse", D), ("shape_negative", B.replace("2,", "-1,"), "negative", "refuse", D), ("shape_bool", B.replace("2,", "True,"), "True", "refuse", D),
        ("shape_float", B.replace("2,", "2.0,"), "2.0", "refuse", D), ("shape_none", B.replace("(2,)", "None"), "None", "refuse", D), ("shape_65", B.replace("2,", "1," * 65), "65 dimensions", "refuse", D), ("shape_huge", B.replace("2,", "4611686018427387904,"), "2^62 × 4 bytes", "refuse", D),
        ("shape_overflow", B.replace("2,", "4294967296,4294967296,"), "2^32 × 2^32", "refuse", D), ("shape_overflow_0", B.replace("2,", "4294967296,4294967296,0,"), "2^32 × 2^32 × 0", "accept or refuse", b""), ("shape_2_63", B.replace("2,", "0,9223372036854775808,"), "0 × 2^63", "refuse", b""),
        ("order_0", B.replace("False", "0"), "fortran_order 0", "refuse", D), ("order_missing", B.replace("'fortran_order': False, ", ""), "no fortran_order", "refuse", D), ("key_more", B.replace("{", "{'x': 1, "), "one key more", "refuse", D), ("descr_none", B.replace("'<f4'", "None"), "descr None", "refuse", D),
        ("descr_bytes", B.replace("'<f4'", "b'<f4'"), "descr bytes", "refuse", D), ("descr_i3", B.replace("f4", "i3"), "`<i3`", "refuse", D), ("descr_object", B.replace("<f4", "|O8"), "`|O8` without a pickle", "refuse", D), ("descr_nested_object", B.replace("'<f4'", "[('a', [('b', '|O')])]"), "an object field two levels down", "refuse", D),
        ("descr_name_twice", B.replace("'<f4'", "[('a','<f4'),('a','<f4')]"), "a field name twice", "refuse", D), ("descr_call", B.replace("'<f4'", "float()"), "a call", "refuse", D), ("descr_cut", B[:20], "cut off", "refuse", D), ("not_dict", "[1]", "a list", "refuse", D), ("nul", B.replace("f4", "f4\0"), "NUL in descr", "refuse", D),
        ("nested", B.replace("(2,)", "(" * 200 + "2," + ")" * 200), "200 parentheses", "refuse", D),
        ("short", B, "one byte missing", "refuse", D[:7]), ("header_beyond_end", B, "HEADER_LEN 500", "refuse", b""), ("utf8_bad", b"\xff\xfe", "version 3, not UTF-8", "refuse", b""), ("long_in_v3", B.replace("2,", "2L,"), "`2L` in version 3", "refuse", D),
    ]:
        v = (3, 0) if name in ("utf8_bad", "long_in_v3") else (1, 0)
        add(f"edge/{name}.npy", mk(text, data, v, 500 if name == "header_beyond_end" else None), note, ours, None)
    for v in [(0, 0), (1, 1), (2, 1), (4, 0), (255, 255)]:
        add(f"edge/version_{v[0]}_{v[1]}.npy", b"\x93NUMPY" + bytes(v) + struct.pack("<H", len(B)) + B.encode() + D, "unknown version", "refuse")
    add("edge/header_10000.npy", mk(B.ljust(9999) + "\n", D), "header of 10 000 characters: numpy's limit", array=one)
    add("edge/header_10001.npy", mk(B.ljust(10000) + "\n", D), "one more: numpy refuses by default")
    add("edge/trailing.npy", mk(B, D + b"rest"), "bytes after the array are ignored")
    add("edge/bytes_0.npy", b"", "empty file", "refuse")
    add("edge/magic_cut.npy", b"\x93NUMPY\1", "7 bytes", "refuse")
    add("edge/header_len_cut.npy", b"\x93NUMPY\1\0\x10", "9 bytes", "refuse")


def archives():
    arrays = {"f": np.arange(6, dtype="f4").reshape(2, 3), "big": np.arange(5, dtype=">i4"), "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)), "zero": np.zeros((0, 2), "f4"), "scalar": np.int64(7), "text": np.array("pt"), "half": np.arange(700, dtype="f2")}

    def tens(pairs, data):
        z, out = zipfile.ZipFile(io.BytesIO(data)), []
        for member, a in pairs:
            i = [i for i in z.infolist() if i.filename == member][-1]
            n, x = struct.unpack("<HH", data[i.header_offset + 26 : i.header_offset + 30])
            body = z.read(i)
            e = entry([member.removesuffix(".npy")], a, body, member=member, method=i.compress_type)
            if i.compress_type == 0:
                e["offset"] = i.header_offset + 30 + n + x + parse(body)[0]
            out.append(e)
        return {"tensors": out}

    def save(name, note, arrays, f=np.savez, **more):
        b = io.BytesIO()
        f(b, **arrays)
        add(name, b.getvalue(), note, expect=tens([(k + ".npy", np.asanyarray(v)) for k, v in arrays.items() if not np.asanyarray(v).dtype.hasobject], b.getvalue()) | more)

    save("stored.npz", "np.savez: STORED, forced zip64 extra in the local headers", arrays)
    save("compressed.npz", "np.savez_compressed: DEFLATE", arrays, np.savez_compressed)
    save("names.npz", "keys with /, .., blanks, backslash, `.npy`, Unicode, none at all", {k: np.array([i], "i4") for i, k in enumerate(["a", "a/b", "a.b", "../up", "/abs", "", ".", " ", "sp ace", "é", "😀", "back\\slash", "C:", "shape", "_type", "x%2Fy", "A", "d/"])})
    save("key_ends_in_npy.npz", "keys `a` and `a.npy`: numpy's own reader returns a's array for both; the members are `a.npy` and `a.npy.npy`, the keys `a` and `a.npy`", {"a": np.ones(1), "a.npy": np.zeros(2)})
    save("object_member.npz", "one object array among others: the others are readable", {"w": np.ones(3), "o": np.array([{}], object), "z": np.zeros(2)}, values=["o"])
    b = io.BytesIO()
    np.savez(b, np.ones(2), np.zeros(3), named=np.arange(4))
    add("positional.npz", b.getvalue(), "arr_0, arr_1 and a named one", expect=tens([("named.npy", np.arange(4)), ("arr_0.npy", np.ones(2)), ("arr_1.npy", np.zeros(3))], b.getvalue()))
    b = io.BytesIO()
    np.savez(b)
    add("empty.npz", b.getvalue(), "no arrays: an end record alone", expect={"tensors": []})
    m = {"indices": np.array([1, 0, 2], "i4"), "indptr": np.array([0, 1, 2, 3], "i4"), "format": np.array(b"csr"), "shape": np.array([3, 3]), "data": np.array([1.0, 2.0, 3.0])}
    save("scipy_csr.npz", "the members that scipy.sparse.save_npz writes, same order, compressed", m, np.savez_compressed)

    save("header_70k_version_2.npz", "a record of 270 long names: more than 65 535 characters, so version 2 by itself; numpy refuses by default. DEFLATE", {"r": np.ones(1, [(f"{'x' * 230}{i}", "i1") for i in range(270)])}, np.savez_compressed)

    class Stream(io.RawIOBase):
        def __init__(self):
            self.b = bytearray()

        def writable(self):
            return True

        def write(self, x):
            self.b += x
            return len(x)

    for name, f in (("stream_compressed.npz", np.savez_compressed), ("stream_stored.npz", np.savez)):
        s = Stream()
        f(s, w=np.arange(300.0), v=np.arange(3))
        add(name, bytes(s.b), "to a pipe: flag bit 3, sizes 0 or ffffffff in the local header, a data descriptor after the bytes", expect=tens([("w.npy", np.arange(300.0)), ("v.npy", np.arange(3))], bytes(s.b)))

    def zipped(name, note, members, ours="accept", pairs=(), edit=lambda d: d, more=None, method=0):
        if more is None:
            more = {}
        b = io.BytesIO()
        with zipfile.ZipFile(b, "w", method) as z:
            for k, v in members:
                z.writestr(zipfile.ZipInfo(k), v, method)
        data = edit(b.getvalue())
        add(name, data, note, ours, expect=(tens(pairs, data) if ours != "refuse" else {}) | more)

    one, two = np.arange(3, dtype="f4"), np.arange(2, dtype="i4")
    for name, method in (("bzip2", 12), ("lzma", 14)):
        zipped(f"edge/{name}.npz", f"zip method {method}: numpy never writes it and reads it", [("a.npy", npy(one))], pairs=[("a.npy", one)], method=method)
    zipped("edge/other_members.npz", "a text, a folder, a member without suffix, an upper-case suffix (key U.NPY)", [("t.txt", b"hi"), ("d/", b""), ("nosuffix", npy(one)), ("U.NPY", npy(two)), ("d/x.npy", npy(one))],
           pairs=[("nosuffix", one), ("U.NPY", two), ("d/x.npy", one)], more={"not_arrays": ["t.txt", "d/"]})
    zipped("edge/twice.npz", "a member name twice: numpy takes the last", [("a.npy", npy(one)), ("a.npy", npy(two))], "refuse")
    zipped("edge/key_twice.npz", "members `a` and `a.npy`: one key", [("a", npy(one)), ("a.npy", npy(two))], "refuse")
    zipped("edge/bad_member.npz", "one member is damaged inside, one is empty", [("good.npy", npy(one)), ("bad.npy", b"\x93NUMPY\1\0xx"), ("none.npy", b"")], pairs=[("good.npy", one)], more={"unreadable": ["bad"], "not_arrays": ["none"]})
    zipped("edge/short_member.npz", "one member is shorter than its header says", [("good.npy", npy(one)), ("short.npy", npy(one)[:-1])], pairs=[("good.npy", one)], more={"unreadable": ["short"]})
    zipped("edge/bad_crc.npz", "one data bit flipped in a STORED member: numpy notices at the end of the read; a reader of parts cannot", [("a.npy", npy(np.arange(3.0)))], "accept or refuse", [], lambda d: d.replace(struct.pack("<d", 1.0), struct.pack("<d", 3.0)))
    zipped("edge/trailing_bytes.npz", "junk after the end record: Python's zipfile accepts it", [("a.npy", npy(one))], "accept or refuse", [], lambda d: d + b"junk")
    zipped("edge/leading_bytes.npz", "junk before: numpy decides by the first bytes and refuses", [("a.npy", npy(one))], "refuse", [], lambda d: b"junk" + d)
    zipped("edge/cut.npz", "cut in the middle", [("a.npy", npy(one))], "refuse", [], lambda d: d[: len(d) // 2])
    zipped("edge/comment.npz", "a zip comment of 30 bytes", [("a.npy", npy(one))], pairs=[("a.npy", one)], edit=lambda d: d[:-2] + struct.pack("<H", 30) + b"comment " * 3 + b"npz   ")
    zipped("edge/dos_zeros.npz", "4 MB of zeros in 4 KB", [("weights.npy", npy(np.zeros(1 << 20, "f4")))], pairs=[("weights.npy", np.zeros(1 << 20, "f4"))], method=8)


def main():
    shutil.rmtree("edge", ignore_errors=True)
    for f in [*pathlib.Path(".").glob("*.np[yz]")]:
        f.unlink()
    written()
    edges()
    archives()
    lines = [f' "": {json.dumps({"numpy": np.__version__, "ml_dtypes": ml_dtypes.__version__})}']
    for k, v in FILES.items():
        ts = v.pop("tensors", None)
        s = json.dumps(v, separators=(",", ":"))
        if ts is not None:
            for t in ts:
                if len(json.dumps(t["numpy_dtype"])) > 2000:
                    t["numpy_dtype"] = f"{len(t['numpy_dtype'])} fields |i1"
            s = s[:-1] + ',"tensors":[' + ",".join("\n   " + json.dumps(t, separators=(",", ":")) for t in ts) + "]}"
        lines.append(f" {json.dumps(k)}: {s}")
    pathlib.Path("expected.json").write_text("{\n" + ",\n".join(lines) + "}\n")


main()
