#!/usr/bin/env python3
"""Writes the files of this folder, and expected.json with what torch.load reads back from them.

Where a framework can be installed, it writes its file itself; where it cannot, a class of the same
name does. README.md says which, and how to install what this needs. Usage: make_samples.py NAME...
"""

import argparse
import collections
import enum
import importlib.util
import json
import os
import pickle
import random
import shutil
import sys
import tempfile
import types
from pathlib import Path

import numpy
import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "mount"))

import oracle

# The frameworks write where they were into their files.
WORK = Path(tempfile.gettempdir()) / "frameworks"


def model():
    """A very small one, with a buffer of integers and a tied weight."""
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3),
                                 torch.nn.Linear(3, 4))
    layers.tied = layers[0].weight
    return layers


def step(module, optimizer):
    """One step of training, so that the optimizer has a state."""
    module(torch.ones(2, 4) + torch.eye(2, 4)).square().sum().backward()
    optimizer.step()


def module_named(name, **members):
    """Makes a module that can be imported under this name, with these classes in it."""
    parts = name.split(".")
    for depth in range(1, len(parts) + 1):
        sys.modules.setdefault(".".join(parts[:depth]),
                               types.ModuleType(".".join(parts[:depth])))
    for key, member in members.items():
        member.__module__, member.__qualname__, member.__name__ = name, key, key
        setattr(sys.modules[name], key, member)


# ---- Written by the frameworks.

def lightning():
    import pytorch_lightning as pl
    from pytorch_lightning.callbacks import ModelCheckpoint

    class Small(pl.LightningModule):
        def __init__(self, lr=0.25, width=3, names=("a", "b"), options=None):
            super().__init__()
            self.save_hyperparameters()
            self.net = model()

        def training_step(self, batch, _):
            loss = self.net(batch[0]).square().mean()
            self.log("loss", loss)
            return loss

        def configure_optimizers(self):
            optimizer = torch.optim.Adam(self.parameters(), lr=self.hparams.lr)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)]

    pl.seed_everything(0, verbose=False)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.rand(8, 4)), 4)
    trainer = pl.Trainer(max_epochs=2, logger=False, enable_progress_bar=False, accelerator="cpu",
                         enable_model_summary=False, default_root_dir=WORK,
                         callbacks=[ModelCheckpoint(dirpath=WORK / "kept", monitor="loss")])
    trainer.fit(Small(options={"dropout": 0.5, "depth": 2}), data)
    trainer.save_checkpoint(HERE / "lightning.ckpt")


def transformers():
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed
    set_seed(0)
    config = GPT2Config(vocab_size=8, n_positions=4, n_embd=4, n_layer=1, n_head=1)
    data = [{"input_ids": torch.tensor([1, 2, 3, 4]), "labels": torch.tensor([1, 2, 3, 4])}] * 4
    arguments = TrainingArguments(
        output_dir=str(WORK / "run"), max_steps=2, save_steps=2, learning_rate=0.125,
        per_device_train_batch_size=2, report_to=[], use_cpu=True, disable_tqdm=True, seed=7)
    Trainer(model=GPT2LMHeadModel(config), args=arguments, train_dataset=data).train()
    target = HERE / "transformers"
    target.mkdir(exist_ok=True)
    for name in "training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth":
        shutil.copy(WORK / "run/checkpoint-2" / name, target)


def accelerate():
    from accelerate import Accelerator
    from accelerate.utils import set_seed
    set_seed(0)
    accelerator = Accelerator(cpu=True)
    module = model()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5, momentum=0.75)
    module, optimizer, _ = accelerator.prepare(
        module, optimizer, torch.optim.lr_scheduler.LinearLR(optimizer))
    step(module, optimizer)
    accelerator.save_state(WORK / "state", safe_serialization=False)
    target = HERE / "accelerate"
    target.mkdir(exist_ok=True)
    for name in "pytorch_model.bin", "optimizer.bin", "scheduler.bin", "random_states_0.pkl":
        shutil.copy(WORK / "state" / name, target)


def omegaconf():
    from omegaconf import OmegaConf
    config = OmegaConf.create({"optimizer": {"lr": 0.25, "betas": [0.75, 0.5]},
                               "name": "run", "copy": "${name}", "missing": "???", "none": None})
    torch.save({"state_dict": model().state_dict(), "cfg": config, "epoch": 4},
               HERE / "omegaconf.pt")


