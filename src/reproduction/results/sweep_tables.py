"""Tables for figures 5 and 6, table 1 and held-out tasks.  Scores are in percent, rounded to 4 decimals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import pandas as pd

from reproduction.evaluation.records import SPLITS, Evaluation
from reproduction.results.tables import ParameterCounts, mean_scores, per_task_table
from reproduction.results.typesetting import Cell, TableLayout, markdown
from tallmasks import methods


def threshold_table(method: str, evaluations: Sequence[Evaluation], finetuned: Evaluation) -> pd.DataFrame:
    """Figure 6: one row per threshold k.

    ``evaluations``: of consensus merging, for k = 0, 1, ...; ``finetuned``: has the same tasks, in any order.
    """
    return pd.DataFrame(
        {
            "method": method,
            "k": k,
            "scaling_coefficient": evaluation.scaling_coefficient,
            **mean_scores(evaluation, finetuned),
            "validation_normalized_accuracy": mean_scores(evaluation, finetuned, "validation")["normalized_accuracy"],
        }
        for k, evaluation in enumerate(evaluations)
    )


def controlled_table(pairs: Mapping[str, tuple[Evaluation, Evaluation]]) -> pd.DataFrame:
    """Table 1: test accuracies of the fine-tuned models and of task arithmetic.

    ``pairs``: these two evaluations for each way of fine-tuning ("standard", "controlled").
    """
    return pd.DataFrame(
        {
            "method": method,
            "finetuning": finetuning,
            **mean_scores(pair[index], pair[0]),
            "scaling_coefficient": pair[index].scaling_coefficient,
        }
        for index, method in enumerate(("fine_tuned", "task_arithmetic"))
        for finetuning, pair in pairs.items()
    )


def subset_table(
    evaluated: Mapping[str, Sequence[Sequence[Evaluation]]],
    zeroshot: Evaluation,
    finetuned: Evaluation,
    counts: ParameterCounts,
) -> pd.DataFrame:
    """Figure 5: one row per order, n and method, including the fine-tuned and the pretrained models.

    ``evaluated``: by order, the methods' evaluations on the first n tasks for n = 1, 2, ...
    """
    rows = []
    for order, of_order in evaluated.items():
        for n, evaluations in enumerate(of_order, 1):
            tasks = evaluations[0].tasks
            for one in (zeroshot.in_order(tasks), *evaluations, finetuned.in_order(tasks)):
                stored = {"formula_gbit": counts.stored_by(one, 6)}
                rows.append({"order": order, "n": n, "method": one.method, **mean_scores(one, finetuned), **stored})
    return pd.DataFrame(rows)


def held_out_table(rows: Mapping[str, Sequence[Evaluation]], finetuned: Mapping[str, Evaluation]) -> pd.DataFrame:
    """A `per_task_table` of merges without the task of the row.

    ``rows``: the evaluations on each held-out task, of the same methods in the same order; ``finetuned``: by task.
    """
    table = pd.concat([per_task_table(evaluations, finetuned[task]) for task, evaluations in rows.items()])
    parts = product(dict.fromkeys(table["method"]), SPLITS)
    return pd.concat([table[(table["method"] == method) & (table["split"] == split)] for method, split in parts])


def held_out_for_people(table: pd.DataFrame, title: str) -> str:
    """A `held_out_table` as Markdown: means, and on how many tasks each merge is better than zero-shot."""
    test = table[table["split"] == "test"]
    zeroshot = test[test["method"] == "zeroshot"].set_index("task")["accuracy"]
    rows = []
    for name, part in test.groupby("method", sort=False):
        scores = part.set_index("task")["accuracy"]
        better = "–" if name == "zeroshot" else f"{int((scores > zeroshot).sum())} of {len(scores)}"
        texts = [f"{scores.mean():.1f}", f"{part['normalized_accuracy'].mean():.1f}", better]
        rows.append([Cell(methods.get(str(name)).title), *map(Cell, texts)])
    note = (
        "Test accuracy on each task under the merge of all others, averaged over the tasks. Coefficients are chosen on "
        "validation data of the merged tasks; the task left out takes no part."
    )
    heads = ["", "Acc. (%)", "Normalised (%)", "Better than zero-shot"]
    return markdown(TableLayout(title, [], heads, [("Merging", rows)], note))
