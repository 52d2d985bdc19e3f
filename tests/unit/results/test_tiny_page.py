"""docs/tiny_model.md: what its sentences conclude is what the tables over three seeds show."""

import re
from pathlib import Path

import pandas as pd
import pytest

from reference import PAPER_ROWS

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "tiny_model.md").read_text()
MERGES = PAPER_ROWS[PAPER_ROWS.index("weight_averaging") : PAPER_ROWS.index("fine_tuned")]


def by_seed(tasks: int) -> pd.DataFrame:
    """Accuracies, with a row for each seed and a column for each method."""
    table = pd.read_csv(DOCS / "tiny" / f"{tasks}tasks" / "seeds" / "per_seed.csv")
    return table.pivot(index="seed", columns="method", values="accuracy")


def shown(pattern: str) -> list[float]:
    """The numbers of the one sentence of the page that fits."""
    (sentence,) = re.findall(pattern, " ".join(PAGE.split()))
    return [float(number) for number in re.findall(r"\d+\.\d+", sentence)]


@pytest.mark.parametrize("tasks", [8, 14, 20])
def test_what_holds_at_every_number_of_tasks(tasks: int) -> None:
    """The page would say of the method what its own tables contradict."""
    seeds = by_seed(tasks)
    assert (seeds.tall_mask_task_arithmetic > 0.97 * seeds.fine_tuned).all()
    assert (seeds.tall_mask_ties > seeds.tall_mask_task_arithmetic).all()
    best_merge = seeds[[*MERGES, "iso_c"]].max(axis=1)
    assert (seeds.magnitude_masking > best_merge).all()
    assert (seeds.magnitude_masking < seeds.tall_mask_task_arithmetic).all()
    assert seeds.consensus_ties.mean() <= seeds.ties.mean()
    assert (seeds.iso_c > seeds[list(MERGES)].max(axis=1)).all()
    assert (seeds.emr < seeds[["tall_mask_task_arithmetic", "tall_mask_ties"]].min(axis=1)).all()


def test_where_consensus_merging_gains() -> None:
    """The gain is the paper's second claim; the page and the README say from which number of tasks on it is there."""
    for tasks, beyond_spread in {8: False, 14: True, 20: True}.items():
        seeds = by_seed(tasks)
        gain = seeds.consensus_task_arithmetic - seeds.task_arithmetic
        assert (gain.mean() > gain.std()) == beyond_spread
    seeds = by_seed(8)
    gain = seeds.consensus_ties_k1 - seeds.ties
    assert (gain > 0).all()
    assert shown(r"gain over TIES there: .*? seeds") == [round(gain.mean(), 1), round(gain.std(), 1)]


def test_magnitude_masking_keeps_its_accuracy() -> None:
    """The page says so, beside the paper's fall."""
    assert by_seed(8).magnitude_masking.mean() - by_seed(20).magnitude_masking.mean() < 1


@pytest.mark.parametrize(
    ("method", "pattern"),
    [
        ("iso_c", r"Iso-C is above.*? tasks\."),
        ("consensus_task_arithmetic", r"Consensus task arithmetic has .*?\. -"),
        ("emr", r"EMR-Merging, which .*?`"),
    ],
)
def test_numbers_in_sentences_are_means_over_the_seeds(method: str, pattern: str) -> None:
    """Numbers of one seed and of three would stand side by side."""
    assert shown(pattern) == [round(by_seed(tasks)[method].mean(), 1) for tasks in (8, 14, 20)]
