"""The file system `ckptfs` of fsspec: the files that a mount of a checkpoint has, read-only.

    fsspec.open("ckptfs://h/0/ln/weight.memmap::file:///data/model.pth")
    fsspec.filesystem("ckptfs", fo="s3://bucket/model.pth", options=["view=safetensors"])
"""

import os
from typing import Any, Optional, Union

from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem

from ckptfs._open import open
from ckptfs._programs import Options


class CheckpointFileSystem(DirFileSystem):  # type: ignore[misc]
    """Mounts the checkpoint `fo` until this is gone, which fsspec keeps for further files, or until the
    exit of the interpreter. `options` and `program` are those of ckptfs.open; ckptfs finds credentials
    itself, so that there are no `target_options`."""

    protocol = "ckptfs"

    def __init__(self, fo: Union[str, "os.PathLike[str]"], target_protocol: Optional[str] = None,
                 target_options: Optional[dict[str, Any]] = None, options: Options = (),
                 program: Optional[str] = None, **storage_options: Any) -> None:
        if target_options:
            raise ValueError("ckptfs has no target_options: options=[...] are those of ckptfs -o")
        source = os.fspath(fo)
        if target_protocol not in (None, "file", "local") and "://" not in source:
            source = f"{target_protocol}://{source}"
        self.model = open(source, options=options, program=program)
        super().__init__(path=str(self.model.path), fs=LocalFileSystem(), **storage_options)
