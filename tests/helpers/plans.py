"""Paths of the artifacts in a plan."""

from conftest import ROOT
from tallmasks.plan.params import Params
from tallmasks.plan.planner import Plan
from tallmasks.plan.project import closure


def paths(params: Params, model: str = "tiny") -> dict[str, str]:
    """Every artifact's path by kind and slug."""
    return {f"{node.kind}/{node.slug}": node.path for node in closure(Plan(params, ROOT), model)}
