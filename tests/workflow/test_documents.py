"""Pages that are written from the code, messages that they quote, and links."""

import ast
import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import ROOT

DOCS = ROOT / "docs"


@pytest.mark.parametrize(
    ("page", "script", "function"),
    [
        ("commands.md", "reference_pages.py", "commands_page"),
        ("which_method.md", "reference_pages.py", "methods_page"),
        ("params.md", "params_page.py", "page"),
    ],
)
def test_the_reference_is_that_of_the_code(page: str, script: str, function: str) -> None:
    """A reader would miss an option, a method or a key, or look for one that is gone."""
    written = runpy.run_path(str(DOCS / script))[function]()
    assert (DOCS / page).read_text() == written, f"run `python docs/{script}`"


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
    "Invalid config definition",
    "No space left on device", "No rule to produce", "Nothing to be done", "Target rules may not contain wildcards",
    "failed to load some plots", "Can't remove the following unsaved files without confirmation",
    "failed to connect to s3 (...) - Unable to locate credentials", "Permission denied for user ... on host ...",
    "Unable to read RWLock-file",
    "argument --executor/-e: invalid choice: 'slurm'",
}  # fmt: skip
"""Messages of make, pip, Snakemake and DVC."""


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
    assert len(quoted) > 20 and not lost


def headings(document: Path) -> set[str]:
    """The anchors of a document's headings, as they are made from their text."""
    lines = re.findall(r"^#+ (.+)$", document.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines}


def test_every_link_and_path_leads_somewhere() -> None:
    """A reader would be sent to a page, heading or file that is not there."""
    folders = ("docs", "benchmarks", "experiments", "models", "results", "tests", "workflow")
    below = (path for folder in folders for path in (ROOT / folder).rglob("*.md"))
    documents = [*(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG")), *below]
    lost = []
    for document in documents:
        for link in re.findall(r"\]\(([^)\s]+)\)", document.read_text()):
            path, _, anchor = link.partition("#")
            target = document.parent / path if path else document
            if "://" in link or (target.exists() and (not anchor or anchor in headings(target))):
                continue
            lost.append(f"{document.relative_to(ROOT)}: {link}")
    text = (ROOT / "CONTRIBUTING.md").read_text() + (DOCS / "architecture.md").read_text()
    named = re.findall(r"`((?:src|workflow|tests|docs)/[\w./]+)`", text)
    lost += [path for path in named if not (ROOT / path).exists()]
    assert len(documents) > 10 and not lost
