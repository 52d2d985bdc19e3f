"""Artifacts of the store as Snakemake sees them.

Snakemake has one question left here, "is it there?", since a store path carries its recipe's digest.  So every input is
`ancient`: file times decide nothing.  An artifact that exists declares no inputs: the DAG is as small as the work to
do.  A lost intermediate does not re-run what was made from it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from snakemake.exceptions import WorkflowError
from snakemake.io import ancient

from bridge.gpu_jobs import GpuJobs
from bridge.jobs import Jobs, files_of
from bridge.run import InputFunction, Run, for_users, stale_marker
from tallmasks.models.families import family
from tallmasks.plan import preflight
from tallmasks.plan.node import STAGES, Node
from tallmasks.plan.planner import Plan
from tallmasks.plan.project import Store
from tallmasks.store.folders import set_aside
from tallmasks.tasks.catalogues import catalogue


class StoreJobs:
    """What the rules that make artifacts are written with; every stage by its name."""

    def __init__(self, run: Run, plan: Plan, store: Store) -> None:
        self.run, self.plan, self.store = run, plan, store
        self.gpus = GpuJobs(run, plan)
        self.jobs = Jobs(run)
        self._forced: dict[str, bool] = {}
        self._from_outside: dict[str, Node] = {}

    @staticmethod
    def names(stage: str) -> str:
        """A rule's constraint of `name`, where several stages share a folder."""
        return STAGES[stage].constraint or "[^/]+-[0-9a-f]{12}"

    def resource(self, name: str) -> InputFunction:
        """What params.yaml gives a job: its threads, gpu, mem_mb or runtime; what has no artifact works on arrays."""

        @for_users
        def value(wildcards: Any) -> int:
            artifact = wildcards.get("name")
            uses = self.plan.index.find(wildcards.model, artifact).stage.uses if artifact else "arrays"
            return self.plan.resources(wildcards.model, uses)[name]

        return value

    def inputs(self, kind: str) -> InputFunction:
        """Input function of the rule that makes `kind`: the files of each role, as named inputs."""

        @for_users
        def files_by_role(wildcards: Any) -> dict[str, Any]:
            node = self.plan.index.find(wildcards.model, wildcards.name, kind)
            wrong = None if self.run.looking else self.store.wrong(node)
            if self.run.pruned and self.store.there(node) and not self.made_anew(node):
                return {}
            self.gpus.share(node.model)
            if node.model in self.plan.models:  # or it is a catalogue's
                self.jobs.will_import(family(self.plan.models[node.model]).imports)
            if node.stage.missing:
                self._from_outside[node.path] = node
            made = {role: self.inputs_of(nodes) for role, nodes in node.inputs.items()}
            files = made | {role: ancient([str(path)]) for role, path in node.sources.items()}
            return files | (self._put_away(node, wrong) if wrong else {})

        return files_by_role

    def inputs_of(self, nodes: Iterable[Node]) -> list[str]:
        """Artifacts as a job's inputs: `ancient`, but for what is made anew, so that the job follows from it: Snakemake
        does not look at the marker of a job below one that has to run."""
        return [node.path if self.made_anew(node) or self._is_wrong(node) else ancient(node.path) for node in nodes]

    def _is_wrong(self, node: Node) -> bool:
        return not self.run.looking and self.store.wrong(node) is not None

    def made_anew(self, node: Node) -> bool:
        """Whether the user forces (-f, -F, -R) the job of an artifact, or one that it follows from."""
        if not self.run.forcing:
            return False
        if node.path not in self._forced:
            inputs = (needed for nodes in node.inputs.values() for needed in nodes)
            self._forced[node.path] = self.run.is_forced(Path(node.path)) or any(map(self.made_anew, inputs))
        return self._forced[node.path]

    def _put_away(self, node: Node, wrong: str) -> dict[str, Any]:
        """Make room for an artifact that is there and has to be made anew; in a dry run, an input that says so."""
        if not self.run.writing:
            return {"stale": stale_marker(Path(node.path), node.digest, [Path(node.path)])}
        if done := set_aside(Path(node.path)):
            print(f"{wrong}: {done}, and made again", file=sys.stderr)
        return {}

    def command(self, **logs: str) -> InputFunction:
        """Params function: the shell words that run a stage's script on the node which a rule's wildcards name.

        `logs` are what else the job writes, outside the store: patterns of the rule's wildcards, by role.
        """

        @for_users
        def words(wildcards: Any, threads: int, resources: Any) -> str:
            node = self.plan.index.find(wildcards.model, wildcards.name)
            outputs = {"artifact": node.path} | {role: path.format(**wildcards) for role, path in logs.items()}
            warm = node.stage.uses != "arrays"
            at_once = self.plan.resources(node.model, node.stage.uses).get("micro_batch_size")
            what = node.stage.script, node.recipe, files_of(node), outputs
            return self.jobs.words(*what, threads, node.model, resources.gpu, warm, at_once)

        return words

    def pretraining(self, model: str) -> InputFunction:
        """Params function: the shell words that pretrain `model` anew, in place of the weights that ship with it."""

        @for_users
        def words(wildcards: Any, threads: int) -> str:
            recipe, output = self.plan.pretraining(model)
            return self.jobs.words("pretrain", recipe, {}, {"weights": output}, threads, model)

        return words

    def check_sources(self) -> None:
        """Before the first job: stop with one message for each dataset and model that cannot be had."""
        if problems := preflight.unavailable(self._from_outside.values()):
            raise WorkflowError("\n".join(["nothing was started, since it is not all on this machine:", *problems]))

    def missing(self, model: str, *kinds: str) -> InputFunction:
        """Input function of what a DVC stage commits: every artifact behind the benchmarks of `model`, or those of some
        kinds, that is not there.  All of them, since DVC would drop from dvc.lock what it does not find.

        Examples that were downloaded are no part of it: DVC does not version them, and only jobs need them.
        """

        @for_users
        def files(wildcards: Any) -> list[str]:
            _ = self.run.pruned
            versioned = catalogue(self.plan.models[model]["tasks"]).versioned
            wanted = set(kinds or STAGES) - (set() if versioned else {"examples"})
            return [
                node.path
                for node in self.plan.index.closure(model)
                if node.kind in wanted and (self.made_anew(node) or not self.store.there(node))
            ]

        return files
