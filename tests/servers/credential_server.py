"""The metadata services of virtual machines and containers of AWS, and its security token service, on loopback.

    with CredentialServer(keys) as server:
        server.url("/")                    a service for tokens: AssumeRole, AssumeRoleWithWebIdentity
        server.url("/container")           what an orchestrator runs; wants server.container_token
        server.url("")                     the metadata service of an instance, version 2 alone
        server.asked                       what was asked for: "AssumeRole", "container", "instance", ...

`keys` is called for each answer with credentials and returns (access key, secret key, session token or None,
seconds until they end).
"""
import datetime
import http.server
import json
import threading
import urllib.parse

NAMESPACE = "https://sts.amazonaws.com/doc/2011-06-15/"


class CredentialServer:
    web_token = "web.identity-token"
    container_token = "Bearer of the container"
    instance_token = "token-of-the-instance=="
    role = "role with blanks"

    def __init__(self, keys):
        self.keys = keys
        self.asked = []
        self.may_assume = None  # The access key that may take on roles.
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def url(self, path):
        return f"http://127.0.0.1:{self.port}{path}"

    def _credentials(self):
        key, secret, token, seconds = self.keys()
        end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)
        return {"AccessKeyId": key, "SecretAccessKey": secret, "Token": token or "",
                "Expiration": end.strftime("%Y-%m-%dT%H:%M:%SZ"), "Code": "Success"}

    def in_json(self):
        return json.dumps(self._credentials())

    def _in_xml(self, action):
        credentials = self._credentials() | {"Code": ""}
        credentials["SessionToken"] = credentials.pop("Token")
        members = "".join(f"<{name}>{value}</{name}>" for name, value in credentials.items() if value)
        return (f'<{action}Response xmlns="{NAMESPACE}"><{action}Result><Credentials>{members}</Credentials>'
                f"</{action}Result></{action}Response>")

    def _handler(self):
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def answer(self, status, body):
                body = body.encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def refuse(self, code):
                self.answer(403, f'<ErrorResponse xmlns="{NAMESPACE}"><Error><Code>{code}</Code>'
                                 "</Error></ErrorResponse>")

            def do_POST(self):
                form = dict(urllib.parse.parse_qsl(
                    self.rfile.read(int(self.headers["Content-Length"])).decode()))
                outer.asked.append(form["Action"])
                if form["Action"] == "AssumeRoleWithWebIdentity":
                    if form["WebIdentityToken"] != outer.web_token or "Authorization" in self.headers:
                        return self.refuse("InvalidIdentityToken")
                elif f"Credential={outer.may_assume}/" not in self.headers.get("Authorization", ""):
                    return self.refuse("AccessDenied")
                elif "/sts/aws4_request" not in self.headers["Authorization"]:
                    return self.refuse("SignatureDoesNotMatch")
                if not form["RoleArn"].startswith("arn:aws:iam::") or not form["RoleSessionName"]:
                    return self.refuse("ValidationError")
                self.answer(200, outer._in_xml(form["Action"]))

            def do_PUT(self):
                if self.path != "/latest/api/token" or "X-aws-ec2-metadata-token-ttl-seconds" not in self.headers:
                    return self.answer(400, "")
                self.answer(200, outer.instance_token)

            def do_GET(self):
                if self.path == "/container":
                    outer.asked.append("container")
                    if self.headers.get("Authorization") != outer.container_token:
                        return self.answer(401, '{"code": "InvalidToken"}')
                    return self.answer(200, outer.in_json())
                if self.headers.get("X-aws-ec2-metadata-token") != outer.instance_token:
                    return self.answer(401, "")
                folder = "/latest/meta-data/iam/security-credentials/"
                if self.path == folder:
                    return self.answer(200, outer.role)
                if self.path == folder + urllib.parse.quote(outer.role):
                    outer.asked.append("instance")
                    return self.answer(200, outer.in_json())
                self.answer(404, "")

        return Handler
