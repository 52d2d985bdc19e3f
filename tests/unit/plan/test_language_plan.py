"""Models of two catalogues side by side: what belongs to which, and what language models' checkpoints are made from."""

from __future__ import annotations

import copy
import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import ROOT, shipped_params
from plans import paths
from tallmasks import methods
from tallmasks.models.t5 import FAMILY
from tallmasks.plan import recipes
from tallmasks.plan.drawings import DRAWINGS
from tallmasks.plan.params import check
from tallmasks.plan.planner import Plan
from tallmasks.plan.views import VIEWS
from tallmasks.store.errors import TallmasksError
from tallmasks.store.tensor_files import write_tensors
from tallmasks.vectors.task_vectors import open_task_vector
from toys.words_toy import MEMBERS, MODEL

for folder in ("runner", "scripts"):
    sys.path.insert(0, str(ROOT / "workflow" / folder))
task_vector, Job = importlib.import_module("task_vector"), importlib.import_module("job").Job

Params = dict[str, Any]


@pytest.fixture
def both(params: Params) -> Params:
    """The shipped parameters with two language models and the paper's benchmarks for them."""
    params["benchmarks"] |= MEMBERS
    params["models"] |= {"reader": copy.deepcopy(MODEL), "rescaled": {**copy.deepcopy(MODEL), "adapter": "ia3"}}
    check(params)
    return params


def test_a_benchmark_belongs_to_a_catalogue(both: Params) -> None:
    """Asking for one of the other kind would end in a KeyError, or `make paper` would stop at it."""
    plan = Plan(both, ROOT)
    assert plan.benchmarks("reader") == ("7nlp", "8qa", "11nlp")
    assert not set(plan.benchmarks("tiny")) & set(MEMBERS)
    assert list(plan.paper_benchmarks("reader")) == ["7nlp", "8qa", "11nlp"]
    for model, benchmark, task, able in (
        ("tiny", "7nlp", "paws", {"reader", "rescaled"}),
        ("reader", "8tasks", "cars", {"tiny", "vit_b32", "vit_b16", "vit_l14"}),
    ):
        with pytest.raises(TallmasksError) as refused:
            recipes.of_view(plan, VIEWS["benchmark"], model, benchmark)
        message = str(refused.value)
        assert (
            message.startswith(f"results/{model}/{benchmark}: the model has no task '{task}'") and "\n" not in message
        )
        assert able <= set(message.rpartition(": ")[2].split(", "))


def test_ties_of_an_adapter_keeps_a_fifth_of_its_values(params: Params, tmp_path: Path) -> None:
    """The frozen network, 300 times as large, would be counted: TIES and magnitude masking would keep every value."""
    node = Plan(params, ROOT).task_vector("tiny_t5_ia3", "qasc", 0)
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
    assert other.task_vector("tiny_t5_ia3", "qasc", 0).path == node.path, "it says nothing about an adapter"
    assert other.task_vector("tiny_t5", "qasc", 0).params["fractions_of"] == "trainable"
    assert Plan(shipped_params(), ROOT).task_vector("tiny_t5", "qasc", 0).params["fractions_of"] == "parameters"


def test_other_kinds_of_models_rename_nothing(params: Params, both: Params) -> None:
    """Whoever adds a language model would fine-tune the vision models anew."""
    alone = copy.deepcopy(both)
    for name in ("reader", "rescaled"):
        del alone["models"][name]
    for name in MEMBERS:
        del alone["benchmarks"][name]
    assert paths(both) == paths(alone)


def test_validation_examples_are_an_input_where_they_are_looked_at(both: Params) -> None:
    """Early stopping would have nothing to look at; or every checkpoint that was ever made would get another name."""
    plan = Plan(both, ROOT)
    assert set(plan.checkpoint("tiny", "mnist", 0).inputs) == {"examples", "head"}
    reader = plan.checkpoint("reader", "qasc", 0)
    assert [node.slug for node in reader.inputs["validation"]] == ["qasc-validation"]
    assert reader.params["finetuning"] == MODEL["finetuning"] and reader.params["scoring"] == MODEL["scoring"]
    for key in ("validate_every", "patience"):
        del both["models"]["reader"]["finetuning"][key]
    assert "validation" not in Plan(both, ROOT).checkpoint("reader", "qasc", 0).inputs


@pytest.mark.parametrize(
    ("key", "value", "anew"),
    [
        ("max_input_tokens", 12, ({"qasc", "ropes"}, {"qasc", "ropes"})),
        ("max_new_tokens", 3, (set(), {"ropes"})),
        ("free_answers", "f1", (set(), {"ropes"})),
        ("length_normalized", True, (set(), {"qasc"})),
    ],
)
@pytest.mark.parametrize("catalogue", ["tiny_t5", "t5_large"])
def test_a_fine_tuning_depends_on_the_scoring_that_it_uses(
    catalogue: str, key: str, value: Any, anew: tuple[set[str], set[str]], params: Params
) -> None:
    """Days of fine-tuning would be done again for another way to count; or early stopping keep to the old one."""
    spec = params["models"][catalogue]
    for looks, expected in zip((False, True), anew, strict=True):
        spec["finetuning"] = {**spec["finetuning"], "validate_every": 10}
        if not looks:
            spec["finetuning"] = {
                k: v for k, v in spec["finetuning"].items() if k not in ("validate_every", "patience")
            }
        other = copy.deepcopy(params)
        other["models"][catalogue]["scoring"][key] = value
        before, after = Plan(copy.deepcopy(params), ROOT), Plan(other, ROOT)
        made = [
            {task: plan.checkpoint(catalogue, task, 0).digest for task in ("qasc", "ropes")} for plan in (before, after)
        ]
        assert {task for task, digest in made[0].items() if made[1][task] != digest} == expected
        counted = [plan.task_evaluation(catalogue, "ropes", "zeroshot", 0).digest for plan in (before, after)]
        assert counted[0] != counted[1]


def test_figures_and_tables_show_a_models_own_benchmarks(both: Params) -> None:
    """`make paper` would draw a radar of CLIP's tasks for a language model."""
    plan = Plan(both, ROOT)
    for drawing in DRAWINGS.values():
        for name in drawing.known:
            shown = {
                model: [each for each, _ in recipes.of_drawing(plan, drawing, model, name)["params"]["benchmarks"]]
                for model in ("tiny", "reader")
            }
            assert shown["reader"] and set(shown["reader"]) <= set(MEMBERS) and not set(shown["tiny"]) & set(MEMBERS)
    largest = recipes.of_drawing(plan, DRAWINGS["figure"], "reader", "task_count")
    assert [name for name, _ in largest["params"]["benchmarks"]] == ["11nlp"]
    both["paper"]["benchmarks"] = ["8tasks"]
    with pytest.raises(TallmasksError, match=r"results/reader/figures/radar: paper.benchmarks .* it has .* 7nlp, 8qa,"):
        recipes.of_drawing(Plan(both, ROOT), DRAWINGS["figure"], "reader", "radar")
