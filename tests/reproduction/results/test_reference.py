"""The published numbers in this package, comparisons with ours, and the table of all methods."""

import numpy as np
import pandas as pd
import pytest

from reproduction.evaluation.choice import mean_interval, wilson_interval
from reproduction.evaluation.records import Evaluation
from reproduction.results.field_tables import field_table, laid_out_field, year
from reproduction.results.paper import published_name
from reproduction.results.reference import (
    PAPER_TASKS,
    TABLES,
    beside_families,
    beside_paper,
    beside_published,
    dtd_excess,
    family_of,
    paper_rows,
    paper_table,
    published_numbers,
    shipped,
)
from reproduction.results.tables import ParameterCounts
from reproduction.results.typesetting import markdown
from tallmasks import methods


@pytest.mark.parametrize(
    ("number", "model", "benchmark", "method", "expected"),
    [  # read off the paper, one from each corner
        (2, "t5_large", "7nlp", "zeroshot", {"accuracy": 44.9, "formula_gbit": 25.1}),
        (3, "vit_l14", "20tasks", "fine_tuned", {"accuracy": 94.7, "formula_gbit": 195.8}),
        (5, "vit_b16", "20tasks", "consensus_task_arithmetic", {"accuracy": 70.0, "normalized_accuracy": 75.2}),
        (6, "t5_large_ia3", "8qa", "consensus_task_arithmetic_k1", {"accuracy": 60.2, "normalized_accuracy": 77.1}),
        (7, "vit_b16", "20tasks", "tall_mask_ties", {"accuracy": 93.0, "normalized_accuracy": 99.8}),
    ],
)
def test_spot_values(number: int, model: str, benchmark: str, method: str, expected: dict[str, float]) -> None:
    """Our numbers would be compared with numbers that the paper does not report."""
    table = paper_table(number)
    (row,) = table.query("model == @model and benchmark == @benchmark and method == @method").to_dict("records")
    assert {name: row[name] for name in expected} == expected
    assert row["source"] == f"Wang et al. 2024, table {number}"


def test_the_tables_are_whole() -> None:
    """A line lost in copying would leave a hole in every comparison."""
    rows = {number: len(paper_table(number)) for number in TABLES}
    assert rows == {1: 4, 2: 3 * 11, 3: 6 * 11, 4: 6 * 6, 5: 3 * 6, 6: 3 * 7, 7: 3 * 11}
    for number in TABLES:
        table = paper_table(number)
        assert set(table["method"]) <= set(methods.names())
        assert not table.duplicated([c for c in ("model", "benchmark", "method", "finetuning") if c in table]).any()


def test_a_set_of_tasks_finds_its_numbers_whatever_its_name() -> None:
    """A benchmark with the paper's name but other tasks would be compared with the paper's benchmark."""
    rows = paper_rows("vit_b32", reversed(PAPER_TASKS[:8]))
    assert rows is not None and len(rows) == 13
    by_method = rows.set_index("method")
    assert by_method.loc["consensus_task_arithmetic_k1", "accuracy"] == 73.8
    assert by_method.loc["task_arithmetic", "source"] == "Wang et al. 2024, table 3"
    assert paper_rows("vit_b32", PAPER_TASKS[:9]) is None
    assert paper_rows("tiny", PAPER_TASKS[:8]) is None


@pytest.mark.parametrize(
    ("name", "network", "expected"),
    [
        ("vit_b32", {"architecture": "ViT-B-16-quickgelu"}, "vit_b16"),
        ("vit_b32", {"architecture": {"embed_dim": 96, "vision_cfg": {}, "text_cfg": {}}}, ""),
        ("t5_large", {"architecture": {"name": "google/t5-large-lm-adapt", "frozen_table": "lm_head"}}, "t5_large"),
        ("t5_large", {"architecture": {"name": "t5-large-lm-adapt", "num_layers": 2}}, ""),
        ("t5_large", {"adapter": "ia3"}, "t5_large_ia3"),
    ],
)
def test_a_model_finds_its_numbers_whatever_its_name(name, network, expected, params):
    """A network under the paper's name for another one would be compared with that one's numbers."""
    assert published_name({**params["models"][name], **network}) == expected


