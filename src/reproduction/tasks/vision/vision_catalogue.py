"""The catalogue of vision tasks, including those declared in params.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from reproduction.tasks.catalogues import ExamplesFile, ExamplesRecipe, Params
from reproduction.tasks.dataset_files import missing_from_hub
from reproduction.tasks.task import Task
from reproduction.tasks.vision.vision_tasks import LOCAL, TASKS, VisionTask, own_task, vision_task_of
from tallmasks.errors import TallmasksError
from tallmasks.io.file_digests import named_path


class Vision:
    """Decodes images from the hub or a local folder; implements `reproduction.tasks.catalogues.Catalogue`."""

    versioned = False

    def tasks(self, params: Params) -> Mapping[str, Task]:
        return {**TASKS, **self._own(params)}

    def _own(self, params: Params) -> dict[str, VisionTask]:
        entries = params.get("vision_tasks", {})
        return {task: own_task(task, entry["classes"], entry["templates"]) for task, entry in entries.items()}

    def check(self, params: Params) -> None:
        for task in params.get("vision_tasks", {}):
            if task in TASKS:
                raise TallmasksError(
                    f"params.yaml: vision_tasks: {task!r} is a built-in task; choose another name, or set "
                    f"data.{task}.path to use a local folder for the built-in task"
                )

    def recipe(self, params: Params, model: Params, task: str, split: str, root: Path) -> ExamplesRecipe:
        """Takes images from the hub, or from the task's `path` in `data` or `vision_tasks`."""
        if "preprocess" not in model:
            raise TallmasksError("params.yaml: a model with `tasks: vision` needs `preprocess`, with the image size")
        entry = params.get("vision_tasks", {}).get(task) or params.get("data", {}).get(task, {})
        described = {**TASKS, **self._own(params)}[task]
        data: dict[str, Any] = {**asdict(described.source), "classes": list(described.classes)}
        recipe = {"task": task, "split": split, "side": model["preprocess"]["size"]}
        if "path" not in entry:
            return ExamplesRecipe({**recipe, "data": {**data, "revision": entry.get("revision", data["revision"])}})
        data = {key: value for key, value in data.items() if key not in ("hub", "revision")}
        return ExamplesRecipe({**recipe, "data": data}, {"data": named_path(root, entry["path"])})

    def write(self, recipe: Params, sources: Mapping[str, Path], out: ExamplesFile) -> None:
        from reproduction.tasks.vision.decoding import write_examples

        split, side = recipe["split"], recipe["side"]
        folder = sources.get("data")
        write_examples(vision_task_of(recipe), split, side, out.path, out.metadata, folder, out.threads, out.say)

    def missing(self, recipe: Params) -> str | None:
        return missing_from_hub(recipe["task"], vision_task_of(recipe).source, LOCAL)


CATALOGUE = Vision()
