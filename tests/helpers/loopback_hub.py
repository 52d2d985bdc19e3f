"""A hub on the loopback that answers what huggingface_hub asks for when it downloads a model."""

import hashlib
import json
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from huggingface_hub import constants, utils

from tallmasks.store import hub

REPOSITORY = "org/name"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class LoopbackHub(ThreadingHTTPServer):
    """One repository, a folder's files; ``cut`` names files whose downloads break off, ``gated`` closes all of them."""

    daemon_threads = True
    cut: frozenset[str] = frozenset()
    gated = False

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.files = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
        self.requests: list[str] = []
        self.downloads: list[str] = []


class _Answers(BaseHTTPRequestHandler):
    server: LoopbackHub

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.server.requests.append(self.path)
        path = self.path.split("?")[0]
        is_file = path.startswith(f"/{REPOSITORY}/resolve/")
        name = path.rpartition("/")[2]
        if path == "/":
            self._send(b"")
        elif path.startswith((f"/api/models/{REPOSITORY}/revision/", f"/api/datasets/{REPOSITORY}/revision/")):
            siblings = [{"rfilename": name, "size": len(content)} for name, content in self.server.files.items()]
            self._send(json.dumps({"id": REPOSITORY, "sha": COMMIT, "siblings": siblings}).encode())
        elif path == f"/api/models/{REPOSITORY}/tree/{COMMIT}":
            entries = [
                {"type": "file", "path": name, "size": len(content), "oid": _sha1(content)}
                for name, content in self.server.files.items()
            ]
            self._send(json.dumps(entries).encode())
        elif is_file and self.server.gated:
            self._send(b"", 403, **{"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted."})
        elif is_file and name in self.server.files:
            content = self.server.files[name]
            self._send(content, **{"X-Repo-Commit": COMMIT, "ETag": f'"{_sha1(content)}"'})
        else:
            self._send(b"", 404, **{"X-Error-Code": "EntryNotFound" if is_file else "RepoNotFound"})

    def _send(self, content: bytes, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        name = self.path.rpartition("/")[2]
        if "/resolve/" in self.path:
            self.server.downloads.append(name)
        if name in self.server.cut:
            self.wfile.write(content[: len(content) // 2])
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
            self.connection.close()
        else:
            self.wfile.write(content)

    def log_message(self, *arguments: object) -> None:
        """Nothing."""


def _sha1(content: bytes) -> str:
    return hashlib.sha1(content, usedforsecurity=False).hexdigest()


@contextmanager
def loopback_hub(folder: Path, cache: Path) -> Iterator[LoopbackHub]:
    """A hub with a folder's files as `org/name`, and an empty cache, for what huggingface_hub does in this process."""
    server = LoopbackHub(folder)
    endpoint = f"http://127.0.0.1:{server.server_port}"
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("NO_PROXY", "127.0.0.1")
            patch.setattr(constants, "HF_HUB_CACHE", str(cache))
            patch.setattr(constants, "HF_HUB_OFFLINE", False)
            patch.setattr(constants, "ENDPOINT", endpoint)
            patch.setattr(
                constants, "HUGGINGFACE_CO_URL_TEMPLATE", endpoint + "/{repo_id}/resolve/{revision}/{filename}"
            )
            utils.close_session()
            hub.reachable.cache_clear()
            yield server
    finally:
        utils.close_session()
        hub.reachable.cache_clear()
        server.shutdown()
        server.server_close()
