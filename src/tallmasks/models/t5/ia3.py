"""(IA)^3 (Liu et al. 2022): vectors that rescale keys, values, and what enters the feed-forward's second matrix.

The network's own weights stay as they are, so one pass can serve many sets of vectors: the inputs are repeated, and
every repetition is rescaled by a set of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from transformers import T5ForConditionalGeneration

from tallmasks.models.families import Precision
from tallmasks.models.t5.t5_architectures import IA3_SUFFIX, PEFT_PREFIX
from tallmasks.models.t5.t5_network import TextModel
from tallmasks.models.t5.text_batches import ANSWER_TOKENS, INPUT_TOKENS, TextBatch
from tallmasks.models.t5.text_scoring import Scoring
from tallmasks.models.t5.text_tokenizer import TextTokenizer


class Ia3Model(TextModel):
    """A T5 of which only (IA)^3's vectors are trained, from ones on.

    Args:
        network: the network, with its weights loaded, on the device where it is to stay.
        shapes: of the vectors, by their names in PEFT's files, sorted.
        tokenizer: the network's.
        scoring: how answers are scored.
        precision: of the network's products.
    """

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
        for place, name in enumerate(self.trainable):
            module = network.get_submodule(name.removeprefix(PEFT_PREFIX).removesuffix(IA3_SUFFIX))
            if self.shapes[name][1] == 1:
                module.register_forward_hook(self._output_hook(place))
            else:
                module.register_forward_pre_hook(self._input_hook(place))

    def count_right_of(self, batch: TextBatch, sets: Sequence[torch.Tensor]) -> torch.Tensor:
        """`count_right` of every weight set float32 [P'], [sets], in as few passes as the memory allows."""
        tokens = batch.inputs.numel(), sum(len(e.answers) * max(map(len, e.answers)) for e in batch.examples)
        room = max(1, min(INPUT_TOKENS // tokens[0], ANSWER_TOKENS // tokens[1]))
        sizes = [parameter.numel() for parameter in self._parameters]
        found = []
        for start in range(0, len(sets), room):
            stacked = torch.stack(list(sets[start : start + room]))
            self._sets = list(stacked.split(sizes, dim=1))
            try:
                found.append(self._counts(batch, len(stacked)))
            finally:
                self._sets = None
        return torch.cat(found)

    def _output_hook(self, place: int) -> Callable[[Any, Any, torch.Tensor], torch.Tensor]:
        return lambda module, inputs, output: self._rescaled(output, place)

    def _input_hook(self, place: int) -> Callable[[Any, tuple[torch.Tensor]], torch.Tensor]:
        return lambda module, inputs: self._rescaled(inputs[0], place)

    def _rescaled(self, hidden: torch.Tensor, place: int) -> torch.Tensor:
        """Activations [R, T, D] times a vector: the one that is trained, or for every block of rows that of its set."""
        if self._sets is None:
            return (hidden * self._parameters[place].flatten()).to(hidden.dtype)
        vectors = self._sets[place]
        blocks = hidden.reshape(len(vectors), -1, *hidden.shape[1:]) * vectors[:, None, None]
        return blocks.reshape(hidden.shape).to(hidden.dtype)
