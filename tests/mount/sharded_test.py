"""Directories: checkpoints in several files with an index, and directories that have one checkpoint."""

import errno
import hashlib
import json
import os
import random
import resource
import shutil
import time

import ckptfs
import craft
import view
from ckptfs import CORRUPT, FORMAT, LIMITS, SOURCE, USAGE

try:
    import torch
    from safetensors.torch import save_file
    from tensordict import TensorDict
except ImportError as error:
    torch = None
    MISSING = str(error)

SAMPLES = ckptfs.SAMPLES / "sharded"
UNEXPECTED = 1
INDEX = "model.safetensors.index.json"


def write_shard(path, tensors):
    """A file of safetensors with these {name: bytes}."""
    header, data = {}, b""
    for name, piece in tensors.items():
        header[name] = {"dtype": "U8", "shape": [len(piece)],
                        "data_offsets": [len(data), len(data) + len(piece)]}
        data += piece
    craft.write_safetensors(path, json.dumps(header), data)


def shard_name(number, count):
    return f"model-{number:05}-of-{count:05}.safetensors"


class Case(ckptfs.Case):
    def setUp(self):
        self.folder = self.scratch() / "model"
        self.folder.mkdir()

    def write(self, shards, index=None):
        """Writes files {name: {tensor: bytes}} and their index, or another one."""
        for name, tensors in shards.items():
            write_shard(self.folder / name, tensors)
        index = index or {"metadata": {"total_size": 0},
                          "weight_map": {t: name for name, tensors in shards.items()
                                         for t in tensors}}
        (self.folder / INDEX).write_text(json.dumps(index))

    def write_three(self):
        """Three files, of which the second one has b.0 and b.1."""
        self.names = [shard_name(i, 3) for i in (1, 2, 3)]
        self.write({self.names[0]: {"a": b"aaaa"}, self.names[1]: {"b.0": b"bb", "b.1": b"BB"},
                    self.names[2]: {"c": b"c"}})

    def summary(self, mount):
        return ckptfs.meta(mount.path)["_ckptfs"]


class Samples(Case):
    """Files of transformers and torch.distributed.checkpoint."""

    def assertHolds(self, sample, source, marks):
        expected = {".".join(t["path"]): [view.Leaf(t["dtype"], tuple(t["shape"]), t["sha256"])]
                    for t in json.loads((SAMPLES / "expected.json").read_text())[sample]}
        mount = self.mount(source)
        self.assertEqual(view.tensors(mount.path), expected)
        summary = self.summary(mount)
        self.assertEqual(summary["format"], "huggingface")
        self.assertEqual({name: shard["format"] for name, shard in summary["shards"].items()}, marks)
        self.assertEqual(mount.unmount(), 0)
        return summary

    def test_shards_of_safetensors(self):
        marks = {f"model-0000{i}-of-00002.safetensors": "safetensors" for i in (1, 2)}
        summary = self.assertHolds("hf_safetensors", SAMPLES / "hf_safetensors", marks)
        self.assertEqual(summary["index_metadata"], {"total_size": 308})
        self.assertNotIn("lost", summary)

    def test_shards_of_torch_save(self):
        marks = {f"pytorch_model-0000{i}-of-00002.bin": "torch" for i in (1, 2)}
        summary = self.assertHolds("hf_bin", SAMPLES / "hf_bin", marks)
        self.assertIn("torch._utils._rebuild_tensor_v2", summary["globals"])

    def test_shards_that_torch_has_consolidated(self):
        marks = {f"model-0000{i}-of-00002.safetensors": "safetensors" for i in (1, 2)}
        self.assertHolds("dcp_hf", SAMPLES / "dcp_hf", marks)

    def test_the_index_itself(self):
        marks = {f"pytorch_model-0000{i}-of-00002.bin": "torch" for i in (1, 2)}
        self.assertHolds("hf_bin", SAMPLES / "hf_bin/pytorch_model.bin.index.json", marks)

    def test_the_index_in_the_working_directory(self):
        mount = self.mount(INDEX, cwd=SAMPLES / "hf_safetensors")
        self.assertEqual(len(view.tensors(mount.path)), 10)

    def test_one_shard_alone_is_mounted_with_a_hint(self):
        shard = SAMPLES / "hf_safetensors/model-00002-of-00002.safetensors"
        mount = self.mount(shard, quiet=False)
        self.assertEqual(mount.messages, f"ckptfs: warning: {shard}: one of several files of a "
                                         "checkpoint: mount their directory for all of it\n")
        self.assertEqual(len(view.tensors(mount.path)), 5)

    def test_tensordict_loads_it(self):
        if torch is None:
            self.skip_avoidable(MISSING)
        mount = self.mount(SAMPLES / "hf_safetensors")
        loaded = TensorDict.load_memmap(mount.path)
        self.assertEqual(tuple(loaded["conv", "weight"].shape), (3, 4, 2))


