"""The catalogue of drawn tasks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reproduction.models.clip.clip_family import image_size
from reproduction.tasks.catalogues import ExamplesFile, ExamplesRecipe, Params
from reproduction.tasks.task import Task
from tallmasks.errors import TallmasksError
from tallmasks.io.tensor_files import write_tensors
from tiny_worlds.drawn import drawn_tasks
from tiny_worlds.drawn.canvas import IMAGE_SIDE
from tiny_worlds.examples_section import check_examples, examples_of


class Drawn:
    """Draws examples from a seed, without downloads; implements `reproduction.tasks.catalogues.Catalogue`."""

    versioned = True

    def tasks(self, params: Params) -> Mapping[str, Task]:
        return drawn_tasks.TASKS

    def check(self, params: Params) -> None:
        check_examples(params, "tiny_worlds.drawn")
        for name, model in params.get("models", {}).items():
            drawn = model["tasks"] == "tiny_worlds.drawn" and model["family"] == "clip" and "preprocess" not in model
            if drawn and (size := image_size(model["architecture"])) != IMAGE_SIDE:
                raise TallmasksError(
                    f"params.yaml: models.{name}.architecture: found the image size {size}, expected {IMAGE_SIDE}, that"
                    " of drawn tasks; or add preprocess"
                )

    def recipe(self, params: Params, model: Params, task: str, split: str, root: Path) -> ExamplesRecipe:
        asked, code = examples_of(model, "a model"), drawn_tasks.TASKS[task].code
        recipe: dict[str, Any] = {"task": task, "split": split, "count": asked[split], "seed": asked["seed"]}
        return ExamplesRecipe({**recipe, "code": code} if code else recipe)

    def write(self, recipe: Params, sources: Mapping[str, Path], out: ExamplesFile) -> None:
        images, labels = drawn_tasks.examples(recipe["task"], recipe["split"], recipe["count"], recipe["seed"])
        out.say(f"{recipe['task']} {recipe['split']}: {len(labels)} images")
        write_tensors(out.path, {"images": images, "labels": labels}, out.metadata)

    def missing(self, recipe: Params) -> str | None:
        return None


CATALOGUE = Drawn()
