"""Imports weights of text classifiers: pretrained ones, and fine-tuned ones with their heads.

Pretrained weights come from a folder that transformers saved, with config.json, weights and tokenizer.  Fine-tuned
ones come from such a folder, or from the weights file alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

from reproduction.models.classifiers.heads import HEAD, packed
from reproduction.models.classifiers.weights import CONFIG, Arrays, body_and_head, check_classes, check_config
from reproduction.models.foreign_weights import json_of
from reproduction.models.text_classifier.classifier_examples import TOKENIZER
from reproduction.models.text_classifier.classifier_network import build, configuration, vocabulary_of
from reproduction.models.text_classifier.classifier_tokenizer import open_tokenizer, stored_files
from tallmasks.errors import TallmasksError
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.opening import open_checkpoint


def pretrained_state(spec: Mapping[str, Any], weights: Path) -> dict[str, NDArray[Any]]:
    """The content of a pretrained file: the body's tensors in float32, and the tokenizer's files.

    Tensors of heads, such as a language model's, are left out.  ``weights``: the folder, or the weights file in it.

    Raises TallmasksError if a file is damaged or missing, or does not fit the architecture.
    """
    folder = weights if weights.is_dir() else weights.parent
    body, _ = _tensors(spec, open_checkpoint(weights), any_head=True)
    check_config(configuration(spec), folder / CONFIG)
    _check_padding(spec, folder / CONFIG)
    open_tokenizer(folder, vocabulary_of(configuration(spec)))
    return {**body, TOKENIZER: stored_files(folder)}


def fine_tuned_state(spec: Mapping[str, Any], path: Path) -> dict[str, NDArray[Any]]:
    """The body's tensors of a fine-tuned model, and its head if ``spec["heads"]`` is "trained".

    Raises TallmasksError if a file is damaged or missing, its tensors do not fit the architecture, or its head does not
    fit ``spec["classes"]``.
    """
    if path.is_dir() and (path / CONFIG).exists():
        check_config(configuration(spec), path / CONFIG)
        check_classes(path / CONFIG, spec.get("classes", ()))
    body, head = _tensors(spec, open_checkpoint(path), any_head=False)
    return {**body, HEAD: packed(head)} if head else body


def _tensors(spec: Mapping[str, Any], checkpoint: Checkpoint, any_head: bool) -> tuple[Arrays, Arrays]:
    with torch.device("meta"):
        network, pooled = build(spec, len(spec.get("classes", ())) or 2), build({**spec, "heads": None}, pooling=True)
    return body_and_head(network, pooled, checkpoint, any_head)


def _check_padding(spec: Mapping[str, Any], path: Path) -> None:
    """Raise TallmasksError if config.json has another padding token, which some networks look for in the text."""
    ours, theirs = getattr(configuration(spec), "pad_token_id", None), json_of(path).get("pad_token_id")
    if isinstance(theirs, int) and theirs != ours:
        raise TallmasksError(
            f"{path}: found the padding token {theirs}, but `architecture` in params.yaml gives {ours}; write "
            f"pad_token_id: {theirs} under `architecture`"
        )
