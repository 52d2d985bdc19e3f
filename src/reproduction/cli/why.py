"""Explain why a target would be rebuilt, or that it would not.

    tallmasks why results/tiny/8tasks/table.csv
    tallmasks why store/tiny/checkpoints/finetune/mnist-s0-0123456789ab.safetensors

Lists the artifacts to build, and what changed since the artifacts in the store: values in params.yaml, a stage's
version, or a source file.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from reproduction.artifacts.folders import RESULTS
from reproduction.artifacts.labels import ARTIFACT, Damaged, load_json, read_label
from reproduction.plan.figures_and_tables import FIGURES_AND_TABLES
from reproduction.plan.node import STAGES, Node
from reproduction.plan.project import Files, Index, open_plan
from reproduction.plan.settings import Plan
from reproduction.plan.views import VIEWS
from tallmasks.errors import OptionError, TallmasksError, name_some, nearest, option_errors, short
from tallmasks.io.content_digests import canonical

SHOWN = 4  # names per line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target", type=Path, metavar="TARGET", help="a file or folder of results/, or an artifact of store/"
    )


def run(arguments: argparse.Namespace) -> int:
    print("\n".join(explain(open_plan(), Path(os.path.relpath(arguments.target)))))
    return 0


def explain(plan: Plan, target: Path) -> Iterator[str]:
    files = Files(plan.root)
    if target.parts[:1] == (RESULTS.name,) and len(target.parts) > 2:
        with option_errors():
            node = results_with(plan, target)
        if files.there(node):
            yield f"{target} would not be rebuilt: it matches params.yaml."
            return
        yield f"{target} would be rebuilt: {files.problem(node)}."
        with suppress(FileNotFoundError, Damaged, KeyError):
            before = load_json(plan.root / node.path)["recipe"]
            yield from (f"    {line}" for line in _differences(before, node.recipe))
    else:
        index = Index(plan)
        declared = index.declared()
        if str(target) not in declared:
            if unknown := index.unknown.keys() & {*target.parents}:
                raise index.unknown[unknown.pop()]
            near = nearest_target(plan, str(target), declared)
            raise OptionError(f"{target}: expected results/<model>/<benchmark>/... or an artifact of params.yaml{near}")
        node = declared[str(target)]
        if files.there(node):
            yield f"{target} would not be rebuilt: it exists, and matches params.yaml."
            return
        yield f"{target} would be built: {files.problem(node)}."
    missing = files.missing([node])
    views = [one.files[0] for one in missing if one.stage.is_result and one is not node]
    yield from _explain_missing(plan, [one for one in missing if not one.stage.is_result], views)


def results_with(plan: Plan, target: Path) -> Node:
    """The node of a file or folder below results/<model>/. Raises TallmasksError if no rule writes it."""
    _, model, second, *rest = target.parts
    name = rest[0].split(".")[0] if rest else ""
    for kind, (folder, known) in FIGURES_AND_TABLES.items():
        if folder == second:
            if name not in known:
                raise TallmasksError(f"{target}: expected one of the {second} {', '.join(known)}{nearest(name, known)}")
            return STAGES[kind](plan, model, name)
    by_file: dict[str, str] = {}
    for view, stage in VIEWS.items():
        paths = [Path(file.format(model=model, name=second)) for file in stage.files]
        for path in (*paths, paths[0].parent):
            by_file.setdefault(str(path), view)
    if str(target) not in by_file and not (plan.root / target).exists():
        raise TallmasksError(f"{target}: no such file{nearest(str(target), by_file)}")
    return VIEWS[by_file.get(str(target), name if name in VIEWS else "tables")](plan, model, second)


def nearest_target(plan: Plan, target: str, names: Iterable[str]) -> str:
    """The words " (did you mean ...?)" with the closest of ``names`` and of the results files."""
    return nearest(target, (*names, *_results_files(plan)))


def _results_files(plan: Plan) -> Iterator[str]:
    for model in plan.models:
        names = dict.fromkeys(VIEWS, plan.benchmarks(model)) | {
            kind: tuple(known) for kind, (_, known) in FIGURES_AND_TABLES.items()
        }
        for kind, some in names.items():
            yield from (file.format(model=model, name=name) for name in some for file in STAGES[kind].files)


def _explain_missing(plan: Plan, nodes: list[Node], views: list[str]) -> Iterator[str]:
    """List the artifacts to build, and changes that do not follow from other artifacts in the list."""
    if not nodes:
        first = f" {name_some(views, SHOWN)} {'is' if len(views) == 1 else 'are'} written first." if views else ""
        yield f"All artifacts that it needs exist, so this takes {1 + len(views)} short job{'s' * bool(views)}.{first}"
        return
    counts = Counter(node.kind for node in nodes)
    yield f"To build first: {', '.join(f'{count} {kind}' for kind, count in counts.items())}."
    lacking = {node.path for node in nodes}
    reasons: dict[tuple[str, ...], list[Node]] = {}
    for node in nodes:
        inputs = [needed for nodes in node.inputs.values() for needed in nodes]
        reason = tuple(news(plan, node))
        if reason or not any(needed.path in lacking for needed in inputs):
            reasons.setdefault((node.kind, *reason), []).append(node)
    for (kind, *changes), some in reasons.items():
        names = name_some((node.slug for node in some), SHOWN)
        if changes:
            yield f"{kind} {names}: store/ has it with another recipe:"
            yield from (f"    {line}" for line in changes)
        else:
            yield f"{kind} {names}: not in store/."


def news(plan: Plan, node: Node) -> Iterator[str]:
    """Differences between a missing artifact's recipe and the most similar recipe in the store."""
    changes = []
    for path in sorted((plan.root / node.path).parent.glob(f"{node.slug}-*")):
        if (named := ARTIFACT.fullmatch(path.name)) and named["slug"] == node.slug:
            with suppress(TallmasksError, FileNotFoundError):
                changes.append(list(_differences(read_label(path).recipe, node.recipe)))
    yield from min(changes, key=len, default=())


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """One line per value that differs. Digests of inputs are skipped: they repeat changes of other artifacts."""
    old, new = dict(_flat(before)), dict(_flat(after))
    for key in sorted(old.keys() | new.keys()):
        follows = key.startswith("inputs.") and key in old and key in new
        ours, theirs = (canonical(values.get(key)) for values in (old, new))
        if not follows and ours != theirs:  # 0 and 0.0 are different recipes
            then, now = (short(values[key]) if key in values else "nothing" for values in (old, new))
            yield f"{key}: was {then}, is now {now}"


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for key, inner in value.items():
        if isinstance(inner, Mapping):
            yield from _flat(inner, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", inner
