"""A hub on the loopback: the part of the Hugging Face hub's API that huggingface_hub asks for when it downloads."""

import functools
import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote

import pytest
from huggingface_hub import constants, utils

from tallmasks.io import hub

REPOSITORY = "org/name"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
_API = re.compile(r"/api/(models|datasets)/([^/]+/[^/]+)(?:/(revision|tree|commits|auth-check)(?:/([^/]+))?)?")
_RESOLVE = re.compile(r"/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)")


@dataclass(frozen=True)
class Repository:
    """A folder's files at one commit, which is also a branch."""

    folder: Path
    commit: str = COMMIT
    branch: str = "main"

    def files(self) -> dict[str, Path]:
        paths = sorted(path for path in self.folder.rglob("*") if path.is_file())
        return {path.relative_to(self.folder).as_posix(): path for path in paths}


class LoopbackHub(ThreadingHTTPServer):
    """Repositories by kind ("models", "datasets") and name.

    Attributes:
        gated: Repositories with files for members only.
        requests: Every path that was asked for.
        downloads: Files of every download.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.repositories: dict[tuple[str, str], Repository] = {}
        self.gated: set[str] = set()

        self.requests: list[str] = []
        self.downloads: list[str] = []

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def environment(self, home: Path) -> dict[str, str]:
        """For a process that is to use this hub and a cache in `home`."""
        return {
            "HF_ENDPOINT": self.endpoint,
            "HF_HOME": str(home),
            "HF_HUB_CACHE": str(home / "hub"),
            "HF_HUB_OFFLINE": "0",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "NO_PROXY": "127.0.0.1",
        }


class _Answers(BaseHTTPRequestHandler):
    @property
    def hub(self) -> LoopbackHub:
        return self.server  # type: ignore[return-value]

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.hub.requests.append(self.path)
        if path == "/":
            self._send_json({})
        elif api := _API.fullmatch(path):
            kind, name, wanted, revision = api.groups()
            if repository := self._repository(kind, name, "main" if wanted == "commits" else revision or "main"):
                self._tell(repository, name, wanted)
        elif resolve := _RESOLVE.fullmatch(path):
            dataset, name, revision, file = resolve.groups()
            if repository := self._repository("datasets" if dataset else "models", name, revision):
                self._give(repository, name, file)
        else:
            self._refuse(404, "EntryNotFound")

    do_HEAD = do_GET

    def _refuse(self, status: int, error: str) -> None:
        self._send_headers(status, 0, {"X-Error-Code": error, "X-Error-Message": "Refused."})

    def _send_json(self, content: object, **headers: str) -> None:
        encoded = json.dumps(content).encode()
        self._send_headers(200, len(encoded), headers)
        if self.command == "GET":
            self.wfile.write(encoded)

    def _send_headers(self, status: int, length: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(length)}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        """Nothing."""

    def _repository(self, kind: str, name: str, revision: str) -> Repository | None:
        """The repository at a revision; None where the request was refused."""
        repository = self.hub.repositories.get((kind, name))
        if repository is None:
            self._refuse(401, "RepoNotFound")  # as to everybody who is not logged in
        elif unquote(revision) not in (repository.branch, repository.commit):
            self._refuse(404, "RevisionNotFound")
            return None
        return repository

    def _tell(self, repository: Repository, name: str, wanted: str) -> None:
        """Send the repository's facts."""
        files = repository.files()
        sizes = {file: path.stat().st_size for file, path in files.items()}
        if wanted == "commits":
            commit = {"id": repository.commit, "title": "", "message": "", "date": "2024-12-01T00:00:00.000Z"}
            self._send_json([commit | {"authors": []}])
        elif wanted == "auth-check" and name in self.hub.gated:
            self._refuse(403 if "Authorization" in self.headers else 401, "GatedRepo")
        elif wanted == "tree":
            oids = {file: checksum(path) for file, path in files.items()}
            self._send_json([{"type": "file", "path": file, "size": sizes[file], "oid": oids[file]} for file in files])
        else:
            siblings = [{"rfilename": file, "size": size} for file, size in sizes.items()]
            gated = "auto" if name in self.hub.gated else False
            self._send_json({"id": name, "sha": repository.commit, "siblings": siblings, "gated": gated})

    def _give(self, repository: Repository, name: str, file: str) -> None:
        """One file."""
        path = repository.files().get(file)
        if name in self.hub.gated:
            self._refuse(403 if "Authorization" in self.headers else 401, "GatedRepo")
        elif path is None:
            self._refuse(404, "EntryNotFound")
        else:
            headers = {"X-Repo-Commit": repository.commit, "ETag": f'"{checksum(path)}"'}
            self._send_headers(200, path.stat().st_size, headers)
            if self.command == "GET":
                self.hub.downloads.append(file)
                self.wfile.write(path.read_bytes())


@functools.cache
def checksum(path: Path) -> str:
    """The hub's checksum: git's sha1 of a text file, sha256 of any other."""
    content = path.read_bytes()
    if path.suffix in (".json", ".md", ".txt", ".yaml"):
        return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    return hashlib.sha256(content).hexdigest()


@contextmanager
def serving() -> Iterator[LoopbackHub]:
    """A hub without repositories; see `LoopbackHub.environment` for processes that use it."""
    hub = LoopbackHub()
    Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()


@contextmanager
def loopback_hub(folder: Path, cache: Path) -> Iterator[LoopbackHub]:
    """A hub with a folder's files as model and dataset `org/name`, and an empty cache, for this process."""
    with serving() as server, pytest.MonkeyPatch.context() as patch:
        server.repositories = {(kind, REPOSITORY): Repository(folder) for kind in ("models", "datasets")}
        patch.setenv("NO_PROXY", "127.0.0.1")
        patch.setattr(constants, "HF_HUB_CACHE", str(cache))
        patch.setattr(constants, "HF_HUB_OFFLINE", False)
        patch.setattr(constants, "ENDPOINT", server.endpoint)
        patch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", server.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        )
        utils.close_session()
        hub.reachable.cache_clear()
        try:
            yield server
        finally:
            utils.close_session()
            hub.reachable.cache_clear()
