"""Servers that mean no good: what they answer is held to what was asked, and everything that they can
prolong has an end. And what goes over the network: who is told a secret, and who is not."""

import errno
import json
import os
import struct
import subprocess
import sys
import threading
import time
import types

import ckptfs
import view
from ckptfs import CKPTFS, LIMITS, SOURCE

sys.path.insert(0, str(ckptfs.TESTS / "servers"))
from fault_server import FaultServer
from liars import RedisLiar, WebLiar, bulk, file_response, response

SECRETS = ("NETRC", "CKPTFS_HTTP_TOKEN", "HF_TOKEN", "http_proxy", "https_proxy", "all_proxy", "ALL_PROXY",
           "no_proxy", "NO_PROXY", "REDISCLI_AUTH", "CKPTFS_REDIS_PASSWORD", "CKPTFS_REDIS_USER")
HUGE = (1 << 63) - 1

# Runs a command; prints its exit status, CPU seconds and peak of memory in KiB.
MEASURE = """
import os, sys
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)
_, status, usage = os.wait4(pid, 0)
print(os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime, usage.ru_maxrss)
"""


def environment(**variables):
    """Without what could authorise, and with these variables."""
    mine = {k: v for k, v in os.environ.items()
            if k not in SECRETS and not k.startswith("AWS_") and k != "MALLOC_PERTURB_"}
    return mine | {"HOME": "/nonexistent", "AWS_EC2_METADATA_DISABLED": "true"} | variables


def model(**tensors):
    """A file of safetensors."""
    entries, data = {}, b""
    for name, value in (tensors or {"w": b"1234"}).items():
        entries[name] = {"dtype": "U8", "shape": [len(value)], "data_offsets": [len(data), len(data) + len(value)]}
        data += value
    header = json.dumps(entries).encode()
    return struct.pack("<Q", len(header)) + header + data


class Case(ckptfs.Case):
    def start(self, server):
        self.addCleanup(server.__exit__)
        return server.__enter__()

    def refused(self, source, *options, memory=ckptfs.MEMORY, cpu=5, timeout=60, **variables):
        """Runs ckptfs, which must end with an error, within limits of memory and CPU time; returns the
        exit code and what it said."""
        done = ckptfs.run(sys.executable, "-I", "-S", "-c", MEASURE, CKPTFS, *options, source,
                          self.mountpoint(), env=environment(**variables), timeout=timeout)
        code, seconds, kilobytes = map(float, done.stdout.split())
        self.assertNotEqual(code, 0)
        if not ckptfs.IS_SANITIZED:
            self.assertLess(seconds, cpu)
            self.assertLess(kilobytes * 1024, memory)
        return int(code), done.stderr


