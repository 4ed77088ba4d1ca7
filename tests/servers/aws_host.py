"""S3 as AWS runs it, as far as other servers differ from it: regions, hosts of buckets, clocks, tokens that expire.

It serves one object, and does not look at signatures (a real gateway does), but at what they are made with. It can be
asked directly, as a custom endpoint, or as a proxy: then the host in the URL is that of AWS and tells the region.

    with AwsHost(content, region="eu-central-1") as aws:
        aws.endpoint                the server itself; also what to use as http_proxy
        aws.ahead = 3600            its clock, in seconds before ours
        aws.drift = 3600            by how much it goes further with each request
        aws.expired = {"AKIDOLD"}   access keys whose tokens have expired
        aws.redirect = "http://..." answer everything with 307 to this place
        aws.is_deleted = True       the newest version says that there is none
        aws.tells_region = False    errors have no region in them
        aws.log                     for each request: status, url, host, region, access key, headers
"""
import contextlib
import email.utils
import hashlib
import http.server
import re
import threading
import time
from datetime import datetime, timezone

SCOPE = re.compile(r"AWS4-HMAC-SHA256 Credential=(.*)/(\d{8})/([^/]*)/s3/aws4_request,SignedHeaders=([^,]*),")


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def date_time_string(self, timestamp=None):
        return email.utils.formatdate((timestamp or time.time()) + self.server.aws.ahead, usegmt=True)

    def do_GET(self):
        aws = self.server.aws
        aws.ahead += aws.drift
        found = SCOPE.match(self.headers.get("Authorization", ""))
        self.key, region, names = (found[1], found[3], found[4].split(";")) if found else ("", "", [])
        host = self.headers["Host"]
        if ".amazonaws.com" in host:
            region_of_host = host.removesuffix(".amazonaws.com").rpartition(".")[2]
        else:
            region_of_host = aws.region
        aws.log.append(entry := {"url": self.path, "host": host, "region": region, "key": self.key, "signed": names,
                                 "headers": {k.lower(): v for k, v in self.headers.items()}})
        self.entry = entry
        with contextlib.suppress(ConnectionError):  # a client may hang up as soon as it sees an error's status
            self.answer(aws, region, region_of_host)

    def send_response(self, code, message=None):
        self.entry["status"] = code  # before the client can know it
        super().send_response(code, message)

    def answer(self, aws, region, region_of_host):
        if aws.redirect:
            return self.refuse(307, "TemporaryRedirect", Location=aws.redirect)
        if region_of_host != aws.region:
            return self.refuse(301, "PermanentRedirect")
        if region and region != aws.region:
            return self.refuse(400, "AuthorizationHeaderMalformed")
        if self.key:
            signed = datetime.strptime(self.headers["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc)
            if abs(signed.timestamp() - time.time() - aws.ahead) > 900:
                return self.refuse(403, "RequestTimeTooSkewed")
        if self.key in aws.expired:
            return self.refuse(400, "ExpiredToken")
        if aws.is_deleted:
            return self.refuse(404, "NoSuchKey", **{"x-amz-delete-marker": "true"})
        first, last = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
        body = aws.content[first:last + 1]
        self.send_response(206)
        self.send_header("ETag", f'"{hashlib.md5(aws.content).hexdigest()}"')
        self.send_header("Content-Range", f"bytes {first}-{first + len(body) - 1}/{len(aws.content)}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def refuse(self, status, code, **headers):
        aws = self.server.aws
        region = f"<Region>{aws.region}</Region>" if aws.tells_region and status == 400 else ""
        body = (f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>As AWS says it.</Message>'
                f"{region}<RequestId>0</RequestId></Error>").encode()
        self.send_response(status)
        if aws.tells_region and status == 301:
            self.send_header("x-amz-bucket-region", aws.region)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class AwsHost:
    def __init__(self, content, region="us-east-1"):
        self.content, self.region = content, region
        self.ahead, self.drift, self.expired, self.redirect, self.log = 0, 0, set(), None, []
        self.is_deleted, self.tells_region = False, True
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.aws = self
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
