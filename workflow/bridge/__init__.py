"""Connects Snakemake to the plan: the functions that the rules call.

An artifact's path contains the digest of its recipe, so only its existence counts: inputs are `ancient`, and a finished
step declares no inputs.  The DAG is therefore as small as the remaining work, and deleting an intermediate triggers
nothing.  Paths of results contain no digest: outdated results get an input newer than themselves, so they rerun.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from snakemake.exceptions import WorkflowError
from snakemake.io import ancient
from snakemake.logging import logger

from bridge import run
from bridge.output import report_progress
from bridge.run import InputFunction, Run, for_users
from reproduction.artifacts.folders import SCRATCH, be_only_writer, set_aside
from reproduction.artifacts.labels import digest_of
from reproduction.models.families import family
from reproduction.plan import preflight
from reproduction.plan.figures_and_tables import FIGURES_AND_TABLES
from reproduction.plan.node import STAGES, Node
from reproduction.plan.params import FILE, from_command_line, overridden, read_params
from reproduction.plan.params_model import StepResources
from reproduction.plan.project import Files, Index, closure, damaged_artifacts
from reproduction.plan.settings import Plan
from reproduction.tasks.catalogues import catalogue
from tallmasks.errors import TallmasksError, TallmasksWarning
from tallmasks.io.atomic_files import atomic_write_text

RESOURCES = tuple(name for name in StepResources.model_fields if name != "threads")
"""What each step declares to Snakemake besides its threads."""
LIBRARIES = ("numpy", "numba", "safetensors", "pandas", "matplotlib.pyplot", "scipy.stats", "scipy.cluster.hierarchy")
"""Libraries that the warm Python imports for every job."""


def configuration(workflow: Any) -> dict[str, Any]:
    """params.yaml, updated from `--configfile` and `--config`; replaces Snakemake's `configfile:`.

    Snakemake's YAML reader evaluates `__use_yte__`, accepts duplicate keys and follows recursive references, so this
    also reads the files of `--configfile` again.
    """
    settings = workflow.config_settings
    files = [*([] if settings.replace_workflow_config else [FILE]), *settings.configfiles]
    named = [min(str(file), os.path.relpath(file), key=len) for file in settings.configfiles]
    run.overriding += [*named, *(["--config"] if settings.config else [])]
    if FILE in files:
        workflow.configfiles.append(FILE)  # for Snakemake's report
    layers = [read_params(file) for file in files]
    return functools.reduce(overridden, [*layers, from_command_line(settings.config)])


@for_users
def begin(workflow: Any) -> tuple[dict[str, Any], Bridge]:
    """The configuration and the bridge; exits with one line if params.yaml is wrong."""
    warnings.showwarning = lambda text, category, *where: show_warning(text, category)
    # jobs use the Python of this Snakemake, even if its environment is not active
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    # otherwise glibc returns large buffers to the kernel and requests them again, a quarter of the training time
    malloc_settings = {"MMAP_THRESHOLD": 32 << 20, "TRIM_THRESHOLD": (1 << 31) - 1, "TOP_PAD": 256 << 20}
    os.environ |= {f"MALLOC_{name}_": str(value) for name, value in malloc_settings.items()}
    if not workflow.is_main_process:  # a job on a cluster, which does not run `onstart`
        run.start_warm_python()
    params = configuration(workflow)
    plan = Plan(params)
    for model in params["build"]:
        plan.model(model)
    return params, Bridge(workflow, plan)


def show_warning(text: Warning | str, category: type[Warning]) -> None:
    """Print a warning in one line, without the place in the code."""
    print(f"warning: {text}" if category is TallmasksWarning else f"{category.__name__}: {text}", file=sys.stderr)


@for_users
def before_first_job(workflow: Any, bridge: Bridge) -> None:
    """`onstart` of the Snakemake process that the user called."""
    if bridge.run.submitted:
        return
    run.check_settings(workflow)
    be_only_writer()
    report_progress(logger, workflow)
    needed = bridge.planned_artifacts()
    if workflow.local_exec:
        run.check_gpus(max((bridge.resources(node)["gpu"] for node in needed), default=0))
    if workflow.executor_plugin.name == "slurm":
        run.check_slurm(workflow)
    if problems := preflight.unavailable(needed):
        raise WorkflowError("\n".join(["no job was started, because some inputs are not available:", *problems]))
    if workflow.local_exec and needed:
        run.start_warm_python()


class Bridge:
    """The plan in one run of Snakemake: the functions of its rules, and the state of its nodes on disk."""

    def __init__(self, workflow: Any, plan: Plan) -> None:
        self.run, self.plan = Run(workflow), plan
        self.files, self.index = Files(plan.root), Index(plan)
        self.artifact = RuleFunctions(self, lambda wildcards: self.index.find(wildcards.model, wildcards.name))
        """Functions of the rules for artifacts of the store."""
        self._forced: dict[Node, bool] = {}
        self._has_moved_damaged = False

    # -- functions of rules ---------------------------------------------------------------------------------------

    def results(self, stage: str, name: str | None = None) -> RuleFunctions:
        """Functions of the rule for results: a figure or a table of the paper by its name, or a view of a benchmark."""
        return RuleFunctions(
            self, lambda wildcards: STAGES[stage](self.plan, wildcards.model, name or wildcards.benchmark)
        )

    def views_behind(self, kind: str, names: Iterable[str]) -> InputFunction:
        """Input function of a target: the provenance of the views behind figures or tables of the built models."""

        @for_users
        def files(wildcards: Any) -> list[str]:
            shown = [STAGES[kind](self.plan, model, name) for model in self.plan.params["build"] for name in names]
            return sorted({view.path for one in shown for view in one.all_inputs})

        return files

    def tables(self, models: Iterable[str]) -> list[str]:
        """The tables of all benchmarks of some models."""
        return [f"results/{model}/{name}/table.csv" for model in models for name in self.plan.benchmarks(model)]

    def missing(self, model: str, *kinds: str) -> InputFunction:
        """Input function of a DVC stage: missing artifacts of the given stages (default: all) for a model's benchmarks.

        All must exist, because DVC removes missing files from dvc.lock.  Downloaded examples are not versioned.
        """

        @for_users
        def files(wildcards: Any) -> list[str]:
            self._move_damaged()
            versioned = catalogue(self.plan.models[model]["tasks"]).versioned
            wanted = set(kinds or STAGES) - (set() if versioned else {"examples"})
            nodes = closure(self.plan, model)
            return [node.path for node in nodes if node.kind in wanted and not self.is_done(node)]

        return files

    def cpu(self, name: str) -> InputFunction:
        """Resource function: a value of the model's `resources.cpu` in params.yaml."""
        return for_users(lambda wildcards: self.plan.resources(wildcards.model, "cpu")[name])

    @for_users
    def on_opening_page(self, wildcards: Any) -> list[str]:
        """Input function of the report's opening page: a table and two figures, for `report_only` those that exist."""
        shown = [("paper_table", "methods"), ("figure", "overview"), ("figure", "per_task")]
        nodes = [STAGES[kind](self.plan, wildcards.model, name) for kind, name in shown]
        made = not (self.run.inspects_dag or any(r.name == "report_only" for r in self.run.workflow.dag.targetrules))
        return [node.files[0] for node in nodes if made or self._is_reportable(node)]

    @for_users
    def reported(self, wildcards: Any) -> list[str]:
        """Input function of the report: its figures, tables and results files that exist and match params.yaml."""
        plan, files = self.plan, list[str]()
        for model in plan.params["build"]:
            shown = [(kind, name) for kind, (_, known) in FIGURES_AND_TABLES.items() for name in known]
            shown += [(view, name) for view in ("tables", "field", "held_out") for name in plan.benchmarks(model)]
            for stage, name in shown:
                try:
                    node = STAGES[stage](plan, model, name)
                except TallmasksError:  # the model has no such figure, or the benchmark no such view
                    continue
                files += node.files[:1] if self._is_reportable(node) else []
        if not files:
            raise WorkflowError("there is nothing to report for the models under build in params.yaml: make figures")
        return files

    def _is_reportable(self, node: Node) -> bool:
        """True if a results file and the views that it is made from match params.yaml."""
        return all(self.files.there(one) for one in (node, *node.all_inputs) if one.stage.is_result)

    @for_users
    def about(self, wildcards: Any, input: Any, threads: int) -> str:
        """Params function: the job file for about.py."""
        outputs = {"provenance": f"results/{wildcards.model}/report/provenance.html"}
        recipe = {"params": {"model": wildcards.model, "shown": list(map(str, input.shown))}}
        return self.job_file(recipe=recipe, outputs=outputs, threads=threads, model=wildcards.model)

    @staticmethod
    @for_users
    def always(wildcards: Any) -> list[str]:
        """Input function of the report pages: a file newer than all of them, so that every report rewrites them."""
        return newer_input(map(str, Path("results", wildcards.model, "report").glob("*")), "always")

    # -- the state of nodes ---------------------------------------------------------------------------------------

    def _move_damaged(self) -> None:
        """Once, before the DAG is built: move damaged artifacts away; a dry run only counts them."""
        if self._has_moved_damaged or self.run.submitted or self.run.inspects_dag:
            return
        self._has_moved_damaged = True
        damaged = damaged_artifacts()
        if damaged and not self.run.writing:
            print(f"{len(damaged)} damaged artifacts would be moved away, and made again if needed", file=sys.stderr)
        for error in damaged if self.run.writing else ():
            print(f"{error}: {set_aside(error.path)}, and made again if it is needed", file=sys.stderr)

    def is_forced(self, node: Node) -> bool:
        """True if the user forces the step (-f, -F, -R) or any step upstream."""
        dag = self.run.workflow.dag
        if (dag.forcefiles or dag.forcerules) and node not in self._forced:
            rules = [rule for rule in dag.forcerules if any(map(rule.is_producer, node.files))]
            forced = bool(rules) or not dag.forcefiles.isdisjoint(node.files)
            self._forced[node] = forced or any(map(self.is_forced, node.all_inputs))
        return self._forced.get(node, False)

    def is_done(self, node: Node) -> bool:
        return self.files.there(node) and not self.is_forced(node)

    def inputs(self, node: Node) -> dict[str, list[str]]:
        """The inputs of a step by role; none if the step is done, unless Snakemake only shows the DAG."""
        self._move_damaged()
        if not self.run.inspects_dag and self.is_done(node):
            return {}
        inputs = {role: [self._input(one) for one in nodes] for role, nodes in node.inputs.items()}
        return inputs | {role: [ancient(str(path))] for role, path in node.sources.items()}

    def _input(self, node: Node) -> str:
        """The path of a node, marked `ancient` unless forced, so that a forced job also reruns everything downstream.

        Results are never `ancient`, which would hide from Snakemake that a view must be rewritten.
        """
        self.index.add(node)
        return node.path if node.stage.is_result or self.is_forced(node) else ancient(node.path)

    def outdated(self, node: Node) -> list[str]:
        """An input newer than a node's results if these are outdated."""
        self._move_damaged()
        problem = None if self.run.inspects_dag or not node.stage.is_result else self.files.problem(node)
        return newer_input(node.files, node.digest) if problem else []

    def resources(self, node: Node) -> Mapping[str, int]:
        return self.plan.resources(node.model, node.stage.uses)

    def planned_artifacts(self) -> list[Node]:
        """The artifacts that the jobs of this run write."""
        wildcards = [job.wildcards for job in self.run.workflow.dag.needrun_jobs()]
        return [self.index.find(one.model, one.name) for one in wildcards if hasattr(one, "name")]

    def job_file(self, **fields: Any) -> str:
        """Write the fields of a `job.Job` to a file and return its path; a dry run only returns the path."""
        job = {"imports": LIBRARIES, "inputs": {}, **{key: value for key, value in fields.items() if value is not None}}
        text = json.dumps(job, separators=(",", ":"), ensure_ascii=False)
        path = SCRATCH / "jobs" / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
        if self.run.writing and not (path.is_file() and path.read_text() == text):  # it may have been edited
            atomic_write_text(path, text)
        return str(path)


