"""Directories of checkpoints as libraries write them, in a store."""

import filecmp
import json
import os
from pathlib import Path

import ckptfs
from store_case import Case

try:
    import torch
    import torch.distributed.checkpoint as dcp
    from safetensors.torch import save_file
    from tensordict import TensorDict
except ImportError as error:
    torch = None
    MISSING = str(error)


class Libraries(Case):
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
