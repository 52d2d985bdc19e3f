"""How answers are scored: the settings in params.yaml, and SQuAD's scores of free answers (Rajpurkar et al. 2016).

SQuAD compares in lower case, without punctuation and articles, and takes the best score over the accepted answers.
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
    """The settings under `scoring` in params.yaml.

    Attributes:
        length_normalized: score choices by the mean log-probability of their tokens instead of the sum.
        free_answers: "exact_match", "f1", or "mean" of both.
        max_input_tokens: length to which inputs are cut, including the end of sequence.
        max_new_tokens: largest length of free answers.
    """

    length_normalized: bool = False
    free_answers: str = "exact_match"
    max_input_tokens: int = 512
    max_new_tokens: int = 64

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> Scoring:
        """The settings in a model's entry in params.yaml or in a recipe."""
        return cls(**spec.get("scoring", {}))

    @property
    def counts(self) -> bool:
        """True if a free answer is either right or wrong, never partly right."""
        return self.free_answers == "exact_match"

    def mark(self, answer: str, accepted: Sequence[str]) -> float:
        """The score of a free answer, 0 to 1."""
        wanted = MARKS if self.free_answers == "mean" else (self.free_answers,)
        return sum(MARKS[name](answer, accepted) for name in wanted) / len(wanted)


def normalize_answer(answer: str) -> str:
    words = re.sub(r"\b(a|an|the)\b", " ", answer.lower().translate(_PUNCTUATION))
    return " ".join(words.split())


def exact_match(answer: str, accepted: Sequence[str]) -> float:
    return float(any(normalize_answer(answer) == normalize_answer(other) for other in accepted))


def f1(answer: str, accepted: Sequence[str]) -> float:
    """The largest F1 between the words of the answer and those of an accepted answer."""
    words = normalize_answer(answer).split()
    return max((_f1(words, normalize_answer(other).split()) for other in accepted), default=0.0)


def _f1(words: list[str], accepted: list[str]) -> float:
    shared = (Counter(words) & Counter(accepted)).total()
    return 2 * shared / (len(words) + len(accepted)) if shared else 0.0


MARKS: Mapping[str, Callable[[str, Sequence[str]], float]] = {"exact_match": exact_match, "f1": f1}
"""SQuAD's scores, by their names in `free_answers`."""
