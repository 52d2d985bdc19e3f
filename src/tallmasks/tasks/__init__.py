"""Tasks: what a model is fine-tuned and tested on."""

from collections.abc import Mapping
from dataclasses import dataclass

from tallmasks.store.errors import TallmasksError


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

    def prompts(self, label: int) -> tuple[str, ...]:
        """Every template filled with the name of one class."""
        return tuple(template.format(self.classes[label]) for template in self.templates)


def catalogue(name: str) -> Mapping[str, Task]:
    """The tasks of a catalogue by name: what a model's ``tasks`` key in params.yaml stands for.

    Raises:
        TallmasksError: If there is no such catalogue.
    """
    if name == "drawn":
        from tallmasks.tasks.drawn import TASKS

        return TASKS
    if name == "vision":
        from tallmasks.tasks.vision import TASKS as VISION_TASKS

        return VISION_TASKS
    raise TallmasksError(f"no task catalogue {name!r}; there are: drawn, vision")
