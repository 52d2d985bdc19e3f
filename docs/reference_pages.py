"""Write docs/commands.md from the commands' parsers, and the tables of docs/methods.md from what methods declare."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from reproduction.results.reference import TABLES, paper_table
from tallmasks import methods
from tallmasks.cli.main import COMMANDS, command_parser, module_of
from tallmasks.methods import Method
from tallmasks.methods.method_protocols import Scaled
from tallmasks.methods.registry import all_options, data_needed

DOCS = Path(__file__).parent
WRITTEN = "Written by `python docs/reference_pages.py`."
PUBLISHED = ("vit_b32", "8tasks")
"""The model and benchmark of the published numbers that the page of methods shows."""


def commands_page() -> str:
    """Every command: what it does, and its arguments."""
    parts = [f"# Commands\n\n{WRITTEN} `tallmasks <command> --help` says the same.\n"]
    parts += ["| command | does |", "|---|---|"]
    parts += [f"| [`{name}`](#{name}) | {summary} |" for name, summary in COMMANDS.items()]
    return "\n".join([*parts, *(_command(name) for name in COMMANDS)]) + "\n"


def _command(name: str) -> str:
    module = module_of(name)
    lines = [f"\n## {name}\n", _text(module.__doc__ or ""), ""]
    for group in command_parser(name)._action_groups:  # argparse has no public list of them
        if arguments := [
            one for one in group._group_actions if argparse.SUPPRESS not in (one.dest, one.help) and one.dest != "help"
        ]:
            if group.title in ("inputs", "method", "output"):
                lines += [f"{group.title.capitalize()}:", ""]
            lines += ["| argument | meaning |", "|---|---|", *map(_argument, arguments), ""]
    return "\n".join(lines).rstrip()


def _argument(argument: argparse.Action) -> str:
    value = argument.metavar or ("" if argument.nargs == 0 else argument.dest.upper())
    names = [f"{flag} {value}".strip() for flag in argument.option_strings] or [value]
    return f"| {', '.join(f'`{name}`' for name in names)} | {_cell(argument.help or '')} |"


def _text(docstring: str) -> str:
    """A docstring as Markdown: what is indented is a block of shell."""
    paragraphs = textwrap.dedent(docstring).strip().split("\n\n")
    return "\n\n".join(
        f"```\n{textwrap.dedent(text)}\n```" if text.startswith("    ") else " ".join(text.split())
        for text in paragraphs
    )


def methods_page() -> str:
    """docs/methods.md, with its tables of every method by section, and the paper's numbers in them."""
    published, text = _published(*PUBLISHED), (DOCS / "methods.md").read_text()
    every = [methods.get(name) for name in methods.names()]
    for section in ("merging", "compression"):
        table = "\n".join(_table((one for one in every if one.section == section), published))
        mark = re.compile(rf"(<!-- methods:{section} -->\n).*?(<!-- /methods:{section} -->)", re.DOTALL)
        text = mark.sub(lambda match, table=table: f"{match[1]}\n{table}\n\n{match[2]}", text)
    return text


def _table(rows: Iterable[Method], published: dict[str, float]) -> list[str]:
    heads = ["name", "title", "needs", "options", "α without data", "paper", "published", "selected by"]
    lines = []
    for method in rows:
        words = [
            f"`{method.name}`",
            method.title,
            data_needed(method),
            ", ".join(f"`{option.name}` {option.default}" for option in all_options(method).values()),
            f"{method.protocol.unvalidated:g}" if isinstance(method.protocol, Scaled) else "",
            method.paper,
            f"{published[method.name]:.1f}" if method.name in published else "",
            f"`{method.group}`",
        ]
        lines.append(words)
    return [f"| {' | '.join(map(_cell, words))} |" for words in (heads, ["---"] * len(heads), *lines)]


def _published(model: str, benchmark: str) -> dict[str, float]:
    """The paper's accuracies by method; of two tables that give one, the first counts."""
    every = pd.concat([paper_table(number) for number in TABLES if number != 1])
    rows = every[(every["model"] == model) & (every["benchmark"] == benchmark)].drop_duplicates("method")
    return dict(zip(rows["method"], rows["accuracy"], strict=True))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    (DOCS / "commands.md").write_text(commands_page())
    (DOCS / "methods.md").write_text(methods_page())
