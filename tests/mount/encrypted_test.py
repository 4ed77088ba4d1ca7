"""Encrypted files: keys, passphrases, where they come from, and what is read without them."""

import errno
import hashlib
import os
import pty
import select
import subprocess
import time

import ckptfs
import sealed
import view
from ckptfs import LIMITS, SOURCE, USAGE

try:
    import torch
    from tensorizer import DecryptionParams, EncryptionParams
except ImportError as error:
    torch = None
    MISSING = str(error)

MODEL = "2.12.1-enc_module.tensors"
PHRASE = "2.12.1-pass.tensors"
CHUNK = 2 << 20


def first(name):
    """A tensor of a sample with bytes, and its path on the mount."""
    tensor = next(t for t in sealed.EXPECTED[name]["tensors"] if t["data_length"])
    return tensor, sealed.dotted(tensor["path"]) + ".memmap"


class Secrets(ckptfs.Case):
    def assertReads(self, mount, name):
        tensor, path = first(name)
        self.assertEqual(hashlib.sha256(ckptfs.read(mount / path)).hexdigest(), tensor["sha256"])

    def environment(self, **variables):
        return {k: v for k, v in os.environ.items() if not k.startswith("CKPTFS_")} | variables

    def test_a_key_file(self):
        sample = sealed.EXPECTED[MODEL]
        self.assertReads(self.mount(sealed.unpack(self, MODEL),
                                    *sealed.options_of(self, sample)), MODEL)

    def test_a_key_file_by_a_relative_path(self):
        file = sealed.unpack(self, MODEL)
        (file.parent / "key").write_bytes(bytes.fromhex(sealed.EXPECTED[MODEL]["key"]))
        self.assertReads(self.mount(file, "-okey_file=key", cwd=file.parent), MODEL)

    def test_a_key_that_comes_through_a_pipe(self):
        reader, writer = os.pipe()
        os.write(writer, bytes.fromhex(sealed.EXPECTED[MODEL]["key"]))
        os.close(writer)
        mount = self.mount(sealed.unpack(self, MODEL), f"-okey_file=/dev/fd/{reader}",
                           pass_fds=[reader])
        os.close(reader)
        self.assertReads(mount, MODEL)

    def test_a_key_in_the_environment(self):
        key = sealed.EXPECTED[MODEL]["key"]
        mount = self.mount(sealed.unpack(self, MODEL), env=self.environment(CKPTFS_KEY=key))
        self.assertReads(mount, MODEL)
        with open(f"/proc/{mount.daemon}/environ", "rb") as environment:
            self.assertNotIn(key.encode(), environment.read())

    def test_a_passphrase_in_the_environment(self):
        phrase = sealed.EXPECTED[PHRASE]["passphrase"]
        mount = self.mount(sealed.unpack(self, PHRASE),
                           env=self.environment(CKPTFS_PASSPHRASE=phrase))
        self.assertReads(mount, PHRASE)
        with open(f"/proc/{mount.daemon}/environ", "rb") as environment:
            self.assertNotIn(phrase.encode(), environment.read())

    def test_a_passphrase_that_is_not_ascii(self):
        name = "2.12.1-pass_unicode.tensors"
        option = sealed.passphrase_file(self, sealed.EXPECTED[name]["passphrase"])
        self.assertReads(self.mount(sealed.unpack(self, name), option), name)

    def test_the_key_is_locked_in_memory_and_left_out_of_core_dumps(self):
        if ckptfs.IS_SANITIZED:
            self.skipTest("sanitizers make mlock do nothing")
        mount = self.mount(sealed.unpack(self, MODEL),
                           *sealed.options_of(self, sealed.EXPECTED[MODEL]))
        self.assertTrue([f for f in sealed.mapped_flags(mount.daemon) if {"lo", "dd"} <= f])

    def test_a_wrong_key_fails_before_the_mount(self):
        file = sealed.unpack(self, MODEL)
        mountpoint = self.mountpoint()
        done = self.ckptfs(sealed.key_file(self, bytes(32)), file, mountpoint)
        self.assertRefusedLike(done, SOURCE, rf"{file}: .*key.*")
        self.assertFalse(ckptfs.is_mounted(mountpoint))

    def test_a_wrong_passphrase(self):
        file = sealed.unpack(self, PHRASE)
        done = self.ckptfs(sealed.passphrase_file(self, "wrong"), file, self.mountpoint())
        self.assertRefusedLike(done, SOURCE, rf"{file}: .*passphrase.*")

    def test_a_passphrase_for_a_file_that_has_a_key(self):
        file = sealed.unpack(self, MODEL)
        done = self.ckptfs(sealed.passphrase_file(self, "any"), file, self.mountpoint())
        self.assertRefusedLike(done, SOURCE, rf"{file}: .*key_file.*")

    def test_a_key_of_the_wrong_length(self):
        done = self.ckptfs(sealed.key_file(self, bytes(31)), sealed.unpack(self, MODEL),
                           self.mountpoint())
        self.assertEqual(done.returncode, SOURCE)
        self.assertRegex(done.stderr, r"\Ackptfs: .*32.*31.*\n\Z|\Ackptfs: .*31.*32.*\n\Z")

    def test_a_key_file_that_is_not_there(self):
        done = self.ckptfs("-okey_file=/nowhere/key", sealed.unpack(self, MODEL), self.mountpoint())
        self.assertRefusedLike(done, SOURCE, r".*/nowhere/key: .*No such file or directory")

    def test_a_key_and_a_passphrase_at_once(self):
        done = self.ckptfs("-okey_file=a,passphrase_file=b", "x", self.mountpoint())
        self.assertRefusedLike(done, USAGE, ".*key_file.*passphrase_file.*")

    def test_a_key_for_a_file_that_is_not_encrypted(self):
        file = sealed.unpack(self, "2.12.1-meta.tensors")
        mount = self.mount(file, sealed.key_file(self, bytes(32)), quiet=False)
        self.assertRegex(mount.messages, r"\Ackptfs: warning: .*key_file.*\n\Z")

    def test_a_derivation_that_asks_for_terabytes(self):
        file = self.scratch() / "bomb.tensors"
        data = bytearray((sealed.FOLDER / "handmade" / "v3_pass.tensors").read_bytes())
        place = data.index(bytes.fromhex("0100 0100 0100000000000000 0020000000000000"))
        data[place + 12:place + 20] = (1 << 42).to_bytes(8, "little")
        file.write_bytes(data)
        option = sealed.passphrase_file(self, "test")
        done = self.ckptfs(option, file, self.mountpoint())
        self.assertRefusedLike(done, LIMITS, rf"{file}: .*{1 << 42}.*")
        # A key that needs no derivation works nevertheless.
        mount = self.mount(file, sealed.key_file(self, sealed.HANDMADE_DERIVED))
        self.assertEqual(len(ckptfs.read(mount / "fc/weight.memmap")), 16)


