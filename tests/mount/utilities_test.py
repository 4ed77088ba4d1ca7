"""The programs that people point at a directory give the same as with a copy on a real disk."""

import os
import subprocess
from pathlib import Path

import ckptfs

SAMPLE = ckptfs.SAMPLES / "demo.pth"


def listing(root):
    """Properties of a tree that programs see: names, kinds, sizes, modes, times, links, bytes."""
    inodes, found = {}, {}
    for directory, directories, files in os.walk(root):
        directories.sort()
        for name in sorted(directories + files):
            path = os.path.join(directory, name)
            status = os.lstat(path)
            is_file = not os.path.isdir(path)
            inode = inodes.setdefault(status.st_ino, len(inodes))
            found[os.path.relpath(path, root)] = (
                inode if is_file else "directory", status.st_nlink, status.st_mode,
                status.st_size if is_file else None, status.st_mtime_ns // 1_000_000_000,
                ckptfs.read(path) if is_file else None)
    return found


class Utilities(ckptfs.Case):
    def setUp(self):
        self.root = self.mount(SAMPLE).path
        self.there = self.scratch()

    def tearDown(self):
        # Copies of directories without write permission cannot be removed by other users than root.
        ckptfs.run("chmod", "-R", "u+w", self.there)

    def copy(self):
        copy = self.there / "copy"
        ckptfs.run("cp", "-a", self.root, copy, check=True)
        return copy

    def test_cp_a_copies_names_bytes_links_and_times(self):
        self.assertEqual(listing(self.copy()), listing(self.root))
        self.assertIn(2, {facts[1] for name, facts in listing(self.root).items()
                          if name.endswith(".memmap")})

    def test_tar_packs_and_unpacks_it(self):
        copy = self.there / "copy"
        copy.mkdir()
        pack = subprocess.Popen(["tar", "-C", self.root, "-cf", "-", "."], stdout=subprocess.PIPE)
        ckptfs.run("tar", "-C", copy, "-xpf", "-", stdin=pack.stdout, check=True)
        pack.stdout.close()
        self.assertEqual(pack.wait(), 0)
        self.assertEqual(listing(copy), listing(self.root))

    def test_rsync_a_copies_it_and_the_second_time_finds_nothing_to_do(self):
        self.need_command("rsync")
        copy = self.there / "copy"
        ckptfs.run("rsync", "-aH", f"{self.root}/", copy, check=True)
        self.assertEqual(listing(copy), listing(self.root))
        again = ckptfs.run("rsync", "-aHi", f"{self.root}/", copy, check=True)
        self.assertEqual(again.stdout, "")

    def test_diff_and_cmp_find_no_difference_to_a_copy(self):
        copy = self.copy()
        done = ckptfs.run("diff", "-r", self.root, copy)
        self.assertEqual((done.returncode, done.stdout), (0, ""))
        for path in sorted(self.root.rglob("*.memmap"))[:10]:
            done = ckptfs.run("cmp", path, copy / path.relative_to(self.root))
            self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))

    def test_find_sees_what_a_copy_has(self):
        copy = self.copy()

        def found(root):
            done = ckptfs.run("find", ".", "-printf", "%p %y %n %m\n", cwd=root, check=True)
            return sorted(done.stdout.splitlines())
        self.assertEqual(found(self.root), found(copy))
        empty = ckptfs.run("find", self.root, "-name", "*.memmap", "-newermt", "2100-01-01")
        self.assertEqual(empty.stdout, "")

    def test_ls_lists_everything_without_an_error(self):
        copy = self.copy()

        def listed(root):
            done = ckptfs.run("ls", "-lR", "--time-style=+%s", ".", cwd=root, check=True)
            self.assertEqual(done.stderr, "")
            # The size of a directory and the total of blocks are those of the file system.
            return [line.split()[5:] if line.startswith("d") else line.split()
                    for line in done.stdout.splitlines() if not line.startswith("total")]
        self.assertEqual(listed(self.root), listed(copy))

    def test_du_counts_each_tensor_once(self):
        done = ckptfs.run("du", "-s", "--apparent-size", "--block-size=1", "--inodes", self.root,
                          check=True)
        inodes = {p.lstat().st_ino for p in self.root.rglob("*")} | {self.root.lstat().st_ino}
        self.assertEqual(int(done.stdout.split()[0]), len(inodes))
        files = {p.lstat().st_ino: p.lstat() for p in self.root.rglob("*") if p.is_file()}
        blocks = sum(s.st_blocks for s in files.values()) * 512
        done = ckptfs.run("du", "-s", "--block-size=1", self.root, check=True)
        directories = [p for p in (self.root, *self.root.rglob("*")) if p.is_dir()]
        blocks += sum(d.lstat().st_blocks for d in directories) * 512
        self.assertEqual(int(done.stdout.split()[0]), blocks)

    def test_zip_packs_it(self):
        self.need_command("zip")
        archive = self.there / "packed.zip"
        ckptfs.run("zip", "-qr", archive, ".", cwd=self.root, check=True)
        self.assertEqual(ckptfs.run("zip", "-T", archive).returncode, 0)

    def test_eight_readers_at_once_get_the_same_bytes(self):
        digest = "find . -name '*.memmap' -o -name meta.json | sort | xargs cat | sha256sum"
        readers = [subprocess.Popen(["sh", "-c", digest], cwd=self.root, stdout=subprocess.PIPE,
                                    text=True) for _ in range(8)]
        sums = {reader.communicate(timeout=60)[0] for reader in readers}
        expected = ckptfs.run("sh", "-c", digest, cwd=self.copy(), check=True).stdout
        self.assertEqual(sums, {expected})

    def test_a_relative_source_and_mount_point_work(self):
        directory = self.scratch()
        (directory / "mnt").mkdir()
        (directory / "odd:name.pth").write_bytes(Path(SAMPLE).read_bytes())
        done = self.ckptfs("./odd:name.pth", "mnt", cwd=directory)
        self.addCleanup(ckptfs.run, "umount", directory / "mnt")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(listing(directory / "mnt").keys(), listing(self.root).keys())
