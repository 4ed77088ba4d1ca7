"""Writes a checkpoint for a benchmark, with torch itself.

    make_checkpoints.py FILE COUNT BYTES                 COUNT tensors float32 of BYTES each
    make_checkpoints.py --transposed FILE ROWS COLUMNS   one tensor, the view of a matrix turned round
    make_checkpoints.py --plain FILE ROWS COLUMNS        one tensor, a matrix
    make_checkpoints.py --sharded RANKS DIRECTORY ROWS COLUMNS
                                                         the same matrix, its columns in RANKS files
    make_checkpoints.py --dcp FILES DIRECTORY COUNT BYTES
                                                         COUNT tensors in FILES files
    make_checkpoints.py --tensors FILE COUNT BYTES       as the first, written by tensorizer
    make_checkpoints.py --encrypted FILE COUNT BYTES     the same, encrypted with the key 00 01 02 ...
    make_checkpoints.py --safetensors FILE COUNT BYTES   as the first, written by safetensors
    make_checkpoints.py --zanj FILE COUNT BYTES          as the first, written by ZANJ, compressed
    make_checkpoints.py --deflated FILE COUNT BYTES      as the first, deflated by Python's zipfile
    make_checkpoints.py --gpt2 FILE.{pth,safetensors,tensors}
                                                         a GPT-2 of 124 million parameters in float16

Except for GPT-2, the keys are f000000, f000001 and so on, so that the mount has the names that
`null` shows. --sharded and --dcp make directories of torch.distributed.checkpoint.
"""

import sys
import tempfile
import zipfile
from pathlib import Path

import torch
import torch.distributed
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file
from tensorizer import EncryptionParams, TensorSerializer
from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh


def tensors(count, size):
    torch.manual_seed(0)
    elements = size // 4
    # Slices of one random block: no two are equal, and to draw 2 GiB takes longer than to save.
    block = torch.randn(elements + count)
    return {f"f{i:06}": block[i:i + elements].clone() for i in range(count)}


def many(path, count, size):
    torch.save(tensors(count, size), path)


def transposed(path, rows, columns):
    torch.manual_seed(0)
    torch.save({"f000000": torch.randn(columns, rows).t()}, path)


def plain(path, rows, columns):
    torch.manual_seed(0)
    torch.save({"f000000": torch.randn(rows, columns)}, path)


def save_shard(rank, ranks, store, path, rows, columns):
    """One of the processes that write a sharded matrix."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank,
                                         world_size=ranks)
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (ranks,))
    matrix = distribute_tensor(torch.randn(rows, columns), mesh, [Shard(1)])
    dcp.save({"f000000": matrix}, checkpoint_id=path)
    torch.distributed.destroy_process_group()


def sharded(ranks, path, rows, columns):
    with tempfile.TemporaryDirectory() as directory:
        store = str(Path(directory, "store"))
        torch.multiprocessing.spawn(save_shard, (ranks, store, path, rows, columns), nprocs=ranks)


def distributed(files, path, count, size):
    writer = dcp.FileSystemWriter(path, thread_count=files)
    dcp.save(tensors(count, size), storage_writer=writer, no_dist=True)


def tensorized(path, count, size, encryption=None):
    writer = TensorSerializer(path, encryption=encryption)
    writer.write_state_dict(tensors(count, size))
    writer.close()


def encrypted(path, count, size):
    tensorized(path, count, size, EncryptionParams(bytes(range(32))))


def safetensors(path, count, size):
    save_file(tensors(count, size), path)


def zanj(path, count, size):
    from zanj import ZANJ
    ZANJ().save(tensors(count, size), path)
    Path(f"{path}.zanj").rename(path)


def deflated(path, count, size):
    with tempfile.TemporaryDirectory(dir=Path(path).parent) as directory:
        stored = Path(directory, "stored.pth")
        many(stored, count, size)
        with zipfile.ZipFile(stored) as source, \
                zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
            for name in source.namelist():
                target.writestr(name, source.read(name))


def gpt2_shapes():
    """The names and shapes of the `state_dict` of GPT2LMHeadModel, in its order, without the last one."""
    width, vocabulary, positions, layers = 768, 50257, 1024, 12
    vector, wide = (width,), (width, 4 * width)
    shapes = {"wte.weight": (vocabulary, width), "wpe.weight": (positions, width)}
    for i in range(layers):
        shapes |= {f"h.{i}.{name}": shape for name, shape in {
            "ln_1.weight": vector, "ln_1.bias": vector,
            "attn.c_attn.weight": (width, 3 * width), "attn.c_attn.bias": (3 * width,),
            "attn.c_proj.weight": (width, width), "attn.c_proj.bias": vector,
            "ln_2.weight": vector, "ln_2.bias": vector,
            "mlp.c_fc.weight": wide, "mlp.c_fc.bias": (4 * width,),
            "mlp.c_proj.weight": wide[::-1], "mlp.c_proj.bias": vector}.items()}
    shapes |= {"ln_f.weight": vector, "ln_f.bias": vector}
    return {f"transformer.{name}": shape for name, shape in shapes.items()}


def gpt2(path):
    torch.manual_seed(0)
    state = {name: torch.randn(shape).half() for name, shape in gpt2_shapes().items()}
    if path.endswith(".safetensors"):
        save_file(state, path)
    elif path.endswith(".tensors"):
        writer = TensorSerializer(path)
        writer.write_state_dict(state)
        writer.close()
    else:
        # The last layer is tied to the first. The other formats do not store it twice.
        state["lm_head.weight"] = state["transformer.wte.weight"]
        torch.save(state, path)


def main(kind, *arguments):
    writers = {"--transposed": transposed, "--plain": plain, "--sharded": sharded,
               "--dcp": distributed, "--tensors": tensorized, "--encrypted": encrypted,
               "--deflated": deflated, "--gpt2": gpt2, "--safetensors": safetensors, "--zanj": zanj}
    writer = writers.get(kind)
    if writer is None:
        writer, arguments = many, (kind, *arguments)
    writer(*(int(a) if a.isdigit() else a for a in arguments))


if __name__ == "__main__":
    main(*sys.argv[1:])
