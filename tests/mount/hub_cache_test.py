"""The local cache of the client of the hub, which files are read from, and the hashes of files."""

import errno
import os
import sys

import ckptfs
import hub_test
from ckptfs import SOURCE
from hub_test import model

sys.path.insert(0, str(ckptfs.TESTS / "servers"))
from hub import git_id, sha256


class LocalCache(hub_test.Case):
    def setUp(self):
        super().setUp()
        self.hub.large = 1000
        self.data = os.urandom(100_000)
        self.files = {"sub/m.safetensors": model(w=self.data), "README.md": b"read me"}
        self.commit = self.hub.add("org/model", self.files)
        self.expected = [("tensor", "w", self.data)]
        self.root = self.home / ".cache" / "huggingface" / "hub" / "models--org--model"

    def fill(self, *paths):
        """Caches these files as the client of the hub does. Returns the blob of the last one."""
        for path in paths:
            content = self.files[path]
            blob = self.root / "blobs" / (sha256(content) if len(content) >= self.hub.large else git_id(content))
            link = self.root / "snapshots" / self.commit / path
            for file in (blob, link, self.root / "refs" / "main"):
                file.parent.mkdir(parents=True, exist_ok=True)
            blob.write_bytes(content)
            link.symlink_to(os.path.relpath(blob, link.parent))
            (self.root / "refs" / "main").write_text(self.commit)
        return blob

    def assertReads(self, *options, fetches=False):
        """The model is read, from the hub or from the local cache."""
        self.hub.log.clear()
        self.assertEqual(self.mounted("hf://org/model/sub/m.safetensors", *options), self.expected)
        self.assertEqual(bool([path for path in self.hub.paths("hub") if "/resolve/" in path]), fetches)

    def test_a_file_that_is_there_is_not_fetched(self):
        self.assertReads(fetches=True)
        self.fill("sub/m.safetensors")
        self.assertReads()
        self.assertReads("-o", f"cache_dir={self.scratch()}")

    def test_a_blob_of_another_size_is_not_read(self):
        blob = self.fill("sub/m.safetensors")
        blob.write_bytes(blob.read_bytes() + b"x")
        self.assertReads(fetches=True)

    def test_a_blob_that_others_may_have_written_is_not_read(self):
        blob = self.fill("sub/m.safetensors")
        for path, mode in ((blob, 0o644), (blob.parent, 0o755)):
            path.chmod(mode | 0o002)
            self.assertReads(fetches=True)
            self.assertReads("-o", "follow_links")
            path.chmod(mode)
            self.assertReads()
            if os.geteuid() == 0:
                os.chown(path, 12345, 12345)
                self.assertReads(fetches=True)
                self.assertReads("-o", "follow_links")
                os.chown(path, 0, 0)

    def test_a_blob_that_is_a_link_or_a_pipe_is_not_read(self):
        blob = self.fill("sub/m.safetensors")
        blob.rename(blob.with_name("other"))
        blob.symlink_to("other")
        self.assertReads(fetches=True)
        blob.unlink()
        os.mkfifo(blob)
        self.assertReads(fetches=True)

    def test_a_blob_that_is_removed_or_replaced_is_fetched(self):
        def replace(blob):
            os.utime(blob, (1, 1))
            blob.write_bytes(bytes(len(blob.read_bytes())))
        for change in (ckptfs.Path.unlink, replace):
            self.data = os.urandom(8 << 20)
            self.files["sub/m.safetensors"] = model(w=self.data)
            self.commit = self.hub.add("org/model", self.files)
            blob = self.fill("sub/m.safetensors")
            with self.mount("hf://org/model/sub/m.safetensors") as mount:
                change(blob)
                self.assertEqual(ckptfs.read(mount / "w.memmap"), self.data)

    def test_offline_nothing_else_is_used(self):
        self.fill("sub/m.safetensors")
        endpoint = {"HF_HUB_OFFLINE": "1", "HF_ENDPOINT": "http://127.0.0.1:1"}
        for source in ("hf://org/model/sub", "hf://org/model@main/sub/m.safetensors", f"hf://org/model@{self.commit}/sub/"):
            self.assertEqual(self.mounted(source, **endpoint), self.expected)
        cache = self.root.parent
        missing = f"is not in the local cache '{cache}', and HF_HUB_OFFLINE is set"
        for source, sentence in (("hf://org/model/README.md", "not in the local cache, and HF_HUB_OFFLINE is set"),
                                 ("hf://org/model@v2", f"revision 'v2' {missing}"),
                                 ("hf://org/other", f"revision 'main' {missing}"),
                                 (f"hf://org/model@{'0' * 40}", f"commit {'0' * 40} {missing}")):
            self.assertRefused(self.refused(source, **endpoint), SOURCE, f"{source}: {sentence}")
        self.assertEqual(self.hub.log, [])


class Hashes(hub_test.Case):
    def setUp(self):
        super().setUp()
        self.hub.large = 1000
        self.data = os.urandom(1 << 20)
        self.file = model(w=self.data, x=b"end")
        self.hub.add("org/model", {"m.safetensors": self.file})

    def assertVerdict(self, mount, verdict):
        self.assertEqual(os.getxattr(mount / "w.memmap", "user.ckptfs.verified"), verdict)

    def test_a_large_file_is_verified_once_all_of_it_was_read(self):
        log = self.scratch() / "log"
        with self.mount("hf://org/model", "-o", f"verify=enforce,xattr,logfile={log}") as mount:
            self.assertVerdict(mount, b"unread")
            self.assertEqual(ckptfs.read(mount / "x.memmap"), b"end")
            self.assertEqual(ckptfs.read(mount / "w.memmap"), self.data)
            self.assertVerdict(mount, b"yes")
        self.assertIn("hf://org/model/m.safetensors: all bytes: SHA-256 matches\n", log.read_text())

    def assertCorrupt(self):
        log = self.scratch() / "log"
        with self.mount("hf://org/model", "-o", f"verify=enforce,xattr,logfile={log}") as mount:
            self.assertEqual(ckptfs.read(mount / "x.memmap"), b"end")
            self.assertErrno(errno.EIO, ckptfs.read, mount / "w.memmap")
            self.assertVerdict(mount, b"no")
        self.assertIn("hf://org/model/m.safetensors: all bytes: SHA-256 mismatch", log.read_text())

    def corrupt(self):
        other = bytearray(self.file)
        other[500_000] ^= 1
        return bytes(other)

    def test_other_bytes_of_the_network_are_an_error(self):
        self.hub.blobs[sha256(self.file)] = self.corrupt()
        self.assertCorrupt()

    def test_other_bytes_in_the_local_cache_are_an_error(self):
        blob = self.home / ".cache/huggingface/hub/models--org--model/blobs" / sha256(self.file)
        blob.parent.mkdir(parents=True)
        blob.write_bytes(self.corrupt())
        self.assertCorrupt()
        self.assertEqual(self.hub.paths("network"), [])


if __name__ == "__main__":
    ckptfs.unittest.main()