class Redis(Case):
    def liar(self, **replies):
        """A server that answers STRLEN and GETRANGE about keys that end so, and knows no others."""
        def answer(words):
            length, value = next((reply for end, reply in replies.items() if words[1].endswith(end.encode())),
                                 (0, bulk(b"")))
            return b":%d\r\n" % length if words[0] == b"STRLEN" else value
        return self.start(RedisLiar(answer))

    def test_a_header_that_is_longer_than_its_length_is_refused(self):
        server = self.liar(**{"header:0": (100, bulk(bytes(200)))})
        code, said = self.refused(server.uri("m"))
        self.assertEqual((code, said), (
            SOURCE, f"ckptfs: {server.uri('m')}: key 'm:header:0': inconsistent lengths: value of "
                    "100 bytes (found 200, expected 100)\n"))

    def test_lengths_that_do_not_agree_are_refused(self):
        for length, size in ((100, 50), (0, 10), (HUGE, 10), (1 << 20, 100), (5 << 20, 0)):
            for key in ("header:0", "m"):
                with self.subTest(key=key, length=length, size=size):
                    server = self.liar(**{key: (length, bulk(bytes(size)))})
                    code, said = self.refused(server.uri("m"))
                    self.assertEqual(code, SOURCE)
                    self.assertRegex(said, r"\A.* inconsistent lengths: value of \d+ bytes \(found "
                                           r"\d+, expected \d+\)\n\Z")

    def test_replies_that_are_none_are_refused(self):
        for length, value in ((-1, bulk(b"")), (10, b"$9223372036854775807\r\n"), (10, b"$-5\r\n"), (10, b"*1\r\n"),
                              (10, b"+" + bytes(9000)), (10, b":10\r\n"), (10, b"$10\r\n0123456789xx")):
            with self.subTest(length=length, value=value[:30]):
                code, said = self.refused(self.liar(m=(length, value)).uri("m"))
                self.assertEqual((code, said.count("\n")), (SOURCE, 1), said)

    def test_replies_that_are_none_fail_a_read_after_a_few_attempts(self):
        body = model(first=bytes(1 << 19), w=bytes(1 << 18), last=bytes(1 << 19))
        for reply in b":10\r\n", b"*1\r\n":
            with self.subTest(reply):
                mounted = threading.Event()

                def answer(words):
                    value = body if words[1] == b"m" else b""
                    if words[0] == b"STRLEN":
                        return b":%d\r\n" % len(value)
                    return reply if mounted.is_set() else bulk(value[int(words[2]):int(words[3]) + 1])
                server = self.start(RedisLiar(answer))
                mount = self.mount(server.uri("m"), "-o", "timeout=300", env=environment(), quiet=False)
                mounted.set()
                begin = time.monotonic()
                self.assertErrno(errno.EIO, ckptfs.read, mount / "w.memmap")
                self.assertLess(time.monotonic() - begin, 60)

    def test_a_value_of_any_length_is_bounded(self):
        server = self.liar(m=(HUGE, bulk(model()[:50].ljust(64 << 10, b" "))))
        self.refused(server.uri("m"), "-o", "timeout=1")

    def test_a_table_of_keys_that_end_nowhere_is_refused(self):
        name = b"w"
        index = struct.pack("<H1sBB1sBIQQQ", 1, name, 0, 1, b"f", 1, 4, (1 << 64) - 100, (1 << 64) - 50, 40)
        header = b"|TZR|" + struct.pack("<IQ40xQQ", 1, 0, 1, len(index)) + index
        server = self.liar(**{"header:0": (len(header), bulk(header)), "": (40, bulk(bytes(40)))})
        code, said = self.refused(server.uri("m"), "-o", "timeout=1")
        self.assertNotEqual(code, 1, said)

    def redirected(self, word, address, **options):
        """What comes of a server that names ever other ones; `address` is called with a number."""
        asked = []

        def answer(words):
            if words[0] in (b"ASKING", b"AUTH"):
                return b"+OK\r\n"
            asked.append(words)
            return f"-{word} 0 {address(len(asked))}:{server.port}\r\n".encode()
        server = self.start(RedisLiar(answer, host="0.0.0.0"))
        return server, self.refused(server.uri("m"), "-o", "timeout=1", **options)

    def test_redirects_that_never_end_are_given_up(self):
        for word in ("MOVED", "ASK"):
            with self.subTest(word):
                server, (code, said) = self.redirected(word, lambda i: f"127.1.{i // 250}.{1 + i % 250}")
                self.assertEqual((code, said.count("gave up after 1 s") or said.count("more than 1000 servers")),
                                 (SOURCE, 1), said)
                self.assertLess(server.connections, 1200)

    def test_a_password_for_this_machine_stays_on_it(self):
        told = []

        def other(words):
            told.append(words)
            return b"+OK\r\n"
        far = self.start(RedisLiar(other, host="0.0.0.0"))
        for word in (b"MOVED", b"ASK"):
            near = self.start(RedisLiar(
                lambda words: b"+OK\r\n" if words[0] == b"AUTH" else b"-%s 0 0.0.0.0:%d\r\n" % (word, far.port)))
            code, said = self.refused(near.uri("m"), CKPTFS_REDIS_PASSWORD="SECRET")
            self.assertEqual((code, said), (
                SOURCE, f"ckptfs: {near.uri('m')}: insecure redirect to 0.0.0.0:{far.port}: the "
                        "password for a "
                        "server on this machine is not sent to another machine without TLS (rediss://)\n"))
        self.assertEqual(told, [])


