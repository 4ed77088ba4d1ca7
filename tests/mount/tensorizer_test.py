"""Files of tensorizer: those of eleven of its releases, handmade ones, and damaged ones.

samples/tensorizer/expected.json has what was written into each file. handmade/ was written by a
program that shares no code with tensorizer.
"""

import collections
import errno
import hashlib
import os
import shutil

import ckptfs
import sealed
import view
from ckptfs import CORRUPT

try:
    import torch
    from tensordict import TensorDict
    from tensorizer import DecryptionParams
except ImportError as error:
    torch = None
    MISSING = str(error)

KINDS = {"PARAM": "parameter", "BUFFER": "buffer", "STATE_DICT": "state_dict"}

NUMPY = {"b1": "bool", "f2": "float16", "f4": "float32", "f8": "float64", "c8": "complex64",
         "c16": "complex128", "u1": "uint8", "u2": "uint16", "u4": "uint32", "u8": "uint64",
         "i1": "int8", "i2": "int16", "i4": "int32", "i8": "int64"}


def torch_dtype(stored):
    """What PyTorch calls the dtype of a file."""
    kind, _, name = stored.partition("\0")
    return name or f"torch.{NUMPY[kind[1:]]}"


def leaves(mount):
    found = collections.defaultdict(list)
    for kind, keys, what in view.walk(mount.path):
        if kind == "tensor":
            found[".".join(keys)].append(what)
    return found


