"""docs/figures.md and docs/tiny_t5/README.md: what they conclude is what the tables beside them show."""

import re
from pathlib import Path

import pandas as pd
import pytest

from tallmasks.results.reference import paper_table

DOCS = Path(__file__).parents[3] / "docs"
VISION = " ".join((DOCS / "figures.md").read_text().split())
LANGUAGE = " ".join((DOCS / "tiny_t5" / "README.md").read_text().replace("−", "-").split())
METHODS = ("task_arithmetic", "ties", "consensus_task_arithmetic")


def numbers(start: str, end: str = ".", page: str = VISION) -> list[float]:
    """The numbers of the one sentence of a page between two texts."""
    (sentence,) = re.findall(f"{re.escape(start)}(.*?){re.escape(end)}(?: |$)", page)
    return [float(number) for number in re.findall(r"[+-]?\d+(?:\.\d+)?", sentence)]


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


# -- the tiny language models ---------------------------------------------------------------------------------


def over_seeds(model: str, column: str = "normalized_accuracy_mean") -> pd.DataFrame:
    """A row for each method, a column for each number of tasks."""
    tables = {
        tasks: pd.read_csv(DOCS / "tiny_t5" / model / name / "seeds" / "table.csv").set_index("method")[column]
        for tasks, name in ((7, "7nlp"), (8, "8qa"), (11, "11nlp"))
    }
    return pd.DataFrame(tables).round(1)


def language_numbers(start: str, end: str = ".") -> list[float]:
    return numbers(start, end, LANGUAGE)


def test_what_masks_and_merges_keep_of_language_tasks() -> None:
    kept = over_seeds("tiny_t5")
    masked = [*kept.loc["tall_mask_ties"], *kept.loc["tall_mask_task_arithmetic"]]
    assert language_numbers("For `tiny_t5` TALL-masks over TIES keep") == masked
    assert language_numbers("pruning are far below (", " tasks).") == [
        *kept.loc[["magnitude_masking", "magnitude_pruning"], 11],
        11,
    ]
    paper = paper_table(2).query("model == 't5_large' and benchmark == '11nlp'").set_index("method")
    paper = paper["normalized_accuracy"]
    spread = over_seeds("tiny_t5", "normalized_accuracy_std").loc["task_arithmetic", 11]
    assert language_numbers("It keeps") == [*kept.loc["task_arithmetic"], spread, paper["task_arithmetic"], 11]
    assert language_numbers("TIES keeps less,") == [*kept.loc["ties"], paper["ties"]]
    zeroshot = over_seeds("tiny_t5", "accuracy_mean").loc["zeroshot", 11]
    assert language_numbers("but half as much again:", " against") == [zeroshot]


def test_consensus_does_not_help_language_tasks() -> None:
    """The page would deny a gain that its tables show."""
    gain, spread = over_seeds("tiny_t5", "gain_mean"), over_seeds("tiny_t5", "gain_std")
    for k, name in ((1, "consensus_task_arithmetic_k1"), (2, "consensus_task_arithmetic")):
        assert (gain.loc[name] <= spread.loc[name]).all()
        pairs = [value for tasks in (7, 8, 11) for value in (gain.loc[name, tasks], spread.loc[name, tasks])]
        places = [7, 8] if k == 1 else []
        assert language_numbers(f"With k = {k} the gain is") == [
            *pairs[:4],
            *places,
            *pairs[4:],
            *([11] if k == 1 else []),
        ]
    kept = over_seeds("tiny_t5")
    over_ties = [*kept.loc["consensus_ties"], 1, *kept.loc["consensus_ties_k1"]]
    assert language_numbers("Over TIES k = 2 gives", ", more than TIES.") == over_ties
    assert (kept.loc[["consensus_ties", "consensus_ties_k1"]] > kept.loc["ties"]).all(axis=None)


def test_what_ia3_keeps() -> None:
    kept = over_seeds("tiny_t5_ia3")
    masked = kept.loc[["tall_mask_task_arithmetic", "tall_mask_ties"]]
    assert (
        language_numbers("masks keep less than EMR-Merging at every number of tasks.", " EMR keeps")
        == masked.stack().tolist()
    )
    assert language_numbers(" EMR keeps") == [*kept.loc["emr"]] and (masked < kept.loc["emr"]).all(axis=None)
    masking = language_numbers("Magnitude masking is above zero-shot:")
    assert masking == [*kept.loc["magnitude_masking"], *kept.loc["zeroshot"]]
    for merge in ("task_arithmetic", "ties"):
        assert (kept.loc[f"consensus_{merge}_k1"] > kept.loc[f"consensus_{merge}"]).all()
    consensus = kept.loc[["consensus_task_arithmetic_k1", "consensus_task_arithmetic"]]
    assert language_numbers("Over task arithmetic they keep", " tasks.")[-3:] == [*consensus[11], 11]
    assert (consensus < kept.loc["task_arithmetic"]).all(axis=None)
    assert language_numbers("Over TIES k = 1 gives") == [*kept.loc["consensus_ties_k1"], *kept.loc["ties"]]
    assert (kept.loc["ties"] < kept.loc["task_arithmetic"]).all()


def test_language_figures() -> None:
    folder = DOCS / "tiny_t5" / "tiny_t5" / "figures"
    sums = pd.read_csv(folder / "threshold.csv").query("method == 'consensus_ties' and k == 0")
    assert (
        language_numbers("the sum of TIES alone (k = 0) gives", " at") == sums["normalized_accuracy"].round(1).tolist()
    )
    table = pd.read_csv(folder / "task_count.csv").pivot(index="n", columns="method", values="normalized_accuracy_mean")
    ends = table.loc[[1, 11], ["task_arithmetic", "tall_mask_task_arithmetic"]].round()
    assert language_numbers("Task arithmetic falls from", " with one task") == [ends.iloc[0, 0]]
    assert language_numbers("with one task to", ". Consensus is") == [
        ends.iloc[1, 0],
        *ends["tall_mask_task_arithmetic"],
    ]
    assert (table["consensus_task_arithmetic"] < table["task_arithmetic"]).all()


def test_other_processors() -> None:
    """docs/machines.md would say of the shipped tables what they are not."""

    def moved(shipped: str, measured: str) -> pd.Series:
        rows = pd.read_csv(DOCS / "benchmarks" / measured).set_index("method")["accuracy"].dropna()
        return (rows - pd.read_csv(DOCS / shipped / "table.csv").set_index("method")["accuracy"]).abs()

    assert moved("tiny/8tasks", "processors_tiny.csv").max() == 0
    page = " ".join((DOCS / "machines.md").read_text().split())
    (most,) = numbers("The shipped table of seed 0 lies up to", " points", page)
    assert moved("tiny_t5/tiny_t5/7nlp", "processors_tiny_t5.csv").max().round(1) == most
    others = pd.read_csv(DOCS / "benchmarks" / "processors_tiny.csv", index_col=0).drop(columns="accuracy")
    assert (others == 0).all(axis=None)
