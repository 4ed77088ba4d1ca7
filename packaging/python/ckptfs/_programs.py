"""Finds and runs the programs ckptfs and ckpt."""

import os
import shutil
import subprocess
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from typing import Optional, Union

from ckptfs._errors import Error

Options = Union[Iterable[str], Mapping[str, Union[str, int, "os.PathLike[str]"]]]

EXIT_FUSE = 8

_NO_FUSE = ("Install FUSE (Debian and Ubuntu: apt install fuse3; Fedora: dnf install fuse3; a container needs "
            "--device /dev/fuse --cap-add SYS_ADMIN), or open with backend=\"pipe\", which needs no FUSE.")


def find(name: str, program: Optional[str]) -> str:
    """The path of the program ckptfs or ckpt: `program`, $CKPTFS_PROGRAM or `name` beside it, or `name`
    among the scripts of this Python, or in PATH. Raises Error."""
    if program is not None:
        return program
    chosen = os.environ.get("CKPTFS_PROGRAM")
    if chosen:
        return chosen if name == "ckptfs" else os.path.join(os.path.dirname(chosen), name)
    folders = [sysconfig.get_path("scripts"), sysconfig.get_path("scripts", f"{os.name}_user")]
    for path in [*folders, os.environ.get("PATH", os.defpath)]:
        found = shutil.which(name, path=path)
        if found:
            return found
    raise Error(f"{name}: program not found in {folders[0]} and PATH: install it, or set CKPTFS_PROGRAM")


def option_words(options: Options) -> list[str]:
    """The arguments for `options`. In a mapping, True stands for an option without a value, and False
    for its absence. Texts in a list are as on the command line, with commas in values escaped."""
    if isinstance(options, str):
        options = [options]
    elif isinstance(options, Mapping):
        options = [_option(name, value) for name, value in options.items() if value is not False]
    return [word for option in options for word in ("-o", option)]


def _option(name: str, value: Union[str, int, "os.PathLike[str]"]) -> str:
    if value is True:
        return name
    text = str(value) if isinstance(value, int) else os.fspath(value)
    return name + "=" + text.replace("\\", "\\\\").replace(",", "\\,")


def failure(command: Sequence[str], code: int, message: str) -> Error:
    """The exception for a program that has ended with `code`."""
    name = os.path.basename(command[0])
    message = message.strip().removeprefix("ckptfs: ").removeprefix("ckpt: ")
    if not message:
        message = f"{name}: killed by signal {-code}" if code < 0 else f"{name}: exit code {code}"
    if code == EXIT_FUSE:
        message += "\n" + _NO_FUSE
    return Error(message, code)


def start_failure(command: Sequence[str], error: OSError) -> Error:
    """The exception for a program that does not start."""
    return Error(f"{command[0]}: cannot run: {error.strerror}")


def run(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    """Runs a command to its end. Raises Error with its message if it fails."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8",
                              errors="surrogateescape")
    except OSError as error:
        raise start_failure(command, error) from error
    if done.returncode != 0:
        raise failure(command, done.returncode, done.stderr)
    return done
