"""What the rules of workflow/rules/ are written with: the plan's artifacts and results as Snakemake sees them.

The path of an artifact carries its recipe's digest, so Snakemake only asks whether it is there: inputs are `ancient`,
and a step whose files are there and right declares none.  So the DAG is as small as the work to do, and a lost
intermediate re-runs nothing that was made from it.  Damaged artifacts are moved away before the DAG is built.  Results
have no digest in their paths: results of another recipe get a newer input, so that Snakemake makes them again.
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
"""What jobs on arrays, tables and figures import."""


class Steps:
    """The nodes of a plan in one run of Snakemake."""

    def __init__(self, run: Run, plan: Plan) -> None:
        self.run, self.plan = run, plan
        self.files, self.index = Files(plan.root), Index(plan)
        self._forced: dict[Node, bool] = {}
        self._has_begun = False

    def begin(self) -> None:
        """Move damaged artifacts away before the DAG is built, so that they are missing; a dry run only counts them."""
        if self._has_begun or self.run.submitted or self.run.inspects_dag:
            return
        self._has_begun = True
        damaged = damaged_artifacts()
        if damaged and not self.run.writing:
            print(f"{len(damaged)} damaged artifacts would be moved away, and made again if needed", file=sys.stderr)
        for one in damaged if self.run.writing else ():
            print(f"{one}: {set_aside(one.path)}, and made again if it is needed", file=sys.stderr)

    def is_forced(self, node: Node) -> bool:
        """Whether the user forces the step (-f, -F, -R), or one that it follows from."""
        if not self.run.forces:
            return False
        if node not in self._forced:
            self._forced[node] = any(map(self.run.is_forced, node.files)) or any(map(self.is_forced, node.all_inputs))
        return self._forced[node]

    def is_done(self, node: Node) -> bool:
        """Whether a step has nothing to do."""
        return self.files.there(node) and not self.is_forced(node)

    def inputs(self, node: Node) -> dict[str, list[str]]:
        """The inputs of a step by role; none of one with nothing to do, unless the whole DAG is inspected."""
        self.begin()
        if not self.run.inspects_dag:
            if self.is_done(node):
                return {}
            check_gpu_limit(self.run.workflow, self.plan.resources(node.model, node.stage.uses)["gpu"])
        inputs = {role: [self._input(one) for one in nodes] for role, nodes in _inputs(node).items()}
        return inputs | {role: [ancient(str(path))] for role, path in node.sources.items()}

    def _input(self, node: Node) -> str:
        """A node as an input: `ancient`, but for what is made anew, so that what follows from it is made anew too.

        Results never are: of an ancient input of a job that has to run, Snakemake only asks whether it is there.
        """
        self.index.add(node)
        return node.path if node.stage.is_result or self.is_forced(node) else ancient(node.path)

    def outdated(self, node: Node) -> list[str]:
        """Of results that are there and not right: an input that is newer."""
        self.begin()
        problem = None if self.run.inspects_dag or not node.stage.is_result else self.files.problem(node)
        return newer_input(node.files, node.digest) if problem else []

    def job(self, node: Node, threads: int, given: Iterable[str] = (), **fields: Any) -> str:
        """The path of the file that describes a step to its script.

        ``given``: the files that the rule has as inputs; ``fields``: further fields of `job.Job`.
        """
        inputs = {role: [one.path for one in nodes] for role, nodes in _inputs(node).items()}
        inputs |= {role: [str(path)] for role, path in node.sources.items()}
        files = set(given)
        if not (self.run.inspects_dag or self.is_done(node) or node.late_inputs() is None):
            for role, paths in inputs.items():
                lacking = {
                    path for path in set(paths).difference(files) if not any(one.endswith(path) for one in files)
                }
                if lacking:  # a file in a storage has a longer path
                    raise WorkflowError(f"the rule of {node.kind} has no input for the role {role}: {min(lacking)}")
        fields["outputs"] = {"provenance" if node.stage.is_result else "artifact": node.path} | fields.pop(
            "outputs", {}
        )
        return job_file(self.run, recipe=node.recipe, inputs=inputs, model=node.model, threads=threads, **fields)

    def resources(self, node: Node) -> Mapping[str, int]:
        """What params.yaml gives a step: its threads, gpu, mem_mb and runtime."""
        return self.plan.resources(node.model, node.stage.uses)

    def planned(self) -> list[Node]:
        """The artifacts that the jobs of this run make."""
        jobs = [job.wildcards for job in self.run.workflow.dag.needrun_jobs() if hasattr(job.wildcards, "name")]
        return [self.index.find(one.model, one.name) for one in jobs]

    def missing(self, model: str, *kinds: str) -> InputFunction:
        """Input function of what a DVC stage commits: every artifact behind the benchmarks of `model`, or those of some
        kinds, that is not there.  All of them, since DVC would drop from dvc.lock what it does not find.

        Examples that were downloaded are no part of it: DVC does not version them, and only jobs need them.
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
    """The functions that one rule is written with.

    ``find``: the node that a rule's wildcards name; ``checkpoints``: Snakemake's object of that name, for a rule that
    waits for the task orders.
    """

    def __init__(self, steps: Steps, find: Callable[[Any], Node], checkpoints: Any = None) -> None:
        self._steps, self._find, self._checkpoints = steps, find, checkpoints

    def input(self, role: str) -> InputFunction:
        """Input function: the files in a role."""
        return for_users(lambda wildcards: self._steps.inputs(self._find(wildcards)).get(role, []))

    def inputs_but(self, *roles: str) -> InputFunction:
        """Input function: the files in all other roles."""

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
        """Input function: see `Steps.outdated`."""
        return self._steps.outdated(self._find(wildcards))

    @for_users
    def orders_missing(self, wildcards: Any) -> list[str]:
        """Input function of the checkpoint: a newer file where its artifact is not there, so that it runs.

        The rule that waits for a checkpoint runs if the checkpoint does, and else not, whatever its other inputs are.
        """
        node = self._find(wildcards)
        lost = not self._steps.run.inspects_dag and not self._steps.files.there(node)
        return newer_input([str(FILE)], node.digest) if lost else []

    def resource(self, name: str) -> InputFunction:
        """What params.yaml gives a job: its threads, gpu, mem_mb or runtime."""
        return for_users(lambda wildcards: self._steps.resources(self._find(wildcards))[name])

    def job(self, **logs: str) -> InputFunction:
        """Params function: the file that tells a script what to do.

        ``logs``: what else the job of an artifact writes, outside the store: patterns of the rule's wildcards, by role.
        """

        @for_users
        def file(wildcards: Any, input: Any, threads: int, resources: Any) -> str:
            node, steps = self._find(wildcards), self._steps
            fields: dict[str, Any] = {"gpus": resources.gpu, "submitted": steps.run.submitted}
            fields["outputs"] = {role: path.format(**wildcards) for role, path in logs.items()}
            fields["micro_batch_size"] = steps.resources(node).get("micro_batch_size")
            if node.stage.uses != "arrays" and node.model in steps.plan.models:
                spec = steps.plan.models[node.model]
                fields["jobs_per_gpu"] = spec["resources"].get("jobs_per_gpu", 1)
                fields["imports"] = [*family(spec).imports, *LIBRARIES]
            return steps.job(node, threads, map(str, input), **fields)

        return file


