"""The program: its options and exit codes, becoming a daemon, signals, mount(8), other users."""

import os
import pwd
import re
import shutil
import signal
import stat
import subprocess
import time
from pathlib import Path

import ckptfs

SAMPLE = ckptfs.SAMPLES / "demo.pth"
# The upper halves of the float32 0, 3, 1, 4, 2, 5: a matrix that was turned before it was saved.
TENSOR = "projection.memmap"
WANTED = bytes.fromhex("0000 4040 803f 8040 0040 a040")


class Program(ckptfs.Case):
    def test_help_and_version_go_to_stdout(self):
        for option in "-h", "--help":
            done = self.ckptfs(option)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertRegex(done.stdout, r"\Ausage: ckptfs .* CHECKPOINT \[MOUNTPOINT\]\n")
        for option in "-V", "--version":
            done = self.ckptfs(option)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertRegex(done.stdout, r"\Ackptfs \d+\.\d+\.\d+\n")

    def test_mistakes_on_the_command_line_are_one_sentence(self):
        mountpoint = self.mountpoint()
        for arguments, pattern in (
            ([], ".*got 0.*"),
            ([SAMPLE, mountpoint, "x"], ".*got 3.*"),
            (["-z", SAMPLE, mountpoint], ".*-z.*"),
            (["-o", "wibble", SAMPLE, mountpoint], ".*wibble.*"),
            (["-o", "uid=me", SAMPLE, mountpoint], ".*uid.*"),
            (["-o", "gid=-1", SAMPLE, mountpoint], ".*gid.*"),
            (["-o", "umask=9", SAMPLE, mountpoint], ".*umask.*"),
            (["-o"], ".*-o.*"),
        ):
            with self.subTest(arguments=arguments):
                self.assertRefusedLike(self.ckptfs(*arguments), ckptfs.USAGE, pattern)

    def test_options_of_fstab_are_accepted(self):
        self.mount(SAMPLE, "-o",
                   "rw,nosuid,nodev,noexec,noatime,_netdev,nofail,user,x-gvfs-hide,auto")

    def test_exit_0_means_that_the_mount_answers(self):
        mountpoint = self.mountpoint()
        read = 'exec 3<"$2/meta.json" && exec cat <&3 >/dev/null'
        done = ckptfs.run("sh", "-c", f'"$0" "$1" "$2" && {read}', ckptfs.CKPTFS, SAMPLE,
                          mountpoint)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        run = ckptfs.Mount(mountpoint, self.daemon_of(mountpoint), "")
        self.assertEqual(run.unmount(), 0)

    def test_without_room_for_its_threads_it_ends(self):
        if ckptfs.IS_SANITIZED:
            self.skipTest("sanitizers reserve more than any limit of address space")
        mountpoint = self.mountpoint()
        for kibibytes in range(14 << 10, 50 << 10, 3 << 9):
            with self.subTest(kibibytes=kibibytes):
                done = ckptfs.run("prlimit", f"--as={kibibytes << 10}", ckptfs.CKPTFS, SAMPLE, mountpoint,
                                  timeout=20)
                self.assertNotIn("internal error", done.stderr)
                if done.returncode == 0 and ckptfs.is_mounted(mountpoint):
                    ckptfs.run("fusermount3", "-u", mountpoint)
                ckptfs.wait_until(lambda: not ckptfs.is_mounted(mountpoint))
                while True:
                    try:
                        os.waitpid(-1, 0)
                    except ChildProcessError:
                        break

    def test_the_daemon_keeps_nothing_of_its_caller(self):
        mount = self.mount(SAMPLE, pass_fds=())
        self.assertEqual(os.readlink(f"/proc/{mount.daemon}/cwd"), "/")
        self.assertNotEqual(os.getsid(mount.daemon), os.getsid(0))
        for descriptor in 0, 1, 2:
            self.assertEqual(os.readlink(f"/proc/{mount.daemon}/fd/{descriptor}"), "/dev/null")

    def test_an_idle_mount_does_not_wake_up(self):
        mount = self.mount(SAMPLE)
        ckptfs.read(mount / TENSOR)

        def wakeups():
            return sum(int(re.search(r"^voluntary_ctxt_switches:\t(\d+)", status.read_text(), re.M)[1])
                       for status in Path(f"/proc/{mount.daemon}/task").glob("*/status"))

        time.sleep(0.3)
        before = wakeups()
        time.sleep(1.5)
        self.assertLessEqual(wakeups() - before, 2)

    def test_a_caller_that_waits_for_the_end_of_output_is_not_kept_waiting(self):
        # run() reads to the end of the pipes: a daemon that holds them would run into the timeout.
        self.mount(SAMPLE, timeout=20)

    def test_a_caller_without_standard_descriptors(self):
        mountpoint = self.mountpoint()
        ckptfs.run("sh", "-c", 'exec "$0" "$1" "$2" <&- >&- 2>&-', ckptfs.CKPTFS, SAMPLE,
                   mountpoint, check=True)
        self.assertEqual(ckptfs.read(mountpoint / TENSOR), WANTED)
        ckptfs.Mount(mountpoint, self.daemon_of(mountpoint), "").release()

    def foreground(self, option):
        """Mounts with -f or -d and returns the process and its mount point."""
        mountpoint = self.mountpoint()
        process = subprocess.Popen([ckptfs.CKPTFS, option, SAMPLE, mountpoint], text=True,
                                   stderr=subprocess.PIPE)
        self.addCleanup(lambda: (process.kill(), process.wait(), process.stderr.close()))
        ckptfs.wait_until(lambda: ckptfs.is_mounted(mountpoint))
        return process, mountpoint

    def test_it_stays_in_the_foreground_with_f(self):
        process, mountpoint = self.foreground("-f")
        self.assertEqual(ckptfs.read(mountpoint / TENSOR), WANTED)
        self.assertIsNone(process.poll())
        ckptfs.run("fusermount3", "-u", mountpoint, check=True)
        self.assertEqual(process.wait(20), 0)

    def test_the_log_of_d_contains_reads(self):
        process, mountpoint = self.foreground("-d")
        ckptfs.read(mountpoint / TENSOR)
        process.terminate()
        self.assertIn("READ", process.stderr.read().upper())
        self.assertEqual(process.wait(20), 0)


