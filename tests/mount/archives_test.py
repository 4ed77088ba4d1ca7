"""The archives that torch.load does not read: TorchScript, torch.package and torch.export."""

import io
import random
import zipfile

import ckptfs
import view

try:
    import oracle
    import torch
    from torch import nn
    from torch.package import PackageExporter, PackageImporter
except ImportError as error:
    torch, nn = None, None
    MISSING = str(error)

OLD, NEW = ckptfs.SAMPLES / "torch-1.13", ckptfs.SAMPLES / "torch-2.13"


def leaves(tensors):
    return {key: [oracle.leaf(tensor)] for key, tensor in tensors.items()}


if torch is not None:
    class Scripted(nn.Module):
        """Parameters, buffers of both kinds, and attributes of the types that TorchScript has."""

        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 4)
            self.tied = nn.Linear(3, 4)
            self.tied.weight = self.linear.weight
            self.blocks = nn.ModuleList([nn.Conv1d(2, 2, 1), nn.BatchNorm1d(2)])
            self.register_buffer("steps", torch.tensor(7))
            self.register_buffer("scratch", torch.arange(5), persistent=False)
            self.names = ["a", "b"]
            self.sizes = [1, 2, 3]
            self.rates = [0.5, 1.5]
            self.flags = [True, False]
            self.table: dict[str, torch.Tensor] = {"k": torch.ones(2), "l": torch.zeros(1)}
            self.tensors: list[torch.Tensor] = [torch.arange(3.0), torch.arange(2)]
            self.epoch = 3

        def forward(self, x):
            return self.linear(x) + self.tied(x) * self.rates[0]

    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.arange(6.0).reshape(2, 3))
            self.transposed = nn.Parameter(self.weight.detach().t())
            self.register_buffer("mask", torch.tensor([True, False]))
            self.constant = torch.tensor([1.0, 2.0])
            self.inner = nn.Linear(3, 2)

        def forward(self, x):
            return (self.inner(x) + x @ self.transposed) * self.constant + torch.tensor([5.0, 6.0])


