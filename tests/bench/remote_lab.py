"""What measurements of remote checkpoints are made of: a link with servers at its far end, mounts of
what they serve, and orders of reading.

nginx and Ceph's S3 gateway run as long as the RemoteLab does, and the link between them and this machine
changes its latency and rate. Every mount is new, and what the servers read is in memory.
"""

import json
import os
import random
import subprocess
import sys
from contextlib import contextmanager
from typing import NamedTuple

from lab import HERE, Lab

sys.path.insert(0, str(HERE.parent / "servers"))
from link import Link  # The path must be set first.
from nginx import Nginx
from s3_gateway import S3Gateway

BUCKET = "bench"


class Wire(NamedTuple):
    """Latency and rate of a link."""
    rtt_ms: float
    mbit: float

    def seconds(self, size):
        """How long so many bytes take, if the link is never idle."""
        return size * 8 / (self.mbit * 1e6)


SETUP = Wire(0, 10_000)  # To fill servers.


class RemoteLab(Lab):
    def __enter__(self):
        super().__enter__()
        os.chmod(self.directory, 0o755)  # For nginx.
        self.link = Link(*SETUP)
        self.web = Nginx(self.directory, link=self.link)
        self.s3 = None
        self.stored = set()  # Names of what the S3 server has.
        self.orders = {}
        mine = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
        certificate = str(self.web.certificate)
        # For all clients: whom to trust, and nothing of the user's.
        self.environment = mine | {
            "CURL_CA_BUNDLE": certificate, "AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": S3Gateway.access_key, "AWS_SECRET_ACCESS_KEY": S3Gateway.secret_key,
            "AWS_EC2_METADATA_DISABLED": "true", "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_CONFIG_FILE": os.devnull, "PYTHONPATH": os.environ.get("CKPTFS_PEERS", ""),
            "RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING": "0", "RUNAI_STREAMER_CONCURRENCY": "8"}
        return self

    def __exit__(self, *error):
        if self.s3:
            self.s3.close()
        self.web.close()
        self.link.close()
        super().__exit__(*error)

    def make(self, name, *flags, numbers=()):
        """The path of a checkpoint; see make_checkpoints.py."""
        path = self.directory / name
        if not path.exists():
            self.run(self.python, HERE / "make_checkpoints.py", *flags, path, *numbers)
            self.read(path)  # Into the page cache.
        return path

    def shape(self, wire):
        self.link.reshape(*wire)

    def url(self, origin, name):
        """The URL of a file at "http", "https" or "s3"."""
        if origin == "s3":
            return f"s3://{BUCKET}/{name}"
        return {"http": self.web.url, "https": self.web.secure_url}[origin](f"/{name}")

    def put(self, path):
        """Has the S3 server have the file, too. Changes the shape of the link."""
        if path.name in self.stored:
            return
        self.shape(SETUP)
        if self.s3 is None:
            self.s3 = S3Gateway(link=self.link)
            self.s3.client().create_bucket(Bucket=BUCKET)
            self.environment["AWS_ENDPOINT_URL"] = self.s3.endpoint
        self.s3.client().upload_file(path, BUCKET, path.name)
        self.stored.add(path.name)

    @contextmanager
    def hub(self, directory):
        """Has a model hub at the far end that has the files of a directory. Yields its endpoint."""
        server = self.link.start(self.python, HERE.parent / "servers/hub.py", self.link.far, "org/model",
                                 directory, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            yield server.stdout.readline().strip()
        finally:
            server.communicate(timeout=60)

    @contextmanager
    def show(self, origin, path):
        """Yields a new Daemon of ckptfs that shows a file of a server."""
        with self.remote(self.url(origin, path.name), env=self.environment) as daemon:
            yield daemon

    def tensors(self, path):
        """The files of the tensors of a checkpoint, relative to its mount, in the order of its bytes."""
        if path not in self.orders:
            with self.remote(path) as daemon:
                lines = (daemon.path / "tensors.jsonl").read_text().splitlines()
            tensors = sorted(map(json.loads, lines), key=lambda tensor: tensor["file_offset"])
            self.orders[path] = [tensor["path"] for tensor in tensors]
        return self.orders[path]

    def read_ordered(self, daemon, path, order):
        """The seconds that it takes to read all tensors with a reader that does nothing with them."""
        files = list(self.tensors(path))
        if order == "name order":
            files.sort()
        elif order == "shuffled":
            random.Random(1).shuffle(files)
        return self.read(*(daemon / file for file in files))[0]

    def consume_remote(self, *arguments):
        """The seconds that a library takes; see remote_consumer.py."""
        [seconds] = self.seconds(self.python, HERE / "remote_consumer.py", *arguments, env=self.environment)
        return seconds
