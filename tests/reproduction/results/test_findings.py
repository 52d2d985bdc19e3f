"""The claims of docs/results.md hold in the recorded tables next to that page."""

from pathlib import Path

import pandas as pd
import pytest

from reference import PAPER_ROWS

DOCS = Path(__file__).parents[3] / "docs"
MERGES = list(PAPER_ROWS[PAPER_ROWS.index("weight_averaging") : PAPER_ROWS.index("fine_tuned")])


def by_seed(tasks: int) -> pd.DataFrame:
    """Accuracies of the tiny vision model, with a row for each seed and a column for each method."""
    table = pd.read_csv(DOCS / "tiny" / f"{tasks}tasks" / "seeds" / "per_seed.csv")
    return table.pivot(index="seed", columns="method", values="accuracy")


MASKED = ("tall_mask_task_arithmetic", "tall_mask_ties")


@pytest.mark.parametrize("tasks", [8, 14, 20])
def test_what_holds_of_the_tiny_model_at_every_number_of_tasks(tasks: int) -> None:
    """The page would make a claim that its own tables contradict."""
    seeds = by_seed(tasks)
    assert (seeds.tall_mask_task_arithmetic > 0.97 * seeds.fine_tuned).all()
    assert (seeds.tall_mask_ties > seeds.tall_mask_task_arithmetic).all()
    assert (seeds.magnitude_masking > seeds[[*MERGES, "iso_c"]].max(axis=1)).all()
    assert (seeds.magnitude_masking < seeds.tall_mask_task_arithmetic).all()
    assert seeds.consensus_ties.mean() <= seeds.ties.mean()
    assert (seeds.iso_c > seeds[MERGES].max(axis=1)).all()
    assert (seeds.emr < seeds[list(MASKED)].min(axis=1)).all()
    gain = seeds.consensus_task_arithmetic - seeds.task_arithmetic
    assert (gain.mean() > gain.std()) == (tasks > 8)
    if tasks == 8:
        assert (seeds.consensus_ties_k1 > seeds.ties).all()
    assert by_seed(8).magnitude_masking.mean() - seeds.magnitude_masking.mean() < 1
