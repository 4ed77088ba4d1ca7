"""ckpt verify and scan: whether bytes are those that were saved, and what loading would execute."""

import json
import os
import pickle

import ckptfs
from ckpt_case import ckpt

try:
    import numpy
    import torch
except ImportError as error:
    numpy = None
    MISSING = str(error)


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