class End(ckptfs.Case):
    """However it ends, it ends soon, unmounted and with exit status 0."""

    def assertEnds(self, *options):
        for number in signal.SIGTERM, signal.SIGINT, signal.SIGHUP:
            with self.subTest(number.name):
                mount = self.mount(SAMPLE, *options)
                os.kill(mount.daemon, number)
                self.assertEqual(mount.wait(5), 0)
                self.assertFalse(ckptfs.is_mounted(mount.path))

    def test_signals_unmount(self):
        self.assertEnds()

    def test_signals_unmount_with_auto_unmount(self):
        self.assertEnds("-o", "auto_unmount")

    def test_fusermount_unmounts(self):
        self.assertEqual(self.mount(SAMPLE).unmount(), 0)

    def test_a_signal_unmounts_under_load(self):
        mount = self.mount(SAMPLE)
        load = 'while cat "$0"/model/h/0/attn/*.memmap "$0"/meta.json; do :; done'
        readers = [subprocess.Popen(["sh", "-c", load, mount.path], stdout=subprocess.DEVNULL,
                                    stderr=subprocess.DEVNULL) for _ in range(4)]
        time.sleep(0.3)
        os.kill(mount.daemon, signal.SIGTERM)
        self.assertEqual(mount.wait(5), 0)
        for reader in readers:
            reader.wait(20)

    def test_a_lazy_unmount_ends_it_once_the_last_file_is_closed(self):
        if os.geteuid() != 0:
            self.skipTest("needs root")
        mount = self.mount(SAMPLE)
        with open(mount / TENSOR, "rb", buffering=0) as file:
            ckptfs.run("umount", "-l", mount.path, check=True)
            self.assertEqual(file.read(), WANTED)
        self.assertEqual(mount.wait(5), 0)

    def test_a_dead_mount_is_recognised(self):
        mount = self.mount(SAMPLE)
        os.kill(mount.daemon, signal.SIGKILL)
        mount.wait()
        self.assertRefusedLike(self.ckptfs(SAMPLE, mount.path), ckptfs.MOUNTPOINT,
                               f"{mount.path}: .*dead mount.*undo it with: .*umount.*")

    def test_auto_unmount_leaves_no_dead_mount(self):
        mount = self.mount(SAMPLE, "-o", "auto_unmount")
        os.kill(mount.daemon, signal.SIGKILL)
        mount.wait()
        ckptfs.wait_until(lambda: not ckptfs.is_mounted(mount.path))