def test_ours_stands_beside_the_papers() -> None:
    """The difference would have the wrong sign, or a method of the user's own would be dropped with an error."""
    columns = ["section", "method", "accuracy", "normalized_accuracy", "formula_gbit"]
    summary = pd.DataFrame(
        [("merging", "ties", 75.6, 81.2, 3.63), ("merging", "mine", 99.0, 99.0, 3.63)], columns=columns
    )
    paper = paper_rows("vit_b32", PAPER_TASKS[:8])
    assert paper is not None
    (row,) = beside_paper(summary, paper, "vit_b32", PAPER_TASKS[:8]).to_dict("records")
    assert row["method"] == "ties" and row["source"] == "Wang et al. 2024, table 3" and "merged a DTD" in row["note"]
    assert dtd_excess("vit_l14", PAPER_TASKS[:8]) == pytest.approx(1.8, abs=0.05)
    assert (row["accuracy"], row["accuracy_paper"], row["accuracy_difference"]) == (75.6, 75.1, 0.5)
    assert (row["normalized_accuracy_difference"], row["formula_gbit_difference"]) == (0.2, 0.03)


@pytest.mark.parametrize(
    ("model", "zeroshot", "first", "second"),
    [
        ("vit_b32", (48.3, 57.3, 56.1), (92.8, 90.9, 91.4), (90.6, 89.6, 90.5)),
        ("vit_b16", (55.5, 61.3, 59.8), (94.6, 92.8, 93.2), (92.7, 91.6, 92.4)),
        ("vit_l14", (64.8, 68.3, 65.3), (95.8, 94.3, 94.7), (94.1, 93.3, 94.1)),
    ],
)
def test_the_published_accuracies_are_those_of_their_generation(
    model: str, zeroshot: tuple[float, ...], first: tuple[float, ...], second: tuple[float, ...]
) -> None:
    """A slip in one of 360 published numbers would make a user look for a fault of their machine."""
    table = shipped("single_task").query("model == @model and split == 'test'")
    for count, *expected in zip((8, 14, 20), zeroshot, first, second, strict=True):
        part = table[table["task"].isin(PAPER_TASKS[:count])]
        means = part.groupby(["method", "generation"])["accuracy"].mean()
        keys = [("zeroshot", "second"), ("fine_tuned", "first"), ("fine_tuned", "second")]
        assert [means[key] for key in keys] == pytest.approx(expected, abs=0.06)
        paper = paper_rows(model, PAPER_TASKS[:count])
        assert paper is not None, "the first generation is the paper's"
        assert paper.set_index("method").loc["fine_tuned", "accuracy"] == pytest.approx(means[keys[1]], abs=0.1)
    assert not table.duplicated(["task", "method", "generation"]).any() and len(table) == 60
    assert set(shipped("single_task")["split"]) == {"validation", "test"}


def test_each_publication_stands_beside_ours() -> None:
    """Nobody would know which checkpoints a published number is of."""
    rows = [("mnist", "zeroshot", 50.0), ("dtd", "fine_tuned", 80.0), ("dtd", "ties", 60.0), ("birds", "zeroshot", 9.0)]
    found = beside_published(pd.DataFrame(rows, columns=["task", "method", "accuracy"]), "vit_b32")
    assert found["method"].tolist() == ["zeroshot", "fine_tuned", "fine_tuned", "ties", "zeroshot"]
    assert found["generation"].tolist()[:3] == ["second", "first", "second"]
    assert found["accuracy_difference"].tolist()[:3] == [1.74, -17.9787, 0.7979]
    assert found["source"].iloc[0] == "wang-kee/LiNeS at 43a7bdd" and found["source"].iloc[3:].isna().all()
    assert beside_published(found[["task", "method", "accuracy"]], "tiny")["source"].isna().all()


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


COUNTS = {
    "vit_b32": (87_849_216, 25_599_489),
    "vit_b16": (86_192_640, 25_599_489),
    "vit_l14": (303_966_208, 38_595_841),
    "t5_large": (750_251_008, 32_899_072),
    "t5_large_ia3": (282_624, 783_150_080),
}
"""P' and F of the paper's models."""


@pytest.mark.parametrize("number", [2, 3, 7])
def test_storage_is_that_of_the_paper(number: int) -> None:
    """A reader would compare accuracies at a cost that is not the method's."""
    for row in paper_table(number).itertuples():
        method, tasks = methods.get(str(row.method)), int("".join(filter(str.isdigit, str(row.benchmark))))
        stored = method.stored_size(tasks, *COUNTS[str(row.model)], {}).gigabits
        assert round(stored, 1) == row.formula_gbit and method.stores_more == row.lower_bound, row
