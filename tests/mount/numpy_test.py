"""npy and npz: what NumPy writes, what it refuses, and files that mean harm. See docs/compatibility/numpy.md.

samples/npy/expected.json has what NumPy (2.4.6) says of each file, what is in it, and what we do:
accept, refuse, or either of them. Elements are compared as the mount shows them: in C order, numbers,
texts and times little-endian, the rest as it is stored.
"""

import hashlib
import io
import json
import random
import struct
import warnings
import zipfile

import ckptfs
import view
from ckptfs import CORRUPT, FORMAT, LIMITS

try:
    import ml_dtypes
    import numpy as np
except ImportError as error:
    np = None
    MISSING = str(error)

FOLDER = ckptfs.SAMPLES / "npy"
EXPECTED = {name: sample for name, sample in json.loads((FOLDER / "expected.json").read_text()).items()
            if name}


def tensors(directory):
    """{key: tensor} of a mount."""
    return {".".join(keys): what for kind, keys, what in view.walk(directory) if kind == "tensor"}


def npy(text, data=b"", version=(1, 0)):
    """An array with this header."""
    length = struct.pack("<H" if version == (1, 0) else "<I", len(text))
    return b"\x93NUMPY" + bytes(version) + length + text.encode("latin1") + data


def header(descr, shape):
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}"


class Samples(ckptfs.Case):
    def assertHolds(self, mount, name, sample):
        places = view.places(mount.path)
        found = {places[tensor.path]["member"]: tensor for tensor in tensors(mount.path).values()}
        for expected in sample["tensors"]:
            tensor = found.pop(expected.get("member"))
            self.assertEqual(hashlib.sha256(ckptfs.read(tensor.path)).hexdigest(),
                             expected["sha256"])
            self.assertEqual(tensor.path.stat().st_size, expected["nbytes"])
            if expected["dtype"] is None:
                self.assertEqual(list(tensor.shape[:-1]), expected["shape"])
                self.assertRegex(tensor.entry["foreign_dtype"], r"\Anumpy\.")
            else:
                self.assertEqual(list(tensor.shape), expected["shape"])
                self.assertEqual(tensor.dtype, expected["dtype"])
            self.assertEqual(tensor.entry.get("fortran_order", False), expected["fortran_order"])
            descr = tensor.entry["numpy_dtype"]
            if isinstance(descr, list) and len(json.dumps(descr)) > 2000:
                descr = f"{len(descr)} fields |i1"
            self.assertEqual(descr, expected["numpy_dtype"])
            offset = expected.get("offset", sample.get("data_offset"))
            if places[tensor.path]["file_offset"] is not None:
                self.assertEqual(places[tensor.path]["file_offset"], offset)
        lost = set(sample.get("unreadable", []))
        damaged = {key for key, tensor in tensors(mount.path).items() if "error" in tensor.entry}
        values = {".".join(keys) for kind, keys, _ in view.walk(mount.path) if kind == "value"}
        self.assertEqual(damaged | values, lost | set(sample.get("values", [])))
        self.assertEqual(len(found), len(damaged))
        summary = ckptfs.meta(mount.path)["_ckptfs"]
        self.assertEqual(summary["format"], name[-3:])
        # Entries of folders are no members for us.
        others = [n.removesuffix(".npy") for n in summary.get("not_arrays", [])]
        self.assertEqual(others, [n for n in sample.get("not_arrays", []) if not n.endswith("/")])

    def test_every_file_is_shown_or_refused_as_numpy_does(self):
        counts = {"accept": 0, "refuse": 0, "accept or refuse": 0}
        for name, sample in EXPECTED.items():
            with self.subTest(name):
                counts[sample["ours"]] += 1
                mountpoint = self.mountpoint()
                done = self.ckptfs(FOLDER / name, mountpoint)
                if done.returncode != 0:
                    self.assertIn(sample["ours"], ("refuse", "accept or refuse"), done.stderr)
                    self.assertIn(done.returncode, (FORMAT, CORRUPT, LIMITS))
                    self.assertRegex(done.stderr, rf"\Ackptfs: {FOLDER / name}: .+\n\Z")
                    self.assertTrue(done.stderr[:-1].isprintable())
                    continue
                with ckptfs.Mount(mountpoint, self.daemon_of(mountpoint), done.stderr) as mount:
                    self.assertNotEqual(sample["ours"], "refuse")
                    if sample["ours"] == "accept":
                        self.assertHolds(mount, name, sample)
        self.assertGreater(counts["accept"], 80)
        self.assertGreater(counts["refuse"], 35)

    def test_arrays_of_objects_are_read_and_not_unpickled(self):
        self.assertEqual(view.values(self.mount(FOLDER / "object.npy").path),
                         {"0": [{"a": 1}], "1": [None]})
        self.assertEqual(view.values(self.mount(FOLDER / "stringdtype.npy").path),
                         {"0": ["a"], "1": ["bcd"]})
        mount = self.mount(FOLDER / "object_member.npz")
        self.assertEqual(view.values(mount.path), {"o": [[{}]]})
        self.assertEqual(set(tensors(mount.path)), {"w", "z"})
        self.assertIn("numpy.ndarray", ckptfs.meta(mount.path)["_ckptfs"]["globals"])

    def test_an_array_that_is_short_cannot_be_read(self):
        mount = self.mount(FOLDER / "edge/short_member.npz", quiet=False)
        self.assertEqual((mount / "short.memmap").stat().st_size, 12)
        with self.assertRaises(OSError):
            ckptfs.read(mount / "short.memmap")


