"""Recipes: what rebuilds, what is shared, and what each artifact is made from."""

import copy
import dataclasses
import importlib
import itertools
import re
import sys
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import ROOT
from plans import paths
from reproduction.models.checkpoint_sources import Imported
from reproduction.models.t5 import FAMILY
from reproduction.plan import chain
from reproduction.plan.node import Declaration, Stage
from reproduction.plan.project import Index, closure
from reproduction.plan.settings import Plan
from reproduction.plan.views import VIEWS, field_methods
from tallmasks import methods
from tallmasks.errors import TallmasksError
from tallmasks.io.tensor_files import write_tensors
from tallmasks.methods import INPUTS, Input, PerTask, registry, storage_formulas
from tallmasks.methods.contract import Method
from tallmasks.methods.merges import FISHER, GRAMS
from tallmasks.vectors.task_vectors import open_task_vector
from tiny_worlds import drawn

Params = dict[str, Any]
EVALUATED = {"evaluate", "evaluate_task", "consensus"}
TRAINED = {"finetune", "task_vector", "merge", "mask"}


@pytest.mark.parametrize(
    ("keys", "value", "expected"),
    [
        ("grids mask_lambda", [0.2, 0.4], {"mask", "consensus", "evaluate"}),
        ("models tiny finetuning learning_rate", 0.5, EVALUATED | TRAINED),
        ("models tiny examples test", 17, EVALUATED | {"examples"}),
        ("models tiny resources evaluation threads", 7, set()),
        ("models vit_b32 pretrained revision", "0" * 40, {"pretrained", "head"} | EVALUATED | TRAINED),
        ("models vit_b32 resources finetuning micro_batch_size", 32, set()),
        ("models vit_b32 evaluation precision", "tf32", EVALUATED),
    ],
)
def test_a_parameter_renames_what_depends_on_it_and_nothing_else(
    params: Params, keys: str, value: Any, expected: set[str]
) -> None:
    """A user would wait for fine-tunings that nobody asked for, or keep results of old parameters."""
    model = "vit_b32" if "vit_b32" in keys else "tiny"
    params["models"] = {model: params["models"][model]}
    params["benchmarks"] = {"two": ["svhn", "mnist"]}
    before = paths(params, model)
    place: Any = params
    *outer, last = keys.split()
    for key in outer:
        place = place[key]
    assert place.get(last) != value
    place[last] = value
    after = paths(params, model)
    assert before.keys() == after.keys()
    assert {name.split("/")[0] for name in before if before[name] != after[name]} == expected


def test_a_lone_job_finds_its_recipe(params: Params) -> None:
    """A cluster job is told one file name only, and would not know what to make."""
    plan = Plan(params, ROOT)
    points = VIEWS["subsets"](plan, "tiny", "8tasks").inputs["name_wave"]
    assert [node.params["n"] for node in points] == [*range(1, 9)], "each point of figure 5 is a job"
    for node in (*closure(Plan(params, ROOT), "tiny"), *points):
        assert Index(plan).find(node.model, node.name).path == node.path


def test_other_prompts_of_a_task_concern_that_task_alone(params: Params, monkeypatch: pytest.MonkeyPatch) -> None:
    """A changed wording of one task would fine-tune all tasks again, or leave the old head in use."""
    params["benchmarks"] = {"three": ["mnist", "svhn", "dtd"], "two": ["mnist", "svhn"]}
    before = paths(params)
    monkeypatch.setitem(drawn.TASKS, "dtd", dataclasses.replace(drawn.TASKS["dtd"], templates=("a picture of {}",)))
    after = paths(params)
    renamed = {name for name in before if before[name] != after[name]}
    assert {"head/dtd", "finetune/dtd-s0", "task_vector/dtd-s0", "merge/sum-3tasks-s0"} <= renamed
    assert not any("mnist" in name or "svhn" in name or "-2tasks" in name for name in renamed)


def test_a_view_knows_its_name_and_its_order(params: Params) -> None:
    """A table with the tasks in the old order would pass for fresh."""
    first = VIEWS["tables"](Plan(params, ROOT), "tiny", "8tasks").digest
    params["benchmarks"]["8tasks"].reverse()
    assert VIEWS["tables"](Plan(params, ROOT), "tiny", "8tasks").digest != first