class NoKey(ckptfs.Case):
    def test_all_but_the_bytes_is_there(self):
        sample = sealed.EXPECTED[MODEL]
        file = sealed.unpack(self, MODEL)
        mount = self.mount(file, quiet=False)
        self.assertEqual(mount.messages.count("\n"), 1, mount.messages)
        self.assertRegex(mount.messages, r"\Ackptfs: warning: .*key.*\n\Z")
        for tensor in sample["tensors"]:
            path = mount / (sealed.dotted(tensor["path"]) + ".memmap")
            with self.subTest(tensor["path"]):
                self.assertEqual(path.stat().st_size, tensor["nbytes"])
                if tensor["nbytes"]:
                    self.assertErrno(errno.ENOKEY, ckptfs.read, path)

    def test_what_is_not_encrypted_is_there_too(self):
        name = "2.12.1-enc_meta.tensors"
        mount = self.mount(sealed.unpack(self, name), quiet=False)
        metas = [t for t in sealed.EXPECTED[name]["tensors"] if not t["data_length"]]
        self.assertTrue(metas)
        for tensor in metas:
            path = mount / (sealed.dotted(tensor["path"]) + ".memmap")
            self.assertEqual(ckptfs.read(path), bytes(tensor["nbytes"]))

    def test_strict_wants_the_key(self):
        done = self.ckptfs("-ostrict", sealed.unpack(self, MODEL), self.mountpoint())
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("strict", done.stderr)


