"""Each rule asks for every input that its stage declares."""

import re

import pytest

from conftest import ROOT, shipped_params
from reproduction.plan import chain
from reproduction.plan.node import STAGES
from reproduction.plan.project import Index
from reproduction.plan.settings import Plan
from tallmasks import methods

TEXT = "\n".join(path.read_text() for path in (ROOT / "workflow" / "rules").glob("*.smk"))
RULES = dict(re.findall(r"^(?:use rule \w+ as|rule) (\w+)\b(.*?)^\S", TEXT, re.M | re.S))
ARTIFACTS = [name for name, stage in STAGES.items() if not stage.is_result]


@pytest.fixture(scope="module")
def roles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The input roles of each stage in a plan of every method."""
    folder = tmp_path_factory.mktemp("local")
    for name in ("weights", "mnist", "svhn", "dtd"):
        (folder / f"{name}.pt").touch()
    params = shipped_params()
    params["models"] = {name: params["models"][name] for name in ("tiny", "vit_b32", "tiny_t5", "t5_large")}
    local = {"pretrained": str(folder / "weights.pt"), "checkpoints": str(folder)}
    params["models"]["trained_heads"] = shipped_params()["models"]["minilm"] | {"heads": "trained"}
    params["models"]["local"] = params["models"]["vit_b32"] | local
    params["benchmarks"] = {"two": ["mnist", "svhn"], "unseen": {"merge": ["mnist", "svhn"], "evaluate": ["dtd"]}}
    params["benchmarks"] |= {"texts": ["qasc", "paws"]}
    params["methods"] = [*methods.names()]
    plan, declared = Plan(params, ROOT), dict[str, set[str]]()
    bundle = STAGES["bundle_archive"](plan, "tiny", ("mnist", "svhn"), "tall_mask_ties:bits=3", 0)
    for node in (bundle, *Index(plan).declared().values()):
        declared.setdefault(node.kind, set()).update(node.inputs, node.sources)
    return declared


@pytest.mark.parametrize("name", ARTIFACTS)
def test_a_rule_asks_for_the_roles_of_its_stage(roles: dict[str, set[str]], name: str) -> None:
    """A job would start before its inputs exist, or a misspelt role would silently be no input."""
    asked = {eval(role, {"stages": chain}) for role in re.findall(r"BRIDGE\.artifact\.input\(([^)]+)\)", RULES[name])}
    if others := re.search(r"inputs_but\(([^)]*)\)", RULES[name]):
        assert {*eval(f"[{others[1]}]", {"stages": chain})} <= asked and asked <= roles[name]
    else:
        assert asked == roles[name]
