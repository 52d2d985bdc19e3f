"""Weight files as anyone saves them, safetensors and torch.save's, one or many, as one checkpoint.

Nothing in a file is ever executed.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from tallmasks.store.dtypes import DTYPES, torch_codes
from tallmasks.store.errors import TallmasksError, needed_for, short
from tallmasks.store.tensor_files import name_some, open_tensors
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint, TensorInfo
from tallmasks.vectors.checkpoints.pickle_walk import check_pickles

if TYPE_CHECKING:
    import torch

SAFETENSORS = ".safetensors"
TORCH = (".pt", ".pth", ".bin", ".ckpt")
"""How files of torch.save end."""
_OF_PRETRAINED = "tallmasks/pretrained/"
"""What the one file of this package says of itself that is a model."""


@dataclass
class _Read:
    """What the files read so far hold."""

    tensors: dict[str, TensorInfo] = field(default_factory=dict)
    arrays: dict[str, NDArray] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    metadata: dict[str, dict[str, str]] = field(default_factory=dict)


def open_weight_files(files: Mapping[str, Path], shards: Mapping[str, str] | None = None, **facts: Any) -> Checkpoint:
    """Open weight files of one model, by their names in the folder.

    Args:
        shards: of a sharded model, the file of each tensor; checked.
        facts: other fields of the `Checkpoint`.

    Raises TallmasksError where a file is missing, damaged, or something else; it holds code; a tensor is there twice,
    of a kind that has no values, or not where the index says.
    """
    read = _Read()
    for name, path in files.items():
        before = set(read.places)
        add = _add_torch if path.suffix in TORCH else _add_safetensors
        add(read, name, path)
        if shards is not None:
            _check_shard(shards, name, path, read.places.keys() - before)
    return Checkpoint(
        **facts,
        files=files,
        tensors=dict(sorted(read.tensors.items())),
        aliases=dict(sorted(read.aliases.items())),
        places=read.places,
        metadata=read.metadata,
        arrays=read.arrays,
    )


def _check_shard(shards: Mapping[str, str], file: str, path: Path, names: set[str]) -> None:
    promised = {name for name, place in shards.items() if place == file}
    if absent := sorted(promised - names):
        raise TallmasksError(
            f"{path}: the index says that it holds {name_some(absent)}, which it does not; expected the shard that the"
            " index was written with. Download the folder again"
        )
    if extra := sorted(names - promised):
        where = shards.get(extra[0])
        why = f"which the index has in {where}" if where else "which the index does not name"
        raise TallmasksError(
            f"{path}: it holds {name_some(extra)}, {why}; expected the shard that the index was written with. Download"
            " the folder again"
        )


def _add_safetensors(read: _Read, file: str, path: Path) -> None:
    opened = open_tensors(path)
    kind = opened.metadata.get("format", "")
    if kind.startswith("tallmasks/") and not kind.startswith(_OF_PRETRAINED):
        what = "a part of a bundle" if kind.startswith("tallmasks/bundle/") else "no model"
        raise TallmasksError(
            f"{path}: it says that it is {what} (format {kind}); expected the weights of a model. `tallmasks export`"
            " writes a task's model from a bundle; give that"
        )
    read.metadata[file] = opened.metadata
    for name, dtype, shape in opened.described:
        _refuse_twice(read, name, file, path)
        read.tensors[name] = TensorInfo(dtype, tuple(shape))
        read.arrays[name] = opened.view(name) if dtype in DTYPES else opened.stored(name)
        read.places[name] = file


def _add_torch(read: _Read, file: str, path: Path) -> None:
    state = _state_dict(path)
    codes = torch_codes()
    first_names: dict[tuple, str] = {}
    for name, tensor in sorted(state.items()):
        _refuse_twice(read, name, file, path)
        if (odd := _oddness(tensor)) or tensor.dtype not in codes:
            raise TallmasksError(
                f"{path}: tensor {short(name)} is {odd or f'of {tensor.dtype}'}; expected plain values: save a plain"
                " copy of it"
            )
        values = tensor.detach().resolve_conj().resolve_neg()
        read.places[name] = file
        key = (values.untyped_storage().data_ptr(), values.storage_offset(), values.shape, values.stride())
        if values.numel() and (first := first_names.setdefault((*key, values.dtype), name)) != name:
            read.aliases[name] = first
            continue
        code = codes[values.dtype]
        read.tensors[name] = TensorInfo(code, tuple(values.shape))
        read.arrays[name] = _array(values, code)
        read.arrays[name].flags.writeable = False


def _refuse_twice(read: _Read, name: str, file: str, path: Path) -> None:
    if name in read.places:
        raise TallmasksError(
            f"{path}: tensor {short(name)} is in {read.places[name]} too; expected one tensor for each name. Keep one"
            f" of the two files, or give the one that counts instead of the folder"
        )


def _array(tensor: torch.Tensor, code: str) -> NDArray:
    """A tensor's values where they are; as bits, where NumPy lacks the dtype."""
    import torch

    if code.startswith(("BF16", "F8")):
        tensor = tensor.view(torch.int16 if code == "BF16" else torch.uint8)
    return tensor.numpy().view(DTYPES[code].numpy)


