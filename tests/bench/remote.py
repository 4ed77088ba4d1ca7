"""Rows about checkpoints at the far end of a link with the kernel's own TCP: ckptfs beside the link
itself and beside other programs. A row is a kind of reading and a link: `order-50` is at 50 ms.

As in rows.py, a row's `measure` is called once per round for each contender in turn, and yields pairs of
a figure's name and its value. The figures of the other contenders are those of reading the whole file
once; so each order in which ckptfs reads it is compared with their "read".
"""

import os
import time
from collections.abc import Callable
from typing import NamedTuple

import peers
import stores
from peers import CPU, GIB
from remote_lab import Wire

MIB, KIB = 1 << 20, 1 << 10
FETCHED = "bytes fetched per byte"

WIRES = {"1": Wire(1, 1000), "10": Wire(10, 1000), "50": Wire(50, 1000), "150": Wire(150, 1000),
         "10g": Wire(1, 10_000)}
# The part of the rate of the link that ckptfs should reach.
SHARES = {WIRES["10"]: 0.95, WIRES["50"]: 0.9, WIRES["150"]: 0.7}

# Readers that do nothing with the bytes, and programs that do.
ORDERS = ("file order", "name order", "shuffled")
LIBRARIES = {"load_memmap().clone()": "clone", "load_state_dict()": "load-state"}


class Sizes(NamedTuple):
    """How many tensors of how many bytes."""
    tensors: tuple = (128, 4 * MIB)
    large: tuple = (8, 64 * MIB)
    small: tuple = (1_000, 16 * KIB)
    many: tuple = (20_000, KIB)


FULL = Sizes()
QUICK = Sizes(tensors=(32, 4 * MIB), large=(8, 16 * MIB), small=(200, 16 * KIB), many=(2_000, KIB))


class Goal(NamedTuple):
    """The most that a figure of ckptfs may be: as a multiple of that of the link and of the best peer, and
    by itself. None: no goal."""
    link: float | None = None
    peer: float | None = None
    value: float | None = None


class Row(NamedTuple):
    rounds: int
    contenders: tuple[str, ...]
    measure: Callable  # Of a RemoteLab, Sizes and a contender.
    goal: Callable  # The Goal of a figure.
    is_apart: bool = False


def file_of(lab, sizes, name):
    """The path of a checkpoint: "gpt2.pth", or "large.safetensors" of what Sizes calls so."""
    kind, suffix = name.split(".")
    if kind == "gpt2":
        return lab.make(name, "--gpt2")
    flags = [] if suffix == "pth" else [f"--{suffix}"]
    return lab.make(name, *flags, numbers=getattr(sizes, kind))


def whole(lab, origin, path, order):
    """Yields what it costs to mount a file and to read all of it. The seconds of an order are those after
    the mount."""
    size = path.stat().st_size
    fetched = lab.link.bytes_received()
    with lab.show(origin, path) as daemon:
        cpu = daemon.cpu()
        if order in LIBRARIES:
            yield order, lab.consume_remote(LIBRARIES[order], daemon.path)
        else:
            yield order, lab.read_ordered(daemon, path, order)
        yield f"{order}: mounting", daemon.seconds
        yield f"{order}: {CPU}", (daemon.cpu() - cpu) / (size / GIB)
    yield f"{order}: {FETCHED}", (lab.link.bytes_received() - fetched) / size


def reading(name, orders, others, origin="http", tensorized=None):
    """A kind of row: all of a file, in these orders, and read by these peers. tensorizer reads the file
    `tensorized`."""
    def measure(wire, lab, sizes, contender):
        path = file_of(lab, sizes, tensorized if contender == "tensorizer" else name)
        if origin == "s3":
            lab.put(path)
        lab.shape(wire)
        if contender == "link":
            yield "read", wire.seconds(path.stat().st_size)
        elif contender == "ckptfs":
            for order in orders:
                yield from whole(lab, origin, path, order)
        else:
            yield from peers.READERS[contender](lab, origin, path)

    def goal(wire, figure):
        if figure.endswith(FETCHED):
            return Goal(value=1.02)
        if figure.endswith("mounting"):
            return Goal()
        if figure.endswith(CPU) or wire not in SHARES:
            return Goal(peer=1)
        if name.startswith("small"):
            return Goal(peer=1.3)
        if figure in LIBRARIES:
            return Goal(peer=1.25)
        return Goal(link=1 / SHARES[wire], peer=1)
    return ("ckptfs", "link", *others), measure, goal