def test_a_bundle_follows_from_its_row_and_is_made_only_when_it_is_asked_for(params: Params) -> None:
    """Every table would wait for bundles; or a bundle would hold masks of other lambdas than its evaluation chose."""
    plan = Plan(params, ROOT)
    assert "bundle_archive" not in {node.kind for node in closure(plan, "tiny")}
    (node,) = VIEWS["bundle"](plan, "tiny", "8tasks").inputs["bundle"]
    members = plan.members(plan.tasks("tiny", "8tasks"))
    vectors = tuple(chain.task_vector(plan, "tiny", task, 0) for task in members)
    assert node.inputs == {"task_vectors": vectors} and node.params["code"] == methods.code(["stochastic_rounding"])
    assert node.params["base"] == "models/tiny.safetensors" and node.path in Index(plan).declared(["tiny"])
    (clip,) = VIEWS["bundle"](plan, "vit_b32", "8tasks").inputs["bundle"]
    assert clip.params["base"] == chain.pretrained(plan, "vit_b32").path
    params["bundle"] = {"stochastic_rounding": {"step": 0.2}}
    (other,) = VIEWS["bundle"](Plan(params, ROOT), "tiny", "8tasks").inputs["bundle"]
    assert other.params["method"] == "stochastic_rounding:step=0.2" and other.path != node.path
    params["bundle"] = {"tall_mask_ties": {"bits": 3}}
    of_masks = Plan(params, ROOT)
    (masked,) = VIEWS["bundle"](of_masks, "tiny", "8tasks").inputs["bundle"]
    assert masked.inputs["selection"] == (chain.evaluate(of_masks, "tiny", members, "tall_mask_ties:bits=3", 0),)


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


TASKS = ("mnist", "svhn")
LEARNING = ("adamerging", "adamerging:steps=3")


def test_statistics_are_of_the_checkpoint_and_of_training_examples(params: Params) -> None:
    """A merge would have seen validation or test data, or the statistics of another seed's models."""
    plan = Plan({**params, "statistics": {"examples": 64}}, ROOT)
    for needed, merge in {GRAMS: "regmean", FISHER: "fisher"}.items():
        node = chain.statistic(plan, "tiny", "mnist", 1, needed)
        assert node.inputs["checkpoint"] == (chain.finetune(plan, "tiny", "mnist", 1),)
        assert node.inputs["head"] == (chain.head(plan, "tiny", "mnist"),)
        splits = [one.params["split"] for one in node.walk() if one.kind == "examples"]
        assert splits == ["train"] and node.params["count"] == 64
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


def test_what_a_merge_learns_is_made_once_from_all_tasks(params: Params) -> None:
    """Masks over a merge would not be of it, or it would learn with other options than asked for."""
    plan = Plan(params, ROOT)
    (made,), (other,) = (chain.merge(plan, "tiny", TASKS, name, 0).inputs["statistics"] for name in LEARNING)
    assert made.params["tasks"] == list(TASKS) and made.params["merge"] != other.params["merge"]
    assert made.inputs["task_vectors"] == tuple(chain.task_vectors(plan, "tiny", TASKS, 0))
    assert {one.params["split"] for one in made.inputs["validation"]} == {"validation"}
    assert made in chain.mask(plan, "tiny", TASKS, LEARNING[0], 0).walk()


def test_a_missing_source_file_hides_only_its_own_model(params: Params) -> None:
    """`tallmasks gc` and `why` would refuse in every clone without the real images, with advice that does not help."""
    params["models"] = {name: params["models"][name] for name in ("dinov2", "tiny")}
    params["models"]["dinov2"]["pretrained"] = ".venv/real-images/none"
    params["benchmarks"] = {"two": ["svhn", "mnist"]}
    index = Index(Plan(params, ROOT))
    assert {node.path for node in closure(Plan(params, ROOT), "tiny")} <= index.declared().keys()
    assert {str(folder) for folder in index.unknown} == {"store/dinov2", "store/data/real_images"}
    assert {str(error).partition(". ")[2] for error in index.unknown.values()} == {"Install it: make real-images"}


def test_no_merge_knows_the_task_that_it_is_evaluated_on(params: Params) -> None:
    """The accuracy on an unseen task would be that of a model that was fine-tuned on it, or chosen by its data."""
    params["benchmarks"]["unseen"] = {"merge": ["cars", "dtd"], "evaluate": ["svhn", "mnist"]}
    plan = Plan(params, ROOT)
    recipe = VIEWS["tables"](plan, "tiny", "unseen").recipe["params"]
    assert recipe["tasks"] == ["svhn", "mnist"] and recipe["merged"] == ["cars", "dtd"] and not recipe["agreements"]
    merging = [name for name in methods.names("paper") if methods.get(name).section == "merging"]
    assert recipe["methods"] == [*merging, "fine_tuned"], "what has masks of its own is no row"
    of_table = VIEWS["tables"](plan, "tiny", "unseen").inputs["0/evaluations"]
    left_out = VIEWS["held_out"](plan, "tiny", "8tasks").inputs["evaluations"]
    assert len(of_table) == len(merging) - 1 and len(left_out) == 8 * (len(merging) - 1)
    for node in (*of_table, *left_out):
        evaluated = set(node.params["tasks"])
        (selection,) = node.inputs["selection"]
        assert selection.params["tasks"] == node.params["merged"] and not evaluated & set(node.params["merged"])
        assert not any(evaluated & {behind.params.get("task")} for behind in selection.walk())
    behind = closure(plan, "tiny")
    assert {node.path for node in of_table} <= {node.path for node in behind}
    assert {node.path for node in left_out} <= Index(plan).declared(["tiny"]).keys()


