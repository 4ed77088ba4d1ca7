"""Large checkpoints that are what they say pass the limits that hostile files meet."""

import json
import pickle
import struct

import ckptfs
from craft import write_safetensors

try:
    import torch
except ImportError as error:
    torch = None
    MISSING = str(error)

COUNT = 30_000
NAMES = [f"model.layers.{i // 10}.w{i % 10}.weight" for i in range(COUNT)]


class Honest(ckptfs.Case):
    def setUp(self):
        self.file = self.scratch() / "model"

    def assertTensors(self, count, source=None):
        """All are in tensors.jsonl, each once."""
        mount = self.mount(source or self.file)
        lines = ckptfs.read(mount / "tensors.jsonl").splitlines()
        self.assertEqual(len({json.loads(line)["key"] for line in lines}), count)
        self.assertEqual(len(lines), count)
        return mount

    def need_torch(self):
        if torch is None:
            self.skip_avoidable(MISSING)

    def tensors(self):
        whole = torch.arange(COUNT, dtype=torch.float32)
        return {name: whole[i:i + 1] for i, name in enumerate(NAMES)}

    def test_safetensors_of_thirty_thousand_tensors(self):
        write_safetensors(self.file, json.dumps(
            {name: {"dtype": "F32", "shape": [1], "data_offsets": [4 * i, 4 * i + 4]}
             for i, name in enumerate(NAMES)}), struct.pack(f"<{COUNT}f", *range(COUNT)))
        mount = self.assertTensors(COUNT)
        self.assertEqual(ckptfs.read(mount / "model/layers/7/w5/weight.memmap"),
                         struct.pack("<f", 75))

    def test_an_archive_of_torch_of_thirty_thousand_tensors(self):
        self.need_torch()
        torch.save(self.tensors(), self.file)
        mount = self.assertTensors(COUNT)
        self.assertEqual(ckptfs.read(mount / "model/layers/7/w5/weight.memmap"),
                         struct.pack("<f", 75))

    def test_a_legacy_stream_whose_pickle_has_nine_megabytes(self):
        self.need_torch()
        torch.save(self.tensors() | {"steps": list(range(1_000_000))}, self.file,
                   _use_new_zipfile_serialization=False)
        mount = self.mount(self.file)
        self.assertEqual(ckptfs.read(mount / "model/layers/7/w5/weight.memmap"),
                         struct.pack("<f", 75))

    def test_a_pickle_of_twenty_megabytes_of_plain_values(self):
        self.file.write_bytes(pickle.dumps({"losses": [i / 7 for i in range(2_300_000)]}))
        self.assertGreater(self.file.stat().st_size, 20_000_000)
        self.mount(self.file)

    def test_a_gguf_with_a_vocabulary_of_262144(self):
        def text(value):
            return struct.pack("<Q", len(value)) + value.encode()

        def array(name, kind, items):
            return text(name) + struct.pack("<IIQ", 9, kind, len(items)) + b"".join(items)
        count = 262_144
        self.file.write_bytes(
            struct.pack("<4sIQQ", b"GGUF", 3, 0, 3)
            + array("tokenizer.ggml.tokens", 8, [text(f"token{i}") for i in range(count)])
            + array("tokenizer.ggml.merges", 8, [text(f"a{i} b{i}") for i in range(count)])
            + array("tokenizer.ggml.scores", 6, [struct.pack("<f", -i) for i in range(count)]))
        self.mount(self.file)

    def test_a_directory_of_a_tensordict_with_ten_thousand_leaves(self):
        self.file.mkdir()
        (self.file / "meta.json").write_text(json.dumps(
            {"shape": [], "device": "cpu", "_type": "<class 'tensordict._td.TensorDict'>"}
            | {f"k{i}": {"type": "TensorDict"} for i in range(100)}))
        for i in range(100):
            (self.file / f"k{i}").mkdir()
            (self.file / f"k{i}/meta.json").write_text(json.dumps(
                {f"w{j}": {"device": "cpu", "shape": [1], "dtype": "torch.uint8"}
                 for j in range(100)}
                | {"shape": [], "device": "cpu", "_type": "<class 'tensordict._td.TensorDict'>"}))
            for j in range(100):
                (self.file / f"k{i}/w{j}.memmap").write_bytes(bytes([j]))
        mount = self.assertTensors(10_000)
        self.assertEqual(ckptfs.read(mount / "k7/w42.memmap"), bytes([42]))
