"""Models of two catalogues side by side: what belongs to which, and what language models' checkpoints are made from."""

import copy
import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import ROOT
from reproduction.models.t5 import FAMILY
from reproduction.plan import chain
from reproduction.plan.settings import Plan
from reproduction.plan.views import VIEWS
from tallmasks import methods
from tallmasks.errors import TallmasksError
from tallmasks.io.tensor_files import write_tensors
from tallmasks.vectors.task_vectors import open_task_vector

sys.path.insert(0, str(ROOT / "workflow" / "scripts"))
task_vector, Job = importlib.import_module("task_vector"), importlib.import_module("job").Job

Params = dict[str, Any]
MEMBERS = ("7nlp", "8qa", "11nlp")


def test_a_benchmark_belongs_to_a_catalogue(params: Params) -> None:
    """Asking for one of the other kind would end in a KeyError, or `make paper` would stop at it."""
    plan = Plan(params, ROOT)
    assert plan.benchmarks("t5_large") == MEMBERS and not {*plan.benchmarks("tiny")} & {*MEMBERS}
    assert tuple(plan.paper_benchmarks("t5_large")) == MEMBERS
    for model, benchmark, task in (("tiny", "7nlp", "paws"), ("t5_large", "8tasks", "cars")):
        with pytest.raises(TallmasksError, match=f"results/{model}/{benchmark}: .*'{task}'"):
            VIEWS["tables"](plan, model, benchmark)


def test_ties_of_an_adapter_keeps_a_fifth_of_its_values(params: Params, tmp_path: Path) -> None:
    """The frozen network, 300 times as large, would be counted: TIES and magnitude masking would keep every value."""
    node = chain.task_vector(Plan(params, ROOT), "tiny_t5_ia3", "qasc", 0)
    before = FAMILY.initial_state(node.params, tmp_path)
    draw = np.random.default_rng(0)
    after = {name: ones + draw.normal(size=ones.shape).astype(np.float32) for name, ones in before.items()}
    files = {role: [tmp_path / f"{role}.safetensors"] for role in ("pretrained", "checkpoint")}
    write_tensors(*files["pretrained"], {"shared.weight": np.ones(1, np.float32)}, {})
    write_tensors(*files["checkpoint"], after, {})
    recipe = {"kind": node.kind, "version": 1, "params": node.params, "inputs": {}}
    task_vector.run(Job(recipe, files, {"artifact": tmp_path / "tau"}))
    tau = open_task_vector(tmp_path / "tau")
    out = np.empty_like(tau.flat)
    methods.get_merge("ties_sum")([tau], out)
    assert np.count_nonzero(out) == tau.flat.size // 5 + 1
    masked = abs(tau.flat) >= methods.get("magnitude_masking").threshold(tau, 8)
    assert np.count_nonzero(masked) == tau.flat.size // 10 + 1
    methods.get_merge("pcb")([tau, tau], out)
    assert np.linalg.norm(out) > 0.1 * np.linalg.norm(tau.flat), "a clamp of rank below 0 leaves nothing"
    params["kept_fractions_of"] = "trainable"
    other = Plan(params, ROOT)
    assert chain.task_vector(other, "tiny_t5_ia3", "qasc", 0).path == node.path, "it says nothing about an adapter"
    assert chain.task_vector(other, "tiny_t5", "qasc", 0).params["fractions_of"] == "trainable"


@pytest.mark.parametrize(
    ("key", "value", "anew"),
    [
        ("max_input_tokens", 12, ({"qasc", "ropes"}, {"qasc", "ropes"})),
        ("max_new_tokens", 3, (set(), {"ropes"})),
        ("free_answers", "f1", (set(), {"ropes"})),
        ("length_normalized", True, (set(), {"qasc"})),
    ],
)
def test_a_fine_tuning_depends_on_the_scoring_that_it_uses(
    key: str, value: Any, anew: tuple[set[str], set[str]], params: Params
) -> None:
    """Days of fine-tuning would be done again for another way to count; or early stopping keep to the old one."""
    spec = params["models"]["tiny_t5"]
    kept = {key: value for key, value in spec["finetuning"].items() if key not in ("validate_every", "patience")}
    for looks, expected in zip(({}, {"validate_every": 10}), anew, strict=True):
        spec["finetuning"] = kept | looks
        other = copy.deepcopy(params)
        other["models"]["tiny_t5"]["scoring"][key] = value
        one, two = (
            {task: chain.finetune(plan, "tiny_t5", task, 0).digest for task in ("qasc", "ropes")}
            | {"counted": chain.evaluate_task(plan, "tiny_t5", "ropes", "zeroshot", 0).digest}
            for plan in (Plan(params, ROOT), Plan(other, ROOT))
        )
        assert {name for name in one if one[name] != two[name]} == expected | {"counted"}
