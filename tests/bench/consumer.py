"""What users of torch do with a checkpoint; prints the seconds that each round of it took.

    consumer.py first-element FILE KEY   torch.load(mmap=True), then one element of one tensor
    consumer.py first-element-timed FILE KEY   the same, without the import of torch
    consumer.py open FILE KEY            ckptfs.open, then one element of one tensor, by NumPy
    consumer.py open-timed FILE KEY      the same, without the imports
    consumer.py list FILE                torch.load(mmap=True), and a line for each tensor
    consumer.py save-many DIRECTORY N    N checkpoints of 20 small tensors each
    consumer.py to-safetensors FILE OUT  torch.load(mmap=True) and safetensors' save_file
    consumer.py sum-by-two FILE          the sums of all tensors, by two threads of NumPy, after the load
    consumer.py load FILE                torch.load(mmap=True), without the import of torch
    consumer.py sum TENSOR-FILE          np.memmap and its sum, twice: the second one is warm
    consumer.py sum-all DIRECTORY        the sums of all tensors float32, each mapped by torch
    consumer.py sum-safetensors FILE     the same, by safe_open of safetensors
    consumer.py load-memmap DIRECTORY    TensorDict.load_memmap, without the import of tensordict
    consumer.py to-memory DIRECTORY      every tensor file mapped, with all of it in memory, by as
                                         many threads as there are processors
    consumer.py deserialize FILE [KEY]   TensorDeserializer of tensorizer into memory
    consumer.py read-zanj FILE           ZANJ().read into memory, without its import
    consumer.py contiguous FILE          .contiguous() of a view in memory on one core, five times
"""

import mmap
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


def timed(function):
    begin = time.perf_counter()
    result = function()
    print(f"{time.perf_counter() - begin:.6f}")
    return result


def first_element(path, key):
    import torch
    print(torch.load(path, mmap=True)[key].flatten()[0].item())


def first_element_timed(path, key):
    import torch
    timed(lambda: torch.load(path, mmap=True)[key].flatten()[0].item())


def open_first(path, key):
    import ckptfs
    with ckptfs.open(path) as model:
        print(model.numpy(key).flat[0])


def open_first_timed(path, key):
    import ckptfs
    import numpy
    opened = []

    def first():
        opened.append(ckptfs.open(path))
        return numpy.ravel(opened[0].numpy(key))[0]
    timed(first)
    opened[0].close()


def list_all(path):
    import torch
    for key, tensor in torch.load(path, mmap=True).items():
        print(key, tensor.dtype, tuple(tensor.shape), tensor.nbytes)


def save_many(directory, count):
    import torch
    os.mkdir(directory)
    for i in range(int(count)):
        torch.save({f"layer{j}.weight": torch.ones(16, 16) for j in range(20)}, f"{directory}/{i}.pth")


def to_safetensors(path, out):
    import torch
    from safetensors.torch import save_file
    save_file(torch.load(path, mmap=True), out)


def sum_by_two(path):
    import numpy
    import torch
    arrays = [tensor.numpy() for tensor in torch.load(path, mmap=True).values()]

    def total():
        with ThreadPoolExecutor(2) as pool:
            return sum(pool.map(numpy.sum, arrays))
    timed(total)


def load(path):
    import torch
    timed(lambda: torch.load(path, mmap=True))


def sum_of(path):
    import numpy
    for _ in range(2):
        timed(lambda: numpy.memmap(path, numpy.float32, "r").sum())


def sum_all(directory):
    import torch
    files = sorted(Path(directory).rglob("*.memmap"))
    timed(lambda: [torch.from_file(str(file), size=file.stat().st_size // 4).sum().item()
                   for file in files])


def sum_safetensors(path):
    from safetensors import safe_open

    def total():
        with safe_open(path, framework="pt") as file:
            return [file.get_tensor(key).sum().item() for key in file.keys()]
    timed(total)


def load_memmap(directory):
    from tensordict import TensorDict
    timed(lambda: TensorDict.load_memmap(directory))


def to_memory(directory):
    populate_read = 22  # MADV_POPULATE_READ, which Python has no name for.
    files = sorted(Path(directory).rglob("*.memmap"))

    def load_one(path):
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            os.posix_fadvise(file.fileno(), 0, size, os.POSIX_FADV_WILLNEED)
            mapped = mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ)
        mapped.madvise(populate_read)
        return mapped

    def load():
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return list(pool.map(load_one, files))
    timed(load)


def deserialize(path, key=None):
    from tensorizer import DecryptionParams, TensorDeserializer
    encryption = DecryptionParams.from_key(bytes.fromhex(key)) if key else None

    def load():
        with TensorDeserializer(path, device="cpu", encryption=encryption) as reader:
            return dict(reader.items())
    timed(load)


def read_zanj(path):
    from zanj import ZANJ
    timed(lambda: ZANJ().read(path))


def save_llama(directory, kind):
    import os

    import torch
    from safetensors.torch import load_file
    from transformers import LlamaConfig, LlamaForCausalLM
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=32_000, hidden_size=2048, intermediate_size=5632, num_hidden_layers=9,
        num_attention_heads=16, num_key_value_heads=4, dtype="bfloat16")).to(torch.bfloat16)
    model.save_pretrained(directory, max_shard_size="10GB")
    if kind == "bin":
        file = os.path.join(directory, "model.safetensors")
        torch.save(load_file(file), os.path.join(directory, "pytorch_model.bin"))
        os.unlink(file)


def from_pretrained(directory):
    import resource

    from transformers import AutoModelForCausalLM

    def load():
        model = AutoModelForCausalLM.from_pretrained(directory, dtype="auto", local_files_only=True)
        # All of it: the file may be mapped.
        return sum(float(p.flatten()[:: 1024].float().sum()) for p in model.parameters())
    timed(load)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def contiguous(path):
    import torch
    torch.set_num_threads(1)
    view = torch.load(path)["f000000"]
    for _ in range(5):
        timed(view.contiguous)


{"first-element": first_element, "first-element-timed": first_element_timed, "open": open_first,
 "open-timed": open_first_timed, "list": list_all, "save-many": save_many, "to-safetensors": to_safetensors,
 "sum-by-two": sum_by_two, "load": load, "sum": sum_of, "sum-all": sum_all,
 "sum-safetensors": sum_safetensors, "load-memmap": load_memmap,
 "contiguous": contiguous, "read-zanj": read_zanj, "to-memory": to_memory, "deserialize": deserialize,
 "save-llama": save_llama, "from-pretrained": from_pretrained}[sys.argv[1]](*sys.argv[2:])
