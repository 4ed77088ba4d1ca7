"""Stores: directories of many checkpoints, mirrored, with a directory X.d for each checkpoint X."""

import errno
import filecmp
import json
import os
import re
import shutil
import signal
import socket
import stat
import threading
import time
from pathlib import Path

import ckptfs
import craft
from ckptfs import FORMAT, USAGE

try:
    import torch
    import torch.distributed.checkpoint as dcp
    from safetensors.torch import save_file
    from tensordict import TensorDict
except ImportError as error:
    torch = None
    MISSING = str(error)

MIB = 1 << 20


def write_safetensors(path, data, name="a"):
    """A file with one tensor of bytes."""
    header = {name: {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}}
    craft.write_safetensors(path, json.dumps(header), data)


def names(directory):
    return sorted(os.listdir(getattr(directory, "path", directory)))


class Case(ckptfs.Case):
    def setUp(self):
        self.folder = self.scratch() / "runs"
        self.folder.mkdir()

    def write(self, name, data=b"aaaa"):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_safetensors(path, data)
        return path

    def write_two(self):
        self.write("x.safetensors", b"xxxx")
        self.write("y.safetensors", b"yyyy")

    def mount_logged(self, *options):
        """Mounts with a log file."""
        self.log = self.scratch() / "log"
        return self.mount(self.folder, "-o", ",".join((f"logfile={self.log}", *options)))

    def status(self, mount):
        """Trees in memory, MiB of them, and lookups that the kernel holds."""
        before = self.log.read_text().count("trees:")
        os.kill(mount.daemon, signal.SIGUSR1)
        ckptfs.wait_until(lambda: self.log.read_text().count("trees:") > before)
        found = re.findall(r"trees: (\d+) in memory, ([\d.]+) of [\d.]+ MiB, (\d+) lookups held",
                           self.log.read_text())
        count, mib, held = found[-1]
        return int(count), float(mib), int(held)


