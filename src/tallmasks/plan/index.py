"""Artifacts of declared recipes, by name."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from tallmasks.errors import TallmasksError
from tallmasks.plan import drawings  # noqa: F401  (declares the other stages and views)
from tallmasks.plan.node import Node
from tallmasks.plan.planner import Plan
from tallmasks.plan.views import VIEWS, NotOfThisBenchmark, results_of


class Index:
    """The artifacts of a plan, named when they are first asked for: naming reads their sources."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._nodes: dict[tuple[str, str], Node] = {}
        self._left = self._views(plan.models)

    def add(self, node: Node) -> None:
        """Add all that a node is made from.  Raises TallmasksError where a source file is not there."""
        if (node.model, node.name) not in self._nodes:
            self._nodes |= {(one.model, one.name): one for one in node.walk() if not one.stage.is_result}

    def find(self, model: str, name: str) -> Node:
        """The artifact of a file name, whatever was added before.

        Raises TallmasksError where no declared recipe yields the name.
        """
        while (model, name) not in self._nodes:
            if not self._left:
                raise TallmasksError(
                    f"{name}: no recipe declared in params.yaml yields this artifact; its parameters have changed "
                    "since it was named: ask for the results file instead"
                )
            with suppress(TallmasksError):  # of another model, whose files are not there, say
                for node in self._artifacts(*self._left.pop(0)):
                    with suppress(TallmasksError):
                        self.add(node)
        return self._nodes[model, name]

    def declared(self, models: Iterable[str] | None = None) -> dict[str, Node]:
        """The artifacts of all or some models for every benchmark and seed, by path.

        Raises TallmasksError where a source file is not there.
        """
        for view, model, benchmark in self._views(models or self._plan.models):
            for node in self._artifacts(view, model, benchmark):
                self.add(node)
        return {node.path: node for node in self._nodes.values()}

    def _views(self, models: Iterable[str]) -> list[tuple[str, str, str]]:
        plan = self._plan
        return [(view, model, name) for model in models for name in plan.benchmarks(model) for view in VIEWS]

    def _artifacts(self, view: str, model: str, benchmark: str) -> list[Node]:
        """What a view is written from; nothing where it cannot be made of the benchmark."""
        try:
            return VIEWS[view](self._plan, model, benchmark).all_inputs
        except NotOfThisBenchmark:
            return []


def closure(plan: Plan, model: str) -> list[Node]:
    """The artifacts behind the tables of every benchmark of a model, each once, sorted by path."""
    by_path: dict[str, Node] = {}
    for benchmark in plan.benchmarks(model):
        for nodes in results_of(plan, model, benchmark, plan.seeds[0]).values():
            by_path |= {node.path: node for top in nodes for node in top.walk()}
    return [by_path[path] for path in sorted(by_path)]
