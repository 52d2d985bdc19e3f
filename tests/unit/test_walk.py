"""docs/architecture.md's walk from the command to a cell of the table."""

import re

from conftest import ROOT

STEP = re.compile(r"^\| (\d+) \| `([^`]+)`: `(\w+)` \|", re.M)


def test_the_walk_leads_where_the_page_says() -> None:
    """A reader would look for a name that is not there; or the way would grow unseen."""
    steps = STEP.findall((ROOT / "docs" / "architecture.md").read_text())
    assert [int(number) for number, _, _ in steps] == list(range(1, len(steps) + 1))
    for _, file, name in steps:
        declared = rf"(def|rule|use rule \w+ as) {name}\b|^ *(\"{name}\"|{name}):|^{name}\b|= {name}\("
        assert re.search(declared, (ROOT / file).read_text(), re.M), f"{file} has no {name}"
    assert 10 < len(steps) <= 25 and len({file for _, file, _ in steps}) <= 15
