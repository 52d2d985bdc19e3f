"""Numbers that were published of any method, by the checkpoints that they are of, and ours beside them.

``later.csv`` has what later papers and their code report, copied as printed from the source that each line names.
Every number belongs to a family of checkpoints.  These differ by some two points in the accuracy of the fine-tuned
models:

======  ==================================================================================================
C0      Ilharco et al.'s of 2022; the classical 8 tasks alone
C1      the first generation of this paper's, whose DTD model had seen its test images
C2      the second generation, which is on the hub (`checkpoints: published` in params.yaml)
FB      FusionBench's (`checkpoints: fusionbench`); 8 tasks alone
======  ==================================================================================================

An absolute accuracy is held against those of the same family alone.  Models that were fine-tuned here are a family of
their own, "own".  Their normalised accuracy is compared with every family's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas as pd

from tallmasks.results.reference import BENCHMARKS, paper_rows, shipped, single_task

OWN = "own"
_OF_PUBLISHERS = {"published": "C2", "fusionbench": "FB"}
_NUMBERS = ("accuracy", "normalized_accuracy")


def family_of(sources: Iterable[str | None]) -> str:
    """The family of a benchmark's checkpoints, from where each task's is from (None: fine-tuned here); "own" where they
    are of several, or somebody's."""
    families = {_OF_PUBLISHERS.get(str(source), OWN) for source in sources}
    return families.pop() if len(families) == 1 else OWN


def published_numbers(model: str, tasks: Sequence[str]) -> pd.DataFrame:
    """What was published of a model on exactly these tasks: ``method``, ``family``, ``accuracy``,
    ``normalized_accuracy`` (percent, empty where it was not printed) and ``source``; no rows where nothing was."""
    later, paper = shipped("later"), paper_rows(model, tasks)
    later = later[(later["model"] == model) & (later["benchmark"] == BENCHMARKS.get(frozenset(tasks)))]
    parts = [later, *([] if paper is None else [paper.assign(family="C1")]), _second_generation(model, set(tasks))]
    columns = ["method", "family", *_NUMBERS, "source"]
    return pd.concat([part.reindex(columns=columns) for part in parts if len(part)] or [pd.DataFrame(columns=columns)])


def _second_generation(model: str, tasks: set[str]) -> pd.DataFrame:
    """Means over the tasks of what was published task by task; none where a task is missing."""
    rows = single_task().query("model == @model and split == 'test' and generation == 'second' and task in @tasks")
    groups = rows.groupby(["method", "source"])["accuracy"].agg(["mean", "size"]).reset_index()
    whole = groups[groups["size"] == len(tasks)]
    return pd.DataFrame(
        {
            "method": whole["method"],
            "family": "C2",
            "accuracy": whole["mean"].round(4),
            "source": whole["source"] + ", mean over the tasks",
        }
    )


def beside_families(ours: pd.DataFrame, model: str, tasks: Sequence[str], family: str) -> pd.DataFrame:
    """Ours, what was published, and the difference (ours minus theirs), a line for each publication of a method.

    ``ours``: ``method``, ``accuracy`` and ``normalized_accuracy`` in percent; ``family``: of our checkpoints.  Of "own"
    ones the accuracies stay empty, and what has no normalised accuracy, or nothing but 100, is left out.
    """
    published = published_numbers(model, tasks).rename(columns={name: f"{name}_published" for name in _NUMBERS})
    if family == OWN:
        published = published.query("normalized_accuracy_published.notna() and method != 'fine_tuned'")
    else:
        published = published.query("family == @family")
    joined = ours[["method", *_NUMBERS]].merge(published, on="method").assign(checkpoints=family)
    if family == OWN:
        joined[["accuracy", "accuracy_published"]] = None
    columns = ["method", "checkpoints", "family"]
    for name in _NUMBERS:
        pair = joined[[name, f"{name}_published"]].astype(float)
        joined[f"{name}_difference"] = (pair[name] - pair[f"{name}_published"]).round(4)
        columns += [name, f"{name}_published", f"{name}_difference"]
    return joined[[*columns, "source"]]
