"""Examples as token numbers, and batches of them, padded to the longest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import torch

from tallmasks.models import cuda
from tallmasks.tasks.texts import FREE

IGNORED = -100
"""The label of padding, cross_entropy's own."""
INPUT_TOKENS = 1 << 14
"""Most input tokens in a batch of an evaluation, padding included."""
ANSWER_TOKENS = 1 << 12
"""Most answer tokens; each costs a row of logits as long as the vocabulary."""


@dataclass(frozen=True)
class TokenizedText:
    """One example.

    Attributes:
        input: token numbers, end of sequence last.
        answers: the token numbers of every choice; of a free answer, those of the one to learn.
        answer: the number of the right choice, or `FREE`.
        accepted: the choices in letters, or the accepted free answers.
    """

    input: list[int]
    answers: tuple[list[int], ...]
    answer: int
    accepted: tuple[str, ...] = ()

    @property
    def target(self) -> list[int]:
        """The answer to learn."""
        return self.answers[max(self.answer, 0)]


@dataclass(frozen=True)
class TextBatch:
    """Examples of one task.  Tensors are made at their first use, once for all weight sets.

    Attributes:
        longest: The tokens at which inputs are cut.
    """

    examples: tuple[TokenizedText, ...]
    pad: int
    device: torch.device
    longest: int

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def weight(self) -> float:
        """The number of target tokens, over which the loss is a mean."""
        return float(sum(len(example.target) for example in self.examples))

    def split(self, size: int) -> list[TextBatch]:
        """Pieces of at most `size` times `longest` input tokens, padding included; the longest inputs first."""
        room = size * self.longest
        rest = tuple(sorted(self.examples, key=lambda example: -len(example.input)))
        if len(rest) * len(rest[0].input) <= room:
            return [self]
        pieces = []
        while rest:
            count = max(1, room // len(rest[0].input))
            pieces.append(replace(self, examples=rest[:count]))
            rest = rest[count:]
        return pieces

    @cached_property
    def by_choice(self) -> tuple[TextBatch | None, TextBatch | None]:
        """Examples with choices, and those with a free answer; None where there are none."""
        choices = tuple(example for example in self.examples if example.answer != FREE)
        free = tuple(example for example in self.examples if example.answer == FREE)
        return (replace(self, examples=choices) if choices else None, replace(self, examples=free) if free else None)

    @cached_property
    def inputs(self) -> torch.Tensor:
        """Token numbers int64 [N, S]."""
        return self._padded([example.input for example in self.examples], self.pad)

    @cached_property
    def mask(self) -> torch.Tensor:
        """False for padding, bool [N, S]."""
        lengths = torch.tensor([len(example.input) for example in self.examples])
        return cuda.upload(torch.arange(self.inputs.shape[1]) < lengths[:, None], self.device)

    @cached_property
    def targets(self) -> torch.Tensor:
        """The answers to learn, int64 [N, L], `IGNORED` behind the end."""
        return self._padded([example.target for example in self.examples], IGNORED)

    @cached_property
    def choices(self) -> torch.Tensor:
        """The tokens of every choice, int64 [N, C, L], `IGNORED` behind the end and in missing choices."""
        most = max(len(example.answers) for example in self.examples)
        rows = [row for e in self.examples for row in [*e.answers, *([[]] * (most - len(e.answers)))]]
        return self._padded(rows, IGNORED).view(len(self), most, -1)

    @cached_property
    def right(self) -> torch.Tensor:
        """The number of the right choice, int64 [N]."""
        return cuda.upload(torch.tensor([example.answer for example in self.examples]), self.device)

    def _padded(self, rows: Sequence[list[int]], filler: int) -> torch.Tensor:
        longest = max(map(len, rows))
        return cuda.upload(torch.tensor([row + [filler] * (longest - len(row)) for row in rows]), self.device)


def cheapest(examples: Sequence[TokenizedText], batch_size: int) -> Iterator[list[int]]:
    """The examples of each batch of an evaluation, the longest first, so that little is padding.

    A batch has at most `batch_size` examples, `INPUT_TOKENS` and `ANSWER_TOKENS`, but at least one example.
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
