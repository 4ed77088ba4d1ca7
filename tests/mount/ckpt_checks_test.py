"""ckpt verify: whether bytes are those that were saved."""

import json

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
