"""The backend "pipe" of the Python package needs no mount.

Commands and failures are tested with fake_ckpt.py, which has the interface of the program `ckpt`.
"""

import json
import os
from pathlib import Path

from package import Case, ckptfs, numpy, torch

CKPT = Path(__file__).with_name("fake_ckpt.py")


class Pipe(Case):
    def setUp(self):
        super().setUp()
        self.log = self.directory / "log"
        os.environ["FAKE_CKPT_LOG"] = str(self.log)
        self.addCleanup(os.environ.pop, "FAKE_CKPT_LOG")
        self.tensors = {"h.0.w": torch.randn(300, 200), "h.0.bf": torch.ones(3).bfloat16(),
                        "f8": torch.ones(2, 2).to(torch.float8_e4m3fn), "n": torch.tensor(7),
                        "empty": torch.empty(0, 3)}

    def open(self, options=(), **metadata):
        from safetensors.torch import save_file
        file = self.directory / "model.safetensors"
        save_file(self.tensors, file, metadata)
        return ckptfs.open(file, backend="pipe", program=CKPT, options=options)

    def commands(self):
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def test_tensors(self):
        with self.open() as model:
            self.assertEqual(set(model), set(self.tensors))
            for key, tensor in self.tensors.items():
                self.assertSame(model[key], tensor)
                self.assertEqual(model.raw(key).nbytes, tensor.nbytes)
            numpy.testing.assert_array_equal(model.numpy("h.0.w"), self.tensors["h.0.w"].numpy())
            self.assertEqual(self.mounted(), [])
            for function in (lambda: model.path), model.tensordict:
                self.assertFails('the backend "pipe" has no directory', function)
            self.assertRaises(KeyError, model.composite, "h")
        self.assertFails("the model is closed", lambda: model["n"])

    def test_a_tensor_is_read_when_it_is_used(self):
        with self.open() as model:
            file = str(self.directory / "model.safetensors")
            self.assertEqual(self.commands(), [["ls", "--json", "--", file]])
            tensor = model["h.0.w"]
            self.assertEqual(self.commands()[1:], [["cat", "--", file, "h.0.w"]])
            tensor += 1  # Another request does not see it.
            self.assertSame(model["h.0.w"], self.tensors["h.0.w"])

    def test_state_dict(self):
        module = torch.nn.Module()
        module.w, module.bf = torch.nn.Parameter(torch.empty(0)), torch.nn.Parameter(torch.empty(0))
        with torch.device("meta"):
            module.w, module.bf = (torch.nn.Parameter(torch.empty(self.tensors[key].shape))
                                   for key in ("h.0.w", "h.0.bf"))
        with self.open() as model:
            module.load_state_dict(model.state_dict("h.0"), assign=True)
        self.assertSame(module.w.data, self.tensors["h.0.w"])
        self.assertSame(module.bf.data, self.tensors["h.0.bf"])

    def test_values(self):
        with self.open(epoch="3") as model:
            self.assertEqual(dict(model.values), {"epoch": "3"})
            self.assertEqual(model.values["epoch"], "3")
            self.assertEqual([command[0] for command in self.commands()], ["ls", "info"])

    def test_options(self):
        with self.open({"timeout": 5, "no_sign": True}) as model:
            model["n"]
        for command in self.commands():
            self.assertEqual([word for word in command if word == "-o" or "=" in word or "_" in word][:4],
                             ["-o", "timeout=5", "-o", "no_sign"])
        self.assertRaises(ValueError, ckptfs.open, "x", backend="pipe", path="mnt")

    def test_errors(self):
        self.assertFails("^nothing: cannot open: No such file or directory$", ckptfs.open, "nothing", backend="pipe",
                         program=CKPT, code=3)
        with self.open(fail="n") as model:
            self.assertFails("^n: Input/output error$", lambda: model["n"], code=5)
            self.assertSame(model["f8"], self.tensors["f8"])
        for length, printed in ("short", 239999), ("long", "more"):
            with self.open(length=length) as model:
                self.assertFails(f"^h.0.w: ckpt cat printed {printed} bytes, not 240000$", lambda: model["h.0.w"])
        self.assertFails("cannot run: No such file", ckptfs.open, "x", backend="pipe", program="/nothing/ckpt")
        self.assertFails("no JSON", ckptfs.open, "x", backend="pipe", program="/bin/true")

    def test_program_beside_that_of_the_environment(self):
        (self.directory / "ckpt").symlink_to(CKPT)
        os.environ["CKPTFS_PROGRAM"] = str(self.directory / "ckptfs")
        self.open()
        model = ckptfs.open(self.directory / "model.safetensors", backend="pipe")
        self.assertEqual(model["n"].item(), 7)


class Program(Case):
    """The program itself, which must give what a mount gives."""

    def test_as_a_mount(self):
        shared = torch.randn(3, 4)
        file = self.save({"net": {"w": shared, "tied": shared, "t": shared.T, "b": torch.ones(2).bfloat16(),
                                  "f8": torch.ones(2, 2).to(torch.float8_e4m3fn), "e": torch.empty(0, 3)},
                          "epoch": 3, "-o": torch.tensor(7)})
        with ckptfs.open(file) as mount, ckptfs.open(file, backend="pipe", program=os.environ["CKPTFS_CKPT"]) as pipe:
            self.assertEqual(list(pipe), list(mount))
            for key in mount:
                self.assertSame(pipe[key], mount[key])
                self.assertEqual(pipe.raw(key), mount.raw(key))
            self.assertEqual(dict(pipe.values), dict(mount.values))
            self.assertEqual(set(pipe.state_dict("net")), set(mount.state_dict("net")))

    def test_errors(self):
        self.assertFails("No such file or directory", ckptfs.open, "nothing", backend="pipe",
                         program=os.environ["CKPTFS_CKPT"], code=3)
