"""How many images the splits of the paper's tasks have, and how many bytes they take once they are decoded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tallmasks.tasks.task import Split
from tallmasks.tasks.vision.decoding import TRAINING_MARGIN
from tallmasks.tasks.vision.vision_tasks import LARGEST_VALIDATION, TASKS, VALIDATION_SHARE

KEPT = {"eurosat": 64, "mnist": 28, "svhn": 32, "cifar100": 32, "stl10": 96, "pcam": 96, "fer2013": 48, "emnist": 28}
KEPT |= {"cifar10": 32, "fashionmnist": 28, "kmnist": 28}
"""The side of tasks with small squares, which are kept at their own size."""


def counts(task: str) -> dict[Split, int]:
    """The images of each split of a task."""
    train, test = TASKS[task].counts["train"], TASKS[task].counts["test"]
    validation = min(int(train * VALIDATION_SHARE), LARGEST_VALIDATION)
    return {"train": train - validation, "validation": validation, "test": test}


def example_bytes(recipe: Mapping[str, Any]) -> int:
    """Bytes of the decoded images of a recipe of examples; 0 for a task of one's own, which nobody has counted."""
    task, split = recipe["task"], recipe["split"]
    if task not in TASKS:
        return 0
    own_side = round(recipe["side"] * TRAINING_MARGIN) if split == "train" else recipe["side"]
    return 3 * counts(task)[split] * KEPT.get(task, own_side) ** 2
