"""Saves distributed checkpoints with PyTorch itself: python dcp_save.py DIRECTORY RANKS SEED...

For each seed, RANKS processes make the same random tensors, spread them over random meshes in random
ways, and save them in random modes to DIRECTORY/SEED. What was saved is told in SEED.json there:
"tensors", as view.tensors has them, and "values".
"""

import collections
import json
import random
import sys
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")

import oracle
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import FileSystemWriter, HuggingFaceStorageWriter
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.int8,
          torch.bool, torch.complex64, torch.float8_e4m3fn, torch.uint8]


def make_tensor(choose, is_dense):
    """A tensor of any type and shape, and perhaps not in C order."""
    shape = [choose.choice([1, 2, 3, 5, 8, 13]) for _ in range(choose.randint(1, 4))]
    size = torch.Size(shape).numel()
    dtype = choose.choice(DTYPES)
    if dtype is torch.bool:
        tensor = torch.rand(size) > 0.5
    elif dtype.is_floating_point or dtype.is_complex:
        tensor = torch.randn(size).to(dtype)
    else:
        tensor = torch.randint(0, 100, (size,)).to(dtype)
    tensor = tensor.reshape(shape)
    if len(shape) > 1 and not is_dense and choose.random() < 0.3:
        tensor = tensor.transpose(0, 1).contiguous().transpose(0, 1)
    return tensor


def spread(tensor, meshes, choose):
    """The tensor as it is, or as a DTensor."""
    if choose.random() < 0.25:
        return tensor
    mesh = choose.choice(meshes)
    placements = [Replicate() if choose.random() < 0.2 else Shard(choose.randrange(tensor.dim()))
                  for _ in range(mesh.ndim)]
    # Each rank has all of it already.
    return distribute_tensor(tensor, mesh, placements, src_data_rank=None)


def make_state(meshes, seed, plain):
    """Returns what is saved, and what it is: {dotted keys: leaves}, {dotted keys: value}."""
    torch.manual_seed(seed)
    choose = random.Random(seed)
    tensors = collections.defaultdict(list)

    def tensor(*keys):
        whole = make_tensor(choose, is_dense=plain)
        tensors[".".join(keys)].append(oracle.leaf(whole))
        return spread(whole, meshes, choose)

    if plain:
        return {f"layer.{i}.weight": tensor(f"layer.{i}.weight") for i in range(8)}, tensors, {}
    state = {"model": {f"layer.{i}.weight": tensor("model", f"layer.{i}.weight") for i in range(8)},
             "list": [tensor("list", "0"), {"deep": tensor("list", "1", "deep")}, 5],
             "scalar": torch.tensor(2.5), "empty": torch.empty(0, 3), "step": seed,
             "lr": 0.1, "name": "run", "nothing": None, "a.b": {"c": tensor("a.b", "c")}}
    tensors["scalar"] = [oracle.leaf(state["scalar"])]
    tensors["empty"] = [oracle.leaf(state["empty"])]
    values = {"list.2": 5, "step": seed, "lr": 0.1, "name": "run", "nothing": None}
    return state, tensors, values


def save(directory, meshes, seed, ranks):
    choose = random.Random(-seed)
    is_huggingface = seed % 4 == 3
    state, tensors, values = make_state(meshes, seed, is_huggingface)
    path = directory / str(seed)
    if is_huggingface:
        files = {key: 1 + i % 2 for i, key in enumerate(state)} if choose.random() < 0.5 else None
        writer = HuggingFaceStorageWriter(path, fqn_to_index_mapping=files, save_distributed=True)
        dcp.save(state, storage_writer=writer)
    else:
        writer = FileSystemWriter(path, single_file_per_rank=choose.random() < 0.5,
                                  thread_count=choose.choice([1, 2]))
        dcp.save(state, storage_writer=writer, use_collectives=ranks == 1 or seed % 4 != 2)
    if dist.get_rank() == 0:
        told = {keys: sorted(leaves) for keys, leaves in tensors.items()}
        path.with_suffix(".json").write_text(json.dumps({"tensors": told, "values": values}))


def work(rank, directory, ranks, seeds):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{directory}/store-{ranks}", rank=rank,
                            world_size=ranks)
    meshes = [init_device_mesh("cpu", (ranks,))]
    if ranks > 1 and ranks % 2 == 0:
        meshes.append(init_device_mesh("cpu", (ranks // 2, 2)))
    for seed in seeds:
        save(directory, meshes, seed, ranks)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.start_processes(
        work, (Path(sys.argv[1]), int(sys.argv[2]), [int(s) for s in sys.argv[3:]]),
        nprocs=int(sys.argv[2]), start_method="fork")
