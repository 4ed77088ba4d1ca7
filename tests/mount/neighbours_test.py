"""Other users and processes of the machine: what they may do to a mount, and a mount to them."""

import contextlib
import errno
import http.server
import os
import pwd
import shutil
import signal
import threading
from pathlib import Path

import ckptfs

SAMPLE = ckptfs.SAMPLES / "demo.pth"
TENSOR = "projection.memmap"
WANTED = bytes.fromhex("0000 4040 803f 8040 0040 a040")


class Root(ckptfs.Case):
    def setUp(self):
        if os.geteuid() != 0:
            self.skip_avoidable("needs root")


class OneFile(http.server.BaseHTTPRequestHandler):
    """Serves SAMPLE, by ranges, after a function was called with the first request."""

    def do_GET(self):
        hook, self.server.hook = self.server.hook, None
        if hook:
            hook()
        data = SAMPLE.read_bytes()
        first, _, last = self.headers.get("Range", "bytes=0-")[6:].partition("-")
        if not first:
            first, last = max(0, len(data) - int(last)), ""
        first, last = int(first), min(int(last or len(data)), len(data) - 1)
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        self.send_header("Content-Length", str(last + 1 - first))
        self.send_header("ETag", '"1"')
        self.end_headers()
        self.wfile.write(data[first:last + 1])

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def serving(hook):
    """A web server with SAMPLE at the URL; `hook` runs while ckptfs waits for its first answer."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), OneFile)
    server.hook = hook
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/m.pth"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class MountPoint(Root):
    """It is checked first, and mounted on after the checkpoint was read."""

    def setUp(self):
        super().setUp()
        self.base = self.scratch()
        self.victim = self.base / "victim"
        self.victim.mkdir()
        self.place = self.base / "mnt"

    def refuse_after(self, hook, *options):
        with serving(hook) as url:
            done = self.ckptfs(*options, url, self.place)
        self.assertFalse(ckptfs.is_mounted(self.victim))
        return done

    def swap(self):
        self.place.rename(self.base / "away")
        self.place.symlink_to(self.victim)

    def test_that_is_replaced_by_a_link_covers_nothing_else(self):
        self.place.mkdir()
        self.assertRefusedLike(self.refuse_after(self.swap), ckptfs.MOUNTPOINT,
                               f"{self.place}: the mount point was replaced")
        self.assertFalse(ckptfs.is_mounted(self.base / "away"))

    def test_that_is_below_a_directory_which_is_replaced(self):
        inner = self.base / "parent" / "mnt"
        inner.mkdir(parents=True)
        self.place = inner
        (self.victim / "mnt").mkdir()

        def swap():
            (self.base / "parent").rename(self.base / "away")
            (self.base / "parent").symlink_to(self.victim)

        done = self.refuse_after(swap)
        self.assertEqual(done.returncode, ckptfs.MOUNTPOINT, done.stderr)
        self.assertFalse(ckptfs.is_mounted(self.victim / "mnt"))

    def test_that_is_missing_is_not_made_where_a_link_leads(self):
        done = self.refuse_after(lambda: self.place.symlink_to(self.victim))
        self.assertEqual(done.returncode, ckptfs.MOUNTPOINT, done.stderr)
        self.assertEqual(os.listdir(self.victim), [])

    def test_what_covers_the_mount_stays_when_it_ends(self):
        mount = self.mount(SAMPLE)
        place = f"{mount.path}/."  # As the argument by which its daemon is found.
        self.assertEqual(self.ckptfs("-o", "nonempty", SAMPLE, place).returncode, 0)
        cover = ckptfs.Mount(mount.path, self.daemon_of(place), "")
        self.addCleanup(cover.release)
        os.kill(mount.daemon, signal.SIGTERM)
        self.assertEqual(mount.wait(), 0)
        self.assertTrue(ckptfs.is_mounted(mount.path))
        self.assertEqual(ckptfs.read(cover / TENSOR), WANTED)
        self.assertEqual(cover.unmount(), 0)
        ckptfs.run("umount", "-l", mount.path)

    def test_what_is_mounted_there_next_stays_when_a_daemon_ends_late(self):
        mount = self.mount(SAMPLE)
        os.kill(mount.daemon, signal.SIGSTOP)
        try:
            ckptfs.run("fusermount3", "-u", mount.path, check=True)
            place = f"{mount.path}/."
            self.assertEqual(self.ckptfs(SAMPLE, place).returncode, 0)
        finally:
            os.kill(mount.daemon, signal.SIGCONT)
        after = ckptfs.Mount(mount.path, self.daemon_of(place), "")
        self.addCleanup(after.release)
        self.assertEqual(mount.wait(), 0)
        self.assertEqual(ckptfs.read(after / TENSOR), WANTED)
        self.assertEqual(after.unmount(), 0)

    def test_a_mount_whose_connection_is_aborted_goes_away(self):
        mount = self.mount(SAMPLE)
        connection = os.minor(os.stat(mount.path).st_dev)
        control = self.scratch()
        ckptfs.run("mount", "-t", "fusectl", "none", control, check=True)
        self.addCleanup(ckptfs.run, "umount", control)
        (control / str(connection) / "abort").write_text("1")
        mount.wait()
        self.assertFalse(ckptfs.is_mounted(mount.path))

    def test_the_table_of_mounts_shows_its_path(self):
        mount = self.mount(SAMPLE)
        table = Path("/proc/self/mountinfo").read_text()
        line, = [each for each in table.splitlines() if each.split()[4] == str(mount.path)]
        self.assertIn(f" - fuse.ckptfs {SAMPLE} ro,", line)
        self.assertIn(" ro,nosuid,nodev", line)


class Made(ckptfs.Case):
    """A mount point that does not exist."""

    def setUp(self):
        self.base = self.scratch()
        self.place = self.base / "mnt"

    def test_is_made_and_goes_away_with_the_mount(self):
        for end in (lambda mount: ckptfs.run("fusermount3", "-u", mount.path, check=True),
                    lambda mount: os.kill(mount.daemon, signal.SIGTERM),
                    lambda mount: self.ckptfs("-u", mount.path)):
            mount = self.mount(SAMPLE, mountpoint=self.place)
            self.assertEqual(ckptfs.read(mount / TENSOR), WANTED)
            end(mount)
            self.assertEqual(mount.wait(), 0)
            self.assertFalse(self.place.exists())

    def test_goes_away_with_a_daemon_that_is_killed_if_auto_unmount_wants_it(self):
        mount = self.mount(SAMPLE, "-o", "auto_unmount", mountpoint=self.place)
        os.kill(mount.daemon, signal.SIGKILL)
        mount.wait()
        ckptfs.wait_until(lambda: not ckptfs.is_mounted(self.place))
        ckptfs.wait_until(lambda: not self.place.exists())

    def test_is_not_made_for_a_checkpoint_that_cannot_be_mounted(self):
        self.assertEqual(self.ckptfs("/dev/null", self.place).returncode, ckptfs.SOURCE)
        self.assertFalse(self.place.exists())

    def test_is_not_made_without_its_parent(self):
        place = self.place / "below"
        self.assertRefusedLike(self.ckptfs(SAMPLE, place), ckptfs.MOUNTPOINT,
                               f"{place}: the mount point and its parent directory do not exist")

    def test_that_was_there_stays(self):
        mount = self.mount(SAMPLE)
        mount.unmount()
        self.assertTrue(mount.path.is_dir())

    def test_has_the_name_of_the_checkpoint_if_none_is_given(self):
        shutil.copy(SAMPLE, self.base / "model.v1.pth.tar")
        done = self.ckptfs("model.v1.pth.tar", cwd=self.base)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        place = self.base / "model.v1"
        self.assertEqual(ckptfs.read(place / TENSOR), WANTED)
        done = self.ckptfs("-u", "model.v1", cwd=self.base)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        ckptfs.wait_until(lambda: not place.exists())

    def test_is_not_the_checkpoint_itself(self):
        shutil.copy(SAMPLE, self.base / "model")
        self.assertRefused(self.ckptfs("model", cwd=self.base), ckptfs.MOUNTPOINT,
                           "model: is the checkpoint itself; name another mount point")


class Unmount(ckptfs.Case):
    def test_of_what_is_no_mount(self):
        directory = self.scratch()
        self.assertRefused(self.ckptfs("-u", directory), ckptfs.MOUNTPOINT,
                           f"{directory}: cannot unmount: nothing is mounted there")

    def test_of_another_file_system(self):
        self.assertRefused(self.ckptfs("-u", "/proc"), ckptfs.MOUNTPOINT,
                           "/proc: cannot unmount: a file system of type proc is mounted there, "
                           "and no checkpoint")
        self.assertTrue(ckptfs.is_mounted("/proc"))

    def test_of_what_does_not_exist(self):
        self.assertRefusedLike(self.ckptfs("-u", "/nowhere"), ckptfs.MOUNTPOINT, "/nowhere: .*")

    def test_of_a_mount_in_use_lists_its_processes(self):
        mount = self.mount(SAMPLE)
        with open(mount / TENSOR, "rb"):
            self.assertRefusedLike(self.ckptfs("-u", mount.path), ckptfs.MOUNTPOINT,
                                   rf"{mount.path}: cannot unmount: in use by [^,]* \({os.getpid()}\);.*")
        self.assertEqual(self.ckptfs("-u", mount.path).returncode, 0)
        self.assertEqual(mount.wait(), 0)

    def test_of_a_dead_mount(self):
        mount = self.mount(SAMPLE)
        os.kill(mount.daemon, signal.SIGKILL)
        mount.wait()
        done = self.ckptfs("-u", mount.path)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertFalse(ckptfs.is_mounted(mount.path))

    def test_takes_one_mount_point(self):
        for operands in [], ["a", "b"]:
            self.assertRefusedLike(self.ckptfs("-u", *operands), ckptfs.USAGE, "-u .*")


class Permissions(ckptfs.Case):
    """A mount is as readable as the checkpoint."""

    def modes_of(self, mode, *options):
        file = self.scratch() / "model.pth"
        shutil.copy(SAMPLE, file)
        file.chmod(mode)
        mount = self.mount(file, *options)
        return [oct(os.stat(path).st_mode & 0o777) for path in (mount / TENSOR, mount.path)]

    def test_of_a_private_checkpoint_are_private(self):
        self.assertEqual(self.modes_of(0o600, "-o", "allow_other"), ["0o400", "0o500"])

    def test_of_a_public_checkpoint_are_public(self):
        self.assertEqual(self.modes_of(0o644, "-o", "allow_other"), ["0o444", "0o555"])

    def test_are_those_of_umask_if_it_is_given(self):
        self.assertEqual(self.modes_of(0o600, "-o", "allow_other,umask=022"), ["0o444", "0o555"])


class Caller(ckptfs.Case):
    """State that the caller passes on to its child."""

    def test_that_ignores_the_end_of_children(self):
        command = 'trap "" CHLD; exec "$0" "$@"'
        done = ckptfs.run("bash", "-c", command, ckptfs.CKPTFS, "/dev/null", self.mountpoint())
        self.assertRefused(done, ckptfs.SOURCE, "/dev/null: not a regular file")
        mountpoint = self.mountpoint()
        done = ckptfs.run("bash", "-c", command, ckptfs.CKPTFS, SAMPLE, mountpoint)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        ckptfs.Mount(mountpoint, self.daemon_of(mountpoint), "").release()

    def test_that_is_sudo_learns_who_owns_the_mount(self):
        if os.geteuid() != 0:
            self.skip_avoidable("needs root")
        environment = os.environ | {"SUDO_UID": "1234"}
        mount = self.mount(SAMPLE, env=environment, quiet=False)
        self.assertRegex(mount.messages, r"\Ackptfs: warning: .*-o allow_other,uid=1234.*\n\Z")
        self.mount(SAMPLE, "-o", "allow_other", env=environment)

    def test_a_daemon_cannot_be_looked_into(self):
        mount = self.mount(SAMPLE)
        self.assertIn("Max core file size        0", Path(f"/proc/{mount.daemon}/limits").read_text())
        self.assertEqual(os.stat(f"/proc/{mount.daemon}/environ").st_uid, 0)

    def test_without_a_system_log(self):
        if os.geteuid() != 0:
            self.skip_avoidable("needs root")
        mountpoint = self.mountpoint()
        # An empty /dev but for what is needed, in a namespace of its own.
        script = ('mount -t tmpfs none /mnt && touch /mnt/fuse /mnt/null && mount --bind /dev/fuse '
                  '/mnt/fuse && mount --bind /dev/null /mnt/null && mount --rbind /mnt /dev && '
                  '"$0" "$1" "$2" && cat "$2"/meta.json >/dev/null && "$0" -u "$2"')
        done = ckptfs.run("unshare", "-m", "sh", "-c", script, ckptfs.CKPTFS, SAMPLE, mountpoint)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_without_the_capability_to_mount_fails_with_its_name(self):
        if os.geteuid() != 0:
            self.skip_avoidable("needs root")
        self.need_command("setpriv")
        done = ckptfs.run("setpriv", "--bounding-set=-sys_admin", "--inh-caps=-all", ckptfs.CKPTFS,
                          SAMPLE, self.mountpoint())
        self.assertRefusedLike(done, ckptfs.FUSE, ".*cannot mount: .*CAP_SYS_ADMIN.*")
        self.assertIn("/dev/fuse", done.stderr)
        self.assertIn("AppArmor", done.stderr)


class User(Root):
    """A user who is not root mounts with fusermount3. /dev/fuse is opened for the time of the test."""

    def setUp(self):
        super().setUp()
        self.need_command("fusermount3")
        self.need_command("setpriv")
        self.user = pwd.getpwnam("nobody")
        mode = os.stat("/dev/fuse").st_mode & 0o7777
        self.addCleanup(os.chmod, "/dev/fuse", mode)
        os.chmod("/dev/fuse", 0o666)
        self.base = self.scratch()
        self.file = self.base / "model.pth"
        shutil.copy(SAMPLE, self.file)
        for path in self.base, self.file:
            os.chown(path, self.user.pw_uid, self.user.pw_gid)

    def run_as_user(self, *command):
        return ckptfs.run("setpriv", f"--reuid={self.user.pw_uid}", f"--regid={self.user.pw_gid}",
                          "--clear-groups", *command, cwd="/")

    def mount_as_user(self, *options):
        place = self.base / "mnt"
        done = self.run_as_user(ckptfs.CKPTFS, *options, self.file, place)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        mount = ckptfs.Mount(place, self.daemon_of(place), "")
        self.addCleanup(mount.release)
        return mount

    def test_mounts_reads_and_unmounts(self):
        for command in ["fusermount3", "-u"], [ckptfs.CKPTFS, "-u"]:
            with self.subTest(command=command):
                mount = self.mount_as_user()
                done = self.run_as_user("od", "-An", "-tx1", mount / TENSOR)
                self.assertEqual(done.stdout.split(), WANTED.hex(" ").split())
                self.assertEqual(self.run_as_user(*command, mount.path).returncode, 0)
                self.assertEqual(mount.wait(5), 0)
                self.assertFalse(mount.path.exists())

    def test_unmounts_by_a_signal(self):
        mount = self.mount_as_user()
        os.kill(mount.daemon, signal.SIGTERM)
        self.assertEqual(mount.wait(5), 0)
        self.assertFalse(mount.path.exists())

    def test_has_auto_unmount_without_allow_other(self):
        mount = self.mount_as_user("-o", "auto_unmount")
        os.kill(mount.daemon, signal.SIGKILL)
        mount.wait()
        ckptfs.wait_until(lambda: not ckptfs.is_mounted(mount.path))
        ckptfs.wait_until(lambda: not mount.path.exists())

    def test_cannot_unmount_what_root_has_mounted(self):
        mount = self.mount(SAMPLE, "-o", "allow_other")
        done = self.run_as_user(ckptfs.CKPTFS, "-u", mount.path)
        self.assertRefused(done, ckptfs.MOUNTPOINT,
                           f"{mount.path}: cannot unmount: another user has mounted it")

    def test_that_cannot_open_the_device_fails(self):
        os.chmod("/dev/fuse", 0o600)
        done = self.run_as_user(ckptfs.CKPTFS, self.file, self.base / "mnt")
        self.assertRefusedLike(done, ckptfs.FUSE, "/dev/fuse: Permission denied: .*")

    def test_whose_memory_is_hidden_reads_its_files(self):
        """A process whose memory is hidden opens its own files through /proc/self/fd."""
        mount = self.mount_as_user()
        done = self.run_as_user("cat", f"/proc/{mount.daemon}/environ")
        self.assertIn("Permission denied", done.stderr)


class Identity(ckptfs.Case):
    """The source changes while it is mounted; its time of modification is as before."""

    SIZE = 1 << 20

    def setUp(self):
        self.file = self.scratch() / "model.npy"
        header = ("{'descr': '|u1', 'fortran_order': False, 'shape': (%d,), }" % self.SIZE).ljust(117)
        self.file.write_bytes(b"\x93NUMPY\x01\x00\x76\x00" + header.encode() + b"\n"
                              + b"A" * self.SIZE)
        self.mounted = self.mount(self.file)
        self.tensor = self.mounted / "tensor.memmap"

    def read_end(self):
        return ckptfs.read(self.tensor, self.SIZE - 4096, 4096)

    def edit(self):
        before = os.stat(self.file)
        with open(self.file, "r+b") as file:
            file.seek(-4096, os.SEEK_END)
            file.write(b"B" * 4096)
        os.utime(self.file, ns=(before.st_atime_ns, before.st_mtime_ns))

    def assertStale(self):
        self.assertErrno(errno.ESTALE, self.read_end)

    def test_edited_in_place_with_its_time_set_back(self):
        self.edit()
        self.assertStale()

    def test_edited_in_place_and_covered_by_another_change(self):
        for cover in (lambda: self.file.chmod(0o640),
                      lambda: os.link(self.file, self.file.with_name("other"))):
            with self.subTest():
                self.edit()
                cover()
                self.assertStale()

    def test_by_chmod_it_is_stale(self):
        self.file.chmod(0o640)
        self.assertStale()

    def test_by_a_new_link_it_is_stale(self):
        os.link(self.file, self.file.with_name("other"))
        self.assertStale()

    def test_by_touch_it_is_stale(self):
        self.file.touch()
        self.assertStale()

    def test_moved_it_is_stale(self):
        self.file.rename(self.file.with_name("other"))
        self.assertStale()

    def test_removed_it_goes_on(self):
        self.file.unlink()
        self.assertEqual(self.read_end(), b"A" * 4096)

    def test_replaced_it_goes_on(self):
        other = self.file.with_name("other")
        other.write_bytes(b"B" * self.SIZE)
        other.rename(self.file)
        self.assertEqual(self.read_end(), b"A" * 4096)

    def test_in_a_directory_that_is_moved_it_goes_on(self):
        moved = self.file.parent.with_name(self.file.parent.name + ".moved")
        self.addCleanup(shutil.rmtree, moved)
        self.file.parent.rename(moved)
        self.assertEqual(self.read_end(), b"A" * 4096)
