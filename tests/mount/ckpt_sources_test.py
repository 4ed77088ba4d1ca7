"""ckpt reads remote sources and hostile files as a mount does: the same bytes, messages and exit codes."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import ckptfs
from ckpt_case import CKPT, ckpt

sys.path.insert(0, str(ckptfs.TESTS / "servers"))
from fault_server import FaultServer
from hub import Hub

try:
    import torch
    from redis_server import RedisServer
    from s3_gateway import S3Gateway
except ImportError as error:
    torch = None
    MISSING = str(error)

KEY = "net.weight"


class Case(ckptfs.Case):
    def setUp(self):
        if torch is None:
            self.skip_avoidable(MISSING)
        self.folder = self.scratch()
        self.file = self.folder / "model.pth"
        weight = torch.randn(600, 500)
        torch.save({"net": {"weight": weight, "tied": weight, "t": weight.t(), "half": torch.randn(7).half()}, "epoch": 3},
                   self.file)


class Remote(Case):
    def assertSameAsFile(self, source, *options, **variables):
        """All commands, of `source` and of the file it is a copy of."""
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith(("AWS_", "HF_")) and not name.lower().endswith("_proxy")}
        environment |= {"HOME": str(self.folder), "AWS_EC2_METADATA_DISABLED": "true"} | variables

        def outputs(name):
            out = self.folder / "out.safetensors"
            for command, *arguments in (
                    ("ls", name), ("ls", "-l", name), ("cat", name, f"{KEY}[7, ::-3]"), ("show", name, KEY),
                    ("stat", "--json", name), ("convert", "--verify", name, out), ("verify", name),
                    ("diff", self.file, name), ("scan", name), ("info", "--json", name), ("report", name)):
                done = ckpt(command, *options, *arguments, env=environment, text=False, errors=None)
                text = done.stdout.replace(os.fsencode(name), b"SOURCE")
                if command == "info":
                    text = {**json.loads(text), "annotations": None, "source": None}
                elif command == "report":
                    text = text.count(b"</html>")
                yield command, done.returncode, text
            yield "converted", out.read_bytes()
            out.unlink()

        wanted = list(outputs(str(self.file)))
        self.assertEqual([code for _, code, *_ in wanted[:-1]], [0] * 11)
        for found, expected in zip(outputs(source), wanted, strict=True):
            self.assertEqual(found[:2], expected[:2])
            self.assertTrue(found == expected, found[0])  # The bytes are long.

    def test_http(self):
        with FaultServer(self.folder) as server:
            self.assertSameAsFile(server.url("/model.pth"))

    def test_hub(self):
        with Hub() as hub:
            hub.add("org/model", {"model.pth": self.file.read_bytes()})
            for source in "hf://org/model", "hf://org/model/model.pth":
                self.assertSameAsFile(source, HF_ENDPOINT=hub.endpoint)

    def test_redis(self):
        self.need_command("redis-server")
        with RedisServer() as server:
            server.client().set("model.pth", self.file.read_bytes())
            self.assertSameAsFile(server.uri("model.pth"))

    def test_s3(self):
        self.need_command("radosgw")
        gateway = S3Gateway()
        self.addCleanup(gateway.close)
        client = gateway.client()
        self.addCleanup(client.close)
        client.create_bucket(Bucket="models")
        client.put_object(Bucket="models", Key="runs/model.pth", Body=self.file.read_bytes())
        variables = {"AWS_ENDPOINT_URL_S3": gateway.endpoint, "AWS_ACCESS_KEY_ID": gateway.access_key,
                     "AWS_SECRET_ACCESS_KEY": gateway.secret_key}
        self.assertSameAsFile("s3://models/runs/model.pth", **variables)
        self.assertSameAsFile("s3://models/runs/", **variables)

    def save_large(self):
        """A model whose data take more requests than the headers, which are at the end."""
        torch.save({"net": {"weight": torch.randn(1 << 22)}}, self.file)

    def test_reads_of_a_failing_server_end(self):
        self.save_large()
        with FaultServer(self.folder) as server:
            source = server.url("/model.pth")
            out = self.folder / "out.npz"
            commands = ("stat",), ("cat", KEY), ("verify",), ("report",), ("convert", out)
            faults = {"status": 500}, {"stall_head": 60}, {"reset": 100}, {"truncate": 100}, {"drop": True}
            for fault, (command, *arguments) in [*zip(faults, commands), *((fault, commands[-1]) for fault in faults)]:
                server.reset()
                server.rules([{"path": "/model.pth", "after": 3, **fault}])
                start = time.monotonic()
                done = ckpt(command, "-o", "timeout=1", source, *arguments)
                self.assertLess(time.monotonic() - start, 10, (fault, command))
                self.assertIn(done.returncode, (ckptfs.SOURCE, ckptfs.CORRUPT), (fault, command, done.stderr))
                self.assertEqual([path.name for path in self.folder.iterdir()], ["model.pth"])

    def test_servers_that_are_not_there(self):
        for source in "http://127.0.0.1:9/model.pth", "redis://127.0.0.1:9/model.pth":
            mounted = self.ckptfs("-o", "timeout=1", source, self.mountpoint())
            for command, *arguments in ("ls",), ("info",), ("cat", KEY), ("stat",), ("report",), ("verify",):
                done = ckpt(command, "-o", "timeout=1", source, *arguments)
                self.assertEqual((done.returncode, done.stderr.replace("ckpt: ", "ckptfs: ")),
                                 (mounted.returncode, mounted.stderr), command)
            self.assertEqual(ckpt("diff", "-o", "timeout=1", source, self.file).returncode, 2)
            self.assertEqual(ckpt("scan", "-o", "timeout=1", source).returncode, 1)

    def test_interrupted_while_a_server_is_silent(self):
        self.save_large()
        with FaultServer(self.folder) as server:
            out = self.folder / "out.npz"
            out.write_text("old")
            for sent in signal.SIGTERM, signal.SIGINT, signal.SIGKILL:
                server.reset()
                server.rules([{"path": "/model.pth", "after": 3, "stall_body": 1000}])
                process = subprocess.Popen([CKPT, "convert", "-f", server.url("/model.pth"), out],
                                           stderr=subprocess.DEVNULL)
                time.sleep(0.5)
                process.send_signal(sent)
                if sent != signal.SIGKILL:
                    time.sleep(0.2)
                    process.send_signal(sent)  # The second one does not wait for the server.
                self.assertEqual(process.wait(10), -sent)
                self.assertEqual((out.read_text(), sorted(path.name for path in self.folder.iterdir())),
                                 ("old", ["model.pth", "out.npz"]))


class Folders(Case):
    def test_a_folder_of_several_checkpoints(self):
        """The one to read has to be named; scan takes all."""
        runs = self.folder / "runs"
        for step in 1, 2:
            (runs / f"step{step}").mkdir(parents=True)
            shutil.copy(self.file, runs / f"step{step}" / "model.pth")
        shutil.copy(self.file, runs / "last.pth")
        for command, *arguments in (("ls",), ("info",), ("cat", KEY), ("show", KEY), ("stat",), ("verify",), ("report",),
                                    ("convert", self.folder / "out.npz")):
            done = ckpt(command, runs, *arguments)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (
                ckptfs.FORMAT, "", f"ckpt: {runs}: directory with 'last.pth' and checkpoints in subfolders: name the "
                "one to mount\n"))
        self.assertEqual(ckpt("diff", runs, self.file).returncode, 2)
        self.assertEqual(ckpt("scan", runs).stdout, "3 checkpoints scanned, 0 with findings, 0 other files\n")
        self.assertEqual(ckpt("ls", runs / "step1").stdout, ckpt("ls", self.file).stdout)


class Hostile(ckptfs.Case):
    def test_files_of_the_corpora(self):
        """Nothing crashes or hangs, and what a mount refuses, each command refuses."""
        files = sorted(path for name in ("torch", "npy", "safetensors", "gguf", "tensorizer", "zip", "tar", "zanj",
                                         "pickle", "view")
                       for path in (ckptfs.TESTS / "corpus" / name).iterdir())
        self.assertGreater(len(files), 300)
        for file in files[::3]:
            codes = {command: ckpt(command, *options, file) for command, *options in (
                ("info",), ("ls", "--json"), ("stat", "--json"), ("verify", "--json"), ("report",), ("scan", "--json"))}
            code = codes["info"].returncode
            self.assertIn(code, (0, ckptfs.SOURCE, ckptfs.FORMAT, ckptfs.CORRUPT, ckptfs.LIMITS), file)
            for command, done in codes.items():
                self.assertNotIn("internal error", done.stderr, (file, command))
                if command == "scan":
                    self.assertIn(done.returncode, (0, 1), file)
                elif code != 0:
                    self.assertEqual((done.returncode, done.stderr), (code, codes["info"].stderr), (file, command))
                else:  # A tensor may fail.
                    self.assertIn(done.returncode, (0, ckptfs.CORRUPT), (file, command))
            for command in "ls", "stat", "scan":
                if codes[command].returncode == 0:
                    json.loads(codes[command].stdout)