class Web(Case):
    def test_an_endless_header_line_fails(self):
        server = self.start(WebLiar(lambda request: b"HTTP/1.1 206 X\r\nX-Long: " + b"x" * 200_000))
        code, said = self.refused(server.url("/m"))
        self.assertEqual(code, SOURCE)
        self.assertEqual(said.splitlines()[-1],
                         f"ckptfs: {server.url('/m')}: response headers too large: more than 65536 "
                         "bytes; gave up after 5 attempts")

    def test_very_many_headers_fail(self):
        server = self.start(WebLiar(lambda request: b"HTTP/1.1 206 X\r\n" + b"A: b\r\n" * 5000))
        code, said = self.refused(server.url("/m"))
        self.assertIn("too many response headers: more than 200; gave up after 5 attempts\n", said)
        self.assertEqual(code, SOURCE)

    def test_invalid_responses_fail_soon(self):
        part = file_response(types.SimpleNamespace(headers={"range": "bytes=0-9"}), bytes(100))
        unit = part.replace(b": bytes 0-", b": items 0-")
        for answer, sentence in (
                (part.replace(b"Content-Range: ", b"X: "), "partial response without a content range"),
                (part.replace(b"Content-Range: ", b"Content-Type: multipart/byteranges; boundary="),
                 "multipart response to a request for one range"),
                (unit, "unexpected content range (found 'items 0-9/100', expected bytes 0 to 65535)"),
                (part.replace(b"\r\nETag", b"\r\nContent-Length: 5\r\nETag"),
                 "conflicting headers content-length: '10' and '5'"),
                (part.replace(b"Content-Length: 10", b"Transfer-Encoding: chunked").replace(
                    bytes(10), b"x"), "bytes 0 to 99: invalid response: malformed chunk after 0 bytes"),
                (b"a web page", "invalid response: Received HTTP/0.9 when not allowed")):
            with self.subTest(sentence):
                server = self.start(WebLiar(lambda request: answer))
                begin = time.monotonic()
                code, said = self.refused(server.url("/m"))
                self.assertLess(time.monotonic() - begin, 20)
                self.assertEqual(code, SOURCE)
                self.assertEqual(said.splitlines()[-1],
                                 f"ckptfs: {server.url('/m')}: {sentence}; gave up after 5 attempts")
                self.assertIn(len(server.requests), (5, 6))  # The first may have opened the file.

    def test_headers_that_trickle_are_given_up(self):
        def trickle(_):
            yield b"HTTP/1.1 206 X\r\n"
            while True:
                time.sleep(0.05)
                yield b"X"
        server = self.start(WebLiar(trickle))
        code, said = self.refused(server.url("/m"), "-o", "timeout=1")
        self.assertEqual(code, SOURCE)
        self.assertIn("gave up after 1 s\n", said)

    def test_a_time_to_wait_without_end_is_cut(self):
        server = self.start(WebLiar(lambda request: response(503, Retry_After="99999999999999999")))
        self.assertEqual(self.refused(server.url("/m"), "-o", "timeout=1")[0], SOURCE)

    def test_a_tag_of_any_length_is_no_tag(self):
        body = model()
        server = self.start(WebLiar(lambda request: file_response(request, body).replace(
            b'ETag: "1"', b'ETag: "' + b"x" * 60_000 + b'"')))
        mount = self.mount(server.url("/m"), quiet=False, env=environment())
        self.assertIn("response without ETag and Last-Modified", mount.messages)
        self.assertEqual(ckptfs.read(mount / "w.memmap"), b"1234")

    def test_a_redirect_to_an_endless_url_fails(self):
        server = self.start(WebLiar(lambda request: response(302, Location="/" + "x" * 20_000)))
        code, said = self.refused(server.url("/m"))
        self.assertEqual((code, said), (
            SOURCE, f"ckptfs: {server.url('/m')}: invalid redirect: the URL has more than 8192 bytes\n"))

    def test_a_download_without_end_leaves_as_much_as_it_takes(self):
        scratch = self.scratch()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", scratch], capture_output=True)
        if mounted.returncode != 0:
            self.skip_avoidable("cannot mount a tmpfs")
        self.addCleanup(subprocess.run, ["umount", "-l", scratch])

        def endless(_):
            yield b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n"
            while True:
                yield b"10000\r\n" + bytes(65536) + b"\r\n"
        server = self.start(WebLiar(endless))
        code, said = self.refused(server.url("/m"), "-o", "download", TMPDIR=str(scratch))
        self.assertEqual(code, SOURCE)
        taken = int(said.rpartition(": ")[2].removesuffix(" bytes so far\n"))
        self.assertRegex(said, "takes more than half of the space in .TMPDIR or /var/tmp: ")
        self.assertTrue((7 << 20) < taken <= (8 << 20), taken)

    def test_the_user_agent(self):
        body = model()
        server = self.start(WebLiar(lambda request: file_response(request, body)))
        self.mount(server.url("/m"), env=environment())
        version = self.ckptfs("--version").stdout.split()[1]
        self.assertEqual({request.headers["user-agent"] for request in server.requests}, {f"ckptfs/{version}"})

    def test_a_blank_in_a_url_is_encoded(self):
        body = model()
        server = self.start(WebLiar(lambda request: file_response(request, body)))
        self.mount(server.url("/my model"), env=environment())
        self.assertEqual({request.target for request in server.requests}, {"/my%20model"})


