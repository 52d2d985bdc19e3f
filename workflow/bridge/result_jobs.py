"""The folders of results/ as Snakemake sees them: written anew exactly where their content is not what it should be."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from snakemake.exceptions import WorkflowError
from snakemake.io import ancient, regex_from_filepattern, strip_wildcard_constraints

from bridge.run import InputFunction, for_users, stale_marker
from bridge.store_jobs import StoreJobs
from tallmasks.plan import recipes
from tallmasks.plan.drawings import DRAWINGS
from tallmasks.plan.node import Node
from tallmasks.plan.project import Results
from tallmasks.plan.views import VIEWS
from tallmasks.store.errors import TallmasksError, nearest
from tallmasks.store.folders import PROVENANCE, SCRATCH


class ViewJobs:
    """What the rules are written with that write views: every view by its name."""

    def __init__(self, artifacts: StoreJobs, results: Results) -> None:
        self.artifacts, self.results = artifacts, results
        self.run, self.plan = artifacts.run, artifacts.plan

    def tables(self, models: Iterable[str]) -> list[str]:
        """The table of every benchmark that `models` have the tasks of."""
        return [
            f"results/{model}/{benchmark}/table.csv" for model in models for benchmark in self.plan.benchmarks(model)
        ]

    def inputs(self, view: str, checkpoints: Any = None) -> InputFunction:
        """Input function of a results folder: what it is written from, and a marker if its content is not right.

        `checkpoints` is Snakemake's object of that name: "subsets" waits for the task orders, which say what else it is
        written from.
        """

        @for_users
        def files_by_role(wildcards: Any) -> dict[str, Any]:
            _ = self.run.pruned
            which, model, benchmark = VIEWS[view], wildcards.model, wildcards.benchmark
            recipe, files = self._recipe(view, model, benchmark)
            fresh = self.results.view_staleness(which, model, benchmark) is None
            if fresh and self.run.pruned and not self.written_anew(view, model, benchmark):
                return {}
            made = self.results.artifacts(which, model, benchmark)
            if which.grows and "subsets" not in made:
                (orders,) = made["orders"]
                checkpoints.task_orders.get(model=orders.model, name=orders.name)
            artifacts = {node.path: node for nodes in made.values() for node in nodes}
            shipped = {path for paths in files.values() for path in paths} - artifacts.keys()
            inputs = self.artifacts.inputs_of(artifacts[path] for path in sorted(artifacts))
            by_role = {"artifacts": inputs + ancient(sorted(shipped))}
            return by_role | ({} if fresh else {"stale": marker_of(which.folder(model, benchmark), recipe)})

        return files_by_role

    @for_users
    def command(self, wildcards: Any, output: Any, threads: int) -> str:
        """Params function: the shell words that write the view whose provenance is among a rule's outputs."""
        model, benchmark, provenance = wildcards.model, wildcards.benchmark, Path(output.provenance)
        views = (view for view in VIEWS.values() if view.folder(model, benchmark) / view.provenance == provenance)
        if (which := next(views, None)) is None:
            raise TallmasksError(f"{provenance}: no view writes there; its name is that of its folder under results/")
        recipe, files = self._recipe(which.name, model, benchmark)
        return self.artifacts.jobs.words(which.script, recipe, files, {"folder": provenance.parent}, threads, model)

    def _recipe(self, view: str, model: str, benchmark: str) -> tuple[dict[str, Any], dict[str, list[str]]]:
        """A view's recipe, and its input files by role (`<seed>/<role>`)."""
        self.plan.model(model)
        recipe = recipes.of_view(self.plan, VIEWS[view], model, benchmark)
        artifacts = self.results.artifacts(VIEWS[view], model, benchmark)
        files = {role: [node.path for node in nodes] for role, nodes in artifacts.items()}
        for role, source in self.plan.pretrained_source(model).items():
            files.setdefault(role, [source.path if isinstance(source, Node) else str(source)])
        return recipe, files

    def written_anew(self, view: str, model: str, benchmark: str) -> bool:
        """Whether the user forces the job of a view, or one that it follows from."""
        if not self.run.forcing:
            return False
        made = self.results.artifacts(VIEWS[view], model, benchmark)
        which = VIEWS[view]
        forced = any(self.artifacts.made_anew(node) for nodes in made.values() for node in nodes)
        path, begins = which.folder(model, benchmark) / which.provenance, which.provenance.removesuffix(PROVENANCE)
        return forced or self.run.is_forced(path, begins)

    def not_made(self) -> str:
        """A pattern of the paths below results/ that no rule declared so far makes."""
        patterns = [regex_from_filepattern(pattern).removeprefix("results/") for pattern in self._result_patterns()]
        made = [re.sub(r"\(\?P=\w+\)", "[^/]+", re.sub(r"\(\?P<\w+>", "(?:", pattern)) for pattern in patterns]
        return f"(?!{'|'.join(made)}).+"

    @for_users
    def unknown(self, wildcards: Any) -> str:
        """Input function of a file in results/ that no rule makes: says which one may be meant."""
        plain = [strip_wildcard_constraints(pattern) for pattern in self._result_patterns()]
        files = {
            pattern.replace("{model}", model).replace("{benchmark}", benchmark)
            for pattern in plain
            for model in self.plan.models
            for benchmark in self.plan.params["benchmarks"]
        }
        target = f"results/{wildcards.path}"
        named = sorted(file for file in files if "{" not in file)
        raise WorkflowError(f"{target}: no rule makes a file of that name{nearest(target, named)}")

    def _result_patterns(self) -> list[str]:
        outputs = (str(pattern) for rule in self.run.workflow.rules for pattern in rule.output)
        return [pattern for pattern in outputs if pattern.startswith("results/")]


