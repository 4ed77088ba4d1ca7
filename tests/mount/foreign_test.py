"""Text of a checkpoint is never mistaken for text of ckptfs, in any format."""

import json
import os
import shutil
import zipfile

import ckptfs
import view

try:
    import gguf
    import numpy
    import safetensors.torch
    import torch
    from tensordict import TensorDict
    from zanj import ZANJ
except ImportError as error:
    torch = None
    MISSING = str(error)

EVIL = "__import__('os').system('touch pwned')"

# Names that only ckptfs may use, each with a text that it would never write.
CLAIMS = {name: EVIL for name in ("recipe", "error", "x_dtype", "x_shape", "key", "python_type")}
CLAIMS |= {"_ckptfs": {"recipe": EVIL, "globals_refused_by_weights_only": EVIL}}
ENTRY = {"device": "cpu", "dtype": "torch.uint8", "shape": [2], "is_nested": False, **CLAIMS}

OURS = ("_ckptfs", "recipe", "error", "x_dtype", "x_shape")

# What is the checkpoint's own beneath the root's _ckptfs.
CONTAINERS = ("attributes", "metadata", "metadata_types", "index_metadata", "shards", "zanj_cfg",
              "timestamp")


def metas(root):
    for directory, _, files in os.walk(root):
        if "meta.json" in files:
            yield directory, ckptfs.meta(directory)


def claims(node, keys=()):
    """The ways to all texts in a meta.json that are the checkpoint's."""
    if isinstance(node, dict):
        for key, below in node.items():
            yield from claims(below, (*keys, key))
    elif isinstance(node, list):
        for i, below in enumerate(node):
            yield from claims(below, (*keys, i))
    elif isinstance(node, str) and EVIL in node:
        yield keys


def write_meta(directory, **members):
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "meta.json").write_text(json.dumps(members))


