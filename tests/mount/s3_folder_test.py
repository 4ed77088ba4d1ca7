"""Folders of a bucket are mounted as local directories are. The server is a real one."""

import errno
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ckptfs
import s3_case
import view
from ckptfs import SAMPLES, SOURCE
from s3_case import contents

sys.path.insert(0, str(ckptfs.TESTS / "servers"))
from fault_server import FaultServer

# Each may be in a key; what they mean to URLs, XML, signatures and terminals differs.
ODD = ["a b", "a+b", "50%", "%20", "x?y#z", "ä", "日本", "~-_.!*'()", ":@,;$", "&<>\"'", "=", "..."]


def shard(name, body):
    header = {name: {"dtype": "U8", "shape": [len(body)], "data_offsets": [0, len(body)]}}
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


def index(files):
    return json.dumps({"metadata": {"total_size": 0}, "weight_map": files}).encode()


class Folders(s3_case.Case):
    def assertSameAsDirectory(self, directory, prefix):
        """The folder is on its mount what the directory is that was uploaded to it."""
        self.upload(directory, prefix)
        local = contents(self.mount(directory, quiet=False))
        mount = self.mount(f"s3://models/{prefix}", env=self.somebody(), quiet=False)
        self.assertEqual(contents(mount), local)
        self.assertTrue(local)
        return mount

    def test_sharded_safetensors_are_one_checkpoint(self):
        self.assertSameAsDirectory(SAMPLES / "sharded" / "hf_safetensors", "llm/main/")

    def test_sharded_pickles_are_one_checkpoint(self):
        self.assertSameAsDirectory(SAMPLES / "sharded" / "hf_bin", "llm/bin/")

    def test_a_distributed_checkpoint_of_torch_is_one_checkpoint(self):
        directory = self.scratch()
        done = ckptfs.run(sys.executable, "-B", Path(__file__).with_name("dcp_save.py"), directory,
                          2, 200, timeout=120)
        if "ModuleNotFoundError" in done.stderr:
            self.skip_avoidable(done.stderr.splitlines()[-1])
        self.assertEqual(done.returncode, 0, done.stderr)
        mount = self.assertSameAsDirectory(directory / "200", "dcp/200/")
        told = json.loads((directory / "200.json").read_text())["tensors"]
        self.assertEqual({keys: [[leaf.dtype, list(leaf.shape), leaf.sha256] for leaf in leaves]
                          for keys, leaves in view.tensors(mount.path).items()}, told)

    def test_a_directory_of_tensordict_is_one_checkpoint(self):
        self.assertSameAsDirectory(SAMPLES / "tensordict" / "tensordict_memmap_v0.15.3", "td/")

    def test_a_whole_bucket_is_a_folder(self):
        self.client.create_bucket(Bucket="whole")
        body = b"whole bucket"
        self.client.put_object(Bucket="whole", Key="m.safetensors", Body=shard("w", body))
        self.client.put_object(Bucket="whole", Key="model.safetensors.index.json",
                               Body=index({"w": "m.safetensors"}))
        for source in ("s3://whole", "s3://whole/"):
            with self.mount(source, env=self.somebody()) as mount:
                self.assertEqual(contents(mount), [("tensor", "w", body)])

    def test_the_index_leads_to_its_files(self):
        self.put("named/m.safetensors", shard("w", b"by index"))
        self.put("named/other.safetensors", shard("x", b"not named"))
        self.put("named/model.safetensors.index.json", index({"w": "m.safetensors"}))
        mount = self.mount("s3://models/named/model.safetensors.index.json", env=self.somebody(),
                           quiet=False)
        self.assertEqual(contents(mount), [("tensor", "w", b"by index")])

    def test_files_and_folders_have_odd_names(self):
        files = {}
        for number, odd in enumerate(ODD):
            files[f"w{number}"] = f"{odd}.safetensors"
            self.put(f"odd/{'/'.join(ODD)}/{odd}.safetensors",
                     shard(f"w{number}", f"{number} {odd}".encode()))
        # Not in a listing, or not as a file.
        for key in ("", "./x", "../x", "/x", "a\\b"):
            self.put(f"odd/{'/'.join(ODD)}/{key}", b"")
        self.put(f"odd/{'/'.join(ODD)}/model.safetensors.index.json", index(files))
        mount = self.mount(f"s3://models/odd/{'/'.join(ODD)}/", env=self.somebody())
        self.assertEqual(sorted(contents(mount)),
                         sorted(("tensor", f"w{number}", f"{number} {odd}".encode())
                                for number, odd in enumerate(ODD)))

    def test_a_folder_has_several_pages_of_files(self):
        count = 601  # A page has 250.
        files = {}
        def put(number):
            self.put(f"pages/n{number:04}.txt", b"not looked at")
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(put, range(count)))
        # The last ones, which are found only on the last page.
        for name in "yz":
            files[name] = f"z{name}.safetensors"
            self.put(f"pages/z{name}.safetensors", shard(name, name.encode()))
        self.put("pages/zz.safetensors.index.json", index(files))
        mount = self.mount("s3://models/pages/", env=self.somebody())
        self.assertEqual(contents(mount), [("tensor", "y", b"y"), ("tensor", "z", b"z")])

    def test_a_missing_shard_costs_its_tensors_alone(self):
        self.put("torn/m1.safetensors", shard("a", b"here"))
        self.put("torn/model.safetensors.index.json",
                 index({"a": "m1.safetensors", "b": "m2.safetensors"}))
        mount = self.mount("s3://models/torn/", env=self.somebody(), quiet=False)
        self.assertEqual(ckptfs.read(mount / "a.memmap"), b"here")
        self.assertIn("m2.safetensors", mount.messages)

    def test_companions_in_subfolders_are_there(self):
        self.put("repo/model.safetensors", shard("w", b"weights"))
        for key in ("config.json", "1_Pooling/config.json", "a/b/c.txt", ".cache/hidden.txt"):
            self.put(f"repo/{key}", key.encode())
        mount = self.mount("s3://models/repo/", env=self.somebody())
        for key in ("config.json", "1_Pooling/config.json", "a/b/c.txt"):
            self.assertEqual(ckptfs.read(mount / key), key.encode())
        self.assertFalse((mount / ".cache").exists())

    def test_companions_of_many_subfolders_are_not_listed(self):
        self.put("wide/model.safetensors", shard("w", b"weights"))
        for i in range(30):
            self.put(f"wide/{i:02}/notes.txt", b"notes\n")
        mount = self.mount("s3://models/wide/", env=self.somebody(), quiet=False)
        self.assertIn("shows not all of the very many other files", mount.messages)
        self.assertEqual(ckptfs.read(mount / "19/notes.txt"), b"notes\n")
        self.assertFalse((mount / "20").exists())

    def test_nothing_is_below_the_prefix(self):
        done = self.ckptfs("s3://models/no/such/", self.mountpoint(), env=self.somebody())
        self.assertRefused(done, SOURCE, "s3://models/no/such/: no such object or folder")

    def test_there_is_no_such_bucket(self):
        done = self.ckptfs("s3://no-such-bucket/", self.mountpoint(), env=self.somebody())
        self.assertRefused(done, SOURCE,
                           "s3://no-such-bucket/: no such bucket")


