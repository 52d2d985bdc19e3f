"""Models of the Hugging Face hub as folders: from this machine's cache, or downloaded into it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tallmasks.store import hub
from tallmasks.store.errors import TallmasksError

_REPOSITORY = re.compile(r"([A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:@([\w./-]+))?")
_PATTERNS = ("*.json", "*.txt", "*.model", "*.jinja", "*.tiktoken", "*.py", "LICENSE*", "NOTICE*", "*.jsonl")
"""Of a model's folder, what else than weights belongs to it: configuration, tokenizer, terms."""
_OF_A_FILE = (".safetensors", ".pt", ".pth", ".bin", ".ckpt")
_TELLING = ("config.json", "adapter_config.json", "open_clip_config.json", "model.safetensors", "pytorch_model.bin")
"""Files of which one at least is in every model's repository."""
_WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.ckpt")


def repository_of(spec: str) -> tuple[str, str] | None:
    """The repository and the revision that `org/name` or `org/name@revision` names, or None where it is none."""
    if (match := _REPOSITORY.fullmatch(spec)) is None or spec.endswith(_OF_A_FILE):
        return None
    return match[1], match[2] or "main"


def fetched(repository: str, revision: str) -> tuple[Path, dict[str, str]]:
    """The folder of a repository at a revision, and its origin: ``{"repository", "revision": <full commit>}``.

    Without a network it is what the cache has.  Of its weights only safetensors are downloaded where there are some.

    Raises:
        TallmasksError: the hub does not answer and the cache has nothing of it; or the hub has no such repository or
            revision, or does not give it.
    """
    folder = None
    if re.fullmatch(r"[0-9a-f]{40}", revision) or not hub.reachable():
        folder = _cached(repository, revision)
    if folder is None and not hub.reachable():
        at = "" if revision == "main" else f" --revision {revision}"
        raise TallmasksError(
            f"huggingface.co/{repository} at {revision}: there is no such path, the model is not in this machine's hub"
            f" cache, and the hub does not answer. Run `hf download {repository}{at}` where there is a network and copy"
            " the cache here (HF_HOME says where it lies), or name a local folder"
        )
    folder = folder or _downloaded(repository, revision)
    return folder, {"repository": repository, "revision": folder.name}


def _cached(repository: str, revision: str) -> Path | None:
    """A snapshot in this machine's cache that has weights."""
    for file in _TELLING:
        if (found := hub.cached(repository, file, revision)) is not None:
            folder = found.parent
            return folder if any(any(folder.glob(pattern)) for pattern in _WEIGHTS) else None
    return None


def _downloaded(repository: str, revision: str) -> Path:
    from huggingface_hub import HfApi, snapshot_download

    try:
        commit = hub.full_commit(repository, revision)
        known = HfApi().model_info(repository, revision=commit)
        names = [sibling.rfilename for sibling in known.siblings or []]
        return Path(snapshot_download(repository, revision=known.sha, allow_patterns=wanted(names)))
    except (OSError, ValueError) as error:  # all of the hub's own errors are one of the two
        said = " ".join(str(error).split())[:300]
        raise TallmasksError(
            f"huggingface.co/{repository} at {revision}: there is no such path, and the download failed: {said}. Check"
            f" the spelling, or run `hf download {repository} --revision {revision}` to see more"
        ) from None


def wanted(names: Sequence[str]) -> list[str]:
    """The files of a repository to download: of weights safetensors if there are some; nothing of its folders."""
    from fnmatch import fnmatchcase

    top = [name for name in names if "/" not in name]
    kinds = next((kind for kind in _WEIGHTS if any(fnmatchcase(name, kind) for name in top)), "*.bin")
    return [name for name in top if any(fnmatchcase(name, pattern) for pattern in (*_PATTERNS, kinds))]
