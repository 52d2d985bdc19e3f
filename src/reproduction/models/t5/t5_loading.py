"""Loads T5 networks from pretrained files.

Such a file contains the hub's tensors, each once, in float32 or half precision, and ``tokenizer.json`` as uint8.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import T5Config, T5ForConditionalGeneration

from reproduction.models import cuda
from reproduction.models.families import Precision
from reproduction.models.language.text_scoring import Scoring
from reproduction.models.language.text_tokenizer import stored_tokenizer
from reproduction.models.pretrained_files import check_tensors, read_pretrained
from reproduction.models.t5.ia3 import Ia3Model
from reproduction.models.t5.t5_architectures import Architecture
from reproduction.models.t5.t5_network import T5Model


def t5_network(architecture: Architecture, tensors: Mapping[str, torch.Tensor]) -> T5ForConditionalGeneration:
    """transformers' network with the tensors of a pretrained file, in float32.

    transformers always ties the two tables, so copying values would overwrite one of them.  The tensors are assigned
    instead, which makes them separate parameters.
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
    """See `Family.load`; ``spec`` has ``architecture``, ``adapter`` and ``scoring``."""
    torch_device = cuda.choose(device)
    architecture = Architecture.of(spec["architecture"])
    tensors = read_pretrained(weights)
    tokenizer = stored_tokenizer(tensors, weights, architecture.vocab_size)
    check_tensors(weights, architecture.shapes, tensors)
    network = t5_network(architecture, tensors)
    torch.nn.Module.to(network, torch_device)
    if torch_device.type == "cuda":
        cuda.make_repeatable(tf32=precision == "tf32")
    adapter, scoring = spec.get("adapter"), Scoring.of(spec)
    if adapter is not None:
        return Ia3Model(network, architecture.trainable(adapter), tokenizer, scoring, precision)
    named = dict(network.named_parameters())
    trained = {name: named[name] for name in architecture.trainable()}
    return T5Model(network, trained, tokenizer, scoring, precision)
