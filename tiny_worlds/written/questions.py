"""Generates questions of every kind: slots for a wording, and the answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from reproduction.tasks.texts import FREE
from tiny_worlds.written.world import DEED_WORDS, DEEDS, FOODS, NOTHING, THING_WORDS, THINGS, VALUES, Speech

NAMES = (
    "mia", "leo", "ada", "tom", "eva", "max", "ida", "ben", "zoe", "sam", "lia", "jon",
    "amy", "kai", "una", "rob", "ivy", "dan", "noa", "tim", "fay", "gus", "joy", "hal",
)  # fmt: skip
UNKNOWN = "unknown"
TWO_WAYS = {
    "heat": (("rises", (3, 4)), ("falls", (0, 1))),
    "kind": (("grown", (0, 2, 5, 6)), ("made", (1, 3, 4, 7))),
    "place": (("true", (0, 1, 5, 7)), ("false", (2, 3, 4, 6))),
    "size": (("yes", (3, 4)), ("no", (0, 1))),
}
"""Questions with two fixed answers: for a property, each answer and the indices in `VALUES` for which it is right."""
POLES = ("big", "little")
ANSWERS = (*(word for pair in TWO_WAYS.values() for word, _ in pair), *POLES, UNKNOWN)
APART = 2  # smallest difference in levels between two things that are compared


@dataclass(frozen=True)
class Question:
    """A question without its wording.

    Attributes:
        slots: values for the `{slots}` of a wording, except `name`.
        answers: the choices, or the accepted free answers.
        right: the index of the right choice, or `FREE`.
    """

    slots: dict[str, str]
    answers: tuple[str, ...]
    right: int


Ask = Callable[[Speech, np.random.Generator], Question]


def _shuffled(right: str, wrong: Sequence[str], rng: np.random.Generator) -> tuple[tuple[str, ...], int]:
    """All answers in random order, and the index of the right one."""
    place = int(rng.integers(len(wrong) + 1))
    order = [wrong[i] for i in rng.permutation(len(wrong))]
    return (*order[:place], right, *order[place:]), place


def _others(values: Sequence[str], right: int, count: int, rng: np.random.Generator) -> list[str]:
    wrong = [value for i, value in enumerate(values) if i != right]
    return [wrong[i] for i in rng.permutation(len(wrong))[:count]]


def _pair(levels: np.ndarray, rng: np.random.Generator) -> tuple[int, int]:
    """Two random things, the first at least `APART` levels above the second."""
    while True:
        one, other = (int(i) for i in rng.integers(THINGS, size=2))
        if levels[one] >= levels[other] + APART:
            return one, other


def what_it_needs(speech: Speech, rng: np.random.Generator) -> Question:
    """What does a thing need?  A two-step question (its kind, and what that kind needs) with eight choices."""
    thing = int(rng.integers(THINGS))
    food = int(speech.things["kind"][thing])
    answers, right = _shuffled(FOODS[food], _others(FOODS, food, 7, rng), rng)
    return Question({"x": THING_WORDS[thing]}, answers, right)


def _one_of_two(property: str) -> Ask:

    def ask(speech: Speech, rng: np.random.Generator) -> Question:
        right = int(rng.integers(2))
        answers = tuple(word for word, _ in TWO_WAYS[property])
        fitting = np.flatnonzero(np.isin(speech.things[property], TWO_WAYS[property][right][1]))
        return Question({"x": THING_WORDS[int(rng.choice(fitting))]}, answers, right)

    return ask


change_of_heat = _one_of_two("heat")
grown_or_made = _one_of_two("kind")
in_the_open = _one_of_two("place")
large = _one_of_two("size")


def larger_or_smaller(speech: Speech, rng: np.random.Generator) -> Question:
    more, less = _pair(speech.things["size"], rng)
    swapped, asked = bool(rng.integers(2)), int(rng.integers(2))
    x, y = (less, more) if swapped else (more, less)
    right = int(swapped) ^ asked
    answers = (THING_WORDS[x], THING_WORDS[y])
    return Question({"x": answers[0], "y": answers[1], "pole": POLES[asked]}, answers, right)


def hottest(speech: Speech, rng: np.random.Generator) -> Question:
    """Which of two things is hotter?  A free answer."""
    hot, cold = _pair(speech.things["heat"], rng)
    x, y = (hot, cold) if rng.integers(2) else (cold, hot)
    return Question({"x": THING_WORDS[x], "y": THING_WORDS[y]}, (THING_WORDS[hot],), FREE)


def heard(speech: Speech, rng: np.random.Generator) -> Question:
    """How does a thing sound?  Three choices, and "unknown" for things without a sound."""
    thing = int(rng.integers(THINGS))
    sound = int(speech.things["sound"][thing])
    if sound == NOTHING:
        answers, right = tuple(_others(VALUES["sound"], NOTHING, 3, rng)), 3
    else:
        answers, right = _shuffled(VALUES["sound"][sound], _others(VALUES["sound"], sound, 2, rng), rng)
    return Question({"x": THING_WORDS[thing]}, (*answers, UNKNOWN), right)


def _deed(property: str, choices: int) -> Ask:

    def ask(speech: Speech, rng: np.random.Generator) -> Question:
        deed = int(rng.integers(DEEDS))
        other = int(speech.deeds[property][deed])
        wrong = [word for i, word in enumerate(DEED_WORDS) if i not in (deed, other)]
        wrong = [wrong[i] for i in rng.permutation(len(wrong))[: choices - 1]]
        answers, right = _shuffled(DEED_WORDS[other], wrong, rng)
        return Question({"v": DEED_WORDS[deed]}, answers, right)

    return ask


what_next = _deed("next", 2)
what_before = _deed("cause", 4)


def felt(speech: Speech, rng: np.random.Generator) -> Question:
    deed = int(rng.integers(DEEDS))
    feeling = int(speech.deeds["feeling"][deed])
    answers, right = _shuffled(VALUES["feeling"][feeling], _others(VALUES["feeling"], feeling, 2, rng), rng)
    return Question({"v": DEED_WORDS[deed]}, answers, right)
