"""Checkpoints in Google Cloud Storage and Azure Blob Storage: folders, versions, and who gets which credentials."""

import base64
import errno
import os
import sys

import ckptfs
from ckptfs import SAMPLES, SOURCE
from hub_test import contents, files_of, model

sys.path.insert(0, str(ckptfs.TESTS / "servers"))
from clouds import Azure, Gcs

SHARDED = SAMPLES / "sharded" / "hf_safetensors"
KEY = base64.b64encode(bytes(range(64))).decode()
# Each may be in a key; what they mean to URLs, XML and signatures differs.
ODD = ["a b", "a+b", "50%", "%20", "x?y#z", "ä", "日本", "~-_.!*'()", ":@,;$", "&<>\"'", "=", "..."]


class Cloud:
    """What both have in common. `root` is the URI of the container "models"."""

    def env(self, **variables):
        """The environment without credentials, and with these variables."""
        prefixes = ("AWS_", "AZURE_", "CKPTFS_GCS_", "GCE_", "STORAGE_", "http_proxy")
        mine = {k: v for k, v in os.environ.items() if not k.startswith(prefixes)}
        return mine | self.settings | variables

    def mounted(self, path, *options, quiet=True, **variables):
        with self.mount(self.root + path, *options, env=self.env(**variables), quiet=quiet) as mount:
            return contents(mount)

    def assertError(self, path, sentence, *options, **variables):
        done = self.ckptfs(*options, self.root + path, self.mountpoint(), env=self.env(**variables))
        self.assertRefused(done, SOURCE, f"{self.root}{path}: {sentence}")

    def put_model(self, key="m.safetensors", container="models", **tensors):
        self.store.put(container, key, model(**(tensors or {"w": b"right"})))

    def test_a_folder_is_what_its_files_are_in_a_directory(self):
        with self.mount(SHARDED) as local:
            expected = contents(local)
        for name, content in files_of(SHARDED).items():
            self.store.put("models", f"a b/llm/{name}", content)
        for path in ("a b/llm/", "a b/llm", "a b/llm/model.safetensors.index.json"):
            self.assertEqual(self.mounted(path), expected, path)

    def test_keys_may_be_odd(self):
        for odd in ODD:
            self.put_model(f"odd/{odd}/m{odd}.safetensors", w=odd.encode())
            for path in (f"odd/{odd}/m{odd}.safetensors", f"odd/{odd}/"):
                self.assertEqual(self.mounted(path), [("tensor", "w", odd.encode())], path)

    def test_a_listing_has_several_pages(self):
        self.store.page = 7
        for i in range(50):
            self.store.put("models", f"many/{i:02}.txt", b"")
        self.put_model("many/z.safetensors", w=b"last")
        self.assertEqual(self.mounted("many/"), [("tensor", "w", b"last")])

    def test_an_object_that_was_replaced_is_stale(self):
        self.put_model(w=bytes(64 << 20))
        with self.mount(self.root + "m.safetensors", env=self.env()) as mount:
            self.put_model(w=b"\1" * (64 << 20))
            self.assertErrno(errno.ESTALE, ckptfs.read, mount / "w.memmap", 32 << 20, 10)

    def test_an_empty_object_may_mark_a_folder(self):
        self.store.put("models", "folder", b"")
        self.put_model("folder/m.safetensors")
        for path in ("folder", "folder/"):
            self.assertEqual(self.mounted(path), [("tensor", "w", b"right")])

    def test_what_is_missing_is_named(self):
        self.put_model()
        self.assertError("none", f"no such object: {self.store.missing}, 'No.'")
        self.assertError("none/", "no such object or folder")

    def test_a_private_container_requires_credentials(self):
        self.put_model()
        self.store.private = {"models"}
        for variables in self.credentials():
            self.assertEqual(self.mounted("m.safetensors", **variables), [("tensor", "w", b"right")])
        done = self.ckptfs("-o", "no_sign", self.root + "m.safetensors", self.mountpoint(),
                           env=self.env(**variables))
        self.assertEqual(done.returncode, SOURCE)
        self.assertIsNone(self.store.log[-1]["authorization"])


