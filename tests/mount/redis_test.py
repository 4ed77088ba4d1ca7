"""Checkpoints in Redis: as tensorizer stores models there, and as single values. The servers are real ones."""

import errno
import io
import os
import signal
import sys
import threading
import time

import ckptfs
import view
from ckptfs import SOURCE, TESTS

sys.path.insert(0, str(TESTS / "servers"))

try:
    import redis
    import torch
    from redis_server import RedisCluster, RedisServer
    from safetensors.torch import save as save_safetensors
    from tensorizer import TensorDeserializer, TensorSerializer, TensorType
except ImportError as error:
    redis = None
    MISSING = str(error)

NO_VERSIONS = "Redis has no versions: changes of a value that keep its length are not detected"


def raw(tensor):
    tensor = tensor.detach().contiguous().reshape(-1)
    return tensor.view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def found(mount):
    """{dotted key: bytes}"""
    return {".".join(keys): ckptfs.read(what.path)
            for kind, keys, what in view.walk(mount.path) if kind == "tensor"}


class RedisCase(ckptfs.Case):
    def setUp(self):
        if redis is None:
            self.skip_avoidable(MISSING)
        self.need_command("redis-server")

    def start(self, server):
        server.__enter__()
        self.addCleanup(server.close)
        return server

    def mount_quietly(self, source, *options, **more):
        """Mounts `source`; the only warning is that there are no versions."""
        mount = self.mount(source, *options, quiet=False, **more)
        self.assertEqual(mount.messages.count("\n"), 1, mount.messages)
        self.assertIn(NO_VERSIONS, mount.messages)
        return mount

    def value(self, size=1000):
        """A checkpoint as one value, and its bytes by names."""
        state = {"a": torch.arange(size, dtype=torch.float32), "b": torch.ones(3, dtype=torch.int64)}
        file = io.BytesIO()
        torch.save(state, file)
        return file.getvalue(), {name: raw(tensor) for name, tensor in state.items()}

    def model(self):
        """A file of tensorizer with whatever is odd about keys, and its bytes by names."""
        state = {"plain": torch.randn(300_000), "with two spaces": torch.randn(5, 5),
                 "quote\"'\r\n": torch.ones(2), "co:lon:0": torch.ones(4), "empty": torch.zeros(0, 3),
                 "{tag}.x": torch.arange(3), "half": torch.randn(7).bfloat16(),
                 "meta": torch.empty(2, 3, device="meta"),
                 "deep": {"list": [torch.arange(4), torch.ones(3)]},
                 "last": torch.randn(40_000)}  # What is looked at to find the format is in here.
        path = self.scratch() / "m.tensors"
        serializer = TensorSerializer(str(path))
        serializer.write_state_dict(state)
        serializer.close()
        return path

    def store(self, path, client, prefix):
        TensorDeserializer(str(path), lazy_load=True).to_redis(client, prefix)


