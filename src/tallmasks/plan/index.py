"""Artifacts of declared recipes, by name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tallmasks.plan import figure_views  # noqa: F401  (declares the other views and stages)
from tallmasks.plan.node import Node
from tallmasks.plan.views import VIEWS, results_of
from tallmasks.store.errors import TallmasksError

if TYPE_CHECKING:
    from tallmasks.plan.planner import Plan


class Index:
    """The artifacts of a plan, named when they are first asked for: naming reads their sources."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._new: list[Node] = []
        self._nodes: dict[tuple[str, str], Node] = {}
        self._complete: set[tuple[str, str]] = set()

    def add(self, node: Node) -> None:
        """Add an artifact."""
        self._new.append(node)

    def find(self, model: str, name: str, kind: str | None = None) -> Node:
        """The node of a file name, whatever this process has planned before.

        Raises TallmasksError where no declared recipe (of the stage `kind`, if given) yields the name.
        """
        key = (model, name)
        with contextlib.suppress(TallmasksError):  # of another model, whose files are not there, say
            self._take_in()
        for model_and_benchmark in self._runnable(self._plan.models):
            if key in self._nodes:
                break
            with contextlib.suppress(TallmasksError):
                self._declare(*model_and_benchmark)
        node = self._nodes.get(key)
        if node is None or kind not in (None, node.kind):
            raise TallmasksError(
                f"{name}: no recipe declared in params.yaml yields this artifact; its parameters have changed since "
                "it was named: ask for the results file instead"
            )
        return node

    def declared(self, models: Iterable[str] | None = None) -> dict[str, Node]:
        """The artifacts of all or some models for every benchmark and seed, by path.

        Raises TallmasksError where a source file is not there.
        """
        for model_and_benchmark in self._runnable(models or self._plan.models):
            self._declare(*model_and_benchmark)
        return {node.path: node for node in self._nodes.values()}

    def closure(self, model: str) -> list[Node]:
        """The artifacts behind every benchmark of a model, each once, sorted by path."""
        plan = self._plan
        by_path: dict[str, Node] = {}
        for benchmark in plan.benchmarks(model):
            for nodes in results_of(plan, model, benchmark, plan.seeds[0]).values():
                by_path |= {node.path: node for top in nodes for node in top.walk()}
        return [by_path[path] for path in sorted(by_path)]

    def _runnable(self, models: Iterable[str]) -> list[tuple[str, str]]:
        return [(model, benchmark) for model in models for benchmark in self._plan.benchmarks(model)]

    def _declare(self, model: str, benchmark: str) -> None:
        """Add every node of a model and benchmark, for every seed."""
        if (model, benchmark) in self._complete:
            return
        # zero-shot first: it needs no checkpoints, which may not be there
        tasks = self._plan.benchmark(benchmark)
        for view in sorted(VIEWS.values(), key=lambda view: view.seeds != "none"):
            if view.refused(tasks) is None:
                view.artifacts(self._plan, model, benchmark)
                self._take_in()
        if not tasks.unseen:
            self._plan.subsets(model, benchmark)
            self._take_in()
        self._complete.add((model, benchmark))

    def _take_in(self) -> None:
        """Name what is new.  What has no source yet is left for the next time."""
        new, self._new, failed = self._new, [], None
        for node in new:
            try:
                self._nodes[node.model, node.name] = node
            except TallmasksError as error:
                failed = failed or error
                self._new.append(node)
        if failed:
            raise failed
