"""Stores of many checkpoints, and of large ones."""

import json
import os
import shutil
import threading
from pathlib import Path

import ckptfs
import craft
from store_case import Case


class Memory(Case):
    def write_many(self, count, tensors):
        header = {f"t{i}": {"dtype": "U8", "shape": [1], "data_offsets": [i, i + 1]}
                  for i in range(tensors)}
        text = json.dumps(header)
        craft.write_safetensors(self.folder / "0.safetensors", text, b"x" * tensors)
        for i in range(1, count):
            shutil.copy(self.folder / "0.safetensors", self.folder / f"{i}.safetensors")

    def test_trees_are_dropped_beyond_the_limit(self):
        self.write_many(60, 500)
        mount = self.mount_logged("trees=1m")
        for _ in range(2):
            for i in range(60):
                self.assertEqual(ckptfs.read(mount / f"{i}.safetensors.d/t499.memmap"), b"x")
        ckptfs.wait_until(lambda: self.status(mount)[1] <= 1.0, 10)
        self.assertGreater(self.status(mount)[0], 0)

    def test_an_open_file_keeps_its_tree(self):
        self.write_many(60, 500)
        mount = self.mount_logged("trees=1m")
        with open(mount / "0.safetensors.d/t7.memmap", "rb", buffering=0) as file:
            for i in range(1, 60):
                os.stat(mount / f"{i}.safetensors.d/t1.memmap")
            self.assertEqual(file.read(), b"x")

    def test_ten_thousand_checkpoints(self):
        self.write("0.safetensors")
        for i in range(1, 10_000):
            os.link(self.folder / "0.safetensors", self.folder / f"{i}.safetensors")
        mount = self.mount(self.folder, "-o", "trees=16m")
        self.assertEqual(ckptfs.read(mount / "77.safetensors.d/a.memmap"), b"aaaa")
        done = ckptfs.run("find", mount.path, "-name", "a.memmap")
        self.assertEqual(done.stdout.count("\n"), 10_000)
        status = Path(f"/proc/{mount.daemon}/status").read_text()
        peak = int(status.partition("VmHWM:")[2].split()[0]) / 1024
        if not ckptfs.IS_SANITIZED:
            self.assertLess(peak, 256 + 16)

    def test_many_readers_of_one_checkpoint(self):
        self.write_many(2, 20_000)
        mount = self.mount(self.folder)
        results = []
        threads = [threading.Thread(target=lambda: results.append(
            ckptfs.read(mount / "1.safetensors.d/t19999.memmap"))) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(results, [b"x"] * 20)
