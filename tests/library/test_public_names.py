"""The public names of the library."""

import re

import tallmasks
from project import ROOT
from tallmasks.bundles.bundle import Bundle

PAGE = (ROOT / "docs/python.md").read_text()


def test_the_page_lists_the_public_names() -> None:
    """A user would call a function that a later version drops without notice, or miss one."""
    rows = re.findall(r"^\| (`[^|]*?) \| [^|]*? \|$", PAGE.split("## Functions")[1], re.M)
    assert sorted(re.findall(r"`(\w+)`", " ".join(rows))) == sorted(tallmasks.__all__)
    documented = {path.rpartition(".")[2] for path in re.findall(r"^::: (\S+)$", PAGE, re.M)}
    of_state_dicts, of_bundles = re.findall(r"members: \[(.*)\]", PAGE)
    assert documented | {*of_state_dicts.split(", ")} >= {*tallmasks.__all__} - {"__version__"}
    (of_table,) = re.findall(r"^\| `load_bundle` \| .*: (.*) \|$", PAGE, re.M)
    assert re.findall(r"`(\w+)`", of_table) == of_bundles.split(", ")
    assert all(hasattr(Bundle, name) for name in of_bundles.split(", "))
