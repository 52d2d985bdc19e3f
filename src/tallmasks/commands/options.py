"""argparse with one-line errors, and types for the values of options."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Collection, Sequence
from itertools import takewhile
from typing import Any, NoReturn

from tallmasks.errors import TallmasksError, nearest

DTYPE_ALIASES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}
_UNITS = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


class OptionError(TallmasksError):
    """A wrong command line. The exit status is 2."""


class Parser(argparse.ArgumentParser):
    """The parser of a command: its help starts with the examples of a docstring, and its errors are OptionErrors."""

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

    def format_help(self) -> str:
        """Required arguments alone in the usage, and the group of `--help` last."""
        words = [self.prog]
        for action in self._actions:
            value = str(action.metavar or action.dest.upper())
            if not action.option_strings:
                words.append({"?": f"[{value}]", "*": f"[{value} ...]"}.get(str(action.nargs), value))
            elif action.required:
                words.append(f"{action.option_strings[0]} {value}")
        self.usage = " ".join([*words, "[OPTIONS]"]).replace("%", "%%")
        self._action_groups.sort(key=lambda group: group is self._optionals)
        return super().format_help()

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Refuse unknown options before argparse reports the arguments that are missing without them."""
        options = self._option_string_actions
        for word in takewhile(lambda word: word != "--", args or ()):
            name = word.partition("=")[0]
            if name.startswith("--") and not any(option.startswith(name) for option in options):
                raise OptionError(f"there is no option {name}{nearest(name, options)}; see `{self.prog} --help`")
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        message = message.removeprefix("argument ").replace("the following arguments are required:", "missing:")
        raise OptionError(f"{message}; see `{self.prog} --help`")


def number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"found {text!r:.100}, expected a number") from None


def whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"found {text!r:.100}, expected a whole number") from None


def count(text: str) -> float:
    """A number with an optional unit: 7e9, 7B, 350M."""
    match = re.fullmatch(r"(.*?)([KMBT]?)", text.strip(), re.IGNORECASE)
    try:
        return float(match[1]) * _UNITS[match[2].upper()]  # type: ignore[index]
    except (TypeError, ValueError):
        raise argparse.ArgumentTypeError(f"found {text!r:.100}, expected a number such as 7e9, 7B or 350M") from None


def one_of(names: Collection[str], aliases: dict[str, str] | None = None) -> Callable[[str], str]:
    """The type of an option that takes one of some names, or an alias of one."""

    def name(text: str) -> str:
        text = (aliases or {}).get(text, text)
        if text not in names:
            raise argparse.ArgumentTypeError(
                f"found {text!r:.100}, expected one of {', '.join(names)}{nearest(text, names)}"
            )
        return text

    return name


def pair(form: str, example: str) -> Callable[[str], tuple[str, str]]:
    """The type of an option that takes a pair such as NAME=CHECKPOINT."""

    def name_and_value(text: str) -> tuple[str, str]:
        name, _, value = text.partition("=")
        if not (name and value):
            raise argparse.ArgumentTypeError(f"found {text!r:.100}, expected {form} such as {example}")
        return name, value

    return name_and_value


def number_by_task(text: str) -> tuple[str | None, float]:
    """VALUE for all tasks, which gives (None, value), or NAME=VALUE for one."""
    name, equals, value = text.rpartition("=")
    return name if equals else None, number(value)
