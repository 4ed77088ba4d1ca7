"""Rows about directories: stores of many checkpoints, views, and programs that load from them."""

import os
import time

COUNT = 10_000  # Checkpoints of a store.


def many(lab):
    """A directory of checkpoints of safetensors."""
    directory = lab.directory / "runs"
    if not directory.exists():
        directory.mkdir()
        source = lab.checkpoint("--safetensors", 1, 64)
        for i in range(COUNT):
            os.link(source, directory / f"{i:05}.safetensors")
    return directory


def first_byte(path):
    begin = time.perf_counter()
    file = os.open(path, os.O_RDONLY)
    os.read(file, 1)
    os.close(file)
    return time.perf_counter() - begin


def store(lab, _, contender):
    directory = many(lab)
    if contender == "ls -f":
        yield "mount", lab.clock("ls", "-f", directory)
        return
    if contender == "alone":
        with lab.remote(directory / "07777.safetensors") as daemon:
            yield "first tensor", daemon.seconds + first_byte(daemon / "f000000.memmap")
        return
    with lab.remote(directory) as daemon:
        yield "mount", daemon.seconds
        yield "first tensor", first_byte(daemon / "07777.safetensors.d/f000000.memmap")
        yield "find", lab.clock("find", daemon.path)
        yield "find, peak MiB", daemon.peak_memory()


def view(lab, sizes, contender):
    """A safetensors file that shows the 2 GiB of a .pth, against one file of that size."""
    if contender == "null":
        count, size = sizes.large
        with lab.mount("null", (1, count * size)) as daemon:
            yield "read", lab.read(*daemon.files(1))[0]
        return
    with lab.remote(lab.checkpoint(*sizes.large), "-o", "view=safetensors") as daemon:
        yield "read", lab.read(daemon / "model.safetensors")[0]


def model(lab, kind):
    """A directory of a random Llama of 1 GiB: "safetensors" or "bin"."""
    directory = lab.directory / f"llama-{kind}"
    if not directory.exists():
        lab.run(lab.python, lab.consumer, "save-llama", directory, kind)
        lab.read(*directory.iterdir())  # Into the page cache.
    return directory


def programs(lab, _, contender):
    for kind in ("safetensors", "bin"):
        directory = model(lab, kind)
        if contender == "directory":
            seconds, mib = lab.consume("from-pretrained", directory)
        else:
            with lab.remote(directory) as daemon:
                seconds, mib = lab.consume("from-pretrained", daemon.path)
        yield f"from_pretrained, {kind}", seconds
        yield f"from_pretrained, {kind}, peak MiB", mib
