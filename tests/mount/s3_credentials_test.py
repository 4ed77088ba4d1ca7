"""Credentials for S3, from each source of the AWS tools and of tensorizer. The server of S3 is a real one that
knows temporary credentials; those that hand them out are on loopback."""

import errno
import json
import shlex
import sys
import time

import ckptfs
import s3_case
from ckptfs import SOURCE

try:
    from credential_server import CredentialServer
    from fault_server import FaultServer
except ImportError:
    pass  # s3_case reports missing packages.

SIZE = 1 << 20
NOBODY = "permission denied without credentials: AccessDenied"
ROLE = "arn:aws:iam::123456789012:role/reader"


def body(name):
    return name.encode() * SIZE


def model():
    header = {name: {"dtype": "U8", "shape": [SIZE], "data_offsets": [i * SIZE, (i + 1) * SIZE]}
              for i, name in enumerate("ab")}
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body("a") + body("b")


class Credentials(s3_case.Case):
    sessions = True

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.session = cls.server.session()
        cls.client.put_object(Bucket="models", Key="m.safetensors", Body=model())

    def hand_out(self, *keys, seconds=3600):
        """A server that hands out temporary credentials, or these."""
        server = CredentialServer(lambda: (*(keys or self.session), seconds))
        server.__enter__()
        self.addCleanup(server.__exit__)
        return server

    def assertMounts(self, *options, **variables):
        with self.mount("s3://models/m.safetensors", *options,
                        env=self.nobody(**variables)) as mount:
            self.assertEqual(ckptfs.read(mount / "a.memmap"), body("a"))

    def assertDenied(self, sentence, *options, **variables):
        done = self.ckptfs(*options, "s3://models/m.safetensors", self.mountpoint(),
                           env=self.nobody(**variables))
        self.assertRefused(done, SOURCE, f"s3://models/m.safetensors: {sentence}")

    def keys(self, secret=None):
        return (f"aws_access_key_id = {self.server.access_key}\n"
                f"aws_secret_access_key = {secret or self.server.secret_key}\n")


