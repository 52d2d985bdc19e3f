"""The prompts of a text task as data: `templates/<task>.yaml`, beside a NOTICE of where they are from."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import yaml

FOLDER = Path(str(files("tallmasks.tasks.text"))) / "templates"


class Prompt(NamedTuple):
    """One way to put a row of a dataset to a model, in Jinja.

    Attributes:
        name: What its authors call it.
        answer_choices: Renders to the choices with ||| between them; None where the model writes its answer.
        jinja: Renders to the input, |||, and the right answer.
    """

    name: str
    answer_choices: str | None
    jinja: str


class PromptFile(NamedTuple):
    """The prompts of one task.

    Attributes:
        origin: Where they were published.
        licence: The licence that they were published under.
        published: How many there were, of which these were kept.
        prompts: Those kept, in the published order.
    """

    origin: str
    licence: str
    published: int
    prompts: tuple[Prompt, ...]


@functools.cache
def prompts_of(task: str) -> PromptFile:
    """The prompts of a text task."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found = yaml.load((FOLDER / f"{task}.yaml").read_text(encoding="utf-8"), loader)
    return PromptFile(**{**found, "prompts": tuple(Prompt(**prompt) for prompt in found["prompts"])})


def digest(prompts: Sequence[Prompt]) -> str:
    """sha256 of what some prompts say, for recipes: how their file is laid out does not count."""
    return hashlib.sha256(json.dumps([list(prompt) for prompt in prompts]).encode()).hexdigest()
