"""The prompts of a text task as data: `templates/<task>.yaml`, beside a NOTICE of where they are from."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tallmasks.tasks.task import shipped_yaml

FOLDER = Path(__file__).with_name("templates")


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
    """The prompts of one task that were kept, of so many ``published``, in the published order."""

    origin: str
    licence: str
    published: int
    prompts: tuple[Prompt, ...]


@functools.cache
def prompts_of(task: str) -> PromptFile:
    content = shipped_yaml(FOLDER / f"{task}.yaml")
    return PromptFile(**{**content, "prompts": tuple(Prompt(**prompt) for prompt in content["prompts"])})


def digest(prompts: Sequence[Prompt]) -> str:
    """sha256 of the content of some prompts, for recipes: the layout of their file does not count."""
    return hashlib.sha256(json.dumps([list(prompt) for prompt in prompts]).encode()).hexdigest()
