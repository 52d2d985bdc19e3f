"""An argparse parser with one-line errors, and types for option values."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import takewhile
from types import MappingProxyType
from typing import Any, NoReturn

from tallmasks.errors import OptionError, nearest


class Parser(argparse.ArgumentParser):
    """The parser of a command: its help is the module's docstring, with the examples first; errors are OptionErrors."""

    def __init__(self, prog: str, docstring: str) -> None:
        summary, *paragraphs = docstring.strip().split("\n\n")
        examples = [text for text in paragraphs if text.startswith("    ")]
        notes = [text for text in paragraphs if text not in examples]
        super().__init__(
            prog,
            description="\n\n".join([summary, *(f"examples:\n{text}" for text in examples)]),
            epilog="\n\n".join(notes),
            formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, max_help_position=32),
        )
        self._positionals.title = "inputs"

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Report unknown options before argparse reports missing arguments."""
        options = self._option_string_actions
        for word in takewhile(lambda word: word != "--", args or ()):
            option = re.match(r"--[^=]+|-[a-zA-Z]", word)  # not a negative number
            name = option[0] if option else ""
            if name and not any(known.startswith(name) for known in options):
                raise OptionError(f"unknown option {name}{nearest(name, options)}; see `{self.prog} --help`")
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        message = message.removeprefix("argument ").replace("the following arguments are required:", "missing:")
        raise OptionError(f"{message}; see `{self.prog} --help`")


def converted(convert: Callable[[str], Any], expected: str) -> Callable[[str], Any]:
    """An argparse type whose error says what was expected; ``convert`` raises KeyError or ValueError."""

    def read(text: str) -> Any:
        try:
            return convert(text)
        except (KeyError, ValueError):
            raise argparse.ArgumentTypeError(f"found {text!r:.100}, expected {expected}") from None

    return read


def _number_by_task(text: str) -> tuple[str | None, float]:
    name, equals, value = text.rpartition("=")
    return name if equals else None, float(value)


number = converted(float, "a number")
whole_number = converted(int, "a whole number")
number_by_task = converted(_number_by_task, "a number, or NAME=NUMBER")
"""Gives (None, number) for all tasks, or (name, number)."""


def one_of(names: Collection[str], aliases: Mapping[str, str] = MappingProxyType({})) -> Callable[[str], str]:
    return converted({**{name: name for name in names}, **aliases}.__getitem__, f"one of {', '.join(names)}")


def by_name(option: str, pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """The values of an option by name; the name is None for a value without one. Raises OptionError if a name has two
    values."""
    values: dict[Any, Any] = {}
    for name, value in pairs:
        if name in values:
            which = option if name is None else f"{option} {name}=..."
            raise OptionError(f"{which}: found two values, {values[name]} and {value}; expected one for each name")
        values[name] = value
    return values


def pair(form: str, example: str) -> Callable[[str], tuple[str, str]]:
    """The type of an option that takes a pair such as NAME=CHECKPOINT."""

    def split(text: str) -> tuple[str, str]:
        name, _, value = text.partition("=")
        if not (name and value):
            raise ValueError
        return name, value

    return converted(split, f"{form} such as {example}")
