"""Figures, and the paper's tables: each is drawn from views and written in several formats."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reproduction.artifacts.folders import PROVENANCE
from reproduction.plan import figure_views  # noqa: F401  (declares views that figures show)
from reproduction.plan.node import Spec, results
from reproduction.plan.settings import Plan
from reproduction.plan.views import VIEWS
from reproduction.results import figures, paper
from tallmasks.errors import TallmasksError, nearest
from tallmasks.io.fingerprints import digest_of_code

DRAWINGS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "figure": ("figures", figures.FIGURES),
    "paper_table": ("tables", paper.TABLES),
}
"""By stage: the folder below results/<model>/, and its drawings by name."""


@results(version=17, files=[f"figures/{{name}}.{ending}" for ending in ("svg", "pdf", "png", "csv", PROVENANCE)])
def figure(plan: Plan, model: str, name: str) -> Spec:
    """One figure.  Raises TallmasksError if the model has no results for it."""
    return _drawn(plan, model, "figure", name)


@results(version=8, files=[f"tables/{{name}}.{ending}" for ending in ("html", "csv", "md", "tex", PROVENANCE)])
def paper_table(plan: Plan, model: str, name: str) -> Spec:
    """One of the paper's tables.  Raises TallmasksError if the model has no results for it."""
    return _drawn(plan, model, "paper_table", name)


def _drawn(plan: Plan, model: str, kind: str, name: str) -> Spec:
    folder, drawings = DRAWINGS[kind]
    drawing = drawings[name]
    if unknown := [view for view in drawing.views if view not in VIEWS]:
        raise TallmasksError(f"{kind} {name}: there is no view {unknown[0]!r}{nearest(unknown[0], VIEWS)}")
    benchmarks = figures.in_scope(drawing.scope, plan.paper_benchmarks(model))
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
        f"{benchmark}/{view}": [VIEWS[view](plan, model, benchmark)]
        for benchmark in benchmarks
        for view in drawing.views
    }
    return Spec(name, params, inputs)
