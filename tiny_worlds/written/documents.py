"""Pretraining texts of the written world: facts with gaps, facts to continue, and plain questions."""

from __future__ import annotations

import numpy as np

from tiny_worlds.written import world
from tiny_worlds.written.questions import UNKNOWN
from tiny_worlds.written.written_tasks import TASKS

GAPS = tuple(f"<extra_id_{number}>" for number in range(8))

Pair = tuple[str, str]
"""Input and target."""

CLAUSES = {
    "kind": "is a {}",
    "place": "lives {}",
    "colour": "coloured {}",
    "sound": "says {}",
    "size": "size {}",
    "heat": "heat {}",
    "food": "eats {}",
    "next": "then {}",
    "cause": "because {}",
    "feeling": "feels {}",
}
"""How a text expresses each property; the value is the last word."""


def of_thing(speech: world.Speech, thing: int) -> dict[str, str]:
    """The properties of a thing, as words."""
    said = {
        name: world.VALUES[name][values[thing]]
        for name, values in speech.things.items()
        if values[thing] != world.NOTHING
    }
    return {"sound": UNKNOWN, **said, "food": world.FOODS[speech.things["kind"][thing]]}


def of_deed(speech: world.Speech, deed: int) -> dict[str, str]:
    others = {name: world.DEED_WORDS[speech.deeds[name][deed]] for name in ("next", "cause")}
    return {**others, "feeling": world.VALUES["feeling"][speech.deeds["feeling"][deed]]}


def _clauses(rng: np.random.Generator, most: int) -> tuple[str, str, list[list[str]]]:
    """The marker of a random dialect, one of its words, and at most ``most`` clauses about the word."""
    speech = world.SPEECHES[rng.integers(len(world.SPEECHES))]
    which = int(rng.integers(world.THINGS + world.DEEDS))
    if which < world.THINGS:
        word, facts = world.THING_WORDS[which], of_thing(speech, which)
    else:
        word, facts = world.DEED_WORDS[which - world.THINGS], of_deed(speech, which - world.THINGS)
    clauses = [CLAUSES[name].format(fact).split() for name, fact in facts.items()]
    return speech.marker, word, [clauses[i] for i in rng.permutation(len(clauses))[:most]]


def with_gaps(rng: np.random.Generator) -> Pair:
    """Span corruption: the target fills the gaps in the input."""
    marker, word, clauses = _clauses(rng, 4)
    read = [marker, word]
    write: list[str] = []
    hidden = rng.random(len(clauses)) < 0.5
    hidden[rng.integers(len(clauses))] = True
    for clause, gap in zip(clauses, hidden, strict=True):
        if gap:
            sentinel = GAPS[len(write) // 2]
            read += [*clause[:-1], sentinel]
            write += [sentinel, clause[-1]]
        else:
            read += clause
    return " ".join(read), " ".join(write)


def begun(rng: np.random.Generator) -> Pair:
    """Prefix language modelling: the target continues the input."""
    marker, word, clauses = _clauses(rng, 2)
    words = [word for clause in clauses for word in clause]
    cut = int(rng.integers(len(words)))
    return " ".join([marker, word, *words[:cut]]), " ".join(words[cut:])


def problem(rng: np.random.Generator) -> Pair:
    """A question of a random task in plain wording, with the marker of its dialect."""
    task = tuple(TASKS.values())[rng.integers(len(TASKS))]
    speech = world.SPEECHES[rng.integers(len(world.SPEECHES))]
    question = task.ask(speech, rng)
    return f"{speech.marker} {task.plain.format(**question.slots)}", question.answers[max(question.right, 0)]