def _inputs(node: Node) -> dict[str, list[Node]]:
    """The inputs of a node by role, with the late ones that are known."""
    return {role: list(nodes) for role, nodes in {**node.inputs, **(node.late_inputs() or {})}.items()}


def newer_input(than: Iterable[str], digest: str) -> list[str]:
    """A file that is newer than some files that are there, with content of its own: Snakemake passes over a newer input
    whose checksum it has seen.

    In a folder of its own: Snakemake lists the folder of an input once, and takes a file that appears there later for
    missing.  Where the job's outputs are there from before, it then leaves out the job without a word.
    """
    files = [path for path in map(Path, than) if path.is_file()]
    if not files:
        return []
    marker = SCRATCH / "outdated" / digest_of([*map(str, files), digest]) / "marker"
    marker.parent.mkdir(parents=True, exist_ok=True)
    marker.write_text(f"{files[-1]} {time.time_ns()}\n")
    newest = max(path.lstat().st_mtime for path in files)
    if newest >= marker.stat().st_mtime:  # of a clock that is ahead, of which Snakemake tells the user
        os.utime(marker, (newest + 1, newest + 1))
    return [str(marker)]


def job_file(run: Run, **fields: Any) -> str:
    """The path of the file with the fields of a `job.Job`; a dry run writes none."""
    described = {"imports": LIBRARIES, **{key: value for key, value in fields.items() if value}}
    described |= {"recipe": fields["recipe"], "inputs": fields.get("inputs", {}), "outputs": fields["outputs"]}
    text = json.dumps(described, separators=(",", ":"), ensure_ascii=False)
    path = SCRATCH / "jobs" / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
    if run.writing and not path.exists():
        atomic_write_text(path, text)
    return str(path)
