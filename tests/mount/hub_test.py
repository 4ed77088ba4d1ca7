"""Repositories of the hub are mounted like local directories; what the hub may do, and where the token is sent."""

import errno
import json
import os
import re
import sys
import time

import ckptfs
import view
from ckptfs import SAMPLES, SOURCE

sys.path.insert(0, str(ckptfs.TESTS / "servers"))
from hub import Hub

SHARDED = SAMPLES / "sharded" / "hf_safetensors"


def files_of(directory):
    return {str(path.relative_to(directory)): path.read_bytes()
            for path in directory.rglob("*") if path.is_file()}


def contents(mount):
    """All that is on a mount: (kind, dotted keys, bytes or value)."""
    return [(kind, ".".join(keys), ckptfs.read(what.path) if kind == "tensor" else what)
            for kind, keys, what in view.walk(mount.path) if kind != "table"]


def model(**tensors):
    """A file of safetensors."""
    entries, data = {}, b""
    for name, value in tensors.items():
        entries[name] = {"dtype": "U8", "shape": [len(value)], "data_offsets": [len(data), len(data) + len(value)]}
        data += value
    header = json.dumps(entries).encode()
    return len(header).to_bytes(8, "little") + header + data


class Case(ckptfs.Case):
    def setUp(self):
        self.hub = Hub()
        self.addCleanup(self.hub.__exit__)
        self.home = self.scratch()

    def env(self, **variables):
        """The environment without settings of the client, and with these variables."""
        names = ("CKPTFS_HTTP_TOKEN", "XDG_CACHE_HOME", "http_proxy", "https_proxy", "all_proxy", "ALL_PROXY")
        mine = {k: v for k, v in os.environ.items() if k not in names and not k.startswith("HF_")}
        return mine | {"HOME": str(self.home), "HF_ENDPOINT": self.hub.endpoint} | variables

    def mount(self, source, *options, quiet=True, **variables):
        return super().mount(source, *options, quiet=quiet, env=self.env(**variables))

    def mounted(self, source, *options, **variables):
        """The contents of a mount, which is unmounted."""
        with self.mount(source, *options, **variables) as mount:
            return contents(mount)

    def refused(self, source, *options, **variables):
        return self.ckptfs(*options, source, self.mountpoint(), env=self.env(**variables))


class Repositories(Case):
    def test_a_repository_is_what_its_files_are_in_a_directory(self):
        expected = self.mounted(SHARDED)
        for large in (1, 1 << 20):
            with self.subTest(large=large):
                self.hub.large = large
                self.hub.add("org/model", files_of(SHARDED))
                for source in ("hf://org/model", "hf://org/model/", "hf://models/org/model"):
                    self.assertEqual(self.mounted(source), expected)

    def test_a_file_finds_its_siblings(self):
        self.hub.add("org/model", {f"sub/a b/{name}": data for name, data in files_of(SHARDED).items()})
        for path in ("sub/a b/model.safetensors.index.json", "sub/a b", "sub/a b/"):
            names = {name for _, name, _ in self.mounted(f"hf://org/model/{path}")}
            self.assertIn("bn.weight", names, path)

    def test_a_revision_is_a_branch_a_tag_a_pull_request_or_a_commit(self):
        revisions = {"main": "", "v1.0": "@v1.0", "a/b": "@a%2Fb", "refs/pr/12": "@refs/pr/12",
                     "refs/convert/parquet": "@refs/convert/parquet"}
        for revision, suffix in revisions.items():
            data = revision.encode()
            commit = self.hub.add("org/model", {"sub/m.safetensors": model(w=data)}, revision)
            for source in (f"hf://org/model{suffix}/sub/m.safetensors", f"hf://org/model@{commit}/sub"):
                self.assertEqual(self.mounted(source), [("tensor", "w", data)], source)

    def test_other_kinds_and_old_names_are_repositories_too(self):
        for name, source in (("datasets/org/data", "hf://datasets/org/data"), ("spaces/org/s", "hf://spaces/org/s"),
                             ("gpt2", "hf://gpt2"), ("gpt2", "hf://gpt2@main/m.safetensors"), ("gpt2", "hf://gpt2/"),
                             ("datasets/old", "hf://datasets/old@main")):
            self.hub.add(name, {"m.safetensors": model(w=name.encode())})
            self.assertEqual(self.mounted(source), [("tensor", "w", name.encode())], source)

    def test_names_of_files_may_be_odd(self):
        for odd in ("a b", "a+b", "50%", "%20", "x?y#z", "ä", "日本", "@main", "&<>\"'", "..."):
            self.hub.add("org/model", {f"{odd}/{odd}.safetensors": model(w=odd.encode())})
            self.assertEqual(self.mounted(f"hf://org/model/{odd}/{odd}.safetensors"),
                             [("tensor", "w", odd.encode())], odd)

    def test_a_listing_has_several_pages(self):
        self.hub.page = 7
        files = {f"n{i:03}/f{j}.txt": b"" for i in range(10) for j in range(10)}
        self.hub.add("org/model", files | {"zz/m.safetensors": model(w=b"last")})
        self.assertEqual(self.mounted("hf://org/model/zz/"), [("tensor", "w", b"last")])
        self.assertEqual(self.mounted("hf://org/model/zz/m.safetensors"), [("tensor", "w", b"last")])
        self.hub.add("org/flat", {f"{i}.txt": b"" for i in range(100)} | {"z.safetensors": model(w=b"last")})
        self.assertEqual(self.mounted("hf://org/flat"), [("tensor", "w", b"last")])

    def test_a_repository_that_was_renamed_is_found(self):
        for large in (1, 1 << 20):
            self.hub.large = large
            self.hub.add("org/model", {"m.safetensors": model(w=b"moved")})
            self.hub.renamed["org/old"] = "org/model"
            self.hub.private, self.hub.tokens = {"org/model"}, {"t"}
            self.assertEqual(self.mounted("hf://org/old", HF_TOKEN="t"), [("tensor", "w", b"moved")])