class Redis(RedisCase):
    """One server for all of these, without a password."""

    @classmethod
    def setUpClass(cls):
        if redis is not None and ckptfs.shutil.which("redis-server"):
            cls.server = RedisServer()
            cls.addClassCleanup(cls.server.close)
            cls.server.start()
            cls.client = cls.server.client()

    def setUp(self):
        super().setUp()
        self.client.flushall()

    def assertSameAsFile(self, mount, path):
        local = self.mount(path, quiet=False)
        self.assertEqual(found(mount), found(local))
        self.assertGreater(len(found(mount)), 8)

    def test_a_model_of_tensorizer_is_the_file_it_was_stored_from(self):
        path = self.model()
        self.store(path, self.client, "my model")
        self.assertSameAsFile(self.mount_quietly(self.server.uri("my model")), path)

    def test_a_pth_is_one_value(self):
        value, tensors = self.value()
        self.client.set("dir/m.pth", value)
        self.assertEqual(found(self.mount_quietly(self.server.uri("dir/m.pth"))), tensors)

    def test_a_value_of_many_ranges_has_every_byte(self):
        value, tensors = self.value(3_000_000)
        self.client.set("m", value)
        self.assertEqual(found(self.mount_quietly(self.server.uri("m"))), tensors)

    def test_a_safetensors_is_one_value(self):
        tensor = torch.randn(100, 7)
        self.client.set("m?x=1#2%20", save_safetensors({"w": tensor}))
        mount = self.mount_quietly(self.server.uri("m?x=1#2%20"))
        self.assertEqual(found(mount), {"w": raw(tensor)})

    def test_another_database_is_named(self):
        value, tensors = self.value()
        self.server.client(db=5).set("m", value)
        self.assertEqual(found(self.mount_quietly(self.server.uri("m?db=5"))), tensors)

    def test_nothing_is_there(self):
        uri = self.server.uri("m")
        self.assertRefused(self.ckptfs(uri, self.mountpoint()), SOURCE,
                           f"{uri}: key 'm': not found, nor a model of tensorizer ('m:header:0')")

    def test_a_list_is_no_checkpoint(self):
        self.client.lpush("m", "x")
        uri = self.server.uri("m")
        self.assertRefused(self.ckptfs(uri, self.mountpoint()), SOURCE,
                           f"{uri}: key 'm': server returned error: WRONGTYPE Operation against a key "
                           "holding the wrong kind of value")

    def test_nobody_listens(self):
        self.assertRefused(self.ckptfs("redis://127.0.0.1:1/m", self.mountpoint()), SOURCE,
                           "redis://127.0.0.1:1/m: cannot connect: Connection refused")

    def test_no_user_comes_in_without_being_allowed_to(self):
        value, tensors = self.value()
        self.client.set("m", value)
        self.client.acl_setuser("reader", enabled=True, passwords=["+pw"], keys=["m*"],
                                commands=["+@read", "+@connection"])
        self.client.acl_setuser("other", enabled=True, passwords=["+pw"], keys=["n*"],
                                commands=["+@read", "+@connection"])
        here = f"127.0.0.1:{self.server.port}/m"
        reader = {"env": os.environ | {"CKPTFS_REDIS_USER": "reader", "CKPTFS_REDIS_PASSWORD": "pw"}}
        self.assertEqual(found(self.mount_quietly(f"redis://{here}", **reader)), tensors)
        self.assertRefused(
            self.ckptfs(f"redis://other:pw@{here}", self.mountpoint()), SOURCE,
            f"redis://{here}: key 'm': server returned error: NOPERM this user has no permissions to "
            "access one of the keys used as arguments")
        self.assertRefused(
            self.ckptfs(f"redis://reader:wrong@{here}", self.mountpoint()), SOURCE,
            f"redis://{here}: server returned error: WRONGPASS invalid username-password pair or "
            "user is "
            "disabled")

    def test_a_missing_key_costs_its_tensor_alone(self):
        path = self.model()
        self.store(path, self.client, "m")
        want = found(self.mount(path, quiet=False))
        data = max(self.client.keys("m:plain:*"), key=lambda key: int(key.rpartition(b":")[2]))
        self.client.delete(data)
        mount = self.mount(self.server.uri("m"), quiet=False)
        self.assertIn(f"keys missing or of another length than in the index: '{data.decode()}'",
                      mount.messages)
        self.assertErrno(errno.EIO, ckptfs.read, mount / "plain.memmap")
        self.assertEqual(ckptfs.read(mount / "half.memmap"), want["half"])

    def test_an_evicted_key_costs_its_tensor_alone(self):
        path = self.model()
        self.store(path, self.client, "m")
        want = found(self.mount(path, quiet=False))
        mount = self.mount_quietly(self.server.uri("m"))
        data = max(self.client.keys("m:plain:*"), key=lambda key: int(key.rpartition(b":")[2]))
        kept = self.client.get(data)
        self.client.delete(data)
        self.assertErrno(errno.EIO, ckptfs.read, mount / "plain.memmap")
        self.client.set(data, kept)  # Nobody knows whether it is the same.
        self.assertErrno(errno.EIO, ckptfs.read, mount / "plain.memmap")
        self.assertEqual(ckptfs.read(mount / "half.memmap"), want["half"])
        self.assertEqual(mount.unmount(), 0)

    def test_a_value_of_another_length_is_stale(self):
        value, _ = self.value(3_000_000)
        self.client.set("m", value)
        mount = self.mount_quietly(self.server.uri("m"))
        self.client.append("m", b"x")
        with self.assertRaises(OSError):
            ckptfs.read(mount / "a.memmap")

    def test_a_damaged_header_is_refused(self):
        self.store(self.model(), self.client, "m")
        self.client.append("m:header:0", b"x")
        uri = self.server.uri("m")
        self.assertRefused(self.ckptfs(uri, self.mountpoint()), SOURCE,
                           f"{uri}: key 'm:header:0': has 262145 bytes behind byte 73, but its "
                           "index has 262144")

    def test_unmounts_while_the_server_hangs(self):
        value, _ = self.value(3_000_000)
        self.client.set("m", value)
        mount = self.mount_quietly(self.server.uri("m"))
        self.server.stop()
        self.addCleanup(self.server.resume)
        reader = threading.Thread(target=lambda: self.assertRaises(
            OSError, ckptfs.read, mount / "a.memmap"))
        reader.start()
        time.sleep(0.3)
        before = time.monotonic()
        os.kill(mount.daemon, signal.SIGTERM)
        mount.wait()
        reader.join()
        self.assertLess(time.monotonic() - before, 5)

    def test_goes_on_where_a_server_comes_back(self):
        value, tensors = self.value(12_000_000)
        server = self.start(RedisServer(save="3600 1"))
        client = server.client()
        client.set("m", value)
        client.save()
        mount = self.mount_quietly(server.uri("m"))
        result = []
        reader = threading.Thread(target=lambda: result.append(found(mount)))
        server.kill()
        reader.start()
        time.sleep(0.2)
        server.start()
        time.sleep(0.05)
        server.restart()
        reader.join()
        self.assertTrue(result and result[0] == tensors)

    def test_a_password_is_wanted(self):
        value, tensors = self.value()
        server = self.start(RedisServer(requirepass="secret"))
        server.client().set("m", value)
        uri = server.uri("m")
        self.assertRefused(self.ckptfs(uri, self.mountpoint()), SOURCE,
                           f"{uri}: key 'm': server returned error: NOAUTH Authentication required")
        environment = os.environ | {"REDISCLI_AUTH": "secret"}
        self.assertEqual(found(self.mount_quietly(uri, env=environment)), tensors)

    def test_the_certificate_of_a_server_is_checked(self):
        self.need_command("openssl")
        value, tensors = self.value()
        server = self.start(RedisServer(tls=True))
        server.client().set("m", value)
        uri = server.uri("m")
        self.assertRefused(self.ckptfs(uri, self.mountpoint()), SOURCE,
                           f"{uri}: certificate verification failed: self-signed certificate (see "
                           "-o cacert=)")
        mount = self.mount_quietly(uri, "-o", f"cacert={server.ca_file}")
        self.assertEqual(found(mount), tensors)


