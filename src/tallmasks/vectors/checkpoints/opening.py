"""Open whatever a user names: a file, a folder of a model or an adapter, a hub repository."""

from __future__ import annotations

import os
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tallmasks.errors import TallmasksError, short
from tallmasks.io.hub import OPEN_CLIP_FILES
from tallmasks.io.plain_files import read_plain_json, within
from tallmasks.io.tensor_files import name_some
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.folder_parts import joined_parts, parts_of
from tallmasks.vectors.checkpoints.hub_models import CHAT_TEMPLATES, COMPANIONS, OF_TRAINING, fetched, repository_of
from tallmasks.vectors.checkpoints.lora_folders import ADAPTER_CONFIG, ADAPTER_FILES, open_lora
from tallmasks.vectors.checkpoints.weight_files import SAFETENSORS, TORCH, open_weight_files

_INDEX = ".index.json"
# Files of complete models by transformers and diffusers, best first.
_WHOLE = (
    "model.safetensors", "model.safetensors.index.json",
    "diffusion_pytorch_model.safetensors", "diffusion_pytorch_model.safetensors.index.json",
    "pytorch_model.bin", "pytorch_model.bin.index.json",
    "diffusion_pytorch_model.bin", "diffusion_pytorch_model.bin.index.json",
)  # fmt: skip
DIFFUSERS_LORA = "pytorch_lora_weights.safetensors"
GGUF = ".gguf"
_LARGEST_COMPANION = 1 << 26


