"""Directories that frameworks write, by the frameworks themselves: each tensor in a store is that of the
file in which it is, and a directory that is one checkpoint has what its library loads.
"""

import contextlib
import errno
import io
import os
import sys
import warnings
from pathlib import Path

os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "TQDM_DISABLE": "1",
               "ACCELERATE_USE_CPU": "1", "TOKENIZERS_PARALLELISM": "false"}

import ckptfs
import view

try:
    import accelerate
    import oracle
    import torch
    from accelerate.utils import ProjectConfiguration
    from peft import LoraConfig, PeftModel, get_peft_model
    from safetensors import safe_open
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Dense, Pooling, Transformer
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
    from transformers import (AutoModelForCausalLM, BertConfig, BertModel, BertTokenizerFast,
                              LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments)
except ImportError as error:
    torch = None
    MISSING = str(error)

# What torch.load and safe_open read.
SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".pkl")


def llama():
    return LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=16, intermediate_size=32,
                                        num_hidden_layers=2, num_attention_heads=2))


def lora(*modules):
    return LoraConfig(r=2, target_modules=list(modules), init_lora_weights=False,
                      task_type="CAUSAL_LM")


def tensors_of(path):
    """{dotted keys: leaves} of a file, as its library reads it."""
    if path.suffix == ".safetensors":
        with safe_open(path, "pt") as file:
            return {key: [oracle.leaf(file.get_tensor(key))] for key in file.keys()}
    found, composite = oracle.tensors(oracle.load(path))
    assert not composite, composite
    return found


class Case(ckptfs.Case):
    def setUp(self):
        if torch is None:
            self.skip_avoidable(MISSING)
        warnings.filterwarnings("ignore")
        self.folder = self.scratch() / "run"
        torch.manual_seed(0)

    def assert_all_right(self, mount, count):
        """Each file is there, and `count` of them have trees with their tensors."""
        trees = 0
        for directory, _, files in os.walk(self.folder):
            for name in files:
                path = Path(directory, name)
                shown = mount / path.relative_to(self.folder)
                self.assertEqual(ckptfs.read(shown), path.read_bytes(), path)
                tree = shown.with_name(name + ".d")
                self.assertEqual(tree.exists(), name.endswith(SUFFIXES), path)
                if tree.exists():
                    self.assertEqual(view.tensors(tree), tensors_of(path), path)
                    trees += 1
        self.assertEqual(trees, count)


