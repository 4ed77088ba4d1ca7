"""Rows about checkpoints of a web server on loopback: as those of rows.py. Those of remote.py have a link."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from lab import HERE

sys.path.insert(0, str(HERE.parent / "servers"))
from nginx import Nginx  # The path must be set first.

RANGE = 8 << 20
IN_FLIGHT = 8


def url_of(server, path):
    return server.url("/" + path.name)


def read_all(lab, daemon, count):
    return lab.read(*daemon.files(count))[0]


def loopback(lab, sizes, contender):
    """As fast as it goes."""
    path = lab.checkpoint(*sizes.safetensors)
    with Nginx(Path(lab.directory)) as server:
        url = url_of(server, path)
        if contender == "curl":
            yield "read", lab.seconds(lab.fetcher, url, path.stat().st_size, RANGE, IN_FLIGHT)[0]
            return
        with lab.remote(url) as daemon:
            before = daemon.cpu()
            yield "read", read_all(lab, daemon, sizes.safetensors[1])
            yield "CPU, s/GiB", (daemon.cpu() - before) / (path.stat().st_size / (1 << 30))
            yield "peak MiB", daemon.peak_memory()


def disk_cache(lab, sizes, contender):
    """A second mount with a cache on a disk that has all of it, and is in the page cache itself."""
    path = lab.checkpoint(*sizes.safetensors)
    count = sizes.safetensors[1]
    if contender == "local file":
        with lab.mount("ckptfs", sizes.safetensors) as daemon:
            yield "read", read_all(lab, daemon, count)
        return
    with Nginx(Path(lab.directory)) as server, TemporaryDirectory(dir=lab.directory) as directory:
        option = f"-ocache_dir={directory}"
        with lab.remote(url_of(server, path), option) as daemon:
            read_all(lab, daemon, count)
        lab.run("sync", "-f", directory)  # Or the disk is still busy with it.
        server.forget()
        with lab.remote(url_of(server, path), option) as daemon:
            yield "read", read_all(lab, daemon, count)
        yield "requests", len(server.log())
