"""`TextModel`, the base class of language models: loss, scores of choices, and generated answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from reproduction.models.flat_weights import FlatWeights
from reproduction.models.language.text_batches import IGNORED, TextBatch, TokenizedText, cheapest
from reproduction.models.language.text_scoring import MARKS, Scoring
from reproduction.models.language.text_tokenizer import TextTokenizer
from reproduction.tasks.texts import FREE, Texts


class TextModel(FlatWeights, ABC):
    """Implements `reproduction.models.families.WatchedModel`; subclasses add `answer_logits`.

    Args:
        network: With its weights, on its device.
        parameters: See `FlatWeights`.
    """

    def __init__(
        self,
        network: torch.nn.Module,
        parameters: Mapping[str, torch.nn.Parameter],
        tokenizer: TextTokenizer,
        scoring: Scoring,
    ) -> None:
        self._network: Any = network.eval().requires_grad_(False)
        self._tokenizer, self.scoring = tokenizer, scoring
        super().__init__(parameters)

    @abstractmethod
    def answer_logits(self, batch: TextBatch, labels: torch.Tensor, sets: int = 1) -> torch.Tensor:
        """The logits at each label's position given the inputs and the previous labels, float32 [R, L, V].

        Args:
            labels: Token ids int64 [R, L], padded with `IGNORED`.  R is a multiple of sets * N; rows are ordered by
                weight set, then by input.
            sets: The number of weight sets in use, for models with ``count_right_of``.
        """

    @torch.no_grad()
    def written(self, batch: TextBatch, sets: int = 1) -> list[str]:
        """Greedily generated answers, [sets * N].

        Every token needs a pass over all previous ones; override this for networks that cache keys and values.
        """
        answers = torch.zeros((sets * len(batch), 0), dtype=torch.int64, device=self.device)
        done = torch.zeros((len(answers), 1), dtype=torch.bool, device=self.device)
        for _ in range(self.scoring.max_new_tokens):
            labels = functional.pad(answers, (0, 1), value=IGNORED)
            token = self.answer_logits(batch, labels, sets)[:, -1:].argmax(dim=-1)
            answers = torch.cat([answers, token.masked_fill(done, self._tokenizer.pad)], dim=1)
            done |= token == self._tokenizer.end
            if done.all():
                break
        return self._texts(answers)

    def _texts(self, answers: torch.Tensor) -> list[str]:
        """Decode token ids int64 [R, L]."""
        ends = {self._tokenizer.pad, self._tokenizer.end}
        return [self._tokenizer.text([n for n in row if n not in ends]) for row in answers.tolist()]

    def train(self, on: bool) -> None:
        self._network.train(on)

    def prepare(self, examples: Texts, changes: Any = None, generator: torch.Generator | None = None) -> TextBatch:
        return self._batch(self._tokenized(examples))

    def batches(self, examples: Texts, batch_size: int) -> Iterator[TextBatch]:
        """Batches sorted by length, the longest first; see `text_batches.cheapest`."""
        tokenized = self._tokenized(examples)
        for indices in cheapest(tokenized, batch_size):
            yield self._batch([tokenized[index] for index in indices])

    def _batch(self, tokenized: list[TokenizedText]) -> TextBatch:
        return TextBatch(tuple(tokenized), self._tokenizer.pad, self.device, self.scoring.max_input_tokens)

    def _tokenized(self, examples: Texts) -> list[TokenizedText]:
        texts = list(examples)
        inputs = self._tokenizer([text.input for text in texts], self.scoring.max_input_tokens)
        wanted = [(text.target,) if text.answer == FREE else text.answers for text in texts]
        distinct = list(dict.fromkeys(answer for answers in wanted for answer in answers))
        tokens = dict(zip(distinct, self._tokenizer(distinct), strict=True))
        return [
            TokenizedText(row, tuple(tokens[answer] for answer in answers), text.answer, text.answers)
            for row, answers, text in zip(inputs, wanted, texts, strict=True)
        ]

    def loss(self, batch: TextBatch) -> torch.Tensor:
        """Mean cross-entropy over all target tokens, including ends of sequence."""
        logits = self.answer_logits(batch, batch.targets)
        return functional.cross_entropy(logits.flatten(0, -2), batch.targets.flatten())

    def log_probabilities(self, batch: TextBatch) -> torch.Tensor:
        """Of the vocabulary at each target token, including ends of sequence; float32 [R, V]."""
        return functional.log_softmax(self.answer_logits(batch, batch.targets)[batch.targets != IGNORED], dim=-1)

    def choice_log_probabilities(self, batch: TextBatch) -> torch.Tensor:
        """Of the choices, float32 [N, C]; for free answers, of the vocabulary at the first token."""
        choices, free = batch.by_choice
        scores = [self.choice_scores(choices)[0]] if choices else []
        if free:
            first = torch.full((len(free), 1), IGNORED, device=self.device)
            scores.append(self.answer_logits(free, first)[:, 0])
        most = max(rows.shape[1] for rows in scores)
        logs = [functional.pad(rows.log_softmax(dim=1), (0, most - rows.shape[1]), value=-torch.inf) for rows in scores]
        return torch.cat(logs).clamp(min=torch.finfo(torch.float32).min)

    def count_right(self, batch: TextBatch) -> torch.Tensor:
        """The number of right answers, int64; or a sum of scores, float64, if free answers can be partly right.

        Of equally probable choices, the first one counts as the answer.
        """
        return self._counts(batch, 1)[0]

    def _counts(self, batch: TextBatch, sets: int) -> torch.Tensor:
        """`count_right` for each weight set in use, [sets]."""
        right = torch.zeros(sets, dtype=torch.int64, device=self.device)
        choices, free = batch.by_choice
        if choices:
            scores = self.choice_scores(choices, sets)
            right = right + ((scores.argmax(dim=-1) == choices.right) & ~scores.isnan().any(dim=-1)).sum(dim=1)
        if free:
            rows = iter(self.written(free, sets))
            marks = [
                [self.scoring.mark(next(rows), example.accepted) for example in free.examples] for _ in range(sets)
            ]
            kind = torch.int64 if self.scoring.counts else torch.float64
            right = right + torch.tensor(marks, dtype=torch.float64).sum(dim=1).to(self.device, kind)
        return right

    def further_scores(self, examples: Texts, batch_size: int) -> dict[str, float]:
        """Sums of SQuAD's two scores over the free answers; empty if there are none."""
        marks: dict[str, float] = {}
        with torch.inference_mode():
            for batch in self.batches(examples[np.flatnonzero(examples.right == FREE)], batch_size):
                for answer, example in zip(self.written(batch), batch.examples, strict=True):
                    for name, mark in MARKS.items():
                        marks[name] = marks.get(name, 0.0) + mark(answer, example.accepted)
        return marks

    def choice_scores(self, batch: TextBatch, sets: int = 1) -> torch.Tensor:
        """The log-probability of every choice, float32 [sets, N, C]; -infinity for missing choices."""
        count, choices, longest = batch.choices.shape
        labels = batch.choices.repeat(sets, 1, 1).view(-1, longest)
        logits = self.answer_logits(batch, labels, sets)
        losses = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
        tokens = (labels != IGNORED).sum(dim=1)
        scores = -losses.view(-1, longest).sum(dim=1)
        if self.scoring.length_normalized:
            scores = scores / tokens.clamp(min=1)
        return scores.masked_fill(tokens == 0, -torch.inf).view(sets, count, choices)
