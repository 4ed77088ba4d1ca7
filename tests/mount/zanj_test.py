"""The files of ZANJ, of every version: what was saved is on the mount, bit for bit."""

import hashlib
import json
import math
import zipfile
from pathlib import Path

import ckptfs
import view

try:
    import numpy
except ImportError:
    numpy = None

SAMPLES = ckptfs.SAMPLES / "zanj"
META = "__zanj_meta__"


def plain(x):
    """A value as meta.json has it, where JSON itself is not enough."""
    if isinstance(x, dict):
        return x["$float"] if set(x) == {"$float"} else {str(k): plain(v) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return [plain(v) for v in x]
    if isinstance(x, float) and not math.isfinite(x):
        return "NaN" if math.isnan(x) else "Infinity" if x > 0 else "-Infinity"
    if isinstance(x, int) and not -2**63 <= x < 2**64:
        return str(x)
    return x


def flat(x, keys=()):
    """Every scalar in a value, by the keys on the way to it joined by dots."""
    if isinstance(x, dict) and x:
        return {k: v for key, part in x.items() for k, v in flat(part, (*keys, str(key))).items()}
    if isinstance(x, list) and x:
        return {k: v for i, part in enumerate(x) for k, v in flat(part, (*keys, str(i))).items()}
    return {".".join(keys): x}


class Look:
    """The contents of a mount: leaves of tensors, scalars, tables, and the recorded types."""

    def __init__(self, mount):
        self.tensors, self.values, self.tables, self.types = {}, {}, {}, {}
        self.entries, self.members = {}, {}
        self.places = view.places(mount)
        for kind, keys, what in view.walk(mount):
            dotted = ".".join(keys)
            if keys == (META,):
                continue
            if kind == "tensor":
                assert dotted not in self.tensors, dotted
                self.tensors[dotted] = what.leaf()
                self.entries[dotted] = what.entry
                self.members[dotted] = self.places[what.path]["member"]
            elif kind == "value":
                self.values |= flat(what, keys)
            else:
                self.tables[dotted] = what
                is_frame = what.entry["python_type"].endswith("DataFrame")
                if is_frame or (what.path.parent / view.encode(keys[-1])).is_dir():
                    continue
                lines = ckptfs.read(what.path).decode().splitlines()
                self.values |= flat(plain([json.loads(line) for line in lines]), keys)
        self.read_types(Path(mount), ())

    def read_types(self, directory, prefix):
        for name, entry in view.entries(directory).items():
            keys = (*prefix, view.original(name, entry))
            if "python_type" in entry:
                self.types[".".join(keys)] = entry["python_type"]
            for pointer, inner in entry.get("python_types", {}).items():
                steps = (s.replace("~1", "/").replace("~0", "~") for s in pointer.split("/")[1:])
                self.types[".".join((*keys, *steps))] = inner
            below = directory / view.encode(name)
            if entry.get("type") == "TensorDict":
                self.read_types(below if below.is_dir() else directory / name, keys)


def dotted(path):
    return ".".join(map(str, path))


class Samples(ckptfs.Case):
    def check_members(self, file, look):
        """Tables are what the archive has, byte by byte."""
        with zipfile.ZipFile(file) as archive:
            for table in look.tables.values():
                member = look.places[table.path]["member"]
                if member is not None:
                    self.assertEqual(ckptfs.read(table.path), archive.read(member))

    def check_arrays(self, expected, look):
        found = dict(look.tensors)
        for array in expected["arrays"]:
            keys = dotted(array["path"]) if array["path"] else "tensor"
            leaf, entry = found.pop(keys), look.entries[keys]
            self.assertEqual(leaf.sha256, array["sha256"], keys)
            self.assertEqual(entry.get("python_type"),
                             "numpy.ndarray" if array["kind"] == "numpy" else None)
            self.assertEqual(look.members[keys] is not None, array["stored"] == "member")
            if array["dtype"] is None:
                self.assertEqual(list(leaf.shape[:-1]), array["shape"])
                self.assertEqual(json.dumps(entry["numpy_dtype"]), json.dumps(array["numpy_dtype"]))
            else:
                self.assertEqual((leaf.dtype, list(leaf.shape)),
                                 ("torch." + array["dtype"], array["shape"]), keys)
        self.assertEqual(found, {})

    def check_values(self, name, expected, look):
        found = dict(look.values)
        for keys in expected.get("fallback_objects", ()):
            self.assertRegex(found.pop(dotted(keys)), r"\Anp\.\w+\(.*\)\Z")
        if name == "model.zanj":  # This one reports three members.
            told = ("meta.class_name", "meta.module_name", "meta.num_params")
            found = {k: v for k, v in found.items() if not k.startswith("meta.") or k in told}
        wanted = {}
        for value in expected["values"]:
            wanted |= flat(plain(value["value"]), tuple(map(str, value["path"])) or ("value",))
        sets = [dotted(t["path"]) for t in expected["tags"] if t["tag"] in ("set", "frozenset")]
        for keys in sets:
            self.assertEqual(sorted(v for k, v in found.items() if k.startswith(keys + ".")),
                             sorted(v for k, v in wanted.items() if k.startswith(keys + ".")))
        of_sets = tuple(keys + "." for keys in sets)
        self.assertEqual({k: v for k, v in found.items() if not k.startswith(of_sets)},
                         {k: v for k, v in wanted.items() if not k.startswith(of_sets)})

    def check_tables(self, expected, look):
        frames = {k: t for k, t in look.tables.items() if t.entry["python_type"].endswith("Frame")}
        self.assertEqual(set(frames), {dotted(t["path"]) for t in expected["tables"]})
        for wanted in expected["tables"]:
            table = frames[dotted(wanted["path"])]
            digest = hashlib.sha256(ckptfs.read(table.path)).hexdigest()
            self.assertEqual(
                (table.entry["python_type"], table.entry["columns"], table.entry["rows"], digest),
                (wanted["kind"] + ".DataFrame", wanted["columns"], wanted["n_rows"],
                 wanted["jsonl_sha256"]))

    def test_samples_of_zanj_0_6_hold_what_was_saved(self):
        for name, expected in json.loads((SAMPLES / "zanj-0.6" / "expected.json").read_text()).items():
            with self.subTest(name):
                file = SAMPLES / "zanj-0.6" / name
                mount = self.mount(file)
                look = Look(mount.path)
                self.check_arrays(expected, look)
                self.check_values(name, expected, look)
                self.check_tables(expected, look)
                self.check_members(file, look)
                root = ckptfs.meta(mount.path)["_ckptfs"]
                types = look.types | {"": root.get("python_type")}
                for tag in expected["tags"]:
                    self.assertEqual(types[dotted(tag["path"])], tag["tag"])
                mount.unmount()

    def test_samples_of_older_writers_hold_what_python_finds_in_them(self):
        if numpy is None:
            self.skip_avoidable("there is no numpy")
        for file in sorted((SAMPLES / "zanj-older").glob("*.zanj")):
            with self.subTest(file.name):
                mount = self.mount(file)
                look = Look(mount.path)
                reader = Reader(file)
                self.assertEqual(look.tensors, reader.tensors)
                self.assertEqual(look.values, reader.values)
                self.check_members(file, look)
                mount.unmount()

    def test_the_metadata_are_there_as_one_line(self):
        with zipfile.ZipFile(SAMPLES / "zanj-0.6" / "stored.zanj") as archive:
            wanted = json.loads(archive.read("__zanj_meta__.json"))
        mount = self.mount(SAMPLES / "zanj-0.6" / "stored.zanj")
        lines = ckptfs.read(mount / "__zanj_meta__.jsonl")
        self.assertEqual(lines.count(b"\n"), 1)
        self.assertEqual(json.loads(lines), wanted)
        told = ckptfs.meta(mount.path)["_ckptfs"]
        self.assertEqual(told["zanj_cfg"], {k: v for k, v in wanted["zanj_cfg"].items()
                                            if not k.endswith("handlers")})
        self.assertEqual(told["timestamp"], wanted["timestamp"])

    def test_lists_of_the_metadata_that_are_outside_are_in_their_line(self):
        file = SAMPLES / "zanj-0.6" / "meta_lists_outside.zanj"
        mount = self.mount(file)
        meta = json.loads(ckptfs.read(mount / "__zanj_meta__.jsonl"))
        codes = meta["zanj_cfg"]["serialization_handlers"]["numpy.ndarray:external"]["check"]
        self.assertEqual(codes["code"], ["(line)"] * 4)

    def test_stored_members_are_ranges_of_the_file(self):
        file = SAMPLES / "zanj-0.6" / "stored.zanj"
        mount = self.mount(file)
        offset = view.places(mount.path)[mount / "a.memmap"]["file_offset"]
        self.assertEqual(ckptfs.read(mount / "a.memmap"),
                         file.read_bytes()[offset:offset + 300 * 4])


class Reader:
    """The arrays and values of a file, read with json and numpy alone."""

    def __init__(self, file):
        self.tensors, self.values = {}, {}
        with zipfile.ZipFile(file) as self.archive:
            data = json.loads(self.archive.read("__zanj__.json"))
            tag = data.get("__muutils_format__", data.get("__format__")) if isinstance(
                data, dict) else None
            is_leaf = tag is not None and tag.endswith(":external")
            self.walk(data, (("tensor",) if "numpy" in tag else ("value",)) if is_leaf else ())

    def rows(self, name):
        return [json.loads(line) for line in self.archive.read(name).splitlines()]

    def add(self, array, keys):
        array = numpy.ascontiguousarray(array).reshape(array.shape)
        array = array.astype(array.dtype.newbyteorder("<"))
        self.tensors[".".join(keys)] = view.Leaf("torch." + array.dtype.name, array.shape,
                                                 hashlib.sha256(array.tobytes()).hexdigest())

    def inline(self, x, tag):
        data, dtype = x["data"], numpy.dtype(x["dtype"].removeprefix("torch."))
        if isinstance(data, dict):
            data = self.rows(data["$ref"])
        if tag.endswith("hex_meta"):
            array = numpy.frombuffer(bytes.fromhex(data), dtype)
        elif tag.endswith("b64_meta"):
            import base64
            array = numpy.frombuffer(base64.b64decode(data), dtype)
        else:
            array = numpy.array(data, dtype)
        return array.reshape(x["shape"])

    def walk(self, x, keys):
        if isinstance(x, list) and x:
            for i, part in enumerate(x):
                self.walk(part, (*keys, str(i)))
            return
        if not isinstance(x, dict) or not x:
            self.values |= flat(plain(x), keys)
            return
        tag = x.get("__muutils_format__", x.get("__format__", ""))
        if tag.startswith(("numpy", "torch.", "array")) or tag == "external:npy":
            if "$ref" in x:
                self.add(numpy.load(self.archive.open(x["$ref"])), keys)
            else:
                self.add(self.inline(x, tag), keys)
        elif "DataFrame" in tag:
            pass
        elif tag.endswith("external") or tag == "external:jsonl":
            if "columns" not in x or not isinstance(x["columns"], list):
                self.walk(self.rows(x["$ref"]), keys)
        elif tag in ("set", "frozenset"):
            self.walk(x["data"], keys)
        else:
            for key, part in x.items():
                if key not in ("__muutils_format__", "__format__"):
                    self.walk(part, (*keys, key))


if __name__ == "__main__":
    import unittest
    unittest.main()
