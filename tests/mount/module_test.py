"""Loads a module from a mount as docs/examples.md does: its parameters are mapped, and not copied."""

import json
import os
import sys

import ckptfs

try:
    import tensordict  # noqa: F401
    import torch
except ImportError as error:
    torch = None
    MISSING = str(error)

MEBIBYTES = 256

# Prints by how many bytes the memory of a process grows while it loads a module and uses it.
LOAD = """
import json, sys, torch
from tensordict import TensorDict

def status(member):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(member + ":"))

def make():
    return torch.nn.Sequential(*(torch.nn.Linear(4096, 2048, bias=False) for _ in range(8)))

torch.ones(8, 8) @ torch.ones(8, 8)
before = status("VmRSS"), status("RssAnon")
with torch.device("meta"):
    module = make()
state = TensorDict.load_memmap(sys.argv[1]).flatten_keys(".")
module.load_state_dict(
    {key: tensor.as_subclass(torch.Tensor) for key, tensor in state.items()}, assign=True)
ends = [[w.detach().min().item(), w.detach().max().item()] for w in module.parameters()]
print(json.dumps({"ends": ends, "peak": status("VmHWM") - before[0],
                  "own": status("RssAnon") - before[1],
                  "class": type(next(module.parameters())).__name__}))
"""


class Module(ckptfs.Case):
    def setUp(self):
        if torch is None:
            self.skip_avoidable(MISSING)

    def test_it_takes_no_more_memory_than_the_checkpoint(self):
        file = self.scratch() / "model.pth"
        weights = {f"{i}.weight": torch.full((2048, 4096), float(i)) for i in range(8)}
        size = sum(weight.nbytes for weight in weights.values())
        self.assertEqual(size, MEBIBYTES << 20)
        torch.save(weights, file)
        mount = self.mount(file)
        done = ckptfs.run(os.environ.get("CKPTFS_PYTHON", sys.executable), "-c", LOAD, mount.path,
                          env=os.environ | {"OMP_NUM_THREADS": "1"}, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)
        self.assertEqual(found["ends"], [[i, i] for i in range(8)])
        self.assertEqual(found["class"], "Parameter")
        self.assertLess(found["peak"], 1.3 * size)
        self.assertLess(found["own"], 0.1 * size)
