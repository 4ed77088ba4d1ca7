"""Shared by tests of checkpoints in S3: a real server, and users, one of them known to it."""

import os
import shutil
import sys

import ckptfs
import view
from ckptfs import TESTS

sys.path.insert(0, str(TESTS / "servers"))

try:
    import boto3
except ImportError as error:
    boto3 = None
    MISSING = str(error)

PROGRAMS = ("radosgw", "ceph-mon", "ceph-osd")


def contents(mount):
    """All that is on a mount: (kind, dotted keys, bytes or value)."""
    return [(kind, ".".join(keys), ckptfs.read(what.path) if kind == "tensor" else what)
            for kind, keys, what in view.walk(mount.path) if kind != "table"]


class Case(ckptfs.Case):
    """One server for all tests of a class, and a bucket "models"."""

    sessions = False  # Whether the server knows temporary credentials.

    @classmethod
    def setUpClass(cls):
        if boto3 is None:
            raise ckptfs.unittest.SkipTest(f"avoidable: {MISSING}")
        if not all(map(shutil.which, PROGRAMS)):
            raise ckptfs.unittest.SkipTest(f"avoidable: there is no {', '.join(PROGRAMS)}")
        from s3_gateway import S3Gateway
        cls.server = S3Gateway(sessions=cls.sessions)
        cls.addClassCleanup(cls.server.close)
        cls.client = cls.server.client()
        cls.client.create_bucket(Bucket="models")

    def setUp(self):
        self.home = self.scratch()

    def nobody(self, **variables):
        """An environment without credentials, except these variables."""
        return {k: v for k, v in os.environ.items()
                if not k.startswith("AWS_") and not k.lower().endswith("_proxy")} | {
            "HOME": str(self.home), "AWS_ENDPOINT_URL": self.server.endpoint,
            "AWS_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"} | variables

    def somebody(self, **variables):
        """As `nobody`, but with the credentials of the server's user."""
        return self.nobody(AWS_ACCESS_KEY_ID=self.server.access_key,
                           AWS_SECRET_ACCESS_KEY=self.server.secret_key, **variables)

    def write(self, name, text):
        """Writes a file in the user's home directory."""
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def put(self, key, body):
        self.client.put_object(Bucket="models", Key=key, Body=body)

    def upload(self, folder, prefix):
        """Uploads all files below `folder`, which is local."""
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.put(prefix + str(path.relative_to(folder)), path.read_bytes())