def open_checkpoint(spec: str | Path, base: Checkpoint | None = None) -> Checkpoint:
    """Open a checkpoint. Values are read on demand, and code in it is never run.

    Args:
        spec: a .safetensors or torch.save file; a folder of a transformers, diffusers or open_clip model, of a PEFT
            LoRA, or with a single weight file; a hub repository, `org/name` or `org/name@revision`.
        base: the model that a LoRA was trained on; not needed otherwise.

    Raises TallmasksError if a file is missing, damaged, or not supported.
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
    if path.suffix == GGUF:
        raise quantised_format(title)
    if path.suffix not in (SAFETENSORS, *TORCH):
        raise TallmasksError(
            f"{title}: found a file ending in {path.suffix or 'nothing'}; expected {SAFETENSORS}, {', '.join(TORCH)},"
            " or a folder. Rename it if it is one of these"
        )
    return open_weight_files({path.name: path}, title=title, origin=origin)


def _open_folder(folder: Path, title: str, origin: Mapping[str, str], base: Checkpoint | None) -> Checkpoint:
    names = _files_in(folder, title)
    parts = parts_of(folder, names)
    facts: dict[str, Any] = {"title": title, "origin": origin, "is_folder": True}
    if parts == [""]:
        return _open_model(folder, names, base, facts)
    opened, weights = {}, 0
    for part in dict.fromkeys(["", *parts]):
        inner = folder / part
        if not inner.is_dir():
            continue
        within(folder, part or ".")
        inside = _files_in(inner, title) if part else names
        if part in parts and any(map(_is_weights, inside)):
            opened[part] = _open_model(inner, inside, None, {**facts, "title": f"{title}/{part}" if part else title})
            weights += 1
        else:
            companions, left_out = _companions(inner, inside, *["*.json"] * bool(part))
            opened[part] = Checkpoint(title=title, tensors={}, companions=companions, left_out=tuple(left_out))
        if part and (deeper := [path for path in inner.glob("*/*") if _is_weights(path.name)]):
            raise TallmasksError(
                f"{title}: weights in {deeper[0].parent.relative_to(folder)}, a folder that no index of {title} names;"
                " expected them in the folders that it names. Give a model that is saved so"
            )
    if not weights:
        raise TallmasksError(f"{title}: no file of weights in it, nor in {name_some(part for part in parts if part)}")
    return joined_parts(opened, **facts)


def _files_in(folder: Path, title: str) -> set[str]:
    try:
        return {entry.name for entry in os.scandir(folder) if not entry.is_dir()}
    except OSError as error:
        raise TallmasksError(f"{title}: {error.strerror}; expected a folder that can be read") from None


def _open_model(folder: Path, names: set[str], base: Checkpoint | None, facts: Mapping[str, Any]) -> Checkpoint:
    title = str(facts["title"])
    companions, left_out = _companions(folder, names)
    whole = [name for name in _WHOLE if name in names]
    adapters = [name for name in ADAPTER_FILES if name in names]
    if ADAPTER_CONFIG in names or adapters:
        if whole:
            raise TallmasksError(
                f"{title}: found both a model ({whole[0]}) and a LoRA ({ADAPTER_CONFIG}); expected one of them. Give"
                f" {folder / whole[0]} itself, or move the LoRA to a folder of its own"
            )
        for name in (ADAPTER_CONFIG, *adapters[:1]):
            within(folder, name)
        return open_lora(folder, adapters, base, {**facts, "companions": companions})
    first = whole[0] if whole else _only_weights(names, title)
    within(folder, first)
    index = {first: folder / first} if first.endswith(_INDEX) else {}
    shards = _read_index(folder / first) if index else None
    files = {name: folder / name for name in sorted({*shards.values()} if shards else {first})}
    if absent := [name for name in files if name not in names]:
        raise TallmasksError(
            f"{title}: {name_some(absent)} missing, {len(absent)} of the {len(files)} shards that {first} names;"
            " expected all of them. Download the folder again"
        )
    for name in files:
        within(folder, name)
    left = tuple(name for name in left_out if name not in {first, *files})
    return open_weight_files(files, shards, **facts, companions=companions, left_out=left, indexes=index)


def _is_weights(name: str) -> bool:
    return name.endswith((SAFETENSORS, *TORCH)) and not name.startswith((*OF_TRAINING, "."))


def _only_weights(names: set[str], title: str) -> str:
    """The single weight file of a folder without standard names."""
    for name in OPEN_CLIP_FILES:
        if name in names:
            return name
    if DIFFUSERS_LORA in names:
        raise TallmasksError(
            f"{title}: a LoRA of diffusers ({DIFFUSERS_LORA}); of LoRAs only those of PEFT can be read, with an"
            f" {ADAPTER_CONFIG}. Fuse it into its model with diffusers' fuse_lora, and save that"
        )
    if "bundle.json" in names:
        raise TallmasksError(
            f"{title}: a bundle; expected one model. `tallmasks export` writes a task's; or {title}#TASK"
        )
    some = sorted(filter(_is_weights, names))
    if not some and (packed := [name for name in names if name.endswith(GGUF)]):
        raise quantised_format(f"{title}: {packed[0]}")
    if len(best := [name for name in some if name.endswith(SAFETENSORS)] or some) != 1:
        weights = f"{len(best)} files of weights ({name_some(best)})" if best else "no file of weights"
        raise TallmasksError(
            f"{title}: {weights}; expected a model as transformers, diffusers or open_clip save it"
            f" ({', '.join(_WHOLE[:3])}, {OPEN_CLIP_FILES[0]}), a LoRA, or one file of weights. Name the file itself"
        )
    return best[0]


def quantised_format(what: str) -> TallmasksError:
    return TallmasksError(
        f"{what} is of GGUF, a format for quantised models; expected weights of 16 bits or more as safetensors. Give"
        " the model that it was made of"
    )


def _read_index(path: Path) -> dict[str, str]:
    """The file of each tensor. Only files in the index's own folder are accepted."""
    try:
        shards = read_plain_json(path)["weight_map"]
        well = bool(shards) and all(file.endswith((SAFETENSORS, *TORCH)) for file in shards.values())
        if well and (outside := [file for file in shards.values() if Path(file).name != file]):
            raise TallmasksError(
                f"{path}: it names the file {short(outside[0])}; expected files beside it, by name. Put them there, and"
                " write their names alone"
            )
    except (ValueError, KeyError, TypeError, AttributeError):
        well = False
    if not well:
        raise TallmasksError(
            f"{path}: not an index of shards; expected a JSON object with a `weight_map` from tensors to files beside"
            " it. Download it again"
        )
    return shards


def _companions(folder: Path, names: set[str], *more: str) -> tuple[dict[str, Path], list[str]]:
    """The files to copy with a model, and the names of the rest, with a reason if a companion is rejected."""
    chosen, left_out = {}, []
    for name in sorted(names):
        if name.startswith((".", "README")):
            continue
        if not any(fnmatchcase(name, pattern) for pattern in (*COMPANIONS, *more)):
            left_out.append(name)
        elif why := _unfit(folder, name):
            left_out.append(f"{name} ({why})")
        else:
            chosen[name] = folder / name
    for path in sorted((folder / CHAT_TEMPLATES).glob("*.jinja")):
        name = f"{CHAT_TEMPLATES}/{path.name}"
        if not _unfit(folder, name):
            chosen[name] = path
    return chosen, left_out


def _unfit(folder: Path, name: str) -> str:
    """Why a companion cannot be copied; links out of the folder could expose a secret."""
    try:
        path = within(folder, name)
    except TallmasksError:
        return "a link out of the folder"
    if not path.is_file():
        return "no plain file"
    return f"larger than {_LARGEST_COMPANION >> 20} MiB" if path.stat().st_size > _LARGEST_COMPANION else ""
