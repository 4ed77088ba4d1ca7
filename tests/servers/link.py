"""A link with latency, rate and loss under the kernel's own TCP: tests/link/tunlink.cc.

    with Link(rtt_ms=50, mbit=1000) as link, Nginx(root, link=link) as server:
        mount(server.url("/m.pth"))         the server is in the network namespace at the far end
        link.start("server", ...)           any other program there; it should listen on link.far
        link.bytes_received()               TCP payload that has come over the link
        with link.black_hole(): ...         all packets are lost meanwhile
        link.reshape(rtt_ms=150, mbit=1000)

Links have addresses of their own, so several can exist at once. The link and its namespace disappear
when this process ends, in whatever way.
"""
import contextlib
import errno
import os
import random
import signal
import subprocess
from pathlib import Path
from typing import NamedTuple

NUMBERS = range(1, 255)


def program():
    """tunlink of the build that $CKPTFS is of, or $CKPTFS_TUNLINK."""
    beside = Path(os.environ.get("CKPTFS", "")).resolve().parents[1] / "tests/link/tunlink"
    return os.environ.get("CKPTFS_TUNLINK") or str(beside)


def why_missing():
    """Why there can be no link; None if there can be."""
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "/dev/net/tun is missing or not ours to open"
    if os.geteuid() != 0:
        return "only root can make network namespaces"
    if not os.access(program(), os.X_OK):
        return f"there is no {program()}"
    return None


class Traffic(NamedTuple):
    """What one direction has carried: packets of at most 1,500 bytes, and bytes of TCP payload,
    retransmissions included. Dropped packets are not in `packets`."""
    packets: int
    bytes: int
    dropped: int


class Link:
    """Between this network namespace, where it has the address `near`, and a new one, where it has the
    address `far`. `rtt_ms` is the round trip, `loss` in percent of packets; each direction has the
    rate `mbit` and a queue of `queue_kib`."""

    def __init__(self, rtt_ms, mbit, loss=0, queue_kib=8192):
        if missing := why_missing():
            raise RuntimeError(missing)
        numbers = list(NUMBERS)
        random.shuffle(numbers)
        for number in numbers:
            command = [program(), str(number), *self._shape(rtt_ms, mbit, loss, queue_kib)]
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=subprocess.PIPE, text=True)
            if self.process.stdout.readline() == "ready\n":
                break
            _, message = self.process.communicate(timeout=10)
            if self.process.returncode != errno.EBUSY:
                raise RuntimeError(message)
        else:
            raise RuntimeError("all numbers of links are in use")
        self.near, self.far = f"10.77.{number}.1", f"10.77.{number}.2"
        self.started = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for process in self.started:
            process.kill()
            process.wait(10)
        self.started.clear()
        self.process.communicate(timeout=10)

    def command(self, *arguments):
        """The command that runs these arguments in the namespace. Its process becomes the program."""
        return ["nsenter", f"--net=/proc/{self.process.pid}/ns/net", "--", *map(str, arguments)]

    def run(self, *arguments, **options):
        """subprocess.run() in the namespace."""
        return subprocess.run(self.command(*arguments), **options)

    def start(self, *arguments, **options):
        """subprocess.Popen() in the namespace. The process is killed when the link is closed."""
        self.started.append(subprocess.Popen(self.command(*arguments), **options))
        return self.started[-1]

    def reshape(self, rtt_ms, mbit, loss=0, queue_kib=8192):
        self._ask(" ".join(self._shape(rtt_ms, mbit, loss, queue_kib)))

    def traffic(self):
        """Two Traffic: to the namespace, and from it."""
        numbers = [int(word) for word in self._ask("").split()]
        return Traffic(*numbers[:3]), Traffic(*numbers[3:])

    def bytes_received(self):
        return self.traffic()[1].bytes

    @contextlib.contextmanager
    def black_hole(self):
        os.kill(self.process.pid, signal.SIGUSR1)
        try:
            yield
        finally:
            os.kill(self.process.pid, signal.SIGUSR1)

    @staticmethod
    def _shape(rtt_ms, mbit, loss, queue_kib):
        return [str(value) for value in (rtt_ms / 2, mbit, loss, queue_kib)]

    def _ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().rstrip("\n")
        if not answer:
            raise RuntimeError(f"tunlink has ended: {self.process.stderr.read()}")
        return answer
