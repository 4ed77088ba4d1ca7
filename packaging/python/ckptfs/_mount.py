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
    device_below: int  # The directory is on this device while nothing is mounted.
    is_temporary: bool  # Whether the directory has to be removed, too.
    owner: int  # The process.


def mount(command: Sequence[str], source: str, path: Optional[str]) -> Mount:
    """Mounts `source` on `path`, or on a new temporary directory. Raises Error."""
    directory = os.path.abspath(path) if path is not None else tempfile.mkdtemp(prefix="ckptfs.")
    mounted = Mount(directory, _device(directory), path is None, os.getpid())
    is_ours = mounted.is_temporary
    try:
        done = run([*command, "--", source, directory])
        # With -o nofail, the program succeeds without a mount.
        if not _is_mounted(mounted):
            raise Error(done.stderr.strip().removeprefix("ckptfs: ") or f"{source}: not mounted")
        is_ours = True
        if not os.path.exists(os.path.join(directory, "tensors.jsonl")):
            raise Error(f"{source}: is a directory of several checkpoints: open one of them")
        for line in done.stderr.splitlines():
            warnings.warn(line.removeprefix("ckptfs: "), RuntimeWarning, stacklevel=4)
    except BaseException:
        # An interrupted program may have mounted already. Another mount on `path` stays.
        if is_ours:
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
        with contextlib.suppress(OSError):
            os.rmdir(mounted.directory)


def _device(directory: str) -> int:
    """The device of a directory, or if it is missing, which the program repairs, of its parent."""
    for path in directory, os.path.dirname(directory):
        with contextlib.suppress(OSError):
            return os.stat(path).st_dev
    return -1  # The program says why it cannot mount there.


def _is_mounted(mounted: Mount) -> bool:
    try:
        return os.stat(mounted.directory).st_dev != mounted.device_below
    except FileNotFoundError:
        return False
    except OSError:
        return True  # Its daemon was killed.
