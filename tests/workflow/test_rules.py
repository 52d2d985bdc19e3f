"""A rule names one stage or view throughout, and every one has its rule."""

import re

from conftest import ROOT
from tallmasks.plan import figure_views  # noqa: F401
from tallmasks.plan.node import STAGES
from tallmasks.plan.views import VIEWS

RULE = re.compile(r"^(?:use rule \w+ as|rule|checkpoint) (\w+)(?: with)?:\n((?:(?: .*)?\n)+)", re.M)
NAMED = re.compile(r'BRIDGE\.(store|views)\.inputs\("(\w+)"')
LOGGED = re.compile(r'^        (?:stage="(\w+)",|"logs/{model}/(\w+)/)', re.M)


def test_every_rule_is_of_one_stage() -> None:
    """A job would log under another stage's name, or nothing would make an artifact that is asked for."""
    made = []
    for file in sorted((ROOT / "workflow" / "rules").glob("*.smk")):
        for rule, body in RULE.findall(file.read_text() + "\n"):
            for kind, name in NAMED.findall(body):
                made.append(name)
                logged = {name for names in LOGGED.findall(body.replace("view=", "stage=")) for name in names if name}
                assert logged == {name}, rule
                if kind == "store":
                    assert f'"{STAGES[name].pattern}"' in body, rule
                else:
                    folder = VIEWS[name].folder("{model}", "{benchmark}")
                    assert f'"{folder / VIEWS[name].provenance}"' in body, rule
    assert sorted(made) == sorted([*STAGES, *VIEWS])