class WithNumpy(ckptfs.Case):
    def setUp(self):
        if np is None:
            self.skip_avoidable(MISSING)
        self.folder = self.scratch()

    def assertShows(self, tensor, array, descr=None):
        """A file of the mount has the elements of `array`, and its entry describes how to read them."""
        dtype = array.dtype
        is_number = dtype.kind in "biufc" and "foreign_dtype" not in tensor.entry
        if is_number or dtype.kind in "UMm":
            array = array.astype(dtype.newbyteorder("<"), order="C")
        raw = np.ascontiguousarray(array).tobytes()
        self.assertEqual(ckptfs.read(tensor.path), raw)
        if is_number:
            self.assertEqual((tensor.dtype, tensor.shape), (f"torch.{dtype.name}", array.shape))
        else:
            self.assertEqual((tensor.dtype, tensor.shape),
                             ("torch.uint8", (*array.shape, dtype.itemsize)))
            shown = tensor.entry["foreign_dtype"].removeprefix("numpy.")
            if dtype.kind != "V" and dtype.isbuiltin != 2:
                self.assertEqual(shown, array.dtype.str)
        descr = np.lib.format.dtype_to_descr(dtype) if descr is None else descr
        self.assertEqual(tensor.entry["numpy_dtype"], json.loads(json.dumps(descr)))


KINDS = ("?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16", "g", "G",
         "S5", "U3", "V3", "M8[s]", "m8[25us]")
RECORDS = ([("a", "i1"), ("b", "<f8"), ("c", ">i2", (2,))], [("x", [("y", "u1"), ("z", "S3")]), ("w", "c8")])