class Training(Case):
    def test_a_trainer(self):
        data = [{"input_ids": torch.arange(8), "labels": torch.arange(8)} for _ in range(4)]
        settings = TrainingArguments(
            output_dir=self.folder, max_steps=2, save_steps=1, per_device_train_batch_size=2,
            report_to=[], use_cpu=True, disable_tqdm=True)
        trainer = Trainer(model=llama(), args=settings, train_dataset=data)
        with contextlib.redirect_stdout(io.StringIO()):  # Its metrics.
            trainer.train()
        trainer.save_model()
        mount = self.mount(self.folder)
        self.assert_all_right(mount, 2 * 5 + 2)
        state = view.tensors(mount / "checkpoint-2/optimizer.pt.d")
        self.assertEqual(sum(key.endswith(".exp_avg") for key in state), 21)
        for path in ("", "checkpoint-1", "checkpoint-2"):
            loaded = AutoModelForCausalLM.from_pretrained(mount / path).state_dict()
            for key, tensor in AutoModelForCausalLM.from_pretrained(
                    self.folder / path).state_dict().items():
                self.assertTrue(torch.equal(loaded[key], tensor), key)

    def test_accelerate(self):
        project = ProjectConfiguration(project_dir=self.folder, automatic_checkpoint_naming=True)
        accelerator = accelerate.Accelerator(cpu=True, project_config=project)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2))
        optimizer = torch.optim.AdamW(model.parameters())
        model, optimizer = accelerator.prepare(model, optimizer)
        accelerator.register_for_checkpointing(torch.nn.Linear(3, 3))
        accelerator.backward(model(torch.ones(2, 4)).sum())
        optimizer.step()
        accelerator.save_state()
        accelerator.save_state(safe_serialization=False)
        accelerator.save_model(model, self.folder / "final", max_shard_size="1KB")
        mount = self.mount(self.folder)
        self.assert_all_right(mount, 2 * 4 + 1)
        step = mount / "checkpoints/checkpoint_1"
        self.assertEqual(view.tensors(step / "pytorch_model.bin.d"),
                         view.tensors(mount / "checkpoints/checkpoint_0/model.safetensors.d"))
        self.assertEqual(len(view.tensors(step / "optimizer.bin.d")), 3 * 4)

    def test_fully_sharded_training(self):
        """A step as accelerate saves it: the model and the optimizer are distributed checkpoints."""
        done = ckptfs.run(sys.executable, "-B", Path(__file__).with_name("fsdp_save.py"), self.folder, 2,
                          timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        mount = self.mount(self.folder)
        self.assertEqual(sorted(os.listdir(mount / "step-1")), [
            "optimizer_0", "optimizer_0.d", "pytorch_model_fsdp_0", "pytorch_model_fsdp_0.d",
            "scheduler.bin", "scheduler.bin.d"])
        for name in ("pytorch_model_fsdp_0", "optimizer_0"):
            whole = self.folder.with_name(name)
            dcp_to_torch_save(self.folder / "step-1" / name, whole)
            expected = tensors_of(whole)
            self.assertEqual(view.tensors(mount / "step-1" / f"{name}.d"), expected)
            self.assertEqual(view.tensors(self.mount(self.folder / "step-1" / name).path), expected)
            # A file of it is a part, whose items only the metadata tell apart.
            self.assertEqual(sorted(os.listdir(mount / "step-1" / name)),
                             [".metadata", "__0_0.distcp", "__1_0.distcp"])
            self.assertErrno(errno.ENOENT, os.stat, mount / "step-1" / name / "__0_0.distcp.d")


class Distributed(Case):
    def save(self):
        done = ckptfs.run(sys.executable, "-B", Path(__file__).with_name("fsdp_save.py"), self.folder, 1,
                          timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.folder / "step-1/optimizer_0"

    def test_a_file_of_it_alone_is_no_checkpoint(self):
        mount = self.mount(self.save() / "__0_0.distcp", quiet=False)
        self.assertIn("one of several files of a checkpoint: mount their directory for all of it",
                      mount.messages)

    def test_without_its_metadata_it_is_none(self):
        folder = self.save()
        (folder / ".metadata").unlink()
        self.assertRefused(
            self.ckptfs(folder, self.mountpoint()), ckptfs.FORMAT,
            f"{folder}: directory without a checkpoint in a supported format, but with '__0_0.distcp'")


class Models(Case):
    def test_several_adapters(self):
        model = get_peft_model(llama(), lora("q_proj"))
        model.add_adapter("second", lora("v_proj"))
        model.add_adapter("third", lora("q_proj", "v_proj"))
        model.save_pretrained(self.folder)
        mount = self.mount(self.folder)
        self.assert_all_right(mount, 3)
        torch.manual_seed(0)
        loaded = PeftModel.from_pretrained(llama(), mount.path)
        for name in ("second", "third"):
            loaded.load_adapter(mount / name, name)
        found = loaded.state_dict()
        for key, tensor in model.state_dict().items():
            if "lora" in key:
                self.assertTrue(torch.equal(found[key], tensor), key)

    def test_sentence_transformers_with_a_dense_layer(self):
        parts = self.scratch()
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "store"]
        (parts / "vocab.txt").write_text("\n".join(words))
        BertTokenizerFast(str(parts / "vocab.txt")).save_pretrained(parts)
        BertModel(BertConfig(vocab_size=len(words), hidden_size=16, num_hidden_layers=1,
                             num_attention_heads=2, intermediate_size=16)).save_pretrained(parts)
        model = SentenceTransformer(modules=[Transformer(str(parts)), Pooling(16), Dense(16, 8)],
                                    device="cpu")
        model.save(str(self.folder))
        mount = self.mount(self.folder)
        self.assert_all_right(mount, 2)
        loaded = SentenceTransformer(str(mount.path), device="cpu")
        self.assertTrue((loaded.encode(["a store"]) == model.encode(["a store"])).all())
