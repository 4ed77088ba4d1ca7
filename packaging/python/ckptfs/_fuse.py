"""The backend that mounts the checkpoint."""

import os
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from ckptfs._backend import Buffer, TensorInfo
from ckptfs._contents import Contents, entry_of
from ckptfs._errors import Error
from ckptfs._index import Index
from ckptfs._memory import map_private
from ckptfs._mount import mount, unmount


class FuseBackend:
    """A mount and maps of its files. See Backend."""

    def __init__(self, command: Sequence[str], source: str, path: Optional[str]) -> None:
        mounted = mount(command, source, path)
        self.path = mounted.directory
        # Runs at the exit of the interpreter, too.
        self._finalizer = weakref.finalize(self, unmount, mounted)
        self._buffers: dict[int, Buffer] = {}  # By inode: tied tensors are hard links.
        self._contents: Optional[Contents] = None
        try:
            self.tensors = Index(self._lines())
        except BaseException:
            self.close()
            raise

    def buffer(self, info: TensorInfo) -> Buffer:
        if info.path is None:
            raise Error(f"{info.key}: the path of its file is too long")
        try:
            descriptor = os.open(os.path.join(self.path, info.path), os.O_RDONLY | os.O_CLOEXEC)
            try:
                status = os.fstat(descriptor)
                if status.st_size != info.nbytes:
                    raise Error(f"{info.key}: the file has {status.st_size} bytes, not {info.nbytes}")
                buffer = self._buffers.get(status.st_ino)
                if buffer is None:
                    # If two threads come here, both get the first map.
                    made = Buffer(map_private(descriptor, info.nbytes))
                    buffer = self._buffers.setdefault(status.st_ino, made)
                return buffer
            finally:
                os.close(descriptor)
        except OSError as error:
            raise Error(f"{info.key}: cannot map: {error.strerror}") from error

    def values(self) -> Mapping[str, Any]:
        return self._scan().values

    def recipes(self) -> Mapping[str, str]:
        return self._scan().recipes

    def recipe(self, info: TensorInfo) -> Optional[str]:
        recipe = entry_of(self.path, info.path or "").get("recipe")
        return recipe if isinstance(recipe, str) else None

    def attributes(self, prefix: str) -> Mapping[str, Any]:
        return self._scan().attributes.get(prefix, {})

    def close(self) -> None:
        self._buffers = {}
        self._finalizer()

    def _scan(self) -> Contents:
        if self._contents is None:
            self._contents = Contents(self.path, self.tensors.files)
        return self._contents

    def _lines(self) -> bytes:
        try:
            with open(os.path.join(self.path, "tensors.jsonl"), "rb", buffering=0) as file:
                return file.read()
        except OSError as error:
            raise Error(f"tensors.jsonl: cannot read: {error}") from error
