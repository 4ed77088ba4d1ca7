"""Checkpoints of training frameworks: every tensor, and the values that people look for.

tests/samples/frameworks/README.md tells who wrote each. None of the frameworks is needed here.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import ckptfs
import view
from ckptfs import SAMPLES

FOLDER = SAMPLES / "frameworks"
EXPECTED = json.loads((FOLDER / "expected.json").read_text())

try:
    import tensordict
except ImportError as error:
    tensordict = None
    MISSING = str(error)

# A tensor as the key of a dict: as torch prints it, and as the mount calls it.
TENSOR_KEY = re.compile(r"Parameter containing:.*?requires_grad=True\)|<torch[^>]*>", re.DOTALL)


def leaves(data, keys):
    """{dotted keys: leaf} of JSON."""
    if not isinstance(data, (dict, list)):
        return {keys: data}
    found = {}
    for key, member in data.items() if isinstance(data, dict) else enumerate(data):
        found |= leaves(member, f"{keys}.{key}")
    return found


def without_tensor_keys(found):
    merged = {}
    for keys, members in found.items():
        merged.setdefault(TENSOR_KEY.sub("TENSOR", keys), []).extend(members)
    return {keys: sorted(members) for keys, members in merged.items()}


class Frameworks(ckptfs.Case):
    def mounted(self, name):
        return self.mount(FOLDER / name)

    def test_no_file_is_forgotten(self):
        files = {str(p.relative_to(FOLDER)) for p in FOLDER.rglob("*") if p.is_file()}
        self.assertEqual(files - {"README.md", "make_samples.py", "expected.json"},
                         set(EXPECTED))

    def test_every_tensor_is_there_and_right(self):
        for name, wanted in EXPECTED.items():
            with self.subTest(name), self.mounted(name) as mount:
                tensors = {keys: [view.Leaf(dtype, tuple(shape), digest)
                                  for dtype, shape, digest in members]
                           for keys, members in wanted["tensors"].items()}
                self.assertEqual(without_tensor_keys(view.tensors(mount.path)),
                                 without_tensor_keys(tensors))

    def test_every_plain_value_is_there_and_right(self):
        for name, wanted in EXPECTED.items():
            with self.subTest(name), self.mounted(name) as mount:
                found = {}
                for keys, members in view.values(mount.path).items():
                    for data in members:
                        found |= leaves(data, keys)
                self.assertEqual({keys: found.get(keys, "missing") for keys in wanted["values"]},
                                 wanted["values"])

    def test_tensordict_loads_them(self):
        if tensordict is None:
            self.skip_avoidable(MISSING)
        loader = subprocess.Popen([sys.executable, "-B", Path(__file__).with_name("loader.py")],
                                  text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(lambda: (loader.stdin.close(), loader.wait(), loader.stdout.close()))
        for name, wanted in EXPECTED.items():
            with self.subTest(name), self.mounted(name) as mount:
                loader.stdin.write(json.dumps(str(mount.path)) + "\n")
                loader.stdin.flush()
                loaded = json.loads(loader.stdout.readline())
                digests = sorted(leaf[2] for members in wanted["tensors"].values()
                                 for leaf in members)
                self.assertEqual(sorted(leaf[2] for leaf in loaded.values()), digests, loaded)


class Values(ckptfs.Case):
    """The contents of objects whose class torch.load would require."""

    def value(self, name, keys):
        """The only value of these keys."""
        [data] = view.values(self.mount(FOLDER / name).path)[keys]
        return data

    def test_lightning_hyper_parameters(self):
        mount = self.mount(FOLDER / "lightning.ckpt")
        found = view.values(mount.path)
        self.assertEqual(found["hyper_parameters"], [
            {"lr": 0.25, "width": 3, "names": ["a", "b"], "options": {"dropout": 0.5, "depth": 2}}])
        self.assertEqual(found["epoch"], [2])
        self.assertEqual(found["global_step"], [4])
        [callback] = [data for keys, [data] in found.items() if keys.endswith(".best_model_path")]
        self.assertEqual(callback, "/tmp/frameworks/kept/epoch=1-step=4.ckpt")

    def test_transformers_training_arguments(self):
        data = self.value("transformers/training_args.bin", "value")
        self.assertEqual(data["class"], "transformers.training_args.TrainingArguments")
        self.assertEqual((data["state"]["learning_rate"], data["state"]["seed"]), (0.125, 7))
        self.assertEqual(data["state"]["optim"]["class"],
                         "transformers.training_args.OptimizerNames")

    def test_transformers_state_of_python_s_random_numbers(self):
        version, numbers, _ = self.value("transformers/rng_state.pth", "python")
        self.assertEqual((version, len(numbers)), (3, 625))

    def test_omegaconf(self):
        data = self.value("omegaconf.pt", "cfg")
        self.assertEqual(data["class"], "omegaconf.dictconfig.DictConfig")
        content = data["state"]["_content"]
        lr = content["optimizer"]["state"]["_content"]["lr"]
        self.assertEqual(lr["state"]["_val"], 0.25)
        self.assertEqual(content["copy"]["state"]["_val"], "${name}")

    def test_timm_arguments(self):
        data = self.value("timm.pth.tar", "args")
        self.assertEqual(data["class"], "argparse.Namespace")
        self.assertEqual((data["state"]["lr"], data["state"]["mean"]), (0.25, [0.5, 0.25]))

    def test_deepspeed_shapes_of_parameters(self):
        [shapes] = self.value("deepspeed/mp_rank_00_model_states.pt", "param_shapes")
        self.assertEqual(shapes, {"0.weight": [3, 4], "0.bias": [3], "1.weight": [4, 3],
                                  "1.bias": [4]})

    def test_megatron_arguments(self):
        state = self.value("megatron.pt", "args")["state"]
        self.assertEqual((state["hidden_size"], state["lr"]), (4, 0.25))
        self.assertEqual(state["params_dtype"], "torch.bfloat16")
        self.assertEqual(state["model_type"]["class"], "megatron.core.enums.ModelType")

    def test_fairseq_arguments(self):
        state = self.value("fairseq.pt", "args")["state"]
        self.assertEqual((state["arch"], state["lr"]), ("transformer", [0.25]))
        self.assertEqual(state["ddp_backend"]["state"], {"args": ["pytorch_ddp"]})

    def test_yolo_names_and_settings(self):
        mount = self.mount(FOLDER / "yolo.pt")
        found = view.values(mount.path)
        self.assertEqual(found["model.names"], [{"0": "cat", "1": "dog"}])
        self.assertEqual(found["overrides"], [{"class": "ultralytics.utils.IterableSimpleNamespace",
                                               "state": {"batch": 16, "device": None}}])

    def test_sklearn_settings(self):
        found = view.values(self.mount(FOLDER / "sklearn.pkl").path)
        self.assertEqual((found["model.C"], found["model.penalty"], found["model.n_iter_"]),
                         ([1.0], ["l2"], [7]))

    def test_functions_by_value_are_shown_and_not_run(self):
        for name in "cloudpickle.pth", "dill.pth":
            with self.subTest(name):
                self.assertIn("class", self.value(name, "transform"))

    def test_an_optimizer_itself(self):
        found = view.values(self.mount(FOLDER / "optimizer.pth").path)
        self.assertEqual(found["optimizer.param_groups.0.lr"], [0.25])
        self.assertEqual(found["optimizer.defaults"][0]["betas"], [0.9, 0.999])
