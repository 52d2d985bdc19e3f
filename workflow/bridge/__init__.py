"""Between Snakemake and the plan: what the rules of workflow/rules/ are written with."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from snakemake.exceptions import WorkflowError

from bridge import run
from bridge.jobs import ResultJobs, StoreJobs, job_file, stale_marker
from bridge.run import InputFunction, Run, for_users
from tallmasks.artifacts.folders import RESULTS, SCRATCH, STORE, set_aside
from tallmasks.plan import preflight
from tallmasks.plan.params import FILE, from_command_line, overridden, read_params
from tallmasks.plan.planner import Plan
from tallmasks.plan.project import Results, Store


def configuration(workflow: Any) -> dict[str, Any]:
    """params.yaml with what `--configfile` and `--config` override, in the place of Snakemake's own `configfile:`.

    Snakemake's reader evaluates `__use_yte__`, takes the last of two values of one key, and follows references without
    end.  What it read of `--configfile` is read again here.
    """
    settings = workflow.config_settings
    files = [*([] if settings.replace_workflow_config else [FILE]), *settings.configfiles]
    if FILE in files:
        workflow.configfiles.append(FILE)  # for Snakemake's report
    layers = [read_params(file) for file in files]
    return functools.reduce(overridden, [*layers, from_command_line(settings.config)])


class Bridge:
    """What rules are written with."""

    def __init__(self, workflow: Any, plan: Plan) -> None:
        self.plan, self.store = plan, StoreJobs(Run(workflow), plan, Store())
        self._results = Results(plan, self.store.store)

    def view(self, name: str, checkpoints: Any = None) -> ResultJobs:
        """The functions of the rule that writes a view."""
        find = lambda wildcards: self._results.view(name, wildcards.model, wildcards.benchmark)  # noqa: E731
        return ResultJobs(self.store, self._results, find, checkpoints)

    def drawing(self, kind: str, name: str) -> ResultJobs:
        """The functions of the rule that draws a figure ("figure") or writes a table of the paper ("paper_table")."""
        find = lambda wildcards: self._results.drawing(kind, wildcards.model, name)  # noqa: E731
        return ResultJobs(self.store, self._results, find)

    @property
    def arrays(self) -> dict[str, Any]:
        """The `resources` of a rule that makes no artifact."""
        return {"gpu": 0, "mem_mb": self.store.resource("mem_mb"), "runtime": self.store.resource("runtime")}

    def tables(self, models: Iterable[str]) -> list[str]:
        """The table of every benchmark that `models` have the tasks of."""
        return [f"results/{model}/{name}/table.csv" for model in models for name in self.plan.benchmarks(model)]

    def shown(self, kind: str, names: Iterable[str]) -> InputFunction:
        """Input function of a target: a file of each view that some drawings of the built models show."""

        @for_users
        def files(wildcards: Any) -> list[str]:
            drawn = [self._results.drawing(kind, model, name) for model in self.plan.params["build"] for name in names]
            return sorted({str(view.vouching) for one in drawn for view in one.views.values()})

        return files

    @for_users
    def about(self, wildcards: Any, threads: int) -> str:
        """Params function: the file that tells a script to write what a report says of a model as a whole."""
        outputs = {"folder": Path("results", wildcards.model, "report")}
        return job_file(self.store.run, {"params": {"model": wildcards.model}}, {}, outputs, threads, wildcards.model)

    @staticmethod
    @for_users
    def always(wildcards: Any) -> list[str]:
        """Input function of what is to be made anew whenever it is asked for: a file that is newer than any other."""
        return stale_marker(Path("results", wildcards.model, "report"), "always")


@for_users
def begin(workflow: Any) -> tuple[dict[str, Any], Bridge]:
    """The configuration and the bridge of the Snakefile that is being read.

    A project that cannot be written and wrong parameters end Snakemake here, in one line.
    """
    for folder in (SCRATCH, Path(".snakemake"), RESULTS):
        run.check_room(folder)
    # jobs run with the Python of this Snakemake, also where no environment is active
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    # glibc would hand large buffers back to the kernel and fetch them again: a quarter of a training's time
    kept = {"MMAP_THRESHOLD": 32 << 20, "TRIM_THRESHOLD": (1 << 31) - 1, "TOP_PAD": 256 << 20}
    os.environ |= {f"MALLOC_{name}_": str(value) for name, value in kept.items()}
    if not workflow.is_main_process:  # submitted to a cluster: it has no `onstart`
        run.start_warm_python()
    params = configuration(workflow)
    plan = Plan(params)
    for model in params["build"]:
        plan.model(model)
    for folder in (RESULTS / model for model in plan.models):
        if folder.exists():
            run.check_room(folder)
    return params, Bridge(workflow, plan)


@for_users
def before_first_job(workflow: Any, store: StoreJobs) -> None:
    """What the Snakemake that the user called does once, before its first job."""
    if store.run.submitted:
        return
    run.check_settings(workflow)
    run.be_the_only_writer(workflow)
    if needed := store.needed():
        run.check_room(STORE)
    if workflow.local_exec:
        run.check_gpus(max((store.plan.resources(n.model, n.stage.uses)["gpu"] for n in needed), default=0))
    if workflow.executor_plugin.name == "slurm":
        run.check_slurm(workflow, store.plan.params["longest_job"])
    if problems := preflight.unavailable(needed):
        raise WorkflowError("\n".join(["nothing was started, since it is not all on this machine:", *problems]))
    for node in needed:
        if (wrong := store.store.wrong(node)) and (done := set_aside(Path(node.path))):
            print(f"{wrong}: {done}, and made again", file=sys.stderr)
    run.date_now({Path(file) for job in workflow.dag.needrun_jobs() for file in job.input})
    if workflow.local_exec and needed:
        run.start_warm_python()
