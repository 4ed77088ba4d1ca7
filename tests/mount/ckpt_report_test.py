"""ckpt report: the data of the page, and how it is written. ckpt_page_test.py opens it in a browser."""

import json
import os
import re
import resource

import ckptfs
from ckpt_case import ckpt, samples

try:
    import numpy
    import torch
except ImportError as error:
    numpy = None
    MISSING = str(error)

DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_"
# What a page must not take for a part of itself.
HOSTILE = ["</script><img src=x onerror=document.title=1>", "<!--<script>", '"><svg onload=document.title=1>',
           "it's \"quoted\" \\", "\udc80", "\u202egnp.exe", "\0\n\u2028", "__proto__", "]]>", "@data@", "\U0001f600"]


def data_of(page):
    """The data in the page, which must be one element of script."""
    [data] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    if "<" in data:
        raise ValueError("the data has a '<'")
    return json.loads(data)


class Report(ckptfs.Case):
    """What the page has."""

    def assertSame(self, source):
        """The data is what ls, stat and info print."""
        done = ckpt("report", source)
        data = data_of(done.stdout)
        listed = json.loads(ckpt("ls", "--json", source).stdout)
        figures = ckpt("stat", "--json", source)
        facts = json.loads(ckpt("info", "--json", source).stdout)
        self.assertEqual((done.returncode, done.stderr), (figures.returncode, figures.stderr))
        keys = [row["key"] for row in listed]
        self.assertEqual([(row[0], *row[2:4]) for row in data["tensors"]],
                         [(row["key"], row["shape"], row["bytes"]) for row in listed], source)
        self.assertEqual([row[4] is not None and keys[row[4]] for row in data["tensors"]],
                         [row["tied_to"] or False for row in listed])
        for row, stat in zip(data["tensors"], json.loads(figures.stdout)):
            self.assertEqual((row[1], row[5]), (stat["dtype"], stat["error"]), source)
            self.assertFalse(row[6] is None and stat["min"] is not None, row)
            if row[6] is not None:
                self.assertEqual(row[6][:7], [stat[name] for name in (
                    "min", "max", "mean", "deviation", "zeros", "nans", "infinities")])
        for name in "source", "format", "parameters", "bytes", "dtypes", "warnings":
            self.assertEqual(data[name], facts[name], source)
        self.assertEqual(len(data["tensors"]), facts["tensors"])
        self.assertEqual([(name, verdict != "allowed") for name, verdict in data["globals"]],
                         [(row["name"], row["refused"]) for row in facts["globals"]])
        texts = dict((name, text) for name, text, size in data["values"] if len(text.encode()) == size)
        for name, value in facts["values"].items():
            if name in texts:
                self.assertEqual(json.loads(texts[name]), value, source)

    def test_has_what_other_commands_print(self):
        # Without tensors that stat reads for longer than all others together.
        sources = [source for source in samples() if "long" not in source.name and ckpt("ls", source).returncode == 0]
        self.assertGreater(len(sources), 30)
        for source in sources:
            self.assertSame(source)

    def test_without_values(self):
        done = ckpt("report", "--no-values", ckptfs.SAMPLES / "demo.pth")
        data = data_of(done.stdout)
        self.assertEqual((done.returncode, data["has_figures"]), (0, False))
        self.assertEqual({row[6] for row in data["tensors"]}, {None})