class Terminal(ckptfs.Case):
    """A prompt, on a terminal of its own."""

    def talk(self, name, answer):
        """Runs ckptfs on a terminal and answers it; returns its exit code, what the terminal
        showed, and the mount point."""
        file, mountpoint = sealed.unpack(self, name), self.mountpoint()
        master, slave = pty.openpty()
        process = subprocess.Popen([ckptfs.CKPTFS, file, mountpoint], close_fds=True,
                                   preexec_fn=lambda: os.login_tty(slave))
        os.close(slave)
        shown, is_answered, deadline = b"", False, time.monotonic() + 30
        try:
            while time.monotonic() < deadline:
                if select.select([master], [], [], 0.05)[0]:
                    try:
                        piece = os.read(master, 4096)
                    except OSError:  # The other side is closed.
                        break
                    if not piece:
                        break
                    shown += piece
                elif process.poll() is not None:
                    break
                if b"assphrase" in shown and not is_answered:
                    time.sleep(0.05)  # What is typed before the prompt is thrown away.
                    os.write(master, answer)
                    is_answered = True
            return process.wait(20), shown.decode(), mountpoint
        finally:
            os.close(master)

    def test_a_passphrase_is_asked_for_and_not_shown(self):
        phrase = sealed.EXPECTED[PHRASE]["passphrase"]
        code, shown, mountpoint = self.talk(PHRASE, phrase.encode() + b"\n")
        self.assertEqual(code, 0, shown)
        self.assertNotIn(phrase, shown)
        tensor, path = first(PHRASE)
        with ckptfs.Mount(mountpoint, self.daemon_of(mountpoint), shown) as mount:
            digest = hashlib.sha256(ckptfs.read(mount / path)).hexdigest()
            self.assertEqual(digest, tensor["sha256"])

    def test_a_wrong_answer(self):
        code, shown, mountpoint = self.talk(PHRASE, b"wrong\n")
        self.assertEqual(code, SOURCE, shown)
        self.assertFalse(ckptfs.is_mounted(mountpoint))

    def test_an_empty_answer_mounts_without_a_key(self):
        code, shown, mountpoint = self.talk(PHRASE, b"\n")
        self.assertEqual(code, 0, shown)
        with ckptfs.Mount(mountpoint, self.daemon_of(mountpoint), shown) as mount:
            self.assertErrno(errno.ENOKEY, ckptfs.read, mount / first(PHRASE)[1])

    def test_ctrl_c_ends_it(self):
        code, shown, mountpoint = self.talk(PHRASE, b"\x03")
        self.assertNotEqual(code, 0, shown)
        self.assertFalse(ckptfs.is_mounted(mountpoint))

    def test_a_key_is_never_asked_for(self):
        code, shown, mountpoint = self.talk(MODEL, b"\n")
        self.assertEqual(code, 0, shown)
        self.assertNotIn("passphrase for", shown)
        ckptfs.Mount(mountpoint, self.daemon_of(mountpoint), shown).release()


