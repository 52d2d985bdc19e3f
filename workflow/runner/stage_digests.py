"""The code that each stage runs, definition by definition, each with its digest; see stage_code.py."""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tallmasks import methods
from tallmasks.methods import Merge, Method
from tallmasks.methods.contract import PARTS
from tallmasks.plan.node import STAGES
from tallmasks.plan.recipes import versions
from tallmasks.plan.views import DRAWINGS, VIEWS
from tallmasks.store.fingerprints import fingerprint as fingerprint_of
from tallmasks.store.machine import DECIDING

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "workflow" / "stage_code.json"
BRIDGE = {"told_of", "files_of", "words", "command", "_recipe", "shown"}
"""The functions that hand a job its inputs, in workflow/bridge/."""
LIBRARIES = (*DECIDING, "torchvision", "llvmlite", "scikit-learn")
NO_BYTES = {"checked_inputs", "warm", "gpu"}
"""What every job checks before it computes, and where it is run, decide no byte that comes out."""
Symbol = tuple[str, str]
"""A module and a definition at its top level; "" stands for the statements that define nothing."""


@dataclass(frozen=True)
class Module:
    """One parsed source file."""

    name: str
    definitions: dict[str, list[ast.stmt]]
    imports: dict[str, Symbol]
    """What an imported name stands for: a definition, or a module as (module, "*")."""


def scripts() -> dict[str, str]:
    """The script that each stage runs, as it is declared."""
    declared: list[Any] = [*STAGES.values(), *VIEWS.values(), *DRAWINGS.values()]
    return {stage.name: stage.script for stage in declared}


def around(stage: str, symbols: Iterable[Symbol]) -> dict[str, str]:
    """What else than code decides the bytes of a stage, by name, as text: see the module's docstring."""
    found = {f"{stage}.script": scripts()[stage]}
    for name in {name for name, _ in symbols}:
        for data in sorted((ROOT / "src" / name.replace(".", "/")).glob("*.csv")):
            found[f"{name}/{data.name}"] = data.read_text()
    found |= bridge()
    pins = re.findall(r"^([\w.-]+)==([^ \\;]+)", (ROOT / "requirements.lock").read_text(), re.M)
    for library in LIBRARIES:
        versions = sorted(version for name, version in pins if name.replace("-", "_") == library.replace("-", "_"))
        found[f"requirements.{library}"] = " ".join(versions)
    return {name: hashlib.sha256(text.encode()).hexdigest()[:12] for name, text in found.items()}


@functools.cache
def bridge() -> dict[str, str]:
    """The bridge's functions that hand a job its inputs, each with its digest."""
    found = {}
    for file in sorted((ROOT / "workflow" / "bridge").glob("*.py")):
        top = ast.parse(file.read_text()).body
        owned = [("", node) for node in top]
        owned += [(f"{node.name}.", inner) for node in top if isinstance(node, ast.ClassDef) for inner in node.body]
        for owner, node in owned:
            if isinstance(node, ast.FunctionDef) and node.name in BRIDGE:
                found[f"bridge.{owner}{node.name}"] = fingerprint_of([node])
    return found


