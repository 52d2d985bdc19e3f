"""A task as every catalogue describes it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import yaml

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)


@dataclass(frozen=True)
class Task:
    """A classification task with a zero-shot head made from prompts.

    Attributes:
        classes: Class names in label order.
        templates: Prompt templates; ``{}`` stands for a class name.
        description: What an example shows, for people.
    """

    name: str
    classes: tuple[str, ...]
    templates: tuple[str, ...]
    description: str

    @property
    def free(self) -> bool:
        """Whether the model writes its answers instead of choosing them."""
        return False

    def prompts(self, label: int) -> tuple[str, ...]:
        """Every template filled with the name of one class."""
        return tuple(template.format(self.classes[label]) for template in self.templates)

    def worded_for(self, checkpoints: str) -> Task:
        """The task with the class names that checkpoints from `checkpoints` were fine-tuned with."""
        return self


def shipped_yaml(file: Path) -> Any:
    """The content of a YAML file of the package."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the first is fast, and not in every build
    return yaml.load(file.read_text(encoding="utf-8"), loader)


def published_part(split: str) -> str:
    """Which of a dataset's own splits a split is made from: validation examples are taken from "train"."""
    return "test" if split == "test" else "train"
