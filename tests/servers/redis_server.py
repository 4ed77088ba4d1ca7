#!/usr/bin/env python3
"""Real Redis servers for tests: on loopback, in memory, each in a process of its own that ends with the test.

    redis_server.py [OPTION VALUE]...    starts one, prints its port, ends with its input

    with RedisServer() as redis:                                  options of redis.conf as keywords
        redis.port, redis.uri("key"), redis.client()              redis-py, to fill it
    RedisServer(requirepass="pw"); RedisServer(tls=True)          redis.ca_file is a certificate to trust
    redis.restart()                                               after kill(); on the same port, empty unless saved
    redis.stop(), redis.resume()                                  SIGSTOP and SIGCONT
    with RedisCluster(3) as cluster:                              masters that share all slots
        cluster.servers, cluster.uri("key"), cluster.client()

Debian: apt-get install --no-install-recommends redis-server openssl
"""
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time


def free_port():
    """A port nobody listens on; a server of a cluster needs the one 10000 above, too."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 10000))
            except (OSError, OverflowError):
                continue
            return port


def certificate(directory):
    """Makes a certificate of 127.0.0.1 and localhost that signs itself; returns it and its key."""
    files = directory / "certificate.pem", directory / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                    "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
                    "subjectAltName=IP:127.0.0.1,DNS:localhost", "-out", files[0], "-keyout", files[1]],
                   check=True, capture_output=True)
    return files


class RedisServer:
    """One server. Of its options, those with an underscore are written with a hyphen."""

    def __init__(self, tls=False, **options):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="ckptfs-redis."))
        self.port = free_port()
        self.tls = tls
        self.ca_file = None
        self.password = options.get("requirepass")
        self.process = None
        self.options = {"bind": "127.0.0.1", "dir": self.directory, "save": "", "appendonly": "no",
                        "loglevel": "warning", "port": 0 if tls else self.port}
        if tls:
            self.ca_file, key = certificate(self.directory)
            self.options |= {"tls_port": self.port, "tls_cert_file": self.ca_file, "tls_key_file": key,
                             "tls_auth_clients": "no"}
        self.options |= options

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def start(self):
        command = ["redis-server", "-"]
        lines = [f'{name.replace("_", "-")} {value if value != "" else chr(34) * 2}'
                 for name, value in self.options.items()]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL, preexec_fn=_die_with_parent)
        self.process.stdin.write("\n".join(lines).encode())
        self.process.stdin.close()
        deadline = time.monotonic() + 10
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError("redis-server does not start") from None
                time.sleep(0.01)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def restart(self):
        if self.process.poll() is None:
            self.kill()
        self.start()

    def stop(self):
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def close(self):
        if self.process is not None:
            self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def uri(self, key):
        return f"redis{'s' if self.tls else ''}://127.0.0.1:{self.port}/{key}"

    def client(self, **options):
        import redis
        options = {"password": self.password} | options
        if self.tls:
            options |= {"ssl": True, "ssl_ca_certs": str(self.ca_file)}
        return redis.Redis("127.0.0.1", self.port, **options)


class RedisCluster:
    """Masters without replicas, each with an equal share of the slots."""

    SLOTS = 16384

    def __init__(self, count=3, **options):
        self.servers = [RedisServer(cluster_enabled="yes", **options) for _ in range(count)]

    def __enter__(self):
        try:
            for server in self.servers:
                server.start()
            self.join()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def join(self):
        clients = [server.client() for server in self.servers]
        share = self.SLOTS // len(clients)
        for i, client in enumerate(clients):
            last = self.SLOTS - 1 if i == len(clients) - 1 else (i + 1) * share - 1
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", i * share, last)
            client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
            for other in self.servers[:i]:
                client.execute_command("CLUSTER", "MEET", "127.0.0.1", other.port)
        deadline = time.monotonic() + 20
        while not all(c.execute_command("CLUSTER INFO")["cluster_state"] == "ok" for c in clients):
            if time.monotonic() > deadline:
                raise RuntimeError("the servers do not become a cluster")
            time.sleep(0.05)

    def close(self):
        for server in self.servers:
            server.close()

    def uri(self, key):
        return self.servers[0].uri(key)

    def client(self):
        import redis
        return redis.RedisCluster("127.0.0.1", self.servers[0].port)


def _die_with_parent():
    import ctypes
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def main():
    words = sys.argv[1:]
    options = {name.replace("-", "_"): value for name, value in zip(words[::2], words[1::2])}
    with RedisServer(**options) as server:
        print(server.port, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
