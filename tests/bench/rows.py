"""What is measured, against what, and which ratio is the goal: one `Row` per question of a user.

A row's `measure` is called once per round for each contender in turn, so that a machine that gets
slower does so for all of them, and yields pairs of a figure's name and its value. A name without a
unit is in seconds.
"""

import os
import time
from collections.abc import Callable
from random import Random
from typing import NamedTuple

import commands
import served
import stores
from lab import KEY


class Sizes(NamedTuple):
    """How large the checkpoints are. The goals are meant for the full sizes."""
    large: tuple = (300, 7155712)  # 2 GiB in 300 tensors.
    one: tuple = (1, 64 << 20)
    few: tuple = (1_000, 64 << 10)
    many: tuple = (20_000, 1024)
    more: tuple = (100_000, 1024)
    matrix: tuple = ("--transposed", 4096, 4096)
    plain: tuple = ("--plain", 8192, 16384)  # 512 MiB.
    sharded: tuple = ("--sharded", 4, 8192, 16384)
    tensors: tuple = ("--tensors", 64, 16 << 20)  # 1 GiB.
    encrypted: tuple = ("--encrypted", 64, 16 << 20)
    safetensors: tuple = ("--safetensors", 300, 7155712)
    zanj: tuple = ("--zanj", 64, 16 << 20)  # 1 GiB, deflated to 930 MiB.
    deflated: tuple = ("--deflated", 1, 1 << 30)
    files: tuple = ("--dcp", 64, 6_400, 4096)
    more_in_files: tuple = ("--dcp", 64, 32_000, 4096)


FULL = Sizes()
QUICK = Sizes(large=(300, 720896), safetensors=("--safetensors", 300, 720896), many=(2_000, 1024), more=(10_000, 1024),
              matrix=("--transposed", 2048, 2048), plain=("--plain", 2048, 4096),
              sharded=("--sharded", 4, 2048, 4096), tensors=("--tensors", 64, 1 << 20),
              encrypted=("--encrypted", 64, 1 << 20), deflated=("--deflated", 1, 16 << 20),
              zanj=("--zanj", 64, 1 << 20), files=("--dcp", 64, 640, 4096),
              more_in_files=("--dcp", 64, 3_200, 4096))


class Goal(NamedTuple):
    """A figure of ckptfs shall be at most `limit` times that of another one, or at most `limit`."""
    figure: str
    against: str | None  # A contender, or None.
    limit: float
    base: str | None = None  # The other's figure, if it is not the same.


class Row(NamedTuple):
    rounds: int
    contenders: tuple[str, ...]
    measure: Callable
    goals: tuple[Goal, ...]
    is_apart: bool = False  # The reader has a processor of its own.