class Damage(Case):
    """Missing or corrupt files affect only their own tensors."""

    def assertLost(self, pattern, lost=("b.0", "b.1")):
        mount = self.mount(self.folder, quiet=False)
        self.assertRegex(mount.messages, rf"\Ackptfs: warning: {self.folder}: {pattern}\n\Z")
        self.assertEqual(ckptfs.read(mount / "a.memmap"), b"aaaa")
        self.assertEqual(self.summary(mount)["lost"], list(lost))
        for name in lost:
            directory, _, key = name.rpartition(".")
            entry = view.entries(mount / directory)[key]
            self.assertIn("error", entry)
            self.assertEqual(entry["foreign_dtype"], "unknown")
            file = mount / directory / f"{key}.memmap"
            self.assertEqual(file.stat().st_size, 1)
            self.assertErrno(errno.EIO, ckptfs.read, file)
        return mount

    def test_a_missing_shard(self):
        self.write_three()
        (self.folder / self.names[1]).unlink()
        self.assertLost(f"{self.names[1]}: cannot open: No such file or directory: "
                        "2 tensors are missing")

    def test_a_shard_that_is_a_dead_link(self):
        self.write_three()
        (self.folder / self.names[1]).unlink()
        (self.folder / self.names[1]).symlink_to("../../blobs/gone")
        self.assertLost(f"{self.names[1]}: cannot open: No such file or directory: "
                        "2 tensors are missing")

    def test_a_shard_that_is_a_directory(self):
        self.write_three()
        (self.folder / self.names[1]).unlink()
        (self.folder / self.names[1]).mkdir()
        self.assertLost(f"{self.names[1]}: is a directory: 2 tensors are missing")

    def test_a_shard_that_is_a_pipe_does_not_hang(self):
        self.write_three()
        (self.folder / self.names[1]).unlink()
        os.mkfifo(self.folder / self.names[1])
        self.assertLost(f"{self.names[1]}: not a regular file: 2 tensors are missing")

    def test_a_truncated_shard(self):
        self.write_three()
        with open(self.folder / self.names[1], "r+b") as file:
            file.truncate(file.seek(0, os.SEEK_END) - 1)
        self.assertLost(f"{self.names[1]}: the tensors need 4 bytes of data, but the file has 3: "
                        "it is truncated: 2 tensors are missing")

    def test_a_shard_that_is_a_pointer_of_git_lfs(self):
        self.write_three()
        (self.folder / self.names[1]).write_text(
            "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n")
        self.assertLost(f"{self.names[1]}: .* git lfs pull: 2 tensors are missing")

    def test_a_tensor_that_its_shard_does_not_have(self):
        self.write_three()
        write_shard(self.folder / self.names[1], {"b.1": b"BB"})
        mount = self.assertLost(f"{self.names[1]}: incomplete: 1 tensor is missing", lost=["b.0"])
        self.assertEqual(ckptfs.read(mount / "b/1.memmap"), b"BB")

    def test_a_shard_that_shrinks_while_it_is_mounted(self):
        self.write_three()
        mount = self.mount(self.folder)
        os.truncate(self.folder / self.names[1], 10)
        with self.assertRaises(OSError):
            ckptfs.read(mount / "b/0.memmap")
        self.assertEqual(ckptfs.read(mount / "a.memmap"), b"aaaa")

    def test_all_shards_missing_is_no_mount(self):
        self.write_three()
        for name in self.names:
            (self.folder / name).unlink()
        self.assertRefused(self.ckptfs(self.folder, self.mountpoint()), SOURCE,
                           f"{self.folder}: {INDEX}: cannot read any of the 3 files: "
                           f"{self.names[0]}: cannot open: No such file or directory")

    def test_a_tensor_in_two_shards_is_that_of_the_index(self):
        self.write({"1": {"a": b"right", "b": b"wrong"}, "2": {"b": b"right"}},
                   {"weight_map": {"a": "1", "b": "2"}})
        mount = self.mount(self.folder, quiet=False)
        self.assertRegex(mount.messages, "1: 1 tensor is ignored, because the index")
        self.assertEqual(ckptfs.read(mount / "b.memmap"), b"right")

    def test_a_tensor_that_is_not_in_the_index(self):
        self.write({"1": {"a": b"aaaa", "extra": b"x"}}, {"weight_map": {"a": "1"}})
        mount = self.mount(self.folder)
        self.assertEqual(ckptfs.read(mount / "extra.memmap"), b"x")
        self.assertIs(view.entries(mount.path)["extra"]["not_in_index"], True)
        self.assertNotIn("not_in_index", view.entries(mount.path)["a"])


