"""The table of tasks that were left out of the merge; percent, rounded to 4 decimals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import pandas as pd

from tallmasks import methods
from tallmasks.evaluation.records import SPLITS, Evaluation
from tallmasks.results.tables import per_task_table
from tallmasks.results.typesetting import Cell, TableLayout, markdown


def held_out_table(rows: Mapping[str, Sequence[Evaluation]], finetuned: Mapping[str, Evaluation]) -> pd.DataFrame:
    """The columns of `per_task_table`, for models that know nothing of the row's task.

    ``rows``: by task, the evaluations on it alone, the same methods in the same order; ``finetuned``: its own model on
    it.
    """
    every = pd.concat([per_task_table(evaluations, finetuned[task]) for task, evaluations in rows.items()])
    parts = product(dict.fromkeys(every["method"]), SPLITS)
    return pd.concat([every[(every["method"] == method) & (every["split"] == split)] for method, split in parts])


def held_out_for_people(table: pd.DataFrame, title: str) -> str:
    """The means over the tasks as Markdown, and on how many a merge beats the zero-shot model."""
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