def one_tensor(wire, lab, sizes, contender):
    """A tensor of a mount that has read nothing yet."""
    path = file_of(lab, sizes, "large.safetensors")
    size = sizes.large[1]
    lab.shape(wire)
    if contender == "link":
        yield "one tensor", wire.seconds(size)
    elif contender == "curl":
        yield "one tensor", dict(peers.curl(lab, "http", path, part=(3 * size, 4 * size)))["read"]
    else:
        with lab.show("http", path) as daemon:
            fetched = lab.link.bytes_received()
            yield "one tensor", lab.read(daemon / lab.tensors(path)[3])[0]
            yield f"one tensor: {FETCHED}", (lab.link.bytes_received() - fetched) / size


def first_byte(wire, lab, sizes, _):
    """From the start of ckptfs to the first byte of a tensor."""
    for name in "small.pth", "small.safetensors", "small.tensors", "many.pth", "many.safetensors":
        path = file_of(lab, sizes, name)
        files = lab.tensors(path)
        lab.shape(wire)
        with lab.show("http", path) as daemon:
            begin = time.perf_counter()
            file = os.open(daemon / files[len(files) // 2], os.O_RDONLY)
            os.read(file, 1)
            os.close(file)
            seconds = daemon.seconds + time.perf_counter() - begin
        figure = f"{len(files):,} tensors, .{name.split('.')[1]}: round trips"
        yield figure, seconds * 1000 / wire.rtt_ms


def random_reads(wire, lab, sizes, contender):
    """4 KiB at places that nothing predicts."""
    path = file_of(lab, sizes, "large.safetensors")
    lab.shape(wire)
    for readers, count in (1, 40), (8, 40), (32, 20):
        figure = f"by {readers}: reads/s"
        if contender == "link":
            yield figure, readers * 1000 / wire.rtt_ms
            continue
        with lab.show("http", path) as daemon:
            fetched = lab.link.bytes_received()
            files = [daemon / file for file in lab.tensors(path)]
            yield figure, readers * count / lab.read(*files, kind=("random", count, readers))[0]
            fetched = lab.link.bytes_received() - fetched
            yield f"by {readers}: fetched per read, KiB", fetched / KIB / readers / count


def from_hub(wire, lab, _, contender):
    """transformers loads a model whose weights are a pickle of 1 GiB on a hub."""
    directory = stores.model(lab, "bin")
    lab.shape(wire)
    if contender == "link":
        yield "from_pretrained", wire.seconds((directory / "pytorch_model.bin").stat().st_size)
        return
    with lab.hub(directory) as endpoint:
        with lab.remote("hf://org/model", env=lab.environment | {"HF_ENDPOINT": endpoint}) as daemon:
            yield "from_pretrained", lab.consume("from-pretrained", daemon.path)[0]


def goal_of_first_byte(wire, figure):
    if wire.rtt_ms < 50:
        return Goal()  # A program needs longer to start than a round trip.
    return Goal(value=8 if figure.startswith("1,000") else 12)


def goal_of_random_reads(wire, figure):
    if figure.endswith("fetched per read, KiB"):
        return Goal(value=64)
    return Goal(value=500 if wire == WIRES["50"] and "32" in figure else None)


HTTP_PEERS = ("curl", "8 ranges", "rclone")
S3_PEERS = ("boto3", "rclone", "s3fs", "s3torchconnector", "runai")

# By name: contenders, measure(wire, lab, sizes, contender) and goal(wire, figure).
KINDS = {
    "order": reading("gpt2.pth", (*ORDERS, *LIBRARIES), (*HTTP_PEERS, "tensorizer"),
                     tensorized="gpt2.tensors"),
    "safetensors": reading("gpt2.safetensors", (*ORDERS, *LIBRARIES), HTTP_PEERS),
    "tensorizer": reading("gpt2.tensors", ORDERS, (*HTTP_PEERS, "tensorizer"),
                          tensorized="gpt2.tensors"),
    "tensors": reading("tensors.safetensors", ("file order", "shuffled"), (*HTTP_PEERS, "tensorizer"),
                       tensorized="tensors.tensors"),
    "large": reading("large.safetensors", ("file order",), HTTP_PEERS),
    "small": reading("small.pth", ("file order", "shuffled"), ("curl",)),
    "https": reading("tensors.safetensors", ("file order",), HTTP_PEERS, origin="https"),
    "s3": reading("tensors.safetensors", ("file order", "shuffled"), S3_PEERS, origin="s3"),
    "tensor": (("ckptfs", "link", "curl"), one_tensor, lambda *_: Goal(peer=1)),
    "first": (("ckptfs",), first_byte, goal_of_first_byte),
    "random": (("ckptfs", "link"), random_reads, goal_of_random_reads),
    "hub": (("ckptfs", "link"), from_hub, lambda *_: Goal(link=1.1)),
}


def row(kind, wire):
    contenders, measure, goal = KINDS[kind]
    return Row(3, contenders, lambda *arguments: measure(wire, *arguments), lambda figure: goal(wire, figure))


ROWS = {f"{kind}-{name}": row(kind, wire) for name, wire in WIRES.items() for kind in KINDS}
