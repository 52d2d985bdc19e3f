"""Scoring of answers: its settings in params.yaml, and the comparison of free answers.

A free answer is compared as SQuAD does (Rajpurkar et al. 2016), in lower case, without punctuation and articles, with
the nearest accepted answer.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True)
class Scoring:
    """The settings under `scoring` in params.yaml, whose schema has their limits.

    Attributes:
        length_normalized: whether a choice's score is the mean of its tokens' log-probabilities, and not their sum.
        free_answers: "exact_match", "f1", or "mean", the mean of these two.
        max_input_tokens: the length at which inputs are cut, end of sequence included.
        max_new_tokens: the length at which a free answer is cut.
    """

    length_normalized: bool = False
    free_answers: str = "exact_match"
    max_input_tokens: int = 512
    max_new_tokens: int = 64

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> Scoring:
        """From a model's entry in params.yaml, or a recipe."""
        return cls(**spec.get("scoring", {}))

    @property
    def counts(self) -> bool:
        """Whether a free answer is right or wrong, and nothing in between."""
        return self.free_answers == "exact_match"

    def mark(self, answer: str, accepted: Sequence[str]) -> float:
        """The score of a free answer, from 0 to 1."""
        wanted = MARKS if self.free_answers == "mean" else (self.free_answers,)
        return sum(MARKS[name](answer, accepted) for name in wanted) / len(wanted)


def normalize_answer(answer: str) -> str:
    words = re.sub(r"\b(a|an|the)\b", " ", answer.lower().translate(_PUNCTUATION))
    return " ".join(words.split())


def exact_match(answer: str, accepted: Sequence[str]) -> float:
    """1 if an answer is an accepted one, else 0."""
    return float(any(normalize_answer(answer) == normalize_answer(other) for other in accepted))


def f1(answer: str, accepted: Sequence[str]) -> float:
    """The largest F1 of an answer's words and those of an accepted one; 0 where they share none."""
    words = normalize_answer(answer).split()
    return max((_f1(words, normalize_answer(other).split()) for other in accepted), default=0.0)


def _f1(words: list[str], accepted: list[str]) -> float:
    shared = (Counter(words) & Counter(accepted)).total()
    return 2 * shared / (len(words) + len(accepted)) if shared else 0.0


MARKS: Mapping[str, Callable[[str, Sequence[str]], float]] = {"exact_match": exact_match, "f1": f1}
"""SQuAD's scores of a free answer, by their names in `free_answers`."""
