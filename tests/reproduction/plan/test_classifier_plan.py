"""Text classifiers in the plan: where heads come from, and which benchmarks a model can run."""

from typing import Any

from conftest import ROOT
from reproduction.plan import chain
from reproduction.plan.settings import Plan

Params = dict[str, Any]


def test_a_trained_head_is_that_of_its_checkpoint(params: Params) -> None:
    """A model would be scored with the head of another seed, or wait for a head before it is trained."""
    params["models"]["minilm"]["heads"] = "trained"
    plan = Plan(params, ROOT)
    trained = chain.finetune(plan, "minilm", "news", 1)
    assert "head" not in trained.inputs and trained.params["classes"][0] == "business"
    scored = chain.evaluate_task(plan, "minilm", "news", "fine_tuned", 1)
    ((head,), (checkpoint,)) = scored.inputs["head"], scored.inputs["checkpoint"]
    assert checkpoint is trained and head.inputs["checkpoint"] == (trained,)
    merged = chain.evaluate(plan, "minilm", ("jobs", "news"), "task_arithmetic", 1)
    assert merged.inputs["heads"][1] is head and "classes" not in merged.params
    assert chain.head(plan, "minilm", "news", 0).path != head.path


def test_a_head_of_class_names_is_the_same_for_every_seed(params: Params) -> None:
    """Three seeds would compute the same head three times."""
    plan = Plan(params, ROOT)
    first, second = (chain.finetune(plan, "minilm", "news", seed) for seed in (0, 1))
    assert first.inputs["head"] == second.inputs["head"] and "classes" not in first.params


def test_a_model_has_its_own_benchmarks_and_only_tasks_with_classes(params: Params) -> None:
    """`8tasks` of the encoder would be the paper's images, or a classifier be asked questions without classes."""
    plan = Plan(params, ROOT)
    assert plan.benchmarks("minilm") == ("8tasks",) and "news" in plan.tasks("minilm", "8tasks")
    assert plan.tasks("tiny", "8tasks")[0] == "cars"
    assert plan.benchmarks("gpt2_glue") == ("7glue",) and "qasc" not in plan.catalogue_of("gpt2_glue")
    assert plan.benchmarks("minilm_hub") == ("8texts", "14texts", "20texts")
