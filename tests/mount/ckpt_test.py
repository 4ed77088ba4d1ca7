"""ckpt: looks into checkpoints without a mount. What it prints is what a mount shows."""

import csv
import io
import json
import random
from pathlib import Path

import ckptfs
from ckpt_case import ckpt, samples

try:
    import numpy
    import torch
except ImportError as error:
    numpy = None
    MISSING = str(error)

MOST_KEY = 4000  # tensors.jsonl of a mount truncates keys that are a little longer.


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
        chance = random.Random(7)
        number = lambda: chance.choice(["", str(chance.randint(-8, 8))])
        step = lambda: chance.choice(["", ":", f":{chance.choice([-7, -3, -2, -1, 1, 2, 4])}"])
        random_slices = [", ".join(f"{number()}:{number()}{step()}" for _ in range(chance.randint(1, 3)))
                         for _ in range(60)]
        for text in ("1", "-1", "1:3", ":, 2", "..., -1", "::2, ::3", "1, ..., 4", "5:2", "-3:-1, 1:100, 5",
                     "...", "0, 1, 2", "3:4, :, ::5", "-100:2", "2:, 4:, 5:", "::-1", "..., ::-1", ":, ::-1",
                     "::-1, ::-2, ::-1", "1, ::-1", "2:-100:-1, 3, 5:0:-2", *random_slices):
            index = eval(f"numpy.s_[{text}]")  # The grammar of NumPy itself.
            wanted = numpy.ascontiguousarray(self.array[index])
            self.assertEqual(self.cat(f"x[{text}]"), wanted.tobytes(), text)
            found = numpy.load(io.BytesIO(self.cat(f"x[{text}]", "--npy")))
            self.assertEqual(found.shape, self.array[index].shape, text)
            numpy.testing.assert_array_equal(found, self.array[index])

    def test_large_tensors_backwards(self):
        array = numpy.arange(3_000_000, dtype=numpy.int64).reshape(3, 1000, 1000)
        file = self.scratch() / "large.pth"
        torch.save({"x": torch.from_numpy(array)}, file)
        for text in ("::-1", ":, ::-1", "..., ::-1", "::-2, 5::-1, ::-3", "..., 999::-1"):
            wanted = array[eval(f"numpy.s_[{text}]")].tobytes()
            done = ckpt("cat", file, f"x[{text}]", text=False, errors=None)
            self.assertTrue(done.stdout == wanted, text)

    def test_keys_with_brackets(self):
        self.assertEqual(self.cat("x[0]"), numpy.ones(2, numpy.float32).tobytes())
        self.assertEqual(self.cat("s[...]"), numpy.float32(5).tobytes())
        self.assertEqual(self.cat("s[]"), numpy.float32(5).tobytes())

    def test_refused(self):
        for key, sentence in (
                ("x[4]", "slice '4': index is out of bounds for axis of size 4"),
                ("x[::0]", "slice '::0': the step must not be zero"),
                ("x[a]", "slice 'a': expected an integer, a slice or ..., found 'a'"),
                ("x[0,0,0,0]", "slice '0,0,0,0': has 4 indices, but the tensor has 3 dimensions"),
                ("x[...,...]", "slice '...,...': has more than one ...")):
            done = ckpt("cat", self.file, key)
            self.assertEqual((done.returncode, done.stdout, done.stderr.replace('"', "'")),
                             (ckptfs.USAGE, "", f"ckpt: {sentence}\n"))


class Holes(ckptfs.Case):
    def test_terabytes_of_zeros_without_data(self):
        """A tensor on the device meta, of 665 bytes of tensorizer."""
        data = (ckptfs.TESTS / "corpus" / "tensorizer" / "long_enc").read_bytes()
        rows, large = (4294967301).to_bytes(8, "little"), 1 << 42
        self.assertEqual(data.count(rows), 2)
        file = self.scratch() / "zeros.tensors"
        file.write_bytes(data.replace(rows, large.to_bytes(8, "little")))
        key = "long.meta"
        row, = json.loads(ckpt("stat", "--json", file, key).stdout)
        self.assertEqual([row[name] for name in ("count", "zeros", "min", "max", "mean", "deviation")],
                         [2 * large, 2 * large, 0, 0, 0, 0])
        self.assertEqual(ckpt("diff", file, file, key).returncode, 0)
        self.assertIn("min 0  max 0", ckpt("show", file, key).stdout)
        report = ckpt("report", file)
        self.assertEqual((report.returncode, "</html>" in report.stdout), (ckptfs.CORRUPT, True))


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
        for command in "ls", "info", "cat", "show", "stat", "diff", "verify", "scan", "report":
            self.assertIn(f"  {command} ", done.stdout)
            self.assertEqual(ckpt(command, "--help").returncode, 0)
        self.assertEqual(ckpt("--version").stdout.split()[0], "ckpt")

    def test_hostile_files_are_refused_as_by_mounts(self):
        for name in sorted(Path(ckptfs.TESTS / "corpus" / "pickle").iterdir())[:50]:
            done = self.ckptfs(name, self.mountpoint())
            listed = ckpt("ls", "--json", name)
            self.assertEqual(listed.returncode, done.returncode, name)
