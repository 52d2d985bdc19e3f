"""A clone elsewhere: nothing is to be done after a pull, whatever the file times say."""

import os
import random
from pathlib import Path

import pytest

from project import Project, Run


@pytest.fixture
def clone(built: tuple[Project, Run], tmp_path: Path) -> Project:
    """A git clone of the built project that knows its remote, with nothing pulled yet."""
    origin = built[0]
    clone = Project(tmp_path / "clone")
    origin.run("git", "clone", "-q", str(origin.root), str(clone.root))
    clone.dvc("remote", "modify", "--local", "trial", "url", str(origin.path(".dvc-remote")))
    return clone


def scatter_times(project: Project, seed: int) -> None:
    """Give every file of a working copy a random time."""
    draw = random.Random(seed)
    for folder in ("store", "results", "src", "models", "workflow", "."):
        for path in project.path(folder).glob("**/*" if folder != "." else "*"):
            if path.is_file():
                time = 1_600_000_000 + draw.random() * 1e8
                os.utime(path, (time, time))


@pytest.mark.short
def test_after_a_pull_nothing_is_to_be_done(clone: Project) -> None:
    """A colleague would fine-tune everything again because of file times."""
    clone.dvc("pull", "-q")
    scatter_times(clone, seed=1)
    assert not clone.dry_run().planned and clone.up_to_date()
    assert not clone.git("status", "--porcelain").output
    # a parameter edited before anything ran here: no metadata of Snakemake, only the recipes
    clone.change(lambda params: params["grids"].update(scaling_coefficient=[0.0, 1.0]))
    assert clone.snakemake("all").jobs.keys() == {"evaluate", "tables"}


def test_with_only_the_checkpoints_a_new_subset_fine_tunes_nothing(clone: Project) -> None:
    """A new table would need all stored files, not only the checkpoints."""
    assert "`dvc pull`" in clone.tallmasks("verify", fails=True).output
    clone.dvc("pull", "-q", "store/tiny/checkpoints")
    scatter_times(clone, seed=2)
    assert not clone.dry_run().planned, "the tables in git are what params.yaml asks for"
    clone.benchmark("new", ["mnist", "dtd"])
    jobs = clone.snakemake("results/tiny/new/table.csv").jobs
    of_two_tasks = {"examples", "head", "task_vector", "evaluate_task", "merge", "mask", "consensus", "evaluate"}
    assert jobs.keys() == of_two_tasks | {"tables"}, "nothing is fine-tuned"