class Mirror(Case):
    def test_shows_files_and_trees(self):
        self.write_two()
        self.write("sub/z.safetensors", b"zzzz")
        (self.folder / "notes.txt").write_text("notes\n")
        mount = self.mount(self.folder)
        self.assertEqual(names(mount), ["notes.txt", "sub", "sub.d", "x.safetensors",
                                        "x.safetensors.d", "y.safetensors", "y.safetensors.d"])
        self.assertEqual(names(mount / "sub"), ["z.safetensors", "z.safetensors.d"])
        for file in ("notes.txt", "x.safetensors", "sub/z.safetensors"):
            self.assertTrue(filecmp.cmp(self.folder / file, mount / file, shallow=False), file)
            mine, shown = os.stat(self.folder / file), os.stat(mount / file)
            self.assertEqual((mine.st_size, mine.st_mtime_ns), (shown.st_size, shown.st_mtime_ns))
        for file in ("x.safetensors.d", "sub.d", "sub/z.safetensors.d"):
            letter = file[0] if file[0] != "s" else "z"
            self.assertEqual(ckptfs.read(mount / file / "a.memmap"), letter.encode() * 4)
            self.assertEqual(ckptfs.meta(mount / file)["a"]["shape"], [4])
        self.assertFalse((mount / "notes.txt.d").exists())
        self.assertFalse((mount / "meta.json").exists())

    def test_is_a_store_on_request(self):
        self.write("model.safetensors")
        self.assertEqual(names(self.mount(self.folder)), ["a.memmap", "meta.json"])
        mount = self.mount(self.folder, "-o", "store")
        self.assertEqual(names(mount), ["model.safetensors", "model.safetensors.d"])
        mount = self.mount(self.folder, "-o", "store=trees")
        self.assertEqual(names(mount), ["model.safetensors.d"])
        self.assertErrno(errno.ENOENT, os.stat, mount / "model.safetensors")
        done = self.ckptfs("-o", "store=all", self.folder, self.mountpoint())
        self.assertRefused(done, USAGE, "option store: invalid value 'all' (expected trees, or "
                                        "none); see ckptfs -h")
        file = self.folder / "model.safetensors"
        self.assertRefused(self.ckptfs("-o", "store", file, self.mountpoint()), USAGE,
                           f"option store: {file} is a file, but a store is a directory")

    def test_a_directory_without_checkpoints_is_none(self):
        (self.folder / "a").mkdir()
        (self.folder / "a/notes.txt").write_text("notes\n")
        self.assertRefused(self.ckptfs(self.folder, self.mountpoint()), FORMAT,
                           f"{self.folder}: directory without a checkpoint in a supported format")

    def test_names_that_clash(self):
        self.write_two()
        (self.folder / "x.safetensors.d").write_text("a file\n")
        (self.folder / "y.safetensors.d").mkdir()
        (self.folder / "y.safetensors.d~").write_text("another\n")
        mount = self.mount(self.folder)
        self.assertEqual(ckptfs.read(mount / "x.safetensors.d"), b"a file\n")
        self.assertEqual(ckptfs.read(mount / "x.safetensors.d~/a.memmap"), b"xxxx")
        self.assertEqual(names(mount / "y.safetensors.d"), [])
        self.assertEqual(ckptfs.read(mount / "y.safetensors.d~~/a.memmap"), b"yyyy")
        for name in names(mount):
            os.stat(mount / name)

    def test_links_to_directories_are_links(self):
        self.write("step-1/model.safetensors", b"1111")
        self.write("step-2/model.safetensors", b"2222")
        self.write("other.safetensors")
        (self.folder / "latest").symlink_to("step-2")
        (self.folder / "absolute").symlink_to(self.folder / "step-1")
        (self.folder / "outside").symlink_to("/usr")
        (self.folder / "itself").symlink_to("itself")
        (self.folder / "here").symlink_to(".")
        (self.folder / "link.safetensors").symlink_to("other.safetensors")
        mount = self.mount(self.folder)
        self.assertEqual(names(mount), [
            "absolute", "absolute.d", "here", "latest", "latest.d", "link.safetensors",
            "link.safetensors.d", "other.safetensors", "other.safetensors.d", "step-1", "step-1.d",
            "step-2", "step-2.d"])
        self.assertEqual(os.readlink(mount / "latest"), "step-2")
        self.assertEqual(os.readlink(mount / "absolute"), "step-1")
        self.assertEqual(ckptfs.read(mount / "latest.d/a.memmap"), b"2222")
        self.assertEqual(ckptfs.read(mount / "absolute/model.safetensors.d/a.memmap"), b"1111")
        self.assertEqual(ckptfs.read(mount / "link.safetensors.d/a.memmap"), b"aaaa")
        self.assertEqual(len(list(os.walk(mount.path))), 1 + 2 + 2 + 2 + 2)

    def test_the_mount_point_may_be_inside(self):
        self.write_two()
        mountpoint = self.folder / "sub/mnt"
        mountpoint.mkdir(parents=True)
        mount = self.mount(self.folder, mountpoint=mountpoint)
        self.assertEqual(names(mount / "sub"), [])
        self.assertFalse((mount / "sub/mnt").exists())
        mount.unmount()

    def test_space_attributes_and_tables(self):
        self.write_two()
        mount = self.mount(self.folder, "-o", "xattr,flat")
        self.assertEqual(ckptfs.read(mount / "x.safetensors.d/a.memmap"), b"xxxx")
        self.assertEqual(os.getxattr(mount / "x.safetensors.d/a.memmap", "user.ckptfs.dtype"),
                         b"uint8")
        self.assertGreater(os.statvfs(mount.path).f_blocks, 0)


