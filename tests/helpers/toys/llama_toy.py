"""A family of causal language models that the package knows nothing of: small Llamas.

params.yaml names this module as `family`, and `toys.questions_toy` as `tasks`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reproduction.models.families import STATISTICS
from reproduction.models.language.text_family import TextFamily
from reproduction.models.language.text_tokenizer import TENSOR
from tallmasks.errors import TallmasksError
from tallmasks.vectors.checkpoints.opening import open_checkpoint

if TYPE_CHECKING:
    from toys.llama_network import LlamaModel


class Llama(TextFamily):
    """`architecture` has the keys of transformers' LlamaConfig; all tensors are trained."""

    imports = ("torch", "transformers.models.llama.modeling_llama", "tokenizers")

    def check(self, name: str, spec: Mapping[str, Any]) -> None:
        if not isinstance(spec["architecture"], dict):
            raise TallmasksError(f"params.yaml: models.{name}.architecture: expected the keys of LlamaConfig")

    def statistics(self, spec: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(STATISTICS)

    def initial_state(self, spec: Mapping[str, Any], pretrained: Path) -> dict[str, Any]:
        checkpoint = open_checkpoint(pretrained)
        return {name: checkpoint.float32(name) for name in checkpoint.names if name != TENSOR}

    def parameter_counts(self, spec: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, int]:
        return sum(math.prod(shape) for name, shape in shapes.items() if name != TENSOR), 0

    def layer_of(self, tensor: str) -> tuple[str, str]:
        if tensor.startswith("model.layers."):
            layer, kind = tensor.removeprefix("model.layers.").split(".", 1)
            return layer, kind.removesuffix(".weight")
        return ("before", "embeddings") if "embed_tokens" in tensor else ("after", "output")

    def load(self, spec: Any, weights: Path, precision: str = "float32", device: Any = None) -> LlamaModel:
        from toys import llama_network

        return llama_network.load(spec, weights, device)


FAMILY = Llama()
