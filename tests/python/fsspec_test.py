"""The file system `ckptfs` of fsspec."""

import pickle

from package import Case, ckptfs, mounts, numpy, torch

try:
    import fsspec
    from ckptfs._fsspec import CheckpointFileSystem
except ImportError:
    fsspec = None


class FileSystem(Case):
    def setUp(self):
        super().setUp()
        if fsspec is None:
            self.skip_avoidable("there is no fsspec")
        # An installed package has an entry point, which tests/python/wheel_test.py tests.
        fsspec.register_implementation("ckptfs", CheckpointFileSystem, clobber=True)
        self.addCleanup(CheckpointFileSystem.clear_instance_cache)
        self.weight = torch.randn(30, 20)
        self.file = self.save({"h": {"0.w": self.weight}, "epoch": 3})

    def test_a_file_of_a_chain(self):
        for source in self.file, f"file://{self.file}":
            with fsspec.open(f"ckptfs://h/0/w.memmap::{source}") as file:
                self.assertEqual(file.read(), self.weight.numpy().tobytes())

    def test_files(self):
        files = fsspec.filesystem("ckptfs", fo=self.file, options=["view=npy"])
        self.assertEqual(files.glob("**/*.npy"), ["h/0/w.npy"])
        self.assertEqual(sorted(entry["name"] for entry in files.ls("h")), ["h/0", "h/meta.json"])
        with files.open("h/0/w.npy") as file:
            numpy.testing.assert_array_equal(numpy.load(file), self.weight.numpy())
        self.assertEqual(files.cat_file("h/0/w.memmap", 4, 12), self.weight.numpy().tobytes()[4:12])
        self.assertRaises(OSError, files.open, "new", "wb")
        self.assertRaises(FileNotFoundError, files.open, "none")

    def test_a_copy_of_the_object_has_the_same_mount(self):
        files = fsspec.filesystem("ckptfs", fo=str(self.file))
        self.assertIs(pickle.loads(pickle.dumps(files)), files)
        self.assertEqual(len(self.mounted()), 1)

    def test_a_remote_checkpoint_is_named_by_its_uri(self):
        for chain in "http://127.0.0.1:9/x.pth", "file:///nothing":
            with self.assertRaises(ckptfs.Error) as caught:
                fsspec.filesystem("ckptfs", fo=chain)
            self.assertEqual(caught.exception.exit_code, mounts.SOURCE)
        self.assertFails("^hf://org/model", CheckpointFileSystem, "org/model", target_protocol="hf",
                         options=["timeout=1,endpoint=http://127.0.0.1:9"], code=mounts.SOURCE)
        self.assertRaises(ValueError, CheckpointFileSystem, "x", target_options={"key": "secret"})
