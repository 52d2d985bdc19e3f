"""The paper's tables with our numbers beside the paper's, in every format."""

import html
import re
from dataclasses import replace

import pandas as pd
import pytest

from reproduction.evaluation.records import Evaluation
from reproduction.results.figures import ResultFiles
from reproduction.results.paper import TABLES
from reproduction.results.paper_tables import laid_out, side_by_side
from reproduction.results.reference import paper_table
from reproduction.results.sweep_tables import (
    controlled_table,
    held_out_for_people,
    held_out_table,
    subset_table,
    threshold_table,
)
from reproduction.results.tables import ParameterCounts
from reproduction.results.typesetting import TableLayout, html_page, latex, markdown
from result_files import write_results


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> ResultFiles:
    return write_results(tmp_path_factory.mktemp("results"))


def written(results: ResultFiles, name: str, model: str) -> tuple[pd.DataFrame, TableLayout]:
    file = "controlled/controlled.csv" if name == "controlled" else "table.csv"
    benchmarks = {"8tasks": results.benchmarks["8tasks"]} if name == "controlled" else results.benchmarks
    ours = {benchmark: pd.read_csv(results.path(benchmark, file)) for benchmark in benchmarks}
    data = side_by_side(name, model, ours, benchmarks)
    return data, laid_out(name, model, data, benchmarks, model)


@pytest.mark.parametrize(("model", "number"), [("vit_b32", 3), ("vit_l14", 3), ("vit_b16", 7)])
def test_the_papers_numbers_stand_beside_ours(results: ResultFiles, model: str, number: int) -> None:
    """A reader would compare with the numbers of another row, benchmark or model."""
    data, _ = written(results, "methods", model)
    paper = paper_table(number).query("model == @model").set_index(["benchmark", "method"])
    compared = data.dropna(subset="accuracy_paper").set_index(["benchmark", "method"])
    assert len(compared) == len(paper) == 33
    for key, row in paper.iterrows():
        assert compared.loc[key, "accuracy_paper"] == row["accuracy"]
        assert compared.loc[key, "formula_gbit_paper"] == row["formula_gbit"]
    ours = pd.read_csv(results.path("14tasks", "table.csv")).set_index("method")["accuracy"]
    assert data.query("benchmark == '14tasks'").set_index("method")["accuracy"].to_dict() == ours.to_dict()


def test_controlled_beside_table_1(results: ResultFiles) -> None:
    """Standard and controlled fine-tuning would be mixed up."""
    data, layout = written(results, "controlled", "vit_b32")
    found = data.set_index(["method", "finetuning"])["accuracy_paper"]
    assert found.to_dict() == {
        ("fine_tuned", "standard"): 92.8,
        ("fine_tuned", "controlled"): 89.8,
        ("task_arithmetic", "standard"): 71.5,
        ("task_arithmetic", "controlled"): 68.8,
    }
    assert [(name, [row[0].text for row in rows]) for name, rows in layout.sections] == [
        ("Fine-tuned", ["Standard", "Controlled"]),
        ("Task arithmetic", ["Standard", "Controlled"]),
    ]


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("model", ["tiny", "vit_b32"])
def test_every_format_holds_every_cell(results: ResultFiles, name: str, model: str) -> None:
    """One of the formats would lack a number, or have it in the wrong column."""
    _, layout = written(results, name, model)
    expected = [[cell.text for cell in row] for _, rows in layout.sections for row in rows]
    lines = [re.split(r" \| ", line.strip("| ")) for line in markdown(layout).splitlines() if line.startswith("|")]
    body = [[cell.strip("*") for cell in line] for line in lines[2:] if len(line) == len(layout.columns)]
    assert body[-len(expected) :] == expected or [row for row in body if row in expected] == expected
    page = html_page(layout)
    cells = [re.findall(r"<t[dh][^>]*>(?:<b>)?(.*?)(?:</b>)?</t[dh]>", row) for row in re.split(r"</?tr>", page)]
    cells = [[html.unescape(cell) for cell in row] for row in cells]
    assert [row for row in cells if row in expected] == expected
    source = latex(layout, name)
    rows = [
        line.removesuffix(r" \\").split(" & ") for line in source.splitlines() if " & " in line and "multi" not in line
    ]
    plain = [[re.sub(r"\\textbf\{(.*)\}", r"\1", cell).replace(r"\textgreater{}", ">") for cell in row] for row in rows]
    assert [row for row in plain if row in expected] == expected
    assert {len(row) for row in rows} == {len(layout.columns)}
    assert source.count("{") == source.count("}") and source.count(r"\begin") == source.count(r"\end") == 2
    assert not re.search(r"(?<!\\)%(?! \\usepackage)|(?<!\\)_", source)


