"""Write docs/commands.md from the commands' parsers, and docs/methods.md from the methods' declarations."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

from tallmasks import methods
from tallmasks.commands.main import COMMANDS, module_of
from tallmasks.methods import Method
from tallmasks.methods.descriptions import computed_from, inputs_of, needs, seen_by, stage_of, varies_by
from tallmasks.methods.options import Option
from tallmasks.methods.registry import all_options
from tallmasks.results.reference import TABLES, paper_table

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
    parser = argparse.ArgumentParser(prog=f"tallmasks {name}", add_help=False)
    module.add_arguments(parser)
    lines = [f"\n## {name}\n", _text(module.__doc__ or ""), ""]
    arguments = parser._actions  # argparse has no other list of them
    if arguments:
        lines += ["| argument | meaning |", "|---|---|"]
    return "\n".join([*lines, *(_argument(argument) for argument in arguments)]).rstrip()


def _argument(argument: argparse.Action) -> str:
    value = argument.metavar or ("" if argument.nargs == 0 else argument.dest.upper())
    names = [f"{flag} {value}".strip() for flag in argument.option_strings] or [value]
    meaning = argument.help or ""
    if argument.choices:
        meaning = "; ".join([*([meaning] if meaning else []), f"one of {', '.join(map(str, argument.choices))}"])
    return f"| {', '.join(f'`{name}`' for name in names)} | {_cell(meaning)} |"


def _text(docstring: str) -> str:
    """A docstring as Markdown: what is indented is a block of shell."""
    paragraphs = textwrap.dedent(docstring).strip().split("\n\n")
    return "\n\n".join(
        f"```\n{textwrap.dedent(text)}\n```" if text.startswith("    ") else " ".join(text.split())
        for text in paragraphs
    )


def methods_page() -> str:
    """Every method by section, with the paper's numbers; then every merge and every input."""
    model, benchmark = PUBLISHED
    every = [methods.get(name) for name in methods.names()]
    parts = [
        f"# Methods\n\n{WRITTEN} A method is a row of the tables. Its name is that of "
        "`params.yaml`, and of `--method` of `tallmasks merge` or `compress`.\n",
        "- **computed from**: the inputs that its function names.",
        "- **needs**: what it needs beyond the fine-tuned models and the base.",
        "- **options**: with their defaults. `{ties: {keep: 0.1}}` in `params.yaml` sets one.",
        f"- **published**: accuracy of {model} on {benchmark} in percent, from Wang et al. 2024.",
        "- **asked for by**: `all` has the paper's rows, `later` the others.\n",
    ]
    published = _published(model, benchmark)
    for section in ("merging", "compression"):
        parts += [f"## {section.capitalize()}\n", *_table((m for m in every if m.section == section), published), ""]
    merges = [methods.get_merge(name) for name in methods.merge_names()]
    parts += ["## Merges\n", "What a merge looks at of the task vectors at once.\n"]
    parts += _rows(
        ["name", "looks at", "needs", "options"],
        [(f"`{one.name}`", seen_by(one), stage_of(one), _defaults(one.options.values())) for one in merges],
    )
    parts += ["\n## Inputs\n", "What a method's function may name as a parameter.\n"]
    parts += _rows(
        ["name", "is", "how many", "computed from"],
        [(f"`{one.name}`", one.meaning, varies_by(one), computed_from(one)) for one in methods.INPUTS.values()],
    )
    return "\n".join([*parts, ""])


def _rows(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(map(_cell, words))} |" for words in (heads, ["---"] * len(heads), *rows)]


def _defaults(options: Iterable[Option]) -> str:
    return ", ".join(f"`{option.name}` {option.default}" for option in options)


def _table(rows: Iterable[Method], published: dict[str, float]) -> list[str]:
    heads = ["name", "title", "computed from", "needs", "options", "paper", "published", "asked for by"]
    lines = []
    for method in rows:
        words = [
            f"`{method.name}`",
            method.title,
            ", ".join(f"`{name}`" for name in inputs_of(method)),
            needs(method),
            _defaults(all_options(method).values()),
            method.paper,
            f"{published[method.name]:.1f}" if method.name in published else "",
            "`all`" if method.group == "paper" else f"`{method.group}`",
        ]
        lines.append(words)
    return _rows(heads, lines)


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
