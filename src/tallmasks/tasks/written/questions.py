"""The families of questions: what is asked, in slots that a wording fills in, and the answers to choose from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tallmasks.tasks.texts import FREE
from tallmasks.tasks.written.world import DEED_WORDS, DEEDS, FOODS, NOTHING, THING_WORDS, THINGS, VALUES, Speech

NAMES = (
    "mia", "leo", "ada", "tom", "eva", "max", "ida", "ben", "zoe", "sam", "lia", "jon",
    "amy", "kai", "una", "rob", "ivy", "dan", "noa", "tim", "fay", "gus", "joy", "hal",
)  # fmt: skip
UNKNOWN = "unknown"
YES_OR_NO = {
    "heat": ("rises", "falls"),
    "colour": ("same", "different"),
    "place": ("true", "false"),
    "size": ("yes", "no"),
}
POLES = ("big", "little")
ANSWERS = (*(word for pair in YES_OR_NO.values() for word in pair), *POLES, UNKNOWN)
APART = 2  # levels between two things that are compared


@dataclass(frozen=True)
class Question:
    """One question before it is worded.

    Attributes:
        slots: what a wording's `{slots}` stand for; `name` is there always.
        answers: the choices, or the accepted answers.
        right: which choice is right, or `FREE`.
    """

    slots: dict[str, str]
    answers: tuple[str, ...]
    right: int


Ask = Callable[[Speech, np.random.Generator], Question]


def _shuffled(right: str, wrong: Sequence[str], rng: np.random.Generator) -> tuple[tuple[str, ...], int]:
    """The right answer among wrong ones in random order, and where it is."""
    place = int(rng.integers(len(wrong) + 1))
    order = [wrong[i] for i in rng.permutation(len(wrong))]
    return (*order[:place], right, *order[place:]), place


def _others(values: Sequence[str], right: int, count: int, rng: np.random.Generator) -> list[str]:
    """Some of the values that are not the right one."""
    wrong = [value for i, value in enumerate(values) if i != right]
    return [wrong[i] for i in rng.permutation(len(wrong))[:count]]


def _pair(levels: np.ndarray, rng: np.random.Generator) -> tuple[int, int]:
    """Two things, the first with more of a property than the second, plainly."""
    while True:
        one, other = (int(i) for i in rng.integers(THINGS, size=2))
        if levels[one] >= levels[other] + APART:
            return one, other


def needs(speech: Speech, rng: np.random.Generator) -> Question:
    """What a thing needs: what kind it is, and what that kind needs; of all eight."""
    thing = int(rng.integers(THINGS))
    food = int(speech.things["kind"][thing])
    answers, right = _shuffled(FOODS[food], _others(FOODS, food, 7, rng), rng)
    return Question({"x": THING_WORDS[thing]}, answers, right)


def change_of_heat(speech: Speech, rng: np.random.Generator) -> Question:
    """Whether heat rises or falls from one thing to another."""
    more, less = _pair(speech.things["heat"], rng)
    rises = bool(rng.integers(2))
    x, y = (less, more) if rises else (more, less)
    return Question({"x": THING_WORDS[x], "y": THING_WORDS[y]}, YES_OR_NO["heat"], 0 if rises else 1)


def same_colour(speech: Speech, rng: np.random.Generator) -> Question:
    """Whether two things have one colour."""
    same, colour = bool(rng.integers(2)), speech.things["colour"]
    while True:
        x, y = (int(i) for i in rng.integers(THINGS, size=2))
        if x != y and (colour[x] == colour[y]) == same:
            return Question({"x": THING_WORDS[x], "y": THING_WORDS[y]}, YES_OR_NO["colour"], 0 if same else 1)


def found_there(speech: Speech, rng: np.random.Generator) -> Question:
    """Whether a place is where a thing is."""
    thing, there = int(rng.integers(THINGS)), bool(rng.integers(2))
    place = int(speech.things["place"][thing])
    said = VALUES["place"][place] if there else _others(VALUES["place"], place, 1, rng)[0]
    return Question({"x": THING_WORDS[thing], "place": said}, YES_OR_NO["place"], 0 if there else 1)


def larger_or_smaller(speech: Speech, rng: np.random.Generator) -> Question:
    """Which of two things is the large one, or the small one."""
    large, small = _pair(speech.things["size"], rng)
    swapped, asked = bool(rng.integers(2)), int(rng.integers(2))
    x, y = (small, large) if swapped else (large, small)
    right = int(swapped) ^ asked
    answers = (THING_WORDS[x], THING_WORDS[y])
    return Question({"x": answers[0], "y": answers[1], "pole": POLES[asked]}, answers, right)


def larger(speech: Speech, rng: np.random.Generator) -> Question:
    """Whether one thing is larger than another."""
    large, small = _pair(speech.things["size"], rng)
    yes = bool(rng.integers(2))
    x, y = (large, small) if yes else (small, large)
    return Question({"x": THING_WORDS[x], "y": THING_WORDS[y]}, YES_OR_NO["size"], 0 if yes else 1)


def hottest(speech: Speech, rng: np.random.Generator) -> Question:
    """Which of two things is hotter, to be written."""
    hot, cold = _pair(speech.things["heat"], rng)
    x, y = (hot, cold) if rng.integers(2) else (cold, hot)
    return Question({"x": THING_WORDS[x], "y": THING_WORDS[y]}, (THING_WORDS[hot],), FREE)


def heard(speech: Speech, rng: np.random.Generator) -> Question:
    """How a thing sounds, of three and unknown: some have no sound."""
    thing = int(rng.integers(THINGS))
    sound = int(speech.things["sound"][thing])
    if sound == NOTHING:
        answers, right = tuple(_others(VALUES["sound"], NOTHING, 3, rng)), 3
    else:
        answers, right = _shuffled(VALUES["sound"][sound], _others(VALUES["sound"], sound, 2, rng), rng)
    return Question({"x": THING_WORDS[thing]}, (*answers, UNKNOWN), right)


def _deed(property: str, choices: int) -> Ask:
    """A question whose answer is another deed."""

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
    """How a deed makes one feel, of three."""
    deed = int(rng.integers(DEEDS))
    feeling = int(speech.deeds["feeling"][deed])
    answers, right = _shuffled(VALUES["feeling"][feeling], _others(VALUES["feeling"], feeling, 2, rng), rng)
    return Question({"v": DEED_WORDS[deed]}, answers, right)
