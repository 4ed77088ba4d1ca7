"""ckpt: looks into checkpoints without a mount. What it prints is what a mount shows."""

import csv
import io
import json
import os
import pickle
from pathlib import Path

import ckptfs

try:
    import numpy
    import torch
except ImportError as error:
    numpy = None
    MISSING = str(error)

CKPT = os.environ.get("CKPTFS_CKPT", "")
MOST_KEY = 4000  # tensors.jsonl of a mount truncates keys that are a little longer.


def ckpt(*arguments, **options):
    return ckptfs.run(CKPT, *arguments, **options)


def samples():
    """Every sample: files, and directories that are checkpoints."""
    for top in sorted(ckptfs.SAMPLES.iterdir()):
        if top.name == "dcp":
            yield from sorted(path.parent for path in top.rglob(".metadata"))
        elif top.name == "tensordict":
            yield from sorted(path for path in top.iterdir() if path.is_dir())
        elif top.is_dir():
            yield from sorted(path for path in top.rglob("*") if path.is_file() and path.suffix != ".json")


class Samples(ckptfs.Case):
    def rows_of_mount(self, mount):
        rows = map(json.loads, ckptfs.read(mount / "tensors.jsonl").splitlines())
        return [row for row in rows if row["shape"] is not None]

    def compare(self, sample):
        """Returns the number of tensors whose bytes were compared."""
        mountpoint = self.mountpoint()
        done = self.ckptfs(sample, mountpoint)
        listed = ckpt("ls", "--json", sample)
        info = ckpt("info", "--json", sample)
        self.assertEqual((listed.returncode, info.returncode), (done.returncode,) * 2, listed.stderr)
        if done.returncode != 0:
            self.assertEqual(listed.stderr, done.stderr.replace("ckptfs: ", "ckpt: "))
            return 0
        mount = ckptfs.Mount(mountpoint, self.daemon_of(mountpoint), done.stderr)
        with mount:
            wanted, rows = self.rows_of_mount(mount), json.loads(listed.stdout)
            for row in rows + wanted:
                row["key"] = row["key"][:MOST_KEY]
            names = ("key", "dtype", "shape", "stride", "bytes", "file_offset", "storage_offset")
            self.assertEqual([[row[name] for name in names] for row in rows],
                             [[row.get(name) for name in names] for row in wanted])
            described = json.loads(info.stdout)
            self.assertEqual(described["tensors"], len(rows))
            keys = [row["key"] for row in rows]
            count = 0
            for row in wanted[:3]:
                is_large = row["bytes"] > 1 << 20
                if (keys.count(row["key"]) > 1 or len(row["key"]) == MOST_KEY or "\0" in row["key"]
                        or row["path"] is None or row.get("error") or is_large):
                    continue
                dump = ckpt("cat", "--", sample, row["key"], text=False, errors=None)
                self.assertEqual(dump.stdout, ckptfs.read(mount / row["path"]), row["key"])
                count += 1
        return count

    def test_lists_and_dumps_what_a_mount_shows(self):
        count = 0
        for sample in samples():
            with self.subTest(sample=str(sample.relative_to(ckptfs.SAMPLES))):
                count += self.compare(sample)
        self.assertGreater(count, 300)


