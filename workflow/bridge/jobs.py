"""What the rules are written with: artifacts and results as Snakemake sees them.

A path carries its recipe's digest, so Snakemake only asks whether it is there: every input is `ancient`, and an
artifact that exists declares none.  A lost intermediate does not re-run what was made from it.  Files of results/ are
written anew exactly where they are not what they should be.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from snakemake.io import ancient

from bridge.run import InputFunction, Run, check_gpu_limit, for_users
from tallmasks.artifacts.folders import PROVENANCE, SCRATCH
from tallmasks.artifacts.labels import digest_of
from tallmasks.io.atomic_files import atomic_write_text
from tallmasks.models.families import family
from tallmasks.plan.index import Index, closure
from tallmasks.plan.node import STAGES, Node
from tallmasks.plan.params import FILE
from tallmasks.plan.planner import Plan
from tallmasks.plan.project import Results, Store, Vouched
from tallmasks.tasks.catalogues import catalogue

LIBRARIES = ("numpy", "numba", "safetensors", "pandas", "matplotlib.pyplot", "scipy.stats", "scipy.cluster.hierarchy")
"""What jobs on arrays, tables and figures import."""


class StoreJobs:
    """What the rules that make artifacts are written with."""

    def __init__(self, run: Run, plan: Plan, store: Store) -> None:
        self.run, self.plan, self.store, self.index = run, plan, store, Index(plan)
        self._forced: dict[str, bool] = {}

    def resource(self, name: str) -> InputFunction:
        """What params.yaml gives a job: its threads, gpu, mem_mb or runtime; what has no artifact works on arrays."""

        @for_users
        def value(wildcards: Any) -> int:
            artifact = wildcards.get("name")
            uses = self.index.find(wildcards.model, artifact).stage.uses if artifact else "arrays"
            return self.plan.resources(wildcards.model, uses)[name]

        return value

    def input(self, role: str) -> InputFunction:
        """Input function: the files in a role of the artifact that the wildcards name."""
        return for_users(lambda wildcards: self._files(wildcards).get(role, []))

    def inputs_but(self, *roles: str) -> InputFunction:
        """Input function: the files in all other roles."""
        others = lambda files: [path for role, paths in files.items() if role not in roles for path in paths]  # noqa: E731
        return for_users(lambda wildcards: others(self._files(wildcards)))

    def _files(self, wildcards: Any) -> dict[str, list[str]]:
        """A job's inputs by role; none of an artifact that is there, unless all of the DAG is looked at."""
        node = self.index.find(wildcards.model, wildcards.name)
        if not self.run.looking:
            if self.store.there(node) and not self.made_anew(node):
                return {}
            check_gpu_limit(self.run.workflow, self.plan.resources(node.model, node.stage.uses)["gpu"])
        made = {role: self.inputs_of(nodes) for role, nodes in node.inputs.items()}
        return made | {role: ancient([str(path)]) for role, path in node.sources.items()}

    def inputs_of(self, nodes: Iterable[Node]) -> list[str]:
        """Artifacts as a job's inputs: `ancient`, but for what is made anew, so that the job follows from it."""
        return [node.path if self.made_anew(node) or self._is_wrong(node) else ancient(node.path) for node in nodes]

    @for_users
    def stale(self, wildcards: Any) -> list[str]:
        """Input function: a marker where the artifact is there and not right, so that it is made anew."""
        node = self.index.find(wildcards.model, wildcards.name)
        return stale_marker(Path(node.path), node.digest) if self._is_wrong(node) else []

    @for_users
    def lost(self, wildcards: Any) -> list[str]:
        """Input function of a checkpoint: a marker where its artifact is not there.

        Snakemake looks at no marker of the job that waits for a checkpoint; that job runs if the checkpoint's does.
        """
        node = self.index.find(wildcards.model, wildcards.name)
        return [] if self.run.looking or self.store.there(node) else stale_marker(self.plan.root / FILE, node.digest)

    def _is_wrong(self, node: Node) -> bool:
        return not self.run.looking and self.store.wrong(node) is not None

    def made_anew(self, node: Node) -> bool:
        """Whether the user forces the job of an artifact, or one that it follows from."""
        if not self.run.forcing:
            return False
        if node.path not in self._forced:
            inputs = (needed for nodes in node.inputs.values() for needed in nodes)
            self._forced[node.path] = self.run.is_forced(Path(node.path)) or any(map(self.made_anew, inputs))
        return self._forced[node.path]

    def job(self, **logs: str) -> InputFunction:
        """Params function: the file that tells a script to make the artifact that the wildcards name.

        `logs` are what else the job writes, outside the store: patterns of the rule's wildcards, by role.
        """

        @for_users
        def file(wildcards: Any, threads: int, resources: Any) -> str:
            node = self.index.find(wildcards.model, wildcards.name)
            inputs = {role: [needed.path for needed in nodes] for role, nodes in node.inputs.items()}
            inputs |= {role: [str(path)] for role, path in node.sources.items()}
            outputs = {"artifact": node.path} | {role: path.format(**wildcards) for role, path in logs.items()}
            more = {"gpus": resources.gpu, "submitted": self.run.submitted}
            more["micro_batch_size"] = self.plan.resources(node.model, node.stage.uses).get("micro_batch_size")
            if node.stage.uses != "arrays" and node.model in self.plan.models:
                more["jobs_per_gpu"] = self.plan.models[node.model]["resources"].get("jobs_per_gpu", 1)
                more["imports"] = [*family(self.plan.models[node.model]).imports, *LIBRARIES]
            return job_file(self.run, node.recipe, inputs, outputs, threads, node.model, **more)

        return file

    def missing(self, model: str, *kinds: str) -> InputFunction:
        """Input function of what a DVC stage commits: every artifact behind the benchmarks of `model`, or those of some
        kinds, that is not there.  All of them, since DVC would drop from dvc.lock what it does not find.

        Examples that were downloaded are no part of it: DVC does not version them, and only jobs need them.
        """

        @for_users
        def files(wildcards: Any) -> list[str]:
            versioned = catalogue(self.plan.models[model]["tasks"]).versioned
            wanted = set(kinds or STAGES) - (set() if versioned else {"examples"})
            return [
                node.path
                for node in closure(self.plan, model)
                if node.kind in wanted and (self.made_anew(node) or not self.store.there(node))
            ]

        return files

    def needed(self) -> list[Node]:
        """The artifacts that the jobs of this run make."""
        jobs = [job.wildcards for job in self.run.workflow.dag.needrun_jobs() if hasattr(job.wildcards, "name")]
        return [self.index.find(one.model, one.name) for one in jobs]


