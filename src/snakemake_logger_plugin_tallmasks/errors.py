"""What went wrong, in the words that are for the user."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from pathlib import Path

TAIL = 12  # lines of a log that ends in no message of ours
WORKFLOW_ERROR = re.compile(
    r"^ *WorkflowError(?: in .*)?:\n(?P<text>.*?)(?=\nWildcards:|\nTraceback:|\n  File \"|\Z)", re.DOTALL | re.MULTILINE
)
NO_RULE = re.compile(r"No rule to produce (?P<target>.+) \(if you use input functions")
RULE_AS_TARGET = "Target rules may not contain wildcards"


def in_short(message: str) -> str:
    """An error of Snakemake's without the places in its own code and in the Snakefile."""
    if told := NO_RULE.search(message):
        return f"error: {told['target']}: neither a file that is there nor one that the workflow makes"
    if RULE_AS_TARGET in message:
        return "error: this is the name of a rule; a target is a file under results/, as results/tiny/8tasks/table.csv"
    if errors := list(WORKFLOW_ERROR.finditer(message)):
        return "error: " + textwrap.dedent(errors[-1]["text"]).strip()
    return message.strip()


def reason(logs: Iterable[str]) -> tuple[str, str]:
    """Why a job failed, from its logs, and which of them says so: the message that a step ends with, or else the last
    lines; nothing where the logs are empty."""
    tails = {log: lines for log in logs if (lines := _lines(Path(log)))}
    for log, lines in tails.items():
        for place in range(len(lines) - 1, -1, -1):
            if lines[place].startswith("error: "):
                return "\n".join(lines[place:]), log
    for log, lines in tails.items():
        return textwrap.indent("\n".join(lines[-TAIL:]), "    "), log
    return "", ""


def _lines(log: Path) -> list[str]:
    """The lines of a log, without the command that it begins with."""
    try:
        lines = log.read_text(errors="replace").rstrip().splitlines()
    except OSError:
        return []
    return [line for line in lines if not line.startswith("$ ")]
