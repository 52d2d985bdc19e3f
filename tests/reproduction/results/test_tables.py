"""Tables: their headers and numbers, from hand-made counts."""

import re

import numpy as np
import pandas as pd
import pytest

from reproduction.evaluation.choice import mean_interval, wilson_interval
from reproduction.evaluation.records import Evaluation
from reproduction.results.field_tables import field_table, laid_out_field
from reproduction.results.paper_tables import laid_out, side_by_side
from reproduction.results.tables import (
    ParameterCounts,
    agreement_table,
    headline_numbers,
    interval_table,
    per_task_table,
    seeds_table,
    seeds_table_for_people,
    selection_record,
    summary_table,
    table_for_people,
)
from reproduction.results.typesetting import markdown
from tallmasks.masks.consensus import agreement_profile

COUNTS = ParameterCounts(trainable=1_000_000, frozen=500_000)


def evaluation(method: str, validation: list[int], test: list[int], **chosen: object) -> Evaluation:
    return Evaluation(
        method,
        ("b", "a"),
        total={"validation": [10, 10], "test": [100, 200]},
        correct={"validation": validation, "test": test},
        **chosen,  # type: ignore[arg-type]
    )


@pytest.fixture
def evaluations() -> list[Evaluation]:
    return [
        evaluation(
            "task_arithmetic", [6, 4], [45, 50], scaling_coefficient=0.3, grid=(0.0, 0.3), curve=((5, 6), (4, 4))
        ),
        evaluation("fine_tuned", [10, 8], [90, 100]),
        evaluation("tall_mask_ties", [9, 8], [90, 90], mask_lambda=(0.2, 0.4), grid=(0.2, 0.4), curve=((9, 9), (7, 8))),
    ]


def test_summary(evaluations: list[Evaluation]) -> None:
    """The headline numbers would be wrong: mean accuracy, mean of ratios (not ratio of means), storage."""
    table = summary_table(evaluations, evaluations[1], COUNTS)
    columns = ["section", "method", "accuracy", "normalized_accuracy", "formula_gbit", "file_gbit", "at_grid_end"]
    assert list(table.columns) == columns
    assert set(columns) <= {*field_table(evaluations, evaluations[1], COUNTS)}
    first, finetuned, masked = table.itertuples(index=False)
    assert (first.section, first.accuracy, first.normalized_accuracy) == ("merging", 35.0, 50.0)
    assert first.formula_gbit == round(32 * 1.5e6 / 1e9, 4)
    assert (finetuned.accuracy, finetuned.normalized_accuracy) == (70.0, 100.0)
    assert finetuned.formula_gbit == round(32 * (2 * 1e6 + 0.5e6) / 1e9, 4)
    assert masked.normalized_accuracy == 95.0
    assert masked.formula_gbit == round((66 * 1e6 + 32 * 0.5e6) / 1e9, 4)
    coded = evaluation("stochastic_rounding", [9, 8], [90, 90], coded_bytes=(250_000, 500_000))
    sizes = summary_table([evaluations[1], coded], evaluations[1], COUNTS)["formula_gbit"]
    assert sizes[1] == round((32 * 1.5e6 + 8 * 750_000) / 1e9, 4)
    assert coded.in_order(("a", "b")).coded_bytes == (500_000, 250_000)


def test_scores_on_validation_data_are_relative_to_scores_on_validation_data(evaluations: list[Evaluation]) -> None:
    """The curves by which alpha and lambda were chosen would be other ones, or a table's row mix the two splits."""
    record = selection_record(evaluations, evaluations[1])
    points = [("task_arithmetic", 0.0, 45, 50), ("task_arithmetic", 0.3, 50, 55)]
    points += [("b", 0.2, 90, 90), ("b", 0.4, 90, 90), ("a", 0.2, 70, 87.5), ("a", 0.4, 80, 100)]
    curves = {"task_arithmetic": record["task_arithmetic"], **record["tall_mask_ties"]}
    assert [(name, *point.values()) for name, one in curves.items() for point in one["validation"]] == points
    rows = per_task_table(evaluations, evaluations[1]).set_index(["method", "split", "task"]).sort_index()
    relative = rows["normalized_accuracy"]
    assert relative["task_arithmetic", "validation"].to_dict() == {"b": 60, "a": 50}
    assert relative["task_arithmetic", "test"].to_dict() == {"b": 50, "a": 50}


