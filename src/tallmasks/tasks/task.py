"""A task as every catalogue describes it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """A classification task with a zero-shot head made from prompts.

    Attributes:
        name: The task's name in params.yaml and in the tables.
        classes: Class names in label order.
        templates: Prompt templates; ``{}`` stands for a class name.
        description: What an image shows, and how the task's images differ from those of pretraining.
    """

    name: str
    classes: tuple[str, ...]
    templates: tuple[str, ...]
    description: str

    @property
    def free(self) -> bool:
        """Whether answers are written, not chosen."""
        return False

    def prompts(self, label: int) -> tuple[str, ...]:
        """Every template filled with the name of one class."""
        return tuple(template.format(self.classes[label]) for template in self.templates)

    def worded_for(self, checkpoints: str) -> Task:
        """The task with the class names of a head that fits checkpoints from `checkpoints`: its own, if only these
        are known."""
        return self
