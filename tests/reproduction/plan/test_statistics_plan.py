"""Plans of data statistics: their inputs, what depends on them, and models without them."""

from typing import Any

import pytest

from conftest import ROOT
from reproduction.plan import chain
from reproduction.plan.settings import Plan
from reproduction.plan.views import VIEWS
from tallmasks.errors import TallmasksError
from tallmasks.methods.merges import FISHER, GRAMS

Params = dict[str, Any]
TASKS = ("mnist", "svhn")


def test_statistics_are_of_the_checkpoint_and_of_training_examples(params: Params) -> None:
    """A merge would have seen validation or test data, or the statistics of another seed's models."""
    plan = Plan(params, ROOT)
    for needed, merge in {GRAMS: "regmean", FISHER: "fisher"}.items():
        node = chain.statistic(plan, "tiny", "mnist", 1, needed)
        assert node.inputs["checkpoint"] == (chain.finetune(plan, "tiny", "mnist", 1),)
        assert node.inputs["head"] == (chain.head(plan, "tiny", "mnist"),)
        splits = [one.params["split"] for one in node.walk() if one.kind == "examples"]
        assert splits == ["train"]
        merged = chain.merge(plan, "tiny", TASKS, merge, 1)
        assert merged.inputs["statistics"] == tuple(chain.statistic(plan, "tiny", task, 1, needed) for task in TASKS)


def test_what_a_model_cannot_give_is_no_row_and_is_said_in_one_line(params: Params) -> None:
    """Jobs would fail one by one, after hours of fine-tuning; or there would be no long table at all."""
    shown = VIEWS["field"](Plan(params, ROOT), "tiny_t5_ia3", "7nlp").recipe["params"]["methods"]
    assert "regmean" not in shown and "fisher" in shown
    params["methods"] = ["task_arithmetic", "regmean"]
    with pytest.raises(TallmasksError, match=r"models\.tiny_t5_ia3.*regmean") as refused:
        VIEWS["tables"](Plan(params, ROOT), "tiny_t5_ia3", "7nlp")
    assert "\n" not in str(refused.value)
