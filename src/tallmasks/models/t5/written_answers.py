"""The answers that a model writes, one by one, with both of SQuAD's scores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from tallmasks.models.t5.t5_network import TextModel
from tallmasks.models.t5.text_scoring import exact_match, f1
from tallmasks.tasks.texts import Texts


@dataclass(frozen=True)
class WrittenAnswers:
    """In the order of the examples.

    Attributes:
        texts: what the model wrote.
        exact_match: 1 where that is accepted, float64 [N].
        f1: float64 [N].
    """

    texts: tuple[str, ...]
    exact_match: NDArray[np.float64]
    f1: NDArray[np.float64]


def answers(model: TextModel, examples: Texts, batch_size: int = 32) -> WrittenAnswers:
    """What the model writes to each input, compared with the example's accepted answers; with its right choice where it
    has choices."""
    texts: list[str] = []
    with torch.inference_mode():
        for start in range(0, len(examples), batch_size):
            texts += model.written(model.prepare(examples[start : start + batch_size]))
    accepted = [text.answers if text.answer < 0 else (text.target,) for text in examples]
    exact = [exact_match(text, these) for text, these in zip(texts, accepted, strict=True)]
    parts = [f1(text, these) for text, these in zip(texts, accepted, strict=True)]
    return WrittenAnswers(tuple(texts), np.array(exact), np.array(parts))
