"""Distributed checkpoints of PyTorch: what they hold, and what is left of damaged ones."""

import errno
import io
import json
import os
import pickle
import shutil
import sys
from pathlib import Path

import ckptfs
import view
from ckptfs import CORRUPT, FORMAT, LIMITS

try:
    import oracle
    import samples_test
    import torch
    from torch.distributed.checkpoint import filesystem
    from torch.distributed.checkpoint import metadata as dcp
except ImportError as error:
    torch = None
    MISSING = str(error)

SAMPLES = ckptfs.SAMPLES / "dcp"


class Case(ckptfs.Case):
    def setUp(self):
        if torch is None:
            self.skip_avoidable(MISSING)
        self.folder = self.scratch() / "checkpoint"

    def leaf(self, mount, name):
        return view.tensors(mount.path)[name]


class Samples(Case):
    def assertSample(self, sample, expected):
        tensors, composite = samples_test.expected_tensors(expected)
        mount = self.mount(sample)
        self.assertEqual(view.tensors(mount.path), tensors)
        self.assertEqual(composite, [])
        found = {}
        for keys, datas in view.values(mount.path).items():
            for data in datas:
                found |= samples_test.flat(data, keys)
        told = {".".join(map(str, leaf["path"])): leaf["value"] for leaf in expected["leaves"]
                if "value" in leaf}
        self.assertEqual({keys: found.get(keys, "missing") for keys in told}, told)
        return mount

    def expected(self, name):
        return json.loads((ckptfs.SAMPLES / "torch-2.13/expected.json").read_text())[name]

    def test_of_one_process(self):
        mount = self.assertSample(SAMPLES / "torch-2.13/dcp", self.expected("dcp/"))
        summary = ckptfs.meta(mount.path)["_ckptfs"]
        self.assertEqual((summary["format"], summary["dcp_version"]), ("dcp", "1.0.0"))
        self.assertNotIn("storage_meta", summary)  # Each save has another one.
        self.assertEqual(view.entries(mount.path)["lst"]["python_type"], "list")

    def test_of_two_processes(self):
        mount = self.assertSample(SAMPLES / "torch-2.13/dcp_2ranks", self.expected("dcp_2ranks/"))
        entry = view.places(mount.path)[mount / "model/cols.memmap"]
        self.assertEqual([(c["file"], c["offsets"], c["sizes"]) for c in entry["chunks"]],
                         [("__0_0.distcp", [0, 0], [2, 3]), ("__1_0.distcp", [0, 3], [2, 2])])

    def test_whose_metadata_are_named(self):
        self.assertSample(SAMPLES / "torch-2.13/dcp_2ranks/.metadata", self.expected("dcp_2ranks/"))

    def item(self, folder, file, offset, length):
        data = (SAMPLES / folder / file).read_bytes()[offset:offset + length]
        return torch.load(io.BytesIO(data))

    def test_of_torch_1_13(self):
        """Nothing is flattened there, and there are no paths; each item has a file."""
        mount = self.mount(SAMPLES / "dcp_torch1.13")
        items = {"w": 0, "b": 1, "wt": 4}
        expected = {k: [oracle.leaf(self.item("dcp_torch1.13", f"__0_{n}.distcp", 0, 747))]
                    for k, n in items.items()}
        nested = self.item("dcp_torch1.13", "__0_3.distcp", 0, 747)
        expected["nested.a"] = [oracle.leaf(nested["a"])]
        self.assertEqual(view.tensors(mount.path), expected)
        self.assertEqual(view.values(mount.path)["step"],
                         [self.item("dcp_torch1.13", "__0_2.distcp", 0, 431)])

    def test_of_two_processes_without_planner(self):
        mount = self.mount(SAMPLES / "dcp_modern_synthetic")
        parts = [self.item("dcp_modern_synthetic", "__0_0.distcp", 431, 747),
                 self.item("dcp_modern_synthetic", "__1_0.distcp", 0, 747)]
        self.assertEqual(self.leaf(mount, "model.w"), [oracle.leaf(torch.cat(parts))])

    def test_of_torch_1_13_with_new_metadata(self):
        mount = self.mount(SAMPLES / "torch-1.13/dcp")
        parts = [self.item("torch-1.13/dcp", "__0_0.distcp", 431, 747),
                 self.item("torch-1.13/dcp", "__1_0.distcp", 0, 747)]
        self.assertEqual(self.leaf(mount, "model.w"), [oracle.leaf(torch.cat(parts))])
        self.assertEqual(view.values(mount.path)["epoch"], [123])


