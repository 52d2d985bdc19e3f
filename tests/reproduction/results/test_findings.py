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


def field(folder: str) -> pd.DataFrame:
    """Every method over three seeds."""
    return pd.read_csv(DOCS / folder / "field_seeds" / "table.csv").set_index("method")


MASKED = ("tall_mask_task_arithmetic", "tall_mask_ties")


def test_what_figure_6_concludes() -> None:
    """The page would recommend a k that is not the best."""
    table = pd.read_csv(DOCS / "tiny" / "figures" / "threshold.csv")
    best = table.loc[table.groupby(["method", "tasks"])["normalized_accuracy"].idxmax()].set_index(["method", "tasks"])
    assert best["k"]["consensus_task_arithmetic"].to_dict() == {8: 2, 14: 2, 20: 2}
    assert best["k"]["consensus_ties"].to_dict() == {8: 1, 14: 1, 20: 2}


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


def test_what_later_methods_conclude() -> None:
    """The page would recommend a merge that its tables do not show to be better."""
    vision, language = field("tiny/8tasks"), field("tiny_t5/tiny_t5/11nlp")
    gain = vision.query("section == 'merging'")["gain_mean"].sort_values(ascending=False).drop("task_arithmetic")
    assert gain.index[:3].tolist() == ["tsv_m", "iso_cts", "iso_c"] and gain.iloc[2] > gain.iloc[3] + 2
    assert set(gain.index[3:5]) == {"lines", "lines_ties"}
    below = {"fisher", "weight_averaging", "model_stock", "zeroshot"}
    assert gain[list(below)].max() < -gain.drop([*gain.index[:5], *below]).abs().max()
    assert (vision.loc[["tsv_c", "tall_mask_ties", "t_switch"], "normalized_accuracy_mean"] >= 99).all()

    merges = language.query("section == 'merging'").drop("task_arithmetic")
    gains = merges.index[merges["gain_mean"] > merges["gain_std"]]
    level = merges.index[merges["gain_mean"].abs() <= merges["gain_std"]]
    assert set(gains) == {"iso_c", "iso_cts", "dare", "tsv_m"}
    assert set(level) == {"breadcrumbs", "consensus_breadcrumbs", "consensus_dare", "consensus_task_arithmetic_k1"}
    assert (merges.drop([*gains, *level])["gain_mean"] < 0).all()
