"""Jobs on GPUs: how many at once, and what a machine must have."""

from __future__ import annotations

import functools
import subprocess
import sys

from snakemake.exceptions import WorkflowError

from bridge.run import Run
from tallmasks.models import cuda
from tallmasks.plan.planner import Plan


class GpuJobs:
    """What has to be known of GPUs before the first job."""

    def __init__(self, run: Run, plan: Plan) -> None:
        self._run, self._plan = run, plan

    @functools.cached_property
    def _devices(self) -> list[str]:
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
        jobs = [job.wildcards for job in self._run.workflow.dag.needrun_jobs() if hasattr(job.wildcards, "name")]
        nodes = [self._plan.index.find(one.model, one.name) for one in jobs]
        wanted = max((self._plan.resources(node.model, node.stage.uses)["gpu"] for node in nodes), default=0)
        if not wanted:
            return
        limit = self._run.workflow.global_resources.get("gpu")
        if limit is not None and limit.value == 0:  # which Snakemake would make every job's own number
            why = f"--resources gpu=0 leaves none; {cuda.ON_A_CPU}"
        else:
            command = [sys.executable, "-m", cuda.__name__, str(wanted)]
            asked = subprocess.run(command, capture_output=True, text=True, check=False)
            if not asked.returncode:
                return
            why = (asked.stderr.strip().splitlines() or [f"exit status {asked.returncode}"])[-1]
        raise WorkflowError(f"nothing was started, since jobs are to compute on a GPU: {why}")
