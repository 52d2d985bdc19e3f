"""The rooms of the package: what may import what."""

import ast
import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import tallmasks
from tallmasks.errors import EXTRAS

PACKAGE = Path(tallmasks.__file__).parent
ROOMS = (
    "errors", "parallel", "io", "artifacts", "plugins", "vectors", "masks", "bundles", "methods", "tasks", "models",
    "training", "evaluation", "results", "plan", "commands",
)  # fmt: skip
"""Packages and single modules.  Each may import only those above it in this list."""


def modules() -> dict[str, Path]:
    """Every module of the package, by its dotted name without `tallmasks.`."""
    paths = {".".join(path.relative_to(PACKAGE).with_suffix("").parts): path for path in PACKAGE.rglob("*.py")}
    return {name.removesuffix("__init__").removesuffix("."): path for name, path in paths.items()}


def imported(path: Path) -> Iterator[str]:
    """The package's modules that a file imports, except for type checking."""
    package = modules()
    tree = ast.parse(path.read_text())
    for_types = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if node in for_types:
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "tallmasks":
            base = node.module.removeprefix("tallmasks").lstrip(".")
            for alias in node.names:
                inner = f"{base}.{alias.name}".lstrip(".")
                yield inner if inner in package else base
        elif isinstance(node, ast.Import):
            yield from (a.name.partition(".")[2] for a in node.names if a.name.split(".")[0] == "tallmasks")


def test_the_rooms_are_those_that_are_named() -> None:
    """A folder or file beside them would belong nowhere."""
    entries = {path.name.removesuffix(".py") for path in PACKAGE.iterdir() if path.name != "__pycache__"}
    assert entries == {*ROOMS, "__init__", "py.typed"}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_from_rooms_above_it(room: str) -> None:
    """Nothing could be used, tested or read without all the rest."""
    allowed = {room, *ROOMS[: ROOMS.index(room)]}
    wrong = {
        f"{name} imports {target or 'tallmasks'}"
        for name, path in modules().items()
        if name.split(".")[0] == room
        for target in imported(path)
        if target.split(".")[0] not in {*allowed, *([""] if room == "commands" else [])}  # its version
    }
    assert not wrong


def test_what_is_imported_is_declared() -> None:
    """An installation would lack a library that the package imports, or name the wrong extra for it."""
    project = tomllib.loads((PACKAGE.parents[1] / "pyproject.toml").read_text())["project"]
    groups = {None: project["dependencies"], **project["optional-dependencies"]}
    declared = {group: {re.split(r"[<>=\[]", line)[0].lower() for line in lines} for group, lines in groups.items()}
    declared["workflow"] |= declared["clip"] | declared["t5"]
    sources = "\n".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    names = set(re.findall(r"^ *(?:import|from) (\w+)", sources, re.M)) - {"tallmasks"}
    others = {name: owners for name, owners in packages_distributions().items() if name in names}
    assert len(others) > 20 and set(EXTRAS) <= set(others)
    wrong = {name for name, owners in others.items() if not declared[EXTRAS.get(name)] & {o.lower() for o in owners}}
    assert not wrong
