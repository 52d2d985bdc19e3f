"""Forced jobs, failed jobs, inputs dated in the future: what is asked for runs, and no results are lost."""

import re
import sys

import pytest

from project import Project, Run

TABLE = "results/tiny/two/table.csv"
FROM_VECTORS = {"task_vector", "merge", "mask", "consensus", "evaluate", "tables"}
CHAIN = FROM_VECTORS | {"examples", "head", "finetune", "evaluate_task"}
AS_A_USER = "import ctypes, os, sys; ctypes.CDLL(None).prctl(24, 1, 0, 0, 0); os.execvp(sys.argv[1], sys.argv[1:])"
"""Without the right to write into read-only files, which root has."""


@pytest.mark.parametrize(
    ("forced", "planned"),
    [
        (["-F"], CHAIN),
        (["-f"], {"tables"}),
        (["-R", "task_vector"], FROM_VECTORS),
        (["-F", "--until", "merge"], {"examples", "head", "finetune", "task_vector", "merge"}),
    ],
)
def test_what_is_forced_runs_with_what_follows_from_it(
    built: tuple[Project, Run], forced: list[str], planned: set[str]
) -> None:
    """Nothing would be done; or all would, where one step was meant; or `-n` and `--dag` would change something."""
    project, _ = built
    before = project.sha256("store", "results")
    assert project.run("snakemake", "-n", *forced, "--", TABLE).planned.keys() == planned
    assert planned <= set(re.findall(r'label = "(\w+)', project.run("snakemake", "--dag", *forced, "--", TABLE).output))
    assert project.sha256("store", "results") == before


def test_forcing_makes_what_is_lacking_and_replaces_read_only_files(project: Project) -> None:
    """A forced job would lose its results for a missing input, or stop at files that its own runs made read-only."""
    before = project.sha256("store", "results")
    project.one("store/tiny/derived/merge/sum-2tasks-s0-*").unlink()
    run = project.run(sys.executable, "-c", AS_A_USER, "snakemake", "-j2", "-f", "--", TABLE)
    assert run.jobs.keys() == {"merge", "tables"}
    assert project.sha256("store", "results") == before


def test_results_stay_until_the_new_ones_are_there(project: Project) -> None:
    """A job that fails, or a full disk, would cost the tables that were there."""
    before = project.sha256("results")
    merged = project.one("store/tiny/derived/merge/sum-2tasks-s0-*")
    project.damage(merged, merged.read_bytes()[:-4] + b"\0\0\0\0")
    assert ".tallmasks/damaged" in project.run("snakemake", "-j2", "-f", "--", TABLE, fails=True).output
    assert project.sha256("results") == before