class Archives(ckptfs.Case):
    def setUp(self):
        if torch is None:
            self.skip_avoidable(MISSING)
        torch.manual_seed(3)

    def mounted(self, save, name="model.pt"):
        file = self.scratch() / name
        save(file)
        return self.mount(file)

    def assertHas(self, mount, tensors):
        found = view.tensors(mount.path)
        self.assertEqual({key: found.get(key) for key in tensors}, leaves(tensors))

    def test_a_scripted_module_shows_parameters_buffers_and_attributes(self):
        module = torch.jit.script(Scripted())
        mount = self.mounted(lambda file: torch.jit.save(module, str(file)))
        tensors = {**module.state_dict(), "scratch": torch.arange(5), "table.k": torch.ones(2),
                   "table.l": torch.zeros(1), "tensors.0": torch.arange(3.0),
                   "tensors.1": torch.arange(2)}
        self.assertEqual(view.tensors(mount.path), leaves(tensors))
        values = view.values(mount.path)
        self.assertEqual(values["names"], [["a", "b"]])
        self.assertEqual(values["sizes"], [[1, 2, 3]])
        self.assertEqual(values["rates"], [[0.5, 1.5]])
        self.assertEqual(values["flags"], [[True, False]])
        self.assertEqual(values["epoch"], [3])
        self.assertEqual((mount / "tied/weight.memmap").stat().st_ino,
                         (mount / "linear/weight.memmap").stat().st_ino)

    def test_a_traced_module_shows_the_constants_of_its_code(self):
        module = torch.jit.trace(Plain(), torch.ones(1, 3))
        mount = self.mounted(lambda file: torch.jit.save(module, str(file)))
        found = view.tensors(mount.path)
        self.assertHas(mount, module.state_dict())
        constants = sorted(leaf for key, leaf in found.items() if key.startswith("constants."))
        self.assertIn([oracle.leaf(torch.tensor([5.0, 6.0]))], constants)

    def test_random_scripted_modules_hold_what_was_saved(self):
        layers = (lambda: nn.Linear(2, 3), lambda: nn.Conv2d(1, 2, 3), lambda: nn.PReLU(2),
                  lambda: nn.Embedding(4, 3), lambda: nn.LayerNorm(4), lambda: nn.BatchNorm2d(3))
        for seed in range(4 if ckptfs.IS_SANITIZED else 12):
            with self.subTest(seed=seed):
                rng = random.Random(seed)
                module = nn.ModuleDict({f"m{i}": nn.Sequential(*(rng.choice(layers)() for _ in
                                                                 range(rng.randint(1, 3))))
                                        for i in range(rng.randint(1, 4))})
                module = module.to(rng.choice((torch.float32, torch.float64, torch.bfloat16)))
                scripted = torch.jit.script(module)
                mount = self.mounted(lambda file, s=scripted: torch.jit.save(s, str(file)))
                self.assertEqual(view.tensors(mount.path), leaves(module.state_dict()))
                mount.unmount()

    def test_scripts_of_torch_1_13_and_2_13_hold_what_torch_reads(self):
        for file in (OLD / "script.pt", OLD / "script_attrs.pt", OLD / "traced.pt",
                     NEW / "scripted.pt", NEW / "traced.pt"):
            with self.subTest(file.name):
                module = torch.jit.load(str(file))
                mount = self.mount(file)
                self.assertHas(mount, module.state_dict())
                mount.unmount()

    def test_a_package_shows_its_pickles_by_package_and_name(self):
        shared = torch.arange(4.0)

        def save(file):
            with PackageExporter(str(file)) as exporter:
                exporter.save_pickle("models", "net.pkl", {"w": shared, "b": torch.ones(2)})
                exporter.save_pickle("models.deep", "other.pkl", [shared[:2], "text"])
                exporter.save_pickle("top", "value.pkl", {"epoch": 3})
                exporter.save_text("notes", "read.txt", "nothing")

        mount = self.mounted(save, "package.pt")
        self.assertEqual(view.tensors(mount.path),
                         leaves({"models.net.w": shared, "models.net.b": torch.ones(2),
                                 "models.deep.other.0": shared[:2]}))
        self.assertEqual(view.values(mount.path)["top.value.epoch"], [3])

    def test_the_package_of_torch_1_13_holds_what_torch_reads(self):
        loaded = PackageImporter(str(OLD / "package.pt")).load_pickle("model", "m.pkl")
        self.assertEqual(view.tensors(self.mount(OLD / "package.pt").path),
                         leaves({f"model.m.{key}": tensor for key, tensor in loaded.items()}))

    def test_one_damaged_pickle_of_a_package_costs_only_itself(self):
        file = self.scratch() / "package.pt"
        with PackageExporter(str(file)) as exporter:
            exporter.save_pickle("a", "good.pkl", {"w": torch.ones(2)})
            exporter.save_pickle("b", "bad.pkl", {"w": torch.ones(3)})
        data = file.read_bytes()
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            name = next(n for n in archive.namelist() if n.endswith("bad.pkl"))
            pickle = archive.read(name)
        file.write_bytes(data.replace(pickle, b"\xff" * len(pickle)))
        mount = self.mount(file, quiet=False)
        self.assertEqual(list(view.tensors(mount.path)), ["a.good.w"])
        self.assertIn("b/bad.pkl", mount.messages)

    def test_an_exported_program_shows_its_state_and_constants(self):
        program = torch.export.export(Plain(), (torch.ones(1, 3),))
        mount = self.mounted(lambda file: torch.export.save(program, str(file)), "model.pt2")
        expected = {f"state_dict.{key}": tensor for key, tensor in program.state_dict.items()}
        expected |= {f"constants.{key}": tensor for key, tensor in program.constants.items()}
        self.assertEqual(view.tensors(mount.path), leaves(expected))
        self.assertEqual((mount / "state_dict/transposed.memmap").stat().st_size, 24)

    def test_an_exported_program_of_before_2_9_shows_its_state_and_constants(self):
        def save(file):
            with zipfile.ZipFile(file, "w") as archive:
                for name, content in (("state_dict", {"l.weight": torch.ones(2)}),
                                      ("constants", {"c": torch.zeros(3)})):
                    saved = io.BytesIO()
                    torch.save(content, saved)
                    archive.writestr(f"serialized_{name}.pt", saved.getvalue())
                archive.writestr("serialized_exported_program.json", "{}")
                archive.writestr("version", "5.1")

        mount = self.mounted(save, "old.pt2")
        self.assertEqual(view.tensors(mount.path), leaves({"state_dict.l.weight": torch.ones(2),
                                                           "constants.c": torch.zeros(3)}))

    def test_a_damaged_weight_of_an_exported_program_costs_only_itself(self):
        file = self.scratch() / "model.pt2"
        torch.export.save(torch.export.export(Plain(), (torch.ones(1, 3),)), str(file))
        again = file.with_name("cut.pt2")
        with zipfile.ZipFile(file) as source, zipfile.ZipFile(again, "w") as target:
            for name in source.namelist():
                data = source.read(name)
                target.writestr(name, data[:4] if name.endswith("weights/weight_0") else data)
        mount = self.mount(again, quiet=False)
        entries = view.entries(mount / "state_dict")
        damaged = [key for key, entry in entries.items() if "error" in entry]
        self.assertEqual(damaged, ["weight", "transposed"])
        with self.assertRaises(OSError):
            ckptfs.read(mount / "state_dict/weight.memmap")
        self.assertEqual(len(ckptfs.read(mount / "state_dict/inner/bias.memmap")), 8)
