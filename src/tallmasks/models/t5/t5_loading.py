"""T5 networks from pretrained files.

A pretrained file holds the hub's tensors in float32 or half precision, each once.  ``tokenizer.json``, uint8, is the
tokenizer's JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from transformers import T5Config, T5ForConditionalGeneration

from tallmasks.models import cuda
from tallmasks.models.families import Precision
from tallmasks.models.language.text_batches import TextBatch, TokenizedText
from tallmasks.models.language.text_scoring import Scoring
from tallmasks.models.language.text_tokenizer import TextTokenizer, stored_tokenizer
from tallmasks.models.pretrained_files import check_tensors, read_pretrained
from tallmasks.models.t5.ia3 import Ia3Model
from tallmasks.models.t5.t5_architectures import Architecture
from tallmasks.models.t5.t5_network import T5Model

ANSWER_TOKENS = 8  # of an answer in `outline`


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
) -> T5Model:
    """See `Family.load`; the spec has ``architecture``, ``adapter`` and ``scoring``."""
    place = cuda.choose(device)
    architecture = Architecture.of(spec["architecture"])
    tensors = read_pretrained(weights)
    tokenizer = stored_tokenizer(tensors, weights, architecture.vocab_size)
    check_tensors(weights, architecture.shapes, tensors)
    network = build(architecture, tensors)
    torch.nn.Module.to(network, place)
    if place.type == "cuda":
        cuda.make_repeatable(tf32=precision == "tf32")
    return _model(spec, network, tokenizer, precision)


def outline(spec: Mapping[str, Any], examples: int) -> tuple[T5Model, TextBatch]:
    """See `Family`; inputs have ``max_input_tokens``."""
    shapes = Architecture.of(spec["architecture"]).shapes.items()
    network = build(Architecture.of(spec["architecture"]), {name: torch.empty(shape) for name, shape in shapes})
    tokenizer: Any = SimpleNamespace(pad=0)
    model = _model(spec, network, tokenizer, spec["finetuning"].get("precision", "float32"))
    longest = model.scoring.max_input_tokens
    example = TokenizedText([0] * longest, ([0] * ANSWER_TOKENS,), 0)
    return model, TextBatch((example,) * examples, 0, model.device, longest)


def _model(
    spec: Mapping[str, Any], network: T5ForConditionalGeneration, tokenizer: TextTokenizer, precision: Precision
) -> T5Model:
    architecture, adapter, scoring = Architecture.of(spec["architecture"]), spec.get("adapter"), Scoring.of(spec)
    if adapter is not None:
        return Ia3Model(network, architecture.trainable(adapter), tokenizer, scoring, precision)
    named = dict(network.named_parameters())
    trained = {name: named[name] for name in architecture.trainable()}
    return T5Model(network, trained, tokenizer, scoring, precision)
