"""The long table of every method, through the real Snakemake."""

import pandas as pd

from project import METHODS, Project
from tallmasks import methods

FIELD = "results/tiny/two/field.csv"
FIGURE = "results/tiny/figures/field_pareto.svg"


def test_the_long_table_has_every_method_and_the_benchmarks_table_does_not(project: Project) -> None:
    """A later method would be left out of the one table that is for all of them, or get into the paper's, whose
    numbers people have cited; or published numbers of other models would stand beside the tiny model's; or the
    figure of all methods would be drawn before its table is there."""
    project.change(lambda params: params["paper"].update(benchmarks=["two"]))
    before = project.path("results/tiny/two/table.csv").read_bytes()
    run = project.snakemake(FIGURE)
    assert run.jobs["field"] == 1 and run.jobs["finetune"] == run.jobs["task_vector"] == run.jobs["results"] == 0
    assert run.jobs["grams"] == run.jobs["fisher"] == 2, (
        "what is known of each task's data, for RegMean and Fisher merging"
    )
    table = pd.read_csv(project.path(FIELD)).set_index("method")
    assert set(table.index) == set(methods.names())
    assert project.path("results/tiny/two/table.csv").read_bytes() == before
    shown = pd.read_csv(project.path("results/tiny/two/table.csv")).set_index("method")
    assert set(shown.index) == set(METHODS)
    for name in ("accuracy", "normalized_accuracy", "storage_gb"):
        assert table.loc[METHODS, name].to_dict() == shown[name].to_dict()
    assert set(table.index[table["stored_gb"].isna()]) == {"magnitude_pruning"}, "which has no format"
    assert all(project.path(f"results/tiny/two/field.{ending}").stat().st_size > 500 for ending in ("md", "tex"))
    assert not project.path("results/tiny/two/vs_published.csv").exists()
    assert project.dry_run(FIELD, FIGURE).planned == {}
    forced = project.run("snakemake", "-n", "-R", "field", "--", FIGURE)
    assert forced.planned == {"field": 1, "figure_field_pareto": 1}
    said = project.tallmasks("why", FIELD).output
    assert "would not be rebuilt" in said
