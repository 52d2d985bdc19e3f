"""(IA)^3 (Liu et al. 2022): vectors that rescale keys, values, and the input of the feed-forward's second matrix.

All sets of vectors share the network's weights, so one pass over repeated inputs can evaluate several sets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from transformers import T5ForConditionalGeneration

from reproduction.models.families import Precision
from reproduction.models.language.text_batches import ANSWER_TOKENS, INPUT_TOKENS, TextBatch
from reproduction.models.language.text_scoring import Scoring
from reproduction.models.language.text_tokenizer import TextTokenizer
from reproduction.models.t5.t5_architectures import IA3_SUFFIX, PEFT_PREFIX
from reproduction.models.t5.t5_network import T5Model


class Ia3Model(T5Model):
    """A T5 that trains only (IA)^3's vectors, which start as ones; ``shapes``: their shapes by PEFT's names, sorted."""

    def __init__(
        self,
        network: T5ForConditionalGeneration,
        shapes: Mapping[str, tuple[int, ...]],
        tokenizer: TextTokenizer,
        scoring: Scoring,
        precision: Precision = "float32",
    ) -> None:
        device = network.shared.weight.device
        ones = {name: torch.nn.Parameter(torch.ones(shape, device=device)) for name, shape in shapes.items()}
        super().__init__(network, ones, tokenizer, scoring, precision)
        self._sets: list[torch.Tensor] | None = None
        for index, name in enumerate(self.trainable):
            module = network.get_submodule(name.removeprefix(PEFT_PREFIX).removesuffix(IA3_SUFFIX))
            if self.shapes[name][1] == 1:
                module.register_forward_hook(lambda _, inputs, output, index=index: self._rescaled(output, index))
            else:
                module.register_forward_pre_hook(lambda _, inputs, index=index: self._rescaled(inputs[0], index))

    def count_right_of(self, batch: TextBatch, sets: Sequence[torch.Tensor]) -> torch.Tensor:
        """`count_right` of several weight sets, each float32 [P'], as [sets]; several sets share a pass."""
        answer_tokens = sum(len(e.answers) * max(map(len, e.answers)) for e in batch.examples)
        sets_at_once = max(1, min(INPUT_TOKENS // batch.inputs.numel(), ANSWER_TOKENS // answer_tokens))
        sizes = [parameter.numel() for parameter in self._parameters]
        counts = []
        for start in range(0, len(sets), sets_at_once):
            stacked = torch.stack(list(sets[start : start + sets_at_once]))
            self._sets = list(stacked.split(sizes, dim=1))
            try:
                counts.append(self._counts(batch, len(stacked)))
            finally:
                self._sets = None
        return torch.cat(counts)

    def _rescaled(self, hidden: torch.Tensor, index: int) -> torch.Tensor:
        """Activations [R, T, D] times the trained vector; with several sets, each has its own block of rows."""
        if self._sets is None:
            return (hidden * self._parameters[index].flatten()).to(hidden.dtype)
        vectors = self._sets[index]
        blocks = hidden.reshape(len(vectors), -1, *hidden.shape[1:]) * vectors[:, None, None]
        return blocks.reshape(hidden.shape).to(hidden.dtype)
