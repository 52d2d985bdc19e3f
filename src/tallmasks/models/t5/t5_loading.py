"""T5 networks from pretrained files.

A pretrained file holds the hub's tensors in float32 or half precision, each once, and the tokenizer's JSON as
``tokenizer.json``, uint8.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import T5Config, T5ForConditionalGeneration

from tallmasks.models import cuda
from tallmasks.models.families import Precision
from tallmasks.models.pretrained_files import check_tensors, read_pretrained
from tallmasks.models.t5.ia3 import Ia3Model
from tallmasks.models.t5.t5_architectures import Architecture
from tallmasks.models.t5.t5_network import TextModel
from tallmasks.models.t5.text_scoring import Scoring
from tallmasks.models.t5.text_tokenizer import TENSOR, TextTokenizer
from tallmasks.store.errors import TallmasksError


def build(architecture: Architecture, tensors: Mapping[str, torch.Tensor]) -> T5ForConditionalGeneration:
    """transformers' network with the tensors of a pretrained file, float32.

    transformers ties the two tables whatever its configuration.  Copying would leave the second one's values in both,
    so each tensor becomes a parameter of its own.
    """
    with torch.device("meta"):
        network = T5ForConditionalGeneration(T5Config(**architecture.config))
    named = {name: tensor.float() for name, tensor in tensors.items()}
    network.load_state_dict(named, strict=False, assign=True)
    network.set_input_embeddings(network.shared)
    return network


def load(
    spec: Mapping[str, Any], weights: Path, precision: Precision = "float32", device: cuda.Wanted | None = None
) -> TextModel:
    """See `Family.load`; the spec has ``architecture``, ``adapter`` and ``scoring``."""
    place = cuda.choose(device)
    architecture, adapter = Architecture.of(spec["architecture"]), spec.get("adapter")
    tensors = read_pretrained(weights)
    text = tensors.pop(TENSOR, None)
    if text is None:
        raise TallmasksError(
            f"{weights}: no tensor {TENSOR!r}, which holds the tokenizer; a model as transformers saves it is "
            "converted if `pretrained` in params.yaml names its folder, not the file in it"
        )
    tokenizer = TextTokenizer(_utf8(text, weights), weights, architecture.vocab_size)
    check_tensors(weights, architecture.shapes, tensors)
    network = build(architecture, tensors)
    torch.nn.Module.to(network, place)
    if place.type == "cuda":
        cuda.make_repeatable(tf32=precision == "tf32")
    scoring = Scoring.of(spec)
    if adapter is not None:
        return Ia3Model(network, architecture.trainable(adapter), tokenizer, scoring, precision)
    named = dict(network.named_parameters())
    trained = {name: named[name] for name in architecture.trainable()}
    return TextModel(network, trained, tokenizer, scoring, precision)


def _utf8(text: torch.Tensor, weights: Path) -> str:
    try:
        return bytes(text.numpy()).decode()
    except (UnicodeDecodeError, TypeError) as error:
        raise TallmasksError(f"{weights}: {TENSOR} is no text ({error}); make the file anew") from None
