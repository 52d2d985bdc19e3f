"""Metrics and plots, as DVC's users know them."""

import json

import pandas as pd
import pytest

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


COSTS = {"evaluate", "tables"}


def grid(*values: float) -> str:
    return f"grids.scaling_coefficient=[{','.join(map(str, values))}]"


@pytest.mark.long
def test_experiments_cost_only_what_changed(project: Project) -> None:
    """An experiment in a folder of its own, or from the queue, would start with fine-tuning."""
    here = project.dvc("exp", "run", "-n", "here", "-S", grid(0.0, 1.0))
    assert here.jobs.keys() == COSTS
    assert project.dvc("exp", "run", "--temp", "-n", "aside", "-S", grid(0.0, 0.4)).jobs.keys() == COSTS
    project.dvc("exp", "run", "--queue", "-n", "queued", "-S", grid(0.0, 0.8))
    assert project.dvc("exp", "run", "--run-all").jobs.keys() == COSTS
    table = json.loads(project.dvc("exp", "show", "--json").output)
    names = {run["name"] for entry in table for run in entry["experiments"] or [] for run in run["revs"]}
    assert names == {"here", "aside", "queued"}
    assert project.path("params.yaml").read_text().count("0.8") == 0, "the queue works elsewhere"
