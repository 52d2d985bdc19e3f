"""Connects Snakemake to the plan: the functions that the rules call."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from snakemake.exceptions import WorkflowError
from snakemake.logging import logger

from bridge import run
from bridge.output import report_interruption, report_progress
from bridge.run import InputFunction, Run, for_users
from bridge.steps import RuleFunctions, Steps, job_file, newer_input
from tallmasks.artifacts.folders import RESULTS, SCRATCH, STORE
from tallmasks.plan import preflight
from tallmasks.plan.node import STAGES
from tallmasks.plan.params import FILE, from_command_line, overridden, read_params
from tallmasks.plan.planner import Plan


def configuration(workflow: Any) -> dict[str, Any]:
    """params.yaml, updated from `--configfile` and `--config`; replaces Snakemake's `configfile:`.

    Snakemake's YAML reader evaluates `__use_yte__`, accepts duplicate keys and follows recursive references, so this
    also reads the files of `--configfile` again.
    """
    settings = workflow.config_settings
    files = [*([] if settings.replace_workflow_config else [FILE]), *settings.configfiles]
    if FILE in files:
        workflow.configfiles.append(FILE)  # for Snakemake's report
    layers = [read_params(file) for file in files]
    return functools.reduce(overridden, [*layers, from_command_line(settings.config)])


class Bridge:
    def __init__(self, workflow: Any, plan: Plan) -> None:
        self.plan, self.steps = plan, Steps(Run(workflow), plan)
        self.artifact = RuleFunctions(
            self.steps, lambda wildcards: self.steps.index.find(wildcards.model, wildcards.name)
        )
        """Functions of the rules for artifacts of the store."""

    def view(self, name: str, checkpoints: Any = None) -> RuleFunctions:
        """Functions of the rule for a view of a benchmark."""
        find = lambda wildcards: STAGES[name](self.plan, wildcards.model, wildcards.benchmark)  # noqa: E731
        return RuleFunctions(self.steps, find, checkpoints)

    def drawing(self, kind: str, name: str) -> RuleFunctions:
        """Functions of the rule for a figure (kind "figure") or a table of the paper (kind "paper_table")."""
        return RuleFunctions(self.steps, lambda wildcards: STAGES[kind](self.plan, wildcards.model, name))

    def tables(self, models: Iterable[str]) -> list[str]:
        """The tables of all benchmarks of some models."""
        return [f"results/{model}/{name}/table.csv" for model in models for name in self.plan.benchmarks(model)]

    def shown(self, kind: str, names: Iterable[str]) -> InputFunction:
        """Input function of a target: the provenance files of the views behind some drawings of the built models."""

        @for_users
        def files(wildcards: Any) -> list[str]:
            drawings = [STAGES[kind](self.plan, model, name) for model in self.plan.params["build"] for name in names]
            return sorted({view.path for drawing in drawings for view in drawing.all_inputs})

        return files

    def arrays(self, name: str) -> InputFunction:
        """Resource function: a value of the model's `resources.arrays` in params.yaml."""
        return for_users(lambda wildcards: self.plan.resources(wildcards.model, "arrays")[name])

    @for_users
    def about(self, wildcards: Any, threads: int) -> str:
        """Params function: the job file for about.py."""
        outputs = {"provenance": f"results/{wildcards.model}/report/provenance.html"}
        recipe = {"params": {"model": wildcards.model}}
        return job_file(self.steps.run, recipe=recipe, outputs=outputs, threads=threads, model=wildcards.model)

    @staticmethod
    @for_users
    def always(wildcards: Any) -> list[str]:
        """Input function of the report pages: a file newer than all of them, so that every report rewrites them."""
        return newer_input(map(str, Path("results", wildcards.model, "report").glob("*")), "always")


@for_users
def begin(workflow: Any) -> tuple[dict[str, Any], Bridge]:
    """The configuration and the bridge; exits with one line if params.yaml is wrong or a folder is not writable."""
    for folder in (SCRATCH, Path(".snakemake"), RESULTS):
        run.check_room(folder)
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
    for folder in (RESULTS / model for model in plan.models):
        if folder.exists():
            run.check_room(folder)
    return params, Bridge(workflow, plan)


@for_users
def before_first_job(workflow: Any, steps: Steps) -> None:
    """`onstart` of the Snakemake process that the user called."""
    if steps.run.submitted:
        return
    run.check_settings(workflow)
    run.be_the_only_writer(workflow)
    report_progress(logger)
    report_interruption()
    if needed := steps.planned():
        run.check_room(STORE)
    if workflow.local_exec:
        run.check_gpus(max((steps.resources(node)["gpu"] for node in needed), default=0))
    if workflow.executor_plugin.name == "slurm":
        run.check_slurm(workflow, steps.plan.params["longest_job"])
    if problems := preflight.unavailable(needed):
        raise WorkflowError("\n".join(["nothing was started, since it is not all on this machine:", *problems]))
    run.date_now({Path(file) for job in workflow.dag.needrun_jobs() for file in job.input})
    if workflow.local_exec and needed:
        run.start_warm_python()
