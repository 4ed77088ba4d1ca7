"""Archives around checkpoints, several objects in one file, and each format behind an index."""

import gzip
import io
import json
import pickle
import shutil
import tarfile
import zipfile

import ckptfs
import view
from ckptfs import CORRUPT, FORMAT

try:
    import numpy as np
    import torch
except ImportError as error:
    torch = None
    MISSING = str(error)

SAMPLES = ckptfs.SAMPLES


def saved(value, **options):
    file = io.BytesIO()
    torch.save(value, file, **options)
    return file.getvalue()


def tar_of(files, mode="w"):
    """A tar archive of {name: bytes}."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode=mode) as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return archive.getvalue()


def zip_of(files, compression=zipfile.ZIP_STORED):
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", compression) as packed:
        for name, data in files.items():
            packed.writestr(name, data)
    return archive.getvalue()


class Torch(ckptfs.Case):
    def setUp(self):
        if torch is None:
            self.skip_avoidable(MISSING)
        torch.manual_seed(1)
        self.a, self.b = torch.randn(3, 4), torch.arange(5)

    def write(self, data, name="file"):
        file = self.scratch() / name
        file.write_bytes(data)
        return file

    def shown(self, data, quiet=True):
        return self.mount(self.write(data), quiet=quiet)

    def assertIs(self, file, tensor):
        self.assertEqual(ckptfs.read(file), tensor.numpy().tobytes())


class Archives(Torch):
    def test_stable_baselines3(self):
        # As stable_baselines3.common.save_util.save_to_zip_file writes it.
        with self.shown(zip_of({
                "data": json.dumps({"gamma": 0.99, "policy_class": {":type:": "<class 'abc.ABCMeta'>"}}),
                "pytorch_variables.pth": saved(None),
                "policy.pth": saved({"mlp.0.weight": self.a}),
                "policy.optimizer.pth": saved({"state": {0: {"exp_avg": self.b}}, "param_groups": []}),
                "_stable_baselines3_version": "2.3.2",
                "system_info.txt": "- OS: Linux\n"})) as mount:
            self.assertIs(mount / "policy.pth/mlp/0/weight.memmap", self.a)
            self.assertIs(mount / "policy.optimizer.pth/state/0/exp_avg.memmap", self.b)
            self.assertEqual(ckptfs.meta(mount / "data")["data"]["gamma"], 0.99)
            self.assertEqual(ckptfs.meta(mount / "_stable_baselines3_version")["data"], "2.3.2")

    def test_stable_baselines_2(self):
        arrays = io.BytesIO()
        np.savez(arrays, **{"model/w:0": self.a.numpy()})
        with self.shown(zip_of({"data": "{}", "parameters": arrays.getvalue(),
                                "parameter_list": json.dumps(["model/w:0"])})) as mount:
            self.assertIs(mount / "parameters/model%2Fw%3A0.memmap", self.a)

    def test_tabnet(self):
        # shutil.make_archive deflates.
        folder = self.scratch()
        (folder / "model_params.json").write_text(json.dumps({"init_params": {"n_d": 8}}))
        (folder / "network.pt").write_bytes(saved({"w": self.a}))
        with self.mount(shutil.make_archive(self.scratch() / "tabnet", "zip", folder)) as mount:
            self.assertIs(mount / "network.pt/w.memmap", self.a)
            self.assertEqual(ckptfs.meta(mount / "model_params.json")["data"]["init_params"]["n_d"], 8)

    def test_nemo(self):
        files = {"./model_config.yaml": b"target: nemo\n", "./model_weights.ckpt": saved({"w.x": self.a}),
                 "./tokenizer.model": b"\0\1\2"}
        for mode in "w", "w:gz":
            with self.subTest(mode), self.shown(tar_of(files, mode), quiet=False) as mount:
                self.assertIs(mount / "model_weights.ckpt/w/x.memmap", self.a)
                self.assertEqual(ckptfs.meta(mount / "model_config.yaml")["data"], "target: nemo\n")
                self.assertIn("are ignored: 'tokenizer.model'", mount.messages)

    def test_a_distributed_checkpoint_in_a_tar(self):
        import torch.distributed.checkpoint as dcp
        folder = self.scratch() / "model_weights"
        dcp.save({"w": self.a, "n": 3}, checkpoint_id=folder, no_dist=True)
        files = {f"./model_weights/{file.name}": file.read_bytes() for file in folder.iterdir()}
        with self.shown(tar_of(files)) as mount:
            self.assertIs(mount / "model_weights/w.memmap", self.a)

    def test_a_tar_that_ends_in_a_zip(self):
        with self.shown(tar_of({"a.txt": b"text", "m.pth": saved({"w": self.a})})) as mount:
            self.assertIs(mount / "m.pth/w.memmap", self.a)

    def test_a_compressed_checkpoint(self):
        with self.shown(gzip.compress(saved({"w": self.a}))) as mount:
            self.assertIs(mount / "w.memmap", self.a)

    def test_keras(self):
        file = self.write(zip_of({"config.json": "{}", "model.weights.h5": b"\x89HDF\r\n\x1a\n"}))
        self.assertRefusedLike(self.ckptfs(file, self.mountpoint()), FORMAT, ".*HDF5.*")

    def test_hostile_ones_are_bounded(self):
        zeros = bytes(64 << 20)
        bomb = zip_of({"m.npz": zip_of({"a.npy": zeros}, zipfile.ZIP_DEFLATED)}, zipfile.ZIP_DEFLATED)
        nested = saved({"w": self.a})
        for _ in range(20):
            nested = tar_of({"m": nested})
        many = zip_of({f"d{i % 100}/f{i}": b"t" for i in range(10_000)} | {"m": saved({"w": self.a})})
        for what, data in {"bomb": bomb, "bombs": zip_of({f"{i}.zip": bomb for i in range(10)}),
                           "gzip": gzip.compress(zeros + zeros), "nested": nested, "many": many}.items():
            with self.subTest(what):
                code, said, _ = self.assertBounded(self.write(data))
                self.assertIn(code, (0, FORMAT, CORRUPT, ckptfs.LIMITS), said)
                self.assertLessEqual(said.count("\n"), 12)


class Sequences(Torch):
    def test_several_arrays(self):
        file = io.BytesIO()
        for array in self.a.numpy(), self.b.numpy(), np.float32(3), np.zeros((0, 2)):
            np.save(file, array)
        for line in b"", b'{"width": 4}\n':
            with self.subTest(line), self.shown(line + file.getvalue()) as mount:
                self.assertIs(mount / "0.memmap", self.a)
                self.assertIs(mount / "1.memmap", self.b)
                self.assertEqual(ckptfs.read(mount / "2.memmap"), np.float32(3).tobytes())
                self.assertEqual(ckptfs.read(mount / "3.memmap"), b"")
                if line:
                    self.assertEqual(ckptfs.meta(mount / "hyperparameters")["data"], {"width": 4})

    def test_several_pickles(self):
        with self.shown(pickle.dumps({"a": self.a.numpy()}) + pickle.dumps([1, 2])) as mount:
            self.assertIs(mount / "0/a.memmap", self.a)
            self.assertEqual(ckptfs.meta(mount / "1")["data"], [1, 2])

    def test_several_streams(self):
        stream = saved({"a": self.a}, _use_new_zipfile_serialization=False)
        bare = saved(self.b, _use_new_zipfile_serialization=False)
        with self.shown(stream + bare) as mount:
            self.assertIs(mount / "0/a.memmap", self.a)
            self.assertIs(mount / "1.memmap", self.b)


class Extras(Torch):
    def test_extra_files_of_torchscript(self):
        file = self.scratch() / "m.pt"
        torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), str(file),
                       _extra_files={"classes.txt": "cat\ndog", "raw": b"\xff\0"})
        with self.mount(file) as mount:
            self.assertEqual(ckptfs.meta(mount / "extra/classes.txt")["data"], "cat\ndog")
            self.assertEqual(ckptfs.read(mount / "extra/raw.memmap"), b"\xff\0")

    def test_extra_files_of_an_export(self):
        file = self.scratch() / "m.pt2"
        program = torch.export.export(torch.nn.Linear(2, 2), (torch.zeros(1, 2),))
        torch.export.save(program, file, extra_files={"cutoff": "0.5"})
        with self.mount(file) as mount:
            self.assertEqual(ckptfs.meta(mount / "extra/cutoff")["data"], "0.5")

    def compiled(self, **more):
        """A package by torch 2.13 of a model compiled by AOTInductor."""
        return zip_of({"m/data/aotinductor/model/x.wrapper.so": b"\x7fELF", "m/archive_format": "pt2",
                       "m/archive_version": "0", "m/byteorder": "little", "m/.data/version": "3\n"} | more)

    def test_weights_beside_a_compiled_model(self):
        config = {"l.weight": ["weight_0", [3, 4], [4, 1], 0], "l.t": ["weight_0", [4, 3], [1, 4], 0]}
        with self.shown(self.compiled(**{
                "m/data/weights/weight_0": saved(self.a),
                "m/data/aotinductor/model/weights_config.json": json.dumps(config)})) as mount:
            self.assertIs(mount / "weights/l/weight.memmap", self.a)
            self.assertIs(mount / "weights/l/t.memmap", self.a.t().contiguous())

    def test_weights_in_a_compiled_model(self):
        done = self.ckptfs(self.write(self.compiled()), self.mountpoint())
        self.assertRefusedLike(done, FORMAT, ".*AOTInductor.*")


class BehindAnIndex(Torch):
    """Files of each format that an index of Hugging Face names: the tensors, or one sentence."""

    def index(self, data, key="w"):
        folder = self.scratch()
        (folder / "shard").write_bytes(data)
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {key: "shard"}}))
        return folder

    def test_each_format_has_its_tensors_or_a_sentence(self):
        module = torch.nn.Linear(2, 2)
        script, export = io.BytesIO(), io.BytesIO()
        torch.jit.save(torch.jit.script(module), script)
        torch.export.save(torch.export.export(module, (torch.zeros(1, 2),)), export)
        arrays, array, two = io.BytesIO(), io.BytesIO(), io.BytesIO()
        np.savez(arrays, w=self.a.numpy())
        np.save(array, self.a.numpy())
        np.save(two, self.a.numpy()), np.save(two, self.a.numpy())
        files = {"pth": saved({"w": self.a}), "value": saved({"w": 3}), "bare": saved(self.a),
                 "legacy": saved({"w": self.a}, _use_new_zipfile_serialization=False),
                 "script": script.getvalue(), "export": export.getvalue(), "npz": arrays.getvalue(),
                 "npy": array.getvalue(), "arrays": two.getvalue(),
                 "pickle": pickle.dumps({"w": self.a.numpy()}),
                 "tar": tar_of({"m.pth": saved({"w": self.a})}),
                 "zip": zip_of({"m.pth": saved({"w": self.a})}),
                 "gzip": gzip.compress(saved({"w": self.a})),
                 "text": b"hello", "empty": b""}
        for pattern in ("zanj/*/*.zanj", "tensordict/*.tdz", "tensordict/*.bin", "gguf/w_*.gguf",
                        "gguf/ok*.gguf", "tensorizer/*module.tensors.gz", "frameworks/*.p*",
                        "torch-1.13/*.tar", "torch-2.13/*.pt2", "safetensors/*.safetensors"):
            for file in sorted(SAMPLES.glob(pattern))[:12]:
                data = file.read_bytes()
                files[file.name] = gzip.decompress(data) if file.suffix == ".gz" else data
        self.assertGreater(len(files), 40)
        for name, data in files.items():
            with self.subTest(name):
                mountpoint = self.mountpoint()
                done = self.ckptfs(self.index(data), mountpoint)
                if done.returncode == 0:
                    mount = ckptfs.Mount(mountpoint, self.daemon_of(mountpoint), done.stderr)
                    self.addCleanup(mount.release)
                    self.assertTrue(list(view.walk(mount.path)))
                    mount.unmount()
                else:
                    self.assertIn(done.returncode, (FORMAT, CORRUPT, ckptfs.LIMITS), done.stderr)
                    self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def test_a_table_is_no_reason_to_fail(self):
        files = sorted(SAMPLES.glob("zanj/*/frames.zanj")) + sorted(SAMPLES.glob("zanj/*/lists.zanj"))
        self.assertTrue(files)
        for file in files:
            with self.subTest(file.name), self.mount(self.index(file.read_bytes()), quiet=False) as mount:
                self.assertTrue(list(mount.path.rglob("*.jsonl")))


class LeftOut(Torch):
    def test_a_directory_names_what_it_leaves_out(self):
        folder = self.scratch()
        (folder / "1.safetensors").write_bytes(self.safetensors())
        index = {"weight_map": {"w": "1.safetensors"}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        (folder / "2_Dense").mkdir()
        (folder / "2_Dense/pytorch_model.bin").write_bytes(saved({"w": self.a}))
        with self.mount(folder, quiet=False) as mount:
            self.assertIn("ignores '2_Dense/'", mount.messages)

    def test_a_distributed_checkpoint_names_what_lies_beside_it(self):
        import torch.distributed.checkpoint as dcp
        folder = self.scratch() / "dcp"
        dcp.save({"w": self.a}, checkpoint_id=folder, no_dist=True)
        (folder / "common.pt").write_bytes(saved({"args": 1}))
        with self.mount(folder, quiet=False) as mount:
            self.assertIn("ignores 'common.pt'", mount.messages)

    def safetensors(self):
        header = b'{"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}'
        return len(header).to_bytes(8, "little") + header + b"abcd"
