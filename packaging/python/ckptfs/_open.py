"""open()."""

import os
from typing import Optional, Union

from ckptfs._backend import Backend
from ckptfs._fuse import FuseBackend
from ckptfs._model import Model
from ckptfs._pipe import PipeBackend
from ckptfs._programs import Options, find, option_words

_Path = Union[str, "os.PathLike[str]"]


def open(source: _Path, *, path: Optional[_Path] = None, options: Options = (), backend: str = "fuse",
         program: Optional[_Path] = None) -> Model:
    """Opens a checkpoint: a path or a URI, as on the command line of ckptfs.

    The backend "fuse" mounts it on a new temporary directory, or on `path`. The backend "pipe" needs
    no FUSE: it runs `ckpt` once for each tensor that is used, and reads the tensor into memory.
    `options` are those of ckptfs -o: a list of texts, or a mapping such as {"cache_dir": "cache",
    "flat": True}. `program` replaces the program of the backend, which is else $CKPTFS_PROGRAM, the
    installed one, or that in PATH. Raises Error.
    """
    source, words = os.fspath(source), option_words(options)
    chosen = None if program is None else os.fspath(program)
    made: Backend
    if backend == "fuse":
        made = FuseBackend([find("ckptfs", chosen), *words], source, None if path is None else os.fspath(path))
    elif backend == "pipe":
        if path is not None:
            raise ValueError("the backend \"pipe\" takes no path")
        made = PipeBackend(find("ckpt", chosen), words, source)
    else:
        raise ValueError(f"unknown backend {backend!r}: \"fuse\" or \"pipe\"")
    return Model(source, made)
