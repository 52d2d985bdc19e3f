"""The numbers behind figures 5 and 6 and table 1, from evaluations: functions to tables, percent, 4 decimals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from tallmasks import methods
from tallmasks.evaluation.choice import normalized
from tallmasks.evaluation.records import Evaluation
from tallmasks.evaluation.subsets import Subset
from tallmasks.results.tables import ParameterCounts


def _percent(fraction: float) -> float:
    return round(100 * float(fraction), 4)


def _scores(evaluation: Evaluation, finetuned: Evaluation, split: str) -> tuple[float, float]:
    """Accuracy and normalised accuracy, means over the tasks, in percent."""
    accuracy = evaluation.accuracy(split)
    base = finetuned.in_order(evaluation.tasks).accuracy(split)
    return _percent(accuracy.mean()), _percent(normalized(accuracy, base, evaluation.tasks).mean())


def threshold_table(method: str, evaluations: Mapping[int, Evaluation], finetuned: Evaluation) -> pd.DataFrame:
    """Figure 6: one row per threshold k, ascending.

    Args:
        method: the name that stands for all of them.
        evaluations: consensus merging at each threshold.
        finetuned: of the same tasks, in any order.
    """
    rows = []
    for k, evaluation in sorted(evaluations.items()):
        accuracy, relative = _scores(evaluation, finetuned, "test")
        rows.append(
            {
                "method": method,
                "k": k,
                "scaling_coefficient": evaluation.scaling_coefficient,
                "accuracy": accuracy,
                "normalized_accuracy": relative,
                "validation_normalized_accuracy": _scores(evaluation, finetuned, "validation")[1],
            }
        )
    return pd.DataFrame(rows)


def stored_table(found: Mapping[str, tuple[Evaluation, int]], finetuned: Evaluation) -> pd.DataFrame:
    """Models out of bundles: one row per dtype of tau_MTL, with test accuracies and 1e9 bits of files.

    Args:
        found: by dtype, the evaluation of a masking row and the bytes of the bundle and of the pretrained file.
        finetuned: of the same tasks, in any order.
    """
    columns = ["method", "dtype", "accuracy", "normalized_accuracy", "stored_gb"]
    rows = [
        (evaluation.method, dtype, *_scores(evaluation, finetuned, "test"), round(8 * size / 1e9, 4))
        for dtype, (evaluation, size) in found.items()
    ]
    return pd.DataFrame(rows, columns=columns)


def controlled_table(found: Mapping[str, tuple[Evaluation, Evaluation]]) -> pd.DataFrame:
    """Table 1: test accuracies of the fine-tuned models and of task arithmetic, for each way of fine-tuning.

    Args:
        found: by way of fine-tuning ("standard", "controlled"), the evaluations of the fine-tuned models and of task
            arithmetic on them.
    """
    rows = []
    for place, method in enumerate(("fine_tuned", "task_arithmetic")):
        for finetuning, pair in found.items():
            accuracy, relative = _scores(pair[place], pair[0], "test")
            rows.append((method, finetuning, accuracy, relative, pair[place].scaling_coefficient))
    columns = ["method", "finetuning", "accuracy", "normalized_accuracy", "scaling_coefficient"]
    return pd.DataFrame(rows, columns=columns)


def subset_table(
    found: Sequence[Subset],
    evaluated: Mapping[tuple[str, ...], Sequence[Evaluation]],
    finetuned: Evaluation,
    zeroshot: Mapping[str, float],
    counts: ParameterCounts,
) -> pd.DataFrame:
    """Figure 5: one row per order, n and method; of the fine-tuned and the pretrained models too.

    Args:
        found: the subsets.
        evaluated: the evaluations of each, by its tasks.
        finetuned: of every task.
        zeroshot: test accuracy of the pretrained model by task, fraction.
        counts: of the model, for what is stored.
    """
    rows = []
    for subset in found:
        own = finetuned.in_order(subset.tasks)
        base = own.accuracy("test")
        ratios = normalized([zeroshot[task] for task in subset.tasks], base, subset.tasks)
        scores = {
            "zeroshot": (_percent(sum(zeroshot[task] for task in subset.tasks) / len(base)), _percent(ratios.mean())),
            **{evaluation.method: _scores(evaluation, own, "test") for evaluation in evaluated[subset.tasks]},
            "fine_tuned": (_percent(base.mean()), 100.0),
        }
        for method, (accuracy, relative) in scores.items():
            bits = methods.get(method).stored(len(subset.tasks), counts.trainable, counts.frozen, counts.shapes)
            stored = round(bits.gigabits, 6)
            rows += [(order, n, method, accuracy, relative, stored) for order, n in subset.places]
    columns = ["order", "n", "method", "accuracy", "normalized_accuracy", "storage_gb"]
    return pd.DataFrame(rows, columns=columns).sort_values("n", kind="stable")
