"""The published numbers in this package, and comparisons with ours."""

import pandas as pd
import pytest

from reproduction.results.paper import published_name
from reproduction.results.reference import (
    PAPER_TASKS,
    TABLES,
    beside_paper,
    beside_published,
    paper_rows,
    paper_table,
    shipped,
)
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
        ("tiny_t5_ia3", {}, ""),
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
