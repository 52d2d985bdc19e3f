"""Pages that are written from the code, messages that they quote, and links."""

import re
import runpy
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
