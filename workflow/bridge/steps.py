"""The nodes of the plan as inputs and parameters of Snakemake rules.

An artifact's path contains the digest of its recipe, so only its existence counts: inputs are `ancient`, and a finished
step declares no inputs.  The DAG is therefore as small as the remaining work, and deleting an intermediate triggers
nothing.  Paths of results contain no digest: outdated results get an input newer than themselves, so they rerun.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from snakemake.exceptions import WorkflowError
from snakemake.io import ancient

from bridge.run import InputFunction, Run, check_gpu_limit, for_users
from tallmasks.artifacts.folders import SCRATCH, set_aside
from tallmasks.artifacts.labels import digest_of
from tallmasks.io.atomic_files import atomic_write_text
from tallmasks.models.families import family
from tallmasks.plan.index import Index, closure
from tallmasks.plan.node import STAGES, Node
from tallmasks.plan.params import FILE
from tallmasks.plan.planner import Plan
from tallmasks.plan.project import Files, damaged_artifacts
from tallmasks.tasks.catalogues import catalogue

LIBRARIES = ("numpy", "numba", "safetensors", "pandas", "matplotlib.pyplot", "scipy.stats", "scipy.cluster.hierarchy")
"""Libraries that the warm Python imports for every job."""


class Steps:
    """The state of a plan's nodes in one run of Snakemake."""

    def __init__(self, run: Run, plan: Plan) -> None:
        self.run, self.plan = run, plan
        self.files, self.index = Files(plan.root), Index(plan)
        self._forced: dict[Node, bool] = {}
        self._has_begun = False

    def begin(self) -> None:
        """Once, before the DAG is built: move damaged artifacts away; a dry run only counts them."""
        if self._has_begun or self.run.submitted or self.run.inspects_dag:
            return
        self._has_begun = True
        damaged = damaged_artifacts()
        if damaged and not self.run.writing:
            print(f"{len(damaged)} damaged artifacts would be moved away, and made again if needed", file=sys.stderr)
        for error in damaged if self.run.writing else ():
            print(f"{error}: {set_aside(error.path)}, and made again if it is needed", file=sys.stderr)

    def is_forced(self, node: Node) -> bool:
        """True if the user forces the step (-f, -F, -R) or any step upstream."""
        if not self.run.forces:
            return False
        if node not in self._forced:
            self._forced[node] = any(map(self.run.is_forced, node.files)) or any(map(self.is_forced, node.all_inputs))
        return self._forced[node]

    def is_done(self, node: Node) -> bool:
        return self.files.there(node) and not self.is_forced(node)

    def inputs(self, node: Node) -> dict[str, list[str]]:
        """The inputs of a step by role; none if the step is done, unless Snakemake only shows the DAG."""
        self.begin()
        if not self.run.inspects_dag:
            if self.is_done(node):
                return {}
            check_gpu_limit(self.run.workflow, self.resources(node)["gpu"])
        inputs = {role: [self._input(one) for one in nodes] for role, nodes in _inputs(node).items()}
        return inputs | {role: [ancient(str(path))] for role, path in node.sources.items()}

    def _input(self, node: Node) -> str:
        """The path of a node, marked `ancient` unless forced, so that a forced job also reruns everything downstream.

        Results are never `ancient`, which would hide from Snakemake that a view must be rewritten.
        """
        self.index.add(node)
        return node.path if node.stage.is_result or self.is_forced(node) else ancient(node.path)

    def outdated(self, node: Node) -> list[str]:
        """An input newer than a node's results if these are outdated."""
        self.begin()
        problem = None if self.run.inspects_dag or not node.stage.is_result else self.files.problem(node)
        return newer_input(node.files, node.digest) if problem else []

    def job(self, node: Node, files: Iterable[str], logs: Mapping[str, str], **fields: Any) -> str:
        """The path of the job file of a step.

        Args:
            files: the inputs of the rule.
            logs: outputs outside the store, by role.
            fields: other fields of `job.Job`.

        Raises WorkflowError if the rule lacks an input of the node.
        """
        inputs = {role: [one.path for one in nodes] for role, nodes in _inputs(node).items()}
        inputs |= {role: [str(path)] for role, path in node.sources.items()}
        files = set(files)
        if not (self.run.inspects_dag or self.is_done(node) or node.late_inputs() is None):
            for role, paths in inputs.items():
                # a file in remote storage has a longer path
                missing = {path for path in set(paths) - files if not any(file.endswith(path) for file in files)}
                if missing:
                    raise WorkflowError(f"the rule of {node.kind} has no input for the role {role}: {min(missing)}")
        outputs = {"provenance" if node.stage.is_result else "artifact": node.path, **logs}
        return job_file(self.run, recipe=node.recipe, inputs=inputs, outputs=outputs, model=node.model, **fields)

    def resources(self, node: Node) -> Mapping[str, int]:
        return self.plan.resources(node.model, node.stage.uses)

    def planned(self) -> list[Node]:
        """The artifacts that the jobs of this run write."""
        wildcards = [job.wildcards for job in self.run.workflow.dag.needrun_jobs()]
        return [self.index.find(one.model, one.name) for one in wildcards if hasattr(one, "name")]

    def missing(self, model: str, *kinds: str) -> InputFunction:
        """Input function of a DVC stage: missing artifacts of the given stages (default: all) for a model's benchmarks.

        All must exist, because DVC removes missing files from dvc.lock.  Downloaded examples are not versioned.
        """

        @for_users
        def files(wildcards: Any) -> list[str]:
            self.begin()
            versioned = catalogue(self.plan.models[model]["tasks"]).versioned
            wanted = set(kinds or STAGES) - (set() if versioned else {"examples"})
            nodes = closure(self.plan, model)
            return [node.path for node in nodes if node.kind in wanted and not self.is_done(node)]

        return files


