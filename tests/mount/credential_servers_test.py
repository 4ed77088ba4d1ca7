"""Services that hand out credentials for S3 and do not play by the rules: what they send, and how
long they take, is bounded, and without credentials of theirs the sentence is one."""

import time

import servers_test
from ckptfs import SOURCE
from liars import WebLiar, response

KINDS = ("instance_token", "instance_role", "instance", "container", "web_identity")
HEAD = b"HTTP/1.1 200 OK\r\n"
MIB = 1 << 20


def endless(piece):
    def answer():
        yield HEAD + b"\r\n"
        while True:
            yield piece
    return answer


def endless_headers():
    yield HEAD
    while True:
        yield b"X-A: " + b"b" * 1_000 + b"\r\n"


def one_endless_header():
    yield HEAD + b"X-A: "
    while True:
        yield b"b" * 65_536


def trickle():
    yield HEAD + b"Content-Length: 1000\r\n\r\n"
    while True:
        time.sleep(0.2)
        yield b"x"


def silence():
    time.sleep(30)
    yield b""


class Hostile(servers_test.Case):
    def assertBoundedIn(self, kind, reply, sent=8 * MIB):
        """One service replies so; the others do as they should, and S3 refuses everybody."""
        def answer(request):
            target = request.target
            asked = ("instance_token" if target == "/latest/api/token" else
                     "instance_role" if target.endswith("/security-credentials/") else
                     "instance" if "/security-credentials/" in target else
                     "container" if target == "/container" else
                     "web_identity" if request.method == "POST" else "s3")
            services.append(asked)
            if asked == kind:
                return reply() if callable(reply) else reply
            return response(403) if asked == "s3" else response(200, b"role")
        services = []
        server = self.start(WebLiar(answer))
        file = self.scratch() / "token"
        file.write_text("token")
        variables = {
            "container": {"AWS_CONTAINER_CREDENTIALS_FULL_URI": server.url("/container")},
            "web_identity": {"AWS_WEB_IDENTITY_TOKEN_FILE": str(file), "AWS_ROLE_ARN": "arn:r",
                             "AWS_ENDPOINT_URL_STS": server.url("")},
        }.get(kind, {"AWS_EC2_METADATA_SERVICE_ENDPOINT": server.url(""),
                     "AWS_EC2_METADATA_DISABLED": ""})
        start = time.monotonic()
        code, said = self.refused("s3://bucket/m", "-o", f"timeout=1,endpoint={server.url('')}",
                                  cpu=2, HOME=str(file.parent), **variables)
        self.assertLess(time.monotonic() - start, 20)
        self.assertEqual(code, SOURCE, said)
        self.assertIn(kind, services)
        *warnings, error = said.splitlines()
        self.assertTrue(error.startswith("ckptfs: s3://bucket/m: "), said)
        for warning in warnings:
            self.assertRegex(warning, "warning: .*; retrying")
        self.assertLess(len(said), 3_000)
        self.assertLess(server.sent, sent)  # What is in the buffers of sockets included.

    def assertAllBounded(self, reply, kinds=KINDS, **bounds):
        for kind in kinds:
            with self.subTest(kind):
                self.assertBoundedIn(kind, reply, **bounds)

    def test_a_body_that_does_not_end(self):
        self.assertAllBounded(endless(b"x" * 65_536), sent=60 * MIB)

    def test_lines_that_do_not_end(self):
        self.assertAllBounded(endless(b"x\n" * 32_768), sent=60 * MIB)

    def test_a_hundred_megabytes(self):
        head = HEAD + b"Content-Length: 104857600\r\n\r\n"
        self.assertAllBounded(lambda: iter([head] + [b"x" * MIB] * 100), sent=60 * MIB)

    def test_headers_that_do_not_end(self):
        self.assertAllBounded(endless_headers, sent=60 * MIB)

    def test_a_header_that_does_not_end(self):
        self.assertAllBounded(one_endless_header, ("instance", "container"), sent=60 * MIB)

    def test_a_byte_now_and_then(self):
        self.assertAllBounded(trickle, ("instance_token", "container"))

    def test_silence(self):
        self.assertAllBounded(silence, ("instance_role", "web_identity"))

    def test_credentials_of_a_megabyte(self):
        reply = response(200, b'{"Code":"Success","AccessKeyId":"' + b"A" * 900_000
                         + b'","SecretAccessKey":"b","Token":"c"}')
        for kind in "instance", "container":
            with self.subTest(kind):
                self.assertBoundedIn(kind, reply, sent=30 * MIB)

    def test_json_of_nested_lists(self):
        for kind in "instance", "container":
            with self.subTest(kind):
                self.assertBoundedIn(kind, response(200, b"[" * 900_000))


class Programs(servers_test.Case):
    """credential_process: a program of the user, which may never end."""

    def assertEnds(self, command, pattern):
        home = self.scratch()
        (home / "config").write_text(f"[default]\ncredential_process = {command}\n")
        start = time.monotonic()
        code, said = self.refused("s3://bucket/m", "-o", "timeout=1,endpoint=http://127.0.0.1:1",
                                  AWS_CONFIG_FILE=str(home / "config"))
        self.assertLess(time.monotonic() - start, 20)
        self.assertEqual((code, said.count("\n")), (SOURCE, 1), said)
        self.assertRegex(said, pattern)

    def test_output_that_does_not_end(self):
        self.assertEnds("sh -c 'while true; do echo x; done'", "output too long: more than 65536 bytes")
        self.assertEnds("sh -c 'cat /dev/zero'", "output too long: more than 65536 bytes")

    def test_a_program_that_does_not_end(self):
        self.assertEnds("sleep 60", "timed out after 1 s")
        self.assertEnds("sh -c 'exec >&-; sleep 60'", "timed out after 1 s")