class Places(Credentials):
    def test_nobody_is_refused(self):
        self.assertDenied(NOBODY)

    def test_the_environment_has_keys(self):
        self.assertMounts(AWS_ACCESS_KEY_ID=self.server.access_key,
                          AWS_SECRET_ACCESS_KEY=self.server.secret_key)

    def test_the_environment_has_a_session(self):
        key, secret, token = self.session
        self.assertMounts(AWS_ACCESS_KEY_ID=key, AWS_SECRET_ACCESS_KEY=secret,
                          AWS_SESSION_TOKEN=token)

    def test_a_key_without_a_secret_fails(self):
        self.assertDenied("missing AWS_SECRET_ACCESS_KEY in the environment (found "
                          "AWS_ACCESS_KEY_ID)", AWS_ACCESS_KEY_ID=self.server.access_key)

    def test_the_default_profile_has_keys(self):
        self.write(".aws/credentials", f"[default]\n{self.keys()}")
        self.assertMounts()

    def test_a_profile_of_the_environment_has_keys(self):
        self.write(".aws/credentials", f"[default]\n{self.keys('wrong')}[mine]\n{self.keys()}")
        self.assertMounts(AWS_PROFILE="mine")

    def test_a_profile_of_the_option_comes_before_the_environment(self):
        self.write(".aws/config", f"[profile mine]\n{self.keys()}")
        self.assertMounts("-o", "profile=mine", AWS_ACCESS_KEY_ID="other",
                          AWS_SECRET_ACCESS_KEY="other")

    def test_a_missing_profile_fails(self):
        aws = self.home / ".aws"
        self.assertDenied(f"profile 'mine' not found in {aws}/config or {aws}/credentials",
                          "-o", "profile=mine")

    def test_files_at_the_paths_of_the_environment(self):
        file = self.write("elsewhere", f"[default]\n{self.keys()}")
        self.assertMounts(AWS_SHARED_CREDENTIALS_FILE=str(file))

    def test_a_profile_has_an_endpoint_and_a_region(self):
        self.write(".aws/config", "[default]\nregion = us-east-1\ns3 =\n"
                                  f"  endpoint_url = {self.server.endpoint}\n{self.keys()}")
        self.assertMounts(AWS_ENDPOINT_URL="", AWS_REGION="")

    def test_s3cmd_is_configured_as_tensorizer_reads_it(self):
        host = self.server.endpoint.removeprefix("http://")
        self.write(".s3cfg", f"[default]\naccess_key = {self.server.access_key}\n"
                             f"secret_key = {self.server.secret_key}\nhost_base = {host}\n"
                             "use_https = False\nsignature_v2 = False\n")
        self.assertMounts(AWS_ENDPOINT_URL="", AWS_REGION="")

    def test_a_program_prints_them(self):
        printed = {"Version": 1, "AccessKeyId": self.session[0], "SecretAccessKey": self.session[1],
                   "SessionToken": self.session[2]}
        program = self.write("with blanks.py", f"print({json.dumps(printed)!r})\n")
        command = shlex.join([sys.executable, str(program)])
        self.write(".aws/config", f"[profile mine]\ncredential_process = {command}\n")
        self.assertMounts("-o", "profile=mine")

    def test_a_program_that_fails_is_reported_without_its_output(self):
        self.write(".aws/config", "[default]\ncredential_process = sh -c 'echo SECRET; exit 3'\n")
        self.assertDenied("credential_process 'sh': exited with status 3")
        self.write(".aws/config", "[default]\ncredential_process = echo SECRET\n")
        self.assertDenied("credential_process 'echo': malformed credentials: not a JSON object")
        self.write(".aws/config", "[default]\ncredential_process = /no/such\n")
        self.assertDenied("cannot run credential_process '/no/such': No such file or directory")

    def test_a_web_identity_takes_on_a_role(self):
        server = self.hand_out()
        file = self.write("token", server.web_token + "\n")
        self.assertMounts(AWS_WEB_IDENTITY_TOKEN_FILE=str(file), AWS_ROLE_ARN=ROLE,
                          AWS_ENDPOINT_URL_STS=server.url(""))
        self.assertEqual(server.asked, ["AssumeRoleWithWebIdentity"])

    def test_a_refused_web_identity_fails(self):
        server = self.hand_out()
        file = self.write("token", "another-token")
        self.assertDenied(f"role '{ROLE}': security token service returned status 403, "
                          "InvalidIdentityToken", AWS_WEB_IDENTITY_TOKEN_FILE=str(file),
                          AWS_ROLE_ARN=ROLE, AWS_ENDPOINT_URL_STS=server.url(""))

    def test_a_profile_takes_on_a_role_by_another(self):
        server = self.hand_out()
        server.may_assume = self.server.access_key
        self.write(".aws/credentials", f"[base]\n{self.keys()}")
        self.write(".aws/config", f"[profile mine]\nrole_arn = {ROLE}\nsource_profile = base\n")
        self.assertMounts(AWS_PROFILE="mine", AWS_ENDPOINT_URL_STS=server.url(""))
        self.assertEqual(server.asked, ["AssumeRole"])

    def test_profiles_in_circles_fail(self):
        self.write(".aws/config", f"[profile a]\nrole_arn = {ROLE}\nsource_profile = b\n"
                                  f"[profile b]\nrole_arn = {ROLE}\nsource_profile = a\n")
        self.assertDenied("profile 'a': too many roles in a chain: more than 8", "-o", "profile=a")

    def test_a_container_has_a_server(self):
        server = self.hand_out()
        self.assertMounts(AWS_CONTAINER_CREDENTIALS_FULL_URI=server.url("/container"),
                          AWS_CONTAINER_AUTHORIZATION_TOKEN=server.container_token)
        file = self.write("token", server.container_token + "\n")
        self.assertMounts(AWS_CONTAINER_CREDENTIALS_FULL_URI=server.url("/container"),
                          AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE=str(file))
        self.assertEqual(server.asked, ["container", "container"])

    def test_a_container_that_refuses_fails(self):
        server = self.hand_out()
        self.assertDenied("container credentials refused: status 401",
                          AWS_CONTAINER_CREDENTIALS_FULL_URI=server.url("/container"),
                          AWS_CONTAINER_AUTHORIZATION_TOKEN="wrong")

    def test_a_container_asks_no_other_machine(self):
        self.assertDenied("insecure AWS_CONTAINER_CREDENTIALS_FULL_URI: http:// to another machine",
                          AWS_CONTAINER_CREDENTIALS_FULL_URI="http://192.0.2.1/container")

    def test_an_instance_has_a_role(self):
        server = self.hand_out()
        self.assertMounts(AWS_EC2_METADATA_DISABLED="",
                          AWS_EC2_METADATA_SERVICE_ENDPOINT=server.url("/"))
        self.assertEqual(server.asked, ["instance"])

    def test_where_there_is_no_instance_nobody_asks(self):
        self.assertDenied(NOBODY, AWS_EC2_METADATA_DISABLED="",
                          AWS_EC2_METADATA_SERVICE_ENDPOINT="http://127.0.0.1:1")


