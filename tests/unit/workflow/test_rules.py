"""The rules: one for each stage and view, and Snakemake as it is."""

import ast
import re

from conftest import ROOT
from tallmasks.plan import figure_stages, figure_views  # noqa: F401  (declares the others)
from tallmasks.plan.node import STAGES
from tallmasks.plan.views import VIEWS

RULES = {path: path.read_text() for path in (ROOT / "Snakefile", *(ROOT / "workflow" / "rules").glob("*.smk"))}


def test_a_stage_is_a_rule_and_a_script_of_its_name() -> None:
    """A reader would look for the rule of a stage, or the script of a rule, under another name; or it would be made by
    no rule."""
    text = "\n".join(RULES.values())
    rules = set(re.findall(r"^(?:use rule \w+ as|checkpoint|rule) (\w+)\b", text, re.M))
    scripts = {path.stem for path in (ROOT / "workflow" / "scripts").glob("*.py")}
    assert STAGES.keys() <= rules & scripts and VIEWS.keys() <= scripts
    assert all(stage.path("{model}", "{name}") in text for stage in STAGES.values())


def test_nothing_of_snakemake_is_replaced() -> None:
    """The project would work with one version of Snakemake alone."""
    scripts = {path: path.read_text() for path in (ROOT / "workflow").rglob("*.py")}
    assert not [path for path, text in (RULES | scripts).items() if "setattr(" in text]
    theirs = r"\b(workflow|Job|dag|persistence)(\.\w+)+"
    assert not [found for text in RULES.values() for found in re.findall(rf"{theirs} *[-+|&]?=[^=]", text)]
    nodes = [node for text in scripts.values() for node in ast.walk(ast.parse(text))]
    changed = [
        ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    ]
    assert changed and not [name for name in changed if re.search(theirs, name)]