@functools.cache
def module(name: str) -> Module | None:
    """A module of the package or a script; None for the libraries of others."""
    if not re.fullmatch(r"[\w.]+", name):
        return None
    path = name.replace(".", "/")
    endings = (f"src/{path}/__init__.py", f"src/{path}.py", f"workflow/scripts/{path}.py", f"workflow/runner/{path}.py")
    files = [ROOT / ending for ending in endings if (ROOT / ending).is_file()]
    if not files:
        return None
    definitions: dict[str, list[ast.stmt]] = {}
    for statement in ast.parse(files[0].read_text()).body:
        for defined in _defined(statement) or [""]:
            definitions.setdefault(defined, []).append(statement)
    imports: dict[str, Symbol] = {}
    for statement in definitions.get("", []):
        if not (isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING"):  # never run
            imports |= _imports(statement)
    return Module(name, definitions, imports)


def _defined(statement: ast.stmt) -> list[str]:
    """The names that a top-level statement binds."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return [statement.name]
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    else:
        targets = [statement.target] if isinstance(statement, ast.AnnAssign | ast.AugAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _imports(tree: ast.AST) -> dict[str, Symbol]:
    """What the import statements within `tree` bind."""
    found: dict[str, Symbol] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.asname or alias.name.split(".")[0]: (alias.name, "*") for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found[alias.asname or alias.name] = (inner, "*") if module(inner) else (node.module, alias.name)
    return found


def reached(script: str) -> set[Symbol]:
    """Every definition that a script can use."""
    found: set[Symbol] = set()
    todo: list[Symbol] = [(script, "*")]
    while todo:
        name, wanted = symbol = todo.pop()
        source = module(name)
        if source is None or symbol in found or name in NO_BYTES:
            continue
        if wanted == "*":
            todo += [(name, defined) for defined in source.definitions]
        elif wanted in source.definitions:
            found.add(symbol)
            todo += _followed(symbol)
        elif wanted in source.imports:  # handed on from another module
            todo.append(source.imports[wanted])
    return found


@functools.cache
def _followed(symbol: Symbol) -> tuple[Symbol, ...]:
    """What is used where a definition is, and run when its module is imported."""
    source = module(symbol[0])
    assert source is not None
    return (*_used(source, source.definitions[symbol[1]]), *_imported(source))


def _imported(source: Module) -> list[Symbol]:
    """What is run when a module is imported: its own statements, its packages', and those of what they import."""
    packages = [source.name.rsplit(".", depth)[0] for depth in range(source.name.count(".") + 1)]
    names = {*packages, *(target for target, _ in source.imports.values())}
    return [(name, "") for name in names if (found := module(name)) is not None and "" in found.definitions]


def _used(source: Module, statements: list[ast.stmt]) -> Iterator[Symbol]:
    """What some statements of a module refer to."""
    for statement in statements:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            continue
        bound = source.imports | _imports(statement)
        attributes = set()
        for node in ast.walk(statement):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in bound:
                target, what = bound[node.value.id]
                if what == "*":
                    attributes.add(node.value)
                    yield (f"{target}.{node.attr}", "*") if module(f"{target}.{node.attr}") else (target, node.attr)
                    if target == "importlib":  # a registry: the package's own modules are loaded by name
                        folder = ROOT / "src" / source.name.replace(".", "/")
                        files = [file.relative_to(folder).with_suffix("") for file in folder.rglob("[a-z]*.py")]
                        yield from ((".".join([source.name, *file.parts]), "*") for file in sorted(files))
        for node in ast.walk(statement):
            if isinstance(node, ast.Constant) and _is_named_by_a_registry(source, node):
                yield str(node.value), "*"
            if isinstance(node, ast.Name) and node not in attributes:
                yield bound.get(node.id, (source.name, node.id))


def _is_named_by_a_registry(source: Module, node: ast.Constant) -> bool:
    """Whether a text is the name of a package that is imported by it: of a family or of a catalogue."""
    named = node.value
    return isinstance(named, str) and "." in named and source.name.count(".") == 2 and module(named) is not None


@functools.cache
def fingerprint(symbol: Symbol) -> str:
    """A digest of a definition's code, the same for every version of Python, comments and docstrings left out."""
    source = module(symbol[0])
    assert source is not None
    return fingerprint_of(source.definitions[symbol[1]])


@functools.cache
def in_recipes() -> set[str]:
    """The modules whose code enters the recipes of what is made with them: methods' and merges' own, and their
    parts."""
    own: list[Method | Merge] = [*map(methods.get, methods.names()), *map(methods.get_merge, methods.merge_names())]
    parts = (ROOT / "src" / PARTS.replace(".", "/")).glob("*.py")
    return {f"{methods.__name__}.rows.{entry.file.stem}" for entry in own} | {f"{PARTS}.{part.stem}" for part in parts}


def changes() -> tuple[dict[str, list[str]], list[str], dict[str, object]]:
    """The changed definitions by stage, those that are not recorded, and what there is to record."""
    recorded = json.loads(RECORD.read_text()) if RECORD.exists() else {"versions": {}, "definitions": {}}
    changed: dict[str, list[str]] = {}
    found: dict[str, str] = {}
    numbers, known = versions(), recorded["definitions"]
    for stage, script in sorted(scripts().items()):
        symbols = sorted({symbol for symbol in reached(script) if symbol[0] not in in_recipes()})
        code = {".".join(filter(None, symbol)): fingerprint(symbol) for symbol in symbols}
        code |= around(stage, symbols)
        found |= code
        news = [name for name, digest in code.items() if name in known and known[name] != digest]
        if news or recorded["versions"].get(stage) != numbers[stage]:
            changed[stage] = news
    return (
        changed,
        sorted(found.keys() - known.keys()),
        {"versions": numbers, "definitions": dict(sorted(found.items()))},
    )