class Google(Cloud, ckptfs.Case):
    root = "gs://models/"

    def setUp(self):
        self.store = Gcs()
        self.addCleanup(self.store.__exit__)
        self.store.tokens = {"SECRET"}
        self.settings = {"STORAGE_EMULATOR_HOST": self.store.url, "NO_GCE_CHECK": "true"}

    def credentials(self):
        yield {"CKPTFS_GCS_TOKEN": "SECRET"}
        yield {"CKPTFS_GCS_TOKEN_COMMAND": "echo ' SECRET'"}
        self.store.machine_token = "SECRET"
        yield {"GCE_METADATA_HOST": self.store.host, "NO_GCE_CHECK": ""}

    def test_a_token_file_takes_precedence(self):
        self.put_model()
        self.store.private = {"models"}
        file = self.scratch() / "token"
        file.write_text("SECRET\n")
        self.assertEqual(self.mounted("m.safetensors", "-o", f"token_file={file}", CKPTFS_GCS_TOKEN="other"),
                         [("tensor", "w", b"right")])

    def test_a_token_that_is_refused_is_renewed(self):
        self.put_model(w=bytes(64 << 20))
        file = self.scratch() / "token"
        file.write_text("SECRET")
        with self.mount(self.root + "m.safetensors", env=self.env(CKPTFS_GCS_TOKEN_COMMAND=f"cat {file}")) as mount:
            self.store.tokens = {"NEW"}
            file.write_text("NEW")
            self.assertEqual(ckptfs.read(mount / "w.memmap", 32 << 20, 10), bytes(10))
        self.assertIn("Bearer NEW", [entry["authorization"] for entry in self.store.log])

    def test_errors_of_tokens_are_named(self):
        self.put_model()
        self.store.private = {"models"}
        self.assertError("m.safetensors", "permission denied without credentials: AccessDenied, 'No.'")
        self.assertError("m.safetensors", "permission denied with the credentials of CKPTFS_GCS_TOKEN: "
                         "AuthenticationRequired, 'No.'", CKPTFS_GCS_TOKEN="other")
        self.assertError("m.safetensors", "CKPTFS_GCS_TOKEN_COMMAND 'false': exited with status 1",
                         CKPTFS_GCS_TOKEN_COMMAND="false")
        self.assertError("m.safetensors", "CKPTFS_GCS_TOKEN_COMMAND is empty", CKPTFS_GCS_TOKEN_COMMAND="true")
        endpoint = {"STORAGE_EMULATOR_HOST": self.store.url.replace("127.0.0.1", "0.0.0.0")}
        self.assertError("m.safetensors", "insecure STORAGE_EMULATOR_HOST: a token is sent over https or to this "
                         "machine, not over http", CKPTFS_GCS_TOKEN="SECRET", **endpoint)
        self.assertEqual([entry for entry in self.store.log if entry["authorization"] == "Bearer SECRET"], [])


    def test_uris_that_are_none_are_refused(self):
        for uri in ("gs://", "gs:///key", "gs://user:SECRET@bucket/key", "gs://a b/key"):
            done = self.ckptfs(uri, self.mountpoint(), env=self.env())
            self.assertRefusedLike(done, SOURCE, "gs://.*: (missing bucket|invalid bucket name) \\(expected gs://bucket/key\\)")
            self.assertNotIn("SECRET", done.stderr)


class Microsoft(Cloud, ckptfs.Case):
    root = "az://account/models/"

    def setUp(self):
        self.store = Azure("account", KEY)
        self.addCleanup(self.store.__exit__)
        self.store.signature = "sv=2021-08-06&sig=SECRET%3D"
        self.settings = {"AZURE_STORAGE_BLOB_ENDPOINT": self.store.url}

    def credentials(self):
        yield {"AZURE_STORAGE_SAS_TOKEN": "?" + self.store.signature}
        yield {"AZURE_STORAGE_SAS_TOKEN": self.store.signature, "AZURE_STORAGE_ACCOUNT": "account"}
        yield {"AZURE_STORAGE_KEY": KEY}

    def test_every_request_is_signed(self):
        """Those for odd names and pages, too, and those of the mount."""
        self.settings["AZURE_STORAGE_KEY"] = KEY
        self.store.private = {"models"}
        self.test_keys_may_be_odd()
        self.test_a_listing_has_several_pages()
        self.test_an_object_that_was_replaced_is_stale()
        self.assertEqual([entry for entry in self.store.log if not entry["authorization"]], [])

    def test_a_disk_cache_is_shared_by_signatures(self):
        data = os.urandom(4 << 20)
        self.put_model(w=data)
        cache = self.scratch()
        for signature in ("sig=1", "sig=2"):
            self.store.log.clear()
            self.assertEqual(self.mounted("m.safetensors", "-o", f"cache_dir={cache}", AZURE_STORAGE_SAS_TOKEN=signature),
                             [("tensor", "w", data)])
        self.assertEqual([entry["range"] for entry in self.store.log], ["bytes=0-65535"])

    def test_credentials_of_another_account_are_not_sent(self):
        self.put_model()
        for variables in ({"AZURE_STORAGE_KEY": KEY}, {"AZURE_STORAGE_SAS_TOKEN": self.store.signature}):
            self.assertEqual(self.mounted("m.safetensors", AZURE_STORAGE_ACCOUNT="other", **variables),
                             [("tensor", "w", b"right")])
        self.assertEqual([entry for entry in self.store.log if entry["authorization"] or "SECRET" in entry["path"]], [])

    def test_errors_of_credentials_are_named(self):
        self.put_model()
        self.store.private = {"models"}
        other = base64.b64encode(bytes(64)).decode()
        self.assertError("m.safetensors", "permission denied with the credentials of AZURE_STORAGE_KEY: "
                         "AuthenticationFailed, 'No.'", AZURE_STORAGE_KEY=other)
        self.assertError("m.safetensors", "AZURE_STORAGE_KEY is not a key in base64", AZURE_STORAGE_KEY="SECRET!")
        self.assertError("m.safetensors", "AZURE_STORAGE_SAS_TOKEN is not a query", AZURE_STORAGE_SAS_TOKEN="a b")
        self.assertError("m.safetensors", "server returned status 409: PublicAccessNotPermitted, 'No.'")
        endpoint = {"AZURE_STORAGE_BLOB_ENDPOINT": self.store.url.replace("127.0.0.1", "0.0.0.0")}
        self.assertError("m.safetensors", "insecure AZURE_STORAGE_BLOB_ENDPOINT: a SAS token is sent over https or to "
                         "this machine, not over http", AZURE_STORAGE_SAS_TOKEN="sig=SECRET", **endpoint)

    def test_uris_that_are_none_are_refused(self):
        for uri, sentence in (("az://", "missing container (expected az://account/container/path)"),
                              ("az://account", "missing container (expected az://account/container/path)"),
                              ("az://account/Models/m", "invalid container name 'Models'")):
            done = self.ckptfs(uri, self.mountpoint(), env=self.env())
            self.assertRefused(done, SOURCE, f"{uri}: {sentence}")
        done = self.ckptfs("az://user:SECRET@account/models/m", self.mountpoint(), env=self.env())
        self.assertNotIn("SECRET", done.stderr)


if __name__ == "__main__":
    ckptfs.unittest.main()