class Samples(ckptfs.Case):
    def assertIs(self, found, place, tensor, is_sealed):
        entry = found.entry
        stat = found.path.stat()
        self.assertEqual(stat.st_size, tensor["nbytes"])
        if "from_source" in tensor:  # The library cannot open the file: this is what was saved.
            digest = hashlib.sha256(ckptfs.read(found.path)).hexdigest()
            return self.assertEqual(digest, tensor["sha256"])
        self.assertEqual(entry["kind"], KINDS[tensor["kind"]])
        if tensor["kind"] != "STATE_DICT" and "module_index" in tensor:
            self.assertEqual(place["module_index"], tensor["module_index"])
        if "foreign_dtype" in entry:
            self.assertEqual(entry["stored_dtype"], tensor["dtype"])
            self.assertEqual(entry["stored_shape"], tensor["shape"])
        else:
            self.assertEqual(found.dtype, torch_dtype(tensor["dtype"]))
            self.assertEqual(list(found.shape), tensor["shape"])
        if tensor["nbytes"] and tensor["data_length"] == 0:
            self.assertTrue(entry["meta"])
            self.assertEqual(stat.st_blocks, 0)
        elif not is_sealed:
            self.assertEqual(place["file_offset"], tensor["data_offset"])
        if tensor["sha256"] is None:
            for offset in (0, tensor["nbytes"] // 2, tensor["nbytes"] - 5):
                self.assertEqual(ckptfs.read(found.path, offset, 5), bytes(5))
        else:
            self.assertEqual(hashlib.sha256(ckptfs.read(found.path)).hexdigest(), tensor["sha256"])

    def assertHolds(self, mount, sample):
        found, places = leaves(mount), view.places(mount.path)
        for tensor in sample["tensors"]:
            key = sealed.dotted(tensor["path"])
            with self.subTest(key):
                # Two tensors may have the same dotted key: "a.b" and "b" in "a".
                there = [f for f in found[key] if list(f.shape) == tensor.get("shape")
                         or len(found[key]) == 1]
                self.assertTrue(there, f"{key}: not there")
                found[key].remove(there[0])
                if "CryptographyError" in tensor.get("reference_read_error", ""):
                    self.assertErrno(errno.EIO, ckptfs.read, there[0].path)
                    continue
                self.assertIs(there[0], places[there[0].path], tensor, "key" in sample)
        self.assertEqual([k for k, rest in found.items() if rest], [])
        summary = ckptfs.meta(mount.path)["_ckptfs"]
        self.assertEqual(summary["format"], "tensorizer")
        self.assertEqual(summary["data_version"], sample["data_version"])
        self.assertEqual(summary["feature_flags"], sample["feature_flags"])
        self.assertEqual(summary["tensor_count"], sample["tensor_count"])
        self.assertEqual(summary["encrypted"], "key" in sample)

    def test_every_sample_holds_what_was_written(self):
        for name, sample in sealed.EXPECTED.items():
            if name in sealed.UNREADABLE:
                continue
            with self.subTest(name):
                file = sealed.unpack(self, name)
                quiet = "meta_scalar" not in name or "key" not in sample
                mount = self.mount(file, *sealed.options_of(self, sample), quiet=quiet)
                self.assertHolds(mount, sample)
                self.assertEqual(mount.unmount(), 0)

    def test_samples_with_a_passphrase_open_with_it(self):
        samples = {n: s for n, s in sealed.EXPECTED.items() if "passphrase" in s}
        self.assertEqual(len(samples), 4)
        for name, sample in samples.items():
            with self.subTest(name):
                option = sealed.passphrase_file(self, sample["passphrase"])
                self.assertHolds(self.mount(sealed.unpack(self, name), option), sample)

    def test_a_save_that_was_not_finished(self):
        file = sealed.unpack(self, "2.12.1-unfinished.tensors")
        self.assertRefusedLike(self.ckptfs(file, self.mountpoint()), CORRUPT,
                               rf"{file}: .*has no tensors.*")

    def test_an_index_that_overflowed_and_was_closed(self):
        file = sealed.unpack(self, "2.12.1-overflow.tensors")
        self.assertRefusedLike(self.ckptfs(file, self.mountpoint()), CORRUPT,
                               rf"{file}: .*0 of .*219.*")

    def test_handmade_files_hold_what_the_library_reads(self):
        if torch is None:
            self.skip_avoidable(MISSING)
        files = sorted((sealed.FOLDER / "handmade").glob("*.tensors"))
        self.assertEqual(len(files), 9)
        for file in files:
            with self.subTest(file.name):
                is_sealed = "_key" in file.name or "_pass" in file.name or "chunk" in file.name \
                    or "_enc" in file.name
                secret = sealed.HANDMADE_DERIVED if "_pass" in file.name else sealed.HANDMADE_KEY
                options = {"encryption": DecryptionParams.from_key(secret)} if is_sealed else {}
                key = [sealed.key_file(self, secret)] if is_sealed else []
                mount = self.mount(file, *key)
                found = leaves(mount)
                wanted = {"L"} if file.name == "v5_long.tensors" else set()
                options["filter_func"] = lambda name: name not in wanted
                for name, tensor in sealed.library(file, verify_hash=True, **options).items():
                    raw = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
                    [leaf] = found.pop(name)
                    self.assertEqual((ckptfs.read(leaf.path), leaf.dtype, leaf.shape),
                                     (raw, str(tensor.dtype), tuple(tensor.shape)))
                self.assertEqual(set(found), wanted)

    def test_a_handmade_file_opens_with_its_passphrase(self):
        mount = self.mount(sealed.FOLDER / "handmade" / "v3_pass.tensors",
                           sealed.passphrase_file(self, sealed.HANDMADE_PASSPHRASE))
        self.assertEqual(ckptfs.read(mount / "fc/weight.memmap"),
                         bytes.fromhex("0000803f000000400000404000008040"))


class Kept(ckptfs.Case):
    """What the file says beside the tensors."""

    def test_hashes_are_listed(self):
        mount = self.mount(sealed.FOLDER / "handmade" / "v1_f32.tensors")
        place = view.places(mount.path)[mount / "fc/weight.memmap"]
        self.assertEqual(place["hashes"], {
            "crc32": "a21f7235",
            "sha256": "fb67afcb25a0b196836d2859f8346177727ddcb5a6dbcb8fa6992291"
                      "04d0b747"})

    def test_encryption_is_listed(self):
        mount = self.mount(sealed.FOLDER / "handmade" / "v3_pass.tensors",
                           sealed.key_file(self, sealed.HANDMADE_DERIVED))
        place = view.places(mount.path)[mount / "fc/weight.memmap"]
        self.assertEqual(place["encryption"], {
            "cipher": "xsalsa20-poly1305", "chunk_size": 16, "chunks": 1, "data_offset": 0x148,
            "key_derivation": {"method": "argon2id", "passes": 1, "memory": 8192,
                               "salt": "00" * 16}})

    def test_lists_are_lists_and_mappings_are_mappings(self):
        mount = self.mount(sealed.unpack(self, "2.12.1-structure.tensors"))
        self.assertEqual(view.entries(mount / "model")["layer"]["python_type"], "list")
        self.assertNotIn("python_type", view.entries(mount.path)["model"])
        self.assertEqual(list(view.entries(mount / "model" / "layer")), ["0", "1"])

    def test_the_files_of_all_writers_look_the_same(self):
        def tree(name):
            mount = self.mount(sealed.unpack(self, name))
            return {key: [leaf.leaf() for leaf in there] for key, there in leaves(mount).items()}
        first = tree("1.0.0-module.tensors")
        for release in ("1.1.0", "2.0.0", "2.3.0", "2.5.1", "2.6.0", "2.11.1", "2.12.1"):
            with self.subTest(release):
                self.assertEqual(tree(f"{release}-module.tensors"), first)

    def test_tensordict_loads_a_module_with_all_its_keys(self):
        if torch is None:
            self.skip_avoidable(MISSING)
        file = sealed.unpack(self, "2.12.1-statedict.tensors")
        mount = self.mount(file)
        loaded = dict(TensorDict.load_memmap(mount.path).flatten_keys(".").items())
        theirs = sealed.library(file)
        self.assertEqual(set(loaded), set(theirs))
        for name, tensor in theirs.items():
            self.assertTrue(torch.equal(loaded[name], tensor), name)
        del loaded


class Damage(ckptfs.Case):
    def damaged(self, name="2.12.1-statedict.tensors"):
        return sealed.unpack(self, name), sealed.EXPECTED[name]["tensors"]

    def test_a_file_that_is_cut_costs_the_tensors_behind_the_cut(self):
        file, tensors = self.damaged()
        cut = tensors[10]
        os.truncate(file, cut["data_offset"] + cut["nbytes"] // 2)
        mount = self.mount(file, quiet=False)
        self.assertIn(f"tensor '{sealed.dotted(cut['path'])}'", mount.messages)
        found = leaves(mount)
        for number, tensor in enumerate(tensors):
            [leaf] = found[sealed.dotted(tensor["path"])]
            with self.subTest(tensor["path"]):
                self.assertEqual(leaf.path.stat().st_size, tensor["nbytes"])
                if number < 10:
                    digest = hashlib.sha256(ckptfs.read(leaf.path)).hexdigest()
                    self.assertEqual(digest, tensor["sha256"])
                else:
                    self.assertErrno(errno.EIO, ckptfs.read, leaf.path)
                    self.assertIn("error", leaf.entry)

    def test_a_header_that_is_cut_is_no_tensor_of_zeros(self):
        # The library takes its missing bytes for zeros, and the tensor for one without data.
        file, tensors = self.damaged()
        for missing in (1, 8, 30, tensors[-1]["data_offset"] - tensors[-1]["header_offset"]):
            with self.subTest(missing=missing):
                cut = self.scratch() / "cut.tensors"
                shutil.copy(file, cut)
                os.truncate(cut, tensors[-1]["data_offset"] - missing)
                mount = self.mount(cut, quiet=False)
                [leaf] = leaves(mount)[sealed.dotted(tensors[-1]["path"])]
                self.assertErrno(errno.EIO, ckptfs.read, leaf.path)
                self.assertNotIn("meta", leaf.entry)
                mount.unmount()

    def test_bytes_behind_the_end_are_nothing(self):
        file, _ = self.damaged()
        with open(file, "ab") as out:
            out.write(b"more")
        self.mount(file)

    def test_a_header_that_differs_from_the_index_costs_its_tensor(self):
        file, tensors = self.damaged()
        name = sealed.dotted(tensors[3]["path"])
        # Its name begins 13 bytes behind the size of the header.
        sealed.flip(file, tensors[3]["header_offset"] + 13)
        mount = self.mount(file, quiet=False)
        self.assertEqual(mount.messages.count("\n"), 1)
        self.assertIn(f"tensor '{name}'", mount.messages)
        [leaf] = leaves(mount)[name]
        self.assertErrno(errno.EIO, ckptfs.read, leaf.path)
        done = self.ckptfs("-ostrict", file, self.mountpoint())
        self.assertEqual(done.returncode, CORRUPT)

    def test_a_file_of_which_nothing_can_be_read_is_refused(self):
        file, tensors = self.damaged()
        os.truncate(file, tensors[0]["header_offset"] + 20)
        self.assertRefusedLike(self.ckptfs(file, self.mountpoint()), CORRUPT, rf"{file}: .+")

    def test_a_file_that_is_cut_in_its_index_is_refused(self):
        file, _ = self.damaged()
        os.truncate(file, 262_000)
        self.assertRefusedLike(self.ckptfs(file, self.mountpoint()), CORRUPT, rf"{file}: .+")
