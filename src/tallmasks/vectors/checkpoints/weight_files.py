"""Weight files as anyone saves them, safetensors and torch.save's, one or many, as one checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tallmasks.store.dtypes import torch_dtypes
from tallmasks.store.errors import TallmasksError
from tallmasks.store.tensor_files import name_some, open_tensors
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint, MappedCheckpoint, TensorInfo, sorted_tensors
from tallmasks.vectors.state_files import oddness, read_state, short

if TYPE_CHECKING:
    import torch

SAFETENSORS = ".safetensors"
TORCH = (".pt", ".pth", ".bin", ".ckpt")
"""How files of torch.save end."""
_OF_PRETRAINED = "tallmasks/pretrained/"
"""What the one file of this package says of itself that is a model."""


@dataclass
class _Found:
    """What has been found in the files so far."""

    tensors: dict[str, TensorInfo] = field(default_factory=dict)
    runs: dict[str, NDArray[np.uint8]] = field(default_factory=dict)
    strided: dict[str, torch.Tensor] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    metadata: dict[str, dict[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False, kw_only=True)
class _StridedCheckpoint(MappedCheckpoint):
    """A checkpoint of torch.save's, of whose tensors some do not lie in memory as they are counted."""

    strided: Mapping[str, torch.Tensor]

    def stored(self, name: str, start: int, stop: int) -> NDArray[np.uint8]:
        """The rows that cover the piece are copied."""
        tensor = self.strided.get(self.aliases.get(name, name))
        if tensor is None:
            return super().stored(name, start, stop)
        row = tensor.numel() // tensor.shape[0]
        first = start // row
        rows = _bytes(tensor[first : -(-stop // row)].contiguous())
        return rows[(start - first * row) * tensor.element_size() : (stop - first * row) * tensor.element_size()]


def open_weight_files(files: Mapping[str, Path], shards: Mapping[str, str] | None = None, **said: Any) -> Checkpoint:
    """Open weight files of one model.

    Args:
        files: by their names in the folder.
        shards: of a sharded model, the file that each tensor is in; checked.
        said: what else a `Checkpoint` knows of itself.

    Raises:
        TallmasksError: a file is missing, damaged, or something else; it holds code; a tensor is there twice, of a kind
            that has no values, or not where the index says.
    """
    found = _Found()
    for name, path in files.items():
        before = set(found.places)
        if path.suffix == SAFETENSORS:
            _add_safetensors(found, name, path)
        else:
            _add_torch(found, name, path)
        if shards is not None:
            _check_shard(shards, name, path, found.places.keys() - before)
    known: dict[str, Any] = {
        **said,
        "files": files,
        "tensors": sorted_tensors(found.tensors.items()),
        "aliases": dict(sorted(found.aliases.items())),
        "places": found.places,
        "metadata": found.metadata,
        "runs": found.runs,
    }
    return _StridedCheckpoint(strided=found.strided, **known) if found.strided else MappedCheckpoint(**known)


def _check_shard(shards: Mapping[str, str], file: str, path: Path, names: set[str]) -> None:
    promised = {name for name, place in shards.items() if place == file}
    if absent := sorted(promised - names):
        raise TallmasksError(
            f"{path}: the index says that it holds {name_some(absent)}, which it does not; expected the shard that the"
            " index was written with. Download the folder again"
        )
    if extra := sorted(names - promised):
        where = shards.get(extra[0])
        said = f"which the index has in {where}" if where else "which the index does not name"
        raise TallmasksError(
            f"{path}: it holds {name_some(extra)}, {said}; expected the shard that the index was written with. Download"
            " the folder again"
        )


def _add_safetensors(found: _Found, file: str, path: Path) -> None:
    opened = open_tensors(path)
    said = opened.metadata.get("format", "")
    if said.startswith("tallmasks/") and not said.startswith(_OF_PRETRAINED):
        what = "a part of a bundle" if said.startswith("tallmasks/bundle/") else "no model"
        raise TallmasksError(
            f"{path}: it says that it is {what} (format {said}); expected the weights of a model. `tallmasks export`"
            " writes a task's model from a bundle; give that"
        )
    found.metadata[file] = opened.metadata
    for name, dtype, shape in opened.described:
        _refuse_twice(found, name, file, path)
        found.tensors[name] = TensorInfo(dtype, tuple(shape))
        found.runs[name] = opened.stored(name)
        found.places[name] = file


def _add_torch(found: _Found, file: str, path: Path) -> None:
    codes = {dtype: code for code, dtype in torch_dtypes().items()}
    known: dict[tuple, str] = {}
    for name, tensor in sorted(read_state(path, mapped=True).items()):
        _refuse_twice(found, name, file, path)
        if (odd := oddness(tensor)) or tensor.dtype not in codes:
            raise TallmasksError(
                f"{path}: tensor {short(name)} is {odd or f'of {tensor.dtype}'}; expected plain values: save a plain"
                " copy of it"
            )
        values = tensor.detach().resolve_conj().resolve_neg()
        found.places[name] = file
        key = (values.untyped_storage().data_ptr(), values.storage_offset(), values.shape, values.stride())
        if values.numel() and (first := known.setdefault((*key, values.dtype), name)) != name:
            found.aliases[name] = first
            continue
        found.tensors[name] = TensorInfo(codes[values.dtype], tuple(values.shape))
        if values.is_contiguous():
            found.runs[name] = _bytes(values)
        else:
            found.strided[name] = values


def _refuse_twice(found: _Found, name: str, file: str, path: Path) -> None:
    if name in found.places:
        raise TallmasksError(
            f"{path}: tensor {short(name)} is in {found.places[name]} too; expected one tensor for each name. Keep one"
            f" of the two files, or give the one that counts instead of the folder"
        )


def _bytes(tensor: torch.Tensor) -> NDArray[np.uint8]:
    import torch

    flat = tensor.reshape(-1).as_strided((tensor.numel(),), (1,))  # a single value may have any stride
    run = flat.view(torch.uint8).numpy()
    run.flags.writeable = False
    return run
