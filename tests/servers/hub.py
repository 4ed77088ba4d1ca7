"""A model hub on loopback, and the content network that its large files are on, which is another server.

The client huggingface_hub works with it:  HF_ENDPOINT=... python -c 'huggingface_hub.snapshot_download("org/model")'

    with Hub() as hub:
        commit = hub.add("org/model", {"config.json": b"{}", "sub/m.safetensors": ...})
        hub.add("org/model", {...}, revision="refs/pr/1")    another revision of it
        hub.add("datasets/org/data", {...})                  a dataset
        hub.endpoint              "http://127.0.0.1:PORT"
        hub.large = 1000          files of so many bytes are on the network
        hub.page = 10             entries in a page of a listing
        hub.lifetime = 0.5        seconds until a link to the network expires
        hub.tokens = {"t"}        tokens that are valid; others are refused
        hub.private = {"org/model"}, hub.gated = {...}       need a token; `hub.granted` are the tokens that
                                                             have access to gated ones
        hub.renamed = {"org/old": "org/model"}
        hub.busy = 2, hub.wait = 1   so many requests are answered 429 with this Retry-After
        hub.delay = 0.1           seconds before each response
        hub.change = function     called with (path, status, headers, body) of each response of the hub, and
                                  returns them: for a hub that lies
        hub.blobs[sha256(content)] = ...   other bytes that the network sends
        hub.log                   for each request: server ("hub", "network"), path, range, token, status

    hub.py HOST MODEL DIRECTORY   a hub at that address, whose only model has the files of the directory; prints
                                  its endpoint, and ends at the end of its input
"""
import functools
import hashlib
import http.server
import json
import re
import sys
import threading
import time
import urllib.parse
from pathlib import Path

SHOWN = re.compile(r"/api/(models|datasets|spaces)/(?:((?:[^/]+/)?[^/]+?)/(revision|tree)/([^/]+)(?:/([^/]+))?|(.+))")
FILE = re.compile(r"/((?:datasets/|spaces/)?(?:[^/]+/)?[^/]+)/resolve/([^/]+)/(.+)")
unquote = urllib.parse.unquote


