"""List methods, merges and inputs, or describe one of them.

    tallmasks methods
    tallmasks methods ties
    tallmasks methods ties_mean
    tallmasks methods threshold

A method merges or compresses.  Its name is that of params.yaml, and of --method of `tallmasks merge` or `compress`.
"""

from __future__ import annotations

import argparse
import inspect
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tallmasks import methods
from tallmasks.methods import INPUTS, Input, Merge, Method
from tallmasks.methods.contract import merged_vector
from tallmasks.methods.descriptions import (
    computed_from,
    inputs_of,
    looks_at,
    needs,
    seen_by,
    stage_of,
    varies_by,
)
from tallmasks.methods.options import Option, options_of
from tallmasks.methods.registry import all_options
from tallmasks.store.errors import TallmasksError, nearest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="of a method, a merge or an input; without it, a line for each")


def run(arguments: argparse.Namespace) -> int:
    """Print it."""
    name = arguments.name
    if name is None:
        print_all()
        return 0
    kind, _, _ = name.partition(":")
    if kind in methods.names():
        print_method(methods.get(name))
    elif kind in methods.merge_names():
        print_merge(methods.get_merge(name))
    elif name in INPUTS:
        print_input(INPUTS[name])
    else:
        near = nearest(name, [*methods.names(), *methods.merge_names(), *INPUTS])
        raise TallmasksError(f"there is no method, merge or input {name!r}{near}; `tallmasks methods` lists all")
    return 0


def print_all() -> None:
    """Print a line for each method, each merge, and each input that a method's function may name."""
    entries = [methods.get(name) for name in methods.names()]
    rows = [(str(one.row), one.name, looks_at(one), needs(one), " ".join(all_options(one))) for one in entries]
    _print_columns([("row", "method", "looks at", "needs besides the models", "options"), *rows])
    merges, inputs = [methods.get_merge(name) for name in methods.merge_names()], INPUTS.values()
    print()
    lines = [(one.name, seen_by(one), stage_of(one), " ".join(one.options)) for one in merges]
    _print_columns([("merge", "looks at", "needs", "options"), *lines])
    print()
    described = []
    for one in inputs:
        names = " ".join(options_of(one.find))
        is_what = f"{one.meaning}; {varies_by(one)}{f'; options {names}' if names else ''}"
        described.append((one.name, computed_from(one), is_what))
    _print_columns([("input", "computed from", "is"), *described])


def print_method(method: Method) -> None:
    """Print what a method is, what it takes, and its options."""
    alone = method.update is merged_vector and method.merge
    lines = [
        ("computes", _summary(methods.get_merge(str(method.merge)).apply if alone else method.update)),
        ("used as", _summary(type(method.protocol))),
        ("looks at", looks_at(method)),
        ("takes", ", ".join(inputs_of(method))),
        ("needs", needs(method)),
        ("in tables of", f"methods: {'all' if method.group == 'paper' else method.group}"),
    ]
    _print_entry(f"{method.name}: {method.title} ({method.paper})", lines, all_options(method).values())


def print_merge(merge: Merge) -> None:
    """Print what a merge is, and its options."""
    rows = [name for name in methods.names() if methods.get(name).merge == merge.name]
    lines = [
        ("computes", _summary(merge.apply)),
        ("looks at", seen_by(merge)),
        ("needs", stage_of(merge)),
        ("methods", ", ".join(rows)),
    ]
    _print_entry(f"merge {merge.name}", lines, merge.options.values())


def print_input(entry: Input) -> None:
    """Print what an input is, the methods that take it, and its options."""
    rows = [name for name in methods.names() if entry.name in methods.get(name).needs]
    lines = [
        ("is", f"{entry.meaning}; {varies_by(entry)}"),
        ("computed from", computed_from(entry) or "the models"),
        ("methods", ", ".join(rows)),
    ]
    _print_entry(f"input {entry.name}", lines, options_of(entry.find).values())


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
