#!/usr/bin/env python3
"""Runs the tests of a file and reports them as TAP: run.py FILE [--update] [PATTERN...]

With --update, golden files are written instead of compared; look at what changes with git diff.
Without /dev/fuse all tests are skipped. A test is skipped for a reason that could be mended
("avoidable: ...") only outside of continuous integration: where $CKPTFS_NO_SKIP is set, it fails.
"""

import contextlib
import importlib.util
import os
import sys
import unittest
import warnings
from pathlib import Path


class Tap(unittest.TestResult):
    """Prints a line for each test, and why those failed that did."""

    count = 0

    def line(self, ok, test, comment="", detail=""):
        self.count += 1
        if isinstance(test, unittest.TestCase):
            name = f"{type(test).__name__} {test._testMethodName[len('test_'):].replace('_', ' ')}"
        else:
            name = str(test)  # "setUpClass (http_test.Reading)"
        print(f"{'ok' if ok else 'not ok'} {self.count} {name}{comment}", flush=True)
        for text in detail.splitlines():
            print("# " + text, file=sys.stderr, flush=True)  # `meson test` prints it, unlike stdout.

    def startTest(self, test):
        super().startTest(test)
        self.problems = []

    @contextlib.contextmanager
    def beside(self, test):
        """What befalls a class as a whole, where no test starts or stops, is a line, too."""
        is_beside = not isinstance(test, unittest.TestCase)
        if is_beside:
            self.problems = []
        yield
        if is_beside:
            self.tell(test)

    def remember(self, test, error):
        # unittest's own way of showing it, which leaves out its own frames.
        text = self._exc_info_to_string(error, test).encode("utf-8", "replace").decode()
        self.problems.append(f"{test}\n{text}")

    def addError(self, test, error):
        super().addError(test, error)
        with self.beside(test):
            self.remember(test, error)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.remember(test, error)

    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        if error:
            self.remember(subtest, error)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        with self.beside(test):
            if os.environ.get("CKPTFS_NO_SKIP") and reason.startswith("avoidable: "):
                self.problems.append(f"skipped, but need not be: {reason}")
            else:
                self.skipped_for = reason

    skipped_for = None

    def stopTest(self, test):
        super().stopTest(test)
        self.tell(test)

    def tell(self, test):
        if self.problems:
            self.line(False, test, detail="\n".join(self.problems))
        elif self.skipped_for:
            self.line(True, test, f" # SKIP {self.skipped_for}")
        else:
            self.line(True, test)
        self.skipped_for = None


def main():
    arguments = sys.argv[1:]
    if "--update" in arguments:
        arguments.remove("--update")
        os.environ["CKPTFS_UPDATE"] = "1"
    file, patterns = Path(arguments[0]), arguments[1:]
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        print("1..0 # SKIP /dev/fuse is missing or not ours to open")
        return 0
    warnings.simplefilter("ignore")
    sys.path.insert(0, str(file.resolve().parent))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    loader = unittest.TestLoader()
    if patterns:
        loader.testNamePatterns = [f"*{p}*" for p in patterns]
    result = Tap()
    suite = loader.loadTestsFromModule(module)
    suite.run(result)
    print(f"1..{result.count}", flush=True)
    return 0 if result.wasSuccessful() and result.count else 1


sys.exit(main())
