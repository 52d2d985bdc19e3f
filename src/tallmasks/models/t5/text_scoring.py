"""How answers are scored: what params.yaml says of it, and what counts as the same answer.

An answer that is written freely is compared as SQuAD does (Rajpurkar et al. 2016): in lower case, without punctuation
and without articles; with the accepted answer that it is nearest to.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from tallmasks.store.errors import TallmasksError, nearest

FREE_ANSWERS = ("exact_match", "f1", "mean")
"""What a freely written answer's score is: of both, `mean` is the mean."""
_LIMITS = {"max_input_tokens": (2, 1 << 20), "max_new_tokens": (1, 1 << 16)}
_PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True)
class Scoring:
    """What `scoring` in params.yaml says.

    Attributes:
        length_normalized: whether a choice's score is the mean of its tokens' log-probabilities, and not their sum.
        free_answers: one of `FREE_ANSWERS`.
        max_input_tokens: where inputs are cut, end of sequence included.
        max_new_tokens: where a freely written answer is cut.
    """

    length_normalized: bool = False
    free_answers: str = "exact_match"
    max_input_tokens: int = 512
    max_new_tokens: int = 64

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> Scoring:
        """From a model's entry in params.yaml, or a recipe.

        Raises:
            TallmasksError: there is no such key, or its value is not of its kind.
        """
        given, known = spec.get("scoring", {}), [field.name for field in fields(cls)]
        for key in given:
            if key not in known:
                raise TallmasksError(
                    f"params.yaml: scoring: there is no key {key!r}{nearest(str(key), known)}; known: "
                    f"{', '.join(known)}"
                )
        found = cls(**given)
        if not isinstance(found.length_normalized, bool):
            said = found.length_normalized
            raise TallmasksError(f"params.yaml: scoring: length_normalized: found {said!r}, expected true or false")
        if found.free_answers not in FREE_ANSWERS:
            raise TallmasksError(
                f"params.yaml: scoring: free_answers: found {found.free_answers!r}, expected one of "
                f"{', '.join(FREE_ANSWERS)}{nearest(str(found.free_answers), FREE_ANSWERS)}"
            )
        for key, (low, high) in _LIMITS.items():
            value = getattr(found, key)
            if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
                raise TallmasksError(f"params.yaml: scoring: {key}: found {value!r}, expected {low} to {high}")
        return found

    def to_json(self) -> dict[str, Any]:
        """All of it, for recipes."""
        return asdict(self)

    @property
    def counts(self) -> bool:
        """Whether a freely written answer is right or wrong, and nothing in between."""
        return self.free_answers == "exact_match"

    def mark(self, answer: str, accepted: Sequence[str]) -> float:
        """The score of a freely written answer, from 0 to 1."""
        wanted = MARKS if self.free_answers == "mean" else (self.free_answers,)
        return sum(MARKS[name](answer, accepted) for name in wanted) / len(wanted)


def normalized(answer: str) -> str:
    """An answer without what counts for nothing in a comparison."""
    words = re.sub(r"\b(a|an|the)\b", " ", answer.lower().translate(_PUNCTUATION))
    return " ".join(words.split())


def exact_match(answer: str, accepted: Sequence[str]) -> float:
    """1 if an answer is one of those that are accepted, else 0."""
    return float(any(normalized(answer) == normalized(other) for other in accepted))


def f1(answer: str, accepted: Sequence[str]) -> float:
    """The largest F1 of an answer's words and those of an accepted one; 0 where they share none."""
    return max((_f1(normalized(answer).split(), normalized(other).split()) for other in accepted), default=0.0)


def _f1(found: list[str], expected: list[str]) -> float:
    shared = (Counter(found) & Counter(expected)).total()
    return 2 * shared / (len(found) + len(expected)) if shared else 0.0


MARKS: Mapping[str, Callable[[str, Sequence[str]], float]] = {"exact_match": exact_match, "f1": f1}
"""SQuAD's scores of a freely written answer, by what `free_answers` calls them."""
