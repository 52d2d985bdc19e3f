"""What pages conclude is what the tables beside them show: one row a sentence, and claims without numbers below."""

import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from reference import PAPER_ROWS
from tallmasks.results.reference import paper_table

DOCS = Path(__file__).parents[3] / "docs"
METHODS = ("task_arithmetic", "ties", "consensus_task_arithmetic")
MERGES = list(PAPER_ROWS[PAPER_ROWS.index("weight_averaging") : PAPER_ROWS.index("fine_tuned")])
CONSENSUS = {1: "consensus_task_arithmetic_k1", 2: "consensus_task_arithmetic"}


def numbers(start: str, end: str, page: str = "tiny_model.md") -> list[float]:
    """The numbers of the one sentence of a page between two texts."""
    text = " ".join((DOCS / page).read_text().replace("−", "-").split())
    (sentence,) = re.findall(f"{re.escape(start)}(.*?){re.escape(end)}(?: |$)", text)
    return [float(number) for number in re.findall(r"[+-]?\d+(?:\.\d+)?", sentence)]


def drawn(name: str, folder: str = "tiny") -> pd.DataFrame:
    return pd.read_csv(DOCS / folder / "figures" / f"{name}.csv")


def by_count(folder: str) -> pd.DataFrame:
    """Normalised accuracy, a row for each number of tasks, a column for each method."""
    table = drawn("task_count", folder)
    return table.pivot(index="n", columns="method", values="normalized_accuracy_mean")


def controlled(method: str, column: str) -> list[float]:
    table = pd.read_csv(DOCS / "tiny/tables/controlled.csv").set_index(["method", "finetuning"])
    return [table.loc[(method, tuning), column].round(1) for tuning in ("controlled", "standard")]


def lost(method: str) -> list[float]:
    return [round(100 - value, 1) for value in controlled(method, "normalized_accuracy")]


def shares(method: str, kind: str, *tasks: int, column: str = "percentage") -> list[float]:
    table = drawn("mask_agreement").groupby(["method", "kind", "tasks"])[column].sum().round(1)
    return [table[method, kind, count] for count in tasks]


def mask_shares() -> list[float]:
    table = drawn("mask_percentage").groupby("benchmark")["mask_percentage"].agg(["min", "max"]).round()
    return [*table.loc["8tasks"], 8, *table.loc["20tasks"], 20]


def threshold_at_20() -> list[float]:
    table = drawn("threshold").query("method == 'consensus_ties' and tasks == 20").set_index("k")
    found = table["normalized_accuracy"].round(2)
    return [2, found[2], found[1], 1]


def masks_loss() -> list[float]:
    loss = (accuracy()["fine_tuned"] - accuracy()["tall_mask_task_arithmetic"]).groupby("benchmark").max().round(1)
    return [loss["20tasks"], 20, loss["8tasks"], 8]


def accuracy() -> pd.DataFrame:
    return drawn("per_task").pivot_table(index=["benchmark", "task"], columns="method", values="accuracy")


def by_seed(tasks: int) -> pd.DataFrame:
    """Accuracies of the tiny vision model, with a row for each seed and a column for each method."""
    table = pd.read_csv(DOCS / "tiny" / f"{tasks}tasks" / "seeds" / "per_seed.csv")
    return table.pivot(index="seed", columns="method", values="accuracy")


def means(method: str) -> list[float]:
    return [round(by_seed(tasks)[method].mean(), 1) for tasks in (8, 14, 20)]


def gain(method: str, over: str) -> list[float]:
    """Of a method over another at 8 tasks: mean and spread."""
    differences = by_seed(8)[method] - by_seed(8)[over]
    return [round(differences.mean(), 1), round(differences.std(), 1)]


def paper_gain_of_ties() -> list[float]:
    table = paper_table(3).query("model == 'vit_b32' and benchmark == '8tasks'").set_index("method")["accuracy"]
    return [round(table["ties"] - table["task_arithmetic"], 1)]


def by_threshold_over_seeds() -> list[float]:
    return [value for k, name in CONSENSUS.items()
            for value in (k, round(by_seed(8)[name].mean(), 1), round(by_seed(8)[name].std(), 1))]  # fmt: skip


def kept(*methods: str, column: str = "normalized_accuracy_mean", model: str = "tiny_t5") -> list[float]:
    """Of each method its value at 7, 8 and 11 tasks."""
    return over_seeds(column, model).loc[list(methods)].stack().tolist()


def over_seeds(column: str, model: str = "tiny_t5") -> pd.DataFrame:
    tables = {
        tasks: pd.read_csv(DOCS / "tiny_t5" / model / name / "seeds" / "table.csv").set_index("method")[column]
        for tasks, name in ((7, "7nlp"), (8, "8qa"), (11, "11nlp"))
    }
    return pd.DataFrame(tables).round(1)


