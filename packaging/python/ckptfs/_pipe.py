"""The backend without a mount: the program `ckpt` prints the list of tensors and their bytes."""

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import IO, Any, Optional

from ckptfs._backend import Buffer, TensorInfo, by_key, info_of
from ckptfs._errors import Error
from ckptfs._programs import failure, run, start_failure


class PipeBackend:
    """One call of `ckpt cat` for each tensor that is requested, into memory. See Backend."""

    def __init__(self, program: str, options: Sequence[str], source: str) -> None:
        self._program = program
        self._operands = [*options, "--", source]
        rows = self._json("ls")
        self.tensors: Mapping[str, TensorInfo] = by_key(
            [info_of(row) for row in rows if row["shape"] is not None])
        self._values: Optional[Mapping[str, Any]] = None

    @property
    def path(self) -> str:
        raise Error("the backend \"pipe\" has no directory")

    def buffer(self, info: TensorInfo) -> Buffer:
        return Buffer(self._cat(info.key, info.nbytes))

    def values(self) -> Mapping[str, Any]:
        if self._values is None:
            self._values = dict(self._json("info")["values"])
        return self._values

    def recipes(self) -> Mapping[str, str]:
        return {}

    def recipe(self, info: TensorInfo) -> Optional[str]:
        return None

    def attributes(self, prefix: str) -> Mapping[str, Any]:
        return {}

    def close(self) -> None:
        pass  # Nothing is held.

    def _json(self, command: str) -> Any:
        done = run([self._program, command, "--json", *self._operands])
        try:
            return json.loads(done.stdout)
        except ValueError as error:
            raise Error(f"ckpt {command}: no JSON: {error}") from error

    def _cat(self, key: str, size: int) -> bytearray:
        """Reads a tensor of `size` bytes into memory that is allocated once."""
        command = [self._program, "cat", *self._operands, key]
        with tempfile.TemporaryFile() as messages:
            try:
                process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                           stderr=messages, bufsize=0)
            except OSError as error:
                raise start_failure(command, error) from error
            with process:
                try:
                    assert process.stdout is not None
                    data = bytearray(size)
                    count = _fill(process.stdout, data)
                    is_longer = count == size and process.stdout.read(1) != b""
                except BaseException:
                    process.kill()
                    raise
            if process.returncode != 0 and not is_longer:
                messages.seek(0)
                raise failure(command, process.returncode, os.fsdecode(messages.read()))
        if count != size or is_longer:
            raise Error(f"{key}: ckpt cat printed {'more' if is_longer else count} bytes, not {size}")
        return data


def _fill(file: IO[bytes], data: bytearray) -> int:
    """Reads until `data` is full or the file ends. Returns the number of bytes."""
    count = 0
    with memoryview(data) as view:
        while count < len(data):
            n = file.readinto(view[count:])  # type: ignore[attr-defined]
            if not n:
                break
            count += n
    return count