sys.path.insert(0, str(ROOT / "workflow" / "scripts"))

task_vector, Job = importlib.import_module("task_vector"), importlib.import_module("job").Job
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
        assert ("validation" in chain.finetune(Plan(params, ROOT), "tiny_t5", "qasc", 0).inputs) == bool(looks)
        other = copy.deepcopy(params)
        other["models"]["tiny_t5"]["scoring"][key] = value
        one, two = (
            {task: chain.finetune(plan, "tiny_t5", task, 0).digest for task in ("qasc", "ropes")}
            | {"counted": chain.evaluate_task(plan, "tiny_t5", "ropes", "zeroshot", 0).digest}
            for plan in (Plan(params, ROOT), Plan(other, ROOT))
        )
        assert {name for name in one if one[name] != two[name]} == expected | {"counted"}


def overlaps(
    plan: Plan, model: str, tasks: tuple[str, ...], merge: str | None, seed: int, *, share: float
) -> Declaration:
    params = {"tasks": list(tasks), "merge": merge, "share": share}
    return Declaration(
        f"overlaps-{len(tasks)}-s{seed}", params, {"task_vectors": chain.task_vectors(plan, model, tasks, seed)}
    )


def overlap(source: Any, task: int, level: int, *, share: float = 0.3, power: float = 1.0) -> float:
    return power


def scaled(task_vector: Any, overlap: float) -> Any:
    return task_vector * overlap


def test_an_input_may_be_an_artifact_of_all_tasks_with_options(
    params: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The method would be shown with one option and computed from an artifact of another, or have no row."""
    made = Stage("overlaps", 1, overlaps, ("store/{model}/derived/overlaps/{name}.safetensors",), joint=True)
    own = Input("overlap", "one", "benchmark", overlap)
    monkeypatch.setitem(chain.STAGE_OF, own, made)
    monkeypatch.setitem(INPUTS, "overlap", own)
    row = Method("own", scaled, PerTask(), 900, "Own", "nobody", storage=storage_formulas.finetuned, group="later")
    monkeypatch.setitem(registry._methods, "own", row)
    plan = Plan(params, ROOT)
    ((plain,), (other,), (same,)) = (
        chain.evaluate(plan, "tiny", TASKS, f"own{options}", 0).inputs["overlaps"]
        for options in ("", ":share=0.2", ":power=2.0")
    )
    assert plain.params == {"tasks": list(TASKS), "merge": None, "share": 0.3}
    assert plain.inputs["task_vectors"] == tuple(chain.task_vectors(plan, "tiny", TASKS, 0))
    assert other.params["share"] == 0.2 and plain.digest == same.digest != other.digest
    assert "own" in field_methods(plan, "tiny")


def roles_in_rules() -> dict[str, tuple[set[str], bool]]:
    """The roles that each rule of an artifact names, and whether it takes all others as well."""
    rules = {}
    for file in (ROOT / "workflow/rules").glob("*.smk"):
        for name, inputs in re.findall(
            r"use rule artifact as (\w+) with:\n    input:(.*?)    output:", file.read_text(), re.S
        ):
            named = re.findall(r'(\w+)=BRIDGE.artifact.input\("(\w+)"\),', inputs)
            assert all(role == of for role, of in named), name
            (others,) = re.findall(r"inputs_but\((.*)\)", inputs) or [None]
            assert others is None or re.findall(r'"(\w+)"', others) == [role for role, _ in named], name
            rules[name] = {role for role, _ in named}, others is not None
    return rules


def test_rules_take_every_input_that_their_stage_declares(params: Params) -> None:
    """A job would start before its input exists, or lack it on a cluster, which copies what the rule names."""
    params["methods"] = ["paper", "later"]
    for whose in (params, *params["models"].values()):
        benchmarks = whose.get("benchmarks", {})
        whose["benchmarks"] = {name: tasks[:2] for name, tasks in benchmarks.items()}
    plan, tops = Plan(params, ROOT), []
    for model in plan.models:
        for view, benchmark in itertools.product(VIEWS.values(), plan.benchmarks(model)):
            with suppress(TallmasksError):  # not a view of this benchmark, or no real data here
                tops.append(view(plan, model, benchmark))
    tops.append(chain.bundle_archive(plan, "tiny", TASKS, "tall_mask_ties", 0))
    tops.append(chain.import_checkpoint(plan, "vit_b32", "mnist", Imported("folder", local=Path("mnist.pt"))))
    params["models"]["vit_b32"]["pretrained"] = "weights.pt"
    tops.append(chain.pretrained(Plan(params, ROOT), "vit_b32"))
    found = defaultdict(set)
    for node in {one for top in tops for one in top.walk() if not one.stage.is_result}:
        found[node.kind] |= {*node.inputs, *node.sources}
    rules = roles_in_rules()
    assert rules.keys() == found.keys()
    for name, (roles, takes_others) in rules.items():
        assert roles <= found[name] if takes_others else roles == found[name], name