class DrawingJobs:
    """What the rules are written with that draw figures or write the paper's tables from views (``kind``)."""

    def __init__(self, kind: str, views: ViewJobs) -> None:
        self._drawing, self._views = DRAWINGS[kind], views

    def inputs(self, name: str) -> InputFunction:
        """Input function of a figure or a table: the results files that it shows, and a marker if it is not right."""

        @for_users
        def files_by_role(wildcards: Any) -> dict[str, Any]:
            views, model = self._views, wildcards.model
            _ = views.run.pruned
            recipe, folder = self._recipe(model, name)
            fresh = views.results.drawn_staleness(recipe) is None
            forced = views.run.is_forced(folder / f"{name}.{PROVENANCE}", f"{name}.") or any(
                views.written_anew(view.name, model, benchmark) for benchmark, view in recipes.shown_views(recipe)
            )
            if fresh and views.run.pruned and not forced:
                return {}
            # not `ancient`: below a job that has to run, Snakemake looks at nothing else than whether it is
            return {"results": shown(recipe)} | ({} if fresh else {"stale": marker_of(folder, recipe)})

        return files_by_role

    def command(self, name: str) -> InputFunction:
        """Params function: the shell words that draw a figure or write a table."""

        @for_users
        def words(wildcards: Any, threads: int) -> str:
            recipe, folder = self._recipe(wildcards.model, name)
            inputs = {role: [path] for role, path in zip(recipe["inputs"], shown(recipe), strict=True)}
            jobs = self._views.artifacts.jobs
            return jobs.words(self._drawing.script, recipe, inputs, {"folder": folder}, threads, wildcards.model)

        return words

    def files(self, names: Iterable[str], ending: str, models: Iterable[str]) -> list[str]:
        """A file of each figure or table of `models`; its rule writes the others with it."""
        return [f"results/{model}/{self._drawing.folder}/{name}.{ending}" for model in models for name in names]

    def shown(self, names: Iterable[str], models: Iterable[str]) -> InputFunction:
        """Input function of a target: a file of each view that some figures or tables of `models` show."""

        @for_users
        def files(wildcards: Any) -> list[str]:
            return sorted({path for model in models for name in names for path in shown(self._recipe(model, name)[0])})

        return files

    def _recipe(self, model: str, name: str) -> tuple[dict[str, Any], Path]:
        recipe = recipes.of_drawing(self._views.plan, self._drawing, model, name)
        return recipe, Path("results", model, self._drawing.folder)


class ReportJobs:
    """What the rules of the report are written with."""

    def __init__(self, views: ViewJobs) -> None:
        self._views = views

    @staticmethod
    @for_users
    def always(wildcards: Any) -> list[str]:
        """Input function of what is to be made anew whenever it is asked for: a file that is newer than any other."""
        return marker_of(Path("results", wildcards.model, "report"), {"digest": "always"})

    def about(self) -> InputFunction:
        """Params function: the shell words that write what a report says of a model as a whole."""

        @for_users
        def words(wildcards: Any, threads: int) -> str:
            folder = Path("results", wildcards.model, "report")
            recipe = {"params": {"model": wildcards.model, "params": self._views.plan.params}}
            return self._views.artifacts.jobs.words("about", recipe, {}, {"folder": folder}, threads, wildcards.model)

        return words

    @staticmethod
    def command(path: str, target: str) -> str:
        """The shell words that have Snakemake write its report on a target; it takes its place when it is whole."""
        new = str(SCRATCH / "report.html")
        # A job that failed leaves marks on files that are whole, at which Snakemake's report would stop otherwise.
        marks = "--rerun-incomplete"
        snakemake = [sys.executable, "-m", "snakemake", "--cores", "1", marks, "--report", new, target]
        return f"{shlex.join(snakemake)} && {shlex.join(['mv', '--', new, path])}"


def shown(recipe: Mapping[str, Any]) -> list[str]:
    """A file of each view that a figure or table shows; its rule writes the others with it."""
    model = recipe["params"]["model"]
    return [str(view.folder(model, benchmark) / view.provenance) for benchmark, view in recipes.shown_views(recipe)]


def marker_of(folder: Path, recipe: Mapping[str, Any]) -> list[str]:
    """A marker that is newer than the files of a folder, which are not right."""
    return stale_marker(folder, recipe["digest"], [path for path in folder.glob("*") if path.is_file()])
