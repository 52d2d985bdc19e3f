"""Options of methods in params.yaml, through the real Snakemake to a table and a figure."""

import pandas as pd
import pytest

from project import METHODS, Project

ROWS = ["ties", {"ties": {"keep": 0.1}}, {"consensus_ties": {"keep": 0.1}}, {"magnitude_masking": {"keep": 0.3}}]


@pytest.mark.long
def test_one_method_with_two_settings_gives_two_rows(project: Project) -> None:
    """A setting would take the other's place, or be taken for it."""
    project.change(lambda params: params.update(methods=[*METHODS, *ROWS]))
    run = project.snakemake("results/tiny/two/table.csv", "results/tiny/figures/pareto.csv")
    # for both tables that the figure shows: the means at both settings; at the new one, the sum with all that follows
    assert (run.jobs["merge"], run.jobs["mask"], run.jobs["consensus"]) == (6, 2, 2)
    assert run.jobs["finetune"] == run.jobs["task_vector"] == 0
    table = pd.read_csv(project.path("results/tiny/two/table.csv"))
    names = ["ties", "ties:keep=0.1", "consensus_ties:keep=0.1", "magnitude_masking:keep=0.3"]
    assert [name for name in table["method"] if name in names] == names
    assert "| TIES (keep = 0.1) |" in project.path("results/tiny/two/table.md").read_text()
    assert set(names) <= set(pd.read_csv(project.path("results/tiny/figures/pareto.csv"))["method"])
    assert project.one("store/tiny/derived/multi_task_vectors/ties_mean-keep0.1-2tasks-s0-*")
    assert project.dry_run("results/tiny/two/table.csv").planned == {}
