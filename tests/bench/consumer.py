"""What users of torch do with a checkpoint; prints the seconds that each round of it took.

    consumer.py first-element FILE KEY   torch.load(mmap=True), then one element of one tensor
    consumer.py load FILE                torch.load(mmap=True), without the import of torch
    consumer.py sum TENSOR-FILE          np.memmap and its sum, twice: the second one is warm
    consumer.py load-memmap DIRECTORY    TensorDict.load_memmap, without the import of tensordict
    consumer.py contiguous FILE          .contiguous() of a view in memory on one core, five times
"""

import sys
import time


def timed(function):
    begin = time.perf_counter()
    result = function()
    print(f"{time.perf_counter() - begin:.6f}")
    return result


def first_element(path, key):
    import torch
    print(torch.load(path, mmap=True)[key].flatten()[0].item())


def load(path):
    import torch
    timed(lambda: torch.load(path, mmap=True))


def sum_of(path):
    import numpy
    for _ in range(2):
        timed(lambda: numpy.memmap(path, numpy.float32, "r").sum())


def load_memmap(directory):
    from tensordict import TensorDict
    timed(lambda: TensorDict.load_memmap(directory))


def contiguous(path):
    import torch
    torch.set_num_threads(1)
    view = torch.load(path)["f000000"]
    for _ in range(5):
        timed(view.contiguous)


{"first-element": first_element, "load": load, "sum": sum_of, "load-memmap": load_memmap,
 "contiguous": contiguous}[sys.argv[1]](*sys.argv[2:])
