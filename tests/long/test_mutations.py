"""Every kind of file of the store and of the results, mutated: nothing is believed, and nothing stays wrong."""

import json
from pathlib import Path

import pytest

from mutations import RUNS, assert_nothing_is_wrong, mutate_all, repaired
from project import Project


@pytest.mark.parametrize("seed", range(3))
def test_mutated_files_are_found_by_snakemake(project: Project, seed: int) -> None:
    """Somebody would publish a number that a bad disk, a hand or a wrong copy made."""
    project.benchmark("new", ["mnist", "dtd"])
    project.snakemake("all")
    before = project.sha256("store", "results")
    assert mutate_all(project, seed) == len(before) > 60
    repaired(project, "all")
    assert_nothing_is_wrong(project, before)


@pytest.mark.parametrize("seed", range(3))
def test_mutated_files_are_found_by_dvc_repro(project: Project, seed: int) -> None:
    """The damage would be committed as the new truth, and pushed to everybody."""
    project.benchmark("new", ["mnist", "dtd"])
    project.snakemake("all")  # which DVC does not know yet
    before = project.sha256("store", "results")
    mutate_all(project, 100 + seed)
    stopped = project.dvc("repro", fails=True).output
    assert "moved to .tallmasks/damaged" in stopped and "Traceback (most recent call last)" not in stopped
    for _ in range(RUNS):
        if not project.run("dvc", "repro", check=False).status:
            break
    assert project.sha256("store", "results") == before
    assert "0 problems" in project.run("tallmasks", "verify").output
    assert json.loads(project.path("results/tiny/new/metrics.json").read_text())


@pytest.mark.xdist_group("paper")
@pytest.mark.parametrize("seed", [200])
def test_mutated_files_behind_tables_and_figures_are_found(paper: Project, tmp_path: Path, seed: int) -> None:
    """A damaged subset, order, threshold, figure or table would be shown."""
    copy = paper.copy(tmp_path / "copy")
    before = copy.sha256("store", "results")
    assert mutate_all(copy, seed) > 150
    repaired(copy, "paper")
    repaired(copy, "report")
    before = {name: digest for name, digest in before.items() if "report" not in name}
    assert_nothing_is_wrong(copy, before)