class Counted(s3_case.Case):
    """The requests for a TensorDict, whose files are known from the listing of their directory."""

    SIZE = 200_000
    NAMES = [f"w{i:02}" for i in range(12)]

    def setUp(self):
        super().setUp()
        self.proxy = FaultServer(upstream=self.server.endpoint.removeprefix("http://"))
        self.addCleanup(self.proxy.__exit__)
        self.bytes = {name: name.encode() * (self.SIZE // 3) for name in self.NAMES}
        leaf = {"device": "cpu", "shape": [self.SIZE // 3 * 3], "dtype": "torch.uint8", "is_nested": False}
        head = {"shape": [], "device": "cpu", "_type": "<class 'tensordict._td.TensorDict'>"}
        self.put("counted/meta.json", json.dumps({name: leaf for name in self.NAMES} | head).encode())
        for name, data in self.bytes.items():
            self.put(f"counted/{name}.memmap", data)
        endpoint = f"http://127.0.0.1:{self.proxy.port}"
        self.mounted = self.mount("s3://models/counted/", env=self.somebody(AWS_ENDPOINT_URL=endpoint))

    def test_opening_costs_a_listing_and_the_metadata(self):
        log = self.proxy.stats()["log"]
        self.assertEqual([e["path"] for e in log if ".memmap" in e["path"]], [])
        self.assertLessEqual(len(log), 3)

    def test_every_request_is_for_the_listed_version(self):
        for name, data in self.bytes.items():
            self.assertEqual(ckptfs.read(self.mounted / f"{name}.memmap"), data)
        log = [e for e in self.proxy.stats()["log"] if ".memmap" in e["path"]]
        self.assertEqual([e for e in log if "if-match" not in e["headers"]], [])
        self.assertLessEqual(sum(e["sent"] for e in log), 1.01 * sum(map(len, self.bytes.values())))

    def test_a_file_that_was_replaced_is_stale(self):
        self.put("counted/w05.memmap", bytes(self.SIZE // 3 * 3))
        self.assertErrno(errno.ESTALE, ckptfs.read, self.mounted / "w05.memmap")
        self.assertEqual(ckptfs.read(self.mounted / "w06.memmap"), self.bytes["w06"])


if __name__ == "__main__":
    ckptfs.unittest.main()
