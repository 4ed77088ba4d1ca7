#!/usr/bin/env python3
"""Draws docs/terminal.svg: tools/terminal_svg.py CKPTFS [--check] FILE

Mounts tests/samples/demo.pth, runs the commands below on the mount, and writes the commands and
their output to FILE as an SVG of a terminal, in light or dark as the viewer prefers. With --check,
compares FILE with the result instead, and exits with 1 if they differ. The commands need
jq, NumPy and tensordict; python3 is that of $CKPTFS_PYTHON if it is set.
"""

import html
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

COMMANDS = [
    "ckptfs model.pth mnt",
    "ls -C mnt",
    "ls -C mnt/model/h/0/ln",
    "jq -c .weight mnt/model/h/0/ln/meta.json",
    """python3 -c 'import numpy as np
> print(np.memmap("mnt/model/h/0/ln/weight.memmap", np.float32, "r")[:5])'""",
    "jq -c 'select(.bytes > 4000) | [.key, .file_offset]' mnt/tensors.jsonl",
    """python3 -c 'from tensordict import TensorDict
> print(TensorDict.load_memmap("mnt")["model", "h", "0"])'""",
    "ckptfs -u mnt",
]
COLUMNS, CHARACTER, LINE, MARGIN, BAR = 84, 8.4, 19, 16, 28  # In columns; all others in pixels.

STYLE = """
text { font: 14px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; white-space: pre;
       fill: #1f2328 }
.window { fill: #ffffff; stroke: #d1d9e0 } .bar { fill: #f6f8fa; stroke: #d1d9e0 }
.prompt { fill: #1a7f37 } .command { font-weight: bold } .title { fill: #59636e }
@media (prefers-color-scheme: dark) {
  text { fill: #d1d7e0 }
  .window { fill: #0d1117; stroke: #3d444d } .bar { fill: #151b23; stroke: #3d444d }
  .prompt { fill: #3fb950 } .title { fill: #9198a1 }
}
"""


def session(program):
    """Runs the commands. Returns the lines of the terminal, each with whether it is a command."""
    with tempfile.TemporaryDirectory(prefix="ckptfs-terminal.") as name:
        directory = Path(name)
        root = Path(__file__).resolve().parent.parent
        shutil.copy(root / "tests" / "samples" / "demo.pth", directory / "model.pth")
        (directory / "bin").mkdir()
        (directory / "bin" / "ckptfs").symlink_to(program)
        path = [str(directory / "bin"), os.environ["PATH"]]
        if os.environ.get("CKPTFS_PYTHON"):
            path.insert(1, os.path.dirname(os.environ["CKPTFS_PYTHON"]))
        environment = os.environ | {"PATH": os.pathsep.join(path), "LC_ALL": "C.UTF-8",
                                    "COLUMNS": str(COLUMNS)}
        lines = []
        try:
            for command in COMMANDS:
                output = subprocess.run(
                    ["bash", "-o", "pipefail", "-c", command.replace("\n> ", "\n")], cwd=directory,
                    env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                    check=True, timeout=60).stdout
                lines += [(True, line) for line in f"$ {command}".splitlines()]
                lines += [(False, line) for line in output.splitlines()]
        except subprocess.CalledProcessError as error:
            sys.exit(f"{error.cmd[-1]}: exit status {error.returncode}\n{error.stdout}")
        finally:
            if os.path.ismount(directory / "mnt"):
                subprocess.run(["umount", "-l", directory / "mnt"], check=False)
        return lines


def wrapped(lines):
    """The lines as a terminal of COLUMNS breaks them."""
    for is_command, line in lines:
        line = line.expandtabs()
        for begin in range(0, max(len(line), 1), COLUMNS):
            yield is_command and begin == 0, is_command, line[begin:begin + COLUMNS]


def picture(lines):
    """The SVG of a terminal that shows `lines`."""
    lines = list(wrapped(lines))
    width, height = COLUMNS * CHARACTER + 2 * MARGIN, BAR + len(lines) * LINE + 2 * MARGIN
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" '
             f'width="{width:.0f}" height="{height}" role="img" '
             'aria-label="A terminal in which ckptfs mounts a checkpoint">',
             f"<style>{STYLE}</style>",
             f'<rect class="window" x=".5" y=".5" width="{width - 1:.0f}" height="{height - 1}" '
             'rx="8"/>',
             f'<path class="bar" d="M.5 {BAR}V8.5a8 8 0 0 1 8-8H{width - 8.5:.1f}a8 8 0 0 1 8 8V{BAR}z"/>',
             f'<text class="title" x="{MARGIN}" y="{BAR - 9}">model.pth on mnt</text>']
    for number, (has_prompt, is_command, line) in enumerate(lines):
        y = BAR + MARGIN + LINE * number + 13
        text = html.escape(line, quote=False)
        if has_prompt:
            rest = html.escape(line[1:], quote=False)
            text = f'<tspan class="prompt">{html.escape(line[:1])}</tspan>{rest}'
        style = ' class="command"' if is_command else ""
        parts.append(f'<text{style} x="{MARGIN}" y="{y}" xml:space="preserve">{text}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--check"]
    if len(arguments) != 2:
        sys.exit(__doc__)
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        print("/dev/fuse is missing or not accessible")
        return 77  # Meson: skipped.
    program, file = Path(arguments[0]).resolve(), Path(arguments[1])
    svg = picture(session(program))
    if "--check" not in sys.argv:
        file.write_text(svg)
        return 0
    if file.read_text() == svg:
        return 0
    print(f"{file} does not show what the commands print: run tools/terminal_svg.py\n{svg}")
    return 1


sys.exit(main())