def evaluation(method: str, test: list[int], validation: list[int], tasks: tuple[str, ...] = ("b", "a")) -> Evaluation:
    totals = {"validation": [10] * len(tasks), "test": [100] * len(tasks)}
    return Evaluation(method, tasks, totals, {"validation": validation, "test": test}, scaling_coefficient=0.3)


def test_threshold_table(results: ResultFiles) -> None:
    """Accuracies would be relative to another task's fine-tuned model."""
    finetuned = evaluation("fine_tuned", [80, 100], [8, 10], ("a", "b"))
    found = [evaluation("ties", [80, 100], [1, 1]), evaluation("consensus_ties", [50, 40], [10, 4])]
    table = threshold_table("consensus_ties", found, finetuned).iloc[::-1]
    assert list(pd.read_csv(results.path("8tasks", "thresholds/thresholds.csv"))) == list(table)
    assert table["k"].tolist() == [1, 0] and set(table["method"]) == {"consensus_ties"}
    first = table.iloc[0]
    assert (first.accuracy, first.normalized_accuracy, first.validation_normalized_accuracy) == (45, 50, 75)
    assert (first.method, first.scaling_coefficient) == ("consensus_ties", 0.3)


def test_controlled_table(results: ResultFiles) -> None:
    """The controlled merge would be measured by the standard fine-tuned models."""
    found = {
        "standard": (evaluation("fine_tuned", [100, 100], [10, 10]), evaluation("task_arithmetic", [50, 70], [1, 1])),
        "controlled": (evaluation("fine_tuned", [80, 80], [10, 10]), evaluation("task_arithmetic", [40, 56], [1, 1])),
    }
    found = {name: (replace(first, scaling_coefficient=None), second) for name, (first, second) in found.items()}
    table = controlled_table(found)
    assert list(pd.read_csv(results.path("8tasks", "controlled/controlled.csv"))) == list(table)
    table = table.set_index(["method", "finetuning"])
    assert table.loc["task_arithmetic", "accuracy"].to_dict() == {"standard": 60, "controlled": 48}
    assert table["normalized_accuracy"].tolist() == [100, 100, 60, 60]
    assert table["scaling_coefficient"].fillna(0).tolist() == [0, 0, 0.3, 0.3]


def test_subset_table() -> None:
    """A subset would be averaged under the wrong n, or stored bits not grow with n."""
    finetuned = evaluation("fine_tuned", [100, 50], [10, 10])
    one = [evaluation("task_arithmetic", [40], [1], ("a",))]
    both = [evaluation("task_arithmetic", [30, 50], [1, 1], ("a", "b"))]
    evaluated = {"name_wave": [one, both], "name_zigzag": [one]}
    zeroshot = evaluation("zeroshot", [20, 25], [1, 1])
    table = subset_table(evaluated, zeroshot, finetuned, ParameterCounts(10**9, 0))
    rows = table.set_index(["order", "n", "method"])
    assert rows.loc[("name_zigzag", 1, "task_arithmetic"), "normalized_accuracy"] == 80
    assert rows.loc[("name_wave", 1, "fine_tuned")].tolist() == [50, 100, 32]
    assert rows.loc[("name_wave", 2, "task_arithmetic")].tolist() == [40, 55, 32]
    assert rows.loc[("name_wave", 2, "zeroshot")].tolist() == [22.5, 35, 32]
    assert rows.loc[("name_wave", 2, "fine_tuned")].tolist() == [75, 100, 64]
    assert len(table) == 9


def test_held_out_tasks() -> None:
    """A merge that changes nothing on a new task would pass for one that helps, or be relative to another task."""
    both = [evaluation(name, [40], [4], (task,)) for task in "ab" for name in ("zeroshot", "task_arithmetic")]
    both[3] = evaluation("task_arithmetic", [60], [4], ("b",))
    finetuned = {task: evaluation("fine_tuned", [accuracy], [8], (task,)) for task, accuracy in (("a", 80), ("b", 100))}
    table = held_out_table({"a": both[:2], "b": both[2:]}, finetuned)
    text = held_out_for_people(table, "")
    assert "| Zeroshot | 40.0 | 45.0 | – |" in text and "| Task arithmetic | 50.0 | 55.0 | 1 of 2 |" in text
