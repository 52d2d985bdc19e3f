"""The paper's tables, figures and report through the real Snakemake."""

import base64
import json
import re
from pathlib import Path

import pandas as pd
import pytest

from project import ORDERS, Project
from reproduction.artifacts.labels import digest_of
from reproduction.results.figures import FIGURES
from reproduction.results.paper import TABLES

pytestmark = pytest.mark.xdist_group("paper")  # builds every table and figure of a small model first, once
OF_THE_PAPER = [name for name, figure in FIGURES.items() if not {"field", "held_out"} & {*figure.views}]


@pytest.fixture
def copy(paper: Project, tmp_path: Path) -> Project:
    return paper.copy(tmp_path / "copy")


def test_the_sweeps_ends_are_those_of_the_tables(paper: Project) -> None:
    """Figures 5 and 6 would be of other models than the tables: k > T and zero-shot are the same."""
    thresholds = pd.read_csv(paper.path("results/tiny/three/thresholds/thresholds.csv"))
    table = pd.read_csv(paper.path("results/tiny/three/table.csv")).set_index("method")
    methods_at = {name: {2: name, 1: f"{name}_k1"} for name in ("consensus_task_arithmetic", "consensus_ties")}
    methods_at["consensus_task_arithmetic"][0] = "task_arithmetic"
    for method, rows in thresholds.groupby("method"):
        assert rows["k"].tolist() == list(range(5))
        for k, name in methods_at[method].items():
            assert rows["normalized_accuracy"].iloc[k] == table.loc[name, "normalized_accuracy"]
        last = rows.iloc[-1]
        assert last["accuracy"] == table.loc["zeroshot", "accuracy"] and last["scaling_coefficient"] == 0


def embedded(project: Project) -> dict[str, dict[str, str]]:
    """The figures and pages in a project's report, by path."""
    page = project.path("results/report.html").read_text()
    assert page.rstrip().endswith("</html>")
    start = re.search(r'<script id="results">\s*var results = ', page)
    assert start
    files = json.JSONDecoder().raw_decode(page, start.end())[0]
    return {path: one for path, one in files.items() if one["mime_type"] in {"image/svg+xml", "text/html"}}


def test_a_report_of_what_is_there_makes_nothing(copy: Project) -> None:
    """A report on an unfinished experiment would first run all of it, or show figures of other settings."""
    before = embedded(copy).keys()
    for path in (*copy.root.glob("results/tiny/figures/overview.*"), *copy.root.glob("results/tiny/tables/methods.*")):
        path.unlink()
    copy.change(lambda params: params["paper"]["subsets"].update(orders=ORDERS[:2]))
    assert copy.snakemake("report_only").jobs == {"about": 1, "report_only": 1}
    left_out = {"figures/overview.svg", "figures/task_count.svg", "tables/methods.html"}
    assert before - embedded(copy).keys() == {f"results/tiny/{file}" for file in left_out}


def test_the_report_holds_every_table_and_figure(paper: Project) -> None:
    """A reader would find a list of names with empty frames behind them, and not what the results are made from."""
    shown = embedded(paper)
    expected = {f"results/tiny/figures/{name}.svg" for name in OF_THE_PAPER}
    expected |= {f"results/tiny/tables/{name}.html" for name in TABLES}
    assert shown.keys() == expected | {"results/tiny/report/provenance.html"}
    for path, one in shown.items():
        content = base64.b64decode(one["data_uri"].partition("base64,")[2])
        assert content == paper.path(path).read_bytes() and len(one["caption"]) > 80, path
    recipe = json.loads(paper.path("results/tiny/figures/per_task.provenance.json").read_text())["recipe"]
    made_of = paper.path("results/tiny/report/provenance.html").read_text()
    assert f"<td>figures/per_task</td><td>{digest_of(recipe)}</td>" in made_of and "torch" in made_of