class Strict(Case):
    """-o strict: all or nothing."""

    def test_a_sound_checkpoint_is_mounted(self):
        self.write_three()
        mount = self.mount(self.folder, "-o", "strict")
        self.assertEqual(ckptfs.read(mount / "c.memmap"), b"c")

    def test_a_missing_shard_is_refused(self):
        self.write_three()
        (self.folder / self.names[1]).unlink()
        mountpoint = self.mountpoint()
        self.assertRefused(
            self.ckptfs("-o", "strict", self.folder, mountpoint), CORRUPT,
            f"{self.folder}: tensor 'b.0': {self.names[1]}: cannot open: No such file or directory: "
            "2 of 4 tensors are unreadable (strict)")
        self.assertFalse(ckptfs.is_mounted(mountpoint))

    def test_a_damaged_tensor_of_a_file_is_refused(self):
        file = self.folder / "m.pth"
        craft.write_checkpoint(file, craft.mapping(("good", craft.tensor("0", [2])),
                                                   ("bad", craft.tensor("7", [2]))),
                               [("0", bytes(8))])
        self.assertRefusedLike(self.ckptfs("-o", "strict", file, self.mountpoint()), CORRUPT,
                               f"{file}: tensor 'bad': .*data/7.*: 1 of 2 tensors are unreadable "
                               r"\(strict\)")

    def test_it_takes_no_value(self):
        done = self.ckptfs("-o", "strict=1", "x", self.mountpoint())
        self.assertRefused(done, USAGE, "option strict: takes no value; see ckptfs -h")


