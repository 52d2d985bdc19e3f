"""The rooms of the two packages: what may import what."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import tallmasks

SOURCES = Path(tallmasks.__file__).parents[1]
OF_THE_LIBRARY = ("errors", "parallel", "progress", "io", "vectors", "masks", "bundles", "methods")
"""Rooms of the library that every room of the reproduction may import, besides the library's public names."""
ROOMS = {
    "tallmasks": (*OF_THE_LIBRARY, "operations", "cli"),
    "reproduction": ("artifacts", "plugins", "tasks", "models", "training", "evaluation", "results", "plan", "cli"),
}
"""Packages and single modules.  Each may import only those before it in its list."""


def modules(package: str) -> dict[str, Path]:
    """Every module of a package, by its full name."""
    paths = {
        ".".join(path.relative_to(SOURCES).with_suffix("").parts): path for path in (SOURCES / package).rglob("*.py")
    }
    return {name.removesuffix(".__init__"): path for name, path in paths.items()}


def imported(path: Path) -> Iterator[str]:
    """The project's modules that a file imports."""
    known = modules("tallmasks") | modules("reproduction")
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in ROOMS:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in known else str(node.module)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.partition(".")[0] in ROOMS)


def room_of(module: str) -> str:
    """`tallmasks.io` of `tallmasks.io.hub`."""
    return ".".join(module.split(".")[:2])


@pytest.mark.parametrize(("package", "room"), [(package, room) for package, rooms in ROOMS.items() for room in rooms])
def test_a_room_imports_only_from_rooms_above_it(package: str, room: str) -> None:
    """Nothing could be used, tested or read without all the rest; the library would need the reproduction."""
    entries = {path.name.removesuffix(".py") for path in (SOURCES / package).iterdir()}
    assert entries - {"__pycache__", "py.typed"} == {*ROOMS[package], "__init__"}
    allowed = {f"{package}.{other}" for other in ROOMS[package][: ROOMS[package].index(room) + 1]}
    if package == "reproduction":
        allowed |= {"tallmasks", *(f"tallmasks.{other}" for other in OF_THE_LIBRARY)}
    if room in ("cli", "operations"):
        allowed |= {"tallmasks", "tallmasks.cli"} if package == "reproduction" else {"tallmasks"}  # its version
    wrong = {
        f"{name} imports {target}"
        for name, path in modules(package).items()
        if room_of(name) == f"{package}.{room}"
        for target in imported(path)
        if room_of(target) not in allowed
    }
    assert not wrong
