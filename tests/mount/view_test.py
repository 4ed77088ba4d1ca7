"""Views, companions and subtrees: a mount as other programs read it."""

import errno
import json
import mmap
import os
import subprocess
import sys
from pathlib import Path

import ckptfs
import craft
import view
from ckptfs import SOURCE, USAGE

try:
    import numpy
    import torch
    from safetensors import safe_open
    from safetensors.torch import save_file
except ImportError as error:
    torch = None
    MISSING = str(error)

NAME = "model.safetensors"
LARGE = 64 << 20  # Bytes: views of sparse samples have gigabytes of zeros.


def names(directory):
    return sorted(os.listdir(getattr(directory, "path", directory)))


class Case(ckptfs.Case):
    def setUp(self):
        if torch is None:
            self.skip_avoidable(MISSING)
        self.folder = self.scratch() / "model"
        self.folder.mkdir()

    def assert_view_is_right(self, mount, name=NAME):
        """All tensors of the mount are in the view, or are listed as omitted; returns the keys."""
        left_out = set(ckptfs.meta(mount.path)["_ckptfs"].get("view", {}).get("left_out", []))
        found = {}
        for kind, keys, what in view.walk(mount.path):
            if kind == "tensor":
                found.setdefault(".".join(keys), what)
        with safe_open(mount / name, "pt") as file:
            keys = set(file.keys())
            self.assertEqual(file.metadata().get("format"), "pt")
            for key in keys:
                tensor = file.get_tensor(key)
                path = found[key].path
                self.assertEqual(tuple(tensor.shape), found[key].shape, key)
                self.assertEqual(f"torch.{str(tensor.dtype)[6:]}", found[key].dtype, key)
                data = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
                self.assertEqual(data, ckptfs.read(path), key)
                # Slices of F4 fail in the library, whatever the file is.
                if tensor.ndim > 0 and tensor.shape[0] > 1 and "float4" not in str(tensor.dtype):
                    part = file.get_slice(key)[1:2]
                    bits = torch.uint8
                    self.assertTrue(torch.equal(part.contiguous().view(bits),
                                                tensor[1:2].contiguous().view(bits)), key)
        for key in set(found) - keys:
            self.assertTrue(any(key == k or key.startswith(f"{k}.") for k in left_out), key)
        return keys

    def assert_arrays_are_right(self, mount):
        """Each .npy has the bytes of the .memmap beside it."""
        count = 0
        unreadable = {mount / line["path"] for line in view.lines(mount.path) if line["error"]}
        for path in mount.path.rglob("*.npy"):
            if path.with_suffix(".memmap") in unreadable or path.stat().st_size > LARGE:
                continue
            array = numpy.load(path, mmap_mode="r") if path.stat().st_size else None
            self.assertEqual(array.tobytes(), ckptfs.read(path.with_suffix(".memmap")), path)
            count += 1
        return count


class Samples(Case):
    def test_every_sample_has_a_right_view(self):
        samples = [p for p in sorted(ckptfs.SAMPLES.rglob("*")) if p.is_file()
                   and p.name != "expected.json" and p.suffix not in (".py", ".md", ".json")]
        viewed = arrays = 0
        for sample in samples:
            mountpoint = self.mountpoint()
            done = self.ckptfs("-o", "view=safetensors:npy", sample, mountpoint)
            if done.returncode != 0:
                continue  # What is said of these is tested elsewhere.
            with self.subTest(sample.relative_to(ckptfs.SAMPLES)):
                mount = ckptfs.Mount(mountpoint, self.daemon_of(mountpoint), done.stderr)
                try:
                    file = mount / NAME
                    if file.exists() and file.stat().st_size < LARGE:
                        viewed += bool(self.assert_view(mount, sample))
                    arrays += self.assert_arrays_are_right(mount)
                finally:
                    mount.release()
        self.assertGreater(viewed, 100)
        self.assertGreater(arrays, 1000)

    def assert_view(self, mount, sample):
        if sample.suffix == ".safetensors":
            self.assertEqual(ckptfs.read(mount / NAME), sample.read_bytes())
            return True
        if any("error" in line and line["error"] for line in view.lines(mount.path)):
            return False
        return self.assert_view_is_right(mount)


