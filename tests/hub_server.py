"""A stand-in for the server of Hugging Face."""

import base64
import hashlib
import http.server
import json
import threading

import pytest


class Hub(http.server.BaseHTTPRequestHandler):
    """What huggingface_hub asks of its server for one model repository with small files, and no more."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        """Keeps the test's output clean."""

    def reply(self, body, kind="application/json", **headers):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(200)
        for key, value in {"Content-Type": kind, "Content-Length": len(data), **headers}.items():
            self.send_header(key.replace("_", "-"), str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = self.path.split("?")[0]
        if path == "/api/repos/create":
            self.reply({"url": f"http://{self.headers['Host']}/group/drift", "name": "group/drift"})
        elif path == "/api/validate-yaml":
            self.server.card = json.loads(body)["content"]
            self.reply({"warnings": [], "errors": []})
        elif "/preupload/" in path:
            listed = json.loads(body)["files"]
            self.reply({"files": [{"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in listed]})
        elif "/commit/" in path:
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    self.server.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            oid = self.server.oid
            self.reply(
                {"success": True, "commitUrl": f"http://{self.headers['Host']}/group/drift/commit/{oid}"}
                | {"commitOid": oid}
            )
        elif "/tag/" in path:
            self.server.tags.append(json.loads(body)["tag"])
            self.reply({})
        else:
            self.send_error(404, path)

    def do_GET(self):
        path, oid = self.path.split("?")[0], self.server.oid
        if path.endswith("/refs"):
            tags = [{"name": tag, "ref": f"refs/tags/{tag}", "targetCommit": oid} for tag in self.server.tags]
            self.reply({"branches": [], "converts": [], "tags": tags})
        elif "/revision/" in path:
            siblings = [{"rfilename": name} for name in self.server.files]
            self.reply({"id": "group/drift", "sha": oid, "siblings": siblings, "private": False, "tags": []})
        elif "/tree/" in path:
            self.reply(
                [
                    {"type": "file", "path": n, "size": len(d), "oid": hashlib.sha1(d).hexdigest()}
                    for n, d in self.server.files.items()
                ]
            )
        elif "/resolve/" in path:
            data = self.server.files[path.split("/", 5)[5]]
            self.reply(data, "application/octet-stream", ETag=f'"{hashlib.sha1(data).hexdigest()}"', X_Repo_Commit=oid)
        else:
            self.send_error(404, path)

    do_HEAD = do_GET


@pytest.fixture
def hub():
    """A stand-in for the hub, empty; and the environment in which programs go there."""
    pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed: pip install '.[hub]'")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.files, server.tags, server.card, server.oid = {}, [], "", f"{1:040}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()