class Hostile(Case):
    def test_a_corrupt_checkpoint_shows_its_error(self):
        self.write_two()
        path = self.folder / "x.safetensors"
        path.write_bytes(path.read_bytes()[:-1])
        os.utime(path, (1, 1))
        mount = self.mount_logged()
        alone = self.ckptfs(path, self.mountpoint()).stderr
        for _ in range(3):
            self.assertEqual(names(mount / "x.safetensors.d"), ["error.txt"])
        self.assertEqual("ckptfs: " + (mount / "x.safetensors.d/error.txt").read_text(), alone)
        self.assertEqual(self.log.read_text().count("x.safetensors"), 1)
        self.assertEqual(ckptfs.read(mount / "y.safetensors.d/a.memmap"), b"yyyy")
        self.assertTrue(filecmp.cmp(path, mount / "x.safetensors", shallow=False))

    def test_a_file_that_is_being_written_has_an_empty_directory(self):
        self.write_two()
        path = self.folder / "x.safetensors"
        whole = path.read_bytes()
        mount = self.mount(self.folder)
        path.write_bytes(whole[:-1])
        time.sleep(1.1)
        self.assertEqual(names(mount / "x.safetensors.d"), [])
        path.write_bytes(whole)
        ckptfs.wait_until(lambda: names(mount / "x.safetensors.d") == ["a.memmap", "meta.json"], 5)

    def test_odd_files(self):
        self.write_two()
        os.mkfifo(self.folder / "fifo.safetensors")
        server = socket.socket(socket.AF_UNIX)
        self.addCleanup(server.close)
        server.bind(str(self.folder / "socket"))
        raw = os.fsencode(self.folder) + b"/\xff\xfe.safetensors"
        shutil.copy(self.folder / "x.safetensors", raw)
        (self.folder / "empty.safetensors").touch()
        mount = self.mount(self.folder)
        self.assertEqual(sorted(os.listdir(os.fsencode(mount.path))), [
            b"empty.safetensors", b"x.safetensors", b"x.safetensors.d", b"y.safetensors",
            b"y.safetensors.d", b"\xff\xfe.safetensors", b"\xff\xfe.safetensors.d"])
        file = os.fsencode(mount.path) + b"/\xff\xfe.safetensors.d/a.memmap"
        self.assertEqual(ckptfs.read(file), b"xxxx")

    def test_deep_directories(self):
        self.write_two()
        here = os.open(self.folder, os.O_RDONLY)
        for _ in range(3000):
            os.mkdir("d" * 2, dir_fd=here)
            below = os.open("d" * 2, os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = below
        os.close(here)
        self.addCleanup(ckptfs.run, "rm", "-rf", self.folder)
        mount = self.mount(self.folder)
        done = ckptfs.run("find", mount.path)
        self.assertIn("File name too long", done.stderr)
        self.assertGreater(done.stdout.count("\n"), 1000)

    def test_permissions_are_those_of_the_files(self):
        if os.geteuid() != 0:
            self.skipTest("needs root")
        self.write_two()
        self.write("private/z.safetensors")
        (self.folder / "y.safetensors").chmod(0o600)
        (self.folder / "private").chmod(0o700)
        mount = self.mount(self.folder, "-o", "allow_other")
        mode = lambda name: stat.S_IMODE(os.stat(mount / name).st_mode)
        self.assertEqual(mode("x.safetensors"), 0o444)
        self.assertEqual(mode("x.safetensors.d/a.memmap"), 0o444)
        self.assertEqual(mode("y.safetensors"), 0o400)
        self.assertEqual(mode("y.safetensors.d/a.memmap"), 0o400)
        self.assertEqual(mode("private"), 0o500)
        reader = ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "cat")
        for name in ("y.safetensors", "y.safetensors.d/a.memmap", "private/z.safetensors",
                     "private/z.safetensors.d/a.memmap"):
            self.assertIn("Permission denied", ckptfs.run(*reader, mount / name).stderr, name)
        self.assertEqual(ckptfs.run(*reader, mount / "x.safetensors.d/a.memmap").stdout, "xxxx")

    def test_the_directory_itself_may_be_private(self):
        if os.geteuid() != 0:
            self.skipTest("needs root")
        self.write_two()
        self.folder.chmod(0o700)
        mount = self.mount(self.folder, "-o", "allow_other")
        self.assertEqual(stat.S_IMODE(os.stat(mount.path).st_mode), 0o500)


