"""The catalogue of real images."""

from __future__ import annotations

import hashlib
import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from real_images.image_tasks import TASKS, Picture
from reproduction.tasks.catalogues import ExamplesFile, ExamplesRecipe, Params
from reproduction.tasks.task import Task
from tallmasks.errors import TallmasksError
from tallmasks.io.file_digests import sha256_of_file, sha256_of_folder
from tiny_worlds.examples_section import check_examples, examples_of

PACKAGES = Path(".venv", "real-images")


class RealImages:
    """Reads labelled images from installed packages; implements `reproduction.tasks.catalogues.Catalogue`."""

    versioned = False

    def tasks(self, params: Params) -> Mapping[str, Task]:
        return TASKS

    def check(self, params: Params) -> None:
        check_examples(params, "real_images")

    def recipe(self, params: Params, model: Params, task: str, split: str, root: Path) -> ExamplesRecipe:
        asked = examples_of(model, "a model")
        return ExamplesRecipe(
            {
                "task": task,
                "split": split,
                "counts": {name: asked[name] for name in ("test", "validation", "train")},
                "seed": asked["seed"],
                "files": dict(zip(TASKS[task].files, TASKS[task].sha256, strict=True)),
                "classes": list(TASKS[task].classes),
                "preprocess": dict(model["preprocess"]),
                "edition": 1,  # raise it when the same recipe gives different images
            }
        )

    def write(self, recipe: Params, sources: Mapping[str, Path], out: ExamplesFile) -> None:
        import numpy as np

        from reproduction.tasks.vision.image_processing import write_processed

        task = TASKS[recipe["task"]]
        for file, sha256 in recipe["files"].items():
            path = PACKAGES / file
            if (found := (sha256_of_folder if path.is_dir() else sha256_of_file)(path)) != sha256:
                raise TallmasksError(
                    f"{path}: found sha256 {found}, expected {sha256}; install it again: make real-images"
                )
        pictures = split_of(task.read(PACKAGES), task.classes, recipe["split"], recipe["counts"], recipe["seed"])
        labels = np.array([task.classes.index(picture.label) for picture in pictures], np.int64)
        images = (picture.open().convert("RGB") for picture in pictures)
        write_processed(images, labels, recipe["preprocess"], out.path, out.metadata, out.threads, out.say)
        out.say(f"{task.name} {recipe['split']}: {len(labels)} images")

    def missing(self, recipe: Params) -> str | None:
        if all((PACKAGES / file).exists() for file in recipe["files"]):
            return None
        return f"{PACKAGES}: found no real images, or not all of them; install them and their encoder: make real-images"


def split_of(
    pictures: Iterable[Picture], classes: tuple[str, ...], split: str, counts: Mapping[str, int], seed: int
) -> list[Picture]:
    """The pictures of one split.  No group is in two splits.

    Each split gets a share of the groups that follows from `counts`.  In it the classes take turns, so they are
    equally frequent as far as they have enough pictures.
    """
    groups: dict[str, list[Picture]] = defaultdict(list)
    for picture in pictures:
        groups[picture.group].append(picture)
    ordered = sorted(groups.values(), key=lambda group: _place(seed, group[0].group))
    every = sum(map(len, ordered))
    ends = dict(zip(counts, itertools.accumulate(counts.values()), strict=True))
    by_class: dict[str, list[Picture]] = {name: [] for name in classes}
    taken = 0
    for group in ordered:
        own = next(name for name, end in ends.items() if taken * sum(counts.values()) < end * every)
        taken += len(group)
        if own == split:
            for picture in group:
                by_class[picture.label].append(picture)
    turns = itertools.chain.from_iterable(itertools.zip_longest(*by_class.values()))
    return [picture for picture in turns if picture is not None][: counts[split]]


def _place(seed: int, group: str) -> bytes:
    return hashlib.sha256(f"{seed} {group}".encode()).digest()


CATALOGUE = RealImages()
