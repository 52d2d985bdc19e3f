"""Opening whatever a user names: a file, a folder of a model or an adapter, a repository of the hub."""

from __future__ import annotations

import os
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tallmasks.store.errors import TallmasksError
from tallmasks.store.hub import OPEN_CLIP_FILES
from tallmasks.store.plain_files import read_plain_json, within
from tallmasks.store.tensor_files import name_some
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.hub_models import COMPANIONS, OF_PARTS, OF_TRAINING, fetched, repository_of
from tallmasks.vectors.checkpoints.lora_folders import ADAPTER_CONFIG, ADAPTER_FILES, open_lora
from tallmasks.vectors.checkpoints.weight_files import INDEX, SAFETENSORS, SINGLE, TORCH, open_weight_files

_TORCH_SINGLE = "pytorch_model.bin"
_TORCH_INDEX = "pytorch_model.bin.index.json"
_LARGEST_COMPANION = 1 << 26


def open_checkpoint(spec: str | Path, base: Checkpoint | None = None) -> Checkpoint:
    """Open a checkpoint; its values stay on the disk until they are asked for, and no code in it is run.

    Args:
        spec: a .safetensors file; a file of torch.save; a folder of a transformers or open_clip model, or with one
            weight file; a folder of a PEFT LoRA; a repository of the hub, `org/name` or `org/name@revision`.
        base: the model that a LoRA was trained on; others need none.

    Raises TallmasksError where there is no such thing, or a file of it is missing or damaged.  Also for one that holds
    code instead of tensors, or that cannot be read in pieces.
    """
    title = str(spec)
    path = Path(spec)
    if not os.path.lexists(path):
        if not isinstance(spec, str) or (named := repository_of(spec)) is None:
            raise TallmasksError(
                f"{title}: no such file or folder; expected one, or a repository of the hub as org/name or"
                " org/name@revision. Check the spelling"
            )
        folder, origin = fetched(*named)
        return _open_folder(folder, title, origin, base)
    origin = {"path": title}
    if path.is_dir():
        return _open_folder(path, title, origin, base)
    if path.suffix not in (SAFETENSORS, *TORCH):
        raise TallmasksError(
            f"{title}: found a file ending in {path.suffix or 'nothing'}; expected {SAFETENSORS}, {', '.join(TORCH)},"
            " or a folder. Rename it if it is one of these"
        )
    return open_weight_files({path.name: path}, title=title, origin=origin)


def _open_folder(folder: Path, title: str, origin: Mapping[str, str], base: Checkpoint | None) -> Checkpoint:
    try:
        names = {entry.name for entry in os.scandir(folder) if not entry.is_dir()}
    except OSError as error:
        raise TallmasksError(f"{title}: {error.strerror}; expected a folder that can be read") from None
    companions, left_out = _companions(folder, names)
    if "modules.json" in companions:  # the files of sentence-transformers' sub-folders, by `1_Pooling/config.json`
        parts = sorted(path.relative_to(folder).as_posix() for path in folder.glob("*/*"))
        companions |= {name: folder / name for name in parts if OF_PARTS.fullmatch(name) and not _unfit(folder, name)}
    facts: dict[str, Any] = {"title": title, "origin": origin, "companions": companions, "is_folder": True}
    whole = [name for name in (SINGLE, INDEX, _TORCH_SINGLE, _TORCH_INDEX) if name in names]
    adapters = [name for name in ADAPTER_FILES if name in names]
    if ADAPTER_CONFIG in names or adapters:
        if whole:
            raise TallmasksError(
                f"{title}: found both a model ({whole[0]}) and a LoRA ({ADAPTER_CONFIG}); expected one of them. Give"
                f" {folder / whole[0]} itself, or move the LoRA to a folder of its own"
            )
        for name in (ADAPTER_CONFIG, *adapters[:1]):
            within(folder, name)
        return open_lora(folder, adapters, base, facts)
    first = whole[0] if whole else _only_weights(names, title)
    within(folder, first)
    index = folder / first if first in (INDEX, _TORCH_INDEX) else None
    shards = _read_index(index) if index else None
    files = {name: folder / name for name in sorted({*shards.values()} if shards else {first})}
    if absent := [name for name in files if name not in names]:
        raise TallmasksError(
            f"{title}: {name_some(absent)} missing, {len(absent)} of the {len(files)} shards that {first} names;"
            " expected all of them. Download the folder again"
        )
    for name in files:
        within(folder, name)
    left = tuple(name for name in left_out if name not in {first, *files})
    return open_weight_files(files, shards, **facts, left_out=left, index=index)


def _only_weights(names: set[str], title: str) -> str:
    """The weight file of a folder in which no name says which it is."""
    for name in OPEN_CLIP_FILES:
        if name in names:
            return name
    some = sorted(n for n in names if n.endswith((SAFETENSORS, *TORCH)) and not n.startswith((*OF_TRAINING, ".")))
    if len(best := [name for name in some if name.endswith(SAFETENSORS)] or some) != 1:
        weights = f"{len(best)} files of weights ({name_some(best)})" if best else "no file of weights"
        raise TallmasksError(
            f"{title}: {weights}; expected a model as transformers or open_clip save it ({SINGLE}, {INDEX},"
            f" {_TORCH_SINGLE}, {OPEN_CLIP_FILES[0]}), a LoRA, or one file of weights. Name the file itself"
        )
    return best[0]


def _read_index(path: Path) -> dict[str, str]:
    """The file of each tensor.  Only files beside the index are believed."""
    try:
        shards = read_plain_json(path)["weight_map"]
        ends = (SAFETENSORS, *TORCH)
        well = bool(shards) and all(Path(file).name == file and file.endswith(ends) for file in shards.values())
    except (ValueError, KeyError, TypeError, AttributeError):
        well = False
    if not well:
        raise TallmasksError(
            f"{path}: not an index of shards; expected a JSON object with a `weight_map` from tensors to files beside"
            " it. Download it again"
        )
    return shards


def _companions(folder: Path, names: set[str]) -> tuple[dict[str, Path], list[str]]:
    """What is copied with a model, and what is not.  It says why where the name is a companion's."""
    chosen, left_out = {}, []
    for name in sorted(names):
        if name.startswith((".", "README")):
            continue
        if not any(fnmatchcase(name, pattern) for pattern in COMPANIONS):
            left_out.append(name)
        elif why := _unfit(folder, name):
            left_out.append(f"{name} ({why})")
        else:
            chosen[name] = folder / name
    return chosen, left_out


def _unfit(folder: Path, name: str) -> str:
    """Why a companion cannot be copied: what is outside of the folder may be a secret."""
    try:
        path = within(folder, name)
    except TallmasksError:
        return "a link out of the folder"
    if not path.is_file():
        return "no plain file"
    return f"larger than {_LARGEST_COMPANION >> 20} MiB" if path.stat().st_size > _LARGEST_COMPANION else ""
