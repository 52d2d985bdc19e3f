"""What plans say of some parameters."""

import copy
from typing import Any

from conftest import ROOT
from tallmasks.plan.params import Params
from tallmasks.plan.planner import Plan


def paths(params: Params, model: str = "tiny") -> dict[str, str]:
    """Every artifact's path by kind and slug."""
    return {f"{node.kind}/{node.slug}": node.path for node in Plan(params, ROOT).index.closure(model)}


def changed(params: Params, *keys: Any, value: Any, model: str = "tiny") -> set[str]:
    """The kinds of a model's artifacts that another value under `keys` renames."""
    other = copy.deepcopy(params)
    place = other
    for key in keys[:-1]:
        place = place[key]
    assert place.get(keys[-1]) != value
    place[keys[-1]] = value
    before, after = paths(params, model), paths(other, model)
    assert before.keys() == after.keys()
    return {name.split("/")[0] for name in before if before[name] != after[name]}
