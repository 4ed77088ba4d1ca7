"""What tests of the program ckpt share."""

import os

import ckptfs

CKPT = os.environ.get("CKPTFS_CKPT", "")


def ckpt(*arguments, **options):
    return ckptfs.run(CKPT, *arguments, **options)