class Cluster(RedisCase):
    def test_large_tensors_are_read_whichever_server_is_named(self):
        """The other servers redirect the requests, after which their replies are discarded."""
        state = {f"layer.{i}": torch.randn(1 << 19) for i in range(6)}  # 2 MiB each.
        want = {name: raw(tensor) for name, tensor in state.items()}
        together, apart = self.scratch() / "m.tensors", self.scratch() / "m.tensors"
        serializer = TensorSerializer(str(together))
        serializer.write_state_dict(state)
        serializer.close()
        serializer = TensorSerializer(str(apart))
        for i, (name, tensor) in enumerate(state.items()):
            serializer.write_tensor(i, name, TensorType.STATE_DICT, tensor)
        serializer.close()
        file = io.BytesIO()
        torch.save(state, file)
        cluster = self.start(RedisCluster(3))
        client = cluster.client()
        self.store(together, client, "together")
        self.store(apart, client, "apart")
        client.set("m.pth", file.getvalue())
        for server in cluster.servers:
            for key in "together", "apart", "m.pth":
                with self.subTest(key, server=cluster.servers.index(server)):
                    found_here = found(self.mount_quietly(server.uri(key)))
                    self.assertTrue(found_here == want)

    def test_keys_are_found_wherever_they_are(self):
        path = self.model()
        value, tensors = self.value(2_000_000)
        cluster = self.start(RedisCluster(3))
        client = cluster.client()
        self.store(path, client, "my model")
        want = found(self.mount(path, quiet=False))
        # All three have some, or this tests nothing.
        self.assertEqual([bool(s.client().dbsize()) for s in cluster.servers], [True] * 3)
        self.assertEqual(found(self.mount_quietly(cluster.uri("my model"))), want)

        name = next(name for name in map(str, range(100))
                    if client.get_node_from_key(name).port != cluster.servers[0].port)
        client.set(name, value)
        mount = self.mount_quietly(cluster.uri(name))
        # Half-way to another server, where it is asked for with ASKING.
        slot = client.keyslot(name)
        source = next(s for s in cluster.servers if s.port == client.get_node_from_key(name).port)
        target = next(s for s in cluster.servers if s is not source)
        ids = {s: s.client().execute_command("CLUSTER MYID").decode() for s in (source, target)}
        target.client().execute_command("CLUSTER SETSLOT", slot, "IMPORTING", ids[source])
        source.client().execute_command("CLUSTER SETSLOT", slot, "MIGRATING", ids[target])
        source.client().execute_command("MIGRATE", "127.0.0.1", target.port, name, 0, 5000)
        self.assertEqual(found(mount), tensors)


if __name__ == "__main__":
    ckptfs.unittest.main()
