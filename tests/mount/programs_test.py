"""Programs that people load models with, on a mount of the model's directory.

Each model is made here, tiny and random. What a program loads from the mount must be what it loads
from the directory itself, parameter by parameter.
"""

import json
import os
import shutil
from pathlib import Path

os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "TQDM_DISABLE": "1",
               "DIFFUSERS_VERBOSITY": "error", "TOKENIZERS_PARALLELISM": "false"}

import ckptfs

try:
    import torch
    from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel
    from peft import LoraConfig, PeftModel, get_peft_model
    from safetensors.torch import load_file
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer
    from transformers import (AutoModelForCausalLM, BertConfig, BertModel, BertTokenizerFast,
                              LlamaConfig, LlamaForCausalLM)
except ImportError as error:
    torch = None
    MISSING = str(error)


def config(**options):
    return LlamaConfig(vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
                       num_attention_heads=2, **options)


def save_pickles(folder, shards=1):
    """Turns the safetensors of a model's directory into files of torch.save, as older versions of
    the libraries wrote them."""
    file, = folder.glob("*model.safetensors")
    state = load_file(file)
    file.unlink()
    name = file.name.replace(".safetensors", ".bin")
    name = name if name != "model.bin" else "pytorch_model.bin"
    if shards == 1:
        torch.save(state, folder / name)
        return
    places = {}
    for i in range(shards):
        shard = name.replace(".bin", f"-{i + 1:05}-of-{shards:05}.bin")
        keys = sorted(state)[i::shards]
        torch.save({key: state[key] for key in keys}, folder / shard)
        places |= dict.fromkeys(keys, shard)
    (folder / f"{name}.index.json").write_text(json.dumps(
        {"metadata": {"total_size": sum(t.nbytes for t in state.values())}, "weight_map": places}))


class Case(ckptfs.Case):
    def setUp(self):
        if torch is None:
            self.skip_avoidable(MISSING)
        torch.manual_seed(0)
        self.folder = self.scratch() / "model"

    def mounted(self, *options):
        mount = self.mount(self.folder, *options)
        self.addCleanup(mount.release)
        return mount

    def assertEqualModels(self, model, expected, least=1):
        found, wanted = model.state_dict(), expected.state_dict()
        self.assertEqual(set(found), set(wanted))
        self.assertGreaterEqual(len(wanted), least)
        for key, tensor in wanted.items():
            self.assertEqual(found[key].dtype, tensor.dtype, key)
            self.assertTrue(torch.equal(found[key], tensor), key)


class Transformers(Case):
    def save(self, **options):
        model = LlamaForCausalLM(config(num_key_value_heads=1, tie_word_embeddings=False))
        model.save_pretrained(self.folder, **options)
        return model

    def assertLoads(self, model):
        mount = self.mounted()
        names = os.listdir(mount.path)
        self.assertIn("model.safetensors", names)
        self.assertEqual([name for name in names if name.endswith(".index.json")], [])
        loaded = AutoModelForCausalLM.from_pretrained(mount.path)
        self.assertEqualModels(loaded, model, least=20)
        self.assertEqualModels(loaded, AutoModelForCausalLM.from_pretrained(self.folder))
        tokens = torch.tensor([[1, 2, 3]])
        self.assertTrue(torch.equal(loaded(tokens).logits, model.eval()(tokens).logits))

    def test_a_pickle(self):
        model = self.save()
        save_pickles(self.folder)
        self.assertLoads(model)

    def test_shards_of_pickles(self):
        model = self.save()
        save_pickles(self.folder, shards=3)
        self.assertLoads(model)

    def test_shards_of_safetensors(self):
        model = self.save(max_shard_size="10KB")
        self.assertGreater(len(list(self.folder.glob("model-*.safetensors"))), 2)
        self.assertLoads(model)

    def test_a_file_of_safetensors(self):
        model = self.save()
        self.assertLoads(model)

    def test_half_precision_beside_a_twin(self):
        model = self.save()
        shutil.copy(self.folder / "model.safetensors", self.folder / "copy")
        save_pickles(self.folder)
        (self.folder / "copy").rename(self.folder / "model.safetensors")
        model = model.to(torch.bfloat16)
        model.save_pretrained(self.folder)
        mount = self.mounted()
        loaded = AutoModelForCausalLM.from_pretrained(mount.path, dtype="auto")
        self.assertEqualModels(loaded, model)

    def test_tied_weights(self):
        model = LlamaForCausalLM(config(tie_word_embeddings=True))
        model.save_pretrained(self.folder)
        (self.folder / "model.safetensors").unlink()
        torch.save(model.state_dict(), self.folder / "pytorch_model.bin")
        loaded = AutoModelForCausalLM.from_pretrained(self.mounted().path)
        self.assertEqualModels(loaded, model)
        self.assertEqual(loaded.lm_head.weight.data_ptr(),
                         loaded.model.embed_tokens.weight.data_ptr())

    def test_a_training_checkpoint_by_its_subtree(self):
        model = self.save()
        (self.folder / "model.safetensors").unlink()
        torch.save({"model": model.state_dict(), "epoch": 3}, self.folder / "last.pt")
        mount = self.mounted("-o", "subtree=model")
        self.assertEqualModels(AutoModelForCausalLM.from_pretrained(mount.path), model)


