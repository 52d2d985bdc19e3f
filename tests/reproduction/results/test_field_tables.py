"""The table of all methods, and our numbers next to the published ones."""

import numpy as np
import pandas as pd
import pytest

from reproduction.evaluation.choice import mean_interval, wilson_interval
from reproduction.evaluation.records import Evaluation
from reproduction.results.field_tables import field_table, laid_out_field, year
from reproduction.results.reference import PAPER_TASKS, beside_families, family_of, published_numbers
from reproduction.results.tables import ParameterCounts
from reproduction.results.typesetting import markdown
from tallmasks import methods


def test_rows_are_by_section_and_year() -> None:
    """A reader could not see what a method had to beat."""
    ordered = ("zeroshot", "task_arithmetic", "iso_c", "fine_tuned", "magnitude_pruning", "tall_mask_ties", "tsv_c")
    counts = {"validation": [10, 10], "test": [10, 10]}
    rows = [Evaluation(name, ("b", "a"), counts, counts) for name in sorted(ordered)]
    table = field_table(rows, rows[0], ParameterCounts(1_000_000, 500_000))
    assert table["method"].tolist() == list(ordered)
    years = table["year"].astype(object).where(table["year"].notna(), None)
    assert years.tolist() == [2021, 2023, 2025, None, 2024, 2024, 2025]
    assert year(methods.get("t_switch")) == 2025


def test_lambdas_are_shown_from_the_smallest_to_the_largest() -> None:
    """A reader would take the lambda of one task for that of all."""
    counts = {"validation": [10] * 3, "test": [10] * 3}
    for lambdas, text in (((0.4, 0.2, 0.3), "λ 0.2–0.4"), ((0.3, 0.3, 0.3), "λ 0.3")):
        row = Evaluation("tall_mask_ties", tuple("abc"), counts, counts, mask_lambda=lambdas)
        table = field_table([row], row, ParameterCounts(1_000_000, 500_000))
        assert f"| {text} |" in markdown(laid_out_field(table, ""))


def test_the_interval_of_one_task_is_wilsons_and_of_many_is_narrower() -> None:
    """A difference of a few images would pass for one of the methods, or a real one for noise."""
    low, high = wilson_interval([45], [50])
    assert mean_interval([45], [50]) == pytest.approx((low[0], high[0]))
    draw = np.random.default_rng(0)
    totals, chances = np.array([300, 500, 1000]), np.array([0.5, 0.9, 0.99])
    inside = 0
    for _ in range(2000):
        low_end, high_end = mean_interval(draw.binomial(totals, chances), totals)
        inside += low_end <= chances.mean() <= high_end
    assert 0.93 < inside / 2000 < 0.97
    assert mean_interval([50, 50], [50, 50])[1] == 1.0


@pytest.mark.parametrize(
    ("model", "count", "method", "family", "accuracy", "relative"),
    [  # read off the sources once more
        ("vit_b32", 8, "tsv_c", "C1", 92.6, 99.7),
        ("vit_l14", 20, "iso_cts", "C1", 90.1, 94.9),
        ("vit_l14", 8, "wudi", "C0", 92.6, None),
    ],
)
def test_published_numbers_are_of_their_family(
    model: str, count: int, method: str, family: str, accuracy: float, relative: float | None
) -> None:
    """Our numbers would be compared with those of another model or family."""
    found = published_numbers(model, PAPER_TASKS[:count]).query("method == @method and family == @family")
    (row,) = found.to_dict("records")
    assert row["accuracy"] == accuracy and row["source"]
    assert row["normalized_accuracy"] == relative if relative else pd.isna(row["normalized_accuracy"])


def test_the_family_follows_from_where_checkpoints_are_from() -> None:
    """Checkpoints of two sources would be taken for those of one."""
    assert family_of(["published"] * 3) == "C2" and family_of(["fusionbench"] * 8) == "FB"
    assert family_of(["published", "fusionbench"]) == family_of([None, "published"]) == "own"
    assert family_of([None, None]) == family_of(["my/folder"]) == "own"


OURS = pd.DataFrame(
    [("tsv_c", 90.0, 99.5), ("emr", 87.0, 96.0), ("regmean", 82.0, 91.0), ("fine_tuned", 90.4, 100.0)],
    columns=["method", "accuracy", "normalized_accuracy"],
)


def test_absolute_accuracy_is_compared_within_a_family() -> None:
    """Two points that come from another DTD model would be attributed to a method."""
    found = beside_families(OURS, "vit_b32", PAPER_TASKS[:8], "FB").set_index("method")
    assert set(found["family"]) == {"FB"} and set(found.index) == {"regmean", "fine_tuned"}
    assert found.loc["regmean", "accuracy_difference"] == pytest.approx(-0.4)
    second = beside_families(OURS, "vit_b32", PAPER_TASKS[:8], "C2")
    assert second["method"].tolist() == ["fine_tuned"] and second["accuracy_difference"].notna().all()


def test_models_of_ones_own_are_compared_by_normalised_accuracy_alone() -> None:
    """A difference between fine-tunings would be attributed to a method."""
    found = beside_families(OURS, "vit_b32", PAPER_TASKS[:8], "own")
    assert found["method"].tolist() == ["tsv_c"] and found["family"].tolist() == ["C1"]
    assert found[["accuracy", "accuracy_published", "accuracy_difference"]].isna().all(axis=None)
    assert found["normalized_accuracy_difference"].tolist() == pytest.approx([-0.2])
    assert beside_families(OURS, "tiny", PAPER_TASKS[:8], "own").empty
