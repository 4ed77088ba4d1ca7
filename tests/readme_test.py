#!/usr/bin/env python3
"""Runs what README.md shows: readme_test.py CKPTFS README.

In each fenced block that begins with ```console, the lines that start with "$ " are commands; a
line that starts with "> " goes on with the one before. They are run in order, all in one bash, in a
directory that has a checkpoint model.pth and an empty directory mnt, with ckptfs in the PATH. Each
has to succeed. What the README shows as their output is for the reader.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path


def commands(text):
    """The commands of all console blocks, in order, each with its line number."""
    found, is_console = [], False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            is_console = not is_console and line.strip() == "```console"
        elif is_console and line.startswith("$ "):
            found.append([number, line[2:]])
        elif is_console and line.startswith("> ") and found:
            found[-1][1] += "\n" + line[2:]
    return found


def main():
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        print("1..0 # SKIP /dev/fuse is missing or not ours to open")
        return 0
    program, readme = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    steps = commands(readme.read_text())
    if not steps:
        print("1..1\nnot ok 1 README.md has commands to run")
        return 1
    with tempfile.TemporaryDirectory(prefix="ckptfs-readme.") as name:
        directory = Path(name)
        shutil.copy(Path(__file__).parent / "samples" / "demo.pth", directory / "model.pth")
        (directory / "mnt").mkdir()
        (directory / "bin").mkdir()
        (directory / "bin" / "ckptfs").symlink_to(program)
        (directory / "bin" / "mount.ckptfs").symlink_to(program)
        path = [str(directory / "bin")]
        if os.environ.get("CKPTFS_PYTHON"):
            path.append(os.path.dirname(os.environ["CKPTFS_PYTHON"]))
        statuses = directory / "bin" / "statuses"
        statuses.touch()
        script = "".join(f"{command}\necho $? {number} >>'{statuses}'\n" for number, command in steps)
        try:
            done = subprocess.run(
                ["bash"], input=script, cwd=directory, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True, errors="replace", timeout=300,
                env=os.environ | {"PATH": os.pathsep.join([*path, os.environ["PATH"]])})
            said = done.stdout
        except subprocess.TimeoutExpired as error:
            said = f"{error.stdout}\nit did not end"
        finally:
            if os.path.ismount(directory / "mnt"):
                subprocess.run(["umount", "-l", directory / "mnt"], check=False)
        told = {}
        for line in statuses.read_text().splitlines():
            status, number = map(int, line.split())
            told[number] = status
    print(f"1..{len(steps)}")
    for index, (number, command) in enumerate(steps, 1):
        ok = told.get(number) == 0
        print(f"{'ok' if ok else 'not ok'} {index} line {number}: {command.splitlines()[0]}")
    failed = any(told.get(number) != 0 for number, _ in steps)
    if failed:
        print("".join(f"# {line}\n" for line in said.splitlines()), end="")
    return int(failed)


sys.exit(main())
