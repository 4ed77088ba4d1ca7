"""Measures ckptfs beside other ways to the same bytes. To be run by tools/bench.

The programs are $CKPTFS, $CKPTFS_NULL, $CKPTFS_READER, $CKPTFS_OPENER, $CKPTFS_INFLATER and
$CKPTFS_FETCHER, and the Python with torch is $CKPTFS_PYTHON.
"""

import argparse
import json
import os
import platform
import shutil
import signal
import sys
from collections import defaultdict
from contextlib import nullcontext
from pathlib import Path

import report
from lab import Failure, Lab
from rows import FULL, PEERS, QUICK, ROWS


def arguments():
    parser = argparse.ArgumentParser(
        prog="tools/bench", description="Measures ckptfs beside other ways to the same bytes.",
        epilog="rows: " + ", ".join(ROWS))
    parser.add_argument("--peers", action="store_true", help="measure fuse-zip and rclone too")
    parser.add_argument("--quick", action="store_true",
                        help="small sizes and one round: to see that it works, not how fast it is")
    parser.add_argument("--rows", metavar="NAME,...",
                        help="measure these only, and keep what DIR has of the others")
    parser.add_argument("--out", metavar="DIR", type=Path,
                        default=Path(__file__).resolve().parent / "results",
                        help="where to write results.md, results.json and results.svg")
    options = parser.parse_args()
    names = options.rows.split(",") if options.rows else list(ROWS)
    for name in names:
        if name not in ROWS:
            parser.error(f"there is no row '{name}', only {', '.join(ROWS)}")
    for program in PEERS if options.peers else ():
        if not shutil.which(program):
            parser.error(f"--peers needs {program}")
    options.rows = {name: ROWS[name] for name in names}
    return options


def is_wanted(contender, options):
    # To mount ext4 takes root.
    return (options.peers or contender not in PEERS) and (contender != "ext4" or os.geteuid() == 0)


def say(text):
    """Replaces the line of progress on a terminal; elsewhere there is none."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def measure(lab, options):
    """The values of all rounds by (row, figure, contender)."""
    values = defaultdict(list)
    sizes = QUICK if options.quick else FULL
    for name, row in options.rows.items():
        contenders = [c for c in row.contenders if is_wanted(c, options)]
        for i in range(1 if options.quick else row.rounds):
            say(f"{name}, round {i + 1}")
            with lab.apart() if row.is_apart else nullcontext():
                for contender in contenders:
                    for figure, value in row.measure(lab, sizes, contender):
                        values[name, figure, contender].append(value)
    say("")
    return values


def with_others(options, values):
    """The values, and those of rows that were not measured now, in the order of the rows."""
    file = options.out / "results.json"
    known = json.loads(file.read_text())["values"] if file.exists() else []
    merged = {(v["row"], v["figure"], v["of"]): v["rounds"] for v in known
              if v["row"] in ROWS and v["row"] not in options.rows}
    merged |= values
    order = list(ROWS)
    return dict(sorted(merged.items(), key=lambda item: order.index(item[0][0])))


def write(options, values):
    values = with_others(options, values)
    judged = report.judge(ROWS, values)
    title = "How much of each goal ckptfs uses up"
    if options.quick:
        title += " (quick: small sizes)"
    text = report.table(judged) + "\n" + report.all_figures(values)
    raw = {"machine": {"kernel": platform.release(), "processors": os.cpu_count()},
           "is_quick": options.quick, "goals": judged,
           "values": [{"row": row, "figure": figure, "of": contender, "rounds": numbers}
                      for (row, figure, contender), numbers in values.items()]}
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "results.md").write_text(text)
    (options.out / "results.json").write_text(json.dumps(raw, indent=1) + "\n")
    (options.out / "results.svg").write_text(report.plot(judged, title))
    print(text, end="")


def main():
    # As an exception, so that everything is unmounted.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    options = arguments()
    try:
        with Lab(os.environ["CKPTFS"], os.environ["CKPTFS_NULL"], os.environ["CKPTFS_READER"],
                 os.environ["CKPTFS_OPENER"], os.environ["CKPTFS_INFLATER"],
                 os.environ["CKPTFS_FETCHER"], os.environ["CKPTFS_PYTHON"]) as lab:
            values = measure(lab, options)
    except Failure as failure:
        sys.exit(f"bench: {failure}")
    except KeyboardInterrupt:
        sys.exit(1)
    write(options, values)


if __name__ == "__main__":
    main()