class Live(Case):
    """The directory changes under the mount."""

    def setUp(self):
        super().setUp()
        self.write_two()

    def replace(self, name, data):
        write_safetensors(self.folder / ".new", data)
        os.rename(self.folder / ".new", self.folder / name)

    def test_new_checkpoints_appear_and_removed_ones_vanish(self):
        mount = self.mount(self.folder)
        self.assertFalse((mount / "new.safetensors.d").exists())
        self.replace("new.safetensors", b"new!")
        ckptfs.wait_until(lambda: (mount / "new.safetensors.d/a.memmap").exists(), 2)
        self.assertIn("new.safetensors.d", names(mount))
        os.unlink(self.folder / "x.safetensors")
        ckptfs.wait_until(lambda: not (mount / "x.safetensors.d").exists(), 2)
        self.assertNotIn("x.safetensors.d", names(mount))

    def test_open_files_keep_their_version(self):
        mount = self.mount(self.folder)
        with open(mount / "x.safetensors.d/a.memmap", "rb", buffering=0) as old:
            self.assertEqual(old.read(), b"xxxx")
            self.replace("x.safetensors", b"NEWER")
            ckptfs.wait_until(
                lambda: ckptfs.read(mount / "x.safetensors.d/a.memmap") == b"NEWER", 2)
            self.assertEqual(os.pread(old.fileno(), 9, 0), b"xxxx")

    def test_a_file_that_is_changed_in_place_is_stale(self):
        mount = self.mount(self.folder)
        with open(mount / "x.safetensors.d/a.memmap", "rb", buffering=0) as old:
            write_safetensors(self.folder / "x.safetensors", b"NEWER")
            self.assertErrno(errno.ESTALE, os.pread, old.fileno(), 9, 0)
        time.sleep(1.1)
        self.assertEqual(ckptfs.read(mount / "x.safetensors.d/a.memmap"), b"NEWER")

    def test_a_directory_remains_the_same_while_it_grows(self):
        (self.folder / "sub").mkdir()
        mount = self.mount(self.folder)
        before = os.stat(mount / "sub").st_ino
        self.write("sub/z.safetensors", b"zzzz")
        ckptfs.wait_until(lambda: (mount / "sub/z.safetensors.d/a.memmap").exists(), 2)
        self.assertEqual(os.stat(mount / "sub").st_ino, before)

    def test_each_byte_belongs_to_one_version(self):
        """A writer replaces and removes checkpoints while readers walk."""
        mount = self.mount_logged("trees=1m")
        deadline = time.monotonic() + 5
        versions = 0
        failures = []

        def write():
            nonlocal versions
            while time.monotonic() < deadline:
                versions += 1
                self.replace("live.safetensors", bytes([versions % 256]) * 100_000)
                self.replace(f"step-{versions % 7}.safetensors", bytes([versions % 256]) * 1000)
                (self.folder / f"step-{(versions + 3) % 7}.safetensors").unlink(missing_ok=True)
                time.sleep(0.01)

        def read():
            while time.monotonic() < deadline:
                for directory, _, files in os.walk(mount.path):
                    for file in files:
                        try:
                            data = (Path(directory) / file).read_bytes()
                        except OSError as e:
                            if e.errno not in (errno.ENOENT, errno.ESTALE):
                                failures.append(f"{directory}/{file}: {e}")
                            continue
                        if file == "a.memmap" and len(set(data)) != 1:
                            failures.append(f"{directory}/{file}: mixed")
                        if file == "error.txt":
                            failures.append(f"{directory}: {data}")

        threads = [threading.Thread(target=f) for f in (write, read, read)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        self.assertGreater(versions, 10)
        self.assert_nothing_is_held(mount)

    def assert_nothing_is_held(self, mount):
        if os.geteuid() != 0:
            return
        drop = Path("/proc/sys/vm/drop_caches")

        def is_free():
            drop.write_text("2\n")
            return self.status(mount)[2] == 0

        ckptfs.wait_until(is_free, 10)


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


class Libraries(Case):
    """Directories as libraries write them."""

    def setUp(self):
        super().setUp()
        if torch is None:
            self.skip_avoidable(MISSING)

    def assert_mirrored(self, mount):
        for directory, _, files in os.walk(self.folder):
            for file in files:
                path = Path(directory) / file
                shown = mount / path.relative_to(self.folder)
                self.assertTrue(filecmp.cmp(path, shown, shallow=False), path)

    def tensor(self, path):
        return TensorDict.load_memmap(path)

    def test_the_output_of_a_trainer(self):
        for step in (500, 1000):
            path = self.folder / f"checkpoint-{step}"
            path.mkdir()
            save_file({"w": torch.full((3,), step)}, path / "model.safetensors")
            torch.save({"state": {0: {"exp_avg": torch.ones(2) * step}}, "param_groups": []},
                       path / "optimizer.pt")
            torch.save({"last_epoch": step}, path / "scheduler.pt")
            torch.save({"python": (3, (1, 2), None), "cpu": torch.get_rng_state()},
                       path / "rng_state.pth")
            (path / "config.json").write_text("{}")
            (path / "trainer_state.json").write_text(json.dumps({"global_step": step}))
        mount = self.mount(self.folder)
        self.assert_mirrored(mount)
        path = mount / "checkpoint-500"
        self.assertEqual(self.tensor(path / "model.safetensors.d")["w"].tolist(), [500] * 3)
        found = self.tensor(path / "optimizer.pt.d")["state", "0", "exp_avg"]
        self.assertEqual(found.tolist(), [500, 500])
        self.assertEqual(self.tensor(path / "rng_state.pth.d")["cpu"].tolist(),
                         torch.get_rng_state().tolist())

    def test_deepspeed_and_megatron(self):
        (self.folder / "latest").write_text("global_step10")
        (self.folder / "global_step10").mkdir()
        torch.save({"module": {"w": torch.arange(4)}},
                   self.folder / "global_step10/mp_rank_00_model_states.pt")
        torch.save({"optimizer_state_dict": {"fp32": torch.ones(4)}},
                   self.folder / "global_step10/zero_pp_rank_0_mp_rank_00_optim_states.pt")
        (self.folder / "iter_0000010/mp_rank_00").mkdir(parents=True)
        (self.folder / "latest_checkpointed_iteration.txt").write_text("10")
        torch.save({"model": {"w": torch.arange(5)}},
                   self.folder / "iter_0000010/mp_rank_00/model_optim_rng.pt")
        mount = self.mount(self.folder)
        self.assert_mirrored(mount)
        step = mount / "global_step10/mp_rank_00_model_states.pt.d"
        self.assertEqual(self.tensor(step)["module", "w"].tolist(), [0, 1, 2, 3])
        for path in ("iter_0000010/mp_rank_00/model_optim_rng.pt.d", "iter_0000010/mp_rank_00.d"):
            self.assertEqual(self.tensor(mount / path)["model", "w"].tolist(), [0, 1, 2, 3, 4])

    def test_distributed_checkpoints_in_directories(self):
        for step in (1, 2):
            dcp.save({"w": torch.full((4,), step)}, checkpoint_id=self.folder / f"step-{step}",
                     no_dist=True)
        mount = self.mount(self.folder)
        self.assert_mirrored(mount)
        for step in (1, 2):
            self.assertEqual(self.tensor(mount / f"step-{step}.d")["w"].tolist(), [step] * 4)

    def test_a_tensordict_in_a_directory(self):
        TensorDict({"a": torch.arange(3)}, []).memmap(self.folder / "td")
        self.write_two()
        mount = self.mount(self.folder)
        self.assertEqual(self.tensor(mount / "td")["a"].tolist(), [0, 1, 2])
        self.assertEqual(self.tensor(mount / "td.d")["a"].tolist(), [0, 1, 2])

    def test_several_adapters(self):
        for name in ("one", "two"):
            (self.folder / name).mkdir()
            (self.folder / name / "adapter_config.json").write_text("{}")
            save_file({"lora": torch.ones(2)}, self.folder / name / "adapter_model.safetensors")
        mount = self.mount(self.folder)
        self.assert_mirrored(mount)
        for name in ("one", "two"):
            self.assertEqual(self.tensor(mount / f"{name}.d")["lora"].tolist(), [1, 1])

    def test_the_cache_of_the_hub(self):
        model = self.folder / "models--a--b"
        (model / "blobs").mkdir(parents=True)
        (model / "refs").mkdir()
        (model / "refs/main").write_text("0123")
        save_file({"w": torch.arange(3)}, model / "blobs/abcd")
        (model / "blobs/ef01").write_text("{}")
        (model / "snapshots/0123").mkdir(parents=True)
        (model / "snapshots/0123/model.safetensors").symlink_to("../../blobs/abcd")
        (model / "snapshots/0123/config.json").symlink_to("../../blobs/ef01")
        mount = self.mount(self.folder, "-o", "store")
        self.assert_mirrored(mount)
        snapshots = mount / "models--a--b/snapshots"
        self.assertEqual(self.tensor(snapshots / "0123.d")["w"].tolist(), [0, 1, 2])

    def test_llama_shards(self):
        for rank in (0, 1):
            torch.save({"w": torch.full((2,), rank)}, self.folder / f"consolidated.{rank:02}.pth")
        mount = self.mount(self.folder)
        for rank in (0, 1):
            found = self.tensor(mount / f"consolidated.{rank:02}.pth.d")["w"]
            self.assertEqual(found.tolist(), [rank] * 2)

    def test_a_training_loop(self):
        """Checkpoints are written to a temporary name and renamed; "latest" is swapped."""
        self.write_two()
        mount = self.mount(self.folder)
        for step in range(1, 4):
            part = self.folder / f".step-{step}.tmp"
            torch.save({"w": torch.full((1000,), step)}, part)
            os.rename(part, self.folder / f"step-{step}.pth")
            dcp.save({"w": torch.full((4,), step)}, checkpoint_id=self.folder / f"dcp-{step}",
                     no_dist=True)
            link = self.folder / ".latest"
            link.symlink_to(f"dcp-{step}")
            os.rename(link, self.folder / "latest")
            for name, target in (("latest", f"dcp-{step}"), ("latest.d", f"dcp-{step}.d")):
                path = mount / name
                ckptfs.wait_until(lambda path=path, target=target: os.path.lexists(path)
                                  and os.readlink(path) == target, 2)
            self.assertEqual(self.tensor(mount / "latest.d")["w"].tolist(), [step] * 4)
            found = self.tensor(mount / f"step-{step}.pth.d")["w"]
            self.assertEqual(set(found.tolist()), {step})
