"""The catalogue of written tasks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from reproduction.tasks.catalogues import ExamplesFile, ExamplesRecipe, Params
from reproduction.tasks.task import Task
from reproduction.tasks.texts import write_texts
from tiny_worlds.examples_section import check_examples, examples_of
from tiny_worlds.written import written_tasks


class Written:
    """Generates examples from a seed, without downloads; implements `reproduction.tasks.catalogues.Catalogue`."""

    versioned = True

    def tasks(self, params: Params) -> Mapping[str, Task]:
        return written_tasks.TASKS

    def check(self, params: Params) -> None:
        check_examples(params, "tiny_worlds.written")

    def recipe(self, params: Params, model: Params, task: str, split: str, root: Path) -> ExamplesRecipe:
        asked = examples_of(model, "a model")
        return ExamplesRecipe(
            {
                "task": task,
                "split": split,
                "count": asked[split],
                "seed": asked["seed"],
                "edition": 2,
            }  # raise it when the same recipe gives different texts
        )

    def write(self, recipe: Params, sources: Mapping[str, Path], out: ExamplesFile) -> None:
        texts = written_tasks.examples(recipe["task"], recipe["split"], recipe["count"], recipe["seed"])
        out.say(f"{recipe['task']} {recipe['split']}: {write_texts(out.path, texts, out.metadata)} texts")

    def missing(self, recipe: Params) -> str | None:
        return None


CATALOGUE = Written()
