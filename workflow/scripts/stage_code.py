"""Hold every stage's version to the code that the stage runs.

A changed parameter gives an artifact another name by itself; changed code does not: the stage's number in
`tallmasks.plan.stages.STAGE_VERSIONS` does.  workflow/stage_code.json records the numbers and the code that they stand
for, definition by definition, comments and docstrings left out.

    python workflow/scripts/stage_code.py                  say whose code changed since, and fail if its number did not
    python workflow/scripts/stage_code.py --record         accept the code of stages whose number was raised
    python workflow/scripts/stage_code.py --record --same  accept changes that leave every byte of the output the same

What a stage runs is found by following names from its script through the scripts and the package; what a module does
when it is imported counts too, and so do the data files beside it, the stage's rules (inputs, params, shell line),
the bridge's functions that hand a job its inputs, and the pinned versions of the libraries that decide bits.  A
definition that is new concerns no stage before something that is recorded uses it.  The files of `tallmasks.methods`
are left out: the recipes of what is made with a method or a merge hold the digest of its file.
"""

from __future__ import annotations

import argparse
import ast
import functools
import hashlib
import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from site import getsitepackages

import own_code
from tallmasks.plan.stages import STAGE_VERSIONS
from tallmasks.store.fingerprints import fingerprint as fingerprint_of
from tallmasks.store.machine import DECIDING

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "workflow" / "stage_code.json"
VIEWS = {"benchmark": "view", "seeds": "view"}  # two scripts share one number
BRIDGE = ("_files", "_told", "job", "command", "result_job", "_result", "drawn_job", "_drawn", "_shown")
"""What hands a job its inputs, in workflow/glue.py."""
LIBRARIES = (*DECIDING, "torchvision", "llvmlite", "scikit-learn")
RULE = re.compile(r"^( *)(?:rule|checkpoint)(?: (\w+))?:\n((?:(?:\1 .*)?\n)*)", re.M)
SECTION = re.compile(r"^( +)(?:input|params|shell):\n((?:(?:\1 .*)?\n)*)", re.M)
CHECKS = {"inputs"}  # what every job checks before it computes decides no byte that comes out
Symbol = tuple[str, str]
"""A module and a definition at its top level; "" stands for the statements that define nothing."""


@dataclass(frozen=True)
class Module:
    """One parsed source file."""

    name: str
    definitions: dict[str, list[ast.stmt]]
    imports: dict[str, Symbol]
    """What an imported name stands for: a definition, or a module as (module, "*")."""


def scripts() -> dict[str, set[str]]:
    """The scripts that each stage runs, as the rules say."""
    found: dict[str, set[str]] = {}
    for text in rules().values():
        for stage, script in _jobs(text):
            found.setdefault(stage, set()).add(script)
    return found


@functools.cache
def rules() -> dict[str, str]:
    """What each rule reads and runs: its inputs, params and shell line, as they are written."""
    found: dict[str, str] = {}
    for file in sorted((ROOT / "workflow" / "rules").glob("*.smk")):
        for number, (_, name, body) in enumerate(RULE.findall(file.read_text() + "\n")):
            found[name or f"{file.stem}.{number}"] = " ".join(
                " ".join(text for _, text in SECTION.findall(body)).split()
            )
    return found


def _jobs(rule: str) -> Iterator[tuple[str, str]]:
    """The stages of a rule, with the script that it runs for each."""
    for arguments in re.findall(r"GLUE\.\w*job\(([^()]*)\)", rule):
        kind, *_, script = re.findall(r'"(\w+)"', arguments)
        yield VIEWS.get(kind, kind), script


def around(stage: str, symbols: Iterable[Symbol]) -> dict[str, str]:
    """What else than code decides the bytes of a stage, by name, as text: see the module's docstring."""
    found = {f"rules.{name}": text for name, text in rules().items() if stage in dict(_jobs(text))}
    for name in {name for name, _ in symbols}:
        for data in sorted((ROOT / "src" / name.replace(".", "/")).glob("*.csv")):
            found[f"{name}/{data.name}"] = data.read_text()
    top = ast.parse((ROOT / "workflow" / "glue.py").read_text()).body
    functions = [*top, *(inner for node in top if isinstance(node, ast.ClassDef) for inner in node.body)]
    bridge = {node.name: node for node in functions if isinstance(node, ast.FunctionDef) and node.name in BRIDGE}
    found |= {f"glue.{name}": fingerprint_of([node]) for name, node in bridge.items()}
    pins = re.findall(r"^([\w.-]+)==([^ \\;]+)", (ROOT / "requirements.lock").read_text(), re.M)
    for library in LIBRARIES:
        versions = sorted(version for name, version in pins if name.replace("-", "_") == library.replace("-", "_"))
        found[f"requirements.{library}"] = " ".join(versions)
    return {name: hashlib.sha256(text.encode()).hexdigest()[:12] for name, text in found.items()}


