"""The wheel, in environments of its own: without other packages, and beside torch and NumPy.

It takes minutes to compile: tools/nightly runs this.
"""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from package import ROOT, Case, mounts, torch

EXAMPLE = """
import ckptfs, sys
for backend in "fuse", "pipe":
    with ckptfs.open(sys.argv[1], backend=backend) as model:
        print(list(model), bytes(model.raw("w")).hex(), dict(model.values))
        try:
            print(type(model["w"]).__module__, model["w"].tolist())
        except ckptfs.Error as error:
            print(error)
"""

CHAIN = """
import fsspec, sys
with fsspec.open(f"ckptfs://w.memmap::{sys.argv[1]}") as file:
    print(file.read().hex())
"""


class Wheel(Case):
    @classmethod
    def setUpClass(cls):
        cls.folder = mounts.tempfile.mkdtemp(prefix="ckptfs-wheel.")
        cls.addClassCleanup(mounts.shutil.rmtree, cls.folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", cls.folder, ROOT],
                       check=True)
        cls.wheel, = Path(cls.folder).glob("ckptfs-*.whl")

    def setUp(self):
        super().setUp()
        os.environ.pop("CKPTFS_PROGRAM")  # The installed one is to be found.
        self.file = self.save({"w": torch.tensor([1, 2], dtype=torch.uint8), "epoch": 3})

    def environment(self, packages=None):
        """A new environment with the wheel, and what matches `packages` of the Python that runs this; returns its
        Python."""
        folder = self.directory / "environment"
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        python = folder / "bin" / "python"
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", self.wheel], check=True)
        installed = next((folder / "lib").glob("python3*")) / "site-packages"
        for path in Path(sysconfig.get_path("purelib")).glob(packages) if packages else ():
            if not (installed / path.name).exists():
                (installed / path.name).symlink_to(path)
        return python

    def run_python(self, python, code, *arguments):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        done = mounts.run(python, "-c", code, *arguments, env=environment, cwd=self.directory)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.splitlines()

    def test_alone(self):
        python = self.environment()
        self.assertEqual(self.run_python(python, EXAMPLE, self.file), [
            "['w'] 0102 {'epoch': 3}", "an array needs numpy: pip install numpy"] * 2)
        for program in "ckptfs", "ckpt":
            self.assertEqual(mounts.run(python.with_name(program), "--version").returncode, 0)

    def test_with_numpy(self):
        self.assertEqual(self.run_python(self.environment("numpy*"), EXAMPLE, self.file), [
            "['w'] 0102 {'epoch': 3}", "numpy [1, 2]"] * 2)

    def test_with_fsspec(self):
        self.assertEqual(self.run_python(self.environment("fsspec*"), CHAIN, self.file), ["0102"])

    def test_with_torch_the_examples_of_the_documentation_run(self):
        python = self.environment("*")
        self.assertEqual(self.run_python(python, EXAMPLE, self.file), [
            "['w'] 0102 {'epoch': 3}", "torch [1, 2]"] * 2)
        done = mounts.run(sys.executable, ROOT / "tests" / "readme_test.py", python.with_name("ckptfs"),
                          python.with_name("ckpt"), ROOT / "docs" / "python.md", ROOT / "docs" / "ckpt.md", timeout=300,
                          env=os.environ | {"CKPTFS_PYTHON": str(python), "PYTHONPATH": ""})
        self.assertEqual(done.returncode, 0, done.stdout)
