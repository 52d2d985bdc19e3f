"""Open safetensors and torch.save files, one or many, as one checkpoint. Code in files is never run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from tallmasks.errors import TallmasksError, name_some
from tallmasks.io.plain_files import reading
from tallmasks.io.tensor_files import NAME, TensorInfo, is_name, open_tensors
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.pickled_tensors import Unusable
from tallmasks.vectors.checkpoints.torch_files import tensors_in

SAFETENSORS = ".safetensors"
INDEX = ".safetensors.index.json"
TORCH = (".pt", ".pth", ".bin", ".ckpt")  # suffixes of torch.save files
_OF_PRETRAINED = "tallmasks/pretrained/"  # the only format of this package that is a model


@dataclass
class _Read:
    tensors: dict[str, TensorInfo] = field(default_factory=dict)
    arrays: dict[str, NDArray] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    file_of: dict[str, str] = field(default_factory=dict)
    metadata: dict[str, dict[str, str]] = field(default_factory=dict)


def open_weight_files(
    files: Mapping[str, Path], shards: Mapping[str, str] | None = None, **attributes: Any
) -> Checkpoint:
    """Open the weight files of one model, given by their names in the folder.

    ``shards``: the file of each tensor of a sharded model, checked; ``attributes``: other fields of the `Checkpoint`.

    Raises TallmasksError if a file is missing, damaged, not a weight file or contains code, or if a tensor has no plain
    values or is not in the file that the index names.
    """
    read = _Read()
    for name, path in files.items():
        with reading(path, "a complete safetensors or torch.save file"):
            names = (_add_torch if path.suffix in TORCH else _add_safetensors)(read, name, path)
        if odd := next((one for one in (*names, *read.aliases) if not is_name(one)), None):
            raise TallmasksError(f"{path}: found the tensor name {odd[:100]!a}; expected {NAME}. Rename it")
        if shards is not None:
            _check_shard(path, names, {one for one, file in shards.items() if file == name})
    read.tensors = dict(sorted(read.tensors.items()))
    read.aliases = {alias: name for alias, name in sorted(read.aliases.items()) if alias not in read.tensors}
    return Checkpoint(**attributes, files=files, **vars(read))


def _check_shard(path: Path, names: set[str], promised: set[str]) -> None:
    for how, wrong in (("missing", promised - names), ("not in the index", names - promised)):
        if wrong:
            raise TallmasksError(
                f"{path}: tensors {how}: {name_some(sorted(wrong))}; expected the tensors that the index lists for this"
                " file. Download the folder again"
            )


def _add_safetensors(read: _Read, file: str, path: Path) -> set[str]:
    """Add a file's tensors and return their names."""
    opened = open_tensors(path)
    kind = opened.metadata.get("format", "")
    if kind.startswith("tallmasks/") and not kind.startswith(_OF_PRETRAINED):
        raise TallmasksError(
            f"{path}: found a file of the format {kind}; expected the weights of a model. For a bundle, give"
            " BUNDLE#TASK, or write the model with `tallmasks export`"
        )
    read.metadata[file] = opened.metadata
    for name, info in opened.infos.items():
        read.tensors[name] = info
        read.arrays[name] = opened.array(name)
        read.file_of[name] = file
    names = set(opened.names)
    # safetensors' save_model records the names of tied tensors in the metadata
    read.aliases |= {alias: name for alias, name in opened.metadata.items() if name in names}
    return names


def _add_torch(read: _Read, file: str, path: Path) -> set[str]:
    if not path.is_file():
        problem = "not a plain file" if path.exists() else "no such file"
        raise TallmasksError(f"{path}: {problem}; expected a safetensors or torch.save file. Check the path")
    try:
        tensors = tensors_in(path)
    except Unusable as error:
        raise TallmasksError(
            f"{path}: found no state dict in it ({error}); expected a dict of tensors by name. Code in files is never"
            " run. Copy or download it again, or, if you trust it, load it with torch and save its `state_dict()`"
        ) from None
    first_names: dict[int, str] = {}
    for name in sorted(tensors):
        code, array = tensors[name]
        read.file_of[name] = file
        if array.size and (first := first_names.setdefault(id(array), name)) != name:
            read.aliases[name] = first
            continue
        read.tensors[name] = TensorInfo(code, array.shape)
        read.arrays[name] = array
    return set(tensors)
