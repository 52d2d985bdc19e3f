"""Architectures, tensor names and class names of classifiers, for code that does not import torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reproduction.models.foreign_weights import json_of
from tallmasks.errors import TallmasksError, nearest, short
from tallmasks.vectors.checkpoints import known_tensors

Architectures = Mapping[str, Mapping[str, Any]]
"""Settings that differ from the defaults of transformers' configuration, by the name on the hub without its owner."""
BOOKKEEPING = known_tensors.BOOKKEEPING | {
    *("id2label", "label2id", "num_labels", "_num_labels", "output_past", "tie_word_embeddings", "initializer_range"),
    *("bos_token_id", "eos_token_id", "sep_token_id", "pad_token_id", "summary_proj_to_labels"),
}
"""Settings that do not change what the body computes."""
BUFFERS = "buffers."
"""Prefix of the running statistics in a pretrained file."""
_LAYER = re.compile(r"(?:^|\.)(?:layers?|h|blocks?)\.(\d+)\.")
_KINDS = (
    (r"bias$", "biases"),
    (r"norm|\bln_", "norms"),
    (r"embed|\bwte\b|\bwpe\b", "embeddings"),
    (r"(query|key|value|[qkv]_lin|[qkv]_proj|attn\.[qkv]|c_attn|Wqkv)\.", "attention in"),
    (r"(attention\.output|attention\.out_lin|attn\.o|o_proj|attn\.c_proj|attn\.Wo)\b", "attention out"),
    (r"(intermediate|lin1|c_fc|gate_proj|up_proj|mlp\.Wi|fc1)\b", "MLP in"),
    (r"(output|lin2|mlp\.c_proj|down_proj|mlp\.Wo|fc2)\b", "MLP out"),
)
"""Pattern in a tensor's name, and the tensor's kind; the first match counts."""


def settings_of(architecture: str | Mapping[str, Any], known: Architectures) -> dict[str, Any]:
    """The settings of transformers' configuration for `architecture` in params.yaml: a name of ``known``, or settings.

    Raises TallmasksError for an unknown name, or settings without `model_type`.
    """
    if not isinstance(architecture, str):
        if not isinstance(architecture.get("model_type"), str):
            raise TallmasksError(
                "params.yaml: architecture: found no model_type; expected the settings of a config.json, such "
                "as model_type: bert"
            )
        return dict(architecture)
    name = architecture.rpartition("/")[2]
    if name not in known:
        raise TallmasksError(
            f"params.yaml: architecture: unknown classifier {architecture!r}{nearest(name, known)}; expected "
            f"{', '.join(known)}, or the settings of the model's config.json"
        )
    return dict(known[name])


def layer_of(tensor: str) -> tuple[str, str]:
    """A tensor's layer ("before", "0", "1", ..., "after") and kind (of `_KINDS`, or "other")."""
    kind = next((kind for pattern, kind in _KINDS if re.search(pattern, tensor)), "other")
    if layer := _LAYER.search(tensor):
        return layer[1], kind
    return "before" if re.search(r"embed|\bwte\b|\bwpe\b", tensor) else "after", kind


def class_names_of(path: Path) -> list[str]:
    """The class names of a config.json, in the order of its head; none if they are only numbered.

    Raises TallmasksError if it is not a configuration, or if its `id2label` and `label2id` contradict each other.
    """
    config = json_of(path)
    if isinstance(of_timm := config.get("label_names"), list):
        config = {"id2label": dict(enumerate(of_timm))} | config
    found = (config.get(key) for key in ("id2label", "label2id"))
    by_number, by_name = (one if isinstance(one, dict) else {} for one in found)
    names, others = _in_order(by_number), {number: name for name, number in by_name.items()}
    for number, name in enumerate(names):
        if str(by_name.get(name, number)) != str(number):
            raise TallmasksError(
                f"{path}: {short(name)} is output {number} in id2label, but {by_name[name]} in label2id; correct the "
                "one that is wrong"
            )
    return names or (_in_order(others) if len(others) == len(by_name) else [])


def _in_order(by_number: Mapping[Any, Any]) -> list[str]:
    """The names of the numbers from 0; none if others are missing, or if the names are only numbers."""
    names = {str(number): str(name).strip() for number, name in by_number.items()}
    numbers = [str(number) for number in range(len(names))]
    if {*names} != {*numbers} or all(names[number].lower() in (number, f"label_{number}") for number in numbers):
        return []
    return [names[number] for number in numbers]