class Output(ckptfs.Case):
    def setUp(self):
        if numpy is None:
            self.skip_avoidable(MISSING)
        self.file = self.scratch() / "model.pth"
        shared = torch.arange(6, dtype=torch.float32).reshape(2, 3)
        torch.save({"net": {"a": shared, "tied": shared, "t": shared.T, "half": torch.ones(2, 2).half(),
                            "e": torch.empty(0, 3)},
                    "epoch": 3, 'q,"': torch.tensor(7)}, self.file)

    def lines(self, *arguments):
        done = ckpt(*arguments)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.splitlines()

    def test_ls(self):
        self.assertEqual(self.lines("ls", self.file), [
            "key       dtype    shape   bytes",
            "net.a     float32  [2, 3]     24",
            "net.tied  float32  [2, 3]     24",
            "net.t     float32  [3, 2]     24",
            "net.half  float16  [2, 2]      8",
            "net.e     float32  [0, 3]      0",
            'q,"       int64    []          8'])
        self.assertEqual([line.split()[0] for line in self.lines("ls", self.file, "net.t*")],
                         ["key", "net.tied", "net.t"])
        self.assertEqual([line.split()[0] for line in self.lines("ls", "-S", self.file)][-1], "net.e")
        tied = next(line for line in self.lines("ls", "-l", self.file) if line.startswith("net.tied"))
        self.assertTrue(tied.endswith("= net.a"), tied)

    def test_ls_tree(self):
        self.assertEqual(self.lines("ls", "--tree", self.file), [
            "module  tensors  parameters  bytes",
            "(all)         6          17   64 B",
            "  net         5          16   56 B"])

    def test_ls_csv(self):
        rows = list(csv.reader(io.StringIO(ckpt("ls", "--csv", self.file).stdout)))
        self.assertEqual(rows[0], ["key", "dtype", "shape", "bytes"])
        self.assertEqual(rows[-1], ['q,"', "int64", "[]", "8"])

    def test_info(self):
        text = ckpt("info", self.file).stdout
        for part in "tied         net.tied = net.a", "  epoch = 3", "parameters   17":
            self.assertIn(part, text)
        facts = json.loads(ckpt("info", "--json", self.file).stdout)
        self.assertEqual((facts["parameters"], facts["values"], facts["ties"]),
                         (17, {"epoch": 3}, [["net.a", "net.tied"]]))
        self.assertEqual(facts["dtypes"]["float16"], {"tensors": 1, "parameters": 4, "bytes": 8})

    def test_keys_of_a_terminal(self):
        file = self.file.with_name("escape.pth")
        torch.save({"\x1b[31m\n": torch.ones(1)}, file)
        for arguments in ("ls", file), ("ls", "--tree", file), ("info", file):
            self.assertNotIn("\x1b", ckpt(*arguments).stdout)


class Slices(ckptfs.Case):
    def setUp(self):
        if numpy is None:
            self.skip_avoidable(MISSING)
        self.file = self.scratch() / "model.pth"
        self.array = numpy.arange(4 * 5 * 6, dtype=numpy.int32).reshape(4, 5, 6)
        torch.save({"x": torch.from_numpy(self.array), "x[0]": torch.ones(2), "s": torch.tensor(5.0)},
                   self.file)

    def cat(self, key, *arguments):
        done = ckpt("cat", *arguments, "--", self.file, key, text=False, errors=None)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        return done.stdout

    def test_as_numpy(self):
        for text in ("1", "-1", "1:3", ":, 2", "..., -1", "::2, ::3", "1, ..., 4", "5:2", "-3:-1, 1:100, 5",
                     "...", "0, 1, 2", "3:4, :, ::5", "-100:2", "2:, 4:, 5:"):
            index = eval(f"numpy.s_[{text}]")  # The grammar of NumPy itself.
            wanted = numpy.ascontiguousarray(self.array[index])
            self.assertEqual(self.cat(f"x[{text}]"), wanted.tobytes(), text)
            found = numpy.load(io.BytesIO(self.cat(f"x[{text}]", "--npy")))
            self.assertEqual(found.shape, self.array[index].shape, text)
            numpy.testing.assert_array_equal(found, self.array[index])

    def test_keys_with_brackets(self):
        self.assertEqual(self.cat("x[0]"), numpy.ones(2, numpy.float32).tobytes())
        self.assertEqual(self.cat("s[...]"), numpy.float32(5).tobytes())
        self.assertEqual(self.cat("s[]"), numpy.float32(5).tobytes())

    def test_refused(self):
        for key, sentence in (
                ("x[4]", "slice '4': index is out of bounds for axis of size 4"),
                ("x[::-1]", "slice '::-1': the step must be positive"),
                ("x[a]", "slice 'a': expected an integer, a slice or ..., found 'a'"),
                ("x[0,0,0,0]", "slice '0,0,0,0': has 4 indices, but the tensor has 3 dimensions"),
                ("x[...,...]", "slice '...,...': has more than one ...")):
            done = ckpt("cat", self.file, key)
            self.assertEqual((done.returncode, done.stdout, done.stderr.replace('"', "'")),
                             (ckptfs.USAGE, "", f"ckpt: {sentence}\n"))


