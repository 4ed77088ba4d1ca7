"""Measures ckptfs beside other ways to the same bytes. To be run by tools/bench.

The programs are $CKPTFS, $CKPTFS_NULL, $CKPTFS_READER, $CKPTFS_OPENER, $CKPTFS_INFLATER and
$CKPTFS_FETCHER, and the Python with torch is $CKPTFS_PYTHON. With --remote, $CKPTFS_TUNLINK is the link and
$CKPTFS_PEERS a directory with further Python packages.
"""

import argparse
import json
import os
import platform
import shutil
import signal
import sys
from collections import defaultdict
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

import peers
import remote
import remote_report
import report
import rows
from lab import Failure, Lab
from remote_lab import RemoteLab

from link import why_missing  # remote_lab has set the path.


class Suite(NamedTuple):
    """Rows that are measured and written together."""
    rows: dict
    full: tuple  # The sizes of its checkpoints.
    quick: tuple
    lab: type
    results: str  # The name of the files of its results, without a suffix.
    has: Callable  # Whether a contender can be measured, given the options.
    write: Callable  # The table and perhaps a plot, given the options and the values.


def has_local(contender, options):
    # To mount ext4 takes root.
    return (options.peers or contender not in rows.PEERS) and (contender != "ext4" or os.geteuid() == 0)


def has_remote(contender, _):
    return contender in ("ckptfs", "link") or peers.is_installed(os.environ["CKPTFS_PYTHON"], contender)


def write_local(options, values):
    judged = report.judge(rows.ROWS, values)
    title = "How much of each goal ckptfs uses up"
    if options.quick:
        title += " (quick: small sizes)"
    (options.out / "results.svg").write_text(report.plot(judged, title))
    return report.table(judged), judged


def write_remote(_, values):
    compared = remote_report.compare(remote.ROWS, values)
    return remote_report.table(compared), compared


LOCAL = Suite(rows.ROWS, rows.FULL, rows.QUICK, Lab, "results", has_local, write_local)
REMOTE = Suite(remote.ROWS, remote.FULL, remote.QUICK, RemoteLab, "remote", has_remote, write_remote)


def arguments():
    parser = argparse.ArgumentParser(
        prog="tools/bench", description="Measures ckptfs beside other ways to the same bytes.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"rows: {', '.join(LOCAL.rows)}\n\nwith --remote: {', '.join(remote.KINDS)}, each followed by "
               f"a link: {', '.join('-' + name for name in remote.WIRES)}")
    parser.add_argument("--remote", action="store_true",
                        help="measure checkpoints at the far end of a link, as root; --peers goes without saying")
    parser.add_argument("--peers", action="store_true", help="measure fuse-zip, too")
    parser.add_argument("--quick", action="store_true",
                        help="small sizes and one round: to see that it works, not how fast it is")
    parser.add_argument("--rows", metavar="NAME,...",
                        help="measure these only, and keep what DIR has of the others")
    parser.add_argument("--rounds", metavar="N", type=int, help="how often to measure each row")
    parser.add_argument("--of", metavar="NAME,...", help="measure these contenders only: ckptfs, curl, ...")
    parser.add_argument("--out", metavar="DIR", type=Path,
                        default=Path(__file__).resolve().parent / "results",
                        help="where to write the table, results.json and results.svg (or remote.json)")
    options = parser.parse_args()
    options.suite = REMOTE if options.remote else LOCAL
    names = options.rows.split(",") if options.rows else list(options.suite.rows)
    for name in names:
        if name not in options.suite.rows:
            parser.error(f"there is no row '{name}', only {', '.join(options.suite.rows)}")
    for program in rows.PEERS if options.peers else ():
        if not shutil.which(program):
            parser.error(f"--peers needs {program}")
    if options.remote and (missing := why_missing()):
        parser.error(f"--remote: {missing}")
    options.rows = {name: options.suite.rows[name] for name in names}
    return options


def is_wanted(contender, options):
    return (not options.of or contender in options.of.split(",")) and options.suite.has(contender, options)


def say(text):
    """Replaces the line of progress on a terminal; elsewhere there is none."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def measure(lab, options):
    """The values of all rounds by (row, figure, contender)."""
    values = defaultdict(list)
    sizes = options.suite.quick if options.quick else options.suite.full
    for name, row in options.rows.items():
        contenders = [c for c in row.contenders if is_wanted(c, options)]
        for i in range(options.rounds or (1 if options.quick else row.rounds)):
            with lab.apart() if row.is_apart else nullcontext():
                for contender in contenders:
                    say(f"{name}, round {i + 1}, {contender}")
                    try:
                        for figure, value in row.measure(lab, sizes, contender):
                            values[name, figure, contender].append(value)
                    except Failure as failure:
                        if contender == "ckptfs":
                            raise
                        print(f"bench: {name}: {contender}: {failure}", file=sys.stderr)
    say("")
    return values


def with_others(options, values):
    """The values, and those of rows that were not measured now, in the order of the rows."""
    all_rows = options.suite.rows
    file = options.out / f"{options.suite.results}.json"
    known = json.loads(file.read_text())["values"] if file.exists() else []
    merged = {(v["row"], v["figure"], v["of"]): v["rounds"] for v in known
              if v["row"] in all_rows and v["row"] not in options.rows}
    merged |= values
    order = list(all_rows)
    return dict(sorted(merged.items(), key=lambda item: order.index(item[0][0])))


def write(options, values):
    values = with_others(options, values)
    options.out.mkdir(parents=True, exist_ok=True)
    table, judged = options.suite.write(options, values)
    text = table + "\n" + report.all_figures(values)
    congestion = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    raw = {"machine": {"kernel": platform.release(), "processors": os.cpu_count(),
                       "tcp_congestion_control": congestion},
           "is_quick": options.quick, "goals": judged,
           "values": [{"row": row, "figure": figure, "of": contender, "rounds": numbers}
                      for (row, figure, contender), numbers in values.items()]}
    (options.out / f"{options.suite.results}.md").write_text(text)
    (options.out / f"{options.suite.results}.json").write_text(json.dumps(raw, indent=1) + "\n")
    print(text, end="")


def main():
    # As an exception, so that everything is unmounted.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    options = arguments()
    try:
        programs = ("", "_CKPT", "_NULL", "_READER", "_OPENER", "_INFLATER", "_FETCHER", "_PYTHON")
        with options.suite.lab(*(os.environ[f"CKPTFS{name}"] for name in programs)) as lab:
            values = measure(lab, options)
    except Failure as failure:
        sys.exit(f"bench: {failure}")
    except KeyboardInterrupt:
        sys.exit(1)
    write(options, values)


if __name__ == "__main__":
    main()
