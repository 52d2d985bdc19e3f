"""Metrics and plots, as DVC's users know them."""

import json

import pandas as pd

from project import Project


def test_metrics_and_plots_show_the_tables(project: Project) -> None:
    """A DVC user would find empty `dvc metrics` and `dvc plots`."""
    shown = json.loads(project.dvc("metrics", "show", "--json").output)[""]["data"]
    values = shown["results/tiny/two/metrics.json"]["data"]
    table = pd.read_csv(project.path("results/tiny/two/table.csv")).set_index("method")
    best = table.drop("fine_tuned").groupby("section")["normalized_accuracy"].max()
    assert values == {
        "accuracy": table.loc[["zeroshot", "fine_tuned"], "accuracy"].to_dict(),
        "normalized_accuracy": {
            "task_arithmetic": table.loc["task_arithmetic", "normalized_accuracy"],
            "best_merging": best["merging"],
            "best_compression": best["compression"],
        },
    }
    project.change(lambda params: params.update(methods=["zeroshot", "tall_mask_task_arithmetic"]))
    assert project.snakemake("results/tiny/two/table.csv").jobs.keys() == {"tables"}
    changed = json.loads(project.dvc("metrics", "diff", "--json").output)["results/tiny/two/metrics.json"]
    assert "normalized_accuracy.task_arithmetic" in changed
    project.dvc("plots", "show")
    assert "task_arithmetic" in project.path("dvc_plots/index.html").read_text()
    assert not project.git("status", "--porcelain", "dvc_plots").output
