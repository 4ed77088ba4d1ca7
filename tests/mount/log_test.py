"""Where the log goes: the terminal, syslog, or a file."""

import os
import re
import signal
import stat
import subprocess

import ckptfs

SAMPLE = ckptfs.SAMPLES / "demo.pth"


class Log(ckptfs.Case):
    def lines(self, file):
        """The messages of a log file; each line must be complete."""
        found = []
        for line in file.read_text().splitlines():
            match = re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ckptfs\[\d+\]: (.*)", line)
            self.assertTrue(match, line)
            found.append(match[1])
        return found

    def foreground(self, *options):
        """Mounts in the foreground, unmounts, and returns the mount point and the messages."""
        mountpoint = self.mountpoint()
        process = subprocess.Popen([ckptfs.CKPTFS, "-f", *options, SAMPLE, mountpoint], text=True,
                                   stderr=subprocess.PIPE)
        self.addCleanup(lambda: (process.kill(), process.wait(), process.stderr.close()))
        ckptfs.wait_until(lambda: ckptfs.is_mounted(mountpoint))
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(20), 0)
        return mountpoint, process.stderr.read()

    def test_in_the_foreground_it_is_standard_error(self):
        mountpoint, said = self.foreground()
        self.assertEqual(said, f"ckptfs: mounted on {mountpoint}\n"
                               f"ckptfs: unmounted from {mountpoint}\n")

    def test_a_file_gets_the_log_of_a_daemon(self):
        file = self.scratch() / "log"
        for count in 1, 2:
            mount = self.mount(SAMPLE, "-o", f"logfile={file}")
            self.assertEqual(mount.unmount(), 0)
            said = self.lines(file)
            self.assertEqual(len(said), 2 * count)
            self.assertEqual(said[-2:],
                             [f"mounted on {mount.path}", f"unmounted from {mount.path}"])
        self.assertEqual(stat.S_IMODE(file.stat().st_mode), 0o600)

    def test_a_file_gets_the_log_of_the_foreground_too(self):
        file = self.scratch() / "log"
        mountpoint, said = self.foreground("-o", f"logfile={file}")
        self.assertEqual(said.count("\n"), 2)
        self.assertEqual(self.lines(file), [f"mounted on {mountpoint}",
                                            f"unmounted from {mountpoint}"])

    def test_a_file_gets_messages_before_the_mount(self):
        file = self.scratch() / "log"
        missing = self.scratch() / "a\x1b[31m\nb.pth"
        done = self.ckptfs("-o", f"logfile={file}", missing, self.mountpoint())
        self.assertEqual(done.returncode, ckptfs.SOURCE)
        self.assertEqual([f"ckptfs: {line}" for line in self.lines(file)],
                         done.stderr.splitlines())
        self.assertIn("a?[31m?b.pth: cannot open", done.stderr)

    def test_a_file_that_is_named_relative_to_the_caller(self):
        directory = self.scratch()
        mount = self.mount(SAMPLE, "-o", "logfile=log", cwd=directory)
        self.assertEqual(mount.unmount(), 0)
        self.assertEqual(len(self.lines(directory / "log")), 2)

    def test_a_file_that_cannot_be_opened(self):
        directory = self.scratch()
        os.mkfifo(directory / "pipe")  # Nobody reads it: to open it must not wait.
        for file, why in ((directory, "Is a directory"),
                          (directory / "missing" / "log", "No such file or directory"),
                          (directory / "pipe", "No such device or address")):
            with self.subTest(file=file):
                self.assertRefused(
                    self.ckptfs("-o", f"logfile={file}", SAMPLE, self.mountpoint(), timeout=20),
                    ckptfs.USAGE, f"{file}: cannot open the log file: {why}")
