"""Tokenized examples, and batches padded to the longest example."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import torch

from reproduction.models import cuda
from reproduction.tasks.texts import FREE

IGNORED = -100
"""The label of padding; cross_entropy's `ignore_index`."""
INPUT_TOKENS = 1 << 14
"""Largest number of input tokens in an evaluation batch, padding included."""
ANSWER_TOKENS = 1 << 12
"""Largest number of answer tokens in an evaluation batch; each needs logits of the whole vocabulary."""


@dataclass(frozen=True)
class TokenizedText:
    """One example.

    Attributes:
        input: token ids, with end of sequence.
        answers: the token ids of all choices, or only of the training target if the answer is free.
        answer: the index of the right choice, or `FREE`.
        accepted: the choices, or the accepted free answers, as text.
    """

    input: list[int]
    answers: tuple[list[int], ...]
    answer: int
    accepted: tuple[str, ...] = ()

    @property
    def target(self) -> list[int]:
        return self.answers[max(self.answer, 0)]


@dataclass(frozen=True)
class TextBatch:
    """Examples of one task.  Tensors are created at first use and reused for all weight sets.

    ``longest``: the number of tokens to which inputs are cut.
    """

    examples: tuple[TokenizedText, ...]
    pad: int
    device: torch.device
    longest: int

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def weight(self) -> float:
        """The number of target tokens, over which the loss is averaged."""
        return float(sum(len(example.target) for example in self.examples))

    def split(self, size: int) -> list[TextBatch]:
        """Pieces of at most `size` * `longest` input tokens, including padding; the longest inputs come first."""
        most_tokens = size * self.longest
        rest = tuple(sorted(self.examples, key=lambda example: -len(example.input)))
        if len(rest) * len(rest[0].input) <= most_tokens:
            return [self]
        pieces = []
        while rest:
            count = max(1, most_tokens // len(rest[0].input))
            pieces.append(replace(self, examples=rest[:count]))
            rest = rest[count:]
        return pieces

    @cached_property
    def by_choice(self) -> tuple[TextBatch | None, TextBatch | None]:
        """The examples with choices, and those with a free answer; None instead of an empty batch."""
        choices = tuple(example for example in self.examples if example.answer != FREE)
        free = tuple(example for example in self.examples if example.answer == FREE)
        return (replace(self, examples=choices) if choices else None, replace(self, examples=free) if free else None)

    @cached_property
    def inputs(self) -> torch.Tensor:
        """Token ids, int64 [N, S]."""
        return self._padded([example.input for example in self.examples], self.pad)

    @cached_property
    def mask(self) -> torch.Tensor:
        """bool [N, S], False for padding."""
        lengths = torch.tensor([len(example.input) for example in self.examples])
        return cuda.upload(torch.arange(self.inputs.shape[1]) < lengths[:, None], self.device)

    @cached_property
    def targets(self) -> torch.Tensor:
        """The answers to train on, int64 [N, L], padded with `IGNORED`."""
        return self._padded([example.target for example in self.examples], IGNORED)

    @cached_property
    def choices(self) -> torch.Tensor:
        """The tokens of all choices, int64 [N, C, L]; padding and missing choices are `IGNORED`."""
        most = max(len(example.answers) for example in self.examples)
        rows = [row for e in self.examples for row in [*e.answers, *([[]] * (most - len(e.answers)))]]
        return self._padded(rows, IGNORED).view(len(self), most, -1)

    @cached_property
    def right(self) -> torch.Tensor:
        """The indices of the right choices, int64 [N]."""
        return cuda.upload(torch.tensor([example.answer for example in self.examples]), self.device)

    def _padded(self, rows: Sequence[list[int]], filler: int) -> torch.Tensor:
        longest = max(map(len, rows))
        return cuda.upload(torch.tensor([row + [filler] * (longest - len(row)) for row in rows]), self.device)


def cheapest(examples: Sequence[TokenizedText], batch_size: int) -> Iterator[list[int]]:
    """The indices of each batch's examples, sorted by length (longest first) so that batches need little padding.

    A batch contains at most `batch_size` examples, `INPUT_TOKENS` and `ANSWER_TOKENS`, but at least one example.
    """
    order = sorted(range(len(examples)), key=lambda index: -len(examples[index].input))
    shape = [(len(e.input), len(e.answers), max(map(len, e.answers))) for e in examples]
    starts, most, longest = [0], 0, 0
    for end, index in enumerate(order):
        count = end - starts[-1] + 1
        most, longest = max(most, shape[index][1]), max(longest, shape[index][2])
        inputs, answers = count * shape[order[starts[-1]]][0], count * most * longest
        if count > 1 and (count > batch_size or inputs > INPUT_TOKENS or answers > ANSWER_TOKENS):
            starts.append(end)
            _, most, longest = shape[index]
    for start, end in pairwise([*starts, len(order)]):
        if end > start:
            yield order[start:end]
