"""The stages of the store and of the results, with the number of each."""

from __future__ import annotations

STAGE_VERSIONS = {
    "examples": 2,
    "pretrained": 2,
    "head": 2,
    "checkpoint": 3,
    "imported": 3,
    "task_vector": 3,
    "multi_task_vector": 2,
    "mask_bundle": 2,
    "agreement": 2,
    "evaluation": 3,
    "task_evaluation": 3,
    "threshold_evaluation": 3,
    "task_orders": 2,
    "subset_evaluation": 3,
    "view": 4,
    "zeroshot": 1,
    "masks": 2,
    "thresholds": 2,
    "controlled": 2,
    "subsets": 2,
    "illustration": 2,
    "figure": 3,
    "paper_table": 4,
}
"""One explicit version per stage.  A change of code that changes what a stage makes raises its number."""


def version_of(kind: str) -> int | None:
    """The number of the stage that a recipe's `kind` names, an artifact's or a results folder's; None if there is none.

    The tables of a benchmark and of its seeds share one number, "view".
    """
    stage = kind.removesuffix("_view")
    return STAGE_VERSIONS.get("view" if stage in ("benchmark", "seeds") else stage)
