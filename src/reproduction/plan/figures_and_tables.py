"""Figures and the tables of the paper, each made from views and written in several formats."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reproduction.artifacts.folders import PROVENANCE
from reproduction.plan.node import Declaration, results
from reproduction.plan.settings import Plan
from reproduction.plan.views import VIEWS
from reproduction.results import figures, paper
from tallmasks.errors import TallmasksError, nearest
from tallmasks.io.fingerprints import digest_of_code

FIGURES_AND_TABLES: dict[str, tuple[str, Mapping[str, Any]]] = {
    "figure": ("figures", figures.FIGURES),
    "paper_table": ("tables", paper.TABLES),
}
"""By stage: the folder below results/<model>/, and the figures or tables by name."""


@results(version=17, files=[f"figures/{{name}}.{ending}" for ending in ("svg", "pdf", "png", "csv", PROVENANCE)])
def figure(plan: Plan, model: str, name: str) -> Declaration:
    """One figure.  Raises TallmasksError if the model has no results for it."""
    return _spec(plan, model, "figure", name)


@results(version=8, files=[f"tables/{{name}}.{ending}" for ending in ("html", "csv", "md", "tex", PROVENANCE)])
def paper_table(plan: Plan, model: str, name: str) -> Declaration:
    """One of the paper's tables.  Raises TallmasksError if the model has no results for it."""
    return _spec(plan, model, "paper_table", name)


def _spec(plan: Plan, model: str, kind: str, name: str) -> Declaration:
    folder, known = FIGURES_AND_TABLES[kind]
    shown = known[name]
    if unknown := [view for view in shown.views if view not in VIEWS]:
        raise TallmasksError(f"{kind} {name}: there is no view {unknown[0]!r}{nearest(unknown[0], VIEWS)}")
    benchmarks = figures.in_scope(shown.scope, plan.paper_benchmarks(model))
    if not benchmarks:
        of_model = plan.benchmarks(model)
        raise TallmasksError(
            f"results/{model}/{folder}/{name}: {model} has the tasks of none of paper.benchmarks in params.yaml; it "
            f"has the tasks of: {', '.join(of_model) or 'no benchmark'}"
        )
    published = paper.published_name(plan.model(model))
    is_compared = published or model in paper.PUBLISHED.values()
    params = {
        "model": model,
        "name": name,
        "benchmarks": [[benchmark, list(tasks)] for benchmark, tasks in benchmarks.items()],
        **({"published": published} if published != model and is_compared else {}),
    }
    if kind == "figure":
        params["code"] = digest_of_code(Path(figures.__file__).with_name(f"{name}.py"))
    inputs = {
        f"{benchmark}/{view}": [VIEWS[view](plan, model, benchmark)] for benchmark in benchmarks for view in shown.views
    }
    return Declaration(name, params, inputs)