class Saved(Case):
    """Checkpoints that torch.distributed.checkpoint saves during the test, with random meshes and placements."""

    def check(self, ranks):
        directory = self.scratch()
        seeds = [str(ranks * 100 + i) for i in range(4)]
        done = ckptfs.run(sys.executable, "-B", Path(__file__).with_name("dcp_save.py"), directory,
                          ranks, *seeds, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        for seed in seeds:
            with self.subTest(seed=seed):
                told = json.loads((directory / f"{seed}.json").read_text())
                mount = self.mount(directory / seed)
                found = {keys: [[leaf.dtype, list(leaf.shape), leaf.sha256] for leaf in leaves]
                         for keys, leaves in view.tensors(mount.path).items()}
                self.assertEqual(found, told["tensors"])
                values = view.values(mount.path)
                self.assertEqual({keys: values.get(keys) for keys in told["values"]},
                                 {keys: [value] for keys, value in told["values"].items()})
                self.assertEqual(mount.unmount(), 0)

    def test_by_one_process(self):
        self.check(1)

    def test_by_two_processes(self):
        self.check(2)

    def test_by_three_processes(self):
        self.check(3)

    def test_by_four_processes(self):
        self.check(4)


def chunk(tensor, offsets, sizes):
    return tensor[tuple(slice(o, o + s) for o, s in zip(offsets, sizes))].contiguous()


class Written(Case):
    """Checkpoints of PyTorch's own classes, of which parts are then wrong."""

    def setUp(self):
        super().setUp()
        self.folder.mkdir()
        self.whole = torch.arange(24, dtype=torch.int32).reshape(4, 6)
        self.items, self.places = {}, {}
        self.add("w", self.whole, [([0, 0], [4, 2], "__0_0.distcp"), ([0, 2], [4, 4], "__1_0.distcp")])
        self.add("b", torch.arange(5.0), [([0], [5], "__0_0.distcp")])

    def add(self, name, tensor, chunks, size=None):
        self.items[name] = dcp.TensorStorageMetadata(
            dcp.TensorProperties(dtype=tensor.dtype), torch.Size(size or tensor.size()),
            [dcp.ChunkStorageMetadata(torch.Size(o), torch.Size(s)) for o, s, _ in chunks])
        for offsets, sizes, file in chunks:
            if file is None:
                continue
            with open(self.folder / file, "ab") as stream:
                begin = stream.tell()
                torch.save(chunk(tensor, offsets, sizes), stream)
                place = filesystem._StorageInfo(file, begin, stream.tell() - begin)
            self.places[dcp.MetadataIndex(name, offsets)] = place

    def write(self):
        metadata = dcp.Metadata(self.items, None, self.places)
        (self.folder / ".metadata").write_bytes(pickle.dumps(metadata))

    def damaged(self, pattern):
        """Mounts with a warning each; `pattern` is that of the first."""
        self.write()
        mount = self.mount(self.folder, quiet=False)
        self.assertRegex(mount.messages, rf"\Ackptfs: warning: {self.folder}: {pattern}\n\Z")
        return mount

    def refuse(self, code, pattern):
        """One sentence, in time and memory."""
        returned, told, _ = self.assertBounded(self.folder)
        self.assertEqual((returned, told.count("\n")), (code, 1), told)
        self.assertRegex(told, rf"\Ackptfs: {self.folder}: {pattern}\n\Z")
        self.assertTrue(told[:-1].isprintable(), told)


class Damage(Written):
    def test_none(self):
        self.write()
        mount = self.mount(self.folder)
        self.assertEqual(self.leaf(mount, "w"), [oracle.leaf(self.whole)])

    def test_a_missing_file(self):
        (self.folder / "__1_0.distcp").unlink()
        mount = self.damaged("'__1_0.distcp': missing 'w': cannot open: No such file or "
                             "directory")
        self.assertEqual(ckptfs.read(mount / "b.memmap"), oracle.raw(torch.arange(5.0)))
        self.assertErrno(errno.EIO, ckptfs.read, mount / "w.memmap")
        entry = view.entries(mount.path)["w"]
        self.assertIs(entry["complete"], False)
        self.assertEqual([(c["offsets"], c["sizes"]) for c in entry["lost_chunks"]],
                         [([0, 2], [4, 4])])
        self.assertEqual(ckptfs.meta(mount.path)["_ckptfs"]["lost"], ["w"])

    def test_a_missing_half_of_a_large_tensor(self):
        """The other half can be read, to the page."""
        large = torch.arange(1 << 18, dtype=torch.int32).reshape(256, 1024)
        self.add("large", large, [([0, 0], [128, 1024], "a"), ([128, 0], [128, 1024], "b")])
        (self.folder / "b").unlink()
        mount = self.damaged("'b': missing 'large': .*")
        path = mount / "large.memmap"
        half = oracle.raw(large[:128])
        self.assertEqual(path.stat().st_size, 2 * len(half))
        self.assertEqual(ckptfs.read(path, 0, len(half)), half)
        self.assertErrno(errno.EIO, ckptfs.read, path, len(half), 1)

    def test_a_truncated_file(self):
        file = self.folder / "__0_0.distcp"
        os.truncate(file, file.stat().st_size - 1)
        mount = self.damaged("'__0_0.distcp': missing 'b': should have .*")
        self.assertEqual(self.leaf_of(mount, "w"), oracle.raw(self.whole))
        self.assertErrno(errno.EIO, ckptfs.read, mount / "b.memmap")

    def leaf_of(self, mount, name):
        return ckptfs.read(mount / f"{name}.memmap")

    def test_everything_missing(self):
        for file in ("__0_0.distcp", "__1_0.distcp"):
            (self.folder / file).unlink()
        self.write()
        self.refuse(CORRUPT, ".*'__0_0.distcp': .* No such file or directory")

    def test_metadata_of_another_checkpoint(self):
        """The files have been overwritten, the metadata have not."""
        self.add("other", torch.arange(7), [([0], [7], "__2_0.distcp")])
        shutil.copy(self.folder / "__2_0.distcp", self.folder / "__1_0.distcp")
        mount = self.damaged("'__1_0.distcp': missing 'w': .*")
        self.assertErrno(errno.EIO, ckptfs.read, mount / "w.memmap")
        self.assertEqual(self.leaf_of(mount, "other"), oracle.raw(torch.arange(7)))

    def test_chunks_that_overlap(self):
        self.add("x", self.whole, [([0, 0], [4, 3], "a"), ([0, 2], [4, 4], "a")])
        mount = self.damaged("'.metadata': missing 'x': its chunks .* overlap")
        self.assertErrno(errno.EIO, ckptfs.read, mount / "x.memmap")

    def test_chunks_with_a_hole(self):
        self.add("x", self.whole, [([0, 0], [2, 6], "a")])
        mount = self.damaged("'.metadata': missing 'x': missing chunks.*")
        self.assertIs(view.entries(mount.path)["x"]["complete"], False)

    def test_names_that_leave_the_directory(self):
        secret = self.folder.parent / "secret"
        secret.write_bytes((self.folder / "__1_0.distcp").read_bytes())
        for name in "../secret", str(secret), "sub/../../secret", "..", "\0", "":
            with self.subTest(name=name):
                for index, place in self.places.items():
                    if index.fqn == "w" and index.offset[1] == 2:
                        place.relative_path = name
                mount = self.damaged("'.*': missing 'w': invalid file name")
                self.assertErrno(errno.EIO, ckptfs.read, mount / "w.memmap")
                mount.unmount()

    def test_a_link_to_elsewhere_is_followed(self):
        """As caches of files are laid out."""
        (self.folder / "__1_0.distcp").rename(self.folder.parent / "blob")
        (self.folder / "__1_0.distcp").symlink_to("../blob")
        self.write()
        self.assertEqual(self.leaf_of(self.mount(self.folder), "w"), oracle.raw(self.whole))

    def test_every_byte_of_the_metadata_changed(self):
        """Refused or mounted; what can be read is right."""
        self.write()
        good = (self.folder / ".metadata").read_bytes()
        wanted = {"w": oracle.raw(self.whole), "b": oracle.raw(torch.arange(5.0))}
        outcomes = set()
        mountpoint = self.mountpoint()
        for place in range(1, len(good), 37):
            with self.subTest(place=place):
                data = bytearray(good)
                data[place] ^= 0x11
                (self.folder / ".metadata").write_bytes(data)
                done = self.ckptfs(self.folder, mountpoint)
                self.assertIn(done.returncode, (0, FORMAT, CORRUPT, LIMITS), done.stderr)
                outcomes.add(done.returncode)
                if done.returncode != 0:
                    self.assertEqual(done.stderr.count("\n"), 1)
                    continue
                with ckptfs.Mount(mountpoint, self.daemon_of(mountpoint), "") as mount:
                    for kind, keys, what in view.walk(mount.path):
                        name = ".".join(keys)
                        if kind != "tensor" or name not in wanted:
                            continue
                        if what.dtype not in ("torch.int32", "torch.float32"):
                            continue
                        try:
                            self.assertEqual(ckptfs.read(what.path), wanted[name])
                        except OSError as failure:
                            self.assertEqual(failure.errno, errno.EIO)
        self.assertGreater(len(outcomes), 1)


class Hostile(Written):
    def metadata(self, opcodes):
        """Metadata whose attributes are what these opcodes push."""
        (self.folder / ".metadata").write_bytes(
            b"\x80\x02ctorch.distributed.checkpoint.metadata\nMetadata\n)\x81" + opcodes + b"b.")

    def test_metadata_of_nothing(self):
        (self.folder / ".metadata").write_bytes(b"")
        self.refuse(CORRUPT, ".*")

    def test_metadata_that_contain_themselves(self):
        self.metadata(b"}q\0X\x13\0\0\0state_dict_metadatah\0s")
        self.refuse(CORRUPT, ".*'state_dict_metadata': .*")

    def test_metadata_in_which_all_is_cyclic(self):
        self.metadata(b"}q\0(X\x13\0\0\0state_dict_metadatah\0X\x0c\0\0\0planner_datah\0"
                      b"X\x0c\0\0\0storage_datah\0X\x0c\0\0\0storage_metah\0u")
        self.refuse(CORRUPT, ".*")

    def test_a_hundred_thousand_lists_in_one_another(self):
        self.metadata(b"}X\x0c\0\0\0storage_meta" + b"]" * 100_000 + b"a" * 99_999 + b"s")
        self.mount_or_refuse()

    def test_a_storage_meta_a_hundred_thousand_deep(self):
        self.metadata(b"}X\x0c\0\0\0storage_metac__main__\nA\n)\x81}X\1\0\0\0a" + b"]" * 100_000
                      + b"a" * 99_999 + b"sbs")
        self.refuse(LIMITS, ".*deep")

    def test_a_path_a_hundred_thousand_long(self):
        """As long as no directory can be: it is none."""
        metadata = dcp.Metadata(self.items, {"b": tuple([1] * 100_000)}, self.places)
        (self.folder / ".metadata").write_bytes(pickle.dumps(metadata))
        self.assertEqual(ckptfs.read(self.mount(self.folder) / "b.memmap"),
                         oracle.raw(torch.arange(5.0)))

    def mount_or_refuse(self):
        code, told, _ = self.assertBounded(self.folder)
        self.assertIn(code, (0, CORRUPT, LIMITS), told)

    def test_three_hundred_thousand_chunks_that_are_one(self):
        """Two bytes each."""
        self.items["b"].chunks *= 300_000
        self.write()
        self.mount_or_refuse()

    def test_chunks_of_exabytes(self):
        self.add("x", torch.arange(4), [([0], [4], "a")], size=[1 << 62])
        self.items["x"].chunks[0].sizes = torch.Size([1 << 62])
        mount = self.damaged(".*missing 'x': .*")
        self.assertIn("error", view.entries(mount.path)["x"])

    def test_sixty_five_dimensions(self):
        self.items["x"] = dcp.TensorStorageMetadata(
            dcp.TensorProperties(dtype=torch.int8), torch.Size([1] * 65), [])
        self.write()
        self.refuse(CORRUPT, ".*'x': too many dimensions \\(found 65, maximum 64\\)")

    def test_more_files_than_there_can_be(self):
        for i in range(10_001):
            self.places[dcp.MetadataIndex("w", [i, 0])] = filesystem._StorageInfo(f"f{i}", 0, 1)
        self.write()
        self.refuse(LIMITS, ".*its parts are in 1000[1-9] files \\(maximum 10000\\)")

    def test_twenty_thousand_items_of_one_byte(self):
        for i in range(20_000):
            self.items[f"x{i}"] = self.items["b"]
            self.places[dcp.MetadataIndex(f"x{i}", [0])] = filesystem._StorageInfo(
                "__0_0.distcp", i % 1000, 1)
        self.write()
        self.mount_or_refuse()

    def test_a_terminal_is_not_commanded_by_names(self):
        self.items["\x1b]0;evil\x07"] = self.items["b"]
        self.write()
        mount = self.mount(self.folder, quiet=False)
        self.assertTrue(mount.messages.replace("\n", "").isprintable(), mount.messages)