class Versions(Case):
    def test_a_mount_stays_at_its_commit(self):
        self.hub.add("org/model", {"m.safetensors": model(w=bytes(1 << 20), x=b"old")})
        mount = self.mount("hf://org/model")
        self.hub.add("org/model", {"m.safetensors": model(w=bytes(1 << 20), x=b"new")})
        self.assertEqual(ckptfs.read(mount / "x.memmap"), b"old")
        self.assertEqual(self.mounted("hf://org/model")[1], ("tensor", "x", b"new"))

    def test_opening_costs_a_commit_a_listing_and_what_is_read(self):
        self.hub.large = 1
        self.hub.add("org/model", files_of(SHARDED) | {"other.txt": b"other", "more/m.safetensors": b""})
        self.mount("hf://org/model")
        paths = self.hub.paths("hub")
        self.assertRegex(paths[0], r"/revision/main\?")
        self.assertRegex(paths[1], r"/tree/[0-9a-f]{40}\?recursive=true\Z")
        self.assertEqual(sorted(path.rpartition("/")[2] for path in paths[2:]), sorted(files_of(SHARDED)))

    def test_a_commit_is_not_resolved(self):
        commit = self.hub.add("org/model", {"m.safetensors": model(w=b"1")})
        self.mount(f"hf://org/model@{commit}")
        self.assertEqual([path for path in self.hub.paths("hub") if "/revision/" in path], [])

    def test_a_link_that_has_expired_is_followed_again(self):
        self.hub.large, self.hub.lifetime = 1, 0.3
        data = os.urandom(4 << 20)
        self.hub.add("org/model", {"m.safetensors": model(w=data)})
        mount = self.mount("hf://org/model")
        time.sleep(0.5)
        self.assertEqual(ckptfs.read(mount / "w.memmap"), data)
        self.assertIn(403, [entry["status"] for entry in self.hub.log])

    def test_a_disk_cache_is_shared_by_revisions_and_repositories(self):
        self.hub.large = 1000
        data = os.urandom(1 << 20)
        files = {"m.safetensors": model(w=data)}
        self.hub.add("org/model", files | {"README.md": b"1"})
        self.hub.add("org/model", files | {"README.md": b"2"}, "v2")
        self.hub.add("org/copy", files)
        cache = ("-o", f"cache_dir={self.scratch()}")
        self.assertEqual(self.mounted("hf://org/model", *cache), [("tensor", "w", data)])
        self.assertTrue(self.hub.paths("network"))
        self.hub.log.clear()
        for source in ("hf://org/model@v2", "hf://org/copy"):
            self.assertEqual(self.mounted(source, *cache), [("tensor", "w", data)])
        self.assertEqual(self.hub.paths("network"), [])
        with Hub() as other:  # Which may lie about what it has.
            other.large = 1000
            other.add("org/model", files)
            self.assertEqual(self.mounted("hf://org/model", *cache, HF_ENDPOINT=other.endpoint),
                             [("tensor", "w", data)])
            self.assertTrue(other.paths("network"))

    def assertStale(self, change, large):
        """A mount whose hub changes its responses from now on does not read other bytes."""
        self.hub.large, self.hub.lifetime = large, 0.3
        self.hub.change = lambda path, *response: response
        self.hub.add("org/model", {"m.safetensors": model(w=bytes(64 << 20))})
        with self.mount("hf://org/model") as mount:
            time.sleep(0.3)
            self.hub.change = change
            self.assertErrno(errno.ESTALE, ckptfs.read, mount / "w.memmap", 32 << 20, 10)

    def test_a_file_that_differs_from_the_listing_is_stale(self):
        def with_headers(**changes):
            headers = {name.replace("_", "-"): value for name, value in changes.items()}
            return lambda path, status, old, body: (status, old | headers if "/resolve/" in path else old, body)
        large, small = 1, 1 << 30
        other = '"' + "0" * 40 + '"'
        self.assertStale(with_headers(ETag=other), small)
        self.assertStale(with_headers(ETag=""), small)
        self.assertStale(with_headers(X_Repo_Commit="0" * 40), small)
        self.assertStale(with_headers(X_Linked_Etag=other), large)
        self.assertStale(with_headers(X_Linked_Size="1"), large)
        self.assertStale(with_headers(X_Repo_Commit="0" * 40), large)
        self.assertStale(with_headers(X_Linked_Etag="", ETag=""), large)

    def test_a_weak_tag_of_a_proxy_is_the_same_tag(self):
        self.hub.change = lambda path, status, headers, body: (
            status, headers | ({"ETag": "W/" + headers["ETag"]} if "ETag" in headers else {}), body)
        self.hub.add("org/model", {"m.safetensors": model(w=b"weak")})
        self.assertEqual(self.mounted("hf://org/model"), [("tensor", "w", b"weak")])


