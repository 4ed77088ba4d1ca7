"""What tests of the program ckpt share."""

import os

import ckptfs

CKPT = os.environ.get("CKPTFS_CKPT", "")


def ckpt(*arguments, **options):
    return ckptfs.run(CKPT, *arguments, **options)


def samples():
    """Every sample: files, and directories that are checkpoints."""
    for top in sorted(ckptfs.SAMPLES.iterdir()):
        if top.name == "dcp":
            yield from sorted(path.parent for path in top.rglob(".metadata"))
        elif top.name == "tensordict":
            yield from sorted(path for path in top.iterdir() if path.is_dir())
        elif top.is_dir():
            yield from sorted(path for path in top.rglob("*") if path.is_file() and path.suffix != ".json")
