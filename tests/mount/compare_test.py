"""Mounts that are compared, copied and searched: a listing has content and nothing else."""

import os
import subprocess

import ckptfs
import view

try:
    import numpy
    import safetensors.torch
    import torch
    from tensorizer import TensorSerializer
except ImportError as error:
    torch = None
    MISSING = str(error)


def weights(count=40):
    generator = torch.Generator().manual_seed(0)
    return {f"h.{i}.{name}": torch.randn(7 + i, 3, generator=generator)
            for i in range(count) for name in ("weight", "bias")}


def save_tensors(file, tensors):
    writer = TensorSerializer(str(file))
    writer.write_state_dict(tensors)
    writer.close()


class Differences(ckptfs.Case):
    """Differences of content between two files, and not of offsets."""

    def setUp(self):
        if torch is None:
            self.skip_avoidable(MISSING)
        self.folder = self.scratch()

    def differences(self, first, second):
        mounts = [self.mount(self.folder / name) for name in (first, second)]
        offsets = [{line["key"]: line["file_offset"] for line in view.lines(m.path)}
                   for m in mounts]
        moved = [key for key, offset in offsets[0].items() if offset != offsets[1][key]]
        self.assertGreater(len(moved), 40)
        done = ckptfs.run("diff", "-rq", *(m.path for m in mounts))
        self.assertEqual(done.stderr, "")
        return sorted(line.split()[1].removeprefix(f"{mounts[0].path}/")
                      for line in done.stdout.splitlines())

    def test_of_pytorch_files(self):
        for zipped in (True, False):
            with self.subTest(zipped=zipped):
                state = weights()
                torch.save({"note": {"n": "short"}, "model": state}, self.folder / "one.pth",
                           _use_new_zipfile_serialization=zipped)
                state["h.20.bias"][3, 1] += 1
                torch.save({"note": {"n": "long" * 5000}, "model": state},
                           self.folder / "another.pth", _use_new_zipfile_serialization=zipped)
                self.assertEqual(self.differences("one.pth", "another.pth"),
                                 ["model/h/20/bias.memmap", "note/meta.json"])

    def test_of_safetensors(self):
        state = weights()
        safetensors.torch.save_file(state, self.folder / "one", {"format": "pt", "n": "short"})
        state["h.20.bias"][3, 1] += 1
        safetensors.torch.save_file(state, self.folder / "another",
                                    {"format": "pt", "n": "long" * 5000})
        self.assertEqual(self.differences("one", "another"), ["h/20/bias.memmap", "meta.json"])

    def test_of_tensorizer(self):
        # It has no values; so one tensor gets another shape, which is in its meta.json.
        state = weights()
        save_tensors(self.folder / "one", state)
        state["h.3.bias"] = torch.randn(5000, 3)
        save_tensors(self.folder / "another", state)
        self.assertEqual(self.differences("one", "another"),
                         ["h/3/bias.memmap", "h/3/meta.json"])

    def test_of_numpy_archives(self):
        arrays = {f"a{i}": numpy.arange(5 + i) for i in range(50)}
        numpy.savez(self.folder / "one.npz", **arrays)
        numpy.savez(self.folder / "another.npz", **(arrays | {"a0": numpy.arange(5000)}))
        self.assertEqual(self.differences("one.npz", "another.npz"), ["a0.memmap", "meta.json"])

    def test_of_the_same_file_under_another_name_are_none(self):
        torch.save({"model": weights(2)}, self.folder / "one.pth")
        first = self.mount(self.folder / "one.pth")
        (self.folder / "copy.bin").write_bytes((self.folder / "one.pth").read_bytes())
        second = self.mount(self.folder / "copy.bin", "-oxattr")
        self.assertEqual(ckptfs.run("diff", "-r", first.path, second.path).stdout, "")
        self.assertEqual(os.getxattr(second.path, "user.ckptfs.source"),
                         os.fsencode(self.folder / "copy.bin"))
        self.assertEqual(os.getxattr(second.path, "user.ckptfs.folder"), b'"one"')


