"""Models from the Hugging Face hub as local folders: from the cache, or downloaded."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import filter as matching
from pathlib import Path

from tallmasks.errors import TallmasksError, nearest
from tallmasks.io import hub
from tallmasks.parallel import parallel
from tallmasks.vectors.checkpoints.folders import (
    COMPANIONS,
    IN_MAIN_PART,
    IN_PARTS,
    PART_INDEXES,
    is_visible,
    matches,
    parts_of,
    subfolders_of_companions,
)
from tallmasks.vectors.checkpoints.lora_folders import ADAPTER_FILES
from tallmasks.vectors.checkpoints.weight_files import SAFETENSORS, TORCH

_PART = r"[A-Za-z0-9](?:[\w.-]{0,94}\w)?"
# `org/name` or `org/name@revision`
_REPOSITORY = re.compile(rf"(?![^@]*(?:--|\.\.))({_PART}/{_PART}(?<!\.git))(?:@([\w./-]+))?", re.ASCII)
_MORE = ("*.index.json", "adapter_config.json", "README.md")  # downloaded besides weights and companions
# Every model repository has at least one of these files.
_TELLING = (
    "config.json", "adapter_config.json", "open_clip_config.json", "model.safetensors", "pytorch_model.bin",
    *PART_INDEXES,
)  # fmt: skip
_WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.ckpt")
# Weight files of transformers, open_clip and diffusers; other weight files beside them are copies.
_MODELS = (
    "model.safetensors", "model-*-of-*.safetensors", "open_clip_model.safetensors",
    "diffusion_pytorch_model.safetensors", "diffusion_pytorch_model-*-of-*.safetensors",
    "pytorch_model.bin", "pytorch_model-*-of-*.bin", "open_clip_pytorch_model.bin", "diffusion_pytorch_model.bin",
    "diffusion_pytorch_model-*-of-*.bin",
)  # fmt: skip
OF_TRAINING = ("training_args.", "optimizer.", "scheduler.", "scaler.", "rng_state")  # file prefixes of training state


def repository_of(spec: str) -> tuple[str, str] | None:
    """The repository and revision in `org/name` or `org/name@revision`, or None for anything else."""
    match = _REPOSITORY.fullmatch(spec)
    return None if match is None or spec.endswith((SAFETENSORS, *TORCH)) else (match[1], match[2] or "main")


def fetched(repository: str, revision: str) -> tuple[Path, dict[str, str], list[str]]:
    """The local folder of a repository at a revision, its origin ``{"repository", "revision": <full commit>}``, and the
    files and subfolders that were not downloaded, if the hub was asked.

    The cache is used if the hub is unreachable. Raises TallmasksError if neither the cache nor the hub has it, or if a
    file is damaged.
    """
    folder: Path | None
    absent: list[str] = []
    if hub.reachable():
        folder, absent = _downloaded(repository, revision)
    elif (folder := _cached(repository, revision)) is None:
        where, why = hub.address(repository, "", revision), hub.not_cached(f"{repository} --revision {revision}")
        beside = [str(path) for path in Path(repository).parent.glob("*")]
        raise TallmasksError(
            f"{where}: no such local path{nearest(repository, beside)}, and the model is {why}. Or give a local folder"
        )
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    for index in (name for name in names if name.rpartition("/")[2] in PART_INDEXES):
        hub.refuse_damaged(folder / index)
    parallel(hub.refuse_damaged, [folder / name for name in wanted(names, parts_of(folder, names))])
    return folder, {"repository": repository, "revision": folder.name}, absent


def _cached(repository: str, revision: str) -> Path | None:
    paths = (hub.cached(repository, file, revision) for file in _TELLING)
    folder = next((path.parent for path in paths if path is not None), None)
    return folder if folder and any(any(folder.rglob(pattern)) for pattern in _WEIGHTS) else None


def _downloaded(repository: str, revision: str) -> tuple[Path, list[str]]:
    from huggingface_hub import HfApi, snapshot_download

    try:
        siblings = HfApi().model_info(repository, revision=revision).siblings or []
        names = [sibling.rfilename for sibling in siblings]
        folder = Path()
        for index in (name for name in names if name.rpartition("/")[2] in PART_INDEXES):
            folder = hub.download(repository, index, revision).parent
        chosen = wanted(names, parts_of(folder, names))
        folder = Path(snapshot_download(repository, revision=revision, allow_patterns=chosen))
        return folder, _absent(folder, names)
    except TallmasksError:
        raise
    except Exception as error:  # see `trouble`
        where = hub.address(repository, "", revision)
        raise TallmasksError(f"{where} (not a local path): {hub.trouble(error)}") from None


def _absent(folder: Path, names: Sequence[str]) -> list[str]:
    """The repository's files and subfolders that are not in its local folder."""
    absent = []
    for name in names:
        top, slash, _ = name.partition("/")
        if is_visible(name) and not (folder / name).exists():
            absent.append(name if not slash or (folder / top).exists() else f"{top}/")
    return list(dict.fromkeys(absent))


def wanted(names: Sequence[str], parts: Sequence[str] = ("",)) -> list[str]:
    """The files of a repository to download: one set of weights per part, preferably safetensors, and small files."""
    chosen = []
    for part in dict.fromkeys(["", *parts]):
        prefix = f"{part}/" if part else ""
        inside = [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
        top = [name for name in inside if "/" not in name]
        weights = _weights_among(top) if part in parts else set()
        patterns = (*(IN_PARTS if part else IN_MAIN_PART if "" in parts else COMPANIONS), *_MORE)
        kept = [name for name in top if name in weights or matches(name, patterns)]
        kept += subfolders_of_companions(inside, () if part else parts)
        chosen += [prefix + name for name in kept]
    return chosen


def _weights_among(names: Sequence[str]) -> set[str]:
    def first(patterns: Sequence[str]) -> list[str]:
        return next(filter(None, (matching(names, pattern) for pattern in patterns)), [])

    weights = {*first(ADAPTER_FILES), *first(_MODELS)}
    return weights or {name for name in first(_WEIGHTS) if not name.startswith(OF_TRAINING)}