class Directory(Case):
    """Directories without an index, and odd ones."""

    def refuse(self, code, sentence):
        self.assertRefused(self.ckptfs(self.folder, self.mountpoint()), code,
                           f"{self.folder}: {sentence}")

    def test_with_one_checkpoint_is_that(self):
        write_shard(self.folder / "model.safetensors", {"a": b"aaaa"})
        (self.folder / "README.md").write_text("# A model\n")
        (self.folder / "config.json").write_text("{}\n")
        (self.folder / "checkpoints").mkdir()
        mount = self.mount(self.folder)
        self.assertEqual(ckptfs.read(mount / "a.memmap"), b"aaaa")
        self.assertEqual(self.summary(mount)["format"], "safetensors")

    def test_with_a_slash_behind_its_name(self):
        write_shard(self.folder / "model.safetensors", {"a": b"aaaa"})
        self.assertEqual(ckptfs.read(self.mount(f"{self.folder}/") / "a.memmap"), b"aaaa")

    def test_with_several_checkpoints_is_a_store(self):
        write_shard(self.folder / "x.safetensors", {"a": b"aaaa"})
        write_shard(self.folder / "y.safetensors", {"a": b"bbbb"})
        mount = self.mount(self.folder)
        self.assertEqual(ckptfs.read(mount / "x.safetensors.d/a.memmap"), b"aaaa")
        self.assertEqual(ckptfs.read(mount / "y.safetensors.d/a.memmap"), b"bbbb")

    def test_without_a_checkpoint_fails_with_its_contents(self):
        (self.folder / "README.md").write_text("# A model\n")
        self.refuse(FORMAT, "directory without a checkpoint in a supported format, but with "
                            "'README.md'")

    def test_without_anything(self):
        self.refuse(FORMAT, "directory without a checkpoint in a supported format")

    def test_with_two_indexes_is_a_store(self):
        self.write_three()
        lora = "lora.safetensors.index.json"
        shutil.copy(self.folder / INDEX, self.folder / lora)
        mount = self.mount(self.folder)
        for index in (INDEX, lora):
            self.assertEqual(ckptfs.read(mount / f"{index}.d/b/1.memmap"), b"BB")

    def test_of_the_cache_of_hugging_face_which_consists_of_links(self):
        self.write_three()
        cache = self.folder.parent / "models--x--y"
        blobs, snapshot = cache / "blobs", cache / "snapshots/0123abcd"
        blobs.mkdir(parents=True)
        snapshot.mkdir(parents=True)
        for file in self.folder.iterdir():
            blob = hashlib.sha256(file.read_bytes()).hexdigest()
            shutil.copy(file, blobs / blob)
            (snapshot / file.name).symlink_to(f"../../blobs/{blob}")
        for source in (snapshot, snapshot / INDEX):
            with self.subTest(source):
                mount = self.mount(source)
                self.assertEqual(ckptfs.read(mount / "b/1.memmap"), b"BB")
                mount.unmount()

    def test_that_is_moved_while_it_is_mounted(self):
        self.write_three()
        mount = self.mount(self.folder)
        self.folder.rename(self.folder.with_name("elsewhere"))
        self.assertEqual(ckptfs.read(mount / "b/1.memmap"), b"BB")

    def test_an_index_that_names_files_of_another_directory(self):
        write_shard(self.folder.parent / "other.safetensors", {"a": b"aaaa"})
        self.write({}, {"weight_map": {"a": "../other.safetensors"}})
        self.refuse(CORRUPT, f"{INDEX}: 'a' is in '../other.safetensors', which is not the name of a "
                             "file in the directory")

    def test_an_index_that_names_itself(self):
        self.write({}, {"weight_map": {"a": INDEX}})
        self.refuse(FORMAT, f"{INDEX}: cannot read any of the 1 files: {INDEX}: not a checkpoint "
                            "in a supported format: it is text that looks like JSON")

    def test_an_index_that_is_broken(self):
        self.write_three()
        (self.folder / INDEX).write_text('{"weight_map": {"a": ')
        self.refuse(CORRUPT, f"{INDEX}: invalid JSON at byte 21: unexpected end of text")

    def test_an_index_with_one_file_in_it_a_hundred_thousand_times(self):
        self.write({"1": {f"layer.{i}": b"x" for i in range(100_000)}})
        start = time.monotonic()
        mount = self.mount(self.folder)
        if not ckptfs.IS_SANITIZED:
            self.assertLess(time.monotonic() - start, 10)
        self.assertEqual(ckptfs.read(mount / "layer/99999.memmap"), b"x")

    def test_an_index_of_too_many_files(self):
        self.write({}, {"weight_map": {f"{i}": f"{i}" for i in range(10_001)}})
        self.refuse(LIMITS, f"{INDEX}: names more than 10000 files")

    def test_ten_thousand_missing_files_cost_a_second(self):
        self.write({"0": {"0": b"x"}}, {"weight_map": {f"{i}": f"{i}" for i in range(10_000)}})
        start = time.monotonic()
        mount = self.mount(self.folder, quiet=False)
        if not ckptfs.IS_SANITIZED:
            self.assertLess(time.monotonic() - start, 2)
        self.assertEqual(mount.messages.count("\n"), 11)
        self.assertRegex(mount.messages, "9989 more warnings\n")
        self.assertEqual(len(self.summary(mount)["lost"]), 9999)

    def test_more_shards_than_the_usual_limit_of_open_files(self):
        count = 1500
        names = [shard_name(i, count) for i in range(count)]
        self.write({name: {f"w.{i}": b"%d" % i} for i, name in enumerate(names)})
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        if hard < 2 * count:
            self.skip_avoidable("there is a hard limit of open files")
        mount = self.mount(
            self.folder, "-o", "strict",
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard)))
        for i in (0, 1023, 1024, count - 1):
            self.assertEqual(ckptfs.read(mount / f"w/{i}.memmap"), b"%d" % i)

    def test_more_shards_than_files_may_be_open_is_no_damage(self):
        if ckptfs.IS_SANITIZED:
            self.skipTest("a sanitizer could not open its own files")
        self.write({shard_name(i, 100): {f"w.{i}": b"x"} for i in range(100)})
        done = self.ckptfs(
            self.folder, self.mountpoint(),
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (50, 50)))
        self.assertRefusedLike(done, UNEXPECTED, f"{self.folder}: {INDEX}: model-.*: cannot open: "
                                                 "Too many open files")


