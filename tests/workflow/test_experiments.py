"""Metrics and plots, as DVC's users know them."""

import json

from project import METHODS, Project


def test_metrics_and_plots_show_the_tables(project: Project) -> None:
    """A DVC user would find empty `dvc metrics` and `dvc plots`."""
    shown = json.loads(project.dvc("metrics", "show", "--json").output)[""]["data"]
    values = shown["results/tiny/two/metrics.json"]["data"]
    assert set(values["accuracy"]) == set(values["normalized_accuracy"]) == set(METHODS)
    project.change(lambda params: params["methods"].remove("task_arithmetic"))
    assert project.snakemake("results/tiny/two/table.csv").jobs == {"results": 1}
    changed = json.loads(project.dvc("metrics", "diff", "--json").output)["results/tiny/two/metrics.json"]
    assert changed.keys() == {"accuracy.task_arithmetic", "normalized_accuracy.task_arithmetic"}
    project.dvc("plots", "show")
    assert "task_arithmetic" in project.path("dvc_plots/index.html").read_text()
    assert not project.git("status", "--porcelain", "dvc_plots").output
