#!/usr/bin/env python3
"""A real web server for tests: nginx, on loopback by default, with a directory of its own.

    with Nginx(root) as server:              or Nginx(root, link=link): at the far end of a Link of link.py
        server.url("/m.pth")             http; server.secure_url("/m.pth") is https
        server.certificate               a file to trust, for its address and localhost
        server.log()                     what was asked: a list of {"request", "status", "range", "match",
                                         "since", "authorization", "agent", "connection", "resumed"}

Below these places the same files are served in other ways:

    /whole/     without ranges                   /untagged/  without ETag
    /coded/     as if they were compressed       /undated/   with neither ETag nor Last-Modified
    /private/   to user "me", password "open sesame"
    /bearer/    to the token "abc.def"
    /moved/     302 to the file itself           /loop/      302 to itself
    /other/     302 to what server.lead_to(URL) said
    /plain/     over https: 302 to http          /listed/    with an index of the directory

It ends with the process that has started it.
"""
import ctypes
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time

CONFIG = """
daemon off;
master_process off;
pid {directory}/pid;
error_log {directory}/error.log;
events {{ worker_connections 256; }}
http {{
  sendfile on;
  log_format headers escape=json '{{"request": "$request", "status": $status, "range": "$http_range", '
    '"match": "$http_if_match", "since": "$http_if_unmodified_since", '
    '"authorization": "$http_authorization", "agent": "$http_user_agent", '
    '"connection": $connection, "resumed": "$ssl_session_reused"}}';
  access_log {directory}/access.log headers;
  client_body_temp_path {directory}/body;
  proxy_temp_path {directory}/proxy;
  fastcgi_temp_path {directory}/fastcgi;
  uwsgi_temp_path {directory}/uwsgi;
  scgi_temp_path {directory}/scgi;
  map $http_authorization $is_bearer {{ default 0; "Bearer abc.def" 1; }}
  server {{
    listen {address}:{port};
    listen {address}:{secure_port} ssl;
    ssl_certificate {certificate};
    ssl_certificate_key {directory}/key.pem;
    ssl_session_cache shared:sessions:1m;
    root {root};
    absolute_redirect off;
    location /whole/ {{ alias {root}/; max_ranges 0; }}
    location /listed/ {{ alias {root}/; autoindex on; }}
    location /coded/ {{ alias {root}/; add_header Content-Encoding gzip; }}
    location /untagged/ {{ alias {root}/; etag off; }}
    location /undated/ {{ alias {root}/; etag off; add_header Last-Modified ""; }}
    location /private/ {{ alias {root}/; auth_basic "files"; auth_basic_user_file {directory}/users; }}
    location /bearer/ {{ alias {root}/; if ($is_bearer = 0) {{ return 401; }} }}
    location ~ ^/moved/(?<file>.*)$ {{ return 302 /$file; }}
    location ~ ^/plain/(?<file>.*)$ {{ return 302 http://{address}:{port}/$file; }}
    location /loop/ {{ return 302 $request_uri; }}
    location /other/ {{ return 302 "{other}"; }}
  }}
}}
"""

PR_SET_PDEATHSIG = 1


def free_ports(count):
    """Ports that nobody listens on."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def password_hash(password):
    return subprocess.run(["openssl", "passwd", "-apr1", "-stdin"], input=password, text=True, check=True,
                          stdout=subprocess.PIPE).stdout.strip()


def is_there():
    """Whether the programs are installed that this needs."""
    return bool(shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin") and shutil.which("openssl"))


class Nginx:
    def __init__(self, root, link=None):
        self.root = os.path.realpath(root)
        self.address = link.far if link else "127.0.0.1"
        self.command = link.command if link else lambda *arguments: [str(a) for a in arguments]
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="nginx."))
        self.port, self.secure_port = free_ports(2)
        self.certificate = self.directory / "certificate.pem"
        self.other = "/"
        self.process = None
        try:
            self._make_certificate()
            (self.directory / "users").write_text(f"me:{password_hash('open sesame')}\n")
            self._start()
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def url(self, path):
        return f"http://{self.address}:{self.port}{path}"

    def secure_url(self, path):
        return f"https://{self.address}:{self.secure_port}{path}"

    def lead_to(self, url):
        """Has /other/ redirect to `url`."""
        self.other = url
        self._stop()
        self._start()

    def replace_certificate(self):
        """Has it use another certificate and key."""
        self._stop()
        self._make_certificate()
        self._start()

    def log(self):
        path = self.directory / "access.log"
        return [json.loads(line) for line in path.read_text(errors="replace").splitlines()]

    def forget(self):
        """Empties the log."""
        os.truncate(self.directory / "access.log", 0)

    def _make_certificate(self):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                        "-keyout", self.directory / "key.pem", "-out", self.certificate, "-days", "1",
                        "-subj", "/CN=localhost", "-addext", f"subjectAltName=IP:{self.address},DNS:localhost"],
                       check=True, capture_output=True)

    def _start(self):
        config = self.directory / "nginx.conf"
        config.write_text(CONFIG.format(directory=self.directory, port=self.port, secure_port=self.secure_port,
                                        certificate=self.certificate, root=self.root, other=self.other,
                                        address=self.address))
        libc = ctypes.CDLL(None)
        program = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin")
        command = self.command(program, "-p", self.directory, "-c", config, "-e", self.directory / "error.log")
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL))
        deadline = time.monotonic() + 10
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self.directory / "error.log").read_text())
            time.sleep(0.01)

    def _answers(self):
        with socket.socket() as probe:
            return probe.connect_ex((self.address, self.port)) == 0

    def _stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait(10)
            self.process = None
