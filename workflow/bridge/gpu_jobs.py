"""Jobs on GPUs: how many at once, and what a machine must have."""

from __future__ import annotations

import functools
from typing import Any

from snakemake.exceptions import WorkflowError

from bridge.run import Run
from tallmasks.models import cuda
from tallmasks.plan.planner import Plan
from tallmasks.store.errors import TallmasksError


class GpuJobs:
    """What has to be known of GPUs before the first job."""

    def __init__(self, run: Run, plan: Plan) -> None:
        self._run, self._plan = run, plan

    @functools.cached_property
    def _devices(self) -> list[cuda.Device]:
        return cuda.usable()

    def share(self, model: str) -> None:
        """Let jobs share as many GPUs as there are, where the user gave no number: a job that waits for a lease would
        hold its cores.

        Asked while the DAG is built, since Snakemake takes no limit later, and for models that use GPUs alone.
        """
        uses = any(self._plan.resources(model, step)["gpu"] for step in ("evaluation", "finetuning"))
        if uses and self._run.leases and "gpu" not in self._run.workflow.global_resources and self._devices:
            self._run.workflow.register_resource("gpu", len(self._devices))

    def check(self) -> None:
        """Before the first job, and so before anything is downloaded: stop where a job cannot compute on a GPU."""
        if not self._run.leases:
            return
        limit = self._run.workflow.global_resources.get("gpu")
        none_allowed = limit is not None and limit.value == 0  # which leaves no job one that asks for one
        jobs = [job for job in self._run.workflow.dag.needrun_jobs() if hasattr(job.wildcards, "name")]
        wanted = max((self._wanted_by(job) for job in jobs if job.resources.get("gpu", 0) or none_allowed), default=0)
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

    def _wanted_by(self, job: Any) -> int:
        """The GPUs that params.yaml gives a job of the store."""
        node = self._plan.index.find(job.wildcards.model, job.wildcards.name)
        return self._plan.resources(node.model, node.stage.uses)["gpu"]
