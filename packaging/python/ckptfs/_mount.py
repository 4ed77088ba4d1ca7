"""Mounting and unmounting."""

import contextlib
import os
import subprocess
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from ckptfs._errors import Error
from ckptfs._programs import run

_SECONDS = 60  # Time limit of an unmount, which is lazy and waits for nothing.


@dataclass(frozen=True)
class Mount:
    """A mount that this process owns."""

    directory: str
    device: int  # The directory below the mount is on another one.
    is_temporary: bool  # Whether the directory has to be removed, too.
    owner: int  # The process.


def mount(command: Sequence[str], source: str, path: Optional[str]) -> Mount:
    """Mounts `source` on `path`, or on a new temporary directory. Raises Error."""
    directory = os.path.abspath(path) if path is not None else tempfile.mkdtemp(prefix="ckptfs.")
    is_temporary = path is None
    try:
        done = run([*command, "--", source, directory])
    except BaseException:
        if is_temporary:
            _remove(directory)
        raise
    # With -o nofail, the program succeeds without a mount.
    if not os.path.ismount(directory):
        if is_temporary:
            _remove(directory)
        raise Error(done.stderr.strip() or f"{source}: not mounted")
    mounted = Mount(directory, os.stat(directory).st_dev, is_temporary, os.getpid())
    try:
        if not os.path.exists(os.path.join(directory, "tensors.jsonl")):
            raise Error(f"{source}: is a directory of several checkpoints: open one of them")
        for line in done.stderr.splitlines():
            warnings.warn(line.removeprefix("ckptfs: "), RuntimeWarning, stacklevel=4)
    except BaseException:
        unmount(mounted)
        raise
    return mounted


def unmount(mounted: Mount) -> None:
    """Detaches the mount, even while maps of its files exist: the daemon ends with the last of them.
    Does nothing in a child of the owner, which has inherited the mount by fork()."""
    if os.getpid() != mounted.owner:
        return
    if _is_mounted(mounted):
        for command in ["fusermount3", "-u", "-z", "-q", "--"], ["umount", "-l", "--"]:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                if subprocess.run([*command, mounted.directory], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                  timeout=_SECONDS).returncode == 0:
                    break
    if mounted.is_temporary:
        _remove(mounted.directory)


def _is_mounted(mounted: Mount) -> bool:
    try:
        return os.stat(mounted.directory).st_dev == mounted.device
    except FileNotFoundError:
        return False
    except OSError:
        return True  # Its daemon was killed.


def _remove(directory: str) -> None:
    with contextlib.suppress(OSError):
        os.rmdir(directory)
