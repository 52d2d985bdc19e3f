"""Renders a dataset row with a prompt, as promptsource 0.2.3 does.

Every {{ value }} is cut to 2,048 characters; choices are not cut.  The result is split at ||| and stripped.  Two
differences from promptsource: the filter `choice` takes the first accepted answer (ROPES) instead of a random one, and
templates run in Jinja's sandbox.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from reproduction.tasks.text.prompt_files import Prompt
from tallmasks.errors import TallmasksError

if TYPE_CHECKING:
    from jinja2 import Template
    from jinja2.sandbox import ImmutableSandboxedEnvironment

RENDERING = 1
"""Part of the recipes; increase it when the same rows and prompts give different examples."""
LONGEST = 2048
SEPARATOR = "|||"
_PROTECTED = "\ue000" * len(SEPARATOR)  # replaces a separator inside a row; from Unicode's private use area
Row = Mapping[str, Any]


class Rendered(NamedTuple):
    """A rendered example; ``choices`` is None if the model generates its answer."""

    input: str
    choices: tuple[str, ...] | None
    target: str


def render(prompt: Prompt, row: Row) -> Rendered:
    """Render a row.  Raises TallmasksError if the result is not one input and one answer."""
    from jinja2 import TemplateError

    values = {name: _protect(value) for name, value in row.items()}
    try:
        choices = _split(_compiled(prompt.answer_choices).render(values)) if prompt.answer_choices else None
        cut = prompt.jinja.replace("}}", f" | string | truncate({LONGEST}) }}}}")
        parts = _split(_compiled(cut).render(values, answer_choices=choices))
    except (TemplateError, TypeError, ValueError, LookupError) as error:
        raise TallmasksError(f"cannot render the prompt {prompt.name!r}: {error}") from None
    if len(parts) != 2:
        text = f" {SEPARATOR} ".join(parts)[:80]
        raise TallmasksError(f"the prompt {prompt.name!r} gives {text!r}, expected an input, {SEPARATOR} and an answer")
    question, target = map(_unprotect, parts)
    return Rendered(question, None if choices is None else tuple(map(_unprotect, choices)), target)


@functools.cache
def _compiled(source: str) -> Template:
    return _environment().from_string(source)


@functools.cache
def _environment() -> ImmutableSandboxedEnvironment:
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment()
    environment.filters["choice"] = lambda items: items[0]
    return environment


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(SEPARATOR)]


def _protect(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace(SEPARATOR, _PROTECTED)
    if isinstance(value, list):
        return [_protect(inner) for inner in value]
    if isinstance(value, dict):
        return {name: _protect(inner) for name, inner in value.items()}
    return value


def _unprotect(text: str) -> str:
    return text.replace(_PROTECTED, SEPARATOR)
