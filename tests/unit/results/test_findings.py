"""docs/figures.md: what it concludes from the tiny model's figures is what the tables beside them show."""

import re
from pathlib import Path

import pandas as pd
import pytest

DOCS = Path(__file__).parents[3] / "docs"
PAGE = " ".join((DOCS / "figures.md").read_text().split())
METHODS = ("task_arithmetic", "ties", "consensus_task_arithmetic")


def numbers(start: str, end: str = ".") -> list[float]:
    """The numbers of the one sentence of the page between two texts."""
    (sentence,) = re.findall(f"{re.escape(start)}(.*?){re.escape(end)}(?: |$)", PAGE)
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?", sentence)]


def drawn(name: str) -> pd.DataFrame:
    return pd.read_csv(DOCS / "tiny" / "figures" / f"{name}.csv")


def test_controlled_finetuning() -> None:
    table = pd.read_csv(DOCS / "tiny" / "tables" / "controlled.csv").set_index(["method", "finetuning"])
    merged = table.loc["task_arithmetic", "normalized_accuracy"].round(1)
    assert numbers("Controlled fine-tuning gives", " (the paper:") == [merged["controlled"], merged["standard"]]
    tuned = table.loc["fine_tuned", "accuracy"].round(1)
    assert numbers("Controlled fine-tuning itself costs", " accuracy.") == [tuned["controlled"], tuned["standard"]]


def test_the_best_threshold() -> None:
    """The page would recommend a k that is not the best."""
    table = drawn("threshold")
    best = table.loc[table.groupby(["method", "tasks"])["normalized_accuracy"].idxmax()].set_index(["method", "tasks"])
    assert best["k"]["consensus_task_arithmetic"].to_dict() == {8: 2, 14: 2, 20: 2}
    assert best["k"]["consensus_ties"].to_dict() == {8: 1, 14: 1, 20: 2}
    at_20 = table.query("method == 'consensus_ties' and tasks == 20").set_index("k")["normalized_accuracy"].round(2)
    assert numbers("At 20 it is k =", ").") == [2, at_20[2], at_20[1], 1]


def test_masks_restore_their_tasks() -> None:
    table = drawn("mask_percentage").groupby("benchmark")
    shares = table["mask_percentage"].agg(["min", "max"]).round()
    assert numbers("A task's mask holds") == [*shares.loc["8tasks"], 8, *shares.loc["20tasks"], 20]
    assert table["masked_normalized_accuracy"].min().min() > 92


def test_agreement_of_masks() -> None:
    shares = drawn("mask_agreement").groupby(["method", "kind", "tasks"])["percentage"].sum().round(1)
    arithmetic, ties = shares["tall_mask_task_arithmetic"], shares["tall_mask_ties"]
    kinds = [[arithmetic[kind][tasks] for tasks in (8, 20)] for kind in ("catastrophic", "selfish", "universal")]
    catastrophic, selfish, universal = kinds
    assert numbers("With task arithmetic", ". Selfish") == [catastrophic[0], 8, catastrophic[1], 20]
    assert numbers("Selfish are") == [*selfish, *universal]
    assert (ties["universal"] == 0).all()
    assert numbers("merges to exactly zero (", ")") == [ties["merged_zero"][8], 8]


def test_accuracy_per_task() -> None:
    """The page would name other exceptions than there are."""
    table = drawn("radar").pivot_table(index=["benchmark", "task"], columns="method", values="accuracy")
    loss = (table["fine_tuned"] - table["tall_mask_task_arithmetic"]).groupby("benchmark").max().round(1)
    assert numbers("With masks no task loses more than") == [loss["20tasks"], 20, loss["8tasks"], 8]
    below = {method: table.index[table[method] < table["zeroshot"]].tolist() for method in METHODS}
    everywhere = [("20tasks", "renderedsst2")]
    assert below == dict.fromkeys(METHODS, everywhere) | {"task_arithmetic": [("20tasks", "eurosat"), *everywhere]}
    assert all((table[method] < table["fine_tuned"]).all() for method in METHODS)


def test_accuracy_by_number_of_tasks() -> None:
    table = drawn("task_count").pivot(index="n", columns="method", values="normalized_accuracy_mean")
    fall = table["task_arithmetic"].round()
    lowest = int(table["tall_mask_task_arithmetic"].min())
    assert numbers("TALL-masks stay above") == [lowest, fall.iloc[0], fall.iloc[-1]]
    gain = table["consensus_task_arithmetic"] - table["task_arithmetic"]
    assert (gain[6:] > 0).all() and (gain[:5] < 0).all()
    assert table["consensus_task_arithmetic"][1] == pytest.approx(table["zeroshot"][1])
