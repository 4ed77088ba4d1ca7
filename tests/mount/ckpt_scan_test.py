"""ckpt scan: what loading would execute, wherever it hides."""

import gzip
import io
import json
import os
import pickle
import tarfile
import zipfile
import zlib

import ckptfs
import s3_case
from ckpt_case import ckpt

try:
    import joblib
    import numpy
    import torch
    from picklescan import scanner
except ImportError as error:
    joblib = None
    MISSING = str(error)

NOTHING = "1 checkpoints scanned, 0 with findings, 0 other files"

class Call:
    """Pickled as a call of a function."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def zipped(**members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def tarred(**members):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def saved(save, value, **options):
    buffer = io.BytesIO()
    save(value, buffer, **options)
    return buffer.getvalue()


class ScanCase(ckptfs.Case):
    def setUp(self):
        if joblib is None:
            self.skip_avoidable(MISSING)
        self.folder = self.scratch()
        self.marker = self.folder / "executed"
        self.call = Call(os.system, f"touch {self.marker}")
        self.evil = pickle.dumps(self.call)
        self.evil_command = f"touch {self.marker}".encode()
        self.found = f"posix.system('touch {self.marker}')"

    def write(self, name, data):
        file = self.folder / name
        file.write_bytes(data)
        return file

    def scan(self, *arguments):
        done = ckpt("scan", *arguments)
        self.assertEqual(done.stderr, "")
        self.assertFalse(self.marker.exists())
        return done.returncode, done.stdout.splitlines()


class Hidden(ScanCase):
    """What a real unpickler would run is found."""

    def assertFound(self, name, data, *lines, runs=None):
        """The file with `data` has these findings. `runs(data)` shows that it harms Python."""
        if runs:
            try:
                runs(data)
            except Exception:
                pass
            self.assertTrue(self.marker.exists(), "harms nobody")
            self.marker.unlink()
        file = self.write(name, data)
        status, found = self.scan(file)
        self.assertEqual((status, found[:-1]), (1, [f"{file}: {line}" for line in lines]))
        file.unlink()

    def test_broken_pickles(self):
        """The unpickler runs what is before the corrupt byte."""
        found = f"dangerous: {self.found}"
        evil = pickle.dumps(self.call, 2)[:-1]  # Later protocols have frames, which must be whole.
        end = len(evil)
        for after, message in [(b"", f"unexpected end of pickle at byte {end}: STOP is missing"),
                               (b"\xff.", f"unknown opcode 0xff at byte {end}"),
                               (b"\x82\1.", f"EXT1 at byte {end}: unsupported opcode: "
                                            "its operand is not in the pickle")]:
            self.assertFound("x.pkl", evil + after, found, f"{message}: cannot be read", runs=pickle.loads)

    def test_several_pickles_in_one_file(self):
        def load_two(data):
            file = io.BytesIO(data)
            pickle.load(file), pickle.load(file)
        self.assertFound("x.pkl", pickle.dumps({}) + self.evil, f"dangerous: {self.found}", runs=load_two)

    def test_calls_after_the_first_are_counted(self):
        """The first one may be harmless."""
        data = b"".join(b"cos\nsystem\n(S'" + command + b"'\ntR0" for command in (b"true", b"true", self.evil_command))
        self.assertFound("x.pkl", data + b"N.", "dangerous: os.system('true'), and 2 more", runs=pickle.loads)
        file = self.write("x.pkl", data + b"N.")
        finding, = json.loads(ckpt("scan", "--json", file).stdout)[0]["findings"]
        self.assertEqual((finding["call"], finding["calls"]), ("os.system('true')", 3))

    def test_arguments_are_escaped_and_cut(self):
        long = "echo \x1b[31m\n" + "A" * 5000
        file = self.write("x.pkl", pickle.dumps(Call(os.system, long)))
        call = f"posix.system({long!r})"[:200] + "..."
        self.assertEqual(self.scan(file)[1][0], f"{file}: dangerous: {call}")
        self.assertEqual(json.loads(ckpt("scan", "--json", file).stdout)[0]["findings"][0]["call"], call)
        result, = json.loads(ckpt("scan", "--sarif", file).stdout)["runs"][0]["results"]
        self.assertEqual(result["message"]["text"], f"loading calls {call}")

    def test_results_that_are_dropped(self):
        data = self.evil[:-1] + b"0N."
        self.assertFound("x.pkl", data, f"dangerous: {self.found}", runs=pickle.loads)

    def test_any_name_and_any_protocol(self):
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            for name in "x", "x.bin", "x.txt", "x.safetensors":
                self.assertFound(name, pickle.dumps(self.call, protocol), f"dangerous: {self.found}")

    def test_numbers_that_only_python_reads(self):
        for number in b" 1", b"0" * 70_000:
            data = b"I" + number + b"\n0" + pickle.dumps(self.call, 0)
            pickle.loads(data)
            self.marker.unlink()
            status, lines = self.scan(self.write("model.bin", data))
            self.assertEqual(status, 1, number[:10])
            self.assertRegex(lines[0], "cannot be read|dangerous")

    def test_containers_of_torch(self):
        value = {"w": torch.ones(2), "x": self.call}
        legacy = saved(torch.save, value, _use_new_zipfile_serialization=False)
        self.assertFound("x.pth", legacy, f"dangerous: {self.found}")
        self.assertFound("x.pth", saved(torch.save, value), f"dangerous: archive/data.pkl: {self.found}")

    def test_members_of_archives(self):
        inner = saved(torch.save, {"x": self.call})
        for pack in zipped, tarred:
            self.assertFound("x.archive", pack(readme=b"text", innocent=self.evil), f"dangerous: innocent: {self.found}")
            self.assertFound("x", pack(a=pack(b=inner)), f"dangerous: a/b/archive/data.pkl: {self.found}")
        packed = zipped(innocent=self.evil[:-1])
        status, lines = self.scan(self.write("x.zip", packed))
        self.assertEqual((status, len(lines)), (1, 2))

    def test_names_of_members_that_are_pickles(self):
        name = pickle.dumps(self.call, 0).decode()
        self.assertFound("x.tar", tarred(**{name: b"x"}), f"dangerous: {self.found}", runs=pickle.loads)

    def test_a_pickle_in_the_header_of_another_format(self):
        """GGUF begins with the opcode of a float."""
        data = b"GGUF\3\0\0\0\1" + pickle.dumps(self.call, 0)
        self.assertFound("x.gguf", data, f"dangerous: {self.found}", runs=pickle.loads)

    def test_an_archive_behind_something_else(self):
        self.assertFound("x.jpg", b"\xff\xd8\xff" + zipped(x=self.evil), f"dangerous: x: {self.found}")

    def test_gzip(self):
        self.assertFound("x.pkl.gz", gzip.compress(self.evil), "dangerous: posix.system")
        file = self.write("x.pkl.gz", gzip.compress(self.evil[:-1] + b"\x82\1."))
        self.assertEqual(self.scan(file)[0], 1)

    def test_arrays_of_objects(self):
        array = numpy.array([self.call], dtype=object)
        buffer = io.BytesIO()
        numpy.save(buffer, array, allow_pickle=True)
        buffer.seek(0)
        for data, member in (buffer.getvalue(), ""), (zipped(a=buffer.getvalue()), "a: "):
            status, lines = self.scan(self.write("x.npy", data))
            self.assertIn(f"{self.folder}/x.npy: dangerous: {member}{self.found}", lines)

    def test_joblib(self):
        """Arrays lie between the opcodes."""
        joblib.dump({"a": numpy.ones(100), "b": self.call}, self.folder / "x.joblib")
        status, lines = self.scan(self.folder / "x.joblib")
        self.assertEqual(status, 1)
        self.assertIn(f"{self.folder}/x.joblib: dangerous: posix.system", lines)

    def test_what_cannot_be_scanned_is_an_error(self):
        """joblib decompresses, and other programs unpack."""
        for name, data in [("x.joblib", zlib.compress(self.evil)), ("x.pkl.z", zlib.compress(self.evil)),
                           ("x.pth", b"7z\xbc\xaf\x27\x1c" + bytes(100))]:
            file = self.write(name, data)
            status, lines = self.scan(file)
            self.assertEqual((status, len(lines)), (1, 2), name)
            self.assertRegex(lines[0], "^.*: it is .*: cannot be read$")
            file.unlink()

    def test_dangerous_globals_of_other_scanners(self):
        """picklescan's list has that of modelscan, but for __import__."""
        known = {"builtins": ["__import__"], "__builtin__": ["__import__"]}
        for module, names in list(known.items()) + list(scanner._unsafe_globals.items()):
            names = [names] if isinstance(names, str) else names
            for name in sorted(name.replace("*", "any") for name in names):
                self.write("x.pkl", f"\x80\2c{module}\n{name}\n)R.".encode("latin-1"))
                status, lines = self.scan(self.folder / "x.pkl")
                self.assertEqual((status, len(lines)), (1, 2))
                self.assertRegex(lines[0], ": dangerous: ", f"{module}.{name}")
        self.assertGreater(len(scanner._unsafe_globals), 60)