class Index(ckptfs.Case):
    """tensors.jsonl: one line of JSON for each tensor."""

    def test_every_path_in_it_opens_and_is_the_tensor(self):
        for sample in ("torch-2.13/train.pth", "demo.pth", "zanj/zanj-0.6/stored.zanj"):
            for options in ((), ("-oflat",)):
                with self.subTest(sample, options=options):
                    mount = self.mount(ckptfs.SAMPLES / sample, *options)
                    lines = view.lines(mount.path)
                    for line in lines:
                        self.assertEqual(os.stat(mount / line["path"]).st_size, line["bytes"])
                    listed = {os.path.relpath(os.path.join(d, f), mount.path)
                              for d, _, files in os.walk(mount.path) for f in files}
                    self.assertEqual({line["path"] for line in lines},
                                     {f for f in listed if not f.endswith("meta.json")})
                    self.assertNotIn("tensors.jsonl", os.listdir(mount.path))
                    mount.unmount()

    def test_tied_tensors_have_a_line_each(self):
        if torch is None:
            self.skip_avoidable(MISSING)
        file, tensor = self.scratch() / "tied.pth", torch.ones(3)
        torch.save({"a": tensor, "b": [tensor]}, file)
        first, second = view.lines(self.mount(file).path)
        self.assertEqual((first["key"], first["path"]), ("a", "a.memmap"))
        self.assertEqual((second["key"], second["path"]), ("b.0", "b/0.memmap"))
        self.assertEqual(first["file_offset"], second["file_offset"])

    def test_a_key_of_that_name_gets_an_underscore(self):
        if torch is None:
            self.skip_avoidable(MISSING)
        file = self.scratch() / "model.pth"
        torch.save({"tensors.jsonl": {"w": torch.ones(3)}}, file)
        mount = self.mount(file, "-oflat")
        self.assertEqual(sorted(os.listdir(mount.path)), ["meta.json", "tensors.jsonl_"])
        self.assertEqual(ckptfs.meta(mount.path)["tensors.jsonl_"]["key"], "tensors.jsonl")
        [line] = view.lines(mount.path)
        self.assertEqual((line["key"], line["path"]),
                         ("tensors.jsonl.w", "tensors.jsonl_/w.memmap"))

    def test_jq_reads_it(self):
        self.need_command("jq")
        mount = self.mount(ckptfs.SAMPLES / "demo.pth")
        done = subprocess.run(["jq", "-s", "map(.bytes) | add", mount / "tensors.jsonl"],
                              capture_output=True, text=True, check=True)
        self.assertEqual(int(done.stdout), sum(line["bytes"] for line in view.lines(mount.path)))


class Names(ckptfs.Case):
    """Odd keys are listed once, by names that no terminal obeys, and open by their raw names."""

    KEYS = ("a b", "\x1b[2J", "x\ny", "\u202egnp", "\x9b", "\u2028", "\u2066i\u2069")

    def setUp(self):
        if torch is None:
            self.skip_avoidable(MISSING)
        self.file = self.scratch() / "model.pth"
        root = {key: torch.full((2,), float(i)) for i, key in enumerate(self.KEYS)}
        torch.save(root | {f"{key}d": {"w": torch.full((3,), float(i))}
                           for i, key in enumerate(self.KEYS)}, self.file)

    def test_a_listing_has_each_once_and_printable(self):
        mount = self.mount(self.file)
        found = [name for _, directories, files in os.walk(mount.path)
                 for name in directories + files]
        self.assertEqual(sorted(name for name in found if name not in ("meta.json", "w.memmap")),
                         sorted(["a%20b.memmap", "%1B[2J.memmap",
                                 "x%0Ay.memmap", "%E2%80%AEgnp.memmap", "%C2%9B.memmap",
                                 "%E2%80%A8.memmap", "%E2%81%A6i%E2%81%A9.memmap", "a bd",
                                 "%1B[2Jd", "x%0Ayd", "%E2%80%AEgnpd", "%C2%9Bd", "%E2%80%A8d",
                                 "%E2%81%A6i%E2%81%A9d"]))

    def test_raw_names_open(self):
        mount = self.mount(self.file)
        for i, key in enumerate(self.KEYS):
            raw = ckptfs.read(mount / f"{key}.memmap")
            self.assertEqual(raw, torch.full((2,), float(i)).numpy().tobytes())
            for _ in range(2):  # The kernel has one name of a directory at a time.
                inner = ckptfs.read(mount / f"{key}d" / "w.memmap")
                self.assertEqual(inner, torch.full((3,), float(i)).numpy().tobytes())
                self.assertEqual(len(list(os.walk(mount.path))), 1 + len(self.KEYS))

    def test_copies_have_each_file_once(self):
        mount = self.mount(self.file)
        for command in (["cp", "-a"], ["rsync", "-aH"]):
            with self.subTest(command[0]):
                self.need_command(command[0])
                copy = self.scratch() / "copy"
                ckptfs.run(*command, f"{mount.path}/", copy, check=True)
                self.addCleanup(ckptfs.run, "chmod", "-R", "u+w", copy)
                self.assertEqual(ckptfs.run("diff", "-r", mount.path, copy).stdout, "")
                links = {os.lstat(os.path.join(d, f)).st_nlink
                         for d, _, files in os.walk(copy) for f in files}
                self.assertEqual(links, {1})
        self.need_command("tar")
        tar = self.scratch() / "copy.tar"
        done = ckptfs.run("tar", "--check-links", "-cf", tar, "-C", mount.path, ".")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
