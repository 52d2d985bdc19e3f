"""The files of a new checkpoint: which tensors each weight file has, and what stands beside them."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tallmasks.errors import TallmasksError, short
from tallmasks.io.dtypes import DTYPES, FLOATS
from tallmasks.io.plain_files import LARGEST_JSON, read_plain_json, reading
from tallmasks.io.tensor_files import METADATA, TensorInfo, header_of, library_order
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint, PlannedFile
from tallmasks.vectors.checkpoints.folders import part_prefix
from tallmasks.vectors.checkpoints.weight_files import SAFETENSORS

_CARD = "README.md"
_OF_TORCH = {"format": "pt"}  # metadata that transformers requires


def planned(
    base: Checkpoint, dtypes: Mapping[str, str], single: str | None, shard_size: int | None = None
) -> list[PlannedFile]:
    """The weight files of a checkpoint like ``base`` in which each tensor has its dtype from ``dtypes``.

    Tensors keep the base's order, or the safetensors library's if a dtype or the format changes. ``single``: the file
    name if the checkpoint is not a folder; ``shard_size``: the most bytes of tensors per file.
    """
    if base.originals and shard_size is None and all(dtypes[name] == one.dtype for name, one in base.tensors.items()):
        return [replace(file, name=single or file.name) for file in base.originals]
    infos = {name: TensorInfo(dtypes[base.aliases.get(name, name)], base.info(name).shape) for name in base.file_of}
    if shard_size is not None:
        shards: dict[str, list[str]] = {}
        for part in dict.fromkeys(map(part_prefix, base.files)):
            of_part = {name: one.nbytes for name, one in infos.items() if part_prefix(base.file_of[name]) == part}
            shards |= {part + file: names for file, names in _shards(of_part, shard_size, _stem(base, part)).items()}
        files = [(file, {name: infos[name] for name in names}, _OF_TORCH) for file, names in shards.items()]
        return [_planned_file(base, *file) for file in files]
    planned_files = []
    for file in base.files:
        of_file = {name: infos[name] for name, weight_file in base.file_of.items() if weight_file == file}
        if not file.endswith(SAFETENSORS) or any(info != base.info(name) for name, info in of_file.items()):
            of_file = library_order(of_file)
        metadata = base.metadata.get(file, _OF_TORCH)
        planned_files.append(_planned_file(base, single or _renamed(file), of_file, metadata))
    return planned_files


def _stem(base: Checkpoint, part: str) -> str:
    """The prefix of a part's weight files: diffusers uses another than transformers."""
    return "diffusion_pytorch_model" if any(f.startswith(f"{part}diffusion_") for f in base.files) else "model"


def _shards(width: Mapping[str, int], size: int, stem: str) -> dict[str, list[str]]:
    groups: list[list[str]] = []
    left = 0
    for name, taken in width.items():
        if not groups or taken > left:
            groups.append([])
            left = size
        groups[-1].append(name)
        left -= taken
    if len(groups) == 1:
        return {f"{stem}{SAFETENSORS}": groups[0]}
    return {f"{stem}-{number:05}-of-{len(groups):05}{SAFETENSORS}": names for number, names in enumerate(groups, 1)}


def _planned_file(
    base: Checkpoint, file: str, infos: Mapping[str, TensorInfo], metadata: Mapping[str, str]
) -> PlannedFile:
    names: dict[str, str] = {}
    for name in infos:
        in_file = base.file_name(name).removeprefix(part_prefix(file))
        if in_file in names or in_file == METADATA:
            raise TallmasksError(
                f"{base.title}: the tensor name {short(in_file)} occurs twice in {file}, or is reserved by safetensors;"
                " expected a different name for each tensor. Rename it"
            )
        names[in_file] = name
    return PlannedFile(file, {in_file: infos[name] for in_file, name in names.items()}, names, metadata)


def tensors_file(checkpoint: Checkpoint, names: Sequence[str]) -> bytes:
    """A safetensors file of some tensors, as bytes."""
    infos = {name: checkpoint.info(name) for name in names}
    file = _planned_file(checkpoint, "", infos, _OF_TORCH)
    values = [checkpoint.raw_bytes(name, 0, info.size).tobytes() for name, info in infos.items()]
    return header_of(file.infos, file.metadata) + b"".join(values)


def small_files(
    base: Checkpoint, files: Sequence[PlannedFile], card: str | None, code: str | None
) -> dict[str, bytes | Path]:
    """The companions, the index and the card by name, as bytes or as files to copy. ``code``: the new dtype of all
    float tensors, which is also set in config.json because transformers loads in that dtype."""
    texts: dict[str, bytes | Path] = dict(base.companions)
    if code is not None:
        dtype, floats = DTYPES[code].torch, [DTYPES[code].torch for code in FLOATS]

        def retyped(config: Any) -> Any:
            return replaced(config, ("dtype", "torch_dtype"), floats, dtype)

        configs = [name for name in base.companions if Path(name).name == "config.json"]
        texts |= {name: edited(base.companions[name], retyped) for name in configs}
    for part in dict.fromkeys(part_prefix(file.name) for file in files if file.header is None):
        texts |= _index(base, [file for file in files if part_prefix(file.name) == part], part, code)
    if card is not None:
        texts[_CARD] = card.encode()
    return texts


def _index(base: Checkpoint, files: Sequence[PlannedFile], part: str, code: str | None) -> dict[str, bytes | Path]:
    index = next((name for name in base.indexes if part_prefix(name) == part), None)
    resharded = {file.name for file in files} != {_renamed(file) for file in base.files if part_prefix(file) == part}
    name = f"{part}{_stem(base, part)}{SAFETENSORS}.index.json"
    if name in base.indexes and code is None and not resharded:
        return {name: base.indexes[name]}
    if len(files) == 1 and (index is None or resharded):
        return {}
    total = sum(info.nbytes for file in files for info in file.infos.values())
    file_of = {name: file.name.removeprefix(part) for file in files for name in file.infos}

    def written(content: Any) -> Any:
        metadata = content["metadata"] if isinstance(content.get("metadata"), dict) else {}
        weight_map = dict(sorted(file_of.items()))
        return {**content, "metadata": {**metadata, "total_size": total}, "weight_map": weight_map}

    return {name: edited(base.indexes[index] if index else None, written)}


def _renamed(file: str) -> str:
    """The safetensors name of a weight file: pytorch_model-1-of-2.bin becomes model-1-of-2.safetensors."""
    stem = Path(file).stem
    stem = stem if stem.startswith("diffusion_") else stem.replace("pytorch_model", "model")
    return file if file.endswith(SAFETENSORS) else f"{part_prefix(file)}{stem}{SAFETENSORS}"


def edited(path: Path | None, edit: Callable[[Any], Any], largest: int = LARGEST_JSON) -> bytes:
    """A JSON file of up to ``largest`` bytes (default: {}) with a change, as bytes. Raises TallmasksError if it cannot
    be read or serialised."""
    with reading(path or "the index", "JSON that can be written again, as transformers writes it"):
        content = edit(read_plain_json(path, largest) if path else {})
        return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()


def replaced(config: Any, keys: Collection[str], before: Collection[Any], after: Any) -> Any:
    """A configuration in which values of ``keys`` that are in ``before`` become ``after``, at any depth."""
    if isinstance(config, dict):
        return {
            key: after if key in keys and value in before else replaced(value, keys, before, after)
            for key, value in config.items()
        }
    return [replaced(inner, keys, before, after) for inner in config] if isinstance(config, list) else config
