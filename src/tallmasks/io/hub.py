"""Files from the Hugging Face hub, pinned by revision, with clear errors when a download fails."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from tallmasks.errors import TallmasksError
from tallmasks.io.file_digests import sha256_of_file

Kind = Literal["model", "dataset"]

OPEN_CLIP_FILES = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")  # weight files of open_clip


def cached(repo: str, file: str, revision: str, kind: Kind = "model") -> Path | None:
    """The path of a file in the local hub cache, or None. Does not use the network."""
    from huggingface_hub import try_to_load_from_cache

    path = try_to_load_from_cache(repo, file, revision=revision, repo_type=kind)
    return Path(path) if isinstance(path, str) else None


@functools.cache
def reachable() -> bool:
    """Whether the hub answers within five seconds; cached. False with HF_HUB_OFFLINE=1."""
    from huggingface_hub import constants
    from huggingface_hub.utils import get_session

    try:
        get_session().head(constants.ENDPOINT, timeout=5)
    except Exception:  # no route, no name, a proxy's refusal, offline mode: each has its own type
        return False
    return True


def download(repo: str, file: str, revision: str, kind: Kind = "model") -> Path:
    """Download one file, or take it from the cache; see `download_first`."""
    return download_first(repo, (file,), revision, kind)


def download_first(repo: str, files: Sequence[str], revision: str, kind: Kind = "model") -> Path:
    """The first of ``files`` that is in the local cache, else the first that is in the repository. Raises
    TallmasksError if none is cached and the hub does not answer or has none of them."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import RemoteEntryNotFoundError

    for file in files:
        if (path := cached(repo, file, revision, kind)) is not None:
            return path
    if not reachable():
        raise TallmasksError(absent(repo, files, revision, kind))
    for file in files:
        try:
            return Path(hf_hub_download(repo, file, revision=revision, repo_type=kind))
        except RemoteEntryNotFoundError:
            continue
        except Exception as error:  # see `trouble`
            raise TallmasksError(f"{address(repo, file, revision, kind)}: {trouble(error)}") from None
    raise TallmasksError(f"{address(repo, ' or '.join(files), revision, kind)}: the repository has no such file")


def sizes(repo: str, revision: str, kind: Kind = "model") -> dict[str, int]:
    """Sizes in bytes of all files of a repository, by name. Raises TallmasksError if the hub does not answer, the
    repository or revision does not exist, or access is denied."""
    from huggingface_hub import HfApi

    try:
        info: Any = HfApi().repo_info(repo, revision=revision, repo_type=kind, files_metadata=True, timeout=30)
        if info.gated:  # the list is public, the files are not
            HfApi().auth_check(repo, repo_type=kind)
    except Exception as error:  # see `trouble`
        raise TallmasksError(f"{address(repo, '', revision, kind)}: {trouble(error)}") from None
    return {file.rfilename: file.size or 0 for file in info.siblings or ()}


def trouble(error: Exception) -> str:
    """Explain an exception of the hub's libraries in one line. They raise a dozen types without a common base."""
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    log_in = "log in with `hf auth login`, or set HF_TOKEN"
    if isinstance(error, GatedRepoError):
        return f"the repository is gated. Accept its terms on its page, and {log_in}"
    if isinstance(error, RepositoryNotFoundError):
        return f"the hub has no such repository, or it is private. Check the spelling, or {log_in}"
    if isinstance(error, RevisionNotFoundError):
        return "the repository has no such revision. Check the spelling"
    reason = " ".join(str(error).split())[:300].rstrip(".") or type(error).__name__
    return f"the download failed: {reason}. Run the command again; complete files are not downloaded twice"


def absent(repo: str, files: Sequence[str], revision: str, kind: Kind = "model") -> str:
    """The message for files that are not cached when the hub does not answer, with the command that downloads them."""
    option = " --repo-type dataset" if kind == "dataset" else ""
    arguments = f"{repo} {' '.join(files)} --revision {revision}{option}"
    return f"{address(repo, files[0], revision, kind)} is {not_cached(arguments)}. Or give a local file"


def not_cached(arguments: str) -> str:
    """The end of a message when the hub does not answer; ``arguments`` are those of `hf download`."""
    return (
        f"not in this machine's hub cache, and the hub does not answer. Run `hf download {arguments}` on a machine "
        "with a network and copy its cache here (HF_HOME is the location)"
    )


def address(repo: str, file: str, revision: str, kind: Kind = "model") -> str:
    """A readable address: huggingface.co (or HF_ENDPOINT)/[datasets/]<repo>[/<file>] at <revision>."""
    from huggingface_hub import constants

    host, folder = constants.ENDPOINT.removeprefix("https://"), "datasets/" if kind == "dataset" else ""
    return f"{host}/{folder}{repo}{'/' if file else ''}{file} at {revision}"


def commit_of(path: Path) -> str | None:
    """The commit in a hub-cache path (<kind>--<repo>/snapshots/<commit>/...), or None for other paths."""
    parts = path.parts
    for repository, folder, commit in zip(parts, parts[1:], parts[2:-1], strict=False):
        if folder == "snapshots" and "--" in repository:
            return commit
    return None


def refuse_damaged(path: Path) -> None:
    """Raise TallmasksError if a cached file does not match the checksum in the name that its link points to. The
    checksum is sha256 for large files, git's sha1 for others. Caches copied without links have none."""
    expected = path.readlink().name if path.is_symlink() else ""  # not resolved: the target can be another link
    if len(expected) == 64:
        actual = sha256_of_file(path)
    elif len(expected) == 40:
        content = path.read_bytes()
        actual = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
    else:
        return
    if actual != expected:
        raise TallmasksError(
            f"{path} is damaged: its checksum is {actual}, expected {expected} as on the hub. Delete {path.resolve()} "
            "and run the command again"
        )


def with_origin(repo: str, files: Sequence[str], revision: str, sha256: str | None) -> tuple[Path, dict[str, str]]:
    """As `download_first`, plus the origin for recipes. Also raises TallmasksError if the sha256 differs."""
    path = download_first(repo, files, revision)
    refuse_damaged(path)
    if sha256 is not None and (actual := sha256_of_file(path)) != sha256:
        raise TallmasksError(
            f"{path}: sha256 is {actual}, expected {sha256}; delete {path.resolve()}, or correct `sha256` in "
            "params.yaml"
        )
    return path, {"repository": repo, "file": path.name, "commit": commit_of(path) or revision}