def timm():
    # All of timm wants torchvision, of which there may be none that fits this torch; this part
    # wants a class of it.
    class FrozenBatchNorm2d(torch.nn.Module):
        pass

    module_named("torchvision.ops.misc", FrozenBatchNorm2d=FrozenBatchNorm2d)
    package = types.ModuleType("timm")
    package.__path__ = importlib.util.find_spec("timm").submodule_search_locations
    sys.modules["timm"] = package
    from timm.utils import CheckpointSaver, ModelEmaV3
    module = model()
    average = ModelEmaV3(module, decay=0.5)
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.25)
    step(module, optimizer)
    average.update(module)
    arguments = argparse.Namespace(lr=0.25, model="small", mean=(0.5, 0.25), resume="", amp=False)
    saver = CheckpointSaver(module, optimizer, args=arguments, model_ema=average,
                            checkpoint_dir=str(WORK), recovery_dir=str(WORK))
    saver.save_checkpoint(epoch=5, metric=0.75)
    shutil.copy(WORK / "checkpoint-5.pth.tar", HERE / "timm.pth.tar")


def deepspeed():
    os.environ |= {"DS_ACCELERATOR": "cpu", "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0",
                   "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
    import deepspeed as ds
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 4))
    engine, *_ = ds.initialize(
        model=module, optimizer=torch.optim.Adam(module.parameters(), lr=0.25),
        config={"train_micro_batch_size_per_gpu": 2, "zero_allow_untested_optimizer": True,
                "bf16": {"enabled": True}, "zero_optimization": {"stage": 1}})
    engine.backward(engine(torch.rand(2, 4).bfloat16()).square().sum())
    engine.step()
    engine.save_checkpoint(str(WORK / "ds"), tag="global_step1",
                           client_state={"epoch": 6, "note": "from the client"})
    target = HERE / "deepspeed"
    target.mkdir(exist_ok=True)
    for file in (WORK / "ds/global_step1").glob("*.pt"):
        shutil.copy(file, target)


def cloudpickle():
    import cloudpickle as pickler

    class Scaled(torch.nn.Linear):
        factor = 2

        def forward(self, x):
            return super().forward(x) * self.factor

    torch.manual_seed(0)
    torch.save({"model": Scaled(4, 3), "transform": lambda x: x + 1, "epoch": 7},
               HERE / "cloudpickle.pth", pickle_module=pickler)


def dill():
    import dill as pickler

    class Scaled(torch.nn.Linear):
        factor = 2

    torch.manual_seed(0)
    torch.save({"model": Scaled(4, 3), "transform": lambda x: x + 1, "epoch": 8},
               HERE / "dill.pth", pickle_module=pickler)


# ---- Written by torch alone.

def optimizer():
    """An optimizer itself and not its state_dict: the keys of its state are tensors."""
    module = torch.nn.Linear(4, 3)
    adam = torch.optim.Adam(module.parameters(), lr=0.25)
    step(module, adam)
    torch.save({"optimizer": adam, "epoch": 9}, HERE / "optimizer.pth")


# ---- Of the structure and with the class names of frameworks that are not installed.

