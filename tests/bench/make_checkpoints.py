"""Writes a checkpoint for a benchmark, with torch itself.

    make_checkpoints.py FILE COUNT BYTES               COUNT tensors float32 of BYTES each
    make_checkpoints.py --transposed FILE ROWS COLUMNS one tensor, the view of a matrix turned round

The keys are f000000, f000001 and so on, so that the mount has the names that `null` shows.
"""

import sys

import torch


def many(path, count, size):
    torch.manual_seed(0)
    elements = size // 4
    # Slices of one random block: no two are equal, and to draw 2 GiB takes longer than to save.
    block = torch.randn(elements + count)
    torch.save({f"f{i:06}": block[i:i + elements].clone() for i in range(count)}, path)


def transposed(path, rows, columns):
    torch.manual_seed(0)
    torch.save({"f000000": torch.randn(columns, rows).t()}, path)


if sys.argv[1] == "--transposed":
    transposed(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
else:
    many(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