def start(lab, sizes, contender):
    """From nothing to the first byte of one tensor."""
    count = sizes.few[0]
    if contender == "torch":
        yield "first byte", lab.clock(lab.python, lab.consumer, "first-element",
                                      lab.checkpoint(*sizes.few), f"f{count // 2:06}")
        return
    with lab.mount(contender, sizes.few) as daemon:
        begin = time.perf_counter()
        file = os.open(daemon.files(count)[count // 2], os.O_RDONLY)
        os.read(file, 1)
        os.close(file)
        yield "first byte", daemon.seconds + time.perf_counter() - begin


def sequential(lab, sizes, contender):
    if contender == "archive":
        yield from zip(("read", "read again"), lab.read(lab.checkpoint(*sizes.large), rounds=2))
        return
    count, size = sizes.large
    with lab.mount(contender, sizes.large) as daemon:
        before = daemon.cpu()
        yield "read", lab.read(*daemon.files(count))[0]
        yield "daemon's CPU, s/GiB", (daemon.cpu() - before) / (count * size / (1 << 30))
        if contender != "fuse-zip":  # Which keeps nothing.
            yield "read again", lab.read(*daemon.files(count))[0]


def memmap(lab, sizes, contender):
    with lab.mount(contender, sizes.one) as daemon:
        yield from zip(("sum", "sum again"), lab.consume("sum", *daemon.files(1)))


def random(lab, sizes, contender):
    with lab.mount(contender, sizes.large) as daemon:
        yield "3,000 reads", lab.read(*daemon.files(sizes.large[0]), kind=("random", 3000))[0]


def listing(lab, sizes, contender):
    for name, command in ("find", ["find"]), ("ls -lR", ["ls", "-lR"]):
        is_ext4 = contender == "ext4"
        with lab.ext4(sizes.many) if is_ext4 else lab.mount(contender, sizes.many) as shown:
            directory = shown if is_ext4 else shown.path
            yield name, lab.clock(*command, directory)
            yield name + " again", lab.clock(*command, directory)


def files(lab, sizes, contender):
    for kind, name in ("stat", "stat of all"), ("open", "open, read and close all"):
        with lab.mount(contender, sizes.many) as daemon:
            yield name, lab.read(*daemon.files(sizes.many[0]), kind=(kind,))[0]


def tensordict(lab, sizes, contender):
    with lab.mount(contender, sizes.many) as daemon:
        yield "load_memmap", lab.consume("load-memmap", daemon.path)[0]


def mount(lab, sizes, contender):
    for name, shape in ("many", sizes.many), ("five times as many", sizes.more):
        if contender == "torch":
            yield name, lab.consume("load", lab.checkpoint(*shape))[0]
            continue
        with lab.mount(contender, shape) as daemon:
            yield name, daemon.seconds


def memory(lab, sizes, contender):
    with lab.mount(contender, sizes.large) as daemon:
        lab.read(*daemon.files(sizes.large[0]))
        yield "2 GiB read, peak MiB", daemon.peak_memory()
    with lab.mount(contender, sizes.many) as daemon:
        lab.clock("ls", "-lR", daemon.path)
        lab.read(*daemon.files(sizes.many[0]), kind=("open",))
        yield "20,000 opened, peak MiB", daemon.peak_memory()
    for name, shape in ("20,000", sizes.many), ("100,000", sizes.more):
        with lab.mount(contender, shape) as daemon:
            yield f"{name} mounted, peak MiB", daemon.peak_memory()


def directory(lab, sizes, contender):
    """A checkpoint of torch.distributed.checkpoint in 64 files."""
    for name, shape in ("64 files", sizes.files), ("five times as many", sizes.more_in_files):
        with lab.mount(contender, shape) as daemon:
            yield name, daemon.seconds
            yield f"{name}, peak MiB", daemon.peak_memory()


def sharded(lab, sizes, contender):
    """A matrix whose columns lie in four files, against the same in one."""
    shape = {"ckptfs": sizes.sharded, "in one piece": sizes.plain}[contender]
    with lab.mount("ckptfs", shape) as daemon:
        yield "read", lab.read(*daemon.files(1))[0]


def encrypted(lab, sizes, contender):
    """Against the decryption of the same chunks on one processor, without reading them."""
    count, size = sizes.encrypted[-2:]
    gib = count * size / (1 << 30)
    if contender == "libsodium":
        [seconds] = lab.seconds(lab.opener, lab.checkpoint(*sizes.encrypted), KEY)
        yield "read", seconds
        yield "CPU, s/GiB", seconds / gib
        return
    for readers in (1, 2, 4):
        with lab.mount(contender, sizes.encrypted) as daemon:
            before = daemon.cpu()
            yield "read" if readers == 1 else f"read by {readers}", lab.read(
                *daemon.files(count), kind=("parallel", readers))[0]
            if readers == 1:
                yield "CPU, s/GiB", (daemon.cpu() - before) / gib


def to_memory(lab, shape, contender, *key):
    """All tensors into the memory of a process."""
    if contender == "tensorizer":
        return lab.consume("deserialize", lab.checkpoint(*shape), *key)[0]
    with lab.mount(contender, shape) as daemon:
        return lab.consume("to-memory", daemon.path)[0]


def tensorizer(lab, sizes, contender):
    yield "plain", to_memory(lab, sizes.tensors, contender)
    yield "encrypted", to_memory(lab, sizes.encrypted, contender, KEY)


def zanj(lab, sizes, contender):
    """All arrays into memory, inflated on the way."""
    if contender == "ZANJ":
        yield "to memory", lab.consume("read-zanj", lab.checkpoint(*sizes.zanj))[0]
        return
    with lab.mount(contender, sizes.zanj) as daemon:
        yield "to memory", lab.consume("to-memory", daemon.path)[0]


def safetensors(lab, sizes, contender):
    if contender == "safe_open":
        yield "sum of all", lab.consume("sum-safetensors", lab.checkpoint(*sizes.safetensors))[0]
        return
    shape = sizes.large if contender == "null" else sizes.safetensors
    with lab.mount(contender, shape) as daemon:
        yield "read", lab.read(*daemon.files(shape[-2]))[0]
    if contender == "ckptfs":
        with lab.mount(contender, shape) as daemon:
            yield "sum of all", lab.consume("sum-all", daemon.path)[0]
def compressed(lab, sizes, contender):
    """Against zlib on one processor, without reading what it inflates."""
    if contender == "zlib":
        yield "read", lab.seconds(lab.inflater, lab.checkpoint(*sizes.deflated))[0]
        return
    with lab.mount(contender, sizes.deflated) as daemon:
        yield "read", lab.read(*daemon.files(1))[0]
    with lab.mount(contender, sizes.deflated) as daemon:
        [path] = daemon.files(1)
        file = os.open(path, os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
        pages = os.fstat(file).st_size // 4096
        begin = time.perf_counter()
        os.pread(file, 4096, (pages - 1) * 4096)
        yield "last 4 KiB, first", time.perf_counter() - begin
        chance = Random(1)
        taken = []
        for page in chance.sample(range(pages - 1), 300):
            begin = time.perf_counter()
            os.pread(file, 4096, page * 4096)
            taken.append(time.perf_counter() - begin)
        os.close(file)
        taken.sort()
        yield "4 KiB at random, median", taken[len(taken) // 2]
        yield "4 KiB at random, 99 of 100", taken[len(taken) * 99 // 100]
        yield "peak MiB", daemon.peak_memory()


def gathered(lab, sizes, contender):
    if contender == "torch":
        for seconds in lab.consume("contiguous", lab.checkpoint(*sizes.matrix)):
            yield "transposed matrix", seconds
        return
    with lab.mount(contender, sizes.matrix) as daemon:
        yield "transposed matrix", lab.read(*daemon.files(1))[0]


def parallel(lab, sizes, contender):
    for readers in (1, 2, 4):
        with lab.mount(contender, sizes.large) as daemon:
            yield f"by {readers}", lab.read(*daemon.files(sizes.large[0]),
                                            kind=("parallel", readers))[0]


ROWS = {
    "start": Row(5, ("ckptfs", "null", "fuse-zip", "torch"), start, (
        Goal("first byte", "fuse-zip", 0.5),
        Goal("first byte", "torch", 0.01))),
    "sequential": Row(7, ("ckptfs", "null", "archive", "fuse-zip"), sequential, (
        Goal("read", "null", 1.2),
        Goal("read", "fuse-zip", 0.4),
        Goal("read again", "null", 1.1),
        Goal("daemon's CPU, s/GiB", "null", 1.4)), is_apart=True),
    "memmap": Row(9, ("ckptfs", "null"), memmap, (
        Goal("sum", "null", 1.2),
        Goal("sum again", "null", 1.1)), is_apart=True),
    "random": Row(7, ("ckptfs", "null", "fuse-zip"), random, (
        Goal("3,000 reads", "null", 1.25),
        Goal("3,000 reads", "fuse-zip", 0.03))),
    "list": Row(7, ("ckptfs", "null", "ext4"), listing, (
        Goal("find", "ext4", 1.2),
        Goal("find again", "ext4", 1.2),
        Goal("ls -lR", "ext4", 1.2),
        Goal("ls -lR again", "ext4", 1.2))),
    "files": Row(9, ("ckptfs", "null"), files, (
        Goal("stat of all", "null", 1.15),
        Goal("open, read and close all", "null", 1.15))),
    "tensordict": Row(5, ("ckptfs", "null"), tensordict, (
        Goal("load_memmap", "null", 1.15),)),
    "mount": Row(3, ("ckptfs", "torch"), mount, (
        Goal("many", "torch", 0.2),
        Goal("five times as many", "torch", 0.2),
        Goal("five times as many", "ckptfs", 6, "many"))),
    "memory": Row(3, ("ckptfs", "null"), memory, (
        Goal("2 GiB read, peak MiB", None, 16),
        Goal("20,000 opened, peak MiB", None, 40),
        Goal("100,000 mounted, peak MiB", "ckptfs", 6, "20,000 mounted, peak MiB"))),
    "directory": Row(3, ("ckptfs",), directory, (
        Goal("five times as many", "ckptfs", 6, "64 files"),
        Goal("five times as many, peak MiB", "ckptfs", 6, "64 files, peak MiB"))),
    "sharded": Row(5, ("ckptfs", "in one piece"), sharded, (
        Goal("read", "in one piece", 2),), is_apart=True),
    "encrypted": Row(5, ("ckptfs", "libsodium"), encrypted, (
        Goal("read", "libsodium", 1.25),
        Goal("read by 2", "libsodium", 1.25, "read"))),
    "tensorizer": Row(5, ("ckptfs", "tensorizer"), tensorizer, (
        Goal("encrypted", "tensorizer", 1),)),
    "zanj": Row(3, ("ckptfs", "ZANJ"), zanj, (Goal("to memory", "ZANJ", 1),)),
    "safetensors": Row(5, ("ckptfs", "null", "safe_open"), safetensors, (
        Goal("read", "null", 1.2),)),
    "compressed": Row(3, ("ckptfs", "zlib"), compressed, (
        Goal("read", "zlib", 1.2),
        Goal("last 4 KiB, first", "zlib", 1.2, "read"),
        Goal("4 KiB at random, median", None, 0.01),
        Goal("peak MiB", None, 32))),
    "gathered": Row(5, ("ckptfs", "torch"), gathered, (
        Goal("transposed matrix", "torch", 2),), is_apart=True),
    "parallel": Row(5, ("ckptfs", "null"), parallel, (
        Goal("by 1", "null", 1.2),
        Goal("by 2", "null", 1.2),
        Goal("by 4", "null", 1.2))),
    "store": Row(5, ("ckptfs", "ls -f", "alone"), stores.store, (
        Goal("mount", "ls -f", 2),
        Goal("first tensor", "alone", 1.2),
        Goal("find, peak MiB", None, 272))),
    "view": Row(5, ("ckptfs", "null"), stores.view, (
        Goal("read", "null", 1.2),), is_apart=True),
    "programs": Row(3, ("ckptfs", "directory"), stores.programs, (
        Goal("from_pretrained, safetensors", "directory", 1.2),
        Goal("from_pretrained, bin", "directory", 1),
        Goal("from_pretrained, safetensors, peak MiB", "directory", 1.05),
        Goal("from_pretrained, bin, peak MiB", "directory", 1.05))),
    "ckpt_ls": Row(5, ("ckptfs", "torch"), commands.ls, (
        Goal("list", "torch", 0.03),)),
    "ckpt_stat": Row(5, ("ckptfs", "numpy"), commands.stat, (
        Goal("2 GiB", "numpy", 1),)),
    "ckpt_diff": Row(5, ("ckptfs", "cmp"), commands.diff, (
        Goal("2 GiB", "cmp", 1),)),
    "ckpt_convert": Row(3, ("ckptfs", "torch"), commands.convert, (
        Goal("2 GiB", "torch", 0.6),
        Goal("2 GiB, peak MiB", None, 64))),
    "ckpt_scan": Row(5, ("ckptfs", "picklescan"), commands.scan, (
        Goal("1,000 files", "picklescan", 0.05),)),
    "package": Row(5, ("ckptfs", "torch"), commands.package, (
        Goal("first element", "torch", 0.1),
        Goal("first element, after the imports", "torch", 0.1))),
    "loopback": Row(5, ("ckptfs", "curl"), served.loopback, (
        Goal("read", "curl", 1 / 0.8),)),
    "disk_cache": Row(3, ("ckptfs", "local file"), served.disk_cache, (
        Goal("read", "local file", 1 / 0.8),
        Goal("requests", None, 1))),
}

PEERS = ("fuse-zip",)
