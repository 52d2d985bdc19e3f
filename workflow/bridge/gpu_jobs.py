"""Jobs on GPUs: how many at once, what a machine must have, and what one job may make for others."""

from __future__ import annotations

import functools
import json
import shutil
from pathlib import Path

from snakemake.exceptions import WorkflowError

from bridge.jobs import files_of, told_of
from bridge.run import Run
from tallmasks.models import cuda
from tallmasks.plan.node import Node
from tallmasks.plan.planner import Plan
from tallmasks.store.errors import TallmasksError
from tallmasks.store.folders import SCRATCH

TOGETHER = frozenset({"head", "task_evaluation", "grams", "fisher"})
"""Stages of which one job on a GPU makes several artifacts: loading the model takes as long as their work."""


class GpuJobs:
    """What has to be known of GPUs before the first job."""

    def __init__(self, run: Run, plan: Plan) -> None:
        self._run, self._plan = run, plan
        self._alike: dict[tuple[str, str], list[Node]] = {}
        self._gpus_of: dict[str, int] = {}

    def will_make(self, node: Node) -> None:
        """Take notice of an artifact that a job is planned for."""
        self._count(node.model)
        if node.kind in TOGETHER:
            self._alike.setdefault((node.kind, node.model), []).append(node)

    def will_use(self, model: str, gpus: int) -> None:
        """Take notice of what a job asks for."""
        self._gpus_of[model] = max(gpus, self._gpus_of.get(model, 0))

    def ahead_of(self, kind: str, model: str, gpus: int) -> Path | None:
        """The file that says what else a job of a stage may make, if it may."""
        return _ahead(kind, model) if kind in TOGETHER and gpus and self._run.leases else None

    @functools.cached_property
    def _devices(self) -> list[cuda.Device]:
        return cuda.usable()

    def _count(self, model: str) -> None:
        """Let jobs share as many GPUs as there are, where the user gave no number: a job that waits for a lease would
        hold its cores.

        Asked while the DAG is built, since Snakemake takes no limit later, and for models that use GPUs alone.
        """
        uses = any(self._plan.resources(model, step)["gpu"] for step in ("evaluation", "finetuning"))
        if uses and self._run.leases and "gpu" not in self._run.workflow.global_resources and self._devices:
            self._run.workflow.register_resource("gpu", len(self._devices))

    def write_ahead(self) -> None:
        """Before the first job: what jobs of one stage that use a GPU are to make, so that one of them may make more
        than its own (workflow/runner/ahead.py)."""
        if not self._run.leases:
            return
        shutil.rmtree(SCRATCH / "ahead", ignore_errors=True)  # of an earlier run, whose inputs may have been others
        for (kind, model), nodes in self._alike.items():
            if self._plan.resources(model, "evaluation")["gpu"]:
                path = _ahead(kind, model)
                path.parent.mkdir(parents=True, exist_ok=True)
                jobs = [told_of(node.recipe, files_of(node), {"artifact": node.path}, node.model) for node in nodes]
                path.write_text(json.dumps(jobs))

    def check(self) -> None:
        """Before the first job, and so before anything is downloaded: stop where a job cannot compute on a GPU."""
        if not self._run.leases:
            return
        limit = self._run.workflow.global_resources.get("gpu")
        none_allowed = limit is not None and limit.value == 0
        jobs = [job for job in self._run.workflow.dag.needrun_jobs() if job.resources.get("gpu", 0) or none_allowed]
        wanted = max((self._gpus_of.get(getattr(job.wildcards, "model", ""), 0) for job in jobs), default=0)
        if not wanted:
            return
        try:
            if none_allowed:
                raise TallmasksError(f"--resources gpu=0 leaves none, {cuda.ON_A_CPU}")
            devices = cuda.enough(wanted)
            if why := cuda.refusal(cuda.elsewhere(",".join(device.uuid for device in devices))):
                raise TallmasksError(why)
        except TallmasksError as error:
            raise WorkflowError(f"nothing was started, since jobs are to compute on a GPU: {error}") from None


def _ahead(kind: str, model: str) -> Path:
    return SCRATCH / "ahead" / f"{model}-{kind}.json"
