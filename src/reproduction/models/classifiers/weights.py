"""Reads and checks the weights of classifiers that transformers saved: pretrained bodies, and fine-tuned models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import AutoConfig, PretrainedConfig

from reproduction.models.classifiers.heads import head_parameters
from reproduction.models.classifiers.settings import BOOKKEEPING, class_names_of
from reproduction.models.foreign_weights import check_names, float_array, json_of
from tallmasks.errors import TallmasksError, short
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint

CONFIG = "config.json"
Arrays = dict[str, NDArray[np.float32]]


def body_and_head(network: Any, pooled: Any, checkpoint: Checkpoint, any_head: bool = False) -> tuple[Arrays, Arrays]:
    """The tensors of the body and of the head in float32.  With ``any_head``, heads of all kinds are left out instead.

    Args:
        network: on the meta device, with the head of the task if heads are trained.
        pooled: the same body, with a pooling layer if there is one; its tensors may be in the checkpoint.

    Raises TallmasksError if a tensor is missing or unknown, has another shape, or has values that are not finite.
    """
    wanted = {name: tuple(one.shape) for name, one in network.base_model.named_parameters()}
    heads = {} if any_head else {name: tuple(one.shape) for name, one in head_parameters(network).items()}
    renamed, first = {_renamed(name): name for name in checkpoint.names - checkpoint.buffers.keys()}, min(wanted)
    prefix = next((name.removesuffix(first) for name in sorted(renamed) if name.endswith(first)), "")
    names = {new.removeprefix(prefix): old for new, old in renamed.items() if new.startswith(prefix) or not any_head}
    allowed = {*dict(pooled.named_parameters(remove_duplicate=False)), *dict(pooled.named_buffers()), *heads}
    expected = "the model that `architecture` in params.yaml describes"
    check_names(checkpoint, names, {*wanted, *heads}, allowed, expected + (", with a head" if heads else ""))
    body, head = (
        {name: float_array(checkpoint, names[name], shape) for name, shape in sorted(shapes.items())}
        for shapes in (wanted, heads)
    )
    return body, head


def _renamed(name: str) -> str:
    """transformers' name of a layer norm's tensor in files older than transformers."""
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def check_config(ours: PretrainedConfig, path: Path) -> None:
    """Raise TallmasksError if config.json describes another network than `architecture`; dropout may differ."""
    content = json_of(path)
    try:
        theirs = AutoConfig.for_model(**content).to_dict()
    except Exception as error:
        raise TallmasksError(f"{path}: transformers cannot use it: {' '.join(str(error).split())[:200]}") from None
    mine = ours.to_dict()
    known = {key: theirs.get(key) for key in mine.keys() - {"pad_token_id"}}  # transformers ignores other keys
    for setting, found, expected in _differences(known, {key: mine[key] for key in known}):
        raise TallmasksError(
            f"{path}: {setting}: found {short(found)}, but `architecture` in params.yaml gives {short(expected)}; "
            "write this setting under `architecture`, or use weights that match it"
        )


def _differences(theirs: Any, ours: Any, *path: str) -> Iterator[tuple[str, Any, Any]]:
    """The settings that change what the body computes, also inside of others, with both values."""
    if isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        theirs, ours = dict(enumerate(theirs)), dict(enumerate(ours))
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in sorted({*theirs, *ours}, key=str):
            if key not in BOOKKEEPING - {"pad_token_id"} and "drop" not in str(key):
                yield from _differences(theirs.get(key), ours.get(key), *path, str(key))
    elif theirs != ours:
        yield ".".join(path), theirs, ours


def check_classes(path: Path, classes: Sequence[str]) -> None:
    """Raise TallmasksError if config.json has other class names than the task, or another order."""
    theirs = class_names_of(path)
    if theirs and [name.casefold() for name in theirs] != [name.casefold() for name in classes]:
        raise TallmasksError(
            f"{path}: found the classes {', '.join(theirs)}, but the task has {', '.join(classes)}; use the "
            "same names in the same order"
        )