def _state_dict(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a file of torch.save by name, memory-mapped, except for the format before torch 1.6.

    Raises TallmasksError where the file is damaged, holds pickled code instead of a state dict, or something else.
    """
    import pickle

    _check_file(path)
    with needed_for(f"reading a {path.suffix} file"):
        import torch
    try:
        check_pickles(path)
        state: Any = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except pickle.UnpicklingError:
        raise TallmasksError(
            f"{path}: it holds more than tensors by name (a pickled model, say), and code in files is not run. Where "
            "you trust it, load it yourself and save its `state_dict()` with torch.save or safetensors"
        ) from None
    except Exception as error:  # the readers raise anything on a file that was cut or changed
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise TallmasksError(f"{path}: not a whole checkpoint file ({reason}). Copy or download it again") from None
    if isinstance(state, Mapping) and isinstance(state.get("state_dict"), Mapping):
        state = state["state_dict"]
    if not isinstance(state, Mapping):
        raise TallmasksError(f"{path}: found a {type(state).__name__}, expected a state dict: tensors by name")
    for name, tensor in state.items():
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            odd = "is no name" if not isinstance(name, str) else f"is a {type(tensor).__name__}"
            raise TallmasksError(f"{path}: {short(name)} {odd}; expected a state dict: tensors by name, nothing else")
    return dict(state)


def _check_file(path: Path) -> None:
    """Refuse what is no file of tensors, and would hang or fill the memory."""
    if not path.is_file():
        problem = "not a plain file" if path.exists() else "no such file"
        raise TallmasksError(f"{path}: {problem}; expected a file of tensors, .safetensors or as torch.save writes it")
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
    except Exception:  # no archive, or a damaged one: for its own reader to judge
        return
    if unpacked > path.stat().st_size:
        raise TallmasksError(
            f"{path}: an archive of {path.stat().st_size} bytes that unpacks to {unpacked}; torch.save compresses "
            "nothing: expected a file that it wrote"
        )


def _oddness(tensor: torch.Tensor) -> str | None:
    """What keeps a tensor from being an array of values in memory, if anything does."""
    import torch

    if tensor.is_nested or tensor.is_quantized or tensor.layout != torch.strided:
        kind = "nested" if tensor.is_nested else "quantised" if tensor.is_quantized else str(tensor.layout)
        return f"of a special kind ({kind})"
    if tensor.device.type != "cpu":
        return f"without values (on the device {tensor.device})"
    if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        return f"a view of {tensor.numel()} values on {tensor.untyped_storage().nbytes()} bytes"
    return None
