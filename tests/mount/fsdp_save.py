"""Trains a fully sharded model for a step and saves it: python fsdp_save.py DIRECTORY RANKS.

RANKS processes write DIRECTORY/step-1 with the model, the optimizer and the scheduler, as accelerate
names and saves them.
"""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def work(rank, directory, ranks):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{directory}.store", rank=rank,
                            world_size=ranks)
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (ranks,))
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 3))
    for module in (*model, model):
        fully_shard(module, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    step = directory / "step-1"
    dcp.save({"model": get_model_state_dict(model)}, checkpoint_id=step / "pytorch_model_fsdp_0")
    dcp.save({"optimizer": get_optimizer_state_dict(model, optimizer)},
             checkpoint_id=step / "optimizer_0")
    if rank == 0:
        torch.save({"last_epoch": 1}, step / "scheduler.bin")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.start_processes(work, (Path(sys.argv[1]), int(sys.argv[2])),
                                          nprocs=int(sys.argv[2]), start_method="fork")
