"""T5 v1.1 in a few products of matrices: transformers' arithmetic and names, for tiny networks.

Where a step takes milliseconds, what transformers does around the products (masks, caches, outputs) costs as much as
they do.  No dropout, no generation: pretraining alone uses it, and a test holds its logits to those of transformers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch.nn import functional

from tallmasks.models.t5.t5_architectures import TABLES, Architecture

EPSILON = 1e-6  # of T5's norms
NOWHERE = -1e9  # the score of padding


class PlainT5:
    """Encoder and decoder over one flat buffer.

    Attributes:
        tensors: the weights by their names in transformers, float32, views of ``flat``.
        flat: all weights, whose gradient is one buffer too.
    """

    def __init__(self, architecture: Mapping[str, Any], seed: int) -> None:
        self._architecture = Architecture.of(architecture)
        generator = torch.Generator().manual_seed(seed)
        shapes = self._architecture.shapes
        sizes = [math.prod(shape) for shape in shapes.values()]
        self.flat = torch.empty(sum(sizes))
        self.flat.grad = torch.zeros_like(self.flat)
        self.tensors: dict[str, torch.Tensor] = {}
        pieces = zip(self.flat.split(sizes), self.flat.grad.split(sizes), strict=True)
        for (name, shape), (values, gradient) in zip(shapes.items(), pieces, strict=True):
            tensor, spread = values.view(shape), _spread(name, shape, self._architecture)
            tensor.fill_(1) if spread is None else tensor.normal_(0, spread, generator=generator)
            tensor.requires_grad_()
            tensor.grad = gradient.view(shape)
            self.tensors[name] = tensor

    def logits(self, read: torch.Tensor, write: torch.Tensor) -> torch.Tensor:
        """Scores of every word at every place of the answer.

        Args:
            read: padded with 0, int64 [N, L].
            write: what the decoder is given, int64 [N, M], 0 first.

        Returns:
            float32 [N, M, vocabulary].
        """
        hide = torch.where(read == 0, NOWHERE, 0.0)[:, None, None, :]
        seen = self._stack("encoder", read, self._bias("encoder", read.shape[1]) + hide, None, None)
        later = torch.full((write.shape[1], write.shape[1]), NOWHERE).triu(1)
        answers = self._stack("decoder", write, self._bias("decoder", write.shape[1]) + later, seen, hide)
        return answers @ self.tensors["lm_head.weight"].T

    def _stack(
        self, side: str, words: torch.Tensor, bias: torch.Tensor, seen: torch.Tensor | None, hide: torch.Tensor | None
    ) -> torch.Tensor:
        states = functional.embedding(words, self.tensors["shared.weight"])
        for layer in range(self._architecture.num_layers if seen is None else self._architecture.num_decoder_layers):
            block = f"{side}.block.{layer}.layer"
            x = self._norm(states, f"{block}.0.layer_norm.weight")
            states = states + self._attend(f"{block}.0.SelfAttention", x, x, bias)
            if seen is not None:
                x = self._norm(states, f"{block}.1.layer_norm.weight")
                states = states + self._attend(f"{block}.1.EncDecAttention", x, seen, hide)
            last = 1 if seen is None else 2
            x = self._norm(states, f"{block}.{last}.layer_norm.weight")
            inner = f"{block}.{last}.DenseReluDense"
            both = x @ self._joined(inner, "wi_0", "wi_1").T
            gate, value = both.chunk(2, dim=-1)
            gated = functional.gelu(gate, approximate="tanh") * value
            states = states + gated @ self.tensors[f"{inner}.wo.weight"].T
        return self._norm(states, f"{side}.final_layer_norm.weight")

    def _attend(self, name: str, x: torch.Tensor, over: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """T5's attention, whose scores are not scaled."""
        heads, width = self._architecture.num_heads, self._architecture.d_kv
        if over is x:
            query, key, value = (x @ self._joined(name, "q", "k", "v").T).chunk(3, dim=-1)
        else:
            query = x @ self.tensors[f"{name}.q.weight"].T
            key, value = (over @ self._joined(name, "k", "v").T).chunk(2, dim=-1)
        query, key, value = (part.unflatten(-1, (heads, width)).transpose(1, 2) for part in (query, key, value))
        weights = (query @ key.transpose(-1, -2) + bias).softmax(dim=-1)
        return (weights @ value).transpose(1, 2).flatten(2) @ self.tensors[f"{name}.o.weight"].T

    def _joined(self, block: str, *names: str) -> torch.Tensor:
        """Several matrices as one, for one product."""
        return torch.cat([self.tensors[f"{block}.{name}.weight"] for name in names])

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return functional.rms_norm(x, x.shape[-1:], self.tensors[name], EPSILON)

    def _bias(self, side: str, length: int) -> torch.Tensor:
        """What relative places add to the scores, float32 [1, heads, length, length]."""
        table = self.tensors[f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"]
        places = torch.arange(length)
        buckets = relative_buckets(
            places[None] - places[:, None],
            side == "encoder",
            self._architecture.relative_attention_num_buckets,
            self._architecture.relative_attention_max_distance,
        )
        return functional.embedding(buckets, table).permute(2, 0, 1)[None]


def relative_buckets(distance: torch.Tensor, both_ways: bool, buckets: int, farthest: int) -> torch.Tensor:
    """T5's numbers of relative places: near ones each their own, far ones by the logarithm; Raffel et al. 2020."""
    number = torch.zeros_like(distance)
    if both_ways:
        buckets //= 2
        number = (distance > 0) * buckets
        distance = distance.abs()
    else:
        distance = (-distance).clamp(min=0)
    exact = buckets // 2
    far = exact + (torch.log(distance.clamp(min=1) / exact) / math.log(farthest / exact) * (buckets - exact)).long()
    return number + torch.where(distance < exact, distance, far.clamp(max=buckets - 1))


def _spread(name: str, shape: tuple[int, ...], architecture: Architecture) -> float | None:
    """The spread of a tensor's initial values; ones where there is none.

    The spreads are T5's, but for the two tables.  T5's are made for longer trainings: logits have size 10 at first, and
    embeddings drown what the layers add.
    """
    if "norm" in name:
        return None
    if name in TABLES:
        return {"shared.weight": 0.3, "lm_head.weight": 0.05}[name]
    if "relative_attention_bias" in name:
        return architecture.d_model**-0.5
    return (shape[1] * (architecture.d_kv if ".q." in name else 1)) ** -0.5
