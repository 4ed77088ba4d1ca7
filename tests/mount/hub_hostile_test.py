"""A hub that means no good: its listings are held to what a file system may contain, and have an end."""

import json
import sys
import time

import ckptfs
import hub_test
from ckptfs import MEASURE, MEMORY, SOURCE
from hub_test import contents, model

sys.path.insert(0, str(ckptfs.TESTS / "servers"))
from hub import git_id

OID = "0" * 40
GOOD = model(w=b"good")


class Listings(hub_test.Case):
    def setUp(self):
        super().setUp()
        self.commit = self.hub.add("org/model", {"m.safetensors": GOOD})

    def lie(self, entries, **headers):
        """All listings consist of these entries and have these headers."""
        body = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
        self.hub.change = lambda path, *response: (200, headers, body) if "/tree/" in path else response

    def file(self, path, **changes):
        return {"type": "file", "oid": git_id(GOOD), "size": len(GOOD), "path": path} | changes

    def measured(self, source, *options):
        """Runs ckptfs, which must end with an error; returns its exit code, CPU seconds, bytes of memory
        and what it said."""
        done = ckptfs.run(sys.executable, "-I", "-S", "-c", MEASURE, ckptfs.CKPTFS, *options, source,
                          self.mountpoint(), env=self.env(), timeout=100)
        code, seconds, kilobytes = map(float, done.stdout.split())
        return int(code), seconds, kilobytes * 1024, done.stderr

    def assertRefusal(self, sentence, source="hf://org/model", timeout=5):
        code, seconds, memory, said = self.measured(source, "-o", f"timeout={timeout}")
        self.assertEqual((code, said), (SOURCE, f"ckptfs: {source}: {sentence}\n"))
        if not ckptfs.IS_SANITIZED:
            self.assertLess(seconds, 3)
            self.assertLess(memory, 2 * MEMORY)

    def test_names_that_no_file_may_have_are_left_out(self):
        bad = ["", ".", "..", "/", "/etc/passwd", "../m.safetensors", "a/../../m.safetensors", "a//b", "a/", "./a",
               "a\0b", "a\\b", "a/./b", "a/" * 3000 + "b"]
        self.lie([self.file(path) for path in bad] + [self.file("m.safetensors")])
        self.assertEqual(self.mounted("hf://org/model"), [("tensor", "w", b"good")])

    def test_what_is_no_listing_is_refused(self):
        for body in (b"", b"{}", b"[", b"null", b'"x"', b"[1]", b"[{}]", b"\xff", b"[" * 100_000):
            self.lie(body)
            code, seconds, memory, said = self.measured("hf://org/model")
            self.assertEqual((code, said.count("\n")), (SOURCE, 1), said)
        for entry in ({"size": -1}, {"size": 1 << 63}, {"size": 1.5}, {"size": "1"}, {"size": None}):
            self.lie([self.file("m.safetensors", **entry)])
            self.assertRefusal("malformed listing: missing or invalid size")
        for entry in ({"oid": None}, {"oid": "x" * 40}, {"oid": OID[1:]}, {"lfs": {"size": 1}},
                      {"lfs": {"oid": OID, "size": 1}}):
            self.lie([self.file("m.safetensors", **entry)])
            self.assertRefusal("malformed listing: missing or invalid oid")
        for entry in ({"path": None}, {"type": 1}):
            self.lie([self.file("m.safetensors") | entry])
            self.assertRefusal("malformed listing: entry without type or path")
        self.lie([self.file("m.safetensors", lfs={"oid": "0" * 64, "size": 1})])
        self.assertRefusal("malformed listing: a file with two sizes")

    def test_two_files_of_one_name_are_refused(self):
        self.lie([self.file("m.safetensors"), self.file("m.safetensors", size=1)])
        self.assertRefusal("malformed listing: two files 'm.safetensors'")
        self.lie([self.file("m.safetensors"), self.file("m.safetensors")])
        self.assertEqual(self.mounted("hf://org/model"), [("tensor", "w", b"good")])

    def test_a_file_that_is_a_folder_is_refused(self):
        self.lie([self.file("a"), self.file("a.b"), self.file("a/b")])
        self.assertRefusal("malformed listing: 'a' is a file and a folder")

    def test_files_of_another_folder_are_refused(self):
        self.lie([self.file("other/m.safetensors")])
        self.assertRefusal("unexpected path in a listing (found 'other/m.safetensors', expected prefix 'sub/')",
                           "hf://org/model/sub/")

    def test_a_size_that_is_a_lie_is_an_error(self):
        for size in (1, 1 << 20, (1 << 63) - 1):
            self.lie([self.file("m.safetensors", size=size)])
            code, seconds, memory, said = self.measured("hf://org/model", "-o", "timeout=1")
            self.assertEqual((code, said.count("\n")), (SOURCE, 1), said)

    def test_a_file_of_another_commit_is_an_error(self):
        self.hub.change = lambda path, status, headers, body: (
            status, headers | ({"X-Repo-Commit": OID} if "/resolve/" in path else {}), body)
        code, _, _, said = self.measured("hf://org/model")
        self.assertEqual((code, said), (
            SOURCE, f"ckptfs: hf://org/model/: m.safetensors: file of another commit (found '{OID}', expected {self.commit})\n"))

    def test_pages_have_an_end(self):
        for url, sentence in ((f"{self.hub.endpoint}/api/models/org/model/tree/{self.commit}?recursive=true",
                               "repeated page"),
                              (f"/api/models/org/model/tree/{self.commit}?recursive=true", "repeated page"),
                              (f"{self.hub.network}/more", "the next page is on another server"),
                              ("//127.0.0.1:1/more", "the next page is on another server"),
                              ("/" + "x" * 9000, "the URL of the next page is too long")):
            self.lie([], Link=f'<{url}>; rel="next"')
            if url.startswith("//"):
                self.assertEqual(self.measured("hf://org/model")[0], SOURCE)
                continue
            self.assertRefusal(f"malformed listing: {sentence}")
        self.assertEqual(self.hub.paths("network"), [])
        count = iter(range(1 << 30))
        self.hub.change = lambda path, *response: (
            (200, {"Link": f'<{self.hub.endpoint}/tree/{next(count)}>; rel="next"'}, b"[]")
            if "/tree/" in path else response)
        self.assertRefusal("listing too long: more than 500 pages", timeout=60)

    def test_files_have_a_limit(self):
        count = iter(range(1 << 30))
        def page(path, *response):
            if "/tree/" not in path:
                return response
            n = next(count)
            entries = [self.file(f"{n}/{i}") for i in range(5000)]
            return 200, {"Link": f'<{self.hub.endpoint}/tree/{n}>; rel="next"'}, json.dumps(entries).encode()
        self.hub.change = page
        self.assertRefusal("has more than 100000 files: name a folder in it")

    def test_a_page_has_a_limit(self):
        self.lie(b"[" + b" " * (20 << 20) + b"]")
        self.assertRefusal("response of the hub too large: more than 8388608 bytes")

    def test_a_commit_that_is_none_is_refused(self):
        for body in (b"", b"{}", b'{"sha": 1}', b'{"sha": "main"}', b'{"sha": "../../../../../../../../../../../../../x"}'):
            self.hub.change = lambda path, *response, body=body: (
                (200, {}, body) if "/revision/" in path else response)
            self.assertEqual(self.measured("hf://org/model")[0], SOURCE)
            self.assertEqual([path for path in self.hub.paths("hub") if "/revision/" not in path], [])

    def test_redirects_that_lead_nowhere_are_refused(self):
        for location in ("http://", "ftp://host/", "http://[::", ""):
            self.hub.change = lambda path, *response, location=location: (
                (302, {"Location": location, "X-Linked-Etag": f'"{git_id(GOOD)}"'}, b"") if "/resolve/" in path
                else response)
            code, seconds, memory, said = self.measured("hf://org/model", "-o", "timeout=5")
            self.assertEqual(code, SOURCE)
            self.assertRegex(said, "m.safetensors: (header: )?(invalid redirect: .*|server returned status 302)\n\\Z")

    def test_redirects_have_an_end(self):
        for what in ("/revision/", "/resolve/"):
            self.hub.change = lambda path, *response, what=what: (
                (307, {"Location": path + "x"}, b"") if what in path else response)
            code, seconds, memory, said = self.measured("hf://org/model", "-o", "timeout=5")
            self.assertEqual(code, SOURCE)
            self.assertRegex(said, r"too many redirects: more than 10\n\Z")

    def test_ten_thousand_files_are_listed_soon(self):
        files = {f"run-{i // 100:03}/shard-{i:05}-of-10000.bin": b"" for i in range(10_000)}
        self.hub.add("org/large", files | {"model/m.safetensors": model(w=b"large")})
        start = time.monotonic()
        with self.mount("hf://org/large/model") as mount:
            seconds = time.monotonic() - start
            status = ckptfs.Path(f"/proc/{mount.daemon}/status").read_text()
            memory = int(status.partition("VmHWM:")[2].split()[0]) * 1024
            self.assertEqual(contents(mount), [("tensor", "w", b"large")])
        if not ckptfs.IS_SANITIZED:
            self.assertLess(seconds, 5)
            self.assertLess(memory, MEMORY)

if __name__ == "__main__":
    ckptfs.unittest.main()