@functools.cache  # Content is hashed once and not for each range.
def git_id(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@functools.cache
def sha256(content):
    return hashlib.sha256(content).hexdigest()


@functools.cache
def md5(content):
    return hashlib.md5(content).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        hub = self.server.hub
        self.entry = {"server": self.server.kind, "path": self.path, "range": self.headers.get("Range"),
                      "token": self.headers.get("Authorization", "").removeprefix("Bearer ") or None, "status": 0}
        hub.log.append(self.entry)
        time.sleep(hub.delay)
        if self.server.kind == "hub":
            self.answer(*hub.change(self.path, *self.ask_hub()))
        else:
            self.answer(*self.ask_network())

    def answer(self, status, headers, body):
        self.entry["status"] = status
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def part(self, content, etag, headers):
        """The response with the range of `content` that was requested."""
        headers = headers | {"ETag": f'"{etag}"', "Accept-Ranges": "bytes"}
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if not asked:
            return 200, headers, content
        first, last = int(asked[1]), min(int(asked[2] or len(content)), len(content) - 1)
        if first > last:
            return 416, {"Content-Range": f"bytes */{len(content)}"}, b""
        headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
        return 206, headers, memoryview(content)[first:last + 1]

    def ask_network(self):
        hub, (path, _, query) = self.server.hub, self.path.partition("?")
        if self.entry["token"]:  # As the real one: a link is signed, and a token is one credential too many.
            return 400, {}, b"Only one auth mechanism allowed"
        if time.monotonic() > float(query.removeprefix("Expires=")):
            return 403, {}, b"Request has expired"
        content = hub.blobs[path[1:]]
        return self.part(content, "network-" + md5(content), {})

    def refuse(self, status, code, message):
        return status, {"X-Error-Code": code, "X-Error-Message": message}, json.dumps({"error": message}).encode()

    def ask_hub(self):
        hub, (path, _, query) = self.server.hub, self.path.partition("?")
        if hub.busy > 0:
            hub.busy -= 1
            return 429, {"Retry-After": str(hub.wait)}, b"{}"
        if shown := SHOWN.fullmatch(path):
            kind, name, what, revision, below = shown[1], shown[2] or shown[6], shown[3], shown[4] or "main", shown[5]
            name = name if kind == "models" else f"{kind}/{name}"
        elif file := FILE.fullmatch(path):
            name, revision, what, below = file[1], file[2], "resolve", file[3]
        else:
            return self.refuse(404, "", "no such page")
        if name in hub.renamed:
            return 307, {"Location": self.path.replace(name, hub.renamed[name], 1)}, b""
        refused = self.check_access(name)
        if refused:
            return refused
        commit = hub.revisions[name].get(unquote(revision), unquote(revision))
        files = hub.commits.get((name, commit))
        if files is None:
            return self.refuse(404, "RevisionNotFound", "Invalid rev id")
        if what == "resolve":
            return self.resolve(files, commit, unquote(below))
        if what == "tree":
            return self.tree(files, unquote(below or ""), path, dict(urllib.parse.parse_qsl(query)))
        siblings = [] if "expand" in query else [{"rfilename": path} for path in files]
        return 200, {}, json.dumps({"id": name, "sha": commit, "siblings": siblings}).encode()

    def check_access(self, name):
        hub, token = self.server.hub, self.entry["token"]
        if token and token not in hub.tokens | hub.granted:
            return 401, {}, b'{"error": "Invalid credentials in Authorization header"}'
        if name not in hub.revisions or (name in hub.private and not token):
            return self.refuse(401 if not token else 404, "RepoNotFound", "Repository not found")
        if name in hub.gated and token not in hub.granted:
            return self.refuse(403 if token else 401, "GatedRepo", f"Access to model {name} is restricted.")
        return None

    def tree(self, files, below, path, query):
        hub, prefix = self.server.hub, below + "/" if below else ""
        entries, folders = [], set()
        for name in sorted(files):
            if not name.startswith(prefix):
                continue
            for end in (at.start() for at in re.finditer("/", name)):
                if end > len(prefix) and name[:end] not in folders:
                    folders.add(name[:end])
                    entries.append({"type": "directory", "oid": git_id(name[:end].encode()), "size": 0,
                                    "path": name[:end]})
            entries.append(self.describe(name, files[name]))
        if query.get("recursive", "").lower() != "true":
            entries = [entry for entry in entries if "/" not in entry["path"][len(prefix):]]
        if below and not entries:
            return self.refuse(404, "EntryNotFound", f"{below} does not exist")
        start = int(query.get("cursor", 0))
        headers = {}
        if start + hub.page < len(entries):
            query["cursor"] = str(start + hub.page)
            headers["Link"] = f'<{hub.endpoint}{path}?{urllib.parse.urlencode(query)}>; rel="next"'
        return 200, headers, json.dumps(entries[start:start + hub.page]).encode()

    def describe(self, name, content):
        entry = {"type": "file", "oid": git_id(content), "size": len(content), "path": name}
        if len(content) >= self.server.hub.large:
            entry["lfs"] = {"oid": sha256(content), "size": len(content), "pointerSize": 134}
        return entry

    def resolve(self, files, commit, name):
        hub, headers = self.server.hub, {"X-Repo-Commit": commit}
        if name not in files:
            return self.refuse(404, "EntryNotFound", "Entry not found")
        content = files[name]
        if len(content) < hub.large:
            return self.part(content, git_id(content), headers)
        key = sha256(content)
        hub.blobs.setdefault(key, content)
        location = f"{hub.network}/{key}?Expires={time.monotonic() + hub.lifetime}"
        return 302, headers | {"Location": location, "X-Linked-Size": str(len(content)), "X-Linked-Etag": f'"{key}"',
                               "ETag": f'"{key}"', "Accept-Ranges": "bytes"}, b""


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, hub, kind, host):
        super().__init__((host, 0), Handler)
        self.hub, self.kind, self.url = hub, kind, f"http://{host}:{self.server_port}"
        self.thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def handle_error(self, *_):
        pass  # A client that hangs up.


class Hub:
    def __init__(self, host="127.0.0.1"):
        self.revisions, self.commits, self.blobs, self.log = {}, {}, {}, []
        self.large, self.page, self.lifetime, self.delay = 10 << 20, 1000, 3600, 0
        self.tokens, self.granted, self.private, self.gated, self.renamed = set(), set(), set(), set(), {}
        self.busy, self.wait = 0, 1
        self.change = lambda path, *response: response
        self.servers = [Server(self, kind, host) for kind in ("hub", "network")]
        self.endpoint, self.network = (server.url for server in self.servers)

    def add(self, name, files, revision="main"):
        """Adds a commit with these files, which `revision` is from now on. Returns its id."""
        facts = repr(sorted((path, sha256(content)) for path, content in files.items()))
        commit = hashlib.sha1(facts.encode()).hexdigest()
        self.commits[name, commit] = files
        self.revisions.setdefault(name, {})[revision] = commit
        return commit

    def paths(self, server):
        return [entry["path"] for entry in self.log if entry["server"] == server]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for server in self.servers:
            server.shutdown()
            server.server_close()
            server.thread.join()


if __name__ == "__main__":
    host, model, directory = sys.argv[1:]
    with Hub(host) as hub:
        hub.add(model, {path.name: path.read_bytes() for path in Path(directory).iterdir()})
        print(hub.endpoint, flush=True)
        sys.stdin.read()
