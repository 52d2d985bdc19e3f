r"""Module-name patterns of peft's `rank_pattern` and `alpha_pattern`, matched in bounded time.

peft accepts any regular expression, which can take forever to match. Here a pattern is made of names, dots (`\.` for a
literal one) and digits (`\d`, `[0-9]`), with optional `+` or `*`; `|` separates patterns, `^` and `$` enclose one. As
in peft, it matches a module's whole name, or its end after a dot.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_MOST_REPEATED = 50  # patterns with + or *
_MOST_REPEATS = 8  # uses of + and * in a pattern
_LONGEST = 200
_ONE = r"(?:\\[d.\-_]|\[0-9\]|[.\w-])"
_PATTERN = re.compile(rf"(?:{_ONE}[+*]?)*")
# one repeated element, or a run without repeats: neither can backtrack
_STEP = re.compile(rf"({_ONE})([+*])|((?:{_ONE}(?![+*]))+)")
Steps = list[tuple[re.Pattern[str], str]]  # Matched in sequence, each repeated by ``+`` or ``*``, or once if empty.


class ModulePatterns:
    """Values by pattern; the first match counts. Raises ValueError, with the reason, for an unsupported pattern or too
    many patterns."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._choices = [(text, _steps(text), value) for key, value in values.items() for text in key.split("|")]
        if (repeated := sum(len(steps) > 1 for _, steps, _ in self._choices)) > _MOST_REPEATED:
            raise ValueError(f"{repeated} patterns contain + or *, more than {_MOST_REPEATED}")

    def value(self, module: str, default: Any) -> Any:
        starts = {0, *(dot.end() for dot in re.finditer(r"\.", module))}
        for text, steps, value in self._choices:
            if _fits(steps, {0} if text.startswith("^") else starts, module):
                return value
        return default


def _steps(text: str) -> Steps:
    inner = text.removeprefix("^").removesuffix("$")
    if len(inner) > _LONGEST or not _PATTERN.fullmatch(inner):
        raise ValueError(f"found the pattern {text[:100]!r}")
    steps = [(re.compile(one or many), often) for one, often, many in _STEP.findall(inner)]
    if (repeats := sum(bool(often) for _, often in steps)) > _MOST_REPEATS:
        raise ValueError(f"the pattern {text[:40]!r} has + or * {repeats} times, more than {_MOST_REPEATS}")
    return steps


def _fits(steps: Steps, positions: set[int], module: str) -> bool:
    for step, often in steps:
        after = set(positions) if often == "*" else set()
        while positions:
            positions = {match.end() for position in positions if (match := step.match(module, position))} - after
            after |= positions
            if not often:
                break
        positions = after
    return len(module) in positions
