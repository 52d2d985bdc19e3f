"""The catalogue of real texts."""

from __future__ import annotations

import hashlib
import itertools
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from real_texts.real_tasks import TASKS, RealTask
from reproduction.tasks.catalogues import ExamplesFile, ExamplesRecipe, Params
from reproduction.tasks.task import Task
from reproduction.tasks.texts import Text, write_texts
from tallmasks.errors import TallmasksError
from tallmasks.io.file_digests import sha256_of_file, sha256_of_folder
from tiny_worlds.examples_section import check_examples, examples_of

PACKAGES = Path(".venv", "real")
FEWEST = 1000
"""Training texts of a task, unless `examples.train` asks for fewer."""


class RealTexts:
    """Reads labelled texts from installed packages; implements `reproduction.tasks.catalogues.Catalogue`."""

    versioned = False

    def tasks(self, params: Params) -> Mapping[str, Task]:
        return TASKS

    def check(self, params: Params) -> None:
        check_examples(params, "real_texts")

    def recipe(self, params: Params, model: Params, task: str, split: str, root: Path) -> ExamplesRecipe:
        asked = examples_of(model, "a model")
        counts = {name: asked[name] for name in ("test", "validation", "train")}
        files = dict(zip(TASKS[task].files, TASKS[task].sha256, strict=True))
        return ExamplesRecipe(
            {
                "task": task,
                "split": split,
                "counts": counts,
                "seed": asked["seed"],
                "files": files,
                "classes": list(TASKS[task].classes),
                "edition": 1,  # raise it when the same recipe gives different texts
            }
        )

    def write(self, recipe: Params, sources: Mapping[str, Path], out: ExamplesFile) -> None:
        task = TASKS[recipe["task"]]
        for file, sha256 in recipe["files"].items():
            path = PACKAGES / file
            if (found := (sha256_of_folder if path.is_dir() else sha256_of_file)(path)) != sha256:
                raise TallmasksError(f"{path}: found sha256 {found}, expected {sha256}; install it again: make real")
        texts = split_of(task, recipe["split"], recipe["counts"], recipe["seed"])
        if recipe["split"] == "train" and len(texts) < (fewest := min(FEWEST, recipe["counts"]["train"])):
            raise TallmasksError(
                f"{task.name}: {len(texts)} training texts are left, expected at least {fewest}: lower examples.test"
            )
        out.say(f"{task.name} {recipe['split']}: {write_texts(out.path, texts, out.metadata)} texts")

    def missing(self, recipe: Params) -> str | None:
        if all((PACKAGES / file).exists() for file in recipe["files"]):
            return None
        return f"{PACKAGES}: found no real texts, or not all of them; install them and their encoder: make real"


def split_of(task: RealTask, split: str, counts: Mapping[str, int], seed: int) -> list[Text]:
    """The texts of one split.  No text is in two splits.

    Texts with two labels are left out.  The classes take turns, so they are equally frequent in every split as far as
    they have enough texts.  The first texts are for test, the next for validation, the rest for training.
    """
    labels: dict[str, set[str]] = defaultdict(set)
    for text, label in task.read(PACKAGES):
        labels[" ".join(text.split())].add(label)
    by_class: dict[str, list[str]] = {name: [] for name in task.classes}
    for text, own in labels.items():
        if text and len(own) == 1:
            by_class[own.pop()].append(text)
    for texts in by_class.values():
        texts.sort(key=lambda text: hashlib.sha256(f"{seed} {text}".encode()).digest())
    turns = itertools.zip_longest(*by_class.values())
    ordered = [Text(text, task.classes, label) for turn in turns for label, text in enumerate(turn) if text is not None]
    start = 0
    for name, count in counts.items():
        if name == split:
            return ordered[start : start + count]
        start += count
    raise ValueError(split)


CATALOGUE = RealTexts()