class Foreign(ckptfs.Case):
    def setUp(self):
        if torch is None:
            self.skip_avoidable(MISSING)
        self.folder = self.scratch()

    def assertOurs(self, source, least=1):
        """Mounts it; no name of ours has a text of the checkpoint, which is there nevertheless."""
        mount = self.mount(source, quiet=False)
        found = 0
        for directory, meta in metas(mount.path):
            with self.subTest(source=source, directory=directory):
                for keys in claims(meta):
                    found += 1
                    if keys[0] == "data":
                        continue
                    if keys[0] == "_ckptfs":
                        self.assertIn(keys[1], CONTAINERS)
                        self.assertTrue("version" in meta["_ckptfs"] or "class" in meta["_ckptfs"])
                        keys = keys[2:]
                    elif len(keys) == 1:
                        continue  # A field of a tensorclass.
                    self.assertFalse(set(keys) & set(OURS), keys)
                    if len(keys) == 2:
                        self.assertFalse(set(keys[1:]) & set(CLAIMS), keys)
        self.assertGreaterEqual(found, least)
        with open(mount / "tensors.jsonl") as lines:
            for line in map(json.loads, lines):
                self.assertNotIn(EVIL, str(line["error"]))
                self.assertNotIn("recipe", line)
        return mount

    def tensordict(self, root):
        """A TensorDict with every kind of collection, which all claim what is not theirs."""
        state = {"_is_non_tensor": True, "_metadata": None, "data": CLAIMS}
        td = "<class 'tensordict._td.TensorDict'>"
        write_meta(root, _type=td, shape=[], device="cpu", w=ENTRY, **CLAIMS,
                   **{name: {"type": "x"} for name in ("class", "view", "value", "more")})
        (root / "w.memmap").write_bytes(b"ab")
        write_meta(root / "class", _type="<class 'm.Evil'>", **CLAIMS, values=ENTRY, list=[ENTRY])
        write_meta(root / "class/_tensordict", _type=td, shape=[], device="cpu", w=ENTRY, **CLAIMS)
        (root / "class/_tensordict/w.memmap").write_bytes(b"ab")
        write_meta(root / "view", _type="<class 'tensordict._td._SubTensorDict'>", index=ENTRY,
                   **CLAIMS)
        write_meta(root / "view/_source", _type=td, shape=[], device="cpu")
        write_meta(root / "value", _type="<class 'tensordict.tensorclass.NonTensorData'>", **state)
        write_meta(root / "more", _type="<class 'm.NonTensorLike'>", **state, field=ENTRY, **CLAIMS)
        return root

    def test_a_tensordict(self):
        root = self.tensordict(self.folder / "td")
        mount = self.assertOurs(root, 40)
        self.assertNotIn("recipe", view.entries(mount.path)["w"])
        self.assertIn(EVIL, ckptfs.meta(mount / "class")["values"]["recipe_"])
        self.assertEqual(ckptfs.meta(mount / "value")["data"], CLAIMS)

    def test_a_tensordict_in_an_archive(self):
        root = self.tensordict(self.folder / "td")
        with zipfile.ZipFile(self.folder / "td.tdz", "w") as archive:
            for file in root.rglob("*"):
                archive.write(file, file.relative_to(root))
        self.assertOurs(self.folder / "td.tdz", 40)

    def test_a_tensorclass_at_the_root(self):
        root = self.tensordict(self.folder / "td") / "class"
        mount = self.assertOurs(root, 20)
        self.assertNotIn("_ckptfs", ckptfs.meta(mount.path))
        report = ckptfs.meta(mount / "_tensordict")["_ckptfs"]
        self.assertEqual(report["format"], "tensordict")
        self.assertNotIn("recipe", report)

    def test_a_consolidated_tensordict(self):
        td = TensorDict({"w": torch.ones(2), "claims": "x"}, [])
        td.set_non_tensor("c", CLAIMS | {"entry": ENTRY})
        file = self.folder / "td.memmap"
        td.consolidate(file)
        self.assertOurs(file)

    def test_pytorch(self):
        tensor = torch.nn.Parameter(torch.ones(2))
        tensor.__dict__.update(ENTRY | {"deep": {"er": [ENTRY]}})
        state = torch.nn.Linear(1, 1).state_dict()
        state._metadata = {"": ENTRY}
        torch.save({"w": tensor, "state": state, "value": ENTRY, **CLAIMS, "_ckptfs": {"w": tensor},
                    "meta": {"recipe": EVIL, "class": "torch.Tensor", "device": "meta"},
                    "sparse": torch.eye(2).to_sparse()}, self.folder / "evil.pth")
        mount = self.assertOurs(self.folder / "evil.pth", 20)
        self.assertNotIn("recipe", view.entries(mount.path)["meta"])

    def test_safetensors(self):
        texts = {key: str(claim) for key, claim in CLAIMS.items()}
        safetensors.torch.save_file({"w": torch.ones(2), "recipe": torch.ones(1)},
                                    self.folder / "evil.safetensors", texts)
        mount = self.assertOurs(self.folder / "evil.safetensors", len(CLAIMS))
        self.assertEqual(ckptfs.meta(mount.path)["_ckptfs"]["metadata"]["recipe_"], EVIL)
        index = {"metadata": CLAIMS, "weight_map": {"w": "recipe", "recipe": "recipe"}}
        shutil.copy(self.folder / "evil.safetensors", self.folder / "recipe")
        (self.folder / "model.safetensors.index.json").write_text(json.dumps(index))
        self.assertOurs(self.folder / "model.safetensors.index.json", len(CLAIMS))

    def test_gguf(self):
        writer = gguf.GGUFWriter(self.folder / "evil.gguf", "llama")
        for name in CLAIMS:
            writer.add_string(name, EVIL)
        writer.add_tensor("w", numpy.ones(4, "f4"))
        for step in ("header", "kv_data", "tensors"):
            getattr(writer, f"write_{step}_to_file")()
        writer.close()
        self.assertOurs(self.folder / "evil.gguf", len(CLAIMS))

    def test_zanj(self):
        file = self.folder / "evil.zanj"
        ZANJ().save({"w": numpy.ones(300), "c": CLAIMS, "t": [ENTRY] * 300, "_ckptfs": CLAIMS}, file)
        self.assertOurs(file)

    def test_the_documented_loop_evaluates_nothing_of_it(self):
        # Evaluates each recipe at the places that docs/layout.md lists.
        mount = self.mount(self.tensordict(self.folder / "td"), quiet=False)
        for _, meta in metas(mount.path):
            recipes = [meta.get("_ckptfs", {}).get("recipe", "")]
            recipes += [entry.get("recipe", "") for key, entry in meta.items()
                        if isinstance(entry, dict) and key != "data"]
            self.assertNotIn(EVIL, "".join(recipes))