class RuleFunctions:
    """The input, params and resource functions of one rule.  ``find`` maps wildcards to a node."""

    def __init__(self, bridge: Bridge, find: Callable[[Any], Node]) -> None:
        self._bridge, self._find = bridge, find

    def input(self, role: str) -> InputFunction:
        return for_users(lambda wildcards: self._bridge.inputs(self._find(wildcards)).get(role, []))

    def inputs_but(self, *roles: str) -> InputFunction:
        @for_users
        def files(wildcards: Any) -> list[str]:
            inputs = self._bridge.inputs(self._find(wildcards))
            return [path for role, paths in inputs.items() if role not in roles for path in paths]

        return files

    @for_users
    def outdated(self, wildcards: Any) -> list[str]:
        return self._bridge.outdated(self._find(wildcards))

    def resource(self, name: str) -> InputFunction:
        """Resource function: threads or one of `RESOURCES` from params.yaml."""
        return for_users(lambda wildcards: self._bridge.resources(self._find(wildcards))[name])

    def job(self, **logs: str) -> InputFunction:
        """Params function: the path of the job file.  ``logs``: patterns of outputs outside the store, by role."""

        @for_users
        def file(wildcards: Any, threads: int, resources: Any) -> str:
            node, bridge = self._find(wildcards), self._bridge
            inputs = {role: [one.path for one in nodes] for role, nodes in node.inputs.items()}
            inputs |= {role: [str(path)] for role, path in node.sources.items()}
            logged = {role: path.format(**wildcards) for role, path in logs.items()}
            fields: dict[str, Any] = {"threads": threads, "gpus": resources.gpu, "submitted": bridge.run.submitted}
            fields["micro_batch_size"] = bridge.resources(node).get("micro_batch_size")
            if node.stage.uses != "cpu" and node.model in bridge.plan.models:
                spec = bridge.plan.models[node.model]
                fields["jobs_per_gpu"] = spec["resources"].get("jobs_per_gpu")
                fields["imports"] = [*family(spec).imports, *LIBRARIES]
            return bridge.job_file(
                recipe=node.recipe,
                inputs=inputs,
                outputs={"provenance" if node.stage.is_result else "artifact": node.path, **logged},
                model=node.model,
                **fields,
            )

        return file


def newer_input(than: Iterable[str], digest: str) -> list[str]:
    """A new file, newer than those files of `than` that exist; an empty list if none exists.

    Snakemake ignores a newer input with a known checksum, so the content is unique.  It also lists each folder only
    once, takes later files for missing and silently skips a job with existing outputs, so the folder is new.
    """
    files = [path for path in map(Path, than) if path.is_file()]
    if not files:
        return []
    marker = SCRATCH / "outdated" / digest_of([*map(str, files), digest]) / "marker"
    marker.parent.mkdir(parents=True, exist_ok=True)
    marker.write_text(f"{files[-1]} {time.time_ns()}\n")
    newest = max(path.lstat().st_mtime for path in files)
    if newest >= marker.stat().st_mtime:  # the clock was ahead; Snakemake warns about it
        os.utime(marker, (newest + 1, newest + 1))
    return [str(marker)]