class Errors(ckptfs.Case):
    def assertSays(self, code, pattern, *arguments, **options):
        done = ckpt(*arguments, **options)
        self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (code, "", 1), done.stderr)
        self.assertRegex(done.stderr, rf"(?s)\Ackpt: {pattern}\n\Z")

    def test_exit_codes(self):
        demo = ckptfs.SAMPLES / "demo.pth"
        text = self.scratch() / "text"
        text.write_text("no checkpoint\n")
        short = text.with_name("short.pth")
        short.write_bytes(demo.read_bytes()[:1000])
        self.assertSays(ckptfs.USAGE, ".*; see ckpt --help")
        self.assertSays(ckptfs.USAGE, ".*; see ckpt --help", "ls")
        self.assertSays(ckptfs.USAGE, ".*", "ls", "-o", "no_such_option", demo)
        self.assertSays(ckptfs.SOURCE, ".*No such file.*", "ls", text.with_name("none"))
        self.assertSays(ckptfs.FORMAT, f"{text}: .*", "ls", text)
        self.assertSays(ckptfs.CORRUPT, f"{short}: .*", "info", short)
        self.assertSays(ckptfs.SOURCE, ".*has no tensor.*", "cat", demo, "none")
        self.assertSays(ckptfs.SOURCE, ".*no tensor matches.*", "ls", demo, "none*")

    def test_full_disk(self):
        with open("/dev/full", "wb") as full:
            done = ckpt("ls", ckptfs.SAMPLES / "demo.pth", capture_output=False, stdout=full,
                        stderr=-1)
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stderr, "ckpt: cannot write to standard output: No space left on device\n")

    def test_help(self):
        done = ckpt("--help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for command in "ls", "info", "cat", "show", "stat", "diff", "verify", "scan":
            self.assertIn(f"  {command} ", done.stdout)
            self.assertEqual(ckpt(command, "--help").returncode, 0)
        self.assertEqual(ckpt("--version").stdout.split()[0], "ckpt")

    def test_hostile_files_are_refused_as_by_mounts(self):
        for name in sorted(Path(ckptfs.TESTS / "corpus" / "pickle").iterdir())[:50]:
            done = self.ckptfs(name, self.mountpoint())
            listed = ckpt("ls", "--json", name)
            self.assertEqual(listed.returncode, done.returncode, name)


class Values(ckptfs.Case):
    """show, stat and diff, compared with NumPy and torch."""

    def setUp(self):
        if numpy is None:
            self.skip_avoidable(MISSING)
        self.directory = self.scratch()
        self.random = numpy.random.default_rng(1)

    def save(self, name, tensors):
        file = self.directory / name
        torch.save(tensors, file)
        return file

    def array(self, dtype, shape, scale):
        """A random array, sometimes with NaN and infinities."""
        values = self.random.standard_normal(shape) * scale
        if dtype == "?":
            return numpy.asarray(values > 0)
        if dtype[0] in "iu":
            return numpy.asarray(self.random.integers(0, 100, shape)).astype(dtype)
        if dtype[0] == "c":
            values = values + 1j * self.random.standard_normal(shape)
        with numpy.errstate(over="ignore"):
            array = numpy.asarray(values).astype(dtype)
        if dtype[0] == "f" and array.size > 4 and self.random.random() < 0.3:
            array.flat[1], array.flat[3] = numpy.nan, -numpy.inf
        return array

    def test_show_prints_as_numpy(self):
        arrays = {}
        for dtype in "f4 f8 f2 i1 u1 i4 i8 ? c8 c16".split():
            for shape in (), (1,), (3, 4), (30,), (2, 3, 4), (1000,), (1001,), (40, 50), (7, 8, 30), (0, 3):
                for scale in (1, 1e-5, 1e10) if dtype[0] == "f" else (1,):
                    arrays[f"t{len(arrays)}"] = self.array(dtype, shape, scale)
        file = self.save("arrays.pth", {key: torch.from_numpy(array.copy()) for key, array in arrays.items()})
        for key, array in arrays.items():
            done = ckpt("show", file, key)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            with numpy.errstate(over="ignore"):
                wanted = numpy.array2string(array)
            self.assertEqual(done.stdout.split("\n", 1)[1][:len(wanted) + 1], wanted + "\n", array.dtype)

    def test_show_of_a_slice(self):
        file = self.save("x.pth", {"x": torch.arange(12.).reshape(3, 4)})
        self.assertEqual(ckpt("show", file, "x[1:, ::2]").stdout.splitlines()[1:4], [
            "[[ 4.  6.]", " [ 8. 10.]]", "min 4  max 10  mean 7  deviation 2.23607"])

    def test_show_refuses_what_is_no_number(self):
        file = self.save("q.pth", {"x": torch.zeros(4, dtype=torch.uint8).view(torch.bits8)})
        done = ckpt("show", file, "x")
        self.assertEqual((done.returncode, done.stderr),
                         (ckptfs.FORMAT, "ckpt: 'x': elements of bits8 are not shown\n"))

    def stat(self, file, *options):
        done = ckpt("stat", "--json", *options, file)
        return done.returncode, {row["key"]: row for row in json.loads(done.stdout)}

    def test_stat_of_all_dtypes(self):
        tensors = {}
        for name in ("float32 float64 float16 bfloat16 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz "
                     "uint8 int8 int16 int32 int64 uint16 uint32 uint64 bool").split():
            dtype = getattr(torch, name)
            for count in 0, 1, 7, 5000, 300001:
                values = torch.randn(count) * 10
                if not dtype.is_floating_point:
                    values = values.abs()
                elif count > 6:
                    values[3], values[5], values[6] = float("nan"), float("-inf"), 0
                tensors[f"{name} {count}"] = values.to(dtype)
        for name in "float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu".split():
            tensors[name] = torch.arange(256, dtype=torch.uint8).view(getattr(torch, name))
        tensors["float16"] = torch.arange(65536, dtype=torch.int32).to(torch.uint16).view(torch.float16)
        tensors["transposed"] = torch.randn(50, 60).T
        tensors["extremes"] = torch.tensor([-2**63, 2**63 - 1])
        status, rows = self.stat(self.save("all.pth", tensors))
        self.assertEqual(status, 0)
        for key, tensor in tensors.items():
            row = rows[key]
            is_narrow = tensor.is_floating_point() and tensor.itemsize <= 2
            array = (tensor.float() if is_narrow else tensor).numpy()
            finite = array[numpy.isfinite(array)]
            self.assertEqual((row["count"], row["nans"], row["infinities"], row["zeros"]),
                             (array.size, numpy.isnan(array).sum(), numpy.isinf(array).sum(), (finite == 0).sum()), key)
            if finite.size == 0:
                self.assertIsNone(row["min"], key)
                continue
            self.assertEqual((row["min"], row["max"]), (finite.min().item(), finite.max().item()), key)
            finite = finite.astype("f8")
            numpy.testing.assert_allclose((row["mean"], row["deviation"]), (finite.mean(), finite.std()),
                                          rtol=1e-9, atol=1e-9, err_msg=key)

    def test_stat_check(self):
        file = self.save("x.pth", {"a": torch.tensor([1., float("nan")]), "b": torch.ones(2)})
        self.assertEqual([ckpt("stat", "--check", file, *pattern).returncode for pattern in ([], ["b"])], [1, 0])
        self.assertEqual(ckpt("stat", file).returncode, 0)

    def test_diff(self):
        first = {name: torch.randn(1000).to(getattr(torch, name))
                 for name in ("float32", "float64", "float16", "bfloat16", "float8_e4m3fn")}
        second = {}
        for name, tensor in first.items():
            values = tensor.double().clone()
            values[::3] += 0.5
            second[name] = values.to(tensor.dtype)
        unchanged = {"nan": torch.tensor([float("nan"), 1]), "t": torch.randn(5, 6).T}
        done = ckpt("diff", "--json", self.save("a.pth", first | unchanged), self.save("b.pth", second | unchanged))
        rows = {row["key"]: row for row in json.loads(done.stdout)}
        self.assertEqual((done.returncode, set(rows)), (1, set(first)))
        for key, row in rows.items():
            a, b = first[key].double(), second[key].double()
            self.assertEqual((row["change"], row["elements"], row["differing"]), ("values", 1000, (a != b).sum().item()))
            larger = torch.maximum(a.abs(), b.abs())
            relative = ((a - b).abs() / larger)[larger > 0].max().item()
            numpy.testing.assert_allclose((row["max_absolute"], row["max_relative"], row["cosine"]),
                                          ((a - b).abs().max(), relative, a @ b / (a.norm() * b.norm())), rtol=1e-9)

    def test_diff_of_headers(self):
        a = self.save("a.pth", {"same": torch.ones(2), "shape": torch.ones(3), "gone": torch.ones(1),
                                "half": torch.ones(2).half(), "wide": torch.tensor([2**62])})
        b = self.save("b.pth", {"same": torch.ones(2), "shape": torch.ones(3, 1), "new": torch.ones(1),
                                "half": torch.ones(2), "wide": torch.tensor([2**62 + 1])})
        changes = {row["key"]: (row["change"], row.get("differing")) for row in
                   json.loads(ckpt("diff", "--json", a, b).stdout)}
        self.assertEqual(changes, {"shape": ("shape", None), "gone": ("only in the first", None),
                                   "new": ("only in the second", None), "half": ("dtype", 0), "wide": ("values", 1)})

    def test_diff_ends_as_diff(self):
        a = self.save("a.pth", {"model": {"x": torch.ones(2)}})
        b = self.save("b.pth", {"x": torch.ones(2) + 0.25})
        for status, arguments in ((0, (a, a)), (1, (a, b)), (1, (a, b, "--map", r"s/^model\.//")),
                                  (0, (a, b, "--map", r"s/^model\.//", "--tolerance", "0.25")),
                                  (2, (a, self.directory / "none")), (2, (a, b, "--map", "s/(/x/")), (2, (a,))):
            self.assertEqual(ckpt("diff", *arguments).returncode, status, arguments)


class Hashes(ckptfs.Case):
    def setUp(self):
        if numpy is None:
            self.skip_avoidable(MISSING)
        self.file = self.scratch() / "model.pth"
        self.shared = torch.randn(1000)
        torch.save({"a": self.shared, "tied": self.shared, "b": torch.ones(5000), "e": torch.empty(0)}, self.file)

    def corrupt(self, value, replacement):
        data = self.file.read_bytes()
        self.assertEqual(data.count(value), 1)
        self.file.write_bytes(data.replace(value, replacement))

    def test_right(self):
        done = ckpt("verify", self.file)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "2 right, 0 wrong, 0 without a hash\n", ""))

    def test_wrong(self):
        part = self.shared.numpy().tobytes()[100:140]
        self.corrupt(part, bytes(40))
        done = ckpt("verify", self.file)
        self.assertEqual((done.returncode, done.stderr), (ckptfs.CORRUPT, ""))
        *wrong, counts = done.stdout.splitlines()
        self.assertEqual((len(wrong), counts), (1, "1 right, 1 wrong, 0 without a hash"))
        self.assertRegex(wrong[0], "CRC32")
        facts = json.loads(ckpt("verify", "--json", self.file).stdout)
        self.assertEqual((facts["right"], facts["wrong"], facts["mismatches"]), (1, 1, wrong))

    def test_tensors_without_a_hash_are_counted(self):
        from safetensors.torch import save_file
        file = self.file.with_name("x.safetensors")
        save_file({"a": self.shared, "b": torch.ones(2)}, file)
        self.assertEqual(ckpt("verify", file).stdout, "0 right, 0 wrong, 2 without a hash\n")


