"""The whole tree of every sample, as text in tests/golden, or the error message.

A golden file shows each directory with its meta.json, one member a line, and each file with its
size, its inode (in order of appearance, so that hard links show) and the beginning of its SHA-256.
tests/mount/run tests/mount/golden_test.py --update writes them anew: git diff is the review.
"""

import gzip
import hashlib
import json
import os
import re

import ckptfs

GOLDEN = ckptfs.TESTS / "golden"

# Larger files are not read: they are zeros that take no room.
MOST = 1 << 30


def tree(root):
    inodes, lines = {}, []

    def visit(directory, name):
        lines.append(f"{name}/")
        names = os.listdir(os.fsencode(directory))
        for entry in sorted(names):
            path = os.path.join(os.fsencode(directory), entry)
            # Names are shown as JSON shows them: hostile ones have to stay on their line.
            shown = json.dumps(os.fsdecode(entry))[1:-1]
            stat = os.lstat(path)
            if os.path.isdir(path):
                continue
            if entry == b"meta.json":
                members = ckptfs.meta(os.fsdecode(directory))
                if "_ckptfs" in members:
                    members["_ckptfs"]["version"] = "VERSION"
                lines.extend(f"    {json.dumps(k)}: {json.dumps(v)}" for k, v in members.items())
                continue
            inode = inodes.setdefault(stat.st_ino, len(inodes) + 1)
            try:
                if stat.st_size > MOST:
                    lines.append(f"  {shown}  {stat.st_size} bytes, {stat.st_blocks} blocks")
                    continue
                data = ckptfs.read(path)
                what = hashlib.sha256(data).hexdigest()[:16]
                assert len(data) == stat.st_size, path
            except OSError as error:
                what = os.strerror(error.errno)
            lines.append(f"  {shown}  {stat.st_size} bytes, inode {inode} of {stat.st_nlink} "
                         f"names, {what}")
        for entry in sorted(names):
            path = os.path.join(os.fsencode(directory), entry)
            if os.path.isdir(path):
                visit(path, f"{name}/{json.dumps(os.fsdecode(entry))[1:-1]}")

    visit(root, ".")
    lines.append("tensors.jsonl")
    lines.extend("    " + line
                 for line in ckptfs.read(os.path.join(root, "tensors.jsonl")).decode().splitlines())
    return "\n".join(lines) + "\n"


class Golden(ckptfs.Case):
    def look(self, folder, name):
        """The mount of a sample as text."""
        mountpoint = self.mountpoint()
        # From the sample's folder, so that no path of this machine gets into the text.
        done = self.ckptfs(name, mountpoint, cwd=folder)
        said = re.sub(re.escape(str(mountpoint)), "MOUNTPOINT", done.stderr)
        text = f"exit code {done.returncode}\n{said}"
        if done.returncode == 0:
            mount = ckptfs.Mount(mountpoint, self.daemon_of(mountpoint), done.stderr)
            self.addCleanup(mount.release)
            text += tree(mountpoint)
            self.assertEqual(mount.unmount(), 0)
        return text

    def compare(self, folder, names):
        goldens = GOLDEN / folder.name
        for name in sorted(names):
            with self.subTest(name):
                golden = goldens / (name.replace("/", "_") + ".txt")
                text = self.look(folder, name)
                if os.environ.get("CKPTFS_UPDATE"):
                    golden.parent.mkdir(parents=True, exist_ok=True)
                    golden.write_text(text)
                else:
                    self.assertEqual(text, golden.read_text())
        self.assertEqual({p.name for p in goldens.glob("*")},
                         {n.replace("/", "_") + ".txt" for n in names})

    def compare_files(self, folder, ours=("expected.json", "README.md", "make_samples.py")):
        self.compare(folder, {str(p.relative_to(folder)) for p in folder.rglob("*")
                              if p.is_file() and p.name not in ours})

    def compare_packed(self, folder):
        """Every file, which gzip has made smaller."""
        unpacked = self.scratch() / folder.name
        unpacked.mkdir()
        for file in folder.glob("*.gz"):
            (unpacked / file.stem).write_bytes(gzip.decompress(file.read_bytes()))
        self.compare_files(unpacked)

    def compare_directories(self, folder):
        """Every directory below a folder in which there is no other one."""
        self.compare(folder, {str(p.relative_to(folder)) for p in folder.rglob("*")
                              if p.is_dir() and not any(q.is_dir() for q in p.iterdir())})

    def test_trees_of_torch_1_13(self):
        self.compare_files(ckptfs.SAMPLES / "torch-1.13")

    def test_trees_of_torch_2_13(self):
        self.compare_files(ckptfs.SAMPLES / "torch-2.13")

    def test_trees_of_frameworks(self):
        self.compare_files(ckptfs.SAMPLES / "frameworks")

    def test_trees_of_numpy(self):
        self.compare_files(ckptfs.SAMPLES / "npy")

    def test_trees_of_tensorizer(self):
        self.compare_packed(ckptfs.SAMPLES / "tensorizer")

    def test_trees_of_handmade_files_of_tensorizer(self):
        self.compare_files(ckptfs.SAMPLES / "tensorizer" / "handmade")

    def test_trees_of_gguf(self):
        self.compare_files(ckptfs.SAMPLES / "gguf")

    def test_trees_of_zanj(self):
        self.compare_files(ckptfs.SAMPLES / "zanj" / "zanj-0.6")

    def test_trees_of_older_files_of_zanj(self):
        self.compare_files(ckptfs.SAMPLES / "zanj" / "zanj-older")

    def test_trees_of_sharded_checkpoints(self):
        self.compare_directories(ckptfs.SAMPLES / "sharded")

    def test_trees_of_distributed_checkpoints(self):
        self.compare_directories(ckptfs.SAMPLES / "dcp")

    def test_trees_of_tensordict(self):
        folder = ckptfs.SAMPLES / "tensordict"
        self.compare(folder, {p.name for p in folder.iterdir()})