class Figures(ckptfs.Case):
    """Pages of checkpoints that torch writes."""

    def setUp(self):
        if numpy is None:
            self.skip_avoidable(MISSING)
        self.directory = self.scratch()

    def save(self, content):
        file = self.directory / "x.pth"
        torch.save(content, file)
        return file

    def data(self, content):
        return data_of(ckpt("report", self.save(content)).stdout)

    def test_histograms(self):
        tensors = {"normal": torch.randn(5000), "integers": torch.arange(-5, 1000), "one": torch.ones(7),
                   "none": torch.ones(0), "nan": torch.tensor([float("nan")] * 3), "bool": torch.arange(10) > 6,
                   "mixed": torch.tensor([0, 1, float("inf"), float("nan"), 9]), "bits": torch.zeros(3).bool(),
                   "extreme": torch.tensor([-1.7e308, 1.7e308, 0], dtype=torch.float64),
                   "tiny": torch.tensor([0, 5e-324], dtype=torch.float64)}
        for key, _, _, _, _, _, figures in self.data(tensors)["tensors"]:
            array = tensors[key].double().numpy()
            array = array[numpy.isfinite(array)]
            bins = [DIGITS.index(digit) for digit in figures[7]]
            if array.size == 0 or array.min() == array.max():
                self.assertEqual(bins, [], key)
                continue
            self.assertEqual(len(bins), 32)
            if key not in ("extreme", "tiny"):  # Their ranges have no width that numpy would take.
                counts = numpy.histogram(array, 32)[0]
                numpy.testing.assert_allclose(bins, [n and n * 62 // max(counts) + 1 for n in counts], atol=1)
            self.assertEqual((max(bins), min(bins) >= 0), (63, True))

    def test_hostile_texts_stay_texts(self):
        data = self.data({"model": {key: torch.ones(2) for key in HOSTILE}, **{key: key for key in HOSTILE}})
        self.assertEqual([row[0] for row in data["tensors"]], ["model." + key for key in HOSTILE])
        values = {name: json.loads(text) for name, text, _ in data["values"]}
        for key in HOSTILE:
            self.assertEqual(values[key], key)

    def test_values_are_shortened(self):
        data = self.data({"x": torch.ones(1), "long": "ä" * 10_000_000, **{f"v{i}": "y" * 4000 for i in range(400)}})
        self.assertLess(sum(len(name) + len(text) for name, text, _ in data["values"]), 1 << 20)
        self.assertGreater(data["omitted_values"], 100)
        [(text, size)] = [(text, size) for name, text, size in data["values"] if name == "long"]
        self.assertGreater(size, 20_000_000)
        self.assertLessEqual(len(text), 4096)

    def test_page_of_many_tensors_is_small(self):
        file = self.save({f"model.layers.{i}.weight": torch.randn(2) for i in range(5000)})
        self.assertLess(len(ckpt("report", file).stdout), 60_000 + 200 * 5000)

    def test_corrupt_tensor_is_shown(self):
        file = self.save({"good": torch.ones(3), "x": torch.ones(100_000)})
        data = file.read_bytes()
        file.write_bytes(data.replace(b"\0\0\x80\x3f" * 5000, b"\0\0\x80\x3e" * 5000, 1))
        done = ckpt("report", "-o", "verify=enforce", file)
        rows = {row[0]: row for row in data_of(done.stdout)["tensors"]}
        self.assertEqual((done.returncode, rows["good"][5], rows["x"][6]), (ckptfs.CORRUPT, None, None))
        self.assertRegex(rows["x"][5], "CRC")


class Output(ckptfs.Case):
    """The file of the page: whole, or not at all."""

    def setUp(self):
        self.directory = self.scratch()
        self.file = self.directory / "page.html"
        self.demo = ckptfs.SAMPLES / "demo.pth"

    def assertFails(self, code, sentence, *arguments, **options):
        before = {path: path.read_bytes() for path in self.directory.iterdir()}
        done = ckpt("report", *arguments, **options)
        self.assertEqual((done.returncode, done.stdout), (code, ""))
        self.assertRegex(done.stderr, rf"\Ackpt: {sentence}\n\Z")
        self.assertEqual({path: path.read_bytes() for path in self.directory.iterdir()}, before)

    def test_file_is_what_is_printed(self):
        done = ckpt("report", self.demo, "-o", self.file)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        self.assertEqual(self.file.read_text(), ckpt("report", self.demo).stdout)
        self.assertEqual(os.listdir(self.directory), [self.file.name])

    def test_dash_o_is_a_file_or_an_option(self):
        done = ckpt("report", self.demo, "-o", "timeout=5", "-o", "strict", "-o", self.file)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        self.file.unlink()
        self.assertFails(ckptfs.USAGE, "unknown option 'page'", self.demo, "-o", "page=x.html")
        self.assertFails(ckptfs.USAGE, "two output files: '.*' and 'y.html'", self.demo, "-o", self.file, "-o", "y.html")
        done = ckpt("report", self.demo, "--output", self.directory / "page=x.html")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_existing_file_is_kept(self):
        self.file.write_text("old")
        self.assertFails(ckptfs.USAGE, ".*: file exists; -f replaces it", self.demo, "-o", self.file)
        self.assertEqual(ckpt("report", self.demo, "-f", "--output", self.file).returncode, 0)
        self.assertEqual(self.file.read_text(), ckpt("report", self.demo).stdout)
        self.assertEqual(os.listdir(self.directory), [self.file.name])

    def test_corrupt_checkpoint_leaves_nothing(self):
        corrupt = self.directory / "x.pth"
        corrupt.write_bytes(self.demo.read_bytes()[:1000])
        self.assertFails(ckptfs.CORRUPT, ".*x.pth: .*", corrupt, "-o", self.file)

    def test_full_disk(self):
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        for existing in [], ["-f"]:
            if existing:
                self.file.write_text("old")
            self.assertFails(ckptfs.LIMITS, ".*page.html: File too large", self.demo, "-o", self.file, *existing,
                             preexec_fn=limit)
        with open("/dev/full", "wb") as full:
            done = ckpt("report", self.demo, capture_output=False, stdout=full, stderr=-1)
        self.assertEqual((done.returncode, done.stderr),
                         (1, "ckpt: cannot write to standard output: No space left on device\n"))

    def test_no_such_directory(self):
        self.assertFails(ckptfs.SOURCE, ".*page.html: No such file or directory", self.demo, "-o",
                         self.directory / "none" / "page.html")