class Renewal(Credentials):
    """Two users of the server, one after another."""

    sessions = False
    second = "AKTESTAKTESTAKTEST02"

    @classmethod
    def setUpClass(cls):
        cls.server = None
        super(Credentials, cls).setUpClass()
        cls.client.put_object(Bucket="models", Key="m.safetensors", Body=model())
        cls.server._run("radosgw-admin", "key", "create", "--uid=test", "--access-key=" + cls.second,
                        "--secret=second")

    def signers(self, front):
        return [entry["headers"]["authorization"].partition("Credential=")[2].partition("/")[0]
                for entry in front.stats()["log"]]

    def start(self, seconds):
        """A server that hands out the first user's keys for so many seconds, then the second's for
        an hour, and one before the server of S3 that knows who signs."""
        first = (self.server.access_key, self.server.secret_key, None, seconds)
        keys = iter([first])
        service = CredentialServer(lambda: next(keys, (self.second, "second", None, 3600)))
        service.__enter__()
        self.addCleanup(service.__exit__)
        front = FaultServer(upstream=self.server.endpoint.removeprefix("http://"))
        front.__enter__()
        self.addCleanup(front.__exit__, None, None, None)
        mount = self.mount(
            "s3://models/m.safetensors", quiet=False,
            env=self.nobody(AWS_ENDPOINT_URL=front.url(""),
                            AWS_CONTAINER_CREDENTIALS_FULL_URI=service.url("/container"),
                            AWS_CONTAINER_AUTHORIZATION_TOKEN=service.container_token))
        return service, front, mount

    def test_credentials_that_have_ended_are_renewed(self):
        service, front, mount = self.start(seconds=2)
        self.assertEqual(set(self.signers(front)), {self.server.access_key})
        time.sleep(2.1)
        self.assertEqual(ckptfs.read(mount / "b.memmap"), body("b"))
        self.assertEqual(self.signers(front)[-1], self.second)
        self.assertEqual(service.asked, ["container", "container"])

    def test_credentials_that_the_server_finds_expired_are_renewed_at_once(self):
        service, front, mount = self.start(seconds=3600)
        front.rules([{"status": 403, "times": 1}])
        self.assertEqual(ckptfs.read(mount / "b.memmap"), body("b"))
        self.assertIn(self.second, self.signers(front))
        self.assertEqual(service.asked, ["container", "container"])

    def test_credentials_that_are_refused_again_fail_the_read(self):
        service, front, mount = self.start(seconds=3600)
        front.rules([{"status": 403}])
        self.assertErrno(errno.EACCES, ckptfs.read, mount / "b.memmap")
        self.assertEqual(service.asked, ["container", "container"])


if __name__ == "__main__":
    ckptfs.unittest.main()
