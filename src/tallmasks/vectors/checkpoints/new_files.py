"""The layout of the files of a new checkpoint, and how bytes are written into them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallmasks.errors import TallmasksError, needed_for, short
from tallmasks.io.atomic_files import no_room
from tallmasks.io.dtypes import DTYPES, FLOATS, torch_dtypes
from tallmasks.io.plain_files import LARGEST_JSON, read_plain_json, reading
from tallmasks.io.tensor_files import METADATA
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.folder_parts import part_prefix
from tallmasks.vectors.checkpoints.weight_files import SAFETENSORS

_CARD = "README.md"
_OF_TORCH = {"format": "pt"}  # metadata that transformers requires


@dataclass(frozen=True)
class PlannedFile:
    name: str
    header: bytes
    spans: Mapping[str, tuple[int, int]]  # byte range in the data section, in order, for every name of every tensor

    @property
    def size(self) -> int:
        return len(self.header) + max((end for _, end in self.spans.values()), default=0)


def planned(
    base: Checkpoint, dtypes: Mapping[str, str], single: str | None, shard_size: int | None = None
) -> list[PlannedFile]:
    """The weight files of a checkpoint like ``base`` in which each tensor has its dtype from ``dtypes``.

    Tensors keep the base's order, or the safetensors library's if a dtype or the format changes. ``single``: the file
    name if the checkpoint is not a folder; ``shard_size``: the most bytes of tensors per file.
    """
    code = {name: dtypes[base.aliases.get(name, name)] for name in base.file_of}
    width = {name: _bytes_of(base, name, code[name]) for name in base.file_of}
    if shard_size is not None:
        shards: dict[str, list[str]] = {}
        for part in dict.fromkeys(map(part_prefix, base.files)):
            of_part = {name: size for name, size in width.items() if part_prefix(base.file_of[name]) == part}
            shards |= {part + file: names for file, names in _shards(of_part, shard_size, _stem(base, part)).items()}
        return [_planned_file(base, name, names, code, width, _OF_TORCH) for name, names in shards.items()]
    files = []
    for file in base.files:
        names = [name for name, weight_file in base.file_of.items() if weight_file == file]
        kept = file.endswith(SAFETENSORS) and all(code[name] == base.info(name).dtype for name in names)
        if not kept:
            names.sort(key=lambda name: (-width[name] // max(base.info(name).size, 1), name))
        metadata = base.metadata.get(file, _OF_TORCH)
        files.append(_planned_file(base, single or _renamed(file), names, code, width, metadata))
    return files


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
    base: Checkpoint,
    file: str,
    names: Sequence[str],
    code: Mapping[str, str],
    width: Mapping[str, int],
    metadata: Mapping[str, str],
) -> PlannedFile:
    header: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    spans, end = {}, 0
    for name in names:
        spans[name] = (end, end := end + width[name])
        entry = {"dtype": code[name], "shape": list(base.info(name).shape), "data_offsets": list(spans[name])}
        in_file = base.file_name(name).removeprefix(part_prefix(file))
        if in_file in header or in_file == METADATA:
            raise TallmasksError(
                f"{base.title}: found a second tensor, or a key of safetensors files, in the name {short(in_file)};"
                " expected a name of its own for each tensor. Rename it"
            )
        header[in_file] = entry
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text = text.ljust(-(-len(text) // 8) * 8)
    return PlannedFile(file, len(text).to_bytes(8, "little") + text, spans)


def tensors_file(checkpoint: Checkpoint, names: Sequence[str]) -> bytes:
    """A safetensors file of some tensors, as bytes."""
    values = {name: checkpoint.stored(name, 0, checkpoint.info(name).size).tobytes() for name in names}
    code = {name: checkpoint.info(name).dtype for name in names}
    width = {name: len(content) for name, content in values.items()}
    return _planned_file(checkpoint, "", names, code, width, _OF_TORCH).header + b"".join(values.values())


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
    for part in dict.fromkeys(part_prefix(file.name) for file in files):
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
    total = sum(end - start for file in files for start, end in file.spans.values())
    spots = ((tensor, file.name.removeprefix(part)) for file in files for tensor in file.spans)
    file_of = {base.file_name(tensor).removeprefix(part): file for tensor, file in spots}

    def written(content: Any) -> Any:
        facts = content["metadata"] if isinstance(content.get("metadata"), dict) else {}
        weight_map = dict(sorted(file_of.items()))
        return {**content, "metadata": {**facts, "total_size": total}, "weight_map": weight_map}

    return {name: edited(base.indexes[index] if index else None, written)}


class SafetensorsSink:
    """Weight files with all their disk space reserved in advance; ``stack`` closes them."""

    def __init__(self, hidden: Path, files: Sequence[PlannedFile], base: Checkpoint, stack: ExitStack) -> None:
        self._places: dict[str, list[tuple[int, int]]] = {}
        for file in files:
            path = hidden / file.name if base.is_folder else hidden
            path.parent.mkdir(exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            stack.callback(os.close, descriptor)
            os.posix_fallocate(descriptor, 0, file.size)
            _write_at(descriptor, 0, memoryview(file.header))
            for name, (start, _) in file.spans.items():
                spot = (descriptor, len(file.header) + start)
                self._places.setdefault(base.aliases.get(name, name), []).append(spot)

    def put(self, name: str, start: int, data: NDArray[np.uint8]) -> None:
        """Write bytes of a tensor at offset ``start``; thread-safe."""
        for descriptor, offset in self._places[name]:
            _write_at(descriptor, offset + start, np.ascontiguousarray(data).data)


class TorchSink:
    """A state dict in memory, saved with torch.save at the end."""

    def __init__(self, path: Path, base: Checkpoint, dtypes: Mapping[str, str], file: PlannedFile) -> None:
        with needed_for(f"writing a {Path(file.name).suffix} file"):
            import torch

        self._path, self._base, self._file = path, base, file
        forms = {name: (base.info(name).shape, torch_dtypes()[code]) for name, code in dtypes.items()}
        self._tensors = {name: torch.empty(shape, dtype=dtype) for name, (shape, dtype) in forms.items()}
        self._bytes = {name: tensor.view(-1).view(torch.uint8).numpy() for name, tensor in self._tensors.items()}

    def put(self, name: str, start: int, data: NDArray[np.uint8]) -> None:
        self._bytes[name][start : start + data.size] = data

    def save(self) -> None:
        import torch

        names = {name: self._base.aliases.get(name, name) for name in self._base.file_of}
        state = {self._base.file_name(name): self._tensors[own] for name, own in names.items()}
        try:
            torch.save(state, self._path)
        except RuntimeError as error:  # torch raises this if the disk is full
            raise no_room(self._path.parent / self._file.name, self._file.size) from error


def _write_at(descriptor: int, offset: int, data: memoryview) -> None:
    while data:
        count = os.pwrite(descriptor, data, offset)
        data, offset = data[count:], offset + count


def _bytes_of(base: Checkpoint, name: str, code: str) -> int:
    info = base.info(name)
    return info.size * FLOATS[code] if code in FLOATS else base.stored(name, 0, info.size).size


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