class S3(Case):
    def listing(self, request, delay=0):
        """One page of a listing that has always one more."""
        time.sleep(delay)
        return response(200, b"<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>%d"
                             b"</NextContinuationToken></ListBucketResult>" % time.monotonic_ns())

    def test_opening_ends_however_many_requests_it_takes(self):
        server = self.start(WebLiar(lambda request: self.listing(request, 0.02)))
        code, said = self.refused("s3://b/d/", "-o", f"no_sign,timeout=1,endpoint={server.url('')}")
        self.assertEqual((code, said), (
            SOURCE, "ckptfs: s3://b/d/: opening timed out after 2 s, twice the timeout\n"))

    def test_a_listing_without_end_is_refused(self):
        server = self.start(WebLiar(self.listing))
        code, said = self.refused("s3://b/d/", "-o", f"no_sign,endpoint={server.url('')}", cpu=20,
                                  timeout=300)
        self.assertEqual((code, said), (
            SOURCE, "ckptfs: s3://b/d/: listing too long: more than 4000 pages\n"))


    def test_names_of_any_length_are_left_out(self):
        lengths = (255, 1024, 1025, 4094, 5000, 100_000)
        keys = ["d/model.safetensors", *("d/" + "x" * length for length in lengths)]
        listing = "".join(f"<Contents><Key>{key}</Key><ETag>1</ETag><Size>{len(model())}</Size></Contents>"
                          for key in keys)

        def answer(request):
            if "list-type" not in request.target:
                return file_response(request, model())
            return response(200, f"<ListBucketResult><IsTruncated>false</IsTruncated>{listing}"
                                 "</ListBucketResult>".encode())

        server = self.start(WebLiar(answer))
        for options, own in ("", {"meta.json", "w.memmap"}), ("store,", {"model.safetensors", "model.safetensors.d"}):
            with self.subTest(options=options):
                mount = self.mount("s3://b/d/", "-o", f"{options}no_sign,endpoint={server.url('')}",
                                   quiet=False, env=environment())
                names = set(os.listdir(mount.path))
                self.assertLessEqual(own, names)
                self.assertLessEqual(names - own, {"x" * 255, "x" * 1024})
                mount.unmount()


