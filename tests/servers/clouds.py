"""Object stores on loopback, as far as they differ from S3: Google Cloud Storage and Azure Blob Storage.

Each checks how requests are authorised as its specification says, and fails those that are not.

    with Gcs() as gcs:                     for STORAGE_EMULATOR_HOST
        gcs.put("bucket", "key", b"...")
        gcs.private = {"bucket"}           needs one of gcs.tokens
        gcs.machine_token = "t"            what the metadata service returns (GCE_METADATA_HOST=gcs.host)
    with Azure("account", key) as azure:   for AZURE_STORAGE_BLOB_ENDPOINT
        azure.put("container", "path", b"...")
        azure.private = {"container"}      needs a signature with the key, or the query azure.signature
    server.url, server.host, server.log    requests: path, range, authorization, status
    server.page = 1000                     entries in a page
"""
import base64
import hashlib
import hmac
import http.server
import json
import re
import threading
import urllib.parse
from xml.sax.saxutils import escape


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        store = self.server.store
        entry = {"path": self.path, "range": self.headers.get("Range"),
                 "authorization": self.headers.get("Authorization")}
        store.log.append(entry)
        path, _, query = self.path.partition("?")
        status, headers, body = store.respond(self, path, dict(urllib.parse.parse_qsl(query, keep_blank_values=True)))
        entry["status"] = status
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def handle(self):
        try:
            super().handle()
        except ConnectionError:
            pass  # A client that hangs up.


class Store:
    def __init__(self):
        self.objects, self.private, self.log, self.page = {}, set(), [], 1000
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.store = self
        self.host = f"127.0.0.1:{self.server.server_port}"
        self.url = f"http://{self.host}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def put(self, container, key, content):
        self.objects[container, key] = content

    def read(self, request, container, key):
        """The object, or the range of it that was requested."""
        if (container, key) not in self.objects:
            return self.refuse(404, self.missing)
        content = self.objects[container, key]
        headers = {"ETag": self.tag(content), "Last-Modified": "Sun, 06 Nov 1994 08:49:37 GMT"}
        if request.headers.get("If-Match", headers["ETag"]) != headers["ETag"]:
            return self.refuse(412, "PreconditionFailed")
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("Range", ""))
        if not asked:
            return 200, headers, content
        first, last = int(asked[1]), min(int(asked[2] or len(content)), len(content) - 1)
        if first > last:
            return 416, {"Content-Range": f"bytes */{len(content)}"}, b""
        headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
        return 206, headers, content[first:last + 1]

    def tag(self, content):
        return f'"{hashlib.md5(content).hexdigest()}"'

    def entries(self, container, prefix, start):
        """The keys and prefixes of a page, and the start of the next one."""
        names = set()
        for owner, key in self.objects:
            if owner == container and key.startswith(prefix):
                end = key.find("/", len(prefix))
                names.add(key if end < 0 else key[:end + 1])
        names = [name for name in sorted(names) if name >= start]
        page, rest = names[:self.page], names[self.page:]
        keys = [name for name in page if (container, name) in self.objects]
        return keys, [name for name in page if name not in keys], rest[0] if rest else ""

    def refuse(self, status, code):
        return status, {}, f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>No.</Message></Error>".encode()


