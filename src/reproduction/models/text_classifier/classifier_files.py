"""Imports weights of text classifiers: pretrained ones, and fine-tuned ones with their heads.

Pretrained weights come from a folder that transformers saved, with config.json, weights and tokenizer.  Fine-tuned
ones come from such a folder, or from the weights file alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from transformers import AutoConfig

from reproduction.models.foreign_weights import check_names, float_array, json_of
from reproduction.models.text_classifier.classifier_architectures import BOOKKEEPING, class_names_of
from reproduction.models.text_classifier.classifier_examples import HEAD, TOKENIZER, packed
from reproduction.models.text_classifier.classifier_network import (
    build,
    configuration,
    head_parameters,
    vocabulary_of,
)
from reproduction.models.text_classifier.classifier_tokenizer import open_tokenizer, stored_files
from tallmasks.errors import TallmasksError, short
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.opening import open_checkpoint

CONFIG = "config.json"


def pretrained_state(spec: Mapping[str, Any], weights: Path) -> dict[str, NDArray[Any]]:
    """The content of a pretrained file: the body's tensors in float32, and the tokenizer's files.

    Tensors of heads, such as a language model's, are left out.  ``weights``: the folder, or the weights file in it.

    Raises TallmasksError if a file is damaged or missing, or does not fit the architecture.
    """
    folder = weights if weights.is_dir() else weights.parent
    body, _ = _tensors(spec, open_checkpoint(weights), any_head=True)
    _check_config(spec, folder / CONFIG)
    _check_padding(spec, folder / CONFIG)
    open_tokenizer(folder, vocabulary_of(configuration(spec)))
    return {**body, TOKENIZER: stored_files(folder)}


def fine_tuned_state(spec: Mapping[str, Any], path: Path) -> dict[str, NDArray[Any]]:
    """The body's tensors of a fine-tuned model, and its head if ``spec["heads"]`` is "trained".

    Raises TallmasksError if a file is damaged or missing, its tensors do not fit the architecture, or its head does not
    fit ``spec["classes"]``.
    """
    if path.is_dir() and (path / CONFIG).exists():
        _check_config(spec, path / CONFIG)
        _check_classes(path / CONFIG, spec.get("classes", ()))
    body, head = _tensors(spec, open_checkpoint(path), any_head=False)
    return {**body, HEAD: packed(head)} if head else body


def _tensors(spec: Mapping[str, Any], checkpoint: Checkpoint, any_head: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """The tensors of the body and of the head in float32.  With ``any_head``, heads of all kinds are left out instead.

    Raises TallmasksError if a tensor is missing or unknown, has another shape, or has values that are not finite.
    """
    with torch.device("meta"):
        network, pooled = build(spec, len(spec.get("classes", ())) or 2), build({**spec, "heads": None}, pooling=True)
    wanted = {name: tuple(one.shape) for name, one in network.base_model.named_parameters()}
    heads = {} if any_head else {name: tuple(one.shape) for name, one in head_parameters(network).items()}
    first = min(wanted)
    renamed = {_renamed(name): name for name in checkpoint.names - checkpoint.buffers.keys()}
    prefix = next((name.removesuffix(first) for name in sorted(renamed) if name.endswith(first)), "")
    names = {new.removeprefix(prefix): old for new, old in renamed.items() if new.startswith(prefix) or not any_head}
    allowed = {*dict(pooled.named_parameters(remove_duplicate=False)), *dict(pooled.named_buffers()), *heads}
    expected = "the model that `architecture` in params.yaml describes"
    expected += ", with a head for sequence classification" if heads else ""
    check_names(checkpoint, names, {*wanted, *heads}, allowed, expected)
    return tuple(  # type: ignore[return-value]
        {name: float_array(checkpoint, names[name], shape) for name, shape in sorted(shapes.items())}
        for shapes in (wanted, heads)
    )


def _renamed(name: str) -> str:
    """transformers' name of a layer norm's tensor in files older than transformers."""
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def _check_config(spec: Mapping[str, Any], path: Path) -> None:
    """Raise TallmasksError if config.json describes another network than `architecture`; dropout may differ."""
    content = json_of(path)
    try:
        theirs = AutoConfig.for_model(**content).to_dict()
    except Exception as error:
        raise TallmasksError(f"{path}: transformers cannot use it: {' '.join(str(error).split())[:200]}") from None
    ours = configuration(spec).to_dict()
    known = {key: theirs.get(key) for key in ours.keys() - {"pad_token_id"}}  # transformers ignores other keys
    for setting, found, expected in _differences(known, {key: ours[key] for key in known}):
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


def _check_padding(spec: Mapping[str, Any], path: Path) -> None:
    """Raise TallmasksError if config.json has another padding token, which some networks look for in the text."""
    ours, theirs = getattr(configuration(spec), "pad_token_id", None), json_of(path).get("pad_token_id")
    if isinstance(theirs, int) and theirs != ours:
        raise TallmasksError(
            f"{path}: found the padding token {theirs}, but `architecture` in params.yaml gives {ours}; write "
            f"pad_token_id: {theirs} under `architecture`"
        )


def _check_classes(path: Path, classes: Sequence[str]) -> None:
    """Raise TallmasksError if config.json has other class names than the task, or another order."""
    theirs = class_names_of(path)
    if theirs and [name.casefold() for name in theirs] != [name.casefold() for name in classes]:
        raise TallmasksError(
            f"{path}: found the classes {', '.join(theirs)}, but the task has {', '.join(classes)}; use the "
            "same names in the same order"
        )