class Random(WithNumpy):
    """Files that NumPy writes here and now."""

    def array(self, rng):
        record = rng.random() < 0.15
        dtype = np.dtype(rng.choice(RECORDS), align=rng.random() < 0.5) if record else np.dtype(rng.choice(KINDS))
        if not record and rng.random() < 0.4:
            dtype = dtype.newbyteorder(">")
        shape = tuple(rng.choice((0, 1, 2, 3, 5)) for _ in range(rng.randrange(5)))
        count = int(np.prod(shape, dtype=int))
        if dtype.kind == "U":
            texts = ["".join(rng.choice("a\u00e9\u6f22\U0001f600") for _ in range(3)) for _ in range(count)]
            array = np.array(texts, dtype).reshape(shape)
        elif dtype.kind == "b":
            array = np.array([rng.random() < 0.5 for _ in range(count)], dtype).reshape(shape)
        else:
            # Any bytes: NaNs of all kinds have to stay as they are.
            array = np.frombuffer(rng.randbytes(count * dtype.itemsize), dtype).reshape(shape)
        if dtype.kind in "fc":
            array = np.array([1.5, -2, 0.25] * (count // 3 + 1), dtype)[:count].reshape(shape)
        view_of = rng.randrange(3)
        return np.asfortranarray(array) if view_of == 1 else array.T if view_of == 2 else array

    def test_archives_hold_what_was_saved(self):
        for seed in range(4 if ckptfs.IS_SANITIZED else 16):
            with self.subTest(seed=seed):
                rng = random.Random(seed)
                arrays = {f"layer.{i}": self.array(rng) for i in range(rng.randrange(1, 60))}
                file = self.folder / f"{seed}.npz"
                (np.savez, np.savez_compressed)[seed % 2](file, **arrays)
                mount = self.mount(file)
                found = tensors(mount.path)
                self.assertEqual(set(found), set(arrays))
                for key, array in arrays.items():
                    with self.subTest(key=key, dtype=array.dtype):
                        self.assertShows(found[key], array)
                mount.unmount()

    def test_files_hold_what_was_saved(self):
        for seed in range(100, 105 if ckptfs.IS_SANITIZED else 130):
            with self.subTest(seed=seed):
                array = self.array(random.Random(seed))
                file = self.folder / f"{seed}.npy"
                np.save(file, array)
                mount = self.mount(file)
                self.assertShows(tensors(mount.path)["tensor"], array)
                mount.unmount()

    def test_types_of_ml_dtypes_are_bytes(self):
        arrays, descrs = {}, {}
        for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e3m4", "float6_e2m3fn",
                     "float4_e2m1fn", "int4", "uint2", "complex32"):
            dtype = np.dtype(getattr(ml_dtypes, name))
            arrays[name] = np.arange(4).astype(dtype)
            kind = {"float8_e5m2": "f", "complex32": "W"}.get(name, "V")
            descrs[name] = f"<{kind}{dtype.itemsize}"
        np.savez(self.folder / "ml.npz", **arrays)
        mount = self.mount(self.folder / "ml.npz")
        found = tensors(mount.path)
        for name, array in arrays.items():
            with self.subTest(name):
                self.assertEqual(found[name].entry["numpy_dtype"], descrs[name])
                self.assertEqual(ckptfs.read(found[name].path), array.tobytes())
                shown = np.fromfile(found[name].path, array.dtype)
                self.assertTrue((shown == array).all())


class Reading(WithNumpy):
    """Usual operations on files of a mount."""

    def test_a_memory_map_is_what_numpy_loads(self):
        a = np.arange(6000, dtype=">f4").reshape(20, 30, 10)
        np.savez(self.folder / "a.npz", plain=a.astype("<f4"), big=a, fortran=np.asfortranarray(a))
        mount = self.mount(self.folder / "a.npz")
        with np.load(self.folder / "a.npz") as loaded:
            for key in ("plain", "big", "fortran"):
                shown = np.memmap(mount / f"{key}.memmap", "<f4", "r", shape=a.shape)
                self.assertTrue((shown == loaded[key]).all())

    def test_texts_and_times_have_the_dtype_of_their_entry(self):
        texts = np.array([["a", "\u6f22\u5b57"], ["", "x"]], ">U2")
        times = np.array(["2020-02-29T12:34:56", "NaT"], ">M8[s]")
        np.savez(self.folder / "a.npz", texts=texts, times=times)
        mount = self.mount(self.folder / "a.npz")
        for key, array in (("texts", texts), ("times", times)):
            dtype = view.entries(mount.path)[key]["foreign_dtype"].removeprefix("numpy.")
            shown = np.memmap(mount / f"{key}.memmap", dtype, "r", shape=array.shape)
            np.testing.assert_array_equal(shown, array)

    def test_records_have_the_dtype_of_their_entry(self):
        records = np.array([(1, 0.5, (3, 4)), (2, 1.5, (5, 6))], np.dtype(RECORDS[0], align=True))
        np.save(self.folder / "a.npy", records)
        mount = self.mount(self.folder / "a.npy")
        descr = [tuple(field) for field in view.entries(mount.path)["tensor"]["numpy_dtype"]]
        dtype = np.lib.format.descr_to_dtype(descr)
        shown = np.memmap(mount / "tensor.memmap", dtype, "r")
        self.assertTrue((shown == records).all())

    def test_a_large_array_in_fortran_order_is_gathered(self):
        a = np.asfortranarray(np.random.default_rng(0).random((3000, 700)))
        np.save(self.folder / "a.npy", a)
        mount = self.mount(self.folder / "a.npy")
        self.assertEqual(ckptfs.read(mount / "tensor.memmap"), np.ascontiguousarray(a).tobytes())

    def test_equal_keys_of_a_sparse_matrix_are_values_of_their_own(self):
        mount = self.mount(FOLDER / "scipy_csr.npz")
        data = np.fromfile(mount / "data.memmap", "<f8")
        indices = np.fromfile(mount / "indices.memmap", "<i4")
        self.assertEqual((data.tolist(), indices.tolist()), ([1, 2, 3], [1, 0, 2]))


class Theirs(WithNumpy):
    """NumPy's own tests of the format that need more than the samples: see docs/compatibility/numpy.md."""

    def test_long_str(self):
        texts = np.array(["x" * (1 << 18) + "y"])
        np.save(self.folder / "a.npy", texts)
        mount = self.mount(self.folder / "a.npy")
        self.assertEqual(np.fromfile(mount / "tensor.memmap", texts.dtype)[0], texts[0])

    def test_roundtrip_randsize(self):
        array = np.asfortranarray(np.random.default_rng(1).random((64, 300)).astype(">f4"))
        np.savez_compressed(self.folder / "a.npz", a=array)
        mount = self.mount(self.folder / "a.npz")
        raw = array.astype("<f4").tobytes()
        rng = random.Random(2)
        for _ in range(200):
            offset = rng.randrange(len(raw))
            length = rng.randrange(1, 5000)
            self.assertEqual(ckptfs.read(mount / "a.memmap", offset, length),
                             raw[offset:offset + length])

    def test_huge_header(self):
        array = np.zeros(2, [(f"{'x' * 300}{i}", "<f4") for i in range(100)])
        np.save(self.folder / "a.npy", array)
        np.savez(self.folder / "a.npz", tensor=array)
        for name in ("a.npy", "a.npz"):
            with self.subTest(name):
                with self.assertRaises(ValueError):
                    self.load(self.folder / name)
                mount = self.mount(self.folder / name)
                self.assertShows(tensors(mount.path)["tensor"], array)

    def load(self, file):
        loaded = np.load(file)
        return loaded if isinstance(loaded, np.ndarray) else loaded["tensor"]

    def test_large_file_support(self):
        size = 5 << 30
        head = npy(header("'|u1'", f"({size},)"))
        with (self.folder / "a.npy").open("wb") as file:
            file.write(head)
            file.truncate(len(head) + size)
            file.seek(-4, 2)
            file.write(b"last")
        mount = self.mount(self.folder / "a.npy")
        self.assertEqual((mount / "tensor.memmap").stat().st_size, size)
        self.assertEqual(bytes(np.memmap(mount / "tensor.memmap", "u1", "r")[-6:]), b"\0\0last")

    def test_metadata_dtype(self):
        array = np.ones(3, np.dtype("<i4", metadata={"unit": "m"}))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy warns that it drops it.
            np.save(self.folder / "a.npy", array)
        mount = self.mount(self.folder / "a.npy")
        self.assertShows(tensors(mount.path)["tensor"], array, "<i4")


class Hostile(ckptfs.Case):
    """The cost of small and large headers."""

    def setUp(self):
        self.file = self.scratch() / "array"

    def refuse(self, data, code, pattern):
        self.file.write_bytes(data)
        found, said, _ = self.assertBounded(self.file)
        self.assertEqual(found, code, said)
        self.assertRegex(said, rf"\Ackptfs: {self.file}: {pattern}\n\Z")

    def archive(self, members, method=zipfile.ZIP_STORED):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", method) as archive:
            for name, data in members:
                archive.writestr(name, data)
        return out.getvalue()

    def test_a_header_of_gigabytes(self):
        self.refuse(b"\x93NUMPY\2\0\xff\xff\xff\xff{", CORRUPT,
                    "header at byte 12: the text needs 4294967295 bytes, but only 1 are left")

    def test_a_header_of_two_mebibytes(self):
        self.refuse(npy(" " * (2 << 20), version=(2, 0)), LIMITS,
                    "header: the text has 2097152 bytes \\(maximum 1048576\\)")

    def test_a_million_brackets(self):
        self.refuse(npy("{'descr': " + "[('a'," * 170_000, version=(2, 0)), CORRUPT,
                    "header at byte .*: more than 64 brackets are open")

    def test_a_hundred_thousand_fields(self):
        fields = "".join(f"('{i}','|u1')," for i in range(60_000))
        self.refuse(npy(header(f"[{fields}]", "(1,)"), version=(2, 0)), LIMITS,
                    "header: has more than 10000 fields")

    def test_a_name_of_a_megabyte(self):
        self.refuse(npy(header(f"[('{'x' * 1_000_000}','|u1')]", "(9,)"), version=(2, 0)), CORRUPT,
                    "has 0 bytes, but its 9 elements need 9")

    def test_an_array_that_is_not_there(self):
        self.refuse(npy(header("'<f8'", "(1000000, 1000000)")), CORRUPT,
                    "has 0 bytes, but its 1000000000000 elements need 8000000000000")

    def test_a_hundred_archived_headers_of_a_mebibyte(self):
        text = header("'|u1'", "(1,)").ljust(1 << 20)
        data = self.archive([(f"{i}.npy", npy(text, b"x", (2, 0))) for i in range(100)],
                            zipfile.ZIP_DEFLATED)
        self.refuse(data, LIMITS, "parsing needs more than .* MiB of memory, .*")

    def test_a_hundred_archived_headers_of_many_fields(self):
        fields = "".join(f"('{i:079}','|u1')," for i in range(10_000))
        member = npy(header(f"[{fields}]", "(0,)"), version=(2, 0))
        data = self.archive([(f"{i}.npy", member) for i in range(50)], zipfile.ZIP_DEFLATED)
        self.refuse(data, LIMITS, "parsing needs more than .* MiB of memory, .*")

    def test_ten_thousand_arrays_mount_in_a_second(self):
        member = npy(header("'|u1'", "(4,)"), b"abcd")
        self.file.write_bytes(self.archive([(f"layer.{i}.npy", member) for i in range(10_000)]))
        code, said, mountpoint = self.assertBounded(self.file)
        self.assertEqual((code, said), (0, ""))
        self.assertEqual(ckptfs.read(mountpoint / "layer/9999.memmap"), b"abcd")

    def test_a_name_that_leaves_the_mount(self):
        member = npy(header("'|u1'", "(4,)"), b"abcd")
        self.file.write_bytes(self.archive([("../../x.npy", member), ("/y.npy", member)]))
        mount = self.mount(self.file)
        self.assertEqual({p.name for p in mount.path.rglob("*.memmap")}
                         & {"x.memmap", "y.memmap"}, set())
        self.assertEqual(set(tensors(mount.path)), {"../../x", "/y"})

    def test_gigabytes_of_zeros_cost_what_is_read(self):
        out = io.BytesIO()
        text = npy(header("'|u1'", f"({64 << 20},)"))
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("weights.npy", text + bytes(64 << 20))
        self.file.write_bytes(out.getvalue())
        code, said, mountpoint = self.assertBounded(self.file)
        self.assertEqual((code, said), (0, ""))
        self.assertEqual((mountpoint / "weights.memmap").stat().st_size, 64 << 20)

    def test_a_file_that_shrinks_while_it_is_mounted(self):
        self.file.write_bytes(npy(header("'|u1'", "(8192,)"), bytes(8192)))
        mount = self.mount(self.file)
        with self.file.open("r+b") as file:
            file.truncate(4000)
        with self.assertRaises(OSError):
            ckptfs.read(mount / "tensor.memmap")
