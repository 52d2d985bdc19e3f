"""The pages under docs/ that are written from the code, and the messages that they quote."""

import ast
import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import ROOT

DOCS = ROOT / "docs"


@pytest.mark.parametrize("page", ["commands", "methods"])
def test_the_reference_is_that_of_the_code(page: str) -> None:
    """A reader would miss an option or a method, or look for one that is gone."""
    written = runpy.run_path(str(DOCS / "reference_pages.py"))[f"{page}_page"]()
    assert (DOCS / f"{page}.md").read_text() == written, "run `python docs/reference_pages.py`"


def texts(source: Path) -> Iterator[str]:
    """The texts in a file of code, without what is filled into them."""
    if source.suffix != ".py":
        yield source.read_text()
        return
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else "\0" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


OF_OTHERS = {
    "No space left on device", "No rule to produce", "Nothing to be done", "Target rules may not contain wildcards",
    "failed to load some plots", "Can't remove the following unsaved files without confirmation",
    "failed to connect to s3 (...) - Unable to locate credentials", "Permission denied for user ... on host ...",
    "params.yaml: models.tiny...: Input should be ...; found ...", "argument --executor/-e: invalid choice: 'slurm'",
}  # fmt: skip
"""Messages of make, pip, Snakemake and DVC, and what pydantic says in ours."""


def test_the_messages_of_troubleshooting_are_in_the_code() -> None:
    """Somebody who searches the page for a message would find the words of an earlier version."""
    folders = (ROOT / "src", ROOT / "workflow")
    sources = [
        ROOT / "Makefile",
        ROOT / "workflow" / "dvc-stage.sh",
        *(path for folder in folders for path in folder.rglob("*.py")),
    ]
    said = "\n".join(text for source in sources for text in texts(source))
    rows = re.findall(r"^\| (`.*?) \|", (DOCS / "troubleshooting.md").read_text(), re.M)
    quoted = {
        quote for row in rows if re.fullmatch(r"`[^`]+`( or `[^`]+`)*", row) for quote in re.findall(r"`([^`]+)`", row)
    }
    lost = [
        quote
        for quote in quoted - OF_OTHERS
        if not all(part.strip() in said for part in re.split(r"\.\.\.", quote) if part.strip())
    ]
    assert len(quoted) > 30 and not lost
