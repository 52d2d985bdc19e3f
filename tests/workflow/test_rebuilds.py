"""What the real engines build again, forced or not, and what they do not; no results are lost."""

import re
import sys
from collections import Counter

import pytest

from project import Project, Run

EVERYTHING = {
    "examples": 9, "head": 3, "finetune": 3, "task_vector": 3, "evaluate_task": 6, "merge": 2, "mask": 2,
    "consensus": 2, "evaluate": 6, "tables": 2,
}  # fmt: skip


def test_a_first_run_does_everything_once_and_a_second_nothing(built: tuple[Project, Run], project: Project) -> None:
    """A user would wait again for what is there."""
    assert built[1].jobs == EVERYTHING
    assert not project.dvc("repro").jobs and project.up_to_date()
    assert not project.snakemake("all").jobs
    assert not project.git("status", "--porcelain").output
    assert not any(project.path(".tallmasks").glob("training/*")), "no half-finished training is left"


def test_a_new_subset_costs_its_new_task_and_its_own_jobs(project: Project) -> None:
    """A new subset would fine-tune again; the same set under another name would be computed twice."""
    project.benchmark("again", ["dtd", "mnist", "svhn"])
    assert project.snakemake("results/tiny/again/table.csv").jobs.keys() == {"tables"}
    project.benchmark("new", ["mnist", "cars"])
    new_task = {"examples": 3, "head": 1, "finetune": 1, "task_vector": 1, "evaluate_task": 2}
    own = {"merge": 1, "mask": 1, "consensus": 1, "evaluate": 3, "tables": 1}
    assert project.snakemake("all").jobs == Counter(new_task) + Counter(own)


def test_a_change_costs_what_lies_downstream_and_views_on_the_way_back(project: Project) -> None:
    """A changed value would leave old results in place, or cost more than what depends on it."""
    before = project.sha256("results")
    project.raise_version("chain.py", "evaluate")
    assert project.dry_run("all").planned.keys() == {"consensus", "evaluate", "tables"}
    project.git("checkout", "-q", "src")
    project.change(lambda params: params["grids"].update(mask_lambda=[0.2, 0.3]))
    assert project.snakemake("all").jobs.keys() == {"mask", "consensus", "evaluate", "tables"}
    project.git("checkout", "-q", "params.yaml")
    assert project.snakemake("all").jobs.keys() == {"tables"}, "what the old parameters made is still there"
    assert project.sha256("results") == before


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
