"""The written world: things and deeds with properties, named by invented words in three dialects.

In each dialect half of the words, a different half, swap meanings.  Facts about things never change, only the words for
them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SEED = 2024
DIALECTS = ("aldan", "brixi", "corvo")  # marker words at the beginning of texts
THING_SHARE = 0.5  # fraction of the words that swap meanings in a dialect
LEVELS = 5
NOTHING = -1

CONSONANTS, VOWELS = "bdfgklmnprstvz", "aeiou"
THINGS, DEEDS = 24, 12

VALUES = {
    "kind": ("bird", "tool", "fruit", "stone", "boat", "spice", "insect", "vessel"),
    "place": ("lake", "forest", "market", "cave", "tower", "desert", "harbour", "garden"),
    "colour": ("red", "blue", "green", "black"),
    "sound": ("hum", "crack", "whistle", "drip", "rattle", "roar"),
    "size": ("minute", "small", "modest", "large", "vast"),
    "heat": ("icy", "cool", "mild", "warm", "blazing"),
    "feeling": ("proud", "sad", "angry", "calm", "afraid", "glad"),
}
FOODS = ("seeds", "oil", "water", "moss", "tar", "honey", "leaves", "salt")  # needed by each kind, in the same order

Meanings = NDArray[np.int64]


def invented_words(count: int, syllables: int) -> tuple[str, ...]:
    rng = np.random.default_rng((SEED, syllables))
    words: dict[str, None] = {}
    while len(words) < count:
        letters = [(CONSONANTS[rng.integers(14)], VOWELS[rng.integers(5)]) for _ in range(syllables)]
        words["".join(a + b for a, b in letters)] = None
    return tuple(words)


THING_WORDS = invented_words(THINGS, 2)
DEED_WORDS = invented_words(DEEDS, 3)


def _evenly(count: int, values: int, stream: int) -> NDArray[np.int64]:
    """A random value for each of `count` things, int64 [count]; all values are equally frequent."""
    return np.random.default_rng((SEED, stream)).permutation(np.arange(count) % values)


def _cycle(count: int, stream: int) -> NDArray[np.int64]:
    """A random cyclic permutation, int64 [count]."""
    order = np.random.default_rng((SEED, stream)).permutation(count)
    follower = np.empty(count, np.int64)
    follower[order] = np.roll(order, -1)
    return follower


def _dialect(count: int, stream: int) -> Meanings:
    """The meaning of each word, int64 [count]: `THING_SHARE` of them are permuted cyclically."""
    moved = np.random.default_rng((SEED, stream)).permutation(count)[: round(THING_SHARE * count)]
    meaning = np.arange(count)
    meaning[moved] = np.roll(moved, -1)
    return meaning


_sound = _evenly(THINGS, 8, 3)  # six sounds; two eighths of the things have none
THING_FACTS = {
    "kind": _evenly(THINGS, len(VALUES["kind"]), 0),
    "place": _evenly(THINGS, len(VALUES["place"]), 1),
    "colour": _evenly(THINGS, len(VALUES["colour"]), 2),
    "sound": np.where(_sound < len(VALUES["sound"]), _sound, NOTHING),
    "size": _evenly(THINGS, LEVELS, 4),
    "heat": _evenly(THINGS, LEVELS, 5),
}
"""Facts about things, int64 [THINGS] by property."""
NEXT, CAUSE = _cycle(DEEDS, 7), _cycle(DEEDS, 8)
FEELING = _evenly(DEEDS, len(VALUES["feeling"]), 9)
"""Facts about deeds, int64 [DEEDS] each."""
THING_MEANINGS = tuple(_dialect(THINGS, 20 + dialect) for dialect in range(len(DIALECTS)))
DEED_MEANINGS = tuple(_dialect(DEEDS, 40 + dialect) for dialect in range(len(DIALECTS)))


@dataclass(frozen=True)
class Speech:
    """The properties of the words of one dialect.

    Attributes:
        things: int64 [THINGS] by property of `THING_FACTS`.
        deeds: int64 [DEEDS] by property; `next` and `cause` are words of the same dialect.
    """

    marker: str
    things: dict[str, Meanings]
    deeds: dict[str, Meanings]

    @classmethod
    def of(cls, dialect: int) -> Speech:
        thing, deed = THING_MEANINGS[dialect], DEED_MEANINGS[dialect]
        word = np.argsort(deed)  # the word of each deed
        things = {name: values[thing] for name, values in THING_FACTS.items()}
        deeds = {"next": word[NEXT[deed]], "cause": word[CAUSE[deed]], "feeling": FEELING[deed]}
        return cls(DIALECTS[dialect], things, deeds)


SPEECHES = tuple(Speech.of(dialect) for dialect in range(len(DIALECTS)))