class ResultJobs:
    """What the rule of one view, figure or table is written with.

    ``find``: the files that a rule's wildcards name; ``checkpoints``: Snakemake's object of that name, for a rule that
    waits for the task orders.
    """

    def __init__(
        self, store: StoreJobs, results: Results, find: Callable[[Any], Vouched], checkpoints: Any = None
    ) -> None:
        self._store, self._results, self._find, self._checkpoints = store, results, find, checkpoints

    @for_users
    def inputs(self, wildcards: Any) -> list[str]:
        """Input function: what they are written from; nothing where they are right, unless all is looked at."""
        written, store = self._find(wildcards), self._store
        if self._results.stale(written) is None and not store.run.looking and not self._forced(written):
            return []
        if written.waits_for:
            self._checkpoints.task_orders.get(model=written.waits_for.model, name=written.waits_for.name)
        nodes = {node.path: node for nodes in written.artifacts.values() for node in nodes}
        for node in nodes.values():
            store.index.add(node)
        # not `ancient`: below a job that has to run, Snakemake looks at nothing else than whether it is
        shown = [str(view.vouching) for view in written.views.values()]
        return store.inputs_of(nodes.values()) + shown + ancient(map(str, written.sources.values()))

    @for_users
    def stale(self, wildcards: Any) -> list[str]:
        """Input function: a marker where the files are there and not right."""
        written = self._find(wildcards)
        return [] if self._results.stale(written) is None else stale_marker(written.folder, written.recipe["digest"])

    @for_users
    def job(self, wildcards: Any, threads: int) -> str:
        """Params function: the file that tells the script to write them."""
        written = self._find(wildcards)
        inputs = {role: [node.path for node in nodes] for role, nodes in written.artifacts.items()}
        inputs |= {role: [str(path)] for role, path in written.sources.items()}
        inputs |= {role: [str(view.vouching)] for role, view in written.views.items()}
        outputs = {"folder": written.folder}
        return job_file(self._store.run, written.recipe, inputs, outputs, threads, wildcards.model)

    def _forced(self, written: Vouched) -> bool:
        """Whether the user forces the job of these files, or one that it follows from."""
        run = self._store.run
        return run.forcing and (
            run.is_forced(written.vouching, written.provenance.removesuffix(PROVENANCE))
            or any(self._store.made_anew(node) for nodes in written.artifacts.values() for node in nodes)
            or any(map(self._forced, written.views.values()))
        )


def stale_marker(what: Path, digest: str) -> list[str]:
    """A file that is newer than a stale file, or the files of a stale folder, with content of its own: Snakemake passes
    over a newer input whose checksum it has seen.

    In a folder of its own: Snakemake lists the folder of an input once, and takes a file that appears there later for
    missing.  Where the job's outputs are there from before, it then leaves out the job without a word.
    """
    files = [path for path in (what.glob("*") if what.is_dir() else [what]) if path.is_file()]
    if not files:
        return []
    marker = SCRATCH / "stale" / digest_of([str(what), digest]) / "marker"
    marker.parent.mkdir(parents=True, exist_ok=True)
    marker.write_text(f"{what} {time.time_ns()}\n")
    newest = max(path.lstat().st_mtime for path in files)
    if newest >= marker.stat().st_mtime:  # of a clock that is ahead, of which Snakemake tells the user
        os.utime(marker, (newest + 1, newest + 1))
    return [str(marker)]


def job_file(
    run: Run,
    recipe: Mapping[str, Any],
    inputs: Mapping[str, Iterable[Path | str]],
    outputs: Mapping[str, Path | str],
    threads: int,
    model: str,
    **more: Any,
) -> str:
    """The path of the file that describes a job; a dry run writes none.  ``more``: other fields of `job.Job`."""
    told = {
        "recipe": recipe,
        "inputs": {role: [str(path) for path in paths] for role, paths in inputs.items()},
        "outputs": {role: str(path) for role, path in outputs.items()},
        "model": model,
        "threads": threads,
        "imports": LIBRARIES,
        **{key: value for key, value in more.items() if value},
    }
    text = json.dumps(told, separators=(",", ":"), ensure_ascii=False)
    path = SCRATCH / "jobs" / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
    if run.writing and not path.exists():
        atomic_write_text(path, text)
    return str(path)
