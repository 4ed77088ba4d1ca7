"""One checkpoint in S3: on a real server, on one that fails, and on one that answers as AWS does."""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import ckptfs
import craft
from ckptfs import SOURCE

sys.path.insert(0, str(ckptfs.TESTS / "servers"))
from aws_host import AwsHost
from fault_server import FaultServer
from s3_gateway import S3Gateway

SIZE = 1 << 20  # Of each tensor, in bytes.
NAMES = "abcd"
DENIED = "permission denied with the credentials of the environment: "


def content(name, version=1):
    return hashlib.sha256(f"{name}{version}".encode()).digest() * (SIZE // 32)


def model(directory, version=1):
    """A checkpoint as bytes."""
    header = {name: {"dtype": "U8", "shape": [SIZE], "data_offsets": [i * SIZE, (i + 1) * SIZE]}
              for i, name in enumerate(NAMES)}
    path = Path(directory, "model")
    craft.write_safetensors(path, json.dumps(header),
                            b"".join(content(name, version) for name in NAMES))
    return path.read_bytes()


def environment(home, **variables):
    """That of this process without what tells who we are, and with these variables."""
    kept = {k: v for k, v in os.environ.items()
            if not k.startswith("AWS_") and not k.lower().endswith("_proxy")}
    return kept | {"HOME": str(home), "AWS_EC2_METADATA_DISABLED": "true"} | variables


GATEWAYS = {}  # Those that run, by whether they look at session tokens.


def gateway(sessions):
    """A gateway that runs for as long as there are tests of this file."""
    if sessions not in GATEWAYS:
        GATEWAYS[sessions] = S3Gateway(sessions=sessions)
        ckptfs.unittest.addModuleCleanup(lambda: GATEWAYS.pop(sessions).close())
        with contextlib.closing(GATEWAYS[sessions].client()) as client:
            client.create_bucket(Bucket="models")
    return GATEWAYS[sessions]


class S3(ckptfs.Case):
    """With a gateway that has the bucket "models", and in it "m.safetensors"."""

    looks_at_sessions = False

    @classmethod
    def setUpClass(cls):
        if not shutil.which("radosgw"):
            raise ckptfs.unittest.SkipTest("avoidable: there is no radosgw")
        cls.home = Path(ckptfs.tempfile.mkdtemp(prefix="ckptfs-test."))
        cls.addClassCleanup(shutil.rmtree, cls.home, ignore_errors=True)
        cls.gateway = gateway(cls.looks_at_sessions)
        cls.client = cls.gateway.client()
        cls.addClassCleanup(cls.client.close)
        cls.model = model(cls.home)
        cls.put("m.safetensors", cls.model)

    @classmethod
    def put(cls, key, body, bucket="models", **options):
        return cls.client.put_object(Bucket=bucket, Key=key, Body=body, **options)

    def environment(self, **variables):
        return environment(self.home, AWS_ENDPOINT_URL_S3=self.gateway.endpoint,
                           AWS_ACCESS_KEY_ID=self.gateway.access_key,
                           AWS_SECRET_ACCESS_KEY=self.gateway.secret_key, **variables)

    def open(self, uri, *options, quiet=True, **variables):
        return self.mount(uri, *options, env=self.environment() | variables, quiet=quiet)

    def assertMounts(self, uri, *options, version=1, **variables):
        with self.open(uri, *options, **variables) as mount:
            for name in NAMES:
                self.assertEqual(ckptfs.read(mount / f"{name}.memmap"), content(name, version))
            self.assertEqual(mount.unmount(), 0)

    def refused(self, uri, *options, **variables):
        return self.ckptfs(*options, uri, self.mountpoint(), env=self.environment() | variables)


class Objects(S3):
    def test_a_checkpoint_is_read_right(self):
        self.assertMounts("s3://models/m.safetensors")

    def test_a_wrong_secret_fails(self):
        self.assertRefused(self.refused("s3://models/m.safetensors", AWS_SECRET_ACCESS_KEY="wrong"),
                           SOURCE, f"s3://models/m.safetensors: {DENIED}SignatureDoesNotMatch")

    def test_an_unknown_access_key_fails(self):
        self.assertRefused(self.refused("s3://models/m.safetensors", AWS_ACCESS_KEY_ID="AKNOBODY"),
                           SOURCE, f"s3://models/m.safetensors: {DENIED}InvalidAccessKeyId")

    def test_a_key_without_an_object_fails(self):
        self.assertRefused(self.refused("s3://models/none"), SOURCE,
                           "s3://models/none: no such object: NoSuchKey")

    def test_a_missing_bucket_fails(self):
        self.assertRefused(self.refused("s3://nowhere/m.safetensors"), SOURCE,
                           "s3://nowhere/m.safetensors: no such bucket")

    def test_a_folder_may_be_named_without_its_slash(self):
        self.put("folder/model.safetensors", self.model)
        self.assertMounts("s3://models/folder")

    def test_an_endpoint_and_a_region_are_taken_from_options(self):
        self.assertMounts("s3://models/m.safetensors", "-o",
                          f"endpoint={self.gateway.endpoint},region=eu-west-1,path_style",
                          AWS_ENDPOINT_URL_S3="http://127.0.0.1:9")

    def test_an_object_of_the_public_needs_no_credentials(self):
        self.put("public", self.model, ACL="public-read")
        self.assertMounts("s3://models/public", AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="")

    def test_no_sign_ignores_credentials(self):
        self.put("public", self.model, ACL="public-read")
        self.assertMounts("s3://models/public", "-o", "no_sign", AWS_SECRET_ACCESS_KEY="wrong")

    def test_without_credentials_others_are_refused(self):
        for_nobody = self.refused("s3://models/m.safetensors", AWS_ACCESS_KEY_ID="")
        self.assertRefused(for_nobody, SOURCE,
                           "s3://models/m.safetensors: permission denied without credentials: "
                           "AccessDenied")

    def test_a_presigned_url_is_a_url(self):
        url = self.client.generate_presigned_url(
            "get_object", Params={"Bucket": "models", "Key": "m.safetensors"})
        self.assertMounts(url)

    def test_a_presigned_url_that_was_changed_is_refused(self):
        url = self.client.generate_presigned_url(
            "get_object", Params={"Bucket": "models", "Key": "none"}).replace("none", "m.safetensors")
        self.assertRefusedLike(self.refused(url), SOURCE, r"http://[^?]*: permission denied")

    def test_the_time_of_the_files_is_that_of_the_object(self):
        told = self.client.head_object(Bucket="models", Key="m.safetensors")["LastModified"]
        with self.open("s3://models/m.safetensors") as mount:
            self.assertEqual((mount / "a.memmap").stat().st_mtime, told.timestamp())


class Keys(S3):
    """Each is mounted as the text that boto3 stores it under."""

    def assertKeyMounts(self, key):
        self.put(key, self.model)
        self.assertMounts("s3://models/" + key)

    def test_with_a_space_may_be(self):
        self.assertKeyMounts("my model")

    def test_with_a_plus_and_an_equals_sign_may_be(self):
        self.assertKeyMounts("a+b=c")

    def test_with_a_percent_sign_may_be(self):
        self.assertKeyMounts("50%")

    def test_that_look_encoded_are_not(self):
        self.assertKeyMounts("a%20b%2Fc")

    def test_in_japanese_and_with_umlauts_may_be(self):
        self.assertKeyMounts("模型/größe")

    def test_with_two_slashes_in_a_row_may_be(self):
        self.assertKeyMounts("d//e")

    def test_with_a_dot_between_slashes_may_be(self):
        self.assertKeyMounts("d/./e")

    def test_with_two_dots_between_slashes_may_be(self):
        self.assertKeyMounts("d/../e")

    def test_with_question_marks_ampersands_and_number_signs_may_be(self):
        self.assertKeyMounts("what?&how#1")

    def test_with_other_punctuation_may_be(self):
        self.assertKeyMounts("~-_.!*'():@,;$")


class Versions(S3):
    def setUp(self):
        self.client.create_bucket(Bucket="kept")
        self.client.put_bucket_versioning(Bucket="kept",
                                          VersioningConfiguration={"Status": "Enabled"})
        self.first = self.put("m", self.model, bucket="kept")["VersionId"]
        self.second = model(self.home, 2)

    def test_that_was_mounted_stays_after_there_is_a_new_one(self):
        with self.open("s3://kept/m") as mount:
            self.put("m", self.second, bucket="kept")
            self.assertEqual(ckptfs.read(mount / "d.memmap"), content("d"))
        self.assertMounts("s3://kept/m", version=2)

    def test_that_was_mounted_stays_after_the_object_is_deleted(self):
        with self.open("s3://kept/m") as mount:
            self.client.delete_object(Bucket="kept", Key="m")
            self.assertEqual(ckptfs.read(mount / "d.memmap"), content("d"))
        self.assertRefused(self.refused("s3://kept/m"), SOURCE,
                           "s3://kept/m: no such object: NoSuchKey")

    def test_can_be_named(self):
        self.put("m", self.second, bucket="kept")
        self.assertMounts(f"s3://kept/m?versionId={self.first}")

    def test_that_is_missing_fails(self):
        uri = "s3://kept/m?versionId=" + "0" * 32
        self.assertRefusedLike(self.refused(uri), SOURCE,
                               r"s3://kept/m: no such object: \w+")

    def test_where_none_are_kept_a_new_object_is_stale(self):
        self.put("m", self.model)
        with self.open("s3://models/m") as mount:
            self.put("m", self.second)
            self.assertErrno(errno.ESTALE, ckptfs.read, mount / "d.memmap")
            self.assertErrno(errno.ESTALE, ckptfs.read, mount / "b.memmap")

    def test_where_none_are_kept_a_deleted_object_is_gone(self):
        self.put("m", self.model)
        with self.open("s3://models/m") as mount:
            self.client.delete_object(Bucket="models", Key="m")
            self.assertErrno(errno.ENOENT, ckptfs.read, mount / "d.memmap")


class Sessions(S3):
    looks_at_sessions = True

    def test_a_session_token_is_sent(self):
        key, secret, token = self.gateway.session()
        self.assertMounts("s3://models/m.safetensors", AWS_ACCESS_KEY_ID=key,
                          AWS_SECRET_ACCESS_KEY=secret, AWS_SESSION_TOKEN=token)

    def test_a_session_without_its_token_is_refused(self):
        key, secret, _ = self.gateway.session()
        done = self.refused("s3://models/m.safetensors", AWS_ACCESS_KEY_ID=key,
                            AWS_SECRET_ACCESS_KEY=secret)
        self.assertRefusedLike(done, SOURCE, f"s3://models/m.safetensors: {DENIED}\\w+")


class Faults(S3):
    def setUp(self):
        self.proxy = FaultServer(upstream=self.gateway.endpoint.removeprefix("http://"))
        self.addCleanup(self.proxy.__exit__)
        self.endpoint = f"http://127.0.0.1:{self.proxy.port}"

    def open(self, uri, *options, **variables):
        return super().open(uri, *options, AWS_ENDPOINT_URL_S3=self.endpoint, **variables)

    def assertReads(self, mount):
        for name in NAMES:
            self.assertEqual(ckptfs.read(mount / f"{name}.memmap"), content(name))

    def statuses(self):
        return [entry["status"] for entry in self.proxy.stats()["log"]]

    def test_a_server_that_wants_us_to_slow_down_is_asked_again(self):
        with self.open("s3://models/m.safetensors") as mount:
            self.proxy.rules([{"status": 503, "times": 3}])
            self.assertReads(mount)
        self.assertEqual(self.statuses().count(503), 3)

    def test_a_server_that_fails_while_it_is_opened_is_asked_again(self):
        self.proxy.rules([{"status": 500, "times": 2}])
        with self.open("s3://models/m.safetensors", quiet=False) as mount:
            self.assertEqual(mount.messages.count("status 500; retrying"), 2)
            self.assertReads(mount)

    def test_ranges_with_the_status_of_a_whole_object(self):
        self.proxy.rules([{"part_as_200": 1}])
        with self.open("s3://models/m.safetensors") as mount:
            self.assertReads(mount)
        self.assertEqual(set(self.statuses()), {200})
        self.assertGreater(len(self.statuses()), 1)

    def test_a_connection_that_is_reset_is_made_again(self):
        with self.open("s3://models/m.safetensors") as mount:
            self.proxy.rules([{"reset": 10_000, "times": 2}])
            self.assertReads(mount)

    def test_readers_fail_if_the_server_denies_access_for_good(self):
        with self.open("s3://models/m.safetensors") as mount:
            self.proxy.rules([{"status": 403}])
            self.assertErrno(errno.EACCES, ckptfs.read, mount / "d.memmap")

    def test_each_request_is_for_the_version_that_was_mounted(self):
        with self.open("s3://models/m.safetensors") as mount:
            self.assertReads(mount)
        first, *others = self.proxy.stats()["log"]
        self.assertNotIn("if-match", first["headers"])
        self.assertTrue(others)
        self.assertEqual([entry for entry in others if "if-match" not in entry["headers"]], [])

    def test_opening_takes_at_most_three_requests(self):
        with self.open("s3://models/m.safetensors"):
            self.assertLessEqual(len(self.statuses()), 3)

    def test_the_header_of_those_who_pay_is_sent_and_signed(self):
        with self.open("s3://models/m.safetensors", "-o", "requester_pays") as mount:
            self.assertReads(mount)
        for entry in self.proxy.stats()["log"]:
            self.assertEqual(entry["headers"]["x-amz-request-payer"], "requester")
            self.assertIn(";x-amz-request-payer", entry["headers"]["authorization"])

    def test_no_secret_is_in_what_is_logged(self):
        self.proxy.rules([{"status": 500, "times": 1}])
        with self.open("s3://models/m.safetensors", quiet=False) as mount:
            self.assertNotIn(self.gateway.secret_key, mount.messages)
            self.assertNotIn("Signature", mount.messages)


class Aws(ckptfs.Case):
    """What only AWS does, from a server that does it."""

    def setUp(self):
        self.home = self.scratch()
        self.aws = AwsHost(model(self.home), region="eu-central-1")
        self.addCleanup(self.aws.__exit__)

    def environment(self, **variables):
        return environment(self.home) | {
            "AWS_ENDPOINT_URL": self.aws.endpoint, "AWS_ACCESS_KEY_ID": "AKIDNEW",
            "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "eu-central-1"} | variables

    def in_the_cloud(self, **variables):
        """As if it were AWS: under its hosts, by way of a proxy that has all of them."""
        return self.environment(AWS_ENDPOINT_URL="http://s3.amazonaws.com",
                                http_proxy=self.aws.endpoint, **variables)

    def assertMounts(self, variables, uri="s3://my-models/m.safetensors"):
        with self.mount(uri, env=variables) as mount:
            for name in NAMES:
                self.assertEqual(ckptfs.read(mount / f"{name}.memmap"), content(name))

    def refused(self, variables):
        return self.ckptfs("s3://my-models/m.safetensors", self.mountpoint(), env=variables)

    def asked(self, *names):
        return [tuple(entry[name] for name in names) for entry in self.aws.log]

    def test_a_bucket_is_a_host(self):
        self.assertMounts(self.in_the_cloud())
        self.assertEqual(set(self.asked("url", "host", "region", "status")),
                         {("http://my-models.s3.eu-central-1.amazonaws.com/m.safetensors",
                           "my-models.s3.eu-central-1.amazonaws.com", "eu-central-1", 206)})

    def test_a_bucket_with_a_dot_is_in_the_path(self):
        self.assertMounts(self.in_the_cloud(), "s3://my.models/m.safetensors")
        self.assertEqual(set(self.asked("url")),
                         {("http://s3.eu-central-1.amazonaws.com/my.models/m.safetensors",)})

    def test_a_bucket_in_another_region_is_found_once(self):
        self.assertMounts(self.in_the_cloud(AWS_REGION="us-west-2"))
        first, second, *others = self.asked("host", "region", "status")
        self.assertEqual(first, ("my-models.s3.us-west-2.amazonaws.com", "us-west-2", 301))
        self.assertEqual(second, ("my-models.s3.eu-central-1.amazonaws.com", "eu-central-1", 206))
        self.assertEqual(set(others), {second})

    def test_a_bucket_in_another_region_is_found_without_credentials(self):
        self.assertMounts(self.in_the_cloud(AWS_REGION="", AWS_ACCESS_KEY_ID=""))
        self.assertEqual(self.asked("host", "key", "status")[:2],
                         [("my-models.s3.us-east-1.amazonaws.com", "", 301),
                          ("my-models.s3.eu-central-1.amazonaws.com", "", 206)])

    def test_a_region_that_an_endpoint_wants_is_signed_for(self):
        self.assertMounts(self.environment(AWS_REGION=""))
        self.assertEqual(self.asked("region", "status")[:2],
                         [("us-east-1", 400), ("eu-central-1", 206)])

    def test_a_region_that_the_server_does_not_name_fails(self):
        self.aws.tells_region = False
        self.assertRefused(self.refused(self.in_the_cloud(AWS_REGION="us-west-2")), SOURCE,
                           "s3://my-models/m.safetensors: bucket in another region, which the "
                           "response does not contain: PermanentRedirect, 'As AWS says it.'")

    def test_a_region_that_is_a_host_of_others_is_not_followed(self):
        self.aws.region = "evil.example/"
        done = self.refused(self.in_the_cloud(AWS_REGION="us-west-2"))
        self.assertRefusedLike(done, SOURCE, ".*: bucket in another region, .*")
        self.assertEqual(self.asked("host"), [("my-models.s3.us-west-2.amazonaws.com",)])

    def test_a_redirect_to_another_host_is_not_followed(self):
        with AwsHost(self.aws.content) as other:
            self.aws.redirect = other.endpoint + "/m.safetensors"
            done = self.refused(self.environment())
            self.assertRefusedLike(done, SOURCE, ".*: bucket in another region, .*TemporaryRedirect.*")
            self.assertEqual((len(self.aws.log), other.log), (1, []))

    def test_a_deleted_object_is_stale(self):
        self.aws.is_deleted = True
        self.assertRefused(self.refused(self.environment()), SOURCE,
                           "s3://my-models/m.safetensors: object deleted: append ?versionId= and an "
                           "older version to read that")

    def test_our_clock_may_be_slow(self):
        self.aws.ahead = 3600
        self.assertMounts(self.environment())
        self.assertEqual([status for status, in self.asked("status")].count(403), 1)

    def test_our_clock_may_be_fast(self):
        self.aws.ahead = -86400
        self.assertMounts(self.environment())
        self.assertEqual([status for status, in self.asked("status")].count(403), 1)

    def test_a_clock_that_never_agrees_fails(self):
        self.aws.ahead = 3600
        self.aws.drift = 3600
        self.assertRefused(self.refused(self.environment()), SOURCE,
                           "s3://my-models/m.safetensors: clock skew between this machine and the "
                           "server: RequestTimeTooSkewed, 'As AWS says it.'")

    def test_a_clock_that_jumps_is_followed_by_readers(self):
        with self.mount("s3://my-models/m.safetensors", env=self.environment()) as mount:
            self.aws.ahead = 3600
            for name in NAMES:
                self.assertEqual(ckptfs.read(mount / f"{name}.memmap"), content(name))

    def keys_from(self, file):
        """The environment of a profile whose keys are what `file` has: a program prints it."""
        (self.home / ".aws").mkdir(exist_ok=True)
        (self.home / ".aws" / "config").write_text(
            f"[default]\nregion = eu-central-1\ncredential_process = cat '{file}'\n")
        return self.environment(AWS_ACCESS_KEY_ID="")

    def write_keys(self, key):
        path = self.home / "my keys.json"
        path.write_text(json.dumps({"Version": 1, "AccessKeyId": key, "SecretAccessKey": "secret",
                                    "SessionToken": "token"}))
        return path

    def test_a_token_that_has_expired_is_renewed_once(self):
        path = self.write_keys("AKIDOLD")
        with self.mount("s3://my-models/m.safetensors", env=self.keys_from(path)) as mount:
            self.write_keys("AKIDNEW")
            self.aws.expired = {"AKIDOLD"}
            for name in NAMES:
                self.assertEqual(ckptfs.read(mount / f"{name}.memmap"), content(name))
        self.assertEqual(self.asked("key", "status")[-1], ("AKIDNEW", 206))

    def test_an_expired_token_fails_if_there_is_no_other(self):
        path = self.write_keys("AKIDOLD")
        self.aws.expired = {"AKIDOLD"}
        self.assertRefused(self.refused(self.keys_from(path)), SOURCE,
                           "s3://my-models/m.safetensors: permission denied with the credentials of "
                           "credential_process 'cat': ExpiredToken, 'As AWS says "
                           "it.'")

    def test_a_settings_file_that_has_changed_is_read_again(self):
        (self.home / ".aws").mkdir()
        keys = self.home / ".aws" / "credentials"
        keys.write_text("[default]\naws_access_key_id = AKIDOLD\naws_secret_access_key = s\n")
        with self.mount("s3://my-models/m.safetensors",
                        env=self.environment(AWS_ACCESS_KEY_ID="")) as mount:
            keys.write_text("[default]\naws_access_key_id = AKIDNEW\naws_secret_access_key = s\n")
            self.aws.expired = {"AKIDOLD"}
            self.assertEqual(ckptfs.read(mount / "d.memmap"), content("d"))

    def test_a_program_that_never_ends_does_not_keep_a_mount_from_ending(self):
        program, again, waits = (self.home / name for name in ("program", "again", "waits"))
        keys = json.dumps({"Version": 1, "AccessKeyId": "AKIDOLD", "SecretAccessKey": "secret"})
        program.write_text(f"#!/bin/sh\nif [ -e {again} ]; then touch {waits}; sleep 60; fi\n"
                           f"touch {again}\necho '{keys}'\n")
        program.chmod(0o755)
        (self.home / ".aws").mkdir()
        (self.home / ".aws" / "config").write_text(f"[default]\ncredential_process = {program}\n")
        mount = self.mount("s3://my-models/m.safetensors",
                           env=self.environment(AWS_ACCESS_KEY_ID=""))
        self.aws.expired = {"AKIDOLD"}
        reader = subprocess.Popen(["cat", mount / "d.memmap"], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL)
        self.addCleanup(reader.wait)
        ckptfs.wait_until(waits.exists)
        os.kill(mount.daemon, signal.SIGTERM)
        self.assertEqual(mount.wait(5), 0)
