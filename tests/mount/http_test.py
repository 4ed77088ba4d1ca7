"""Checkpoints on a web server: what it may be like, what it may ask for, and where it may lead."""

import errno
import hashlib
import json
import os
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ckptfs
import craft
from ckptfs import FORMAT, SOURCE

sys.path.insert(0, str(ckptfs.TESTS / "servers"))
import nginx
from fault_server import FaultServer

SIZE = 1 << 20  # Of each tensor, in bytes.
NAMES = "abcd"


def content(name):
    return hashlib.sha256(name.encode()).digest() * (SIZE // 32)


def write_model(path):
    header = {name: {"dtype": "U8", "shape": [SIZE], "data_offsets": [i * SIZE, (i + 1) * SIZE]}
              for i, name in enumerate(NAMES)}
    craft.write_safetensors(path, json.dumps(header), b"".join(map(content, NAMES)))


def without_secrets(**variables):
    """The environment without what could authorise, and with these variables."""
    names = ("NETRC", "CKPTFS_HTTP_TOKEN", "HF_TOKEN", "http_proxy", "https_proxy", "all_proxy",
             "ALL_PROXY", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR")
    return {k: v for k, v in os.environ.items() if k not in names} | {"HOME": "/nonexistent"} | variables


class Http(ckptfs.Case):
    @classmethod
    def setUpClass(cls):
        if not nginx.is_there():
            raise ckptfs.unittest.SkipTest("avoidable: there is no nginx or no openssl")
        cls.root = Path(ckptfs.tempfile.mkdtemp(prefix="ckptfs-test."))
        cls.addClassCleanup(shutil.rmtree, cls.root, ignore_errors=True)
        os.chmod(cls.root, 0o755)
        write_model(cls.root / "m.safetensors")
        cls.server = nginx.Nginx(cls.root)
        cls.addClassCleanup(cls.server.close)

    def setUp(self):
        self.server.forget()

    def assertMounts(self, url, *options, **variables):
        with self.mount(url, *options, env=without_secrets(**variables)) as mount:
            for name in NAMES:
                self.assertEqual(ckptfs.read(mount / f"{name}.memmap"), content(name))
            self.assertEqual(mount.unmount(), 0)

    def refused(self, url, *options, **variables):
        return self.ckptfs(*options, url, self.mountpoint(), env=without_secrets(**variables))

    def trust(self):
        return ("-o", f"cacert={self.server.certificate}")


class Reading(Http):
    def test_a_checkpoint_is_read_right(self):
        self.assertMounts(self.server.url("/m.safetensors"))

    def test_every_request_but_the_first_asks_for_the_version_that_was_mounted(self):
        self.assertMounts(self.server.url("/m.safetensors"))
        first, *others = self.server.log()
        self.assertEqual((first["range"], first["match"]), ("bytes=0-65535", ""))
        self.assertTrue(others)
        self.assertEqual([entry for entry in others if not entry["match"]], [])
        self.assertEqual({entry["status"] for entry in [first, *others]}, {206})

    def test_a_scheme_in_capitals(self):
        self.assertMounts(self.server.url("/m.safetensors").replace("http://", "HTTP://"))
        self.assertMounts(self.server.secure_url("/m.safetensors").replace("https://", "Https://"),
                          *self.trust())

    def test_without_a_tag_the_version_is_the_time_with_a_warning(self):
        url = self.server.url("/untagged/m.safetensors")
        mount = self.mount(url, quiet=False)
        self.assertEqual(mount.messages,
                         f"ckptfs: warning: {url}: response without ETag: changes of the same "
                         "length within one second are not detected\n")
        self.assertEqual(ckptfs.read(mount / "b.memmap"), content("b"))
        self.assertTrue(all(entry["since"] for entry in self.server.log()[1:]))

    def test_without_any_version_warns(self):
        url = self.server.url("/undated/m.safetensors")
        mount = self.mount(url, quiet=False)
        self.assertEqual(mount.messages,
                         f"ckptfs: warning: {url}: response without ETag and Last-Modified: changes "
                         "of the same length are not detected\n")
        self.assertEqual(ckptfs.read(mount / "b.memmap"), content("b"))

    def test_the_time_of_the_files_is_that_of_the_server(self):
        os.utime(self.root / "m.safetensors", (1_600_000_000, 1_600_000_000))
        mount = self.mount(self.server.url("/m.safetensors"))
        self.assertEqual((mount / "a.memmap").stat().st_mtime, 1_600_000_000)

    def test_a_server_without_ranges_is_refused(self):
        url = self.server.url("/whole/m.safetensors")
        self.assertRefused(self.refused(url), SOURCE,
                           f"{url}: server does not support range requests: use -o download to "
                           "fetch the file")

    def test_from_a_server_without_ranges_it_is_downloaded_if_asked_to(self):
        self.assertMounts(self.server.url("/whole/m.safetensors"), "-o", "download")
        self.assertEqual(len(self.server.log()), 1)

    def test_a_download_that_has_no_room_is_refused(self):
        url = self.server.url("/whole/m.safetensors")
        self.assertRefused(self.refused(url, "-o", "download", TMPDIR="/nonexistent"), SOURCE,
                           f"{url}: cannot create a temporary file in $TMPDIR or /var/tmp: No such "
                           "file or directory")

    def test_a_small_file_needs_no_ranges(self):
        craft.write_safetensors(self.root / "small.safetensors",
                                '{"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}', b"1234")
        mount = self.mount(self.server.url("/whole/small.safetensors"))
        self.assertEqual(ckptfs.read(mount / "w.memmap"), b"1234")

    def test_an_empty_file_fails(self):
        (self.root / "empty").touch()
        url = self.server.url("/empty")
        self.assertRefused(self.refused(url), FORMAT,
                           f"{url}: not a checkpoint in a supported format: it is empty")

    def test_a_coding_is_refused(self):
        url = self.server.url("/coded/m.safetensors")
        self.assertRefused(self.refused(url), SOURCE,
                           f"{url}: unexpected content encoding 'gzip': no range of the file can be "
                           "read")

    def test_a_missing_file_fails(self):
        url = self.server.url("/missing")
        self.assertRefused(self.refused(url), SOURCE, f"{url}: no such file on the server")

    def test_a_missing_server_fails_at_once(self):
        port, = nginx.free_ports(1)
        url = f"http://127.0.0.1:{port}/m.pth"
        self.assertRefused(self.refused(url), SOURCE,
                           f"{url}: cannot connect: Connection refused")

    def test_a_directory_cannot_be_listed(self):
        url = self.server.url("/")
        self.assertRefused(self.refused(url), SOURCE,
                           f"{url}: is a directory, and directory listings are not supported over "
                           "HTTP: name the checkpoint or its index")

    def test_through_a_proxy(self):
        self.assertMounts("http://files.invalid/m.safetensors",
                          http_proxy=self.server.url(""))

    def test_a_proxy_that_refuses_fails_at_once(self):
        url = "https://files.invalid/m.safetensors"
        done = self.refused(url, https_proxy=self.server.url(""))
        self.assertRefusedLike(done, SOURCE, f"{url}: proxy returned status 40[0-9]")

    def test_a_directory_of_dcp_mounts_by_its_metadata(self):
        shutil.copytree(ckptfs.SAMPLES / "dcp" / "dcp_torch1.13", self.root / "dcp")
        mount = self.mount(self.server.url("/dcp/.metadata"))
        local = self.mount(self.root / "dcp")
        for path in sorted(local.path.rglob("*.memmap")):
            self.assertEqual(ckptfs.read(mount / path.relative_to(local.path)), ckptfs.read(path))

    def test_a_sharded_checkpoint_mounts_by_its_index(self):
        shards = self.root / "sharded"
        shards.mkdir()
        for i, name in enumerate(NAMES):
            craft.write_safetensors(
                shards / f"model {i}.safetensors",
                json.dumps({name: {"dtype": "U8", "shape": [SIZE], "data_offsets": [0, SIZE]}}),
                content(name))
        index = {"metadata": {}, "weight_map": {name: f"model {i}.safetensors"
                                                for i, name in enumerate(NAMES)}}
        (shards / "model.safetensors.index.json").write_text(json.dumps(index))
        self.assertMounts(self.server.url("/sharded/model.safetensors.index.json"))


class Secrets(Http):
    def netrc(self, text):
        path = self.scratch() / "netrc"
        path.write_text(text)
        return path

    def test_a_server_that_requires_a_password_fails(self):
        url = self.server.url("/private/m.safetensors")
        self.assertRefused(self.refused(url), SOURCE,
                           f"{url}: authentication required: put user and password into a netrc "
                           "file, or a token into a file for -o token_file=")

    def test_a_password_in_the_url_is_sent_and_not_shown(self):
        url = self.server.url("/private/m.safetensors").replace("//", "//me:open%20sesame@")
        self.assertMounts(url)

    def test_a_wrong_password_fails_and_is_not_shown(self):
        url = self.server.url("/private/m.safetensors")
        self.assertRefused(self.refused(url.replace("//", "//me:wrong@")), SOURCE,
                           f"{url}: authentication failed with the user and the password in the URL")

    def test_a_password_in_a_netrc_file(self):
        netrc = self.netrc('machine 127.0.0.1 login me password "open sesame"\n')
        self.assertMounts(self.server.url("/private/m.safetensors"), "-o", f"netrc={netrc}")

    def test_a_password_in_the_netrc_file_of_the_environment(self):
        netrc = self.netrc('machine 127.0.0.1 login me password "open sesame"\n')
        self.assertMounts(self.server.url("/private/m.safetensors"), NETRC=str(netrc))

    def test_a_password_in_the_users_netrc_file(self):
        home = self.scratch()
        (home / ".netrc").write_text('machine 127.0.0.1 login me password "open sesame"\n')
        self.assertMounts(self.server.url("/private/m.safetensors"), HOME=str(home))

    def test_a_token_in_a_file(self):
        token = self.scratch() / "token"
        token.write_text("abc.def\n")
        self.assertMounts(self.server.url("/bearer/m.safetensors"), "-o", f"token_file={token}")

    def test_a_token_in_the_environment(self):
        self.assertMounts(self.server.url("/bearer/m.safetensors"), CKPTFS_HTTP_TOKEN="abc.def")

    def test_the_token_of_hugging_face_goes_to_nobody_else(self):
        self.assertMounts(self.server.url("/m.safetensors"), HF_TOKEN="abc.def")
        self.assertEqual({entry["authorization"] for entry in self.server.log()}, {""})


class Certificates(Http):
    def test_of_an_authority_that_is_named_are_trusted(self):
        self.assertMounts(self.server.secure_url("/m.safetensors"), *self.trust())

    def test_of_an_authority_in_the_environment_are_trusted(self):
        self.assertMounts(self.server.secure_url("/m.safetensors"),
                          SSL_CERT_FILE=str(self.server.certificate))

    def test_of_others_are_refused(self):
        url = self.server.secure_url("/m.safetensors")
        self.assertRefused(self.refused(url), SOURCE,
                           f"{url}: certificate verification failed: self-signed certificate (see "
                           "-o cacert=)")

    def test_are_exchanged_once_for_all_connections(self):
        mount = self.mount(self.server.secure_url("/m.safetensors"), *self.trust())
        with ThreadPoolExecutor(len(NAMES)) as threads:
            read = threads.map(lambda name: ckptfs.read(mount / f"{name}.memmap"), NAMES)
            self.assertEqual(list(read), list(map(content, NAMES)))
        resumed = {entry["connection"]: entry["resumed"] for entry in self.server.log()}
        self.assertGreater(len(resumed), 1)
        self.assertEqual(sorted(resumed.values()), ["."] + ["r"] * (len(resumed) - 1))

    def test_of_another_host_are_refused(self):
        url = self.server.secure_url("/m.safetensors").replace("127.0.0.1", "127.0.0.2")
        done = self.refused(url, *self.trust())
        self.assertEqual(done.returncode, SOURCE, done.stderr)

    def test_of_another_authority_after_the_mount_are_an_error_soon(self):
        server = nginx.Nginx(self.root)
        self.addCleanup(server.close)
        trusted = self.scratch() / "trusted.pem"
        shutil.copy(server.certificate, trusted)
        url = server.secure_url("/m.safetensors")
        mount = self.mount(url, "-o", f"cacert={trusted},timeout=60")
        server.replace_certificate()
        began = time.monotonic()
        self.assertErrno(errno.EIO, ckptfs.read, mount / f"{NAMES[1]}.memmap")
        self.assertLess(time.monotonic() - began, 20)

    def test_a_missing_file_of_certificates_fails(self):
        url = self.server.secure_url("/m.safetensors")
        self.assertRefusedLike(self.refused(url, "-o", "cacert=/nonexistent"), SOURCE,
                               ".*: cannot read the certificate file: .*")


class Redirects(Http):
    def other_server(self):
        other = FaultServer(self.root)
        self.addCleanup(other.__exit__)
        return other

    def test_are_followed_once_for_all_reads(self):
        self.assertMounts(self.server.url("/moved/m.safetensors"))
        requests = [entry["request"].split()[1] for entry in self.server.log()]
        self.assertEqual(requests.count("/moved/m.safetensors"), 1)

    def test_in_circles_fail(self):
        url = self.server.url("/loop/m.safetensors")
        self.assertRefused(self.refused(url), SOURCE,
                           f"{url}: too many redirects: more than 10")

    def test_from_https_to_http_are_refused(self):
        url = self.server.secure_url("/plain/m.safetensors")
        self.assertRefused(self.refused(url, *self.trust()), SOURCE,
                           f"{url}: insecure redirect from https to http")

    def test_take_no_secret_to_another_server(self):
        other = self.other_server()
        self.server.lead_to(other.url("/m.safetensors"))
        url = self.server.url("/other/m.safetensors")
        self.assertMounts(url.replace("//", "//me:secret@"))
        self.assertMounts(url, CKPTFS_HTTP_TOKEN="secret")
        log = other.stats()["log"]
        self.assertTrue(log)
        self.assertEqual([entry for entry in log if "authorization" in entry["headers"]], [])
        self.assertEqual(sum(bool(entry["authorization"]) for entry in self.server.log()), 2)

    def test_to_what_expires_are_followed_again(self):
        other = self.other_server()
        self.server.lead_to(other.url("/m.safetensors"))
        mount = self.mount(self.server.url("/other/m.safetensors"))
        other.rules([{"times": 1, "status": 403}])
        self.assertEqual(ckptfs.read(mount / "b.memmap"), content("b"))
        # Fetches that begin before the first of them has followed it do so, too.
        self.assertIn(len(self.server.log()), range(2, 40))

    def test_to_what_is_gone_for_good_are_an_error(self):
        other = self.other_server()
        self.server.lead_to(other.url("/m.safetensors"))
        mount = self.mount(self.server.url("/other/m.safetensors"))
        other.rules([{"status": 404}])
        self.assertErrno(errno.ENOENT, ckptfs.read, mount / "b.memmap")
        self.assertLess(len(self.server.log()), 40)


if __name__ == "__main__":
    ckptfs.unittest.main()