class Scan(ScanCase):
    def save(self, name, value):
        file = self.folder / name
        file.parent.mkdir(exist_ok=True)
        torch.save(value, file)
        return file

    def test_harmless(self):
        file = self.save("model.pth", {"w": torch.ones(2)})
        (self.folder / "README.md").write_text("text")
        self.assertEqual(self.scan(file), (0, ["1 checkpoints scanned, 0 with findings, 0 other files"]))
        self.assertEqual(self.scan(self.folder), (0, ["1 checkpoints scanned, 0 with findings, 1 other files"]))

    def test_folders(self):
        self.save("sub/model.pth", {"w": torch.ones(2), "x": self.call})
        self.save("good.pth", {"w": torch.ones(2)})
        self.write("plain.pkl", self.evil)
        os.symlink(".", self.folder / "loop")
        os.mkfifo(self.folder / "pipe")
        self.assertEqual(self.scan(self.folder), (1, [
            f"{self.folder}/plain.pkl: dangerous: {self.found}",
            f"{self.folder}/sub/model.pth: dangerous: model/data.pkl: {self.found}",
            "3 checkpoints scanned, 2 with findings, 0 other files"]))

    def test_refused(self):
        file = self.save("model.pth", {"w": torch.ones(2), "x": numpy.arange(3)})
        status, lines = self.scan(file)
        self.assertEqual(status, 1)
        self.assertIn(f"{file}: refused by weights_only: model/data.pkl: numpy.ndarray", lines)

    def test_other_files(self):
        """Many a text and a picture begins as a pickle does."""
        others = {"LICENSE": b"Licensed under\ncopyright x\nb.\n", "a.js": b"const a = 1;\nlet b\nbar\n",
                  "min.js": b"c" + b"x" * 200_000, "VERSION": b"1.0\n", "v": b"1.2.3", "x.json": b"{}",
                  "words": b"cat\nfoo\nbar\n", "empty.pth": b"", "x.png": b"\x89PNG\r\n\x1a\n" + bytes(99)}
        for name, data in others.items():
            self.write(name, data)
        self.assertEqual(self.scan(self.folder),
                         (0, [f"0 checkpoints scanned, 0 with findings, {len(others)} other files"]))

    def test_samples_are_read(self):
        """Of the samples only those that are corrupt on purpose cannot be read, or compressed by joblib."""
        status, lines = self.scan(*[path for path in sorted(ckptfs.SAMPLES.iterdir()) if path.is_dir()])
        unread = [line for line in lines if line.endswith("cannot be read")]
        for line in unread:
            self.assertRegex(line, r"/npy/edge/|/joblib_\w*\.joblib: it is compressed|\.head512: zip: no end record|"
                                   r"/2.12.1-(overflow|unfinished)\.tensors\.gz: ")
        self.assertGreater(len(unread), 40)

    def test_a_file_that_is_missing(self):
        file = self.folder / "missing.pth"
        self.assertEqual(self.scan(file), (1, [f"{file}: cannot open: No such file or directory: cannot be read",
                                               "1 checkpoints scanned, 1 with findings, 0 other files"]))

    def test_json(self):
        file = self.save("model.pth", {"x": self.call})
        (found,) = json.loads(ckpt("scan", "--json", file).stdout)
        self.assertEqual(found, {"file": str(file), "error": None, "findings": [
            {"global": "posix.system", "danger": "code", "call": self.found, "calls": 1, "member": "model/data.pkl"}]})

    def test_sarif(self):
        file = self.folder / 'name "x".pkl'
        file.write_bytes(pickle.dumps(Call(os.system, "true")))
        (run,) = json.loads(ckpt("scan", "--sarif", self.folder).stdout)["runs"]
        (result,) = run["results"]
        self.assertEqual((result["ruleId"], result["level"]), ("dangerous-global", "error"))
        self.assertEqual(result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"], str(file))
        self.assertIn(result["ruleId"], [rule["id"] for rule in run["tool"]["driver"]["rules"]])


class Remote(s3_case.Case):
    def test_a_folder_of_a_bucket(self):
        folder = self.scratch()
        (folder / "sub").mkdir()
        (folder / "sub" / "x.bin").write_bytes(pickle.dumps(Call(os.system, "true")))
        (folder / "README.md").write_text("text")
        self.upload(folder, "scan/")
        done = ckpt("scan", "s3://models/scan/", env=self.somebody())
        self.assertEqual((done.returncode, done.stderr), (1, ""))
        self.assertEqual(done.stdout.splitlines(), ["s3://models/scan/sub/x.bin: dangerous: posix.system('true')",
                                                    "1 checkpoints scanned, 1 with findings, 1 other files"])