def test_every_accuracy_is_inside_its_interval(evaluations: list[Evaluation]) -> None:
    """A reader would take a lower bound for an upper one, or the interval of another split or task."""
    table = interval_table(evaluations[:1]).set_index(["split", "task"])
    for split, task, correct, total in (("validation", "b", 6, 10), ("validation", "a", 4, 10), ("test", "a", 50, 200)):
        row, (low, high) = table.loc[split, task], wilson_interval(correct, total)
        assert (row["correct"], row["total"], row["accuracy"]) == (correct, total, 100 * correct / total)
        assert (row["accuracy_low"], row["accuracy_high"]) == pytest.approx((100 * low, 100 * high), abs=1e-4)
    (row,) = field_table(evaluations[:1], evaluations[1], COUNTS).to_dict("records")
    ends = [100 * end for end in mean_interval([45, 50], [100, 200])]
    assert [row["accuracy_low"], row["accuracy_high"]] == pytest.approx(ends, abs=1e-4)


def test_sizes_have_the_same_unit_and_digits_everywhere(evaluations: list[Evaluation]) -> None:
    """A reader would convert between the table of a benchmark and that of all methods, or mix up bits and bytes."""
    for trainable, unit, sizes in ((10**6, "MB", ["6.0", "10.0", "10.2"]), (10**9, "GB", ["4.0", "8.0", "8.3"])):
        counts = ParameterCounts(trainable, frozen=500_000)
        summary = table_for_people(summary_table(evaluations, evaluations[1], counts), "tiny")
        stored = {"fine_tuned": 8.0}
        field = markdown(laid_out_field(field_table(evaluations, evaluations[1], counts, stored), "tiny"))
        for text, column in ((summary, 3), (field, 8)):
            cells = [line.split("|")[column].strip() for line in text.splitlines() if line.startswith("| ")]
            assert f"Size ({unit})" in cells and [cell for cell in cells if cell[:1].isdigit()] == sizes
        assert f"In files ({unit})" in field and {"MB": "| 1000.0 |", "GB": "| 1.0 |"}[unit] in field


def test_the_order_of_tasks_changes_no_number(evaluations: list[Evaluation]) -> None:
    """The same tasks in another order would give another table."""
    turned = [evaluation.in_order(("a", "b")) for evaluation in evaluations]
    assert turned[2].mask_lambda == (0.4, 0.2)
    pd.testing.assert_frame_equal(
        summary_table(turned, turned[1], COUNTS), summary_table(evaluations, evaluations[1], COUNTS)
    )
    assert selection_record(turned, turned[1]) == selection_record(evaluations, evaluations[1])


def test_a_choice_at_an_end_of_its_grid_is_marked(evaluations: list[Evaluation]) -> None:
    """A row would be ranked as if its best value were known, although it may be outside the grid."""
    inside = evaluation("iso_c", [6, 4], [45, 50], scaling_coefficient=0.3, grid=(0.0, 0.3, 0.6), curve=((5,) * 3,) * 2)
    fixed = evaluation("weight_averaging", [6, 4], [45, 50], scaling_coefficient=0.5)
    rows = [*evaluations, inside, fixed]
    summary = summary_table(rows, rows[1], COUNTS)
    assert summary["at_grid_end"].tolist() == [1, 0, 2, 0, 0], "of alpha, or of how many tasks' lambdas"
    record = selection_record(rows, rows[1])
    assert [record["tall_mask_ties"][task]["at_grid_end"] for task in "ba"] == [True, True]
    assert not record["iso_c"]["at_grid_end"]
    seeds = seeds_table({0: summary, 1: summary})
    assert seeds["at_grid_end"].tolist() == [2, 0, 4, 0, 0]
    texts = [
        table_for_people(summary, "tiny"),
        seeds_table_for_people(seeds, "tiny"),
        markdown(laid_out_field(field_table(rows, rows[1], COUNTS), "tiny")),
    ]
    for text in texts:
        row = {line.split("|")[1].strip(): line for line in text.splitlines() if line.startswith("| ")}
        titles = ("Task arithmetic", "TALL Mask + TIES", "Iso-C", "Weight averaging", "Fine-tuned")
        assert ["†" in row[title] for title in titles] == [True, True, False, False, False]
        assert text.count("†") == 3, "two rows, and the note"
    assert "†" not in table_for_people(summary[3:], "tiny")