def ia3(*methods: str) -> list[float]:
    return kept(*methods, model="tiny_t5_ia3")


def paper(method: str) -> float:
    table = paper_table(2).query("model == 't5_large' and benchmark == '11nlp'").set_index("method")
    return table.loc[method, "normalized_accuracy"]


def consensus_gain(k: int) -> list[float]:
    gain, spread = (over_seeds(f"gain_{what}").loc[CONSENSUS[k]] for what in ("mean", "std"))
    pairs = [value for tasks in (7, 8, 11) for value in (gain[tasks], spread[tasks])]
    return [*pairs[:4], 7, 8, *pairs[4:], 11] if k == 1 else pairs


def at(tasks: int, *methods: str) -> list[float]:
    return by_count("tiny_t5/tiny_t5").loc[tasks, list(methods)].round().tolist()


def field(folder: str) -> pd.DataFrame:
    """Every method over three seeds."""
    return pd.read_csv(DOCS / folder / "field_seeds" / "table.csv").set_index("method")


def rows_of(page: str, columns: int) -> list[list[str]]:
    """The cells of a page's tables of so many columns."""
    lines = (DOCS / page).read_text().replace("−", "-").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return [row for row in cells if len(row) == columns]


MERGED = ("sum", "ties_sum")
MASKED = ("tall_mask_task_arithmetic", "tall_mask_ties")
SENTENCES: list[tuple[str, str, Callable[[], list[float]]]] = [
    ("Without shared weights merging still loses", ".", lambda: lost("task_arithmetic")),
    ("Controlled fine-tuning gives", " (the paper:",
     lambda: controlled("task_arithmetic", "normalized_accuracy")),
    ("Controlled fine-tuning itself costs", " accuracy.", lambda: controlled("fine_tuned", "accuracy")),
    ("Over three seeds", ".", by_threshold_over_seeds),
    ("At 20 it is k =", ").", threshold_at_20),
    ("A task's mask holds", ".", mask_shares),
    ("With task arithmetic", ". Selfish",
     lambda: [*shares(MASKED[0], "catastrophic", 8), 8, *shares(MASKED[0], "catastrophic", 20), 20]),
    ("Selfish are", ".",
     lambda: [*shares(MASKED[0], "selfish", 8, 20), *shares(MASKED[0], "universal", 8, 20)]),
    ("at 8 tasks, as in the paper:", ".",
     lambda: [*shares(MASKED[1], "selfish", 8), *shares(MASKED[1], "universal", 8)]),
    ("With masks no task loses more than", ".", masks_loss),
    ("TALL-masks stay above", ".",
     lambda: [by_count("tiny")[MASKED[0]].min() // 1, *by_count("tiny")["task_arithmetic"].round().iloc[[0, -1]]]),
    ("For `tiny_t5` TALL-masks over TIES keep", ".", lambda: kept(*MASKED[::-1])),
    ("pruning are far below (", " tasks).",
     lambda: [kept("magnitude_masking")[-1], kept("magnitude_pruning")[-1], 11]),
    ("It keeps", ".",
     lambda: [*kept("task_arithmetic"), kept("task_arithmetic", column="normalized_accuracy_std")[-1],
              paper("task_arithmetic"), 11]),
    ("TIES keeps less,", ".", lambda: [*kept("ties"), paper("ties")]),
    ("but half as much again:", " against", lambda: kept("zeroshot", column="accuracy_mean")[-1:]),
    ("With k = 1 the gain is", ".", lambda: consensus_gain(1)),
    ("With k = 2 the gain is", ".", lambda: consensus_gain(2)),
    ("masks keep less than EMR-Merging at every number of tasks.", " EMR keeps", lambda: ia3(*MASKED)),
    (" EMR keeps", ".", lambda: ia3("emr")),
    ("Task arithmetic falls from", " with one task", lambda: at(1, "task_arithmetic")),
    ("with one task to", ". Consensus is",
     lambda: [*at(11, "task_arithmetic"), *at(1, MASKED[0]), *at(11, MASKED[0])]),
    ("gains over TIES:", " points, in all three seeds.", lambda: gain("consensus_ties_k1", "ties")),
    ("At 8 tasks TIES gains", " points over task arithmetic,", lambda: gain("ties", "task_arithmetic")),
    ("no more than the spread. The paper has", ".", paper_gain_of_ties),
    ("Iso-C is above every other merge in these tables, with", " at 8, 14", lambda: means("iso_c")),
    ("Consensus task arithmetic has", ". Of", lambda: means("consensus_task_arithmetic")),
    ("TSV-M and Iso-CTS are above it at 8 tasks:", ".",
     lambda: field("tiny/8tasks").loc[["tsv_m", "iso_cts"], "accuracy_mean"].round(1).tolist()),
    ("EMR-Merging, which chooses nothing, lies below TALL-masks:", ".", lambda: means("emr")),
]  # fmt: skip


@pytest.mark.parametrize(("start", "end", "values"), SENTENCES, ids=[row[0].strip() for row in SENTENCES])
def test_the_numbers_of_a_sentence(start: str, end: str, values: Callable[[], list[float]]) -> None:
    """A reader would be told what the tables beside the sentence contradict."""
    assert numbers(start, end) == values()


def test_what_figures_conclude() -> None:
    """The page would recommend a k that is not the best, or name other exceptions than there are."""
    table = drawn("threshold")
    best = table.loc[table.groupby(["method", "tasks"])["normalized_accuracy"].idxmax()].set_index(["method", "tasks"])
    assert best["k"]["consensus_task_arithmetic"].to_dict() == {8: 2, 14: 2, 20: 2}
    assert best["k"]["consensus_ties"].to_dict() == {8: 1, 14: 1, 20: 2}
    assert drawn("mask_percentage")["masked_normalized_accuracy"].min() > 92
    for kind in ("selfish", "universal"):
        assert shares(MASKED[1], kind, 8) > shares(MASKED[0], kind, 8)
    (zeros,) = shares(MASKED[1], "universal", 8, column="merged_zero_percentage")
    assert zeros > 0.99 * shares(MASKED[1], "universal", 8)[0]
    below = {method: accuracy().index[accuracy()[method] < accuracy()["zeroshot"]].tolist() for method in METHODS}
    everywhere = [("20tasks", "renderedsst2")]
    assert below == dict.fromkeys(METHODS, everywhere) | {"task_arithmetic": [("20tasks", "eurosat"), *everywhere]}
    assert all((accuracy()[method] < accuracy()["fine_tuned"]).all() for method in METHODS)
    table = by_count("tiny")
    gain = table["consensus_task_arithmetic"] - table["task_arithmetic"]
    assert (gain[6:] > 0).all() and (gain[:5] < 0).all()
    assert table["consensus_task_arithmetic"][1] == pytest.approx(table["zeroshot"][1])


@pytest.mark.parametrize("tasks", [8, 14, 20])
def test_what_holds_of_the_tiny_model_at_every_number_of_tasks(tasks: int) -> None:
    """The page would say of the method what its own tables contradict."""
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


def test_what_holds_of_the_tiny_language_models() -> None:
    """The page would deny a gain that its tables show."""
    for name in CONSENSUS.values():
        assert (over_seeds("gain_mean").loc[name] <= over_seeds("gain_std").loc[name]).all()
    adapters = over_seeds("normalized_accuracy_mean", "tiny_t5_ia3")
    assert (adapters.loc[list(MASKED)] < adapters.loc["emr"]).all(axis=None)
    counted = by_count("tiny_t5/tiny_t5")
    assert (counted["consensus_task_arithmetic"] < counted["task_arithmetic"]).all()


def test_what_later_methods_conclude() -> None:
    """The page would recommend a merge that its tables do not show to be better."""
    vision, language = field("tiny/8tasks"), field("tiny_t5/tiny_t5/11nlp")
    gain = vision.query("section == 'merging'")["gain_mean"].sort_values(ascending=False).drop("task_arithmetic")
    assert gain.index[:3].tolist() == ["tsv_m", "iso_cts", "iso_c"] and gain.iloc[2] > gain.iloc[3] + 2
    assert set(gain.index[3:5]) == {"lines", "lines_ties"}
    below = {"fisher", "weight_averaging", "model_stock", "zeroshot"}
    (within,) = numbers("All others are within", " points of it.", "methods.md")
    assert gain.drop([*gain.index[:5], *below]).abs().max().round(1) == within and gain[list(below)].max() < -within
    assert (vision.loc[["tsv_c", "tall_mask_ties", "t_switch"], "normalized_accuracy_mean"] >= 99).all()

    merges = language.query("section == 'merging'").drop("task_arithmetic")
    gains = merges.index[merges["gain_mean"] > merges["gain_std"]]
    level = merges.index[merges["gain_mean"].abs() <= merges["gain_std"]]
    assert set(gains) == {"iso_c", "iso_cts", "dare", "tsv_m"}
    assert set(level) == {"breadcrumbs", "consensus_breadcrumbs", "consensus_dare", CONSENSUS[1]}
    assert (merges.drop([*gains, *level])["gain_mean"] < 0).all()
