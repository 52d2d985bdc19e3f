"""Recipes of the CLIP models: where weights and checkpoints come from, and what a changed key rebuilds."""

from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT, shipped_params
from tallmasks.errors import TallmasksError
from tallmasks.params import check
from tallmasks.plan import Plan
from test_plan import changed, paths

Params = dict[str, Any]
DERIVED = {"task_vector", "multi_task_vector", "mask_bundle", "agreement", "evaluation", "task_evaluation"}


@pytest.fixture
def params(params: Params) -> Params:
    """One CLIP model, two tasks."""
    params["models"] = {"vit_b32": params["models"]["vit_b32"]}
    params["benchmarks"] = {"two": ["fer2013", "mnist"]}
    return params


def clip_changed(params: Params, *keys: Any, value: Any) -> set[str]:
    """As `changed`, for the model at hand."""
    before = paths(params, "vit_b32")
    place = params["models"]["vit_b32"]
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    after = paths(params, "vit_b32")
    return {name.split("/")[0] for name in before if before[name] != after[name]}


@pytest.mark.parametrize(
    ("keys", "value", "renamed"),
    [
        (("pretrained", "revision"), "0" * 40, {"pretrained", "head", "checkpoint", *DERIVED}),
        (("preprocess", "mean"), [0.5, 0.5, 0.5], {"checkpoint", *DERIVED}),
        (("finetuning", "precision"), "float32", {"checkpoint", *DERIVED}),
        (("finetuning", "micro_batch_size"), 32, {"checkpoint", *DERIVED}),
        (("evaluation", "precision"), "float32", {"evaluation", "task_evaluation", "agreement"}),
    ],
)
def test_a_key_rebuilds_what_depends_on_it(params: Params, keys: Any, value: Any, renamed: set[str]) -> None:
    """Old numbers would stay under new settings, or twenty fine-tunings would run for nothing."""
    assert clip_changed(params, *keys, value=value) == renamed


def test_tiny_knows_nothing_of_it() -> None:
    """Editing a CLIP model would rebuild the tiny one."""
    params = shipped_params()
    assert changed(params, "models", "vit_b32", "pretrained", "revision", value="0" * 40) == set()


def test_imported_checkpoints_take_the_place_of_fine_tuning(params: Params) -> None:
    """Somebody else's checkpoints would be fine-tuned once more, or meet heads that they were not trained with."""
    before = paths(params, "vit_b32")
    params["models"]["vit_b32"]["checkpoints"] = {"source": "published", "revision": "0" * 40}
    plan = Plan(params, ROOT)
    kinds = {node.kind for node in plan.closure("vit_b32")}
    assert "imported" in kinds and "checkpoint" not in kinds
    assert [node for node in plan.closure("vit_b32") if node.kind == "examples" and "-train-" in node.path] == []
    node = plan.checkpoint("vit_b32", "mnist", 0)
    assert (
        node is plan.checkpoint("vit_b32", "mnist", 0) and node.recipe["params"]["checkpoint"]["revision"] == "0" * 40
    )
    assert plan.head("vit_b32", "mnist").path == before["head/mnist"]
    classes = plan.head("vit_b32", "fer2013").recipe["params"]["classes"]
    assert sorted(classes) == sorted(
        Plan(without_checkpoints(params), ROOT).head("vit_b32", "fer2013").params["classes"]
    )
    assert plan.head("vit_b32", "fer2013").path != before["head/fer2013"]
    with pytest.raises(TallmasksError, match="imported have no seeds"):
        plan.view("seeds", "vit_b32", "two")


def without_checkpoints(params: Params) -> Params:
    model = {key: value for key, value in params["models"]["vit_b32"].items() if key != "checkpoints"}
    return {**params, "models": {"vit_b32": model}}


def test_a_local_file_enters_by_its_content(params: Params, tmp_path: Path) -> None:
    """Other weights under the same name would give the old results."""
    for name in ("weights.safetensors", "weights.pt"):
        params["models"]["vit_b32"]["pretrained"] = str(tmp_path / name)
        found = []
        for content in (b"one", b"two"):
            (tmp_path / name).write_bytes(content + b"." * len(found))
            found.append(Plan(params, ROOT).head("vit_b32", "mnist").digest)
        assert found[0] != found[1]
    kinds = [node.kind for node in Plan(params, ROOT).head("vit_b32", "mnist").walk()]
    assert kinds == ["head", "pretrained"], "what is not in the project's format is converted once"


def test_a_missing_file_concerns_its_model_only(tmp_path: Path) -> None:
    """A cluster job on tiny would fail since somebody's checkpoints for another model are not there."""
    params = shipped_params()
    name = Plan(params, ROOT).head("tiny", "mnist").name
    params["models"] = {key: params["models"][key] for key in ("vit_b32", "tiny")}
    params["models"]["vit_b32"]["checkpoints"] = str(tmp_path / "nowhere")
    plan = Plan(params, ROOT)
    assert plan.find("head", "tiny", name).slug == "mnist"
    with pytest.raises(TallmasksError, match="nowhere"):
        plan.declared()


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("finetuning", "learningrate"), 1e-5),
        (("finetuning", "precision"), "float16"),
        (("finetuning", "augmentation"), "flip"),
        (("finetuning", "augmentation"), {"rotation": 7}),
        (("pretrained",), {"hub": "no-slash", "revision": "main"}),
        (("pretrained",), {"hub": "org/model"}),
        (("preprocess", "size"), 0),
        (("checkpoints",), {"revision": "main"}),
        (("evaluation", "batchsize"), 64),
    ],
)
def test_a_slip_in_params_is_refused(params: Params, keys: Any, value: Any) -> None:
    """A misspelled setting would be ignored, and the run would be another one than its author thinks."""
    check(params, ROOT)
    place = params["models"]["vit_b32"]
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    with pytest.raises(TallmasksError, match=r"models.vit_b32"):
        check(params, ROOT)
