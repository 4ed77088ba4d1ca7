"""Symbolic links that somebody else has put into the directory of a checkpoint."""

import errno
import hashlib
import json
import os
import pwd
import shutil

import ckptfs
import craft

SECRET = b"root:*:20228:"
INDEX = "model.safetensors.index.json"
TYPE = "<class 'tensordict._td.TensorDict'>"
HINT = "to follow it, use -o follow_links"


def write_shard(path, tensors):
    header, data = {}, b""
    for name, piece in tensors.items():
        header[name] = {"dtype": "U8", "shape": [len(piece)],
                        "data_offsets": [len(data), len(data) + len(piece)]}
        data += piece
    craft.write_safetensors(path, json.dumps(header), data)


class Links(ckptfs.Case):
    """Root mounts a directory of the user nobody, beside which a file lies that only root may read."""

    def setUp(self):
        if os.geteuid() != 0:
            self.skipTest("needs root")
        self.nobody = pwd.getpwnam("nobody")
        self.base = self.scratch()
        self.folder = self.base / "model"
        self.folder.mkdir()
        self.secret = self.base / "secret"
        self.secret.write_bytes(SECRET)
        self.secret.chmod(0o600)

    def give(self, *paths):
        for path in paths:
            os.chown(path, self.nobody.pw_uid, self.nobody.pw_gid, follow_symlinks=False)

    def link(self, name, target, directory=None):
        """A link of nobody's."""
        path = (directory or self.folder) / name
        path.parent.mkdir(exist_ok=True)
        path.symlink_to(target)
        self.give(path)

    def write_tensordict(self, entries, directory=None):
        directory = directory or self.folder
        directory.mkdir(exist_ok=True)
        meta = entries | {"shape": [], "device": "cpu", "_type": TYPE}
        (directory / "meta.json").write_text(json.dumps(meta))
        self.give(directory, directory / "meta.json")

    def entry(self, count):
        return {"shape": [count], "dtype": "torch.uint8", "is_nested": False}

    def assertHidden(self, root):
        """No file of the mount has a byte of the secret."""
        for directory, _, names in os.walk(root):
            for name in names:
                try:
                    self.assertNotIn(SECRET[:5], ckptfs.read(os.path.join(directory, name)))
                except OSError as error:
                    self.assertIn(error.errno, (errno.EIO, errno.EACCES))

    def test_a_tensor_that_is_a_link_to_a_secret_cannot_be_read(self):
        self.write_tensordict({"w": self.entry(len(SECRET)), "t": self.entry(2)})
        self.link("w.memmap", self.secret)
        (self.folder / "t.memmap").write_bytes(b"01")
        for options in [], ["-o", "allow_other"]:
            with self.subTest(options=options):
                mount = self.mount(self.folder, *options, quiet=False)
                self.assertEqual(mount.messages.count("\n"), 1)
                self.assertIn("tensor 'w'", mount.messages)
                self.assertIn(HINT, mount.messages)
                self.assertHidden(mount.path)
                self.assertEqual(ckptfs.read(mount / "t.memmap"), b"01")
                mount.unmount()

    def test_follow_links_permits_it(self):
        self.write_tensordict({"w": self.entry(len(SECRET))})
        self.link("w.memmap", self.secret)
        mount = self.mount(self.folder, "-o", "allow_other,follow_links")
        self.assertEqual(ckptfs.read(mount / "w.memmap"), SECRET)

    def test_a_meta_json_that_is_a_link_to_a_secret_is_not_shown(self):
        self.link("meta.json", self.secret)
        done = self.ckptfs(self.folder, self.mountpoint())
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stderr.count("\n"), 1)
        self.assertIn(HINT, done.stderr)
        self.assertNotIn("root:", done.stderr)

    def test_a_nested_meta_json_that_is_a_link_is_not_shown(self):
        self.write_tensordict({"below": {"type": "TensorDict"}, "t": self.entry(2)})
        (self.folder / "t.memmap").write_bytes(b"01")
        self.link("meta.json", self.secret, self.folder / "below")
        done = self.ckptfs(self.folder, mountpoint := self.mountpoint())
        self.assertIn(HINT, done.stderr)
        self.assertHidden(mountpoint)
        if done.returncode == 0:
            ckptfs.Mount(mountpoint, self.daemon_of(mountpoint), "").release()

    def test_a_directory_that_is_a_link_is_not_entered(self):
        self.write_tensordict({"d": {"type": "TensorDict"}, "t": self.entry(2)})
        (self.folder / "t.memmap").write_bytes(b"01")
        self.write_tensordict({"w": self.entry(len(SECRET))}, self.base / "elsewhere")
        os.rename(self.secret, self.base / "elsewhere" / "w.memmap")
        self.link("d", self.base / "elsewhere")
        mount = self.mount(self.folder, quiet=False)
        self.assertHidden(mount.path)

    def test_a_shard_that_is_a_link_is_lost(self):
        write_shard(self.base / "private", {"b": SECRET})
        write_shard(self.folder / "1.safetensors", {"a": b"A"})
        self.link("2.safetensors", "../private")
        (self.folder / INDEX).write_text(json.dumps(
            {"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}))
        mount = self.mount(self.folder, quiet=False)
        self.assertIn(HINT, mount.messages)
        self.assertIn("2.safetensors", mount.messages)
        self.assertHidden(mount.path)
        self.assertEqual(ckptfs.read(mount / "a.memmap"), b"A")

    def readable(self, mount):
        """The tensor files that can be read, with their bytes."""
        found = {}
        for path in mount.path.rglob("*.memmap"):
            try:
                found[path.relative_to(mount.path)] = ckptfs.read(path)
            except OSError as error:
                self.assertIn(error.errno, (errno.EIO, errno.EACCES))
        return found

    def assertPartIsHidden(self, files, linked, source=None):
        """A copy of `files`, of which `linked` is a link of nobody's to a file of root's."""
        for file in files:
            shutil.copy(file, self.folder)
        self.give(self.folder, *self.folder.iterdir())
        source = self.folder / source if source else self.folder
        whole = self.mount(source, quiet=False)
        expected = self.readable(whole)
        whole.release()
        private = self.base / "private"
        os.rename(self.folder / linked, private)
        os.chown(private, 0, 0)
        private.chmod(0o600)
        self.link(linked, "../private")
        mountpoint = self.mountpoint()
        done = self.ckptfs(source, mountpoint)
        self.assertIn(HINT, done.stderr)
        self.assertIn(linked, done.stderr)
        if done.returncode == 0:
            mount = ckptfs.Mount(mountpoint, self.daemon_of(mountpoint), "")
            self.addCleanup(mount.release)
            found = self.readable(mount)
            self.assertLess(len(found), len(expected))
            self.assertEqual(found, {name: expected[name] for name in found})
        followed = self.mount(source, "-o", "follow_links", quiet=False)
        self.assertEqual(self.readable(followed), expected)

    def test_a_shard_of_a_distributed_checkpoint(self):
        sample = ckptfs.SAMPLES / "dcp/torch-2.13/dcp_2ranks"
        self.assertPartIsHidden(list(sample.iterdir()), "__1_0.distcp")

    def test_the_metadata_of_a_distributed_checkpoint(self):
        sample = ckptfs.SAMPLES / "dcp/torch-2.13/dcp_2ranks"
        self.assertPartIsHidden(list(sample.iterdir()), ".metadata")

    def test_a_shard_of_torch(self):
        sample = ckptfs.SAMPLES / "sharded/hf_bin"
        self.assertPartIsHidden(list(sample.iterdir()), "pytorch_model-00002-of-00002.bin")

    def test_an_index(self):
        sample = ckptfs.SAMPLES / "sharded/hf_bin"
        self.assertPartIsHidden(list(sample.iterdir()), "pytorch_model.bin.index.json")

    def test_parts_of_a_gguf(self):
        parts = sorted(ckptfs.SAMPLES.glob("gguf/w_split-0000?-of-00003.gguf"))
        self.assertEqual(len(parts), 3)
        self.assertPartIsHidden(parts, parts[2].name, parts[0].name)

    def test_a_pickle_of_a_tensordict(self):
        sample = ckptfs.SAMPLES / "tensordict/tensordict_memmap_v0.15.3/obj"
        for file in sample.iterdir():
            shutil.copy(file, self.folder)
        self.give(self.folder, *self.folder.iterdir())
        os.rename(self.folder / "other.pickle", self.base / "private")
        os.chown(self.base / "private", 0, 0)
        self.link("other.pickle", "../private")
        done = self.ckptfs(self.folder, mountpoint := self.mountpoint())
        self.assertIn(HINT, done.stderr + ("" if done.returncode else ckptfs.read(
            mountpoint / "meta.json").decode()))

    def test_a_sidecar_of_tensorizer(self):
        identity = craft.sequence(craft.text("TensorizerPickler"), craft.integer(0),
                                  craft.text("storage"), craft.integer(0),
                                  craft.glob("torch", "float32"))
        data = craft.tensor("0", [6]).replace(craft.storage("0", 6), identity + b"Q")
        craft.write_archive(self.folder / "m.pt", [
            craft.Record("data.pkl", craft.PROTO + data + craft.STOP),
            craft.Record("version", b"3\n")])
        self.give(self.folder, self.folder / "m.pt")
        self.link("m.pt.tensors", "../secret")
        done = self.ckptfs(self.folder / "m.pt", self.mountpoint())
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("m.pt.tensors", done.stderr)
        self.assertIn(HINT, done.stderr)
        done = self.ckptfs("-o", "follow_links", self.folder / "m.pt", self.mountpoint())
        self.assertNotEqual(done.returncode, 0)
        self.assertNotIn(HINT, done.stderr)

    def test_the_only_checkpoint_of_a_directory_that_is_a_link(self):
        write_shard(self.base / "private", {"b": SECRET})
        self.link("model.safetensors", "../private")
        done = self.ckptfs(self.folder, self.mountpoint())
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stderr.count("\n"), 1)
        self.assertIn("model.safetensors", done.stderr)
        self.assertIn(HINT, done.stderr)

    def test_a_chain_of_links_is_not_followed(self):
        self.write_tensordict({"w": self.entry(len(SECRET))})
        self.link("d", "..")
        self.link("a", "d/secret")
        (self.folder / "w.memmap").symlink_to("a")
        done = self.ckptfs(self.folder, mountpoint := self.mountpoint())
        self.assertIn(HINT, done.stderr)
        self.assertHidden(mountpoint)
        if done.returncode == 0:
            ckptfs.Mount(mountpoint, self.daemon_of(mountpoint), "").release()

    def test_a_device_is_not_opened(self):
        self.write_tensordict({"w": self.entry(2), "t": self.entry(2)})
        (self.folder / "t.memmap").write_bytes(b"01")
        (self.folder / "w.memmap").symlink_to("/dev/zero")
        mount = self.mount(self.folder, quiet=False)
        self.assertIn("not a regular file", mount.messages)
        self.assertErrno(errno.EIO, ckptfs.read, mount / "w.memmap")

    def test_a_link_to_a_file_of_its_owner_is_followed(self):
        self.write_tensordict({"w": self.entry(2)})
        (self.base / "blob").write_bytes(b"01")
        self.give(self.base / "blob")
        self.link("w.memmap", "../blob")
        mount = self.mount(self.folder)
        self.assertEqual(ckptfs.read(mount / "w.memmap"), b"01")
        mount.unmount()
        # With allow_other it must not leave the directory.
        done = self.ckptfs("-o", "allow_other", self.folder, mountpoint := self.mountpoint())
        self.assertIn("allow_other", done.stderr)
        self.assertIn(HINT, done.stderr)
        if done.returncode == 0:
            ckptfs.Mount(mountpoint, self.daemon_of(mountpoint), "").release()

    def test_the_cache_of_hugging_face_is_followed_with_allow_other_too(self):
        cache = self.base / "models--x--y"
        blobs, snapshot = cache / "blobs", cache / "snapshots/0123abcd"
        blobs.mkdir(parents=True)
        snapshot.mkdir(parents=True)
        write_shard(self.base / "shard", {"a": b"A"})
        name = hashlib.sha256((self.base / "shard").read_bytes()).hexdigest()
        os.rename(self.base / "shard", blobs / name)
        self.link("model.safetensors", f"../../blobs/{name}", snapshot)
        self.give(blobs / name)
        for options in [], ["-o", "allow_other"]:
            for source in snapshot, snapshot / "model.safetensors":
                with self.subTest(options=options, source=source):
                    mount = self.mount(source, *options)
                    self.assertEqual(ckptfs.read(mount / "a.memmap"), b"A")
                    mount.unmount()