class TensorDicts(Case):
    """Of which a server does not say what is there."""

    STACK = json.dumps({"_type": "<class 'tensordict._lazy.LazyStackedTensorDict'>", "_format_version": 1,
                        "stack_dim": 0, "stack_dim_name": None}).encode()
    ITEM = json.dumps({"shape": [], "device": "cpu", "_type": "<class 'tensordict._td.TensorDict'>",
                       "_format_version": 1}).encode()

    def test_a_lazy_stack_is_the_same_as_on_a_disk(self):
        try:
            import torch
            from tensordict import LazyStackedTensorDict, TensorDict
        except ImportError as error:
            self.skip_avoidable(str(error))
        root = self.scratch()
        inner = LazyStackedTensorDict(*[TensorDict({"x": torch.arange(4 + i)}, []) for i in range(2)], stack_dim=0)
        TensorDict({"stack": LazyStackedTensorDict(
            *[TensorDict({"a": torch.rand(3 + i), "b": {"c": torch.ones(2)}}, []) for i in range(3)], stack_dim=0),
            "inner": inner}, []).memmap(str(root / "td"))
        local = self.mount(root / "td")
        with FaultServer(root) as server:
            far = self.mount(server.url("/td/meta.json"), env=environment())
            self.assertEqual([(kind, keys, kind == "tensor" and ckptfs.read(what.path))
                              for kind, keys, what in view.walk(far.path)],
                             [(kind, keys, kind == "tensor" and ckptfs.read(what.path))
                              for kind, keys, what in view.walk(local.path)])
            asked = [entry["path"] for entry in server.stats()["log"] if entry["status"] == 404]
        self.assertEqual(sorted(asked), ["/td/inner/2/meta.json", "/td/stack/3/meta.json"])

    def test_a_stack_without_end_is_refused(self):
        pad = b'{"pad": "' + b"x" * 60_000 + b'", ' + self.ITEM[1:]
        for item in (self.ITEM, pad):
            with self.subTest(size=len(item)):
                server = self.start(WebLiar(lambda request: file_response(
                    request, self.STACK if request.target == "/td/meta.json" else item)))
                # Of the padded ones the cache keeps what it has room for.
                code, said = self.refused(server.url("/td/meta.json"), cpu=20, memory=400 << 20, timeout=300)
                self.assertEqual((code, said.count("\n")), (LIMITS, 1), said)
                self.assertLess(len(server.requests), 10_100)

    def test_stacks_in_stacks_without_end_are_refused(self):
        server = self.start(WebLiar(lambda request: file_response(request, self.STACK)))
        self.refused(server.url("/td/meta.json"), cpu=20, memory=400 << 20, timeout=300)
        self.assertLess(len(server.requests), 21_000)


class Proxies(Case):
    """A proxy that records what it is told, and has all files itself."""

    def setUp(self):
        self.body = model()
        self.proxy = self.start(WebLiar(lambda request: file_response(request, self.body)))
        self.server = self.start(WebLiar(lambda request: file_response(request, self.body), host="0.0.0.0"))
        self.via = {"http_proxy": self.proxy.url(""), "all_proxy": self.proxy.url("")}

    def assertNotByProxy(self, url, *options, **variables):
        self.mount(url, *options, env=environment(**self.via, **variables), quiet=False)
        self.assertEqual(self.proxy.requests, [])
        return [request.headers for request in self.server.requests]

    def test_what_is_no_secret_takes_it(self):
        self.mount(self.server.url("/m", "0.0.0.0"), env=environment(**self.via))
        self.assertEqual(self.server.requests, [])
        self.assertGreater(len(self.proxy.requests), 0)

    def test_a_token_for_this_machine_does_not(self):
        for host in ("127.0.0.1", "127.8.9.10", "localhost"):
            with self.subTest(host):
                headers = self.assertNotByProxy(self.server.url("/m", host), CKPTFS_HTTP_TOKEN="SECRET")
                self.assertEqual(headers[-1]["authorization"], "Bearer SECRET")

    def test_this_machine_needs_none(self):
        self.assertNotByProxy(self.server.url("/m"))

    def test_a_password_in_a_url_does_not(self):
        headers = self.assertNotByProxy(self.server.url("/m", "user:pw@0.0.0.0"))
        self.assertTrue(headers[0]["authorization"].startswith("Basic "))

    def test_a_password_in_a_netrc_file_does_not(self):
        netrc = self.scratch() / "netrc"
        netrc.write_text("machine 0.0.0.0 login user password pw\n")
        headers = self.assertNotByProxy(self.server.url("/m", "0.0.0.0"), "-o", f"netrc={netrc}")
        self.assertTrue(headers[0]["authorization"].startswith("Basic "))

    def test_a_session_token_of_s3_does_not(self):
        keys = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}
        endpoint = ("-o", f"endpoint={self.server.url('', '0.0.0.0')}")
        headers = self.assertNotByProxy("s3://b/m", *endpoint, AWS_SESSION_TOKEN="SECRET", **keys)
        self.assertEqual(headers[0]["x-amz-security-token"], "SECRET")
        # A signature alone is of no use to others.
        self.mount("s3://b/m", *endpoint, env=environment(**self.via, **keys))
        self.assertIn("AWS4-HMAC-SHA256", self.proxy.requests[0].headers["authorization"])

    def test_credentials_of_machines_do_not(self):
        answers = {"/container": b'{"AccessKeyId": "k", "SecretAccessKey": "s", "Token": "t"}'}
        self.server.answer = lambda request: (response(200, answers[request.target]) if request.target in answers
                                       else file_response(request, self.body))
        endpoint = ("-o", f"endpoint={self.server.url('')}")
        headers = self.assertNotByProxy(
            "s3://b/m", *endpoint, AWS_CONTAINER_CREDENTIALS_FULL_URI=self.server.url("/container"),
            AWS_CONTAINER_AUTHORIZATION_TOKEN="SECRET")
        self.assertEqual(headers[0]["authorization"], "SECRET")