class Gcs(Store):
    missing = "NoSuchKey"

    def __init__(self):
        super().__init__()
        self.tokens, self.machine_token, self.life = set(), None, 3600

    def respond(self, request, path, query):
        if path.startswith("/computeMetadata/"):
            if request.headers.get("Metadata-Flavor") != "Google" or not self.machine_token:
                return 404, {}, b""
            token = {"access_token": self.machine_token, "expires_in": self.life, "token_type": "Bearer"}
            return 200, {"Metadata-Flavor": "Google"}, json.dumps(token).encode()
        bucket, _, key = path[1:].partition("/")
        bucket, key = urllib.parse.unquote(bucket), urllib.parse.unquote(key)
        given = request.headers.get("Authorization")
        if given and given.removeprefix("Bearer ") not in self.tokens:
            return self.refuse(401, "AuthenticationRequired")
        if bucket in self.private and not given:
            return self.refuse(403, "AccessDenied")
        if all(owner != bucket for owner, _ in self.objects):
            return self.refuse(404, "NoSuchBucket")
        if key:
            return self.read(request, bucket, key)
        if query.get("list-type") != "2" or query.get("delimiter") != "/":
            return self.refuse(400, "InvalidArgument")
        keys, prefixes, rest = self.entries(bucket, query["prefix"], query.get("continuation-token", ""))
        quote = urllib.parse.quote
        xml = "".join(
            f"<Contents><Key>{quote(key)}</Key><Generation>1</Generation><ETag>{self.tag(content)}</ETag>"
            f"<Size>{len(content)}</Size><LastModified>2026-01-02T03:04:05.678Z</LastModified></Contents>"
            for key in keys for content in (self.objects[bucket, key],))
        xml += "".join(f"<CommonPrefixes><Prefix>{quote(prefix)}</Prefix></CommonPrefixes>" for prefix in prefixes)
        xml += f"<IsTruncated>true</IsTruncated><NextContinuationToken>{escape(rest)}</NextContinuationToken>" if rest else ""
        return 200, {}, (f"<?xml version='1.0'?><ListBucketResult><EncodingType>url</EncodingType>{xml}"
                         "</ListBucketResult>").encode()


class Azure(Store):
    """Paths begin with the account, as those of the emulator do."""

    missing = "BlobNotFound"

    def __init__(self, account, key):
        super().__init__()
        self.account, self.key, self.signature = account, key, None
        self.url += f"/{account}"

    def is_signed(self, request, path, query):
        """Whether the request is signed according to the specification."""
        headers = {name.lower(): value for name, value in request.headers.items()}
        signed = ["content-encoding", "content-language", "content-length", "content-md5", "content-type", "date",
                  "if-modified-since", "if-match", "if-none-match", "if-unmodified-since", "range"]
        lines = ["GET"] + [headers.get(name, "") for name in signed]
        lines += [f"{name}:{value}" for name, value in sorted(headers.items()) if name.startswith("x-ms-")]
        lines += [f"/{self.account}{path}"] + [f"{name}:{value}" for name, value in sorted(query.items())]
        code = hmac.digest(base64.b64decode(self.key), "\n".join(lines).encode(), "sha256")
        return headers.get("authorization") == f"SharedKey {self.account}:{base64.b64encode(code).decode()}"

    def respond(self, request, path, query):
        if not request.headers.get("x-ms-version") or not request.headers.get("x-ms-date"):
            return self.refuse(400, "MissingRequiredHeader")
        if not path.startswith(f"/{self.account}/"):
            return self.refuse(400, "InvalidUri")
        container, _, key = path.removeprefix(f"/{self.account}/").partition("/")
        container, key = urllib.parse.unquote(container), urllib.parse.unquote(key)
        has_signature = self.signature and self.signature in request.path
        if "Authorization" in request.headers and not self.is_signed(request, path, query):
            return self.refuse(403, "AuthenticationFailed")
        if container in self.private and "Authorization" not in request.headers and not has_signature:
            return self.refuse(409, "PublicAccessNotPermitted")
        if all(owner != container for owner, _ in self.objects):
            return self.refuse(404, "ContainerNotFound")
        if key:
            return self.read(request, container, key)
        if query.get("restype") != "container" or query.get("comp") != "list":
            return self.refuse(400, "InvalidQueryParameterValue")
        keys, prefixes, rest = self.entries(container, query["prefix"], query.get("marker", ""))
        xml = "".join(
            f"<Blob><Name>{escape(key)}</Name><Properties><Last-Modified>Sun, 06 Nov 1994 08:49:37 GMT</Last-Modified>"
            f"<Etag>{self.tag(content)[1:-1]}</Etag><Content-Length>{len(content)}</Content-Length></Properties></Blob>"
            for key in keys for content in (self.objects[container, key],))
        xml += "".join(f"<BlobPrefix><Name>{escape(prefix)}</Name></BlobPrefix>" for prefix in prefixes)
        return 200, {}, (f"<?xml version='1.0'?><EnumerationResults><Blobs>{xml}</Blobs>"
                         f"<NextMarker>{escape(rest)}</NextMarker></EnumerationResults>").encode()