@pytest.mark.parametrize(("test", "best"), [([90, 80], "65.0"), ([90, 100], "70.0")], ids=["below", "equal"])
def test_the_best_method_of_a_section_is_bold(evaluations: list[Evaluation], test: list[int], best: str) -> None:
    """The fine-tuned models, which are no method, would be marked as the best one."""
    finetuned, masked = evaluations[1], evaluation("tall_mask_ties", [9, 8], test)
    rows = [evaluations[0], evaluation("iso_c", [6, 4], [50, 50]), finetuned, masked]
    tasks = {"two": ("b", "a")}
    data = side_by_side("methods", "", {"two": summary_table(rows, finetuned, COUNTS)}, tasks)
    for layout in (laid_out_field(field_table(rows, finetuned, COUNTS), ""), laid_out("methods", "", data, tasks, "")):
        assert re.findall(r"\*\*([\d.]+)", markdown(layout)) == ["37.5", best]


def test_the_headline_is_the_best_method_of_each_section(evaluations: list[Evaluation]) -> None:
    """The fine-tuned models, which are no method, would be the best one of every table that `dvc metrics` compares."""
    rows = [*evaluations, evaluation("iso_c", [6, 4], [50, 60])]
    assert headline_numbers(summary_table(rows, evaluations[1], COUNTS)) == {
        "accuracy": {"fine_tuned": 70.0},
        "normalized_accuracy": {"task_arithmetic": 50.0, "best_merging": 57.7778, "best_compression": 95.0},
    }


def test_agreement_follows_the_papers_equation() -> None:
    """A weight that merged to 0 satisfies the mask of every task that moved it, and would not count as universal."""
    profile = agreement_profile(np.array([0, 1, 2, 2], np.uint8), np.array([1, 1, 0, 1], np.float32), 2)
    assert agreement_table({"tall_mask_ties": profile}).to_csv(index=False).splitlines() == [
        "method,n,fraction,merged_zero",
        "tall_mask_ties,0,0.25,0.0",
        "tall_mask_ties,1,0.25,0.0",
        "tall_mask_ties,2,0.5,0.25",
    ]


def test_spread_over_seeds_and_gains_paired_by_seed(evaluations: list[Evaluation]) -> None:
    """Seed noise common to both rows would count as noise of their difference, and no gain would ever show."""
    other = [evaluation("task_arithmetic", [6, 4], [55, 50]), *evaluations[1:]]
    table = seeds_table(
        {0: summary_table(evaluations, evaluations[1], COUNTS), 1: summary_table(other, other[1], COUNTS)}
    ).set_index("method")
    first = table.loc["task_arithmetic"]
    assert first[["accuracy_mean", "seeds", "gain_mean", "gain_std"]].tolist() == [37.5, 2, 0, 0]
    assert first["accuracy_std"] == pytest.approx(3.5355, abs=1e-4)
    assert table.loc["fine_tuned", "gain_mean"] == 32.5
    assert table.loc["fine_tuned", "gain_std"] == pytest.approx(3.5355, abs=1e-4)
    assert "| Fine-tuned | 70.0 ± 0.0 | 100.0 ± 0.0 | +32.5 ± 3.5 |" in seeds_table_for_people(table.reset_index(), "")