class Random(Case):
    """State dicts, split into files here and now."""

    def setUp(self):
        if torch is None:
            self.skip_avoidable(MISSING)
        super().setUp()

    def state(self, rng):
        tensors = {}
        for i in range(rng.randrange(1, 40)):
            dtype = rng.choice((torch.float32, torch.bfloat16, torch.int64, torch.uint8))
            shape = [rng.choice((0, 1, 2, 5, 16)) for _ in range(rng.randrange(4))]
            count = 1
            for size in shape:
                count *= size
            data = bytearray(rng.randbytes(count * dtype.itemsize) or b"\0")
            flat = torch.frombuffer(data, dtype=torch.uint8)[:count * dtype.itemsize]
            tensors[f"model.layers.{i % 7}.w{i}"] = flat.clone().view(dtype).reshape(shape)
        return tensors

    def check(self, seed, suffix, save):
        rng = random.Random(seed)
        state = self.state(rng)
        folder = self.scratch()
        count = rng.randrange(1, 6)
        shards = [{} for _ in range(count)]
        for name, tensor in state.items():
            rng.choice(shards)[name] = tensor
        shards = [shard for shard in shards if shard]
        weight_map = {}
        for i, shard in enumerate(shards):
            file = f"model-{i + 1:05}-of-{len(shards):05}.{suffix}"
            save(shard, folder / file)
            weight_map |= dict.fromkeys(shard, file)
        (folder / f"model.{suffix}.index.json").write_text(
            json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}, indent=2))
        mount = self.mount(folder, "-o", "strict")
        expected = {}
        for name, tensor in state.items():
            raw = tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
            expected[name] = [view.Leaf(f"{tensor.dtype}", tuple(tensor.shape),
                                        hashlib.sha256(raw).hexdigest())]
        self.assertEqual(view.tensors(mount.path), expected)
        mount.unmount()

    def test_split_by_save_file(self):
        for seed in range(5 if ckptfs.IS_SANITIZED else 30):
            with self.subTest(seed=seed):
                self.check(seed, "safetensors", save_file)

    def test_split_by_torch_save(self):
        for seed in range(5 if ckptfs.IS_SANITIZED else 30):
            with self.subTest(seed=seed):
                self.check(seed, "bin", torch.save)

    def test_a_mixture_of_both(self):
        def save(shard, file):
            torch.save(shard, file) if "00001-of" in file.name else save_file(shard, file)

        for seed in range(5):
            with self.subTest(seed=seed):
                self.check(seed, "weights", save)
