"""Private maps of files: reads come from the page cache, writes go to copies of the pages.

The module mmap keeps a descriptor open for each map (before Python 3.13), and a checkpoint may have
more tensors than a process may have descriptors. So this module calls mmap(2) itself.
"""

import ctypes
import mmap
import os
import weakref
from typing import Any

_libc = ctypes.CDLL(None, use_errno=True)
_mmap = _libc.mmap
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_munmap = _libc.munmap
_munmap.restype = ctypes.c_int
_munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]

_FAILED = ctypes.c_void_p(-1).value

# Without a reservation, the kernel maps files that are larger than the memory.
_FLAGS = mmap.MAP_PRIVATE | getattr(mmap, "MAP_NORESERVE", 0)


def map_private(descriptor: int, size: int) -> Any:
    """Maps the first `size` bytes, at least one, as a writable buffer. The map lives as long as the
    buffer and the arrays and tensors that are made of it. Raises OSError."""
    address = _mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, _FLAGS, descriptor, 0)
    if address == _FAILED:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    buffer = (ctypes.c_ubyte * size).from_address(address)
    # Not at the exit of the interpreter: other threads may still read. The exit of the process unmaps.
    weakref.finalize(buffer, _munmap, address, size).atexit = False
    return buffer
