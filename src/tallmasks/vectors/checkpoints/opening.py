"""Open a checkpoint from a file, a folder of a model or an adapter, or a hub repository."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tallmasks.errors import TallmasksError, name_some, short
from tallmasks.io.hub import OPEN_CLIP_FILES
from tallmasks.io.plain_files import read_plain_json, reading, within
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.folders import (
    COMPANIONS,
    IN_MAIN_PART,
    IN_PARTS,
    companions_in,
    joined_parts,
    part_of,
    parts_of,
)
from tallmasks.vectors.checkpoints.hub_models import OF_TRAINING, fetched, repository_of
from tallmasks.vectors.checkpoints.lora_folders import ADAPTER_CONFIG, ADAPTER_FILES, open_lora
from tallmasks.vectors.checkpoints.weight_files import SAFETENSORS, TORCH, open_weight_files

_INDEX = ".index.json"
# Files of complete models by transformers and diffusers, best first.
_MODEL_FILES = (
    "model.safetensors", "model.safetensors.index.json",
    "diffusion_pytorch_model.safetensors", "diffusion_pytorch_model.safetensors.index.json",
    "pytorch_model.bin", "pytorch_model.bin.index.json",
    "diffusion_pytorch_model.bin", "diffusion_pytorch_model.bin.index.json",
)  # fmt: skip
_DIFFUSERS_LORA = "pytorch_lora_weights.safetensors"
_GGUF = ".gguf"


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
                f"{title}: no such file or folder; expected a path, or a hub repository as org/name or"
                " org/name@revision. Check the spelling"
            )
        folder, origin, absent = fetched(*named)
        opened = _open_folder(folder, origin, title, base)
        return replace(opened, left_out=(*opened.left_out, *absent))
    origin = {"path": title}
    if path.is_dir():
        return _open_folder(path, origin, title, base)
    if path.suffix == _GGUF:
        raise _quantised_format(title)
    if path.suffix not in (SAFETENSORS, *TORCH):
        raise TallmasksError(
            f"{title}: found a file {f'ending in {path.suffix}' if path.suffix else 'without a suffix'}; expected"
            f" {SAFETENSORS}, {', '.join(TORCH)}, or a folder. If it is in one of these formats, rename it"
        )
    return open_weight_files({path.name: path}, title=title, origin=origin)


def _open_folder(folder: Path, origin: Mapping[str, str], title: str, base: Checkpoint | None) -> Checkpoint:
    names = _files_in(folder, title)
    parts = parts_of(folder, names)
    attributes: dict[str, Any] = {"title": title, "origin": origin, "is_folder": True}
    if parts == [""]:
        return _open_model(folder, names, base, attributes)
    opened = {}
    for part in dict.fromkeys(["", *parts]):
        inner = folder / part
        if not inner.is_dir():
            continue
        within(folder, part or ".")
        inside, prefix = _files_in(inner, title) if part else names, f"{part}/" if part else ""
        others = {other.removeprefix(prefix).split("/")[0] for other in parts if other.startswith(prefix)} - {"", part}
        patterns = IN_PARTS if part else IN_MAIN_PART if "" in parts else COMPANIONS
        if part in parts and any(map(_is_weights, inside)):
            of_part = {**attributes, "title": f"{title}/{part}" if part else title}
            opened[part] = _open_model(inner, inside, base and part_of(base, part), of_part, others, patterns)
        else:
            companions, left_out = companions_in(inner, inside, patterns, others)
            opened[part] = Checkpoint(title=title, tensors={}, companions=companions, left_out=tuple(left_out))
        deeper = [path for path in inner.glob("*/*") if _is_weights(path.name) and path.parent.name not in others]
        if part and deeper:
            raise TallmasksError(
                f"{title}: found weights in {deeper[0].parent.relative_to(folder)}, which the model's index does not"
                " list; expected weights in the listed folders only. Remove that folder, or save the model again"
            )
    if not any(one.files for one in opened.values()):
        searched = name_some([".", *filter(None, parts)])
        raise TallmasksError(f"{title}: no weight file found in its folders {searched}. Download the model again")
    return joined_parts(opened, base, **attributes)


def _files_in(folder: Path, title: str) -> set[str]:
    try:
        return {entry.name for entry in os.scandir(folder) if not entry.is_dir()}
    except OSError as error:
        raise TallmasksError(f"{title}: {error.strerror}; expected a readable folder. Check its permissions") from None


def _open_model(
    folder: Path,
    names: set[str],
    base: Checkpoint | None,
    attributes: Mapping[str, Any],
    others: Collection[str] = (),
    patterns: Sequence[str] = COMPANIONS,
) -> Checkpoint:
    """``others``: the subfolders with other parts of the model; ``patterns``: of the files that come along."""
    title = str(attributes["title"])
    companions, left_out = companions_in(folder, names, patterns, others)
    model_files = [name for name in _MODEL_FILES if name in names]
    adapter = next((name for name in ADAPTER_FILES if name in names), None)
    if ADAPTER_CONFIG in names or adapter:
        if model_files:
            raise TallmasksError(
                f"{title}: found both a model ({model_files[0]}) and a LoRA ({ADAPTER_CONFIG}); expected only one. Give"
                f" {folder / model_files[0]}, or move the LoRA to its own folder"
            )
        for name in filter(None, (ADAPTER_CONFIG, adapter)):
            within(folder, name)
        left = tuple(name for name in left_out if name not in {ADAPTER_CONFIG, adapter})
        return open_lora(folder, adapter, base, {**attributes, "companions": companions, "left_out": left})
    first = model_files[0] if model_files else _only_weights(folder, names, title)
    within(folder, first)
    shards = _read_index(folder / first) if first.endswith(_INDEX) else None
    files = {name: folder / name for name in sorted({*shards.values()} if shards else {first})}
    indexes = {first: folder / first} if shards else {}
    if absent := [name for name in files if name not in names]:
        raise TallmasksError(
            f"{title}: {len(absent)} of the {len(files)} shards that {first} lists are missing: {name_some(absent)}."
            " Download the folder again"
        )
    for name in files:
        within(folder, name)
    left = tuple(name for name in left_out if name not in {first, *files})
    return open_weight_files(files, shards, **attributes, companions=companions, left_out=left, indexes=indexes)


def _is_weights(name: str) -> bool:
    return name.endswith((SAFETENSORS, *TORCH)) and not name.startswith((*OF_TRAINING, "."))


def _only_weights(folder: Path, names: set[str], title: str) -> str:
    """The single weight file of a folder without standard names."""
    for name in OPEN_CLIP_FILES:
        if name in names:
            return name
    if _DIFFUSERS_LORA in names:
        raise TallmasksError(
            f"{title}: found a diffusers LoRA ({_DIFFUSERS_LORA}); expected a PEFT LoRA with {ADAPTER_CONFIG}. Merge it"
            " into its model with diffusers' fuse_lora, and save the model"
        )
    if "bundle.json" in names:
        raise TallmasksError(
            f"{title}: found a bundle; expected one model. Give {title}#TASK, or write a task's model with"
            " `tallmasks export`"
        )
    some = sorted(filter(_is_weights, names))
    if not some and (packed := [name for name in names if name.endswith(_GGUF)]):
        raise _quantised_format(f"{title}: {packed[0]}")
    if len(best := [name for name in some if name.endswith(SAFETENSORS)] or some) != 1:
        if inside := sorted({path.parent.name for path in folder.glob("*/*") if _is_weights(path.name)}):
            raise TallmasksError(
                f"{title}: found a folder of several models ({name_some(inside)}); expected one. Give the model's"
                f" folder, such as {title.rstrip('/')}/{inside[0]}"
            )
        weights = f"{len(best)} weight files ({name_some(best)})" if best else "no weight file"
        advice = f"Give the path of the weight file{f', such as {folder / best[0]}' if best else ''}"
        raise TallmasksError(
            f"{title}: found {weights}; expected one, a PEFT LoRA, or a model that transformers, diffusers or open_clip"
            f" saved ({', '.join(_MODEL_FILES[:3])}, {OPEN_CLIP_FILES[0]}). {advice}"
        )
    return best[0]


def _quantised_format(what: str) -> TallmasksError:
    return TallmasksError(
        f"{what} is a GGUF file, a format for quantised models; expected weights of at least 16 bits. Give the"
        " safetensors model that it was converted from"
    )


def _read_index(path: Path) -> dict[str, str]:
    """The file of each tensor. Only files in the index's own folder are accepted."""
    with reading(path, "an index of shards: a JSON object whose `weight_map` maps tensors to weight files"):
        shards = read_plain_json(path)["weight_map"]
        if not shards or not all(file.endswith((SAFETENSORS, *TORCH)) for file in shards.values()):
            raise ValueError("not every file is a weight file")
    if outside := [file for file in shards.values() if Path(file).name != file]:
        raise TallmasksError(
            f"{path}: found the file {short(outside[0])}; expected names of files in the same folder. Move the files"
            " there, and write only their names"
        )
    return shards
