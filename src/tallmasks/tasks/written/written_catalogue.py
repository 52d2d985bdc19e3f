"""The written tasks as a catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tallmasks.errors import TallmasksError
from tallmasks.tasks.catalogues import ExamplesFile, ExamplesRecipe, Params
from tallmasks.tasks.task import Task
from tallmasks.tasks.texts import write_texts
from tallmasks.tasks.written import written_tasks

EDITION = 2  # raised where other texts come out of the same recipe


class Written:
    """Examples are written from a seed, so nothing is downloaded; satisfies `tallmasks.tasks.catalogues.Catalogue`."""

    versioned = True

    def tasks(self, params: Params) -> Mapping[str, Task]:
        return written_tasks.TASKS

    def check(self, params: Params) -> None:
        """Nothing in params.yaml is this catalogue's alone."""

    def recipe(self, params: Params, model: Params, task: str, split: str, root: Path) -> ExamplesRecipe:
        if "examples" not in model:
            raise TallmasksError("params.yaml: a model of written tasks needs `examples`: a seed and numbers of texts")
        asked = model["examples"]
        return ExamplesRecipe(
            {"task": task, "split": split, "count": asked[split], "seed": asked["seed"], "edition": EDITION}
        )

    def write(self, recipe: Params, sources: Mapping[str, Path], out: ExamplesFile) -> None:
        texts = written_tasks.examples(recipe["task"], recipe["split"], recipe["count"], recipe["seed"])
        out.say(f"{recipe['task']} {recipe['split']}: {write_texts(out.path, texts, out.metadata)} texts")

    def missing(self, recipe: Params) -> str | None:
        return None


CATALOGUE = Written()
