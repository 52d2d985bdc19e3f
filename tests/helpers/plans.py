"""Paths of the artifacts in a plan."""

from conftest import ROOT
from reproduction.plan.params import Params
from reproduction.plan.project import closure
from reproduction.plan.settings import Plan


def paths(params: Params, model: str = "tiny") -> dict[str, str]:
    """Every artifact's path by kind and slug."""
    return {f"{node.kind}/{node.slug}": node.path for node in closure(Plan(params, ROOT), model)}
