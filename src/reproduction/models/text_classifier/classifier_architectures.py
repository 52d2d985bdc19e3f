"""Architectures of text classifiers, for code that does not import torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reproduction.models.classifiers import settings
from reproduction.models.classifiers.settings import Architectures

NAMES: Architectures = {
    "all-MiniLM-L6-v2": {
        "model_type": "bert",
        "hidden_size": 384,
        "intermediate_size": 1536,
        "num_attention_heads": 12,
        "num_hidden_layers": 6,
    },
    "bert-base-uncased": {"model_type": "bert"},
    "distilbert-base-uncased": {"model_type": "distilbert"},
    "gpt2": {"model_type": "gpt2"},
    "roberta-base": {
        "model_type": "roberta",
        "layer_norm_eps": 1e-5,
        "max_position_embeddings": 514,
        "type_vocab_size": 1,
        "vocab_size": 50265,
    },
}
PADDING_MATTERS = (
    "bigbird_pegasus", "big_bird", "canine", "convbert", "fnet", "funnel", "mobilebert", "nystromformer", "reformer",
    "xlnet", "yoso",
)  # fmt: skip
"""Model types that compute something else for a text with padding, whatever the attention mask says."""


def settings_of(architecture: str | Mapping[str, Any]) -> dict[str, Any]:
    return settings.settings_of(architecture, NAMES)
