"""What the tests of stores share."""

import json
import os
import re
import signal

import ckptfs
import craft


def write_safetensors(path, data, name="a"):
    """A file with one tensor of bytes."""
    header = {name: {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}}
    craft.write_safetensors(path, json.dumps(header), data)


def names(directory):
    return sorted(os.listdir(getattr(directory, "path", directory)))


class Case(ckptfs.Case):
    def setUp(self):
        self.folder = self.scratch() / "runs"
        self.folder.mkdir()

    def write(self, name, data=b"aaaa"):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_safetensors(path, data)
        return path

    def write_two(self):
        self.write("x.safetensors", b"xxxx")
        self.write("y.safetensors", b"yyyy")

    def mount_logged(self, *options):
        """Mounts with a log file."""
        self.log = self.scratch() / "log"
        return self.mount(self.folder, "-o", ",".join((f"logfile={self.log}", *options)))

    def status(self, mount):
        """Trees in memory, MiB of them, and lookups that the kernel holds."""
        before = self.log.read_text().count("trees:")
        os.kill(mount.daemon, signal.SIGUSR1)
        ckptfs.wait_until(lambda: self.log.read_text().count("trees:") > before)
        found = re.findall(r"trees: (\d+) in memory, ([\d.]+) of [\d.]+ MiB, (\d+) lookups held",
                           self.log.read_text())
        count, mib, held = found[-1]
        return int(count), float(mib), int(held)
