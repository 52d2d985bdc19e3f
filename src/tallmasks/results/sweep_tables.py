"""The numbers behind figures 5 and 6 and table 1, from evaluations; percent, rounded to 4 decimals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from tallmasks import methods
from tallmasks.evaluation.choice import normalized
from tallmasks.evaluation.records import Evaluation
from tallmasks.evaluation.subsets import Subset
from tallmasks.results.tables import ParameterCounts, mean_scores, percent


def threshold_table(method: str, evaluations: Mapping[int, Evaluation], finetuned: Evaluation) -> pd.DataFrame:
    """Figure 6: one row per threshold k, ascending.

    ``evaluations``: consensus merging at each threshold; ``finetuned``: of the same tasks, in any order.
    """
    return pd.DataFrame(
        {
            "method": method,
            "k": k,
            "scaling_coefficient": evaluation.scaling_coefficient,
            **mean_scores(evaluation, finetuned),
            "validation_normalized_accuracy": mean_scores(evaluation, finetuned, "validation")["normalized_accuracy"],
        }
        for k, evaluation in sorted(evaluations.items())
    )


def controlled_table(pairs: Mapping[str, tuple[Evaluation, Evaluation]]) -> pd.DataFrame:
    """Table 1: test accuracies of the fine-tuned models and of task arithmetic, for each way of fine-tuning.

    ``pairs``: by way of fine-tuning ("standard", "controlled"), the evaluations of the fine-tuned models and of task
    arithmetic on them.
    """
    return pd.DataFrame(
        {
            "method": method,
            "finetuning": finetuning,
            **mean_scores(pair[place], pair[0]),
            "scaling_coefficient": pair[place].scaling_coefficient,
        }
        for place, method in enumerate(("fine_tuned", "task_arithmetic"))
        for finetuning, pair in pairs.items()
    )


def subset_table(
    subsets: Sequence[Subset],
    evaluated: Mapping[tuple[str, ...], Sequence[Evaluation]],
    finetuned: Evaluation,
    zeroshot: Mapping[str, float],
    counts: ParameterCounts,
) -> pd.DataFrame:
    """Figure 5: one row per order, n and method; of the fine-tuned and the pretrained models too.

    ``subsets``: the first n tasks of each order; ``evaluated``: the evaluations of each, by its tasks; ``zeroshot``:
    test accuracy of the pretrained model by task, fraction.
    """
    rows = []
    for subset in subsets:
        base = finetuned.in_order(subset.tasks).accuracy("test")
        alone = [zeroshot[task] for task in subset.tasks]
        ratios = normalized(alone, base, subset.tasks)
        scores = {
            "zeroshot": (percent(sum(alone) / len(alone)), percent(ratios.mean())),
            **{each.method: mean_scores(each, finetuned).values() for each in evaluated[subset.tasks]},
            "fine_tuned": (percent(base.mean()), 100.0),
        }
        for method, (accuracy, relative) in scores.items():
            bits = methods.get(method).stored(len(subset.tasks), counts.trainable, counts.frozen, counts.shapes)
            stored = round(bits.gigabits, 6)
            rows += [(order, n, method, accuracy, relative, stored) for order, n in subset.places]
    columns = ["order", "n", "method", "accuracy", "normalized_accuracy", "storage_gb"]
    return pd.DataFrame(rows, columns=columns).sort_values("n", kind="stable")
