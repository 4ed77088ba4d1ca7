#!/usr/bin/env python3
"""Runs the commands in the documentation: readme_test.py CKPTFS CKPT FILE_OR_DIRECTORY...

A directory stands for the *.md files in it. In each fenced block that begins with ```console, the
lines that start with "$ " are commands; a line that starts with "> " continues the command above.
All commands of a file run in order in one bash, in a new directory that contains a checkpoint
model.pth and an empty directory mnt, with ckptfs and ckpt in the PATH and the package in the
PYTHONPATH, unless that is set.
Requests over http:// and to S3 go to a local server, which has model.pth on every host and in the
bucket "bucket". Each command must exit with 0. Its output is not compared.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).resolve().parent
sys.path.insert(0, str(TESTS / "servers"))

from fault_server import FaultServer  # noqa: E402 (it is in the directory above)

SECONDS = 300  # Time limit for the commands of one file.


def documents(arguments):
    """The files that the arguments name, in order."""
    for argument in map(Path, arguments):
        yield from sorted(argument.glob("*.md")) if argument.is_dir() else [argument]


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


def run(program, ckpt, steps, server):
    """Runs `steps` in a new directory. Returns line number -> exit status, and the output."""
    with tempfile.TemporaryDirectory(prefix="ckptfs-readme.") as name:
        directory = Path(name)
        shutil.copy(TESTS / "samples" / "demo.pth", directory / "model.pth")
        (directory / "mnt").mkdir()
        (directory / "bin").mkdir()
        (directory / "bin" / "ckptfs").symlink_to(program)
        (directory / "bin" / "mount.ckptfs").symlink_to(program)
        (directory / "bin" / "ckpt").symlink_to(ckpt)
        path = [str(directory / "bin")]
        if os.environ.get("CKPTFS_PYTHON"):
            path.append(os.path.dirname(os.environ["CKPTFS_PYTHON"]))
        path.append(os.environ["PATH"])
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith("AWS_") and not name.lower().endswith("_proxy")}
        environment |= {"PATH": os.pathsep.join(path), "HOME": name, "http_proxy": server,
                        "PYTHONPATH": os.environ.get("PYTHONPATH", str(TESTS.parent / "packaging" / "python")),
                        "AWS_ENDPOINT_URL": server, "AWS_EC2_METADATA_DISABLED": "true"}
        status_file = directory / "bin" / "statuses"
        status_file.touch()
        script = "".join(f"{command}\necho $? {number} >>'{status_file}'\n"
                         for number, command in steps)
        try:
            output = subprocess.run(
                ["bash"], input=script, cwd=directory, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True, errors="replace", timeout=SECONDS,
                env=environment).stdout
        except subprocess.TimeoutExpired as error:
            output = f"{error.stdout}\ntimed out after {SECONDS} s"
        finally:
            for mount in directory.iterdir():
                if os.path.ismount(mount):
                    subprocess.run(["umount", "-l", mount], check=False)
        pairs = (map(int, line.split()) for line in status_file.read_text().splitlines())
        return {number: status for status, number in pairs}, output


def main():
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        print("1..0 # SKIP /dev/fuse is missing or not accessible")
        return 0
    program, ckpt = (Path(argument).resolve() for argument in sys.argv[1:3])
    count, has_failed = 0, False
    with tempfile.TemporaryDirectory(prefix="ckptfs-server.") as name:
        for directory in Path(name), Path(name) / "bucket":
            directory.mkdir(exist_ok=True)
            shutil.copy(TESTS / "samples" / "demo.pth", directory / "model.pth")
        with FaultServer(name) as server:
            for document in documents(sys.argv[3:]):
                steps = commands(document.read_text())
                statuses, output = run(program, ckpt, steps, server.url("/").rstrip("/"))
                for number, command in steps:
                    count += 1
                    ok = statuses.get(number) == 0
                    print(f"{'ok' if ok else 'not ok'} {count} {document.name} line {number}: "
                          f"{command.splitlines()[0]}")
                if any(statuses.get(number) != 0 for number, _ in steps):
                    has_failed = True
                    print("".join(f"# {line}\n" for line in output.splitlines()), end="")
    if count == 0:
        count, has_failed = 1, True
        print("not ok 1 no commands found")
    print(f"1..{count}")
    return int(has_failed)


sys.exit(main())
