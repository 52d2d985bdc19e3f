"""Between Snakemake and the plan: what the rules of workflow/rules/ are written with."""

from __future__ import annotations

import functools
import logging
import signal
import sys
from dataclasses import dataclass
from typing import Any

from snakemake.exceptions import WorkflowError

from bridge.result_jobs import DrawingJobs, ReportJobs, ViewJobs
from bridge.run import Run, check_project, for_users, no_slurm
from bridge.store_jobs import StoreJobs
from tallmasks.plan.params import FILE, check, from_command_line, overridden, read
from tallmasks.plan.planner import Plan
from tallmasks.plan.project import Results, Store
from tallmasks.store.errors import TallmasksError, in_words

__all__ = ["Bridge", "begin", "configuration", "for_users", "no_slurm"]


def configuration(workflow: Any) -> dict[str, Any]:
    """params.yaml with what `--configfile` and `--config` override, in the place of Snakemake's own `configfile:`.

    Snakemake's reader evaluates `__use_yte__`, takes the last of two values of one key, and follows references without
    end.  Its reading of files named by `--configfile` comes before the Snakefile and cannot be helped; what counts here
    is read again.
    """
    settings = workflow.config_settings
    files = [*([] if settings.replace_workflow_config else [FILE]), *settings.configfiles]
    if FILE in files:
        workflow.configfiles.append(FILE)  # for Snakemake's report
    layers = [read(file) for file in files]
    return functools.reduce(overridden, [*layers, from_command_line(settings.config)])


@dataclass(frozen=True)
class Bridge:
    """What rules are written with: of artifacts, of views, of figures, of the paper's tables, of the report."""

    store: StoreJobs
    views: ViewJobs
    figures: DrawingJobs
    tables: DrawingJobs
    report: ReportJobs

    @classmethod
    def of(cls, params: dict[str, Any], workflow: Any) -> Bridge:
        """From the content of params.yaml with what `--config` overrides, and Snakemake's workflow object."""
        for_users(check)(params)
        run, plan, store = Run(workflow), for_users(Plan)(params), Store()
        artifacts = StoreJobs(run, plan, store)
        views = ViewJobs(artifacts, Results(plan, store))
        return cls(artifacts, views, DrawingJobs("figure", views), DrawingJobs("paper_table", views), ReportJobs(views))


def begin(workflow: Any) -> tuple[dict[str, Any], Bridge]:
    """The configuration and the bridge of the Snakefile that is being parsed.

    A project that cannot be written, a profile that is not in force and wrong parameters end Snakemake here.  They are
    one line, without Snakemake's frames.
    """
    try:
        with in_words():
            check_project(workflow)
        params = configuration(workflow)
        bridge = Bridge.of(params, workflow)
        for model in params["build"]:
            bridge.store.plan.model(model)
    except (TallmasksError, WorkflowError) as error:
        sys.exit(f"error: {error}")
    bridge.store.run.end_quietly_on(signal.SIGINT)
    bridge.store.run.ask_before_deleting()
    logging.raiseExceptions = False  # of jobs submitted as one, the view reads logs of those that never ran
    return params, bridge
