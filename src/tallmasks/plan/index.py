"""Artifacts of declared recipes, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from itertools import chain

from tallmasks.errors import TallmasksError
from tallmasks.plan import figure_stages, figure_views  # noqa: F401  (declares the other views)
from tallmasks.plan.node import Node
from tallmasks.plan.planner import Plan
from tallmasks.plan.views import VIEWS, View, results_of


class Index:
    """The artifacts of a plan, named when they are first asked for: naming reads their sources."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._nodes: dict[tuple[str, str], Node] = {}
        self._left = self._built(plan.models)

    def add(self, node: Node) -> None:
        """Add an artifact with all that it is made from.  Raises TallmasksError where a source file is not there."""
        if (node.model, node.name) not in self._nodes:
            self._nodes |= {(one.model, one.name): one for one in node.walk()}

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
            for artifacts in self._behind(*self._left.pop(0)):
                with suppress(TallmasksError):  # of another model, whose files are not there, say
                    for node in artifacts():
                        with suppress(TallmasksError):
                            self.add(node)
        return self._nodes[model, name]

    def declared(self, models: Iterable[str] | None = None) -> dict[str, Node]:
        """The artifacts of all or some models for every benchmark and seed, by path.

        Raises TallmasksError where a source file is not there.
        """
        for model, benchmark in self._built(models or self._plan.models):
            for artifacts in self._behind(model, benchmark):
                for node in artifacts():
                    self.add(node)
        return {node.path: node for node in self._nodes.values()}

    def _built(self, models: Iterable[str]) -> list[tuple[str, str]]:
        return [(model, benchmark) for model in models for benchmark in self._plan.benchmarks(model)]

    def _behind(self, model: str, benchmark: str) -> list[Callable[[], Iterable[Node]]]:
        """What gives the artifacts of each view of a benchmark."""
        tasks = self._plan.benchmark(benchmark)
        return [partial(self._of_view, view, model, benchmark) for view in VIEWS.values() if not view.refused(tasks)]

    def _of_view(self, view: View, model: str, benchmark: str) -> Iterable[Node]:
        subsets = figure_stages.known_subsets(self._plan, model, benchmark) if view.grows else ()
        artifacts = view.artifacts(self._plan, model, benchmark).values()
        return [*chain.from_iterable(artifacts), *(node for _, node in subsets or ())]


def closure(plan: Plan, model: str) -> list[Node]:
    """The artifacts behind the tables of every benchmark of a model, each once, sorted by path."""
    by_path: dict[str, Node] = {}
    for benchmark in plan.benchmarks(model):
        for nodes in results_of(plan, model, benchmark, plan.seeds[0]).values():
            by_path |= {node.path: node for top in nodes for node in top.walk()}
    return [by_path[path] for path in sorted(by_path)]
