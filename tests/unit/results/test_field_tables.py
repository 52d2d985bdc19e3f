"""The long table of every method, and ours beside what was published of each."""

import runpy

import numpy as np
import pandas as pd
import pytest

from project import ROOT
from tallmasks import methods
from tallmasks.evaluation.choice import mean_interval, wilson_interval
from tallmasks.evaluation.records import Evaluation
from tallmasks.results.field_tables import field_table, year
from tallmasks.results.reference import PAPER_TASKS, beside_families, family_of, published_numbers
from tallmasks.results.tables import ParameterCounts
from tallmasks.results.typesetting import markdown

ORDERS = runpy.run_path(str(ROOT / "docs/update.py"))
COUNTS = ParameterCounts(1_000_000, 500_000, {"blocks.0.weight": (1000, 990), "bias": (10_000,)})


def evaluation(method: str, test: list[int], **chosen: object) -> Evaluation:
    totals = {"validation": [10, 10], "test": [100, 200]}
    return Evaluation(method, ("b", "a"), totals, {"validation": [5, 5], "test": test}, **chosen)  # type: ignore[arg-type]


@pytest.fixture
def evaluations() -> list[Evaluation]:
    return [
        evaluation("tsv_c", [80, 100]),
        evaluation("fine_tuned", [90, 100]),
        evaluation("iso_c", [81, 100], scaling_coefficient=1.2, grid=(1.0, 1.2), curve=((5, 5), (5, 5))),
        evaluation("tall_mask_ties", [81, 90], mask_lambda=(0.2, 0.4), grid=(0.2, 0.4), curve=((5, 5), (5, 5))),
        evaluation("magnitude_pruning", [50, 60]),
        evaluation("zeroshot", [30, 60], scaling_coefficient=0.0),
        evaluation("task_arithmetic", [45, 50], scaling_coefficient=0.3, grid=(0.3,), curve=((5,), (5,))),
    ]


def test_rows_are_by_section_and_year(evaluations: list[Evaluation]) -> None:
    """A reader could not see what a method had to beat."""
    table = field_table(evaluations, evaluations[1], COUNTS)
    assert table["method"].tolist() == [
        *("zeroshot", "task_arithmetic", "iso_c"),
        *("fine_tuned", "magnitude_pruning", "tall_mask_ties", "tsv_c"),
    ]
    assert table["year"].astype(object).where(table["year"].notna(), None).tolist() == [
        *(2021, 2023, 2025),
        *(None, 2024, 2024, 2025),
    ]
    assert year(methods.get("t_switch")) == 2025


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


# -- what was published ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "count", "method", "family", "accuracy", "relative"),
    [  # read off the sources once more
        ("vit_b32", 8, "tsv_c", "C1", 92.6, 99.7),
        ("vit_l14", 20, "iso_cts", "C1", 90.1, 94.9),
        ("vit_b32", 8, "emr", "C0", 88.7, None),
        ("vit_b32", 8, "fine_tuned", "C1", 92.8, None),
        ("vit_l14", 8, "wudi", "C0", 92.6, None),
        ("vit_b16", 8, "regmean", "FB", 86.0, None),
    ],
)
def test_published_numbers_are_of_their_family(
    model: str, count: int, method: str, family: str, accuracy: float, relative: float | None
) -> None:
    """Ours would be held against another model's, or another family's."""
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
    """Two points of another DTD model would be read as two points of a method."""
    found = beside_families(OURS, "vit_b32", PAPER_TASKS[:8], "FB").set_index("method")
    assert set(found["family"]) == {"FB"} and set(found.index) == {"regmean", "fine_tuned"}
    assert found.loc["regmean", "accuracy_difference"] == pytest.approx(-0.4)
    second = beside_families(OURS, "vit_b32", PAPER_TASKS[:8], "C2")
    assert second["method"].tolist() == ["fine_tuned"] and second["accuracy_difference"].notna().all()


def test_models_of_ones_own_are_compared_by_normalised_accuracy_alone() -> None:
    """Another fine-tuning would pass for another method."""
    found = beside_families(OURS, "vit_b32", PAPER_TASKS[:8], "own")
    assert found["method"].tolist() == ["tsv_c"] and found["family"].tolist() == ["C1"]
    assert found[["accuracy", "accuracy_published", "accuracy_difference"]].isna().all(axis=None)
    assert found["normalized_accuracy_difference"].tolist() == pytest.approx([-0.2])
    assert beside_families(OURS, "tiny", PAPER_TASKS[:8], "own").empty


def test_orders_are_those_of_one_publication_and_one_family() -> None:
    """Two points between families of checkpoints would be read as an order of methods."""
    found = ORDERS["published_orders"]("vit_b32", PAPER_TASKS[:8])
    iso = found.query("source == 'Marczak et al. 2025'")[["lower", "higher", "published"]].values.tolist()
    assert iso == [
        ["task_arithmetic", "consensus_task_arithmetic", 4.2],
        ["consensus_task_arithmetic", "tsv_m", 10.9],
        ["tsv_m", "iso_cts", 0.3],
        ["iso_cts", "iso_c", 0.1],
    ]
    assert ["fisher", "regmean"] in found.query("family == 'C0'")[["lower", "higher"]].values.tolist()
    assert (found["published"] > 0).all() and not {"fine_tuned", "adamerging"} & {*found["lower"], *found["higher"]}
    assert ORDERS["published_orders"]("tiny", PAPER_TASKS[:8]).empty


def test_an_order_is_looked_at_within_each_seed() -> None:
    """The spread of fine-tuning, which both methods share, would hide an order that every seed shows."""
    orders = pd.DataFrame(
        [("a", "C0", "fisher", "regmean", 3.5), ("a", "C0", "regmean", "emr", 1.0), ("a", "C0", "emr", "pcb", 1.0)],
        columns=["source", "family", "lower", "higher", "published"],
    )
    scores = {"fisher": (50.0, 60.0, 70.0), "regmean": (51.0, 62.0, 73.0), "emr": (52.0, 61.0, 73.0)}
    ours = pd.DataFrame(
        [(seed, name, value) for name, values in scores.items() for seed, value in enumerate(values)],
        columns=["seed", "method", "accuracy"],
    )
    found = ORDERS["beside_orders"](orders, ours)
    assert found[["lower", "gain_mean", "gain_std", "holding", "seeds"]].values.tolist() == [
        ["fisher", 2.0, 1.0, 3, 3],
        ["regmean", 0.0, 1.0, 1, 3],
    ]
    text = markdown(ORDERS["laid_out_orders"](found, "t"))
    assert "| RegMean above Fisher merging | a (C0) | +3.5 | +2.0 ± 1.0 | 3 of 3 |" in text
