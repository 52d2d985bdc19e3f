"""List the methods, merges and inputs, or describe one of them.

    tallmasks methods
    tallmasks methods ties
    tallmasks methods ties_mean
    tallmasks methods threshold

params.yaml and the --method option of `tallmasks merge` and `compress` use these names.
"""

from __future__ import annotations

import argparse
import inspect
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

from tallmasks import methods
from tallmasks.errors import OptionError, nearest
from tallmasks.methods import INPUTS, Merge
from tallmasks.methods.options import options_of, parse_spec
from tallmasks.methods.registry import all_options, data_needed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="one of the listed names (default: list all)")


def run(arguments: argparse.Namespace) -> int:
    if arguments.name is None:
        print_all()
    else:
        print_one(arguments.name)
    return 0


def print_all() -> None:
    rows = [methods.get(name) for name in methods.names()]
    lines = [(str(one.order), one.name, data_needed(one), " ".join(all_options(one))) for one in rows]
    _print_columns([("row", "method", "needs besides the models", "options"), *lines])
    print()
    merges = [methods.get_merge(name) for name in methods.merge_names()]
    of_merges = [(one.name, one.over, _data_of(one), " ".join(one.options)) for one in merges]
    _print_columns([("merge", "over", "needs", "options"), *of_merges])
    print()
    of_inputs = [("input", "computed from", "is")]
    for entry in INPUTS.values():
        meaning, options = f"{entry.meaning}; per {entry.per}", " ".join(options_of(entry.find))
        of_inputs.append((entry.name, ", ".join(entry.of), f"{meaning}; options {options}" if options else meaning))
    _print_columns(of_inputs)


def print_one(name: str) -> None:
    """Describe a method, a merge or an input. Raises OptionError for an unknown name."""
    rows, kind = [methods.get(row) for row in methods.names()], parse_spec(name)[0]
    if kind in methods.names():
        method = methods.get(name)
        title, options = f"{method.name}: {method.title} ({method.paper})", all_options(method)
        lines = {
            "computes": _summary(methods.get_merge(str(method.merge)).apply if method.is_merge else method.update),
            "used as": _summary(type(method.usage)),
            "takes": ", ".join(sorted(method.needs)),
            "merge": method.merge or "none",
            "needs": data_needed(method),
            "selected by": f"methods: {method.group}",
        }
    elif kind in methods.merge_names():
        merge = methods.get_merge(name)
        title, options = f"merge {merge.name}", merge.options
        lines = {
            "computes": _summary(merge.apply),
            "over": merge.over,
            "needs": _data_of(merge),
            "methods": ", ".join(row.name for row in rows if row.merge == merge.name),
        }
    elif name in INPUTS:
        entry = INPUTS[name]
        title, options = f"input {name}", options_of(entry.find)
        lines = {
            "is": f"{entry.meaning}; per {entry.per}",
            "computed from": ", ".join(entry.of) or "the models",
            "methods": ", ".join(row.name for row in rows if name in row.needs),
        }
    else:
        near = nearest(name, [*methods.names(), *methods.merge_names(), *INPUTS])
        raise OptionError(f"unknown method, merge or input {name!r}{near}; `tallmasks methods` lists all")
    print(title)
    for label, text in lines.items():
        print(textwrap.fill(text, 118, initial_indent=f"  {label:14}", subsequent_indent=" " * 16))
    for option in options.values():
        print(f"  option {option.name}={option.default}: {option.allowed}")


def _data_of(merge: Merge) -> str:
    return merge.statistics.meaning if merge.statistics else "nothing"


def _summary(described: Callable[..., Any]) -> str:
    return " ".join((inspect.getdoc(described) or "").partition("\n\n")[0].split())


def _print_columns(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
