"""The requests that a mount sends, counted by the server, so that no clock is involved."""

import json
import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import ckptfs
import craft
import tensors_craft
from craft import mapping, tensor

sys.path.insert(0, str(ckptfs.TESTS / "servers"))
from fault_server import FaultServer

MIB = 1 << 20
TENSORS = 6
TENSOR = 4 * MIB
GGUF_INT8 = 24


def describe(count, size):
    """The header of a safetensors file of `count` tensors of `size` bytes each."""
    return json.dumps({f"layer.t{i}": {"dtype": "U8", "shape": [size],
                                       "data_offsets": [i * size, (i + 1) * size]}
                       for i in range(count)})


def gguf_of(tensors):
    """A file of gguf with tensors of bytes."""
    def text(value):
        return struct.pack("<Q", len(value)) + value.encode()
    entries, offset = b"", 0
    for name, data in tensors.items():
        entries += text(name) + struct.pack("<IQIQ", 1, len(data), GGUF_INT8, offset)
        offset += len(data)
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), 0) + entries
    return header + bytes(-len(header) % 32) + b"".join(tensors.values())


class Access(ckptfs.Case):
    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory(prefix="ckptfs-test.")
        cls.addClassCleanup(directory.cleanup)
        cls.files = Path(directory.name)
        cls.data = os.urandom(TENSORS * TENSOR)
        craft.write_safetensors(cls.files / "model.safetensors", describe(TENSORS, TENSOR), cls.data)
        cls.server = cls.enterClassContext(FaultServer(cls.files))

    def setUp(self):
        self.server.reset()

    def counted(self, act):
        """Does something; returns the requests and bytes that it cost, and what it returned."""
        before = self.server.stats()
        result = act()
        after = self.server.stats()
        return after["requests"] - before["requests"], after["bytes"] - before["bytes"], result

    def mounted(self, name="model.safetensors", *options):
        return self.mount(self.server.url("/" + name), *options)

    def layer(self, mount, number):
        return mount / f"layer/t{number}.memmap"

    def wanted(self, number):
        return self.data[number * TENSOR:(number + 1) * TENSOR]

    def test_opening_a_small_file_of_safetensors_costs_one_request(self):
        craft.write_safetensors(self.files / "small.safetensors", describe(1, 8), b"12345678")
        requests, _, mount = self.counted(lambda: self.mounted("small.safetensors"))
        self.assertEqual(requests, 1)
        self.assertEqual(ckptfs.read(self.layer(mount, 0)), b"12345678")
        self.assertEqual(self.server.stats()["requests"], 1)

    def test_opening_a_file_with_its_headers_in_front_costs_one_request(self):
        for name in self.write_in_front():
            with self.subTest(name):
                requests, length, mount = self.counted(lambda name=name: self.mounted(name))
                self.assertEqual((requests, length), (1, 65536))
                self.assertEqual(ckptfs.read(mount / "t1.memmap"), self.data[MIB:2 * MIB])

    def write_in_front(self):
        """Writes files of two tensors of 1 MiB, whose headers are in the first 64 KiB."""
        tensors = {f"t{i}": self.data[i * MIB:(i + 1) * MIB] for i in range(2)}
        header = {name: {"dtype": "U8", "shape": [MIB], "data_offsets": [i * MIB, (i + 1) * MIB]}
                  for i, name in enumerate(tensors)}
        craft.write_safetensors(self.files / "front.safetensors", json.dumps(header), self.data[:2 * MIB])
        (self.files / "front.gguf").write_bytes(gguf_of(tensors))
        return "front.safetensors", "front.gguf"

    def test_opening_a_zip_archive_costs_its_two_ends(self):
        file = self.files / "ends.pth"
        craft.write_checkpoint(file, mapping(("a", tensor("0", [MIB]))), [("0", self.data[:4 * MIB])])
        requests, length, mount = self.counted(lambda: self.mounted(file.name))
        self.assertEqual(requests, 2)
        self.assertLessEqual(length, 65536 + (256 + 32) * 1024)
        self.assertEqual(ckptfs.read(mount / "a.memmap"), self.data[:4 * MIB])

    def test_opening_shards_of_safetensors_costs_one_request_each(self):
        count = 12
        for i in range(count):
            header = {f"w{i}": {"dtype": "U8", "shape": [MIB], "data_offsets": [0, MIB]}}
            craft.write_safetensors(self.files / f"shard-{i}.safetensors", json.dumps(header),
                                    self.data[:MIB])
        index = {"weight_map": {f"w{i}": f"shard-{i}.safetensors" for i in range(count)}}
        (self.files / "shards.safetensors.index.json").write_text(json.dumps(index))
        requests, length, _ = self.counted(lambda: self.mounted("shards.safetensors.index.json"))
        self.assertEqual(requests, count + 1)
        self.assertLessEqual(length, (count + 1) * 65536)

    def test_opening_20000_tensors_of_safetensors_costs_3_requests(self):
        file = self.files / "many.safetensors"
        craft.write_safetensors(file, describe(20_000, 4096))
        os.truncate(file, file.stat().st_size + 20_000 * 4096)
        requests, length, _ = self.counted(lambda: self.mounted(file.name))
        self.assertLessEqual(requests, 3)
        self.assertLess(length, 4 * MIB)

    def test_opening_20000_tensors_of_pytorch_costs_4_requests(self):
        file = self.files / "many.pth"
        craft.write_checkpoint(
            file, mapping(*((f"layer.t{i}", tensor(str(i), [16])) for i in range(20_000))),
            [(str(i), bytes(64)) for i in range(20_000)])
        requests, _, mount = self.counted(lambda: self.mounted(file.name))
        self.assertLessEqual(requests, 4)
        self.assertEqual(ckptfs.read(self.layer(mount, 777)), bytes(64))

    def test_opening_a_file_of_tensorizer_costs_3_requests(self):
        file = self.files / "many.tensors"
        tensors = tensors_craft.File(version=2)
        for i in range(200):
            tensors.add(f"layer.t{i}", "torch.float32", [256], bytes(1024))
        tensors.write(file)
        requests, _, _ = self.counted(lambda: self.mounted(file.name))
        self.assertLessEqual(requests, 3)

    def test_a_listing_costs_nothing(self):
        mount = self.mounted()
        requests, _, listing = self.counted(lambda: ckptfs.run("ls", "-lR", mount.path, check=True))
        self.assertEqual(requests, 0)
        self.assertEqual(listing.stdout.count(".memmap"), TENSORS)

    def test_4_kib_cost_little_more(self):
        mount = self.mounted()
        def read_a_little():
            with open(self.layer(mount, 3), "rb", buffering=0) as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
                return os.pread(file.fileno(), 4096, 1234567)
        requests, length, found = self.counted(read_a_little)
        self.assertEqual(found, self.wanted(3)[1234567:1234567 + 4096])
        self.assertEqual(requests, 1)
        self.assertLessEqual(length, 65536)

    def test_a_tensor_costs_itself(self):
        mount = self.mounted()
        _, length, found = self.counted(lambda: ckptfs.read(self.layer(mount, 2)))
        self.assertEqual(found, self.wanted(2))
        self.assertLessEqual(length, TENSOR + 2 * MIB)

    def test_all_tensors_cost_the_object_once(self):
        mount = self.mounted()
        for i in range(TENSORS):
            self.assertEqual(ckptfs.read(self.layer(mount, i)), self.wanted(i))
        stats = self.server.stats()
        self.assertLessEqual(stats["bytes"], 1.001 * (self.files / "model.safetensors").stat().st_size)
        self.assertLessEqual(stats["max_in_flight"], 8)

    def test_8_processes_that_read_a_tensor_cost_it_once(self):
        mount = self.mounted()
        path = self.layer(mount, 4)
        readers = [subprocess.Popen(["cmp", "-", path], stdin=subprocess.PIPE) for _ in range(8)]

        def compare():
            for reader in readers:
                reader.communicate(self.wanted(4), timeout=30)
            return [reader.returncode for reader in readers]
        _, length, codes = self.counted(compare)
        self.assertEqual(codes, [0] * 8)
        self.assertLessEqual(length, TENSOR + 2 * MIB)

    def test_every_request_after_the_first_is_for_the_version_that_was_opened(self):
        mount = self.mounted()
        ckptfs.read(self.layer(mount, 0))
        entries = self.server.stats()["log"]
        self.assertGreater(len(entries), 1)
        self.assertEqual([e["path"] for e in entries if not e["headers"].get("if-match")],
                         [entries[0]["path"]])

    def test_a_second_mount_with_a_cache_on_disk_asks_for_no_data(self):
        option = f"-ocache_dir={self.scratch()}/cache"
        with self.mounted("model.safetensors", option) as mount:
            for i in range(TENSORS):
                ckptfs.read(self.layer(mount, i))
            self.assertEqual(mount.unmount(), 0)
        self.server.reset()
        mount = self.mounted("model.safetensors", option)
        for i in range(TENSORS):
            self.assertEqual(ckptfs.read(self.layer(mount, i)), self.wanted(i))
        self.assertEqual(self.server.stats()["requests"], 1)  # Which version is there?

    def test_two_mounts_share_a_cache_on_disk(self):
        option = f"-ocache_dir={self.scratch()}/cache"
        first = self.mounted("model.safetensors", option)
        second = self.mounted("model.safetensors", option)
        for i in range(TENSORS):
            self.assertEqual(ckptfs.read(self.layer(first, i)), self.wanted(i))
        requests, _, _ = self.counted(
            lambda: [self.assertEqual(ckptfs.read(self.layer(second, i)), self.wanted(i))
                     for i in range(TENSORS)])
        self.assertEqual(requests, 0)

    def test_another_version_has_nothing_of_the_cache_on_disk(self):
        option = f"-ocache_dir={self.scratch()}/cache"
        file = self.files / "changing.safetensors"
        craft.write_safetensors(file, describe(1, MIB), self.data[:MIB])
        with self.mounted(file.name, option) as mount:
            self.assertEqual(ckptfs.read(self.layer(mount, 0)), self.data[:MIB])
            mount.unmount()
        craft.write_safetensors(file, describe(1, MIB), self.data[MIB:2 * MIB])
        mount = self.mounted(file.name, option)
        self.assertEqual(ckptfs.read(self.layer(mount, 0)), self.data[MIB:2 * MIB])

    def test_a_damaged_cache_on_disk_costs_its_blocks(self):
        cache = self.scratch() / "cache"
        option = f"-ocache_dir={cache}"
        with self.mounted("model.safetensors", option) as mount:
            for i in range(TENSORS):
                ckptfs.read(self.layer(mount, i))
            mount.unmount()
        segment, = cache.glob("??/*-2")  # Of 4 MiB each.
        with open(segment, "r+b") as file:
            file.seek(2 * MIB)
            byte = file.read(1)
            file.seek(2 * MIB)
            file.write(bytes([byte[0] ^ 1]))
        self.server.reset()
        mount = self.mounted("model.safetensors", option)
        for i in range(TENSORS):
            self.assertEqual(ckptfs.read(self.layer(mount, i)), self.wanted(i))
        stats = self.server.stats()
        self.assertEqual(stats["requests"], 2)
        self.assertEqual(stats["log"][1]["sent"], 32768)

    def test_a_cache_directory_that_everybody_may_write_in_is_refused(self):
        directory = self.scratch() / "cache"
        directory.mkdir()
        directory.chmod(0o777)
        url = self.server.url("/model.safetensors")
        done = self.ckptfs(f"-ocache_dir={directory}", url, self.mountpoint())
        self.assertRefused(done, ckptfs.SOURCE,
                           f"{url}: cache directory {directory}: is world-writable (mode 0777)")