class RuleFunctions:
    """The input, params and resource functions of one rule.

    ``find`` maps wildcards to a node.  ``checkpoints``: Snakemake's object, for a rule that waits for the task orders.
    """

    def __init__(self, steps: Steps, find: Callable[[Any], Node], checkpoints: Any = None) -> None:
        self._steps, self._find, self._checkpoints = steps, find, checkpoints

    def input(self, role: str) -> InputFunction:
        return for_users(lambda wildcards: self._steps.inputs(self._find(wildcards)).get(role, []))

    def inputs_but(self, *roles: str) -> InputFunction:
        @for_users
        def files(wildcards: Any) -> list[str]:
            node = self._find(wildcards)
            inputs = self._steps.inputs(node)
            if inputs and self._checkpoints and node.late_inputs() is None:
                (orders,) = node.inputs["orders"]
                self._checkpoints.task_orders.get(model=orders.model, name=orders.name)
            return [path for role, paths in inputs.items() if role not in roles for path in paths]

        return files

    @for_users
    def outdated(self, wildcards: Any) -> list[str]:
        return self._steps.outdated(self._find(wildcards))

    @for_users
    def orders_missing(self, wildcards: Any) -> list[str]:
        """Input function of the checkpoint: forces it to run if its artifact is missing.

        The rule that waits for a checkpoint runs only if the checkpoint runs, whatever its other inputs.
        """
        node = self._find(wildcards)
        is_missing = not self._steps.run.inspects_dag and not self._steps.files.there(node)
        return newer_input([str(FILE)], node.digest) if is_missing else []

    def resource(self, name: str) -> InputFunction:
        """Resource function: threads, gpu, mem_mb or runtime from params.yaml."""
        return for_users(lambda wildcards: self._steps.resources(self._find(wildcards))[name])

    def job(self, **logs: str) -> InputFunction:
        """Params function: the path of the job file.  ``logs``: patterns of outputs outside the store, by role."""

        @for_users
        def file(wildcards: Any, input: Any, threads: int, resources: Any) -> str:
            node, steps = self._find(wildcards), self._steps
            fields: dict[str, Any] = {"threads": threads, "gpus": resources.gpu, "submitted": steps.run.submitted}
            fields["micro_batch_size"] = steps.resources(node).get("micro_batch_size")
            if node.stage.uses != "arrays" and node.model in steps.plan.models:
                spec = steps.plan.models[node.model]
                fields["jobs_per_gpu"] = spec["resources"].get("jobs_per_gpu", 1)
                fields["imports"] = [*family(spec).imports, *LIBRARIES]
            outputs = {role: path.format(**wildcards) for role, path in logs.items()}
            return steps.job(node, map(str, input), outputs, **fields)

        return file


def _inputs(node: Node) -> dict[str, list[Node]]:
    return {role: list(nodes) for role, nodes in {**node.inputs, **(node.late_inputs() or {})}.items()}


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


def job_file(run: Run, **fields: Any) -> str:
    """Write the fields of a `job.Job` to a file and return its path; a dry run only returns the path."""
    job = {"imports": LIBRARIES, **{key: value for key, value in fields.items() if value}}
    job |= {"recipe": fields["recipe"], "inputs": fields.get("inputs", {}), "outputs": fields["outputs"]}
    text = json.dumps(job, separators=(",", ":"), ensure_ascii=False)
    path = SCRATCH / "jobs" / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
    if run.writing and not path.exists():
        atomic_write_text(path, text)
    return str(path)
