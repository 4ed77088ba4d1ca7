#!/usr/bin/env python3
"""Compares the documentation with the program: documentation_test.py CKPTFS ROOT.

The options of --help are those of the table that parses the command line. The manual pages,
docs/usage.md and the completions must have each of them, with a value if it takes one, and no other.
The manual page must have each environment variable that the code reads, each ignored option, each
format of docs/formats.md and each exit code. Links in the documents must resolve.
"""

import re
import subprocess
import sys
import unittest
from pathlib import Path

PROGRAM, ROOT = sys.argv[1], Path(sys.argv[2])


def between(text, begin, end):
    """The part of `text` from the first match of `begin` to the next one of `end`."""
    _, text = re.split(begin, text, maxsplit=1, flags=re.M)
    return re.split(end, text, maxsplit=1, flags=re.M)[0]


def roff(text):
    """A line of mdoc as its reader sees it."""
    return re.sub(r" Ns (?:Op )?|\.(It|Cm) |\b(Cm|Ar) ", "", text)


HELP = subprocess.run([PROGRAM, "--help"], capture_output=True, text=True, check=True).stdout
MAN = (ROOT / "packaging/man/ckptfs.1").read_text()
HELPER_MAN = (ROOT / "packaging/man/mount.ckptfs.8").read_text()
README = (ROOT / "README.md").read_text()
USAGE = (ROOT / "docs/usage.md").read_text()
DOCUMENTS = {path: path.read_text() for path in
             [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md"))]}
COMPLETION = (ROOT / "packaging/completions/ckptfs").read_text()
TABLE = (ROOT / "fs/option_table.cc").read_text()

# Mount options: name -> whether it may take a value. Switches: "-f", "--help", ...
OPTIONS = {name: bool(value) for name, value in re.findall(r"^  -o (\w+)\[?(=?)", HELP, re.M)}
SWITCHES = set(re.findall(r"(?<![\w-])--?\w+", "\n".join(
    re.findall(r"^  (-[^o].{0,22})  ", HELP, re.M))))
IGNORED = re.findall(r'"(\w+)"', between(TABLE, r"kIgnored\[\] = \{", r"^\};|\};$"))
REFUSED = re.findall(r'\{"(\w+)",', between(TABLE, r"kRefused\[\] = \{", r"^\};"))


class Options(unittest.TestCase):
    maxDiff = None

    def test_help_has_options(self):
        self.assertGreater(len(OPTIONS), 20)
        self.assertLess({"-f", "-d", "-h", "--help", "-V", "--version"}, SWITCHES | {""})
        self.assertGreater(len(IGNORED), 50)
        self.assertIn("direct_io", REFUSED)

    def test_manual_page(self):
        items = re.findall(r"^\.It Cm (\w+)( Ns (?:Op )?= Ns)?", MAN, re.M)
        self.assertEqual({name: bool(value) for name, value in items}, OPTIONS)
        self.assertEqual(len(items), len(OPTIONS))
        described = re.findall(r"^\.It Fl (.*)$", between(MAN, r"^\.Sh DESCRIPTION", r"^\.Ss "), re.M)
        written = {f"-{word}" for line in described for word in re.findall(r"-?\w+", line)
                   if word not in ("Ar", "Ns", "option")}
        self.assertEqual(written - {"-o"}, SWITCHES)

    def test_manual_page_mentions_no_other_option(self):
        words = set(re.findall(r"\w+", " ".join(
            roff(line) for line in re.findall(r"^(?:\.Cm|\.It Cm) .*$", MAN, re.M))))
        values = {"off", "warn", "enforce", "file", "number", "octal", "size", "directory",
                  "seconds", "url", "name", "x", "X", "keys", "format", "how"}
        self.assertEqual(words - values - {"Ns"}, set(OPTIONS) | set(IGNORED) | {"direct_io"})

    def test_manual_page_of_the_helper(self):
        letters = between(TABLE, r"kHelperSwitches\[\] = \{", r"^\};")
        for letter in re.findall(r"\{'(\w)'", letters) + list("Nt"):
            if letter not in "hV":
                self.assertRegex(HELPER_MAN, rf"\bFl [a-z]*{letter}|, {letter}\b")

    def test_usage(self):
        rows = re.findall(r"^\| (`-.*?`) \|", between(USAGE, r"^## Options", r"^## "), re.M)
        words = re.findall(r"`(-[^`]*)`", "\n".join(rows))
        options = {re.match(r"-o (\w+)\[?(=?)", word).groups() for word in words
                   if word.startswith("-o ")}
        self.assertEqual({name: bool(value) for name, value in options}, OPTIONS)
        self.assertEqual({word for word in words if not word.startswith("-o ")}, SWITCHES)

    def test_documents_mention_no_other_option(self):
        for path, text in DOCUMENTS.items():
            text = re.sub(r"-o [a-z]+\.html\b", "", text)  # The page of ckpt report.
            for list_ in re.findall(r"-o ([a-z_]+(?:=[^\s`]*)?(?:,[a-z_]+(?:=[^\s`,]*)?)*)", text):
                for word in re.sub(r"=[^,]*", "", list_).split(","):
                    self.assertIn(word, OPTIONS, path)

    def test_completion(self):
        words = between(COMPLETION, r"local options='", r"'").split()
        self.assertEqual({name: bool(value) for name, value in
                          re.findall(r"(\w+)(=?)", " ".join(re.sub("=.*", "=", w) for w in words))},
                         OPTIONS)
        switches = set(between(COMPLETION, r"compgen -W '(?=-)", r"'").split())
        self.assertEqual(switches - {"-o"}, SWITCHES)

    def test_completion_of_files(self):
        files = re.search(r"\^\((\S+)\)=", COMPLETION)[1]
        takes_file = set(re.findall(r"^  -o (\w+)=(?:FILE|DIR) ", HELP, re.M))
        self.assertEqual({name for name in OPTIONS if re.fullmatch(files, name)}, takes_file)


class Environment(unittest.TestCase):
    def read_by_the_code(self):
        """The names that files which look into the environment have in them."""
        names = set()
        for file in [*ROOT.glob("fs/*.cc"), *ROOT.glob("parser/**/*.cc")]:
            text = re.sub(r"^\s*//.*", "", file.read_text(), flags=re.M)
            names |= set(re.findall(r'(?:getenv|GetEnvironment|Variable|FromEnvironment)\("(\w+)"', text))
            if re.search(r"getenv|GetEnvironment|environment\(\"|Variable\(|FromEnvironment\(|kKeyVariable", text):
                names |= set(re.findall(r'"([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+_?)"', text))
        return names

    def test_manual_page(self):
        listed = set()
        for line in re.findall(r"^\.It Ev (.*)$", between(MAN, r"^\.Sh ENVIRONMENT", r"^\.Sh "),
                               re.M):
            listed |= set(line.split(" , "))
        expected = self.read_by_the_code()
        self.assertGreater(len(expected), 25)
        # One name is completed by that of a service; libcurl reads those of proxies.
        expected.remove("AWS_ENDPOINT_URL_")
        expected |= {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL_STS"}
        expected |= {"http_proxy", "https_proxy", "all_proxy", "no_proxy"}
        self.assertEqual(listed, expected)


class Formats(unittest.TestCase):
    def names(self, text):
        """The first words of the rows of a table of formats."""
        table = between(text, r"^\| format \|.*$", r"\n\n")
        return {name for row in re.findall(r"^\| (\w[^|]*) \|", table, re.M)
                for name in [re.split(r"[,\s]", row)[0]]}

    def test_manual_page(self):
        names = self.names((ROOT / "docs/formats.md").read_text())
        self.assertLess({"PyTorch", "NumPy", "tensorizer", "DCP"}, names)
        description = between(MAN, r"^\.Sh DESCRIPTION", r"^\.Ss ")
        for name in names:
            self.assertIn(name.lower(), description.lower())

    def test_readme(self):
        self.assertEqual(self.names(README), self.names((ROOT / "docs/formats.md").read_text()))


class ExitStatus(unittest.TestCase):
    def test_each_is_described(self):
        codes = re.findall(r"^  (\d+) +\S", HELP, re.M)
        self.assertGreater(len(codes), 5)
        self.assertEqual(re.findall(r"^\| (\d+) \|", between(USAGE, r"^## Exit codes", r"^#"), re.M),
                         codes)
        self.assertEqual(re.findall(r"^\.It (\d+)$", between(MAN, r"^\.Sh EXIT STATUS", r"^\.Sh "),
                                    re.M), codes)


class Documents(unittest.TestCase):
    def anchors(self, text):
        """The anchors of the headings of a document, as GitHub makes them."""
        text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
        found = []
        for heading in re.findall(r"^#+ (.*)$", text, re.M):
            anchor = re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
            count = sum(re.sub(r"-\d+$", "", other) == anchor for other in found)
            found.append(f"{anchor}-{count}" if count else anchor)
        return found

    def test_links_resolve(self):
        count = 0
        for path, text in DOCUMENTS.items():
            for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"^```.*?^```", "", text,
                                                               flags=re.M | re.S)):
                if re.match(r"[a-z]+:", target):
                    continue
                count += 1
                name, _, anchor = target.partition("#")
                file = path.parent / name if name else path
                self.assertTrue(file.exists(), f"{path}: {target}")
                if anchor:
                    self.assertIn(anchor, self.anchors(file.read_text()), f"{path}: {target}")
        self.assertGreater(count, 30)

    def test_paths_exist(self):
        count = 0
        for path, text in DOCUMENTS.items():
            for name in re.findall(r"`((?:fs|parser|tests|tools|packaging|docs)/[\w./-]+)", text):
                if "NAME" not in name and name != "tests/test-gguf.cpp":  # That of llama.cpp.
                    count += 1
                    self.assertTrue((ROOT / name).exists(), f"{path}: {name}")
        self.assertGreater(count, 30)

    def test_tests_in_compatibility_tables_exist(self):
        tests = "".join(path.read_text() for path in
                        [*ROOT.glob("tests/unit/*.cc"), *ROOT.glob("tests/mount/*.py")])
        count = 0
        for path in ROOT.glob("docs/compatibility/*.md"):
            for cell in re.findall(r"\|([^|\n]+)\|$", path.read_text(), re.M):
                for name in re.findall(r"`(?:[A-Z]\w+\.)?([A-Z]\w+|test_\w+)`", cell):
                    count += 1
                    self.assertIn(name, tests, path)
        self.assertGreater(count, 100)

    def test_readme_links_to_each_page(self):
        for path in ROOT.glob("docs/*.md"):
            self.assertIn(f"(docs/{path.name})", README)

    def test_size_of_readme(self):
        lines = README.splitlines()
        self.assertLessEqual(len(lines), 250)
        self.assertLessEqual(max(map(len, lines)), 100)


unittest.main(argv=sys.argv[:1])