class Secrets(Case):
    """None is in any message, however wrong the URI is."""

    def test_no_message_has_one(self):
        server = self.start(WebLiar(lambda request: response(
            302, Location="http://u:SECRET@127.0.0.1:1/SIGNED?X-Amz-Signature=SECRET")))
        closed = "127.0.0.1:1"
        for source, *options in (
                ("s3://u:SECRET@b/k",), ("s3://u%3ASECRET%40b/k",), ("s3://AKIA:SEC/SECRET@b/k",),
                ("S3://u:SECRET@b/k",), ("nothing://u:SECRET@h/k",), ("s3://b/k?X-Amz-Signature=SECRET",),
                ("s3://b/k", "-o", "endpoint=http://u:SECRET@h"), ("s3://b/k", "-o", "endpoint=http://u:SECRET%40h"),
                ("s3://b/k", "-o", "endpoint=http://h/?token=SECRET"),
                (f"redis://:SECRET@{closed}/k",), (f"redis://u:SECRET%40{closed}/k",),
                (f"redis://{closed}/0?password=SECRET",), (f"http://u:SECRET@{closed}/m?sig=SECRET#SECRET",),
                ("http://u:SECRET@h:port/m",), ("file://u:SECRET@host/m",), (f"http://u%3ASECRET%40{closed}/m",),
                (server.url("/m?sig=SECRET"),)):
            with self.subTest(source=source, options=options):
                code, said = self.refused(source, *options, "-o", "timeout=1", AWS_ACCESS_KEY_ID="k",
                                          AWS_SECRET_ACCESS_KEY="s", AWS_ENDPOINT_URL=f"http://{closed}")
                self.assertNotIn("SECRET", said)
                self.assertEqual(said.splitlines()[-1].count("ckptfs: "), 1, said)

    def test_nor_that_of_a_proxy(self):
        for proxy in ("http://u:SECRET@127.0.0.1:1", "strange://u:SECRET@127.0.0.1:1", "http://u:SECRET@", "u:SECRET"):
            with self.subTest(proxy):
                _, said = self.refused("http://files.invalid/m", "-o", "timeout=1", http_proxy=proxy)
                self.assertNotIn("SECRET", said)


class FileUris(Case):
    def test_are_percent_encoded_and_of_this_machine(self):
        path = self.scratch() / "my model%20.safetensors"
        path.write_bytes(model())
        for host in ("", "localhost", "LocalHost"):
            with self.mount(f"file://{host}" + path.as_uri().removeprefix("file://")) as mount:
                self.assertEqual(ckptfs.read(mount / "w.memmap"), b"1234")

    def test_of_another_host_or_a_relative_path_are_refused(self):
        for uri, sentence in (
                ("file://other/m", "unsupported host in a file URI (expected none or localhost, as in file:///dir/model.pth)"),
                ("file://m.pth", "relative path in a file URI (expected an absolute one, as in file:///dir/model.pth)"),
                ("file://./m.pth", "relative path in a file URI (expected an absolute one, as in file:///dir/model.pth)"),
                ("file://", "relative path in a file URI (expected an absolute one, as in file:///dir/model.pth)"),
                ("file:///a%00b", "the path contains a NUL")):
            self.assertRefused(self.ckptfs(uri, self.mountpoint()), SOURCE, f"{uri}: {sentence}")


if __name__ == "__main__":
    ckptfs.unittest.main()
