"""Unseen tasks, and a merge that learns, through the whole workflow."""

from pathlib import Path

import pandas as pd
from safetensors.numpy import load_file

from project import lay_out, read_json

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


OVER = """
from tallmasks.methods.rows.masks_over_merges import consensus_row, masking_row

masking_row("adamerging", order=901, title="TALL Mask + AdaMerging")
consensus_row("adamerging", order=902, title="Consensus AdaMerging")
"""


def test_adamerging_from_unlabelled_data_to_tables_and_bundles(tmp_path: Path) -> None:
    """It would learn with other options than asked for, on test data, or nothing could follow from it."""
    project = lay_out(tmp_path / "project")
    project.path("src/tallmasks/methods/rows/over.py").write_text(OVER)
    three = {"steps": 3, "rate": 0.05}
    names = ("adamerging", "adamerging_ties", "tall_mask_adamerging", "consensus_adamerging")

    def learning(params: dict) -> None:
        params["methods"] = ["zeroshot", *({name: three} for name in names), "fine_tuned"]
        params["bundle"] = {"tall_mask_adamerging": three | {"bits": 3}}

    project.change(learning)
    run = project.snakemake("results/tiny/three/table.csv", "results/tiny/three/bundle/bundle.json")
    assert run.jobs["learn"] == 2, "masks and consensus share what their merge has learned"
    table = pd.read_csv(project.path("results/tiny/three/table.csv"))
    assert [name.partition(":")[0] for name in table["method"]] == ["zeroshot", *names, "fine_tuned"]
    for path in project.path("store/tiny/derived/learn").iterdir():
        learned = load_file(path)
        assert all(values.shape == (3,) and 0 <= values.min() <= values.max() <= 1 for values in learned.values())
        assert any(abs(values - 0.3).max() > 0.01 for values in learned.values())
    assert read_json(project.path("results/tiny/three/bundle/bundle.json"))["method"].startswith("tall_mask_adamerging")
    assert project.dry_run("results/tiny/three/table.csv").planned == {}
    field = project.dry_run("results/tiny/three/field.csv")
    assert not field.planned["learn"], "rows without these options are not built"
