"""The drawn tasks as a catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tallmasks.errors import TallmasksError
from tallmasks.io.tensor_files import write_tensors
from tallmasks.tasks.catalogues import ExamplesFile, ExamplesRecipe, Params
from tallmasks.tasks.drawn import drawn_tasks
from tallmasks.tasks.task import Task


class Drawn:
    """Examples are drawn from a seed, so nothing is downloaded; satisfies `tallmasks.tasks.catalogues.Catalogue`."""

    versioned = True

    def tasks(self, params: Params) -> Mapping[str, Task]:
        return drawn_tasks.TASKS

    def check(self, params: Params) -> None:
        """Nothing in params.yaml is this catalogue's alone."""

    def recipe(self, params: Params, model: Params, task: str, split: str, root: Path) -> ExamplesRecipe:
        if "examples" not in model:
            raise TallmasksError("params.yaml: a model of drawn tasks needs `examples`: a seed and numbers of images")
        found = {"task": task, "split": split, "count": model["examples"][split], "seed": model["examples"]["seed"]}
        code = drawn_tasks.TASKS[task].code
        return ExamplesRecipe({**found, "code": code} if code else found)

    def write(self, recipe: Params, sources: Mapping[str, Path], out: ExamplesFile) -> None:
        images, labels = drawn_tasks.examples(recipe["task"], recipe["split"], recipe["count"], recipe["seed"])
        out.say(f"{recipe['task']} {recipe['split']}: {len(labels)} images")
        write_tensors(out.path, {"images": images, "labels": labels}, out.metadata)

    def missing(self, recipe: Params) -> str | None:
        return None


CATALOGUE = Drawn()
