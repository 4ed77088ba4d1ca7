"""Rows about checkpoints that are not on this machine. As those of rows.py, but between ckptfs and
the checkpoint there is a server on loopback, which simulates a link and counts what it is asked for.
"""

import json
import os
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from lab import HERE

sys.path[:0] = [str(HERE.parent / "servers"), str(HERE.parent / "mount")]
from craft import write_safetensors  # The path must be set first.
from fault_server import FaultServer
from nginx import Nginx

GIGABIT = 125  # Of 10^6 bytes per second.
RANGE = 8 << 20
IN_FLIGHT = 8
MIB = 1 << 20


@contextmanager
def served(lab, latency=0, rate=0):
    """Yields a server of the lab's files behind a link: ms per request and per new connection, and
    10^6 bytes per second for all connections together; 0: no limit."""
    with FaultServer(lab.directory) as server:
        server.link(latency_ms=latency, connect_ms=latency, mb_per_s=rate)
        yield server


def url_of(server, path):
    return server.url("/" + path.name)


def fetch(lab, url, path):
    [seconds] = lab.seconds(lab.fetcher, url, path.stat().st_size, RANGE, IN_FLIGHT)
    return seconds


def large_object(lab, count, size):
    """A file of safetensors that takes no disk."""
    path = lab.directory / f"large-{count}-{size}.safetensors"
    if not path.exists():
        write_safetensors(path, json.dumps(
            {f"f{i:06}": {"dtype": "U8", "shape": [size], "data_offsets": [i * size, (i + 1) * size]}
             for i in range(count)}))
        os.truncate(path, path.stat().st_size + count * size)
    return path


def read_all(lab, daemon, count):
    return lab.read(*daemon.files(count))[0]


def link(lab, sizes, contender):
    """All of it, over a link of 1 Gbit/s."""
    path = lab.checkpoint(*sizes.safetensors)
    size = path.stat().st_size
    for latency in 10, 50:
        figure = f"read at {latency} ms"
        if contender == "link":
            yield figure, size / (GIGABIT * 1e6)
            continue
        with served(lab, latency, GIGABIT) as server:
            if contender == "curl":
                yield figure, fetch(lab, url_of(server, path), path)
                continue
            if contender == "rclone":
                with lab.rclone(server.url("/")) as directory:
                    yield figure, lab.read(directory / path.name)[0]
                continue
            with lab.remote(url_of(server, path)) as daemon:
                yield figure, read_all(lab, daemon, sizes.safetensors[1])
            yield f"bytes fetched per byte at {latency} ms", server.stats()["bytes"] / size


def loopback(lab, sizes, contender):
    """As fast as it goes."""
    path = lab.checkpoint(*sizes.safetensors)
    with Nginx(Path(lab.directory)) as server:
        if contender == "curl":
            yield "read", fetch(lab, url_of(server, path), path)
            return
        with lab.remote(url_of(server, path)) as daemon:
            before = daemon.cpu()
            yield "read", read_all(lab, daemon, sizes.safetensors[1])
            yield "CPU, s/GiB", (daemon.cpu() - before) / (path.stat().st_size / (1 << 30))
            yield "peak MiB", daemon.peak_memory()


def remote_start(lab, sizes, _):
    """From nothing to the first byte of one tensor, where waiting for the network is all there is."""
    latency = 200
    path = lab.checkpoint(*sizes.safetensors)
    with served(lab, latency) as server, lab.remote(url_of(server, path)) as daemon:
        begin = time.perf_counter()
        file = os.open(daemon.files(sizes.safetensors[1])[100], os.O_RDONLY)
        os.read(file, 1)
        os.close(file)
        seconds = daemon.seconds + time.perf_counter() - begin
        yield "round trips to the first byte", seconds / (latency / 1000)


def part(lab, _, __):
    """Little of an object of 20 GB: what it costs."""
    count = 300
    path = large_object(lab, count, 64 * MIB)
    with served(lab) as server:
        with lab.remote(url_of(server, path)) as daemon:
            lab.read(daemon.files(count)[123])
            yield "one tensor of 64 MiB costs, MiB", server.stats()["bytes"] / MIB
        server.reset()
        with lab.remote(url_of(server, path)) as daemon:
            before = server.stats()["bytes"]
            yield "3,000 reads", lab.read(*daemon.files(count), kind=("random", 3000))[0]
            cost = server.stats()["bytes"] - before
            yield "4 KiB at random cost, KiB", cost / 3000 / 1024


def disk_cache(lab, sizes, contender):
    """A second mount with a cache on a disk that has all of it, and is in the page cache itself."""
    path = lab.checkpoint(*sizes.safetensors)
    count = sizes.safetensors[1]
    if contender == "local file":
        with lab.mount("ckptfs", sizes.safetensors) as daemon:
            yield "read", read_all(lab, daemon, count)
        return
    with served(lab) as server, TemporaryDirectory(dir=lab.directory) as directory:
        option = f"-ocache_dir={directory}"
        with lab.remote(url_of(server, path), option) as daemon:
            read_all(lab, daemon, count)
        lab.run("sync", "-f", directory)  # Or the disk is still busy with it.
        server.reset()
        with lab.remote(url_of(server, path), option) as daemon:
            yield "read", read_all(lab, daemon, count)
        yield "requests", server.stats()["requests"]


def stream(lab, sizes, contender):
    """All tensors of a file of tensorizer into the memory of a process, over 1 Gbit/s and 10 ms."""
    path = lab.checkpoint(*sizes.tensors)
    with served(lab, 10, GIGABIT) as server:
        if contender == "tensorizer":
            yield "to memory", lab.consume("deserialize", url_of(server, path))[0]
            return
        with lab.remote(url_of(server, path)) as daemon:
            yield "to memory", lab.consume("to-memory", daemon.path)[0]