class MountPoint(ckptfs.Case):
    def refused(self, mountpoint, pattern):
        self.assertRefusedLike(self.ckptfs(SAMPLE, mountpoint), ckptfs.MOUNTPOINT, pattern)
        self.assertRefusedLike(self.ckptfs("-f", SAMPLE, mountpoint), ckptfs.MOUNTPOINT, pattern)

    def test_a_mount_point_that_does_not_exist(self):
        missing = self.scratch() / "missing" / "below"
        self.refused(missing, f"{missing}: .*")

    def test_a_mount_point_that_is_a_file(self):
        file = self.scratch() / "file"
        file.touch()
        self.refused(file, f"{file}: .*not a directory.*")

    def test_a_mount_point_that_is_not_empty(self):
        mountpoint = self.mountpoint()
        (mountpoint / "here").touch()
        self.refused(mountpoint, f"{mountpoint}: .*not empty.*nonempty.*")
        self.mount(SAMPLE, "-o", "nonempty", mountpoint=mountpoint)

    def test_a_mount_point_that_is_in_use(self):
        mount = self.mount(SAMPLE)
        self.refused(mount.path, f"{mount.path}: .*mount.*")
        self.assertEqual(ckptfs.read(mount / TENSOR), WANTED)

    def test_a_checkpoint_below_its_own_mount_point_does_not_hang(self):
        mountpoint = self.mountpoint()
        shutil.copy(SAMPLE, mountpoint / "model.pth")
        mount = self.mount(mountpoint / "model.pth", "-o", "nonempty", mountpoint=mountpoint,
                           timeout=20)
        self.assertEqual(ckptfs.read(mount / TENSOR), WANTED)

    def test_a_path_with_blanks_commas_and_backslashes(self):
        directory = self.scratch() / "a b,c\\d\té"
        directory.mkdir()
        shutil.copy(SAMPLE, directory / "model,rw.pth")
        mountpoint = directory / "m n,t"
        mountpoint.mkdir()
        mount = self.mount(directory / "model,rw.pth", mountpoint=mountpoint)
        self.assertEqual(ckptfs.read(mount / TENSOR), WANTED)
        self.assertEqual(mount.unmount(), 0)

    def test_a_mount_on_a_mount(self):
        mount = self.mount(SAMPLE)
        inner = self.mount(SAMPLE, "-o", "nonempty", mountpoint=mount / "model/h/0")
        self.assertEqual(ckptfs.read(inner / TENSOR), WANTED)
        self.assertEqual(inner.unmount(), 0)
        self.assertEqual(ckptfs.read(mount / TENSOR), WANTED)


class OtherUsers(ckptfs.Case):
    """Root mounts, somebody else looks."""

    def setUp(self):
        if os.geteuid() != 0:
            self.skipTest("needs root")
        try:
            self.nobody = pwd.getpwnam("nobody")
        except KeyError:
            self.skipTest("there is no user nobody")

    def as_nobody(self, *command):
        return ckptfs.run("setpriv", f"--reuid={self.nobody.pw_uid}",
                          f"--regid={self.nobody.pw_gid}", "--clear-groups", *command)

    def test_others_see_nothing_unless_allowed(self):
        mount = self.mount(SAMPLE)
        done = self.as_nobody("cat", mount / "meta.json")
        self.assertIn("Permission denied", done.stderr)

    def test_allow_other_lets_them_read(self):
        mount = self.mount(SAMPLE, "-o", "allow_other")
        done = self.as_nobody("sha256sum", mount / TENSOR)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotEqual(self.as_nobody("sh", "-c", f": > {mount / TENSOR}").returncode, 0)

    def test_the_kernel_checks_modes_for_others(self):
        mount = self.mount(SAMPLE, "-o", "allow_other,umask=077")
        self.assertIn("Permission denied", self.as_nobody("cat", mount / "meta.json").stderr)

    def test_a_user_mounts_with_the_help_of_fusermount(self):
        mode = os.stat("/dev/fuse").st_mode
        if mode & 0o006 != 0o006:  # Root's alone, as in containers.
            self.addCleanup(os.chmod, "/dev/fuse", stat.S_IMODE(mode))
            os.chmod("/dev/fuse", stat.S_IMODE(mode) | 0o006)
        mountpoint, file = self.mountpoint(), self.scratch() / "model.pth"
        shutil.copy(SAMPLE, file)
        os.chown(mountpoint, self.nobody.pw_uid, self.nobody.pw_gid)
        done = self.as_nobody(ckptfs.CKPTFS, file, mountpoint)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        mount = ckptfs.Mount(mountpoint, self.daemon_of(mountpoint), "")
        self.addCleanup(mount.release)
        self.assertEqual(self.as_nobody("cat", mountpoint / TENSOR).returncode, 0)
        self.assertEqual(self.as_nobody("fusermount3", "-u", mountpoint).returncode, 0)
        self.assertEqual(mount.wait(5), 0)

    def test_a_user_without_the_device_fails(self):
        mountpoint, file = self.mountpoint(), self.scratch() / "model.pth"
        shutil.copy(SAMPLE, file)
        done = self.as_nobody(ckptfs.CKPTFS, file, mountpoint)
        # The mount point is root's: whether that or the device is looked at first does not matter.
        self.assertIn(done.returncode, (ckptfs.MOUNTPOINT, ckptfs.FUSE))
        self.assertEqual(done.stderr.count("\n"), 1)

    def test_a_source_that_they_may_not_read(self):
        file = self.scratch() / "model.pth"
        shutil.copy(SAMPLE, file)
        file.chmod(0o600)
        mountpoint = self.mountpoint()
        os.chown(mountpoint, self.nobody.pw_uid, self.nobody.pw_gid)
        done = self.as_nobody(ckptfs.CKPTFS, file, mountpoint)
        self.assertEqual((done.returncode, done.stderr),
                         (ckptfs.SOURCE, f"ckptfs: {file}: cannot open: Permission denied\n"))


