#!/usr/bin/env python3
"""Adds up what `meson test` has written: summary.py BUILD...

Prints each test that failed or was skipped, and "N passed, N failed" as the last line. Each case
of a GoogleTest program and each line of TAP counts as one test.
"""

import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

passed = failed = 0
for build in sys.argv[1:]:
    log = Path(build, "meson-logs", "testlog.junit.xml")
    if not log.exists():
        failed += 1
        print(f"failed: no test of {build} was run")
        continue
    for suite in ElementTree.parse(log).getroot().iter("testsuite"):
        for case in suite.iter("testcase"):
            name = f"{suite.get('name')}: {case.get('name')}"
            skipped = case.find("skipped")
            if case.find("failure") is not None or case.find("error") is not None:
                failed += 1
                print(f"failed: {name}")
            elif skipped is not None or case.get("status") == "notrun":
                reason = (skipped.get("message") or skipped.text) if skipped is not None else None
                print(f"skipped: {name}" + (f": {reason}" if reason else ""))
            else:
                passed += 1
print(f"{passed} passed, {failed} failed")
sys.exit(failed != 0)
