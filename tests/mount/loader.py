"""Loads mounts with TensorDict.load_memmap: reads one directory per line, answers one line each.

The answer is JSON: {keys joined by dots, escaped as JSON: [dtype, shape, sha256]}, or {"": error}.
It runs in a process of its own so that it can be of another version of tensordict.
"""

import gc
import hashlib
import json
import sys
import warnings

import torch
from tensordict import TensorDict

warnings.simplefilter("ignore")


def digest(tensor):
    data = tensor.contiguous().as_subclass(torch.Tensor).reshape(-1)
    if data.numel():
        data = data.view(torch.uint8)
    return hashlib.sha256(data.numpy().tobytes()).hexdigest()


def leaves(td, prefix=()):
    for key in td.keys():
        value = td.get(key)
        if isinstance(value, torch.Tensor):
            yield (*prefix, key), [str(value.dtype), list(value.shape), digest(value)]
        elif isinstance(value, TensorDict):
            yield from leaves(value, (*prefix, key))


def answer(directory):
    try:
        loaded = TensorDict.load_memmap(directory)
        return {json.dumps(keys): leaf for keys, leaf in leaves(loaded)}
    except Exception as error:  # Whatever it is, it is the answer.
        return {"": f"{type(error).__name__}: {error}"}


gc.freeze()  # What was imported stays: looking through it again and again takes most of the time.
for line in sys.stdin:
    text = json.dumps(answer(json.loads(line)))
    # A mapped tensor keeps the mount busy, and tensordicts refer to themselves.
    gc.collect()
    print(text, flush=True)