def hidden() -> Iterator[str]:
    """What is imported under a name that stands for something else too."""
    folders = (ROOT / "src", ROOT / "workflow" / "scripts")
    own = [path for folder in folders for path in folder.iterdir() if path.suffix == ".py" or path.is_dir()]
    for path in own:
        installed = PathFinder.find_spec(path.stem, getsitepackages())
        if path.stem in sys.stdlib_module_names or (installed and installed.origin and path.stem != "tallmasks"):
            yield f"{path.relative_to(ROOT)} hides the library {path.stem}; give it another name"
    for path in sorted(file for folder in folders for file in folder.rglob("*.py")):
        if path.with_suffix("").is_dir():
            yield f"{path.relative_to(ROOT)} is hidden by the folder of its name; remove one of them"


@functools.cache
def module(name: str) -> Module | None:
    """A module of the package or a script; None for the libraries of others."""
    path = name.replace(".", "/")
    endings = (f"src/{path}/__init__.py", f"src/{path}.py", f"workflow/scripts/{path}.py")
    files = [ROOT / ending for ending in endings if (ROOT / ending).is_file()]
    if not files:
        return None
    definitions: dict[str, list[ast.stmt]] = {}
    for statement in ast.parse(files[0].read_text()).body:
        for defined in _defined(statement) or [""]:
            definitions.setdefault(defined, []).append(statement)
    imports: dict[str, Symbol] = {}
    for statement in definitions.get("", []):
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
        if source is None or symbol in found or name in CHECKS:
            continue
        if wanted == "*":
            todo += [(name, defined) for defined in source.definitions]
        elif wanted in source.definitions:
            found.add(symbol)
            todo += _used(source, source.definitions[wanted])
            todo += _imported(source)
        elif wanted in source.imports:  # handed on from another module
            todo.append(source.imports[wanted])
    return found


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
                        yield from ((f"{source.name}.{file.stem}", "*") for file in sorted(folder.glob("[a-z]*.py")))
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and node not in attributes:
                yield bound.get(node.id, (source.name, node.id))


def fingerprint(symbol: Symbol) -> str:
    """A digest of a definition's code, the same for every version of Python, comments and docstrings left out."""
    source = module(symbol[0])
    assert source is not None
    return fingerprint_of(source.definitions[symbol[1]])


def _is_in_recipes(name: str) -> bool:
    """Whether a module's code enters the recipes of what is made with it: a method's or a merge's."""
    return name.startswith("tallmasks.methods.")


def changes() -> tuple[dict[str, list[str]], dict[str, object]]:
    """The changed definitions by stage, and what there is to record."""
    recorded = json.loads(RECORD.read_text()) if RECORD.exists() else {"versions": {}, "definitions": {}}
    changed: dict[str, list[str]] = {}
    found: dict[str, str] = {}
    for stage, names in sorted(scripts().items()):
        symbols = sorted({symbol for name in names for symbol in reached(name) if not _is_in_recipes(symbol[0])})
        code = {".".join(filter(None, symbol)): fingerprint(symbol) for symbol in symbols}
        code |= around(stage, symbols)
        found |= code
        known = recorded["definitions"]
        news = [name for name, digest in code.items() if name in known and known[name] != digest]
        if news or recorded["versions"].get(stage) != STAGE_VERSIONS[stage]:
            changed[stage] = news
    return changed, {"versions": STAGE_VERSIONS, "definitions": dict(sorted(found.items()))}


def main() -> int:
    """The exit status: 1 where a stage's number does not stand for its code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--same", action="store_true")
    arguments = parser.parse_args()
    own_code.check()
    recorded = json.loads(RECORD.read_text())["versions"] if RECORD.exists() else {}
    changed, now = changes()
    problems = [
        f"stage {stage}: {', '.join(names)} changed; raise STAGE_VERSIONS[{stage!r}] in src/tallmasks/plan/stages.py"
        for stage, names in changed.items()
        if names and recorded.get(stage) == STAGE_VERSIONS[stage] and not arguments.same
    ]
    problems += hidden()
    if missing := STAGE_VERSIONS.keys() - scripts().keys():
        problems.append(f"no rule runs a script for {', '.join(sorted(missing))}")
    if not problems and arguments.record:
        RECORD.write_text(json.dumps(now, indent=1) + "\n")
    elif not problems and changed:
        problems.append(f"stage {', '.join(changed)}: another number than the one recorded")
    if problems:
        advice = "python workflow/scripts/stage_code.py --record (with --same where every output byte stays the same)"
        print(*problems, f"then accept it: {advice}", sep="\n", file=sys.stderr)
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