class Others(Case):
    def test_diffusers(self):
        model = UNet2DModel(sample_size=8, in_channels=1, out_channels=1, layers_per_block=1,
                            block_out_channels=(8, 8), norm_num_groups=4,
                            down_block_types=("DownBlock2D", "DownBlock2D"),
                            up_block_types=("UpBlock2D", "UpBlock2D"))
        model.save_pretrained(self.folder)
        save_pickles(self.folder)
        mount = self.mounted()
        self.assertIn("diffusion_pytorch_model.safetensors", os.listdir(mount.path))
        self.assertEqualModels(UNet2DModel.from_pretrained(mount.path), model, least=20)

    def test_diffusers_with_weights_of_another_name(self):
        model = UNet2DModel(sample_size=8, in_channels=1, out_channels=1, layers_per_block=1,
                            block_out_channels=(8,), norm_num_groups=4,
                            down_block_types=("DownBlock2D",), up_block_types=("UpBlock2D",))
        model.save_pretrained(self.folder)
        (self.folder / "diffusion_pytorch_model.safetensors").unlink()
        torch.save(model.state_dict(), self.folder / "unet.pt")
        self.assertEqualModels(UNet2DModel.from_pretrained(self.mounted().path), model, least=20)

    def test_a_pipeline_of_diffusers(self):
        unet = UNet2DModel(sample_size=8, in_channels=1, out_channels=1, layers_per_block=1,
                           block_out_channels=(8,), norm_num_groups=4,
                           down_block_types=("DownBlock2D",), up_block_types=("UpBlock2D",))
        DDPMPipeline(unet, DDPMScheduler()).save_pretrained(self.folder)
        save_pickles(self.folder / "unet")
        mount = self.mounted()
        self.assertIn("unet.d", os.listdir(mount.path))
        loaded = DDPMPipeline.from_pretrained(mount.path)
        self.assertEqualModels(loaded.unet, unet, least=20)

    def test_peft(self):
        torch.manual_seed(1)
        lora = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False,
                          task_type="CAUSAL_LM")
        model = get_peft_model(LlamaForCausalLM(config()), lora)
        model.save_pretrained(self.folder)
        save_pickles(self.folder)
        mount = self.mounted()
        self.assertIn("adapter_model.safetensors", os.listdir(mount.path))
        torch.manual_seed(1)
        loaded = PeftModel.from_pretrained(LlamaForCausalLM(config()), mount.path)
        self.assertEqualModels(loaded, model, least=14)

    def test_sentence_transformers(self):
        parts = self.scratch() / "parts"
        parts.mkdir()
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "model", "on", "mount"]
        (parts / "vocab.txt").write_text("\n".join(words))
        BertTokenizerFast(str(parts / "vocab.txt")).save_pretrained(parts)
        BertModel(BertConfig(vocab_size=len(words), hidden_size=16, num_hidden_layers=1,
                             num_attention_heads=2, intermediate_size=16)).save_pretrained(parts)
        transformer = Transformer(str(parts))
        model = SentenceTransformer(modules=[transformer, Pooling(16)], device="cpu")
        model.save(str(self.folder))
        save_pickles(self.folder)
        self.assertTrue(Path(self.folder, "1_Pooling/config.json").exists())
        loaded = SentenceTransformer(str(self.mounted().path), device="cpu")
        self.assertEqualModels(loaded, model, least=10)
        text = ["a model on a mount"]
        self.assertTrue((loaded.encode(text) == model.encode(text)).all())
