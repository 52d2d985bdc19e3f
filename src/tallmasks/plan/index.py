"""Finds the artifacts of a plan by file name."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from tallmasks.errors import TallmasksError
from tallmasks.plan import drawings  # noqa: F401  (declares the other stages and views)
from tallmasks.plan.node import Node
from tallmasks.plan.planner import Plan
from tallmasks.plan.views import VIEWS, NotOfThisBenchmark, results_of


class Index:
    """The artifacts of a plan by name.  Filled on demand, because a name contains digests of source files."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._nodes: dict[tuple[str, str], Node] = {}
        self._left = self._views(plan.models)

    def add(self, node: Node) -> None:
        """Add a node and everything upstream of it.  Raises TallmasksError if a source file is missing."""
        if (node.model, node.name) not in self._nodes:
            self._nodes |= {(one.model, one.name): one for one in node.walk() if not one.stage.is_result}

    def find(self, model: str, name: str) -> Node:
        """The artifact of a file name.  Raises TallmasksError if params.yaml yields no such name."""
        while (model, name) not in self._nodes:
            if not self._left:
                raise TallmasksError(
                    f"{name}: no recipe declared in params.yaml yields this artifact; its parameters have changed "
                    "since it was named: ask for the results file instead"
                )
            with suppress(TallmasksError):  # source files of another model can be missing
                for node in self._artifacts(*self._left.pop(0)):
                    with suppress(TallmasksError):
                        self.add(node)
        return self._nodes[model, name]

    def declared(self, models: Iterable[str] | None = None) -> dict[str, Node]:
        """All artifacts of some models (default: all models), by path.

        Raises TallmasksError if a source file is missing.
        """
        for view, model, benchmark in self._views(models or self._plan.models):
            for node in self._artifacts(view, model, benchmark):
                self.add(node)
        return {node.path: node for node in self._nodes.values()}

    def _views(self, models: Iterable[str]) -> list[tuple[str, str, str]]:
        plan = self._plan
        return [(view, model, name) for model in models for name in plan.benchmarks(model) for view in VIEWS]

    def _artifacts(self, view: str, model: str, benchmark: str) -> list[Node]:
        try:
            return VIEWS[view](self._plan, model, benchmark).all_inputs
        except NotOfThisBenchmark:
            return []


def closure(plan: Plan, model: str) -> list[Node]:
    """All artifacts upstream of a model's benchmark tables, sorted by path."""
    by_path: dict[str, Node] = {}
    for benchmark in plan.benchmarks(model):
        for nodes in results_of(plan, model, benchmark, plan.seeds[0]).values():
            by_path |= {node.path: node for top in nodes for node in top.walk()}
    return [by_path[path] for path in sorted(by_path)]
