"""Unseen tasks through the whole workflow."""

from pathlib import Path

import pandas as pd

from project import lay_out

ROWS = ["zeroshot", "weight_averaging", "task_arithmetic", "lines", "consensus_ties", "fine_tuned"]


def test_the_tables_of_unseen_tasks(tmp_path: Path) -> None:
    """A merge would be scored with another coefficient than its own tasks chose, or the columns be others."""
    project = lay_out(tmp_path / "project")

    def unseen(params: dict) -> None:
        params["benchmarks"] = {
            "three": ["mnist", "svhn", "dtd"],
            "unseen": {"merge": ["mnist", "svhn"], "evaluate": ["dtd"]},
        }
        params["methods"] = [*ROWS, "tall_mask_ties"]

    project.change(unseen)
    project.snakemake("results/tiny/unseen/table.csv", "results/tiny/figures/held_out.svg")
    table = pd.read_csv(project.path("results/tiny/unseen/table.csv"))
    assert list(table["method"]) == ROWS
    left_out = pd.read_csv(project.path("results/tiny/three/held_out.csv"))
    assert set(left_out["method"]) == {*ROWS} - {"fine_tuned"} and len(left_out) == 5 * 3 * 2
    per_task = pd.read_csv(project.path("results/tiny/unseen/per_task.csv"))
    assert list(left_out.columns) == list(per_task.columns)
    same = left_out[left_out["task"] == "dtd"].set_index(["method", "split"])
    for row in per_task[per_task["method"] != "fine_tuned"].itertuples():
        assert same.loc[(row.method, row.split), "accuracy"] == row.accuracy
    tried = {0.0, 0.5, 1.0}
    assert set(same["scaling_coefficient"].dropna()) <= tried | {0.1 * step for step in range(1, 11)}
    assert project.dry_run("results/tiny/three/held_out.csv").planned == {}
    project.run("snakemake", "-n", "results/tiny/unseen/mask_statistics/density.csv", fails=True)
