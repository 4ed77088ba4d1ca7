"""A mount over a link with latency, rate and loss under the kernel's own TCP. Tests the link itself, too,
because benchmarks of remote reads depend on it."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import ckptfs
import craft

sys.path.insert(0, str(ckptfs.TESTS / "servers"))
import link
import nginx
from link import Link
from nginx import Nginx

MIB = 1 << 20
TENSOR = 4 * MIB
TENSORS = 2
RTT_MS = 20
MBIT = 1000


class Case(ckptfs.Case):
    @classmethod
    def setUpClass(cls):
        if missing := link.why_missing():
            cls.missing = missing
            return
        cls.missing = None
        cls.link = cls.enterClassContext(Link(RTT_MS, MBIT))

    def setUp(self):
        if self.missing:
            self.skipTest(self.missing)

    @classmethod
    def seconds(cls, act):
        begin = time.monotonic()
        act()
        return time.monotonic() - begin


class Mounts(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if cls.missing is None and not nginx.is_there():
            cls.missing = "avoidable: there is no nginx"
        if cls.missing:
            return
        directory = tempfile.TemporaryDirectory(prefix="ckptfs-test.")
        cls.addClassCleanup(directory.cleanup)
        cls.directory = directory.name
        os.chmod(directory.name, 0o755)
        cls.data = os.urandom(TENSORS * TENSOR)
        header = {f"t{i}": {"dtype": "U8", "shape": [TENSOR], "data_offsets": [i * TENSOR, (i + 1) * TENSOR]}
                  for i in range(TENSORS)}
        craft.write_safetensors(Path(directory.name, "m.safetensors"), json.dumps(header), cls.data)
        cls.server = cls.enterClassContext(Nginx(directory.name, link=cls.link))

    def read(self, url, *options):
        """Mounts it, compares a tensor, and returns the bytes that the link has carried for that."""
        before = self.link.bytes_received()
        mount = self.mount(url, *options)
        self.assertEqual(ckptfs.read(mount / "t0.memmap"), self.data[:TENSOR])
        return self.link.bytes_received() - before

    def test_a_tensor_arrives_over_the_link(self):
        cost = self.read(self.server.url("/m.safetensors"))
        self.assertGreater(cost, TENSOR)
        self.assertLess(cost, TENSORS * TENSOR)

    def test_a_tensor_arrives_over_https(self):
        url = self.server.secure_url("/m.safetensors")
        self.assertGreater(self.read(url, "-o", f"cacert={self.server.certificate}"), TENSOR)

    def connections(self):
        """The number of TCP connections to the server from here."""
        address = "".join(f"{int(byte):02X}" for byte in reversed(self.link.far.split(".")))
        peer, established = f"{address}:{self.server.port:04X}", "01"
        lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
        return sum(line[2:4] == [peer, established] for line in lines)

    def test_opening_over_a_long_link_establishes_the_connections_of_the_next_requests(self):
        before = self.connections()
        mount = self.mount(self.server.url("/m.safetensors"))
        self.assertEqual(self.connections() - before, 8)
        self.assertEqual(ckptfs.read(mount / "t0.memmap"), self.data[:TENSOR])

    def test_opening_over_a_short_link_establishes_one_connection(self):
        before = self.connections()
        self.link.reshape(rtt_ms=1, mbit=MBIT)
        self.addCleanup(self.link.reshape, RTT_MS, MBIT)
        self.mount(self.server.url("/m.safetensors"))
        self.assertEqual(self.connections() - before, 1)

    def test_a_server_with_few_workers_serves_all_tensors(self):
        for workers in 1, 2:
            with self.subTest(workers=workers):
                server = self.link.start(
                    sys.executable, ckptfs.TESTS / "servers/few_workers.py", self.directory, str(workers),
                    self.link.far, stdout=subprocess.PIPE, text=True)
                port = server.stdout.readline().strip()
                mount = self.mount(f"http://{self.link.far}:{port}/m.safetensors")
                begin = time.monotonic()
                for i in range(TENSORS):
                    self.assertEqual(ckptfs.read(mount / f"t{i}.memmap"),
                                     self.data[i * TENSOR:(i + 1) * TENSOR])
                # The connection of the mount has the worker, and would keep it while idle.
                self.assertLess(time.monotonic() - begin, 5)
                # It is closed soon after the last read, so that another client gets the worker.
                with socket.create_connection((self.link.far, int(port))) as other:
                    other.sendall(b"GET /m.safetensors HTTP/1.1\r\nRange: bytes=0-0\r\n\r\n")
                    other.settimeout(4)
                    self.assertTrue(other.recv(100).startswith(b"HTTP/1.1 206"))
                mount.release()
                server.kill()
                server.communicate()

    def test_a_read_survives_a_black_hole_of_a_second(self):
        mount = self.mount(self.server.url("/m.safetensors"))
        with self.link.black_hole():
            reader = subprocess.Popen(["cat", mount / "t1.memmap"], stdout=subprocess.PIPE)
            time.sleep(1)
            self.assertIsNone(reader.poll())
        self.assertEqual(reader.communicate(timeout=30)[0], self.data[TENSOR:])


class Links(Case):
    def fetch(self, wire, size):
        """Returns how many seconds a connection takes to send so many bytes over the link."""
        with socket.create_server((wire.near, 0)) as server:
            address = server.getsockname()
            code = f"import socket; socket.create_connection({address}).sendall(bytes({size}))"
            wire.start(sys.executable, "-c", code)
            connection, _ = server.accept()
            with connection:
                begin, received = time.monotonic(), 0
                while piece := connection.recv(MIB):
                    received += len(piece)
                self.assertEqual(received, size)
                return time.monotonic() - begin

    def test_has_latency(self):
        def connect():
            try:
                socket.create_connection((self.link.far, 9), timeout=5)
            except ConnectionRefusedError:
                pass
        seconds = min(self.seconds(connect) for _ in range(3))
        self.assertGreaterEqual(seconds, RTT_MS / 1000)
        self.assertLess(seconds, 1.5 * RTT_MS / 1000)

    def test_has_a_rate_and_counts_what_it_carries(self):
        size = 4 * MIB
        with Link(rtt_ms=1, mbit=100) as slow:
            seconds = self.fetch(slow, size)
            received = slow.traffic()[1]
        self.assertGreater(seconds, 0.9 * size * 8 / 100e6)
        self.assertTrue(size <= received.bytes <= 1.02 * size, received)
        self.assertTrue(size // 1448 <= received.packets <= 1.1 * size / 1448, received)

    def test_loses_packets(self):
        with Link(rtt_ms=1, mbit=1000, loss=2) as poor:
            self.fetch(poor, MIB)
            received = poor.traffic()[1]
        self.assertTrue(0 < received.dropped < 0.1 * received.packets, received)

    def test_drops_packets_that_its_queue_does_not_hold(self):
        with Link(rtt_ms=10, mbit=50, queue_kib=64) as shallow:
            self.fetch(shallow, 4 * MIB)
            self.assertGreater(shallow.traffic()[1].dropped, 0)

    def test_changes_its_latency(self):
        with Link(rtt_ms=50, mbit=100) as changing:
            changing.reshape(rtt_ms=1, mbit=MBIT)
            self.assertLess(self.fetch(changing, MIB), 0.1)

    def test_two_links_have_their_own_addresses(self):
        with Link(rtt_ms=1, mbit=MBIT) as other:
            self.assertNotEqual(other.far, self.link.far)
            self.fetch(other, MIB)

    def test_leaves_nothing_behind(self):
        with Link(rtt_ms=1, mbit=MBIT) as short:
            name = "ckptfs" + short.near.split(".")[2]
            process = short.start("sleep", "60")
            self.assertTrue(Path("/sys/class/net", name).exists())
        self.assertIsNotNone(process.returncode)
        self.assertFalse(Path("/sys/class/net", name).exists())