class Repository(Case):
    def write(self, name="pytorch_model.bin", **state):
        state = state or {"a.w": torch.arange(6.0).reshape(2, 3), "a.b": torch.ones(3)}
        torch.save(state, self.folder / name)
        (self.folder / "config.json").write_text('{"model_type": "x"}')

    def test_a_pickle_has_a_view_by_default(self):
        self.write()
        mount = self.mount(self.folder)
        self.assertEqual(names(mount), ["a", "config.json", "meta.json", NAME])
        self.assertEqual(self.assert_view_is_right(mount), {"a.w", "a.b"})
        self.assertEqual(names(self.mount(self.folder / "pytorch_model.bin")), ["a", "meta.json"])
        mount = self.mount(self.folder, "-o", "view=none,companions=off")
        self.assertEqual(names(mount), ["a", "meta.json"])

    def test_shards_have_a_view_and_no_index(self):
        for i in (1, 2):
            torch.save({f"w{i}": torch.full((4,), i)}, self.folder / f"pytorch_model-0000{i}-of-00002.bin")
        index = {"metadata": {}, "weight_map": {f"w{i}": f"pytorch_model-0000{i}-of-00002.bin"
                                                for i in (1, 2)}}
        (self.folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
        (self.folder / "config.json").write_text("{}")
        mount = self.mount(self.folder)
        self.assertEqual(names(mount), ["config.json", "meta.json", NAME, "w1.memmap", "w2.memmap"])
        self.assertEqual(self.assert_view_is_right(mount), {"w1", "w2"})

    def test_safetensors_are_passed_through(self):
        save_file({"w": torch.arange(4)}, self.folder / NAME, {"format": "pt", "x": "y"})
        (self.folder / "config.json").write_text("{}")
        mount = self.mount(self.folder)
        self.assertEqual(ckptfs.read(mount / NAME), (self.folder / NAME).read_bytes())

    def test_names_of_adapters_and_of_diffusers(self):
        torch.save({"w": torch.ones(2)}, self.folder / "adapter_model.bin")
        (self.folder / "adapter_config.json").write_text("{}")
        self.assertIn("adapter_model.safetensors", names(self.mount(self.folder)))
        unet = self.scratch()
        torch.save({"w": torch.ones(2)}, unet / "diffusion_pytorch_model.bin")
        (unet / "config.json").write_text('{"_class_name": "UNet2DModel"}')
        self.assertIn("diffusion_pytorch_model.safetensors", names(self.mount(unet)))

    def test_what_safetensors_cannot_have_is_named(self):
        self.write(c=torch.zeros(2, dtype=torch.complex128), w=torch.ones(2))
        mount = self.mount(self.folder, quiet=False)
        self.assertEqual(self.assert_view_is_right(mount), {"w"})
        self.assertIn("model.safetensors lacks 1 tensor that safetensors cannot have: 'c'",
                      mount.messages)

    def test_a_changed_source_is_an_error(self):
        self.write(w=torch.zeros(1 << 20))
        mount = self.mount(self.folder)
        with open(mount / NAME, "rb", buffering=0) as file:
            self.assertEqual(len(os.pread(file.fileno(), 4096, 0)), 4096)
            os.truncate(self.folder / "pytorch_model.bin", 1 << 20)
            self.assertErrno(errno.ESTALE, os.pread, file.fileno(), 4096, 2 << 20)

    def test_a_mapped_view_gets_a_signal_if_the_source_shrinks(self):
        self.write(w=torch.zeros(1 << 20))
        mount = self.mount(self.folder)
        code = ("import mmap, os, sys; f = open(sys.argv[1], 'rb'); "
                "m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ); m[0]; "
                "os.truncate(sys.argv[2], 1 << 20); print(m[3 << 20])")
        done = subprocess.run([sys.executable, "-c", code, mount / NAME,
                               self.folder / "pytorch_model.bin"], capture_output=True)
        self.assertEqual(done.returncode, -7, done)  # SIGBUS.
        self.assertEqual(mmap.PAGESIZE, 4096)

    def test_npy_beside_each_tensor(self):
        self.write(w=torch.arange(3), half=torch.ones(2, dtype=torch.bfloat16), s=torch.tensor(2.5))
        mount = self.mount(self.folder, "-o", "view=npy")
        self.assertEqual(names(mount), ["config.json", "half.memmap", "meta.json", "s.memmap",
                                        "s.npy", "w.memmap", "w.npy"])
        self.assertEqual(numpy.load(mount / "w.npy", mmap_mode="r").tolist(), [0, 1, 2])
        self.assertEqual(numpy.load(mount / "s.npy").tolist(), 2.5)

    def test_a_store_links_to_the_view(self):
        for step in (1, 2):
            path = self.folder / f"step-{step}"
            path.mkdir()
            torch.save({"w": torch.full((2,), step)}, path / "pytorch_model.bin")
            torch.save({"state": {0: torch.ones(2)}}, path / "optimizer.pt")
            (path / "config.json").write_text("{}")
        mount = self.mount(self.folder)
        self.assertEqual(names(mount / "step-1"), [
            "config.json", NAME, "optimizer.pt", "optimizer.pt.d", "pytorch_model.bin",
            "pytorch_model.bin.d"])
        for step in (1, 2):
            with safe_open(mount / f"step-{step}" / NAME, "pt") as file:
                self.assertEqual(file.get_tensor("w").tolist(), [step] * 2)
        self.assertFalse((mount / "step-1/optimizer.pt.d" / NAME).exists())

    def test_wrong_values(self):
        self.write()
        done = self.ckptfs("-o", "view=gguf", self.folder, self.mountpoint())
        self.assertRefused(done, USAGE, "option view: invalid value 'gguf' (expected safetensors, "
                                        "npy, both with a colon, or none); see ckptfs -h")
        done = self.ckptfs("-o", "companions=no", self.folder, self.mountpoint())
        self.assertRefused(done, USAGE, "option companions: invalid value 'no' (expected on or "
                                        "off); see ckptfs -h")


class Companions(Case):
    def setUp(self):
        super().setUp()
        save_file({"a": torch.ones(2), "meta": torch.ones(1)}, self.folder / NAME)

    def test_other_files_are_there(self):
        (self.folder / "README.md").write_text("# A model\n")
        (self.folder / "empty").touch()
        (self.folder / "script.py").write_text("print(1)\n")
        (self.folder / "script.py").chmod(0o755)
        (self.folder / "1_Pooling").mkdir()
        (self.folder / "1_Pooling/config.json").write_text("{}")
        (self.folder / ".git").mkdir()
        (self.folder / ".git/config").write_text("")
        os.mkfifo(self.folder / "fifo")
        mount = self.mount(self.folder)
        self.assertEqual(names(mount), ["1_Pooling", "README.md", "a.memmap", "empty", "meta.json",
                                        "meta.memmap", "script.py"])
        self.assertEqual(ckptfs.read(mount / "README.md"), b"# A model\n")
        self.assertEqual(ckptfs.read(mount / "1_Pooling/config.json"), b"{}")
        self.assertFalse(os.access(mount / "script.py", os.X_OK))

    def test_names_that_clash(self):
        for name in ("meta.json", "a.memmap", "tensors.jsonl", "a.memmap~"):
            (self.folder / name).write_text(name)
        mount = self.mount(self.folder)
        self.assertEqual(names(mount), ["a.memmap", "a.memmap~", "a.memmap~~", "meta.json",
                                        "meta.json~", "meta.memmap", "tensors.jsonl~"])
        self.assertEqual(ckptfs.read(mount / "meta.json~"), b"meta.json")
        self.assertEqual(sorted(ckptfs.meta(mount.path)["_ckptfs"]["renamed"]),
                         ["a.memmap~~", "meta.json~", "tensors.jsonl~"])

    def test_a_changed_file_is_stale(self):
        (self.folder / "notes").write_text("before")
        mount = self.mount(self.folder)
        (self.folder / "notes").write_text("behind")
        self.assertErrno(errno.ESTALE, ckptfs.read, mount / "notes")

    def test_private_files_are_not_shown_to_others(self):
        if os.geteuid() != 0:
            self.skipTest("needs root")
        (self.folder / "notes").write_text("private")
        (self.folder / "notes").chmod(0o600)
        (self.folder / NAME).chmod(0o644)
        self.assertIn("notes", names(self.mount(self.folder)))
        self.assertNotIn("notes", names(self.mount(self.folder, "-o", "allow_other")))

    def test_links_follow_the_rules(self):
        if os.geteuid() != 0:
            self.skipTest("needs root")
        (self.folder / "shadow").symlink_to("/etc/shadow")
        os.chown(self.folder / "shadow", 65534, 65534, follow_symlinks=False)
        (self.folder / "good").symlink_to(NAME)
        mount = self.mount(self.folder)
        self.assertEqual(ckptfs.read(mount / "good"), (self.folder / NAME).read_bytes())
        try:
            self.assertNotIn(b"root:", ckptfs.read(mount / "shadow"))
        except OSError as e:
            self.assertIn(e.errno, (errno.EACCES, errno.ENOENT))


class Subtree(Case):
    def test_is_the_root(self):
        path = self.folder / "x.pth"
        torch.save({"model": {"h.0.w": torch.arange(3), "h.1.w": torch.ones(2)}, "step": 1}, path)
        mount = self.mount(path, "-o", "subtree=model,view=safetensors")
        self.assertEqual(names(mount), ["h", "meta.json", NAME])
        self.assertEqual(self.assert_view_is_right(mount), {"h.0.w", "h.1.w"})
        mount = self.mount(path, "-o", "subtree=model/h/1,view=safetensors")
        self.assertEqual(self.assert_view_is_right(mount), {"w"})
        done = self.ckptfs("-o", "subtree=modle", path, self.mountpoint())
        self.assertRefused(done, SOURCE, f"{path}: subtree 'modle': no dict of that key, but 'model'")

    def test_of_safetensors(self):
        path = self.folder / NAME
        craft.write_safetensors(path, json.dumps({
            "net.w": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]},
            "other": {"dtype": "U8", "shape": [1], "data_offsets": [2, 3]}}), b"abc")
        mount = self.mount(self.folder, "-o", "subtree=net,view=safetensors")
        self.assertEqual(self.assert_view_is_right(mount), {"w"})
        self.assertEqual(Path(mount.path, "w.memmap").read_bytes(), b"ab")
