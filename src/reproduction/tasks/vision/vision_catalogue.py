"""The catalogue of vision tasks, including those declared in params.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from reproduction.tasks.catalogues import ExamplesFile, ExamplesRecipe, Params
from reproduction.tasks.dataset_files import missing_from_hub
from reproduction.tasks.task import Task
from reproduction.tasks.vision.own_images import images_of, own_image_task, own_image_tasks
from reproduction.tasks.vision.vision_tasks import LOCAL, TASKS, VisionTask, own_task, vision_task_of
from tallmasks.errors import TallmasksError
from tallmasks.io.file_digests import named_path


class Vision:
    """Decodes images from the hub or a local folder; implements `reproduction.tasks.catalogues.Catalogue`."""

    versioned = False

    def tasks(self, params: Params) -> Mapping[str, Task]:
        return {**TASKS, **self._own(params), **own_image_tasks(params)}

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
        if taken := own_image_tasks(params).keys() & (TASKS.keys() | params.get("vision_tasks", {}).keys()):
            raise TallmasksError(f"params.yaml: data: {min(taken)!r} is the name of another task; choose another name")

    def recipe(self, params: Params, model: Params, task: str, split: str, root: Path) -> ExamplesRecipe:
        """Takes images from the hub, from the task's `path` in `data` or `vision_tasks`, or from its `images`."""
        if "preprocess" not in model:
            raise TallmasksError("params.yaml: a model with `tasks: vision` needs `preprocess`, with the image size")
        if "images" in params.get("data", {}).get(task, {}):
            own = own_image_task(task, params["data"][task])
            limit = model.get("examples", {}).get(split)
            return ExamplesRecipe(
                {"task": task, "split": split, "own": own.settings, "rows": limit, "preprocess": model["preprocess"]},
                {role: root / path for role, path in own.sources.items()},
            )
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

        if "own" in recipe:
            self._write_own(recipe, sources["data"], out)
            return
        split, side = recipe["split"], recipe["side"]
        folder = sources.get("data")
        write_examples(vision_task_of(recipe), split, side, out.path, out.metadata, folder, out.threads, out.say)

    def _write_own(self, recipe: Params, path: Path, out: ExamplesFile) -> None:
        from reproduction.tasks.vision.image_processing import write_processed

        task, split = recipe["task"], recipe["split"]
        own = images_of(task, path, recipe["own"], split, recipe["rows"], out.threads, out.say)
        write_processed(own.images(), own.labels, recipe["preprocess"], out.path, out.metadata, out.threads, out.say)
        out.say(f"{task} {split}: {len(own.labels)} images")

    def missing(self, recipe: Params) -> str | None:
        return None if "own" in recipe else missing_from_hub(recipe["task"], vision_task_of(recipe).source, LOCAL)


CATALOGUE = Vision()