class Helper(ckptfs.Case):
    """mount.ckptfs, as mount(8) calls it."""

    def helper(self):
        link = self.scratch() / "mount.ckptfs"
        link.symlink_to(ckptfs.CKPTFS)
        return link

    def test_it_mounts_with_the_arguments_that_mount_gives(self):
        mountpoint = self.mountpoint()
        done = ckptfs.run(self.helper(), SAMPLE, mountpoint, "-s", "-v", "-n", "-t", "ckptfs", "-o",
                          "rw,nosuid,uid=3")
        self.assertEqual(done.returncode, 0, done.stderr)
        mount = ckptfs.Mount(mountpoint, self.daemon_of(mountpoint), "")
        self.addCleanup(mount.release)
        self.assertEqual(os.stat(mountpoint).st_uid, 3)

    def test_f_is_a_rehearsal_and_mounts_nothing(self):
        mountpoint = self.mountpoint()
        done = ckptfs.run(self.helper(), SAMPLE, mountpoint, "-f")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertFalse(ckptfs.is_mounted(mountpoint))

    def install(self):
        """Puts the helper where mount(8) looks for it, for the time of the test."""
        if os.geteuid() != 0:
            self.skipTest("needs root")
        link = Path("/sbin/mount.ckptfs")
        if link.exists() or link.is_symlink():
            self.skipTest(f"{link} is there already")
        link.symlink_to(ckptfs.CKPTFS)
        self.addCleanup(link.unlink)

    def test_mount_t_ckptfs(self):
        self.install()
        mountpoint = self.mountpoint()
        done = ckptfs.run("mount", "-t", "ckptfs", SAMPLE, mountpoint, "-o", "allow_other")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        mount = ckptfs.Mount(mountpoint, self.daemon_of(mountpoint), "")
        self.addCleanup(mount.release)
        self.assertEqual(ckptfs.read(mountpoint / TENSOR), WANTED)
        ckptfs.run("umount", mountpoint, check=True)
        self.assertEqual(mount.wait(5), 0)

    def test_a_line_of_fstab(self):
        self.install()
        mountpoint, table = self.mountpoint(), self.scratch() / "fstab"
        options = "defaults,nofail,_netdev,x-systemd.automount"
        table.write_text(f"{SAMPLE} {mountpoint} ckptfs {options} 0 0\n")
        done = ckptfs.run("mount", "--fstab", table, mountpoint)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        mount = ckptfs.Mount(mountpoint, self.daemon_of(mountpoint), "")
        self.addCleanup(mount.release)
        self.assertEqual(ckptfs.read(mountpoint / TENSOR), WANTED)

    def test_mount_passes_on_that_it_failed(self):
        self.install()
        mountpoint = self.mountpoint()
        done = ckptfs.run("mount", "-t", "ckptfs", "/nowhere/model.pth", mountpoint)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("No such file or directory", done.stderr)
