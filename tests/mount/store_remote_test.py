"""Stores in buckets of S3, which are listed again from time to time. The server is a real one."""

import errno
import json
import os
import time

import ckptfs
import s3_case


def tensor(body):
    """A file of safetensors with one tensor."""
    header = json.dumps({"w": {"dtype": "U8", "shape": [len(body)],
                               "data_offsets": [0, len(body)]}}).encode()
    return len(header).to_bytes(8, "little") + header + body


class Remote(s3_case.Case):
    def put_two(self, prefix):
        self.put(f"{prefix}/x.safetensors", tensor(b"xxxx"))
        self.put(f"{prefix}/sub/y.safetensors", tensor(b"yyyy"))
        self.put(f"{prefix}/sub/z.safetensors", tensor(b"zzzz"))
        self.put(f"{prefix}/notes.txt", b"notes\n")

    def mount_prefix(self, prefix, *options):
        return self.mount(f"s3://models/{prefix}/", *options, env=self.somebody())

    def test_a_prefix_is_mirrored(self):
        self.put_two("mirror")
        mount = self.mount_prefix("mirror")
        self.assertEqual(sorted(os.listdir(mount.path)),
                         ["notes.txt", "sub", "x.safetensors", "x.safetensors.d"])
        self.assertEqual(ckptfs.read(mount / "notes.txt"), b"notes\n")
        self.assertEqual(ckptfs.read(mount / "x.safetensors"), tensor(b"xxxx"))
        self.assertEqual(ckptfs.read(mount / "x.safetensors.d/w.memmap"), b"xxxx")
        self.assertEqual(ckptfs.read(mount / "sub/y.safetensors.d/w.memmap"), b"yyyy")

    def test_a_corrupt_object_shows_its_error(self):
        self.put_two("corrupt")
        self.put("corrupt/bad.safetensors", tensor(b"bad!")[:-1])
        time.sleep(2.1)
        mount = self.mount_prefix("corrupt")
        alone = self.ckptfs("s3://models/corrupt/bad.safetensors", self.mountpoint(),
                            env=self.somebody()).stderr
        self.assertEqual("ckptfs: " + (mount / "bad.safetensors.d/error.txt").read_text(), alone)
        self.assertEqual(ckptfs.read(mount / "x.safetensors.d/w.memmap"), b"xxxx")

    def test_a_prefix_is_listed_again_after_the_refresh_time(self):
        self.put_two("live")
        mount = self.mount_prefix("live", "-orefresh=1")
        kept = self.mount_prefix("live")  # Refreshes after a minute.
        for each in (mount, kept):
            self.assertEqual(ckptfs.read(each / "x.safetensors.d/w.memmap"), b"xxxx")
            self.assertFalse((each / "new.safetensors.d").exists())
        self.put("live/new.safetensors", tensor(b"new!"))
        path = mount / "new.safetensors.d/w.memmap"
        ckptfs.wait_until(path.exists, 6)
        self.assertEqual(ckptfs.read(path), b"new!")
        self.assertFalse((kept / "new.safetensors.d").exists())
        self.client.delete_object(Bucket="models", Key="live/x.safetensors")
        ckptfs.wait_until(lambda: not (mount / "x.safetensors.d").exists(), 6)

    def test_a_replaced_object_is_stale_and_then_the_new_one(self):
        self.put_two("replaced")
        mount = self.mount_prefix("replaced", "-orefresh=1")
        path = mount / "x.safetensors.d/w.memmap"
        with open(path, "rb", buffering=0) as old:
            self.put("replaced/x.safetensors", tensor(b"NEWER"))
            try:
                self.assertEqual(old.read(), b"xxxx")
            except OSError as error:
                self.assertEqual(error.errno, errno.ESTALE)

            def is_new():
                try:
                    return ckptfs.read(path) == b"NEWER"
                except OSError as error:
                    if error.errno not in (errno.ESTALE, errno.ENOENT):
                        raise
                    return False

            ckptfs.wait_until(is_new, 6)
