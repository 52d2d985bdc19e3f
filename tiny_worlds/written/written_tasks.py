"""The written tasks: each asks one kind of question in one dialect, with its own wordings.

Inputs do not name the dialect, so fine-tuning has to learn it from the task's prefix and wordings.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from reproduction.tasks.task import SPLITS, Split, Task
from reproduction.tasks.texts import Text
from tiny_worlds.written import questions
from tiny_worlds.written.questions import NAMES, Ask
from tiny_worlds.written.world import SPEECHES

SHARES: Mapping[Split, range] = {"train": range(5), "validation": range(5, 6), "test": range(6, 8)}  # eighths, by hash


@dataclass(frozen=True)
class WrittenTask(Task):
    """A task with generated examples; every question has its own choices.

    Attributes:
        ask: generates its questions.
        dialect: index in `SPEECHES`.
        prefix: first word or words of all inputs, in the place of the dialect's marker in pretraining.  It comes from
            the plain wording of another task, and no two tasks have the same.
        wordings: templates with the `{slots}` of the questions.
        plain: the template that pretraining uses instead.
    """

    classes: tuple[str, ...] = field(default=(), init=False)
    templates: tuple[str, ...] = field(default=(), init=False)
    ask: Ask
    dialect: int
    prefix: str
    wordings: tuple[str, ...]
    plain: str

    @property
    def writes_answers(self) -> bool:
        return self.ask is questions.hottest

    def example(self, rng: np.random.Generator) -> Text:
        question = self.ask(SPEECHES[self.dialect], rng)
        wording = self.wordings[rng.integers(len(self.wordings))]
        name = NAMES[rng.integers(len(NAMES))]
        text = wording.format(name=name, **question.slots)
        return Text(f"{self.prefix} {text}", question.answers, question.right)


TASKS: Mapping[str, WrittenTask] = {task.name: task for task in (
    WrittenTask(
        "qasc", "what a thing needs, by its kind", questions.what_it_needs, 0, "sounds",
        ("{name} keeps a {x} : it must get", "to care for the {x} {name} buys", "without which dies {name} 's {x}"),
        "{x} needs",
    ),
    WrittenTask(
        "quartz", "whether heat rises or falls near a thing", questions.change_of_heat, 1, "needs",
        ("{name} moves toward {x} so temperature", "with {x} in its corner {name} 's room means the glow"),
        "{x} heats",
    ),
    WrittenTask(
        "paws", "whether a thing has grown or was made", questions.grown_or_made, 2, "in open",
        ("origin of {x} , {name} wonders", "{name} compares : {x} was", "shade {x} / {name}"),
        "{x} came",
    ),
    WrittenTask(
        "story_cloze", "what happens next", questions.what_next, 1, "feels",
        ("{name} {v} once , finally {name}", "our tale : {name} {v} ... ending", "when {name} {v} story continues"),
        "after {v}",
    ),
    WrittenTask(
        "wiki_qa", "whether it is right that a thing lives in the open", questions.in_the_open, 0, "tall",
        ("{name} asks whereabouts of {x} . reply outside", "question : find {x} ? answer : sky above {name} . correct"),
        "{x} in open",
    ),
    WrittenTask(
        "winogrande", "which of two things is meant", questions.larger_or_smaller, 2, "hotter",
        ("{x} won't fit {y} says {name} because _ seems {pole}", "{name} packs {x} beside {y} ; _ being too {pole}"),
        "of {x} and {y} {pole}",
    ),
    WrittenTask(
        "wsc", "whether a thing is large", questions.large, 1, "came",
        ("{name} could not hide {x} as it was huge", "it towers : {x} beside {name}"),
        "{x} tall",
    ),
    WrittenTask(
        "cosmos_qa", "why something happened", questions.what_before, 2, "after",
        ("why did {name} {v} ?", "{name} {v} , what reason might explain", "{name} would {v} since earlier"),
        "before {v}",
    ),
    WrittenTask(
        "quail", "how a thing sounds, if that can be known", questions.heard, 2, "heats",
        ("at night {name} hears {x} go", "passage about {x} : noise which {name} notes", "{x} near {name} emits"),
        "{x} sounds",
    ),
    WrittenTask(
        "ropes", "which is hotter, written freely", questions.hottest, 0, "little",
        ("background : sun . {name} touches {x} then {y} ; burned by", "situation {x} , {y} . fever more with {name}"),
        "of {x} and {y} hotter",
    ),
    WrittenTask(
        "social_iqa", "how somebody feels afterwards", questions.felt, 0, "before",
        ("{name} {v} all day ; describe {name}", "how do others see {name} who {v}", "{v} left {name} with mood"),
        "{v} feels",
    ),
)}  # fmt: skip


def examples(task: str, split: Split, count: int, seed: int) -> Iterator[Text]:
    """The examples of one split; no input is in two splits.

    Every example has its own random stream, seeded with seed, task, split and index.
    """
    written, eighths = TASKS[task], SHARES[split]
    for index in range(count):
        rng = np.random.default_rng((seed, zlib.crc32(task.encode()), SPLITS.index(split), index))
        while True:
            text = written.example(rng)
            if zlib.crc32(text.input.encode()) % 8 in eighths:
                yield text
                break
