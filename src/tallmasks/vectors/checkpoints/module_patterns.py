r"""Patterns of module names, as peft has them in `rank_pattern` and `alpha_pattern`, matched in bounded time.

peft takes any regular expression, which may take for ever.  Here a pattern has names, dots (`\.` for a dot itself),
digits (`\d`, `[0-9]`), and `+` and `*` behind one of these.  `|` stands between whole patterns, `^` and `$` at the
ends. It fits the modules that it fits in peft: those with the whole name, or with the name behind one of its dots.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

_MOST = 10_000
_MOST_REPEATED = 50
_LONGEST = 200
_TOKEN = re.compile(r"(?P<kind>\\d|\[0-9\]|\.)(?P<often>[+*]?)|(?P<literal>[\w-])|\\(?P<escaped>[.\-_])")


class _Token(NamedTuple):
    kind: str
    """``any``, ``digit`` or a character."""
    often: str
    """``+``, ``*``, or nothing: once."""

    def takes(self, character: str) -> bool:
        return self.kind in ("any", character) or (self.kind == "digit" and character.isdecimal())


class _Choice(NamedTuple):
    tokens: list[_Token]
    anchored: bool
    fixed: re.Pattern[str] | None
    """The same for the regular expressions' own engine, where nothing is repeated: then it takes no steps back."""

    def fits(self, module: str, starts: Collection[int]) -> bool:
        if self.fixed is not None:
            start = len(module) - len(self.tokens)
            return start in starts and self.fixed.fullmatch(module, start) is not None
        places = set(starts)
        for token in self.tokens:
            places = _after(token, places, module)
        return len(module) in places


class ModulePatterns:
    """Values by pattern; the first pattern that fits counts.

    Raises ValueError, with the pattern, for one of another kind, and where there are too many.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._choices = [(_choice(text), value) for key, value in values.items() for text in key.split("|")]
        repeated = sum(choice.fixed is None for choice, _ in self._choices)
        if len(self._choices) > _MOST or repeated > _MOST_REPEATED:
            raise ValueError(f"{len(self._choices)} patterns, {repeated} of them with + or *")

    def value(self, module: str, default: Any) -> Any:
        """The value for a module."""
        starts = {0, *(place + 1 for place, character in enumerate(module) if character == ".")}
        fitting = (v for choice, v in self._choices if choice.fits(module, {0} & starts if choice.anchored else starts))
        return next(fitting, default)


def _choice(text: str) -> _Choice:
    inner = text.removeprefix("^").removesuffix("$")
    tokens, at = [], 0
    while at < len(inner):
        if (match := _TOKEN.match(inner, at)) is None or len(inner) > _LONGEST:
            raise ValueError(f"the pattern {text[:100]!r}")
        kind = match["literal"] or match["escaped"] or ("any" if match["kind"] == "." else "digit")
        tokens.append(_Token(kind, match["often"] or ""))
        at = match.end()
    fixed = None if any(token.often for token in tokens) else re.compile(inner)
    return _Choice(tokens, text.startswith("^"), fixed)


def _after(token: _Token, places: set[int], module: str) -> set[int]:
    """Where one can be in the name after a token, from any of some places."""
    after = set(places) if token.often == "*" else set()
    reached = places
    while reached:
        reached = {place + 1 for place in reached if place < len(module) and token.takes(module[place])} - after
        after |= reached
        if not token.often:
            break
    return after
