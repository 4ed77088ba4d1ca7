"""Other ways to read a remote checkpoint. Each reads all of a file once, with nothing cached.

A peer is a function of a lab, an origin ("http", "https" or "s3") and a file; it yields pairs of a
figure's name and its value: the seconds of "read", and the CPU time of a program that is not Python.
"""

import os
import resource
import shutil
import subprocess
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from lab import TICKS
from remote_lab import BUCKET

from ckptfs import is_mounted, run, wait_until  # `lab` has set the path.

GIB = 1 << 30
RANGE = 8 << 20
RANGES = 8
CPU = "CPU, s/GiB"


def figures(size, measure):
    """What `measure` returns as "read", and the CPU time of the processes that it has run."""
    def cpu():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime
    before = cpu()
    yield "read", measure()
    yield CPU, (cpu() - before) / (size / GIB)


def curl(lab, origin, path, part=None):
    """One connection. `part` is a pair of offsets."""
    begin, end = part or (0, path.stat().st_size)
    url = lab.url(origin, path.name)
    return figures(end - begin, lambda: lab.clock(
        "curl", "--silent", "--fail", "--output", "/dev/null", "--range", f"{begin}-{end - 1}", url,
        env=lab.environment))


def ranges(lab, origin, path):
    size = path.stat().st_size
    command = [lab.fetcher, lab.url(origin, path.name), size, RANGE, RANGES]
    return figures(size, lambda: lab.seconds(*command, env=lab.environment)[0])


@contextmanager
def mounted(lab, *command):
    """Runs a program that mounts on the last argument, a new directory, which is yielded with the process."""
    with lab.mountpoint() as mountpoint:
        process = subprocess.Popen([*map(str, command), str(mountpoint)], env=lab.environment,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        try:
            wait_until(lambda: is_mounted(mountpoint))
            yield mountpoint, process
        finally:
            run("fusermount3", "-u", mountpoint)
            process.wait(20)


def read_mounted(lab, path, *command):
    def cpu():
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS
    with mounted(lab, *command) as (mountpoint, process):
        before = cpu()
        yield "read", lab.read(mountpoint / path.name)[0]
        yield CPU, (cpu() - before) / (path.stat().st_size / GIB)


def rclone(lab, origin, path):
    command = ["rclone", "mount", "--config", "", "--read-only"]
    if origin == "s3":
        return read_mounted(lab, path, *command, "--s3-provider", "Ceph", "--s3-env-auth",
                            "--s3-endpoint", lab.s3.endpoint, f":s3:{BUCKET}")
    return read_mounted(lab, path, *command, "--ca-cert", lab.web.certificate,
                        "--http-url", lab.url(origin, "listed/"), ":http:")


def s3fs(lab, _, path):
    return read_mounted(lab, path, "s3fs", "-f", BUCKET, "-ouse_path_request_style",
                        f"-ourl={lab.s3.endpoint}")


def boto3(lab, _, path):
    yield "read", lab.consume_remote("boto3", BUCKET, path.name)


def s3torchconnector(lab, origin, path):
    yield "read", lab.consume_remote("s3torchconnector", lab.url(origin, path.name))


def runai(lab, origin, path):
    yield "read", lab.consume_remote("runai", lab.url(origin, path.name))


def tensorizer(lab, origin, path):
    yield "read", lab.consume("deserialize", lab.url(origin, path.name))[0]


READERS = {"curl": curl, "8 ranges": ranges, "rclone": rclone, "s3fs": s3fs, "boto3": boto3,
           "tensorizer": tensorizer, "s3torchconnector": s3torchconnector, "runai": runai}
MODULES = {"boto3": "boto3", "tensorizer": "tensorizer", "s3torchconnector": "s3torchconnector",
           "runai": "runai_model_streamer"}


@cache
def is_installed(python, peer):
    """Whether a peer can be measured."""
    if peer == "8 ranges":
        return True
    if peer not in MODULES:
        return shutil.which(peer) is not None
    environment = os.environ | {"PYTHONPATH": os.environ.get("CKPTFS_PEERS", "")}
    return run(python, "-c", f"import {MODULES[peer]}", env=environment).returncode == 0
