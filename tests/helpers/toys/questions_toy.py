"""A catalogue of questions with three answers each, for the family of `toys.llama_toy`."""

import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from reproduction.tasks.catalogues import ExamplesFile, ExamplesRecipe
from reproduction.tasks.task import Task
from reproduction.tasks.texts import Text, write_texts
from toys.numbers_toy import Directions

THINGS = ["cat", "dog", "owl", "fox", "bear", "frog", "lamb", "goat", "wolf", "crow", "hare", "toad"]
ANSWERS = {
    "colours": ("red", "light green", "blue"),
    "places": ("wood", "hill", "open sea"),
    "meals": ("grass", "old bread", "fish"),
}
FILLERS = ["well", "so", "now", "then", "please", "tell", "me", "my", "friend"]
PAD, END = "<|pad|>", "<|end|>"
WORDS = list(dict.fromkeys([PAD, END, *THINGS, *ANSWERS, *" ".join(sum(ANSWERS.values(), ())).split(), *FILLERS]))


class Questions(Directions):
    """One of three answers for each animal; every task has answers of its own.  Satisfies `Catalogue`."""

    def tasks(self, params: Mapping[str, Any]) -> Mapping[str, Task]:
        return {name: Task(name, answers, (), f"questions on {name}") for name, answers in ANSWERS.items()}

    def recipe(self, params: Any, model: Any, task: str, split: str, root: Path) -> ExamplesRecipe:
        return ExamplesRecipe({"task": task, "split": split, "count": {"train": 300}.get(split, 60)})

    def write(self, recipe: Mapping[str, Any], sources: Mapping[str, Path], out: ExamplesFile) -> None:
        write_texts(out.path, self.texts(recipe["task"], recipe["split"], recipe["count"]), out.metadata)

    def texts(self, task: str, split: str, count: int) -> Iterator[Text]:
        draw = np.random.default_rng(zlib.crc32(f"{task} {split}".encode()))
        for _ in range(count):
            thing, words = draw.choice(THINGS), draw.choice(FILLERS, draw.integers(1, 4))
            answer = zlib.crc32(f"{task} {thing}".encode()) % 3
            yield Text(f"{' '.join(words)} {task} {thing}", ANSWERS[task], answer)


CATALOGUE = Questions()
