"""Reading state dicts that others have saved: nothing in a file is ever executed, and odd tensors are told apart."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tallmasks.store.errors import TallmasksError
from tallmasks.vectors.pickle_walk import check_pickles

if TYPE_CHECKING:
    import torch


def read_state(path: Path, *, mapped: bool = False) -> dict[str, torch.Tensor]:
    """The tensors of a checkpoint file, by name; nothing in the file is ever executed.

    With ``mapped``, values of a file of torch.save stay on the disk until they are used; of a file of the format before
    torch 1.6 they are read all the same.

    Raises:
        TallmasksError: the file is damaged, holds pickled code instead of a state dict, or something else.
    """
    import pickle

    import torch
    from safetensors.torch import load_file

    check_file(path)
    try:
        if path.suffix == ".safetensors":
            state: Any = load_file(path)
        else:
            check_pickles(path)
            lazily = mapped and zipfile.is_zipfile(path)
            state = torch.load(path, map_location="cpu", weights_only=True, mmap=lazily)
    except pickle.UnpicklingError:
        raise TallmasksError(
            f"{path}: it holds more than tensors by name (a pickled model, say), and code in files is not run. Where "
            "you trust it, load it yourself and save its `state_dict()` with torch.save or safetensors"
        ) from None
    except Exception as error:  # the readers raise anything on a file that was cut or changed
        raise TallmasksError(
            f"{path}: not a whole checkpoint file ({_one_line(error)}). Copy or download it again"
        ) from None
    if isinstance(state, Mapping) and isinstance(state.get("state_dict"), Mapping):
        state = state["state_dict"]
    if not isinstance(state, Mapping):
        raise TallmasksError(f"{path}: found a {type(state).__name__}, expected a state dict: tensors by name")
    for name, tensor in state.items():
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            found = "is no name" if not isinstance(name, str) else f"is a {type(tensor).__name__}"
            raise TallmasksError(f"{path}: {short(name)} {found}; expected a state dict: tensors by name, nothing else")
    return dict(state)


def check_file(path: Path) -> None:
    """Refuse what can be told from outside not to be a file of tensors, and would hang or fill the memory.

    Raises:
        TallmasksError: there is no such file, it is no plain file, or an archive that unpacks to more than it is.
    """
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


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def short(value: object) -> str:
    """How an error calls a value of somebody's file."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits, or nested deeply
        return f"a {type(value).__name__}"
    return text if len(text) <= 100 else f"{text[:100]}..."


def oddness(tensor: torch.Tensor) -> str | None:
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