class Tampered(ckptfs.Case):
    """Chunks of 2 MiB, as the library writes them."""

    def setUp(self):
        if torch is None:
            self.skip_avoidable(MISSING)
        self.file = self.scratch() / "model.tensors"
        self.tensor = torch.randint(0, 256, (4 * CHUNK + 1000,), dtype=torch.uint8)
        parameters = EncryptionParams.random()
        with sealed.writing(self.file, parameters) as writer:
            writer.write_state_dict({"first": self.tensor, "second": self.tensor[:100]})
        self.option = sealed.key_file(self, parameters.key)
        mount = self.mount(self.file, self.option)
        self.place = view.lines(mount.path)[0]["encryption"]["data_offset"]
        mount.unmount()

    def assertHas(self, path, begin, end):
        self.assertEqual(ckptfs.read(path, begin, end - begin),
                         self.tensor.numpy()[begin:end].tobytes())

    def test_any_range_is_decrypted(self):
        mount = self.mount(self.file, self.option)
        path = mount / "first.memmap"
        for begin, end in ((CHUNK - 1, CHUNK + 1), (0, 1), (4 * CHUNK, 4 * CHUNK + 1000),
                           (100, 3 * CHUNK), (4 * CHUNK + 999, 4 * CHUNK + 1000)):
            self.assertHas(path, begin, end)
        self.assertHas(path, 0, len(self.tensor))

    def test_a_chunk_that_was_tampered_with_is_an_error_for_its_range_only(self):
        sealed.flip(self.file, self.place + CHUNK + CHUNK // 2)
        log = open(self.scratch() / "log", "w+b")
        self.addCleanup(log.close)
        mountpoint = self.mountpoint()
        daemon = subprocess.Popen([ckptfs.CKPTFS, "-f", self.option, self.file, mountpoint],
                                  stderr=log)
        ckptfs.wait_until(lambda: ckptfs.is_mounted(mountpoint))
        with ckptfs.Mount(mountpoint, daemon.pid, "") as mount:
            path = mount / "first.memmap"
            for place in (CHUNK, CHUNK + 5000, CHUNK + CHUNK // 2, 2 * CHUNK - 1):
                self.assertErrno(errno.EIO, ckptfs.read, path, place, 1)
            self.assertHas(path, 0, CHUNK)
            self.assertHas(path, 2 * CHUNK, 4 * CHUNK + 1000)
            self.assertEqual(ckptfs.read(mount / "second.memmap"),
                             self.tensor[:100].numpy().tobytes())
            self.assertEqual(mount.unmount(), 0)
        log.seek(0)
        self.assertIn(b"chunk 1", log.read())

    def test_a_tampered_tag(self):
        header = self.place - 8 - 16 * 5
        sealed.flip(self.file, header + 16 * 2)
        mount = self.mount(self.file, self.option)
        self.assertErrno(errno.EIO, ckptfs.read, mount / "first.memmap", 2 * CHUNK, 1)
        self.assertHas(mount / "first.memmap", 3 * CHUNK, 4 * CHUNK)

    def test_a_tampered_first_chunk_does_not_make_the_key_a_wrong_one(self):
        mount = self.mount(self.file, self.option)
        small = view.lines(mount.path)[1]["encryption"]["data_offset"]
        mount.unmount()
        sealed.flip(self.file, small)
        mount = self.mount(self.file, self.option)
        self.assertErrno(errno.EIO, ckptfs.read, mount / "second.memmap")
        self.assertHas(mount / "first.memmap", 0, 1000)

    def test_many_readers_at_once(self):
        mount = self.mount(self.file, self.option)
        readers = [subprocess.Popen(["sha256sum", mount / "first.memmap"], stdout=subprocess.PIPE)
                   for _ in range(6)]
        digests = {reader.communicate()[0].split()[0] for reader in readers}
        self.assertEqual(digests, {hashlib.sha256(self.tensor.numpy().tobytes())
                                   .hexdigest().encode()})

    def test_the_library_agrees(self):
        theirs = sealed.library(self.file, encryption=DecryptionParams.from_key(
            self.option_key()))
        self.assertTrue(torch.equal(theirs["first"], self.tensor))

    def option_key(self):
        with open(self.option.partition("=")[2], "rb") as file:
            return file.read()
