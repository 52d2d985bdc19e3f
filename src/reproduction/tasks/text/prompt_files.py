"""Reads the prompts of a text task from `templates/<task>.yaml`; the NOTICE there names their source."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from reproduction.tasks.task import shipped_yaml

FOLDER = Path(__file__).with_name("templates")


class Prompt(NamedTuple):
    """Jinja templates that turn a dataset row into a question.

    Attributes:
        answer_choices: Renders to the choices, separated by |||; None if the model generates its answer.
        jinja: Renders to the input, |||, and the right answer.
    """

    name: str
    answer_choices: str | None
    jinja: str


class PromptFile(NamedTuple):
    """The prompts kept for a task, in the published order; ``published`` is the number before selection."""

    origin: str
    licence: str
    published: int
    prompts: tuple[Prompt, ...]


@functools.cache
def prompts_of(task: str) -> PromptFile:
    content = shipped_yaml(FOLDER / f"{task}.yaml")
    return PromptFile(**{**content, "prompts": tuple(Prompt(**prompt) for prompt in content["prompts"])})


def digest(prompts: Sequence[Prompt]) -> str:
    """sha256 of the prompts' content, for recipes; the layout of the YAML file does not matter."""
    return hashlib.sha256(json.dumps([list(prompt) for prompt in prompts]).encode()).hexdigest()
