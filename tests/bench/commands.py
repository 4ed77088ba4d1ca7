"""Rows about the program ckpt and the Python package: from the start of a process to its end, unless a
figure says otherwise."""

import os
import shutil
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "packaging" / "python"
SCANNED = 1_000  # Files.


def ls(lab, sizes, contender):
    file = lab.checkpoint(*sizes.many)
    if contender == "torch":
        yield "list", lab.clock(lab.python, lab.consumer, "list", file)
    else:
        yield "list", lab.clock(lab.ckpt, "ls", file)


def stat(lab, sizes, contender):
    """Against the sum alone, by two threads, of tensors that are mapped already."""
    if contender == "numpy":
        yield "2 GiB", lab.consume("sum-by-two", lab.checkpoint(*sizes.large))[0]
    else:
        yield "2 GiB", lab.clock(lab.ckpt, "stat", lab.checkpoint(*sizes.large))


def diff(lab, sizes, contender):
    file = lab.checkpoint(*sizes.large)
    other = file.with_suffix(".copy")
    if not other.exists():
        shutil.copy(file, other)
        lab.read(other)
    if contender == "ckptfs":
        yield "2 GiB", lab.clock(lab.ckpt, "diff", file, other)
        return
    with lab.remote(file) as one, lab.remote(other) as two:
        names = [one.path.joinpath(f"f{i:06}.memmap").name for i in range(sizes.large[0])]
        script = 'for name; do cmp "$A/$name" "$B/$name" || exit; done'
        yield "2 GiB", lab.clock("sh", "-c", script, "sh", *names,
                                 env=os.environ | {"A": str(one.path), "B": str(two.path)})


def convert(lab, sizes, contender):
    file = lab.checkpoint(*sizes.large)
    out = lab.directory / "converted.safetensors"
    out.unlink(missing_ok=True)
    if contender == "torch":
        seconds, mib = lab.usage(lab.python, lab.consumer, "to-safetensors", file, out)
    else:
        seconds, mib = lab.usage(lab.ckpt, "convert", file, out)
    out.unlink()
    yield "2 GiB", seconds
    yield "2 GiB, peak MiB", mib


def scan(lab, _, contender):
    folder = lab.directory / "scanned"
    if not folder.exists():
        lab.run(lab.python, lab.consumer, "save-many", folder, SCANNED)
        lab.read(*folder.iterdir())
    if contender == "picklescan":
        yield "1,000 files", lab.clock(lab.python, "-m", "picklescan", "--path", folder)
    else:
        yield "1,000 files", lab.clock(lab.ckpt, "scan", folder)


def package(lab, sizes, contender):
    file = lab.checkpoint(*sizes.many)
    key = f"f{sizes.many[0] // 2:06}"
    command = "first-element" if contender == "torch" else "open"
    paths = {"PYTHONPATH": str(PACKAGE), "CKPTFS_PROGRAM": str(lab.ckptfs)}
    yield "first element", lab.clock(lab.python, lab.consumer, command, file, key, env=os.environ | paths)
    yield "first element, after the imports", lab.seconds(
        lab.python, lab.consumer, f"{command}-timed", file, key, env=os.environ | paths)[0]
