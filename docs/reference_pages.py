"""Write docs/commands.md from the commands' parsers, and the lists of docs/which_method.md from what
methods declare."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from tallmasks import methods
from tallmasks.cli.main import COMMANDS, GROUPS, OF_A_CLONE, command_parser
from tallmasks.methods import Method
from tallmasks.methods.method_usages import Scaled
from tallmasks.methods.registry import data_needed

DOCS = Path(__file__).parent
WRITTEN = "Written by `python docs/reference_pages.py`."


def commands_page() -> str:
    """Every command: what it does, and its arguments."""
    head = f"{WRITTEN} `tallmasks COMMAND --help` also has examples. {_in_a_clone()}"
    parts, shown = [f"# Commands\n\n{head}\n"], set[str]()
    for name, summary in COMMANDS.items():
        groups = command_parser(name)._action_groups  # argparse has no public list of them
        arguments = [one for group in groups for one in group._group_actions]
        arguments = [one for one in arguments if argparse.SUPPRESS not in (one.dest, one.help) and one.dest != "help"]
        lines = [f"- {_names(one)}: {_meaning(one)}" for one in arguments]
        known = [_names(one) for one, line in zip(arguments, lines, strict=True) if line in shown]
        again = [f"- {', '.join(known)}: as above"] if known else []
        parts.append("\n".join([f"## {name}\n", f"{summary[0].upper()}{summary[1:]}.\n", *again]))
        parts += [line for line in lines if line not in shown]
        parts.append("")
        shown |= {*lines}
    return "\n".join(parts)


def _in_a_clone() -> str:
    *names, last = (f"`{name}`" for name in GROUPS[OF_A_CLONE])
    return f"{', '.join(names)} and {last} need a clone of the project, with its environment active."


def _names(argument: argparse.Action) -> str:
    value = argument.metavar or ("" if argument.nargs == 0 else argument.dest.upper())
    if argument.choices and not argument.metavar:
        value = f"{{{','.join(map(str, argument.choices))}}}"
    value = value if isinstance(value, str) else " ".join(value)
    value = f"[{value} ...]" if argument.nargs == "*" else value
    names = [f"{flag} {value}".strip() for flag in argument.option_strings] or [value]
    return ", ".join(f"`{name}`" for name in names)


def _meaning(argument: argparse.Action) -> str:
    text = " ".join((argument.help or "").split())
    many = r"(\w+, ){20,}\w+"  # the methods of merge
    return re.sub(many, "[these](which_method.md#all-methods)", text) if argument.dest == "method" else text


def methods_page() -> str:
    """docs/which_method.md, with its lists of every method by section."""
    text = (DOCS / "which_method.md").read_text()
    every = [methods.get(name) for name in methods.names()]
    for section in ("merging", "compression"):
        lines = "\n".join(_method(one) for one in every if one.section == section)
        mark = re.compile(rf"(<!-- methods:{section} -->\n).*?(<!-- /methods:{section} -->)", re.DOTALL)
        text = mark.sub(lambda match, lines=lines: f"{match[1]}\n{lines}\n\n{match[2]}", text)
    return text


def _method(method: Method) -> str:
    alpha = f"α = {method.usage.unvalidated:g}" if isinstance(method.usage, Scaled) else ""
    parts = [part for part in (_needs(method), alpha) if part]
    return f"- `{method.name}`: {method.title} ({method.paper}){'; ' * bool(parts)}{'; '.join(parts)}"


def _needs(method: Method) -> str:
    text = data_needed(method).replace("validation data for ", "needs ").replace("nothing", "")
    for word, letter in {"alpha": "α", "beta": "β", "lambda": "λ"}.items():
        text = text.replace(word, letter)
    return text


if __name__ == "__main__":
    (DOCS / "commands.md").write_text(commands_page())
    (DOCS / "which_method.md").write_text(methods_page())