class Tokens(Case):
    def setUp(self):
        super().setUp()
        self.hub.large = 1
        self.hub.tokens, self.hub.private = {"SECRET"}, {"org/model"}
        self.hub.add("org/model", {"m.safetensors": model(w=b"private")})

    def assertSent(self, *options, **variables):
        self.hub.log.clear()
        self.assertEqual(self.mounted("hf://org/model", *options, **variables), [("tensor", "w", b"private")])
        self.assertEqual({entry["token"] for entry in self.hub.log if entry["server"] == "hub"}, {"SECRET"})
        self.assertEqual({entry["token"] for entry in self.hub.log if entry["server"] == "network"}, {None})

    def write(self, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("SECRET\n")
        return str(path)

    def test_the_token_is_sent_to_the_hub_and_not_to_the_network(self):
        self.assertSent(HF_TOKEN="SECRET")
        self.assertSent("-o", f"token_file={self.write(self.scratch() / 'file')}", HF_TOKEN="other")

    def test_the_token_is_found_where_the_client_of_the_hub_finds_it(self):
        self.assertSent(HF_TOKEN_PATH=self.write(self.scratch() / "any"))
        self.assertSent(HF_HOME=str(ckptfs.Path(self.write(self.scratch() / "home" / "token")).parent))
        cache = self.scratch()
        self.write(cache / "huggingface" / "token")
        self.assertSent(XDG_CACHE_HOME=str(cache))
        self.write(self.home / ".cache" / "huggingface" / "token")
        self.assertSent()
        self.assertSent(HF_TOKEN=" ")

    def test_a_token_of_the_environment_can_be_switched_off(self):
        self.write(self.home / ".cache" / "huggingface" / "token")
        for variables in ({}, {"HF_TOKEN": "SECRET"}):
            self.hub.log.clear()
            done = self.refused("hf://org/model", HF_HUB_DISABLE_IMPLICIT_TOKEN="1", **variables)
            self.assertEqual(done.returncode, SOURCE)
            self.assertEqual({entry["token"] for entry in self.hub.log}, {None})

    def test_a_token_is_not_sent_in_the_clear(self):
        endpoint = self.hub.endpoint.replace("127.0.0.1", "0.0.0.0")
        done = self.refused("hf://org/model", HF_ENDPOINT=endpoint, HF_TOKEN="SECRET")
        self.assertEqual(done.returncode, SOURCE)
        self.assertIn("the token in HF_TOKEN is not sent over http\n", done.stderr)
        done = self.refused("hf://org/model", "-o", f"token_file={self.write(self.scratch() / 'file')}",
                            HF_ENDPOINT=endpoint)
        self.assertRefused(done, SOURCE, "hf://org/model: insecure HF_ENDPOINT: a token is sent over https or to this "
                                         "machine, not over http")
        self.assertEqual([entry for entry in self.hub.log if entry["token"]], [])

    def test_a_token_in_the_uri_is_not_shown(self):
        for uri in ("hf://hf_SECRET@org/model", "hf://user:SECRET@org/model", "hf://user:SECRET@huggingface.co/a/b"):
            done = self.refused(uri)
            self.assertEqual(done.returncode, SOURCE)
            self.assertNotIn("SECRET", done.stderr)
            self.assertIn("put the token into HF_TOKEN", done.stderr)

    def test_a_token_that_was_renewed_is_read_again(self):
        file = self.scratch() / "token"
        self.write(file)
        self.hub.lifetime = 0.05
        mount = self.mount("hf://org/model", "-o", f"token_file={file}")
        self.hub.tokens = {"NEW"}
        file.write_text("NEW")
        time.sleep(0.1)
        self.assertEqual(ckptfs.read(mount / "w.memmap"), b"private")


class Errors(Case):
    def setUp(self):
        super().setUp()
        self.hub.add("org/model", {"m.safetensors": model(w=b"1"), "sub/x.txt": b""})

    def assertError(self, source, sentence, *options, **variables):
        self.assertRefused(self.refused(source, *options, **variables), SOURCE, f"{source}: {sentence}")

    def test_what_is_missing_is_named(self):
        self.assertError("hf://org/none", "no such repository; if it is private, put a token into HF_TOKEN")
        self.hub.tokens = {"t"}
        self.assertError("hf://org/none", "no such repository, or no permission with the token in HF_TOKEN", HF_TOKEN="t")
        self.assertError("hf://org/model@v9", "no such revision 'v9'")
        self.assertError(f"hf://org/model@{'0' * 40}", f"no such revision '{'0' * 40}'")
        for path in ("none", "none/", "none/x", "sub/none", "m.safetensors/", "m.safetensors/x"):
            done = self.refused(f"hf://org/model/{path}")
            self.assertRefusedLike(done, SOURCE, re.escape(f"hf://org/model/{path}: no such ") + "(file or )?folder")

    def test_what_is_forbidden_is_explained(self):
        self.hub.gated, self.hub.tokens, self.hub.granted = {"org/model"}, {"t"}, {"g"}
        page = f"{self.hub.endpoint}/org/model"
        self.assertError("hf://org/model", f"access is restricted: accept the licence at {page}, and put a token into "
                                           "HF_TOKEN")
        self.assertError("hf://org/model", f"access is restricted: accept the licence at {page} for the account of the "
                                           "token in HF_TOKEN", HF_TOKEN="t")
        self.assertError("hf://org/model", "authentication failed with the token in HF_TOKEN", HF_TOKEN="bad")
        self.assertEqual(self.mounted("hf://org/model", HF_TOKEN="g"), [("tensor", "w", b"1")])

    def test_a_busy_hub_is_asked_again_when_it_says(self):
        self.hub.busy = 2
        start = time.monotonic()
        with self.mount("hf://org/model", quiet=False) as mount:
            self.assertEqual(contents(mount), [("tensor", "w", b"1")])
            self.assertIn("status 429; retrying", mount.messages)
        self.assertGreater(time.monotonic() - start, 2)
        self.hub.busy = 1000
        done = self.refused("hf://org/model", "-o", "timeout=1")
        self.assertEqual(done.returncode, SOURCE)
        self.assertRegex(done.stderr, "hf://org/model: .*status 429; gave up after 1 s\n")

    def test_a_hub_that_is_silent_is_given_up(self):
        self.hub.delay = 3
        start = time.monotonic()
        done = self.refused("hf://org/model", "-o", "timeout=1")
        self.assertEqual(done.returncode, SOURCE)
        self.assertRegex(done.stderr, r"ckptfs: hf://org/model: .*; gave up after 1 s\n\Z")
        self.assertLess(time.monotonic() - start, 3)

    def test_a_network_that_refuses_every_link_is_an_error(self):
        self.hub.large, self.hub.lifetime, self.hub.tokens = 1, -1, {"t"}
        self.assertError("hf://org/model/m.safetensors", "permission denied", HF_TOKEN="t")

    def test_a_hub_that_is_down_is_named(self):
        done = self.refused("hf://org/model", HF_ENDPOINT="http://127.0.0.1:1")
        self.assertRefusedLike(done, SOURCE, "hf://org/model: .*refused.*")

    def test_settings_and_uris_that_are_none_are_refused(self):
        for uri, sentence in (("hf://", "missing repository (expected hf://org/name[@revision][/path])"),
                              ("hf://datasets/", "missing repository (expected hf://org/name[@revision][/path])"),
                              ("hf://org/model@", "missing revision after '@'"),
                              ("hf://org/model@/x", "missing revision after '@'"),
                              ("hf://org/model@a%2F..%2Fb", "invalid revision 'a/../b'"),
                              ("hf://../model", "invalid repository name '..'"),
                              ("hf://org/a--b", "invalid repository name 'a--b'"),
                              ("hf://org/model//x", "invalid path '/x'"),
                              ("hf://org/model/a/../x", "invalid path 'a/../x'")):
            self.assertRefused(self.refused(uri), SOURCE, f"{uri}: {sentence}")
        for endpoint in ("ftp://host", "http://user:SECRET@host", "http://host/?SECRET"):
            done = self.refused("hf://org/model", HF_ENDPOINT=endpoint)
            self.assertRefusedLike(done, SOURCE, "hf://org/model: HF_ENDPOINT: .*URL.*")
            self.assertNotIn("SECRET", done.stderr)


if __name__ == "__main__":
    ckptfs.unittest.main()
