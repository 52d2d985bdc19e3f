"""Evaluations and what follows from them as files: JSON artifacts that are checked before a number of theirs is used.

Beyond the digests that every artifact carries, an evaluation must be one: counts are whole numbers from 0 to the number
of examples, numbers are finite, and method, tasks and grid are those of its recipe.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tallmasks.artifacts import Damaged, read_json
from tallmasks.subsets import ORDERS
from tallmasks.tables import Evaluation


def read_evaluation(path: Path) -> Evaluation:
    """The evaluation of a method on a set of tasks, or on one task.

    Raises:
        FileNotFoundError: there is no such file.
        Damaged: it is not what was written, or no evaluation of its recipe.
    """
    value = read_json(path)
    return _evaluation(path, value, value["recipe"]["params"])


def read_thresholds(path: Path) -> dict[int, Evaluation]:
    """Consensus merging's evaluations by threshold k.  Raises as `read_evaluation`."""
    value = read_json(path)
    params = value["recipe"]["params"]
    found = _objects(path, value, "thresholds")
    if sorted(found) != sorted(map(str, params["thresholds"])):
        raise Damaged(path, f"has the thresholds {sorted(found)}, expected {params['thresholds']}")
    return {int(k): _evaluation(path, inner, params) for k, inner in found.items()}


def read_subset(path: Path) -> list[Evaluation]:
    """Several methods' evaluations on one subset of the tasks.  Raises as `read_evaluation`."""
    value = read_json(path)
    params, listed = value["recipe"]["params"], value.get("evaluations")
    if not isinstance(listed, list) or len(listed) != len(params["methods"]):
        raise Damaged(path, f"does not hold the evaluations of {', '.join(params['methods'])}")
    return [
        _evaluation(path, inner, {**params, "method": method, "grid": _grid(inner, params)})
        for inner, method in zip(listed, params["methods"], strict=True)
    ]


def read_orders(path: Path) -> tuple[dict[str, tuple[str, ...]], dict[str, float]]:
    """Figure 5's orders of the tasks by name, and the zero-shot accuracies by task.  Raises as `read_evaluation`."""
    value = read_json(path)
    tasks = value["recipe"]["params"]["tasks"]
    zeroshot, orders = _objects(path, value, "zeroshot"), _objects(path, value, "orders")
    wrong = set(orders) != set(ORDERS) or any(sorted(order) != sorted(tasks) for order in orders.values())
    if wrong or set(zeroshot) != set(tasks) or not all(0 <= accuracy <= 1 for accuracy in zeroshot.values()):
        raise Damaged(path, f"does not hold the {len(ORDERS)} orders of its {len(tasks)} tasks and their accuracies")
    return {name: tuple(order) for name, order in orders.items()}, dict(zeroshot)


def _grid(value: Any, params: Mapping[str, Any]) -> Any:
    """The grid that an evaluation of a subset should have: the one of what it chose, if it chose anything."""
    if not isinstance(value, dict) or not value.get("grid"):
        return []
    return params["grids"]["scaling_coefficient" if value.get("mask_lambda") is None else "mask_lambda"]


def _objects(path: Path, value: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = value.get(key)
    if not isinstance(found, dict):
        raise Damaged(path, f"has no {key}")
    return found


def _evaluation(path: Path, value: Any, params: Mapping[str, Any]) -> Evaluation:
    """The evaluation in a JSON value, which must be the one that `params` of the recipe ask for."""
    try:
        found = Evaluation.from_json(value)
        tasks = tuple(params["tasks"]) if "tasks" in params else (params["task"],)
        asked = {"tasks": (found.tasks, tasks), "grid": (list(found.grid), list(params.get("grid", ())))}
        asked |= {"method": (found.method, params["method"])} if "method" in params else {}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Damaged(path, f"holds no evaluation of its recipe: {error}") from None
    for key, (have, wanted) in asked.items():
        if have != wanted:
            raise Damaged(path, f"holds no evaluation of its recipe: {key} is {have}, expected {wanted}")
    return found
