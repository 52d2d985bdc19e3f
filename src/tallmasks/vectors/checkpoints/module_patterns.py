r"""Patterns of module names, as peft has them in `rank_pattern` and `alpha_pattern`, matched in bounded time.

peft takes any regular expression, which may take for ever.  Here a pattern has names, dots (`\.` for a dot itself),
digits (`\d`, `[0-9]`), and `+` and `*` behind one of these.  `|` stands between whole patterns, `^` and `$` at the
ends. It fits the modules that it fits in peft: those with the whole name, or with the name behind one of its dots.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_MOST_REPEATED = 50
"""Patterns with + or *."""
_MOST_REPEATS = 8
"""How often + and * may stand in one of them."""
_LONGEST = 200
_ONE = r"(?:\\[d.\-_]|\[0-9\]|[.\w-])"
_PATTERN = re.compile(rf"(?:{_ONE}[+*]?)*")
_STEP = re.compile(rf"({_ONE})([+*])|((?:{_ONE}(?![+*]))+)")
"""One that is repeated, or many that are not: in none of them has an engine steps to take back."""
Steps = list[tuple[re.Pattern[str], str]]
"""What is matched one after the other, each with ``+``, ``*``, or nothing: once."""


class ModulePatterns:
    """Values by pattern; the first pattern that fits counts.

    Raises ValueError, with the pattern, for one of another kind, and where there are too many.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._choices = [(text, _steps(text), value) for key, value in values.items() for text in key.split("|")]
        if (repeated := sum(len(steps) > 1 for _, steps, _ in self._choices)) > _MOST_REPEATED:
            raise ValueError(f"{repeated} patterns with + or *")

    def value(self, module: str, default: Any) -> Any:
        """The value for a module."""
        starts = {0, *(dot.end() for dot in re.finditer(r"\.", module))}
        choices = (
            (value, _fits(steps, {0} if text[:1] == "^" else starts, module)) for text, steps, value in self._choices
        )
        return next((value for value, fits in choices if fits), default)


def _steps(text: str) -> Steps:
    inner = text.removeprefix("^").removesuffix("$")
    if len(inner) > _LONGEST or not _PATTERN.fullmatch(inner):
        raise ValueError(f"the pattern {text[:100]!r}")
    steps = [(re.compile(one or many), often) for one, often, many in _STEP.findall(inner)]
    if (repeats := sum(bool(often) for _, often in steps)) > _MOST_REPEATS:
        raise ValueError(f"a pattern with + and * {repeats} times, more than {_MOST_REPEATS}: {text[:40]!r}")
    return steps


def _fits(steps: Steps, positions: set[int], module: str) -> bool:
    """Whether the steps, from one of some places in the name on, lead to its end."""
    for step, often in steps:
        after = set(positions) if often == "*" else set()
        while positions:
            positions = {match.end() for position in positions if (match := step.match(module, position))} - after
            after |= positions
            if not often:
                break
        positions = after
    return len(module) in positions