class Call:
    """Pickled as a call of a function."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


class Scan(ckptfs.Case):
    def setUp(self):
        if numpy is None:
            self.skip_avoidable(MISSING)
        self.folder = self.scratch()
        self.marker = self.folder / "executed"

    def save(self, name, value):
        file = self.folder / name
        file.parent.mkdir(exist_ok=True)
        torch.save(value, file)
        return file

    def scan(self, *arguments):
        done = ckpt("scan", *arguments)
        self.assertEqual(done.stderr, "")
        self.assertFalse(self.marker.exists())
        return done.returncode, done.stdout.splitlines()

    def test_harmless(self):
        file = self.save("model.pth", {"w": torch.ones(2)})
        (self.folder / "README.md").write_text("text")
        self.assertEqual(self.scan(file), (0, ["1 checkpoints scanned, 0 with findings, 0 other files"]))
        self.assertEqual(self.scan(self.folder), (0, ["1 checkpoints scanned, 0 with findings, 1 other files"]))

    def test_code(self):
        call = Call(os.system, f"touch {self.marker}")
        files = [self.save("sub/zip.pth", {"w": torch.ones(2), "x": call}), self.folder / "plain.pkl"]
        files[1].write_bytes(pickle.dumps([call]))
        for file in files:
            self.assertEqual(self.scan(file), (1, [f"{file}: dangerous: posix.system",
                                                   "1 checkpoints scanned, 1 with findings, 0 other files"]))
        self.assertEqual(self.scan(self.folder)[0], 1)

    def test_refused(self):
        file = self.save("model.pth", {"w": torch.ones(2), "x": numpy.arange(3)})
        status, lines = self.scan(file)
        self.assertEqual(status, 1)
        self.assertIn(f"{file}: refused by weights_only: numpy.ndarray", lines)

    def test_a_broken_pickle_is_a_finding(self):
        """The unpickler runs what is before the corrupt byte."""
        data = pickle.dumps(Call(os.system, f"touch {self.marker}"))
        for end in b"", b"\xff.":
            file = self.folder / "broken.pkl"
            file.write_bytes(data[:-1] + end)
            status, lines = self.scan(file)
            self.assertEqual((status, len(lines)), (1, 2))
            self.assertRegex(lines[0], "cannot be read$")

    def test_sarif(self):
        file = self.folder / 'name "x".pkl'
        file.write_bytes(pickle.dumps(Call(os.system, "true")))
        (run,) = json.loads(ckpt("scan", "--sarif", self.folder).stdout)["runs"]
        (result,) = run["results"]
        self.assertEqual((result["ruleId"], result["level"]), ("dangerous-global", "error"))
        self.assertEqual(result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"], str(file))
        self.assertIn(result["ruleId"], [rule["id"] for rule in run["tool"]["driver"]["rules"]])