def yolo():
    class Conv(torch.nn.Module):
        default_act = torch.nn.SiLU()

        def __init__(self, first, last):
            super().__init__()
            self.conv = torch.nn.Conv2d(first, last, 3, bias=False)
            self.bn = torch.nn.BatchNorm2d(last)
            self.act = self.default_act

    class Detect(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.nc = 2
            self.stride = torch.tensor([8., 16.])
            self.anchors = torch.empty(0)
            self.cv2 = torch.nn.ModuleList([torch.nn.Conv2d(3, 2, 1)])

    class DetectionModel(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.yaml = {"nc": 2, "backbone": [[-1, 1, "Conv", [3, 3]]], "ch": 3}
            self.model = torch.nn.Sequential(Conv(3, 3), Detect())
            self.model[0].i, self.model[0].f = 0, -1
            self.save = [0]
            self.names = {0: "cat", 1: "dog"}
            self.inplace = True
            self.stride = torch.tensor([8., 16.])
            self.args = {"task": "detect", "imgsz": 640}

    class IterableSimpleNamespace(types.SimpleNamespace):
        pass

    module_named("ultralytics.nn.modules.conv", Conv=Conv)
    module_named("ultralytics.nn.modules.head", Detect=Detect)
    module_named("ultralytics.nn.tasks", DetectionModel=DetectionModel)
    module_named("ultralytics.utils", IterableSimpleNamespace=IterableSimpleNamespace)
    torch.manual_seed(0)
    torch.save({
        "epoch": -1, "best_fitness": None, "model": DetectionModel().half(),
        "ema": DetectionModel().half(), "updates": 12, "optimizer": None,
        "train_args": {"task": "detect", "lr0": 0.25, "imgsz": 640, "amp": True},
        "overrides": IterableSimpleNamespace(batch=16, device=None),
        "train_metrics": {"metrics/mAP50(B)": 0.5}, "train_results": {"epoch": [1, 2]},
        "date": "2024-01-02T03:04:05", "version": "8.2.0", "license": "AGPL-3.0"},
        HERE / "yolo.pt")


def megatron():
    class ModelType(enum.Enum):
        encoder_or_decoder = 1

    class AttnBackend(enum.Enum):
        auto = 5

    module_named("megatron.core.enums", ModelType=ModelType)
    module_named("megatron.core.transformer.enums", AttnBackend=AttnBackend)
    torch.manual_seed(0)
    encoder = {f"layers.0.{name}": torch.rand(shape).bfloat16() for name, shape in (
        ("input_norm.weight", (4,)), ("self_attention.query_key_value.weight", (12, 4)),
        ("self_attention.query_key_value.bias", (12,)), ("mlp.dense_h_to_4h.weight", (8, 4)))}
    encoder["layers.0.self_attention.core_attention._extra_state"] = None
    weight = torch.rand(8, 4)
    arguments = argparse.Namespace(
        num_layers=1, hidden_size=4, num_attention_heads=1, lr=0.25, params_dtype=torch.bfloat16,
        model_type=ModelType.encoder_or_decoder, attention_backend=AttnBackend.auto,
        data_path=["a", "b"], consumed_train_samples=32, iteration=16, world_size=2)
    torch.save({
        "args": arguments, "checkpoint_version": 3.0, "iteration": 16,
        "num_floating_point_operations_so_far": 12345.0,
        "model": {"language_model": {
            "embedding": {"word_embeddings": {"weight": weight.bfloat16()}}, "encoder": encoder}},
        "optimizer": {
            "optimizer": {"state": {0: {"exp_avg": torch.rand(8, 4),
                                        "exp_avg_sq": torch.rand(8, 4)}},
                          "param_groups": [{"lr": 0.25, "step": 16, "params": [0]}]},
            "grad_scaler": {"scale": torch.tensor([4096.]), "growth_tracker": 3},
            "fp32_from_fp16_params": [[torch.nn.Parameter(weight)]]},
        "opt_param_scheduler": {"max_lr": 0.25, "lr_decay_style": "cosine", "num_steps": 32},
        "rng_state": [{
            "random_rng_state": (3, (1, 2, 3), None),
            "np_rng_state": ("MT19937", numpy.arange(4, dtype=numpy.uint32), 2, 0, 0.0),
            "torch_rng_state": torch.arange(8, dtype=torch.uint8),
            "cuda_rng_state": torch.arange(4, dtype=torch.uint8),
            "rng_tracker_states": {"model-parallel-rng": torch.arange(4, dtype=torch.uint8)}}]},
        HERE / "megatron.pt")


def fairseq():
    from omegaconf import OmegaConf

    class DDP_BACKEND_CHOICES(enum.Enum):
        pytorch_ddp = "pytorch_ddp"

        def __reduce_ex__(self, protocol):
            return type(self), (self.value,)

    class CrossEntropyCriterion(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.sentence_avg = False

    module_named("fairseq.dataclass.constants", DDP_BACKEND_CHOICES=DDP_BACKEND_CHOICES)
    module_named("fairseq.criterions.cross_entropy", CrossEntropyCriterion=CrossEntropyCriterion)
    torch.manual_seed(0)
    config = OmegaConf.create({"optimization": {"lr": [0.25], "max_epoch": 10},
                               "model": {"arch": "transformer", "dropout": 0.5}})
    torch.save({
        "args": argparse.Namespace(arch="transformer", lr=[0.25], task="translation",
                                   ddp_backend=DDP_BACKEND_CHOICES.pytorch_ddp),
        "cfg": config,
        "model": collections.OrderedDict(
            (("encoder.version", torch.tensor([3.])),
             ("encoder.embed_tokens.weight", torch.rand(6, 4).half()),
             ("decoder.layers.0.self_attn.k_proj.weight", torch.rand(4, 4).half()))),
        "criterion": CrossEntropyCriterion(),
        "optimizer_history": [{"criterion_name": "CrossEntropyCriterion",
                               "optimizer_name": "FP16Optimizer", "num_updates": 5,
                               "lr_scheduler_state": {"best": 1.5}}],
        "task_state": {}, "extra_state": {"train_iterator": {"epoch": 3, "iterations_in_epoch": 0},
                                          "val_loss": 1.25, "metrics": [(0, "train", [])]},
        "last_optimizer_state": {"state": {0: {"step": 5, "exp_avg": torch.rand(6, 4)}},
                                 "param_groups": [{"lr": 0.25, "params": [0]}],
                                 "loss_scale": 128.0}},
        HERE / "fairseq.pt")


def detectron2():
    rng = numpy.random.default_rng(0)
    names = {"backbone.conv1.weight": (2, 3, 3, 3), "backbone.conv1.norm.running_mean": (2,),
             "roi_heads.box_predictor.cls_score.bias": (4,)}
    with open(HERE / "detectron2.pkl", "wb") as file:
        pickle.dump({"model": {k: rng.random(shape, "f4") for k, shape in names.items()},
                     "__author__": "Detectron2 Model Zoo", "matching_heuristics": True}, file)


def sklearn():
    class LogisticRegression:
        pass

    module_named("sklearn.linear_model._logistic", LogisticRegression=LogisticRegression)
    estimator = LogisticRegression()
    estimator.__dict__ |= {"C": 1.0, "penalty": "l2", "classes_": numpy.array([0, 1]),
                           "coef_": numpy.array([[0.5, -0.25]]), "n_iter_": numpy.int32(7),
                           "_sklearn_version": "1.5.0"}
    with open(HERE / "sklearn.pkl", "wb") as file:
        pickle.dump({"model": estimator, "mean": numpy.float64(0.5)}, file)


WRITERS = (lightning, transformers, accelerate, omegaconf, timm, deepspeed, cloudpickle, dill,
           optimizer, yolo, megatron, fairseq, detectron2, sklearn)


# ---- What torch reads back.

def values(value, keys=""):
    """{dotted keys: value} of what JSON can tell exactly, in dicts, lists and short tuples."""
    if isinstance(value, dict):
        pairs = value.items()
        if not all(isinstance(key, (str, int)) for key in value):
            return {}
    elif type(value) in (list, tuple):
        # The state of Python's random numbers has 625.
        pairs = enumerate(value) if len(value) < 100 else ()
    else:
        is_plain = value is None or type(value) in (bool, int, float, str)
        is_large = type(value) is int and abs(value) >= 1 << 63
        return {keys: value} if is_plain and not is_large else {}
    found = {}
    for key, member in pairs:
        found |= values(member, f"{keys}.{key}" if keys else str(key))
    return found


def expected(file):
    with open(file, "rb") as opened:
        is_pickle = opened.read(2)[:1] == b"\x80"
        opened.seek(0)
        root = pickle.load(opened) if is_pickle else torch.load(file, weights_only=False)
    found, composite = oracle.tensors(root)
    assert not composite, composite
    return {"tensors": {keys: [list(leaf) for leaf in leaves] for keys, leaves in found.items()},
            "values": values(root)}


def main():
    names = sys.argv[1:]
    for writer in WRITERS:
        if names and writer.__name__ not in names:
            continue
        random.seed(0)
        numpy.random.seed(0)
        shutil.rmtree(WORK, ignore_errors=True)
        WORK.mkdir()
        os.chdir(WORK)
        writer()
        print(writer.__name__)
    shutil.rmtree(WORK, ignore_errors=True)
    if names:
        return
    files = (p for p in sorted(HERE.rglob("*")) if p.is_file()
             and p.suffix not in (".py", ".md", ".json"))
    lines = (f"{json.dumps(str(f.relative_to(HERE)))}: {json.dumps(expected(f))}" for f in files)
    (HERE / "expected.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
