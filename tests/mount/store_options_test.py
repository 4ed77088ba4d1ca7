"""Stores: options that hold for all checkpoints, and limits that hold for each of them."""

import errno
import hashlib
import json
import os
import signal
import subprocess
import time

import ckptfs
import craft
import sealed

ENCRYPTED = "2.12.1-enc_module.tensors"


class Case(ckptfs.Case):
    def setUp(self):
        self.folder = self.scratch() / "runs"
        self.folder.mkdir()

    def write(self, name, count=1):
        """A file of `count` tensors of a byte, which nobody writes to any more."""
        header = {f"t{i}": {"dtype": "U8", "shape": [1], "data_offsets": [i, i + 1]}
                  for i in range(count)}
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        craft.write_safetensors(path, json.dumps(header), b"x" * count)
        os.utime(path, (1, 1))
        return path


class Options(Case):
    def setUp(self):
        super().setUp()
        self.write("x.safetensors")

    def write_encrypted(self):
        for name in ("one.tensors", "two.tensors"):
            os.rename(sealed.unpack(self, ENCRYPTED), self.folder / name)
            os.utime(self.folder / name, (1, 1))

    def test_one_key_decrypts_all_checkpoints(self):
        self.write_encrypted()
        sample = sealed.EXPECTED[ENCRYPTED]
        mount = self.mount(self.folder, *sealed.options_of(self, sample), quiet=False)
        tensor = next(t for t in sample["tensors"] if t["data_length"])
        for name in ("one.tensors.d", "two.tensors.d"):
            data = ckptfs.read(mount / name / (sealed.dotted(tensor["path"]) + ".memmap"))
            self.assertEqual(hashlib.sha256(data).hexdigest(), tensor["sha256"])
        self.assertEqual(ckptfs.read(mount / "x.safetensors.d/t0.memmap"), b"x")

    def test_a_wrong_key_is_an_error_of_its_checkpoints(self):
        self.write_encrypted()
        key = sealed.key_file(self, bytes(32))
        alone = self.ckptfs(key, self.folder / "one.tensors", self.mountpoint()).stderr
        mount = self.mount(self.folder, key, quiet=False)
        self.assertEqual("ckptfs: " + (mount / "one.tensors.d/error.txt").read_text(), alone)
        self.assertEqual(ckptfs.read(mount / "x.safetensors.d/t0.memmap"), b"x")

    def test_strict_refuses_the_incomplete_checkpoint_alone(self):
        shard = self.write("torn/m1.safetensors")
        index = shard.parent / "model.safetensors.index.json"
        index.write_text(json.dumps({"metadata": {}, "weight_map": {
            "t0": "m1.safetensors", "b": "m2.safetensors"}}))
        os.utime(index, (1, 1))
        os.utime(shard.parent, (1, 1))
        mount = self.mount(self.folder, quiet=False)
        self.assertEqual(ckptfs.read(mount / "torn.d/t0.memmap"), b"x")
        mount = self.mount(self.folder, "-ostrict", quiet=False)
        self.assertIn("m2.safetensors", (mount / "torn.d/error.txt").read_text())
        self.assertEqual(ckptfs.read(mount / "x.safetensors.d/t0.memmap"), b"x")

    def test_verify_finds_a_corrupt_tensor(self):
        try:
            import torch
        except ImportError as error:
            self.skip_avoidable(str(error))
        for name in ("good.pth", "bad.pth"):
            torch.save({"w": torch.full((1000,), 7, dtype=torch.uint8)}, self.folder / name)
        bad = self.folder / "bad.pth"
        sealed.flip(bad, bad.read_bytes().index(b"\7" * 1000) + 500)
        for options, is_refused in (((), False), (("-overify=enforce",), True)):
            mount = self.mount(self.folder, *options)
            self.assertEqual(ckptfs.read(mount / "good.pth.d/w.memmap"), b"\7" * 1000)
            if is_refused:
                self.assertErrno(errno.EIO, ckptfs.read, mount / "bad.pth.d/w.memmap")
            else:
                self.assertEqual(len(ckptfs.read(mount / "bad.pth.d/w.memmap")), 1000)

    def test_links_out_are_hidden_from_other_users(self):
        outside = self.scratch() / "secret.txt"
        outside.write_text("secret")
        (self.folder / "link.txt").symlink_to(outside)
        self.assertEqual(ckptfs.read(self.mount(self.folder, "-ostore") / "link.txt"), b"secret")
        mount = self.mount(self.folder, "-ostore,allow_other", quiet=False)
        with self.assertRaises(OSError):
            ckptfs.read(mount / "link.txt")


class Limits(Case):
    def test_a_large_checkpoint_does_not_prevent_the_mount(self):
        self.write("x.safetensors")
        self.write("y.safetensors")
        large = self.write("large.safetensors", 150_000)
        self.mount(large)
        mount = self.mount(self.folder)
        self.assertEqual(ckptfs.read(mount / "large.safetensors.d/t7.memmap"), b"x")

    def test_a_killed_reader_of_a_slow_checkpoint(self):
        self.write("x.safetensors")
        self.write("slow.safetensors", 100_000)
        mount = self.mount(self.folder)
        reader = subprocess.Popen(["cat", mount / "slow.safetensors.d/t7.memmap"],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.02)
        self.assertIsNone(reader.poll(), "it was not slow")
        reader.send_signal(signal.SIGKILL)
        reader.wait(60 if ckptfs.IS_SANITIZED else 5)
        self.assertEqual(ckptfs.read(mount / "x.safetensors.d/t0.memmap"), b"x")
        self.assertEqual(ckptfs.read(mount / "slow.safetensors.d/t7.memmap"), b"x")
        self.assertEqual(mount.unmount(), 0)
