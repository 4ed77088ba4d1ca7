"""A checkpoint on a web server that is read as programs read one, over a link with latency under the
kernel's own TCP: what is fetched, and with how many requests."""

import concurrent.futures
import json
import mmap
import os
import random
import sys
import tempfile
from pathlib import Path

import ckptfs
import craft

sys.path.insert(0, str(ckptfs.TESTS / "servers"))
import link
import nginx
from link import Link
from nginx import Nginx

KIB = 1 << 10
MIB = 1 << 20
TENSORS = 96
TENSOR = 256 * KIB
LARGE = 8 * MIB


class Orders(ckptfs.Case):
    """96 tensors of 256 KiB, whose order in the file is not that of their names, and a large one."""

    @classmethod
    def setUpClass(cls):
        cls.missing = link.why_missing() or (
            None if nginx.is_there() else "avoidable: there is no nginx")
        if cls.missing:
            return
        directory = tempfile.TemporaryDirectory(prefix="ckptfs-test.")
        cls.addClassCleanup(directory.cleanup)
        os.chmod(directory.name, 0o755)
        names = [f"t{i * 37 % TENSORS:03}" for i in range(TENSORS)]
        sizes = {name: TENSOR for name in names} | {"z": LARGE}
        cls.content = {name: random.Random(name).randbytes(size) for name, size in sizes.items()}
        header, offset = {}, 0
        for name, size in sizes.items():
            header[name] = {"dtype": "U8", "shape": [size], "data_offsets": [offset, offset + size]}
            offset += size
        craft.write_safetensors(Path(directory.name) / "m.safetensors", json.dumps(header),
                                b"".join(cls.content.values()))
        cls.in_file_order = list(sizes)
        cls.size = offset
        cls.link = cls.enterClassContext(Link(20, 1000))
        cls.server = cls.enterClassContext(Nginx(directory.name, link=cls.link))

    def setUp(self):
        if self.missing:
            self.skipTest(self.missing)

    def fetched(self, *options):
        """A new mount, and a function that returns what has been fetched since: bytes, requests."""
        mount = self.mount(self.server.url("/m.safetensors"), *options)
        before = self.link.bytes_received(), len(self.server.log())
        return mount, lambda: (self.link.bytes_received() - before[0],
                               len(self.server.log()) - before[1])

    def assert_read_once(self, names):
        mount, fetched = self.fetched()
        for name in names:
            self.assertEqual(ckptfs.read(mount / f"{name}.memmap"), self.content[name])
        size, requests = fetched()
        # The link counts headers and retransmissions, too.
        self.assertLess(size, 1.02 * self.size + requests * 1000)
        self.assertLess(requests, 100)

    def test_in_the_order_of_the_file(self):
        self.assert_read_once(self.in_file_order)

    def test_in_the_order_of_names(self):
        self.assert_read_once(sorted(self.content))

    def test_in_reverse(self):
        self.assert_read_once(self.in_file_order[::-1])

    def test_shuffled(self):
        names = list(self.content)
        random.Random(1).shuffle(names)
        self.assert_read_once(names)

    def test_backward(self):
        """memcpy copies a mapped file from its end to its begin, after a look at the begin, if the
        addresses suggest it: numpy.array() does that with every large tensor."""
        mount, fetched = self.fetched()
        for name in sorted(self.content):
            content = self.content[name]
            with open(mount / f"{name}.memmap", "rb") as file, \
                    mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                self.assertEqual(mapped[0], content[0])
                for place in range(len(content) - 4 * KIB, -1, -4 * KIB):
                    self.assertEqual(mapped[place:place + 4 * KIB], content[place:place + 4 * KIB])
        size, requests = fetched()
        self.assertLess(size, 1.05 * self.size)
        self.assertLess(requests, 150)

    def test_by_threads_that_share_each_tensor(self):
        """PyTorch copies a large tensor so."""
        mount, fetched = self.fetched()
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for name in sorted(self.content):
                with open(mount / f"{name}.memmap", "rb") as file, \
                        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                    half = len(mapped) // 2
                    parts = pool.map(lambda begin: mapped[begin:begin + half], (half, 0))
                    self.assertEqual(b"".join(reversed(list(parts))), self.content[name])
        size, requests = fetched()
        self.assertLess(size, 1.05 * self.size)
        self.assertLess(requests, 150)

    def test_by_eight_threads(self):
        mount, fetched = self.fetched()
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            contents = pool.map(lambda name: ckptfs.read(mount / f"{name}.memmap"),
                                sorted(self.content))
            self.assertEqual(dict(zip(sorted(self.content), contents)), self.content)
        self.assertLess(fetched()[0], 1.05 * self.size)

    def test_a_single_tensor_costs_little_more_than_itself(self):
        mount, fetched = self.fetched()
        self.assertEqual(ckptfs.read(mount / "z.memmap"), self.content["z"])
        self.assertLess(fetched()[0], LARGE + MIB)

    def test_again_when_pages_have_left_the_page_cache(self):
        """The kernel reclaims single pages of a file, even if memory is free. A program that reads
        the file again, such as one of two tensors that share their bytes, needs no others."""
        mount, fetched = self.fetched("-o", "memory=8m")
        for name in sorted(self.content):
            ckptfs.read(mount / f"{name}.memmap")
        places = range(300 * KIB, LARGE, 500 * KIB)
        with open(mount / "z.memmap", "rb", buffering=0) as file:
            for place in places:
                os.posix_fadvise(file.fileno(), place, 4 * KIB, os.POSIX_FADV_DONTNEED)
        before = fetched()[0]
        self.assertEqual(ckptfs.read(mount / "z.memmap"), self.content["z"])
        size = fetched()[0] - before
        self.assertGreater(size, len(places) * 4 * KIB)  # They had left it.
        self.assertLess(size, len(places) * 66 * KIB)

    def test_the_daemon_takes_little_more_than_the_memory_of_its_option(self):
        """However it is read: places at random fill the cache, and whole files the buffers."""
        # meson has malloc fill what it gives out, so that memory which nobody uses would count.
        environment = {k: v for k, v in os.environ.items() if k != "MALLOC_PERTURB_"}
        mount = self.mount(self.server.url("/m.safetensors"), "-o", "memory=16m", env=environment)

        def read_places(seed):
            places = random.Random(seed)
            for _ in range(50):
                name = places.choice(self.in_file_order)
                offset = places.randrange(len(self.content[name]) // 4096) * 4096
                with open(mount / f"{name}.memmap", "rb", buffering=0) as file:
                    self.assertEqual(os.pread(file.fileno(), 4096, offset),
                                     self.content[name][offset:offset + 4096])

        def read_file(name):
            self.assertEqual(ckptfs.read(mount / f"{name}.memmap"), self.content[name])
        with concurrent.futures.ThreadPoolExecutor(8) as readers:
            list(readers.map(read_places, range(16)))
            list(readers.map(read_file, self.content))
        status = Path(f"/proc/{mount.daemon}/status").read_text()
        self.assertLess(int(status.partition("VmHWM:")[2].split()[0]), (16 + 16) << 10)

    def test_page_faults_of_a_mapped_file(self):
        """One costs 64 KiB: 16 KiB before and behind it, in blocks of 32 KiB."""
        mount, fetched = self.fetched()
        with open(mount / "z.memmap", "rb") as file, \
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            places = [(i * 2 + 1) * LARGE // 64 + 5000 for i in range(32)]
            random.Random(2).shuffle(places)
            for place in places:
                self.assertEqual(mapped[place], self.content["z"][place])
        size, requests = fetched()
        self.assertLess(size, len(places) * 66 * KIB)
        self.assertLessEqual(requests, 2 * len(places))

    def test_random_reads(self):
        mount, fetched = self.fetched()
        with open(mount / "z.memmap", "rb", buffering=0) as file:
            for i in range(32):
                place = (i * 11 % 32) * LARGE // 32 + 8192
                self.assertEqual(os.pread(file.fileno(), 4096, place),
                                 self.content["z"][place:place + 4096])
        size, requests = fetched()
        self.assertLess(size, 32 * 34 * KIB)
        self.assertLessEqual(requests, 32)

    def test_headers_of_all_tensors(self):
        """A program that reads 4 KiB of each tensor does not read all of them."""
        mount, fetched = self.fetched()
        for name in self.in_file_order:
            with open(mount / f"{name}.memmap", "rb", buffering=0) as file:
                self.assertEqual(os.pread(file.fileno(), 4096, 100 * KIB),
                                 self.content[name][100 * KIB:104 * KIB])
        self.assertLess(fetched()[0], TENSORS * 34 * KIB + 100 * KIB)

    def test_ahead_beyond_the_memory_with_a_disk(self):
        with tempfile.TemporaryDirectory(prefix="ckptfs-test.") as cache:
            mount, fetched = self.fetched("-o", f"memory=8m,cache_dir={cache}/c")
            for name in sorted(self.content):
                self.assertEqual(ckptfs.read(mount / f"{name}.memmap"), self.content[name])
            self.assertLess(fetched()[0], 1.05 * self.size)
