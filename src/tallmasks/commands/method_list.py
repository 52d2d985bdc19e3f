"""List the methods, or describe one of them.

    tallmasks methods
    tallmasks methods ties
    tallmasks methods ties_mean

A method merges or compresses.  Its name is that of params.yaml, and of --method of `tallmasks merge` or `compress`.
"""

from __future__ import annotations

import argparse
import inspect
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tallmasks import methods
from tallmasks.methods import INPUTS, Merge, Method
from tallmasks.methods.contract import merged_vector
from tallmasks.methods.descriptions import all_options, inputs_of, looks_at, needs, seen_by, varies_by
from tallmasks.methods.options import Option


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="of a method or a merge; without it, all of them in one line each")


def run(arguments: argparse.Namespace) -> int:
    """Print it."""
    name = arguments.name
    if name is None:
        print_all()
    elif name in methods.merge_names() and name not in methods.names():
        print_merge(methods.get_merge(name))
    else:
        print_method(methods.get(name))
    return 0


def print_all() -> None:
    """Print a line for each method, then the inputs that a method's function may name."""
    entries = [methods.get(name) for name in methods.names()]
    rows = [(str(one.row), one.name, looks_at(one), needs(one), " ".join(all_options(one))) for one in entries]
    _print_columns([("row", "method", "looks at", "needs besides the models", "options"), *rows])
    print("\ninputs of methods")
    _print_columns([(f"  {one.name}", f"{one.meaning}; {varies_by(one)}") for one in INPUTS.values()])
    print()
    print(textwrap.fill(f"merges: {', '.join(methods.merge_names())}", 118, subsequent_indent="  "))


def print_method(method: Method) -> None:
    """Print what a method is, what it takes, and its options."""
    asked_for = "all" if method.group == "paper" else method.group
    alone = method.update is merged_vector and method.merge
    lines = [
        ("computes", _summary(methods.get_merge(str(method.merge)).apply if alone else method.update)),
        ("used as", _summary(type(method.protocol))),
        ("looks at", looks_at(method)),
        ("takes", ", ".join(inputs_of(method))),
        ("needs", needs(method)),
        ("in tables of", "none: `tallmasks merge` alone" if asked_for == "checkpoints" else f"methods: {asked_for}"),
    ]
    _print_entry(f"{method.name}: {method.title} ({method.paper})", lines, all_options(method).values())


def print_merge(merge: Merge) -> None:
    """Print what a merge is, and its options."""
    rows = [name for name in methods.names() if methods.get(name).merge == merge.name]
    lines = [
        ("computes", _summary(merge.apply)),
        ("looks at", seen_by(merge)),
        ("needs", f"stage {merge.statistics}" if merge.statistics else "nothing"),
        ("methods", ", ".join(rows)),
    ]
    _print_entry(f"merge {merge.name}", lines, merge.options.values())


def _summary(described: Callable[..., Any]) -> str:
    """The first paragraph of a function's or a class's docstring."""
    plain = getattr(described, "func", described)  # of a partial
    return " ".join((inspect.getdoc(plain) or "").partition("\n\n")[0].split())


def _print_entry(title: str, lines: Sequence[tuple[str, str]], options: Iterable[Option]) -> None:
    print(title)
    for label, text in lines:
        print(textwrap.fill(text, 118, initial_indent=f"  {label:14}", subsequent_indent=" " * 16))
    for option in options:
        print(f"  option {option.name}={option.default}: {option.allowed}")


def _print_columns(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
