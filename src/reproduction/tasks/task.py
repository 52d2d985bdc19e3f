"""`Task`, the description of a task in every catalogue, and the names of the splits."""

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
        templates: Prompt templates; ``{}`` is replaced by a class name.
        description: What an example shows, for listings.
    """

    name: str
    classes: tuple[str, ...]
    templates: tuple[str, ...]
    description: str

    @property
    def writes_answers(self) -> bool:
        """True if the model generates its answers instead of choosing among them."""
        return False

    def prompts(self, label: int) -> tuple[str, ...]:
        return tuple(template.format(self.classes[label]) for template in self.templates)

    def worded_for(self, checkpoints: str) -> Task:
        """The task with the class names that the publisher `checkpoints` fine-tuned with."""
        return self


def shipped_yaml(file: Path) -> Any:
    """The content of one of the package's own YAML files."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C loader is faster, but not in every build
    return yaml.load(file.read_text(encoding="utf-8"), loader)


def published_part(split: str) -> str:
    """The published split, "train" or "test", from which a split is taken; validation comes from "train"."""
    return "test" if split == "test" else "train"
