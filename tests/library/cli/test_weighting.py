"""Weights and densities by task, in our words and in mergekit's."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import later_reference
import reference
from models_made import refusal, run
from tallmasks.io.tensor_files import Layout
from tallmasks.methods import Fraction, Merge, TensorPiece
from tallmasks.methods.weighting import WeightedMerge, Weighting
from tallmasks.vectors.task_vectors import TaskVector

VALUES = Path(later_reference.__file__).with_name("mergekit_values.safetensors")
with safe_open(VALUES, "np") as written:
    FILES, SHAPES = (json.loads(written.metadata()[key]) for key in ("files", "shapes"))
    THERE = {name: written.get_tensor(name) for name in written.keys()}  # noqa: SIM118, it is no dict
LAYOUT = Layout(tuple(SHAPES), tuple(map(tuple, SHAPES.values())))
BASE, ONE, TWO = (THERE[name] for name in ("base", "one", "two"))
FILE = "models: [{model: one}, {model: two}]\nbase_model: base\nmerge_method: %s\n"
SLICE = """\
base_model: base
merge_method: model_stock
slices:
  - sources: [{model: one, layer_range: [0, %s]}, {model: two, layer_range: [0, %s]}]
"""
CALL = ["merge", "--base", "base", "--task", "one=one", "--task", "two=two"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The models of which mergekit's values are written down, in the current folder."""
    monkeypatch.chdir(tmp_path)
    for name in ("base", "one", "two", "three"):
        Path(name).mkdir()
        save_file(dict(LAYOUT.split(THERE[name])), f"{name}/model.safetensors")


def merged(*words: object) -> np.ndarray:
    """What a merge writes, as one run."""
    out = f"out{len(list(Path.cwd().iterdir()))}"
    assert run(*words, "-o", out) == 0
    return LAYOUT.join(load_file(f"{out}/model.safetensors"))


@pytest.mark.parametrize("name", FILES)
def test_mergekits_files_give_mergekits_values(here: None, name: str) -> None:
    """Who comes from mergekit would get another model from the same file, or from its recipe."""
    Path("merge.yml").write_text(FILES[name])
    assert run("merge", "merge.yml", "-o", "first") == 0
    found = LAYOUT.join(load_file("first/model.safetensors"))
    np.testing.assert_array_equal(merged("merge", "first/merge.yaml"), found)
    if "linear" in name:  # a sum of models there, here of what they changed
        np.testing.assert_allclose(found, THERE[name], rtol=2e-7, atol=1e-8)
    elif "model stock" in name or "sce" in name:  # other orders of sums; a row's cosines may nearly cancel
        np.testing.assert_allclose(found, THERE[name], rtol=1e-4, atol=1e-6)
    else:
        np.testing.assert_array_equal(found, THERE[name])
    assert (found != BASE).mean() > 0.3


def test_weights_multiply_task_vectors(here: None) -> None:
    """A weight would count twice, or not at all."""
    plain = merged(*CALL, "--method", "task_arithmetic", "--weight", "one=0.7", "--weight", "two=-0.2")
    expected = BASE + (np.float32(0.7) * (ONE - BASE) + np.float32(-0.2) * (TWO - BASE))
    np.testing.assert_array_equal(plain, expected)
    mean = merged(*CALL, "--method", "weight_averaging", "--weight", "one=3")
    np.testing.assert_allclose(mean, 0.75 * ONE + 0.25 * TWO, rtol=1e-6, atol=1e-8)
    without_base = merged("merge", *CALL[3:], "--method", "weight_averaging", "--weight", "one=3")
    np.testing.assert_allclose(without_base, mean, rtol=1e-6, atol=1e-8)


def test_what_weighted_tasks_cancel_goes_to_their_majority(here: None) -> None:
    """TIES would elect the sign that the task vectors have without weights."""
    one, two = np.ones(LAYOUT.size, np.float32), np.full(LAYOUT.size, -1.5, np.float32)
    two[:9], two[9] = -2, -1e4  # few of the weights, and most of their length
    for name, flat in {"base": 0 * one, "one": one, "two": two}.items():
        save_file(dict(LAYOUT.split(flat)), f"{name}/model.safetensors")
    found = merged(*CALL, "--method", "ties", "--option", "keep=1", "--weight", "one=2", "--no-normalize")
    np.testing.assert_array_equal(found, reference.ties(np.stack([2 * one, two]), [0, 0], mean=False))
    assert (found[:9] == 2).all()


def test_masks_are_those_of_weighted_task_vectors(here: None) -> None:
    """Consensus merging would keep the weights that the tasks share at other weights."""
    words = ["--method", "consensus_task_arithmetic", "--mask-lambda", 0.4]
    found = merged(*CALL, *words, "--weight", "one=3", "--weight", "two=0.5")
    vectors = np.float32([[3], [0.5]]) * (np.stack([ONE, TWO]) - BASE)
    total = reference.sum_vectors(vectors)
    kept = reference.agreement([reference.mask(vector, total, 0.4) for vector in vectors]) >= 2
    np.testing.assert_array_equal(found, BASE + total * kept)


@pytest.mark.parametrize(
    ("method", "option", "value"), [("ties", "keep", 0.5), ("dare", "drop", 0.25), ("breadcrumbs", "middle", 0.3)]
)
def test_a_density_is_the_methods_option_by_task(here: None, method: str, option: str, value: float) -> None:
    """Densities would mean another thing than the option that they replace."""
    words, density = [*CALL, "--method", method], 1 - value if option == "drop" else value
    alpha = ["--scaling-coefficient", 0.4]
    same = merged(*words, *alpha, "--density", density)
    np.testing.assert_array_equal(same, merged(*words, *alpha, "--option", f"{option}={value}"))
    assert (merged(*words, *alpha, "--density", f"one={density}") != same).any()


def test_trimming_by_tensor_keeps_a_share_of_each(here: None) -> None:
    """`--trim tensor` would trim the whole model, and a tensor with small changes would lose all of them."""
    one = ["merge", "--base", "base", "--task", "one=one", "--method", "ties", "--density", "0.37"]
    changed, moved = (LAYOUT.split(flat != BASE) for flat in (merged(*one, "--trim", "tensor"), ONE))
    for name in filter(lambda name: moved[name].any(), moved):
        assert changed[name].sum() == max(1, int(changed[name].size * 0.37))
    assert (merged(*one) != BASE).sum() == int(LAYOUT.size * 0.37) + 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SLICE % (2, 2), "layers: found 2, but the base has 3"),
        (f"{FILE}parameters: {{rescale: true, weight: 1}}" % "ties", "rescale: found True"),
        (FILE.replace("one}", "one, parameters: {eta: 1}}") % "ties", "no key 'eta'"),
    ],
)
def test_what_mergekit_has_and_this_has_not_is_one_line(
    here: None, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    """A part of a file would be ignored in silence."""
    Path("merge.yml").write_text(text)
    assert said in refusal(capsys, "merge", "merge.yml", "-o", "out")


@pytest.mark.parametrize("name", ["weight", "density"])
def test_a_setting_is_the_tasks_the_files_or_the_methods(here: None, name: str) -> None:
    """A task that sets its density would lose the weight that the file gives to all."""
    tasks = {"one": {"checkpoint": "one", name: 0.7}, "two": {"checkpoint": "two"}}
    said = {"base": "base", "method": "ties", "scaling_coefficient": 0.8, "weight": 0.5, "density": 0.25}
    Path("merge.yaml").write_text(json.dumps({**said, "tasks": tasks}))
    words = [*CALL, "--method", "ties", "--scaling-coefficient", 0.8, "--weight", 0.5, "--density", 0.25]
    np.testing.assert_array_equal(merged("merge", "merge.yaml"), merged(*words, f"--{name}", "one=0.7"))


def test_an_own_merge_declares_weights_and_densities() -> None:
    """A user's merge would take neither weights nor densities, whatever it computes."""

    def largest(vectors: list[np.ndarray], piece: TensorPiece, prepared: None, *, part: Fraction = 1.0) -> np.ndarray:
        limits = [np.quantile(abs(vector), 1 - part) for vector in vectors]
        kept = [np.where(abs(vector) >= limit, vector, 0) for vector, limit in zip(vectors, limits, strict=True)]
        return np.sum(kept, axis=0)

    merge, layout = Merge("mine", largest, sparsify="part", combine="sum"), Layout(("a",), ((4,),))
    rows = np.float32([[1, 2, 3, 4], [8, 7, 6, 5]])
    of_tasks = Weighting({"x": 0.5}, {"y": 0.5})
    of_tasks.check(merge, "mine")
    weighted = WeightedMerge(merge, [TaskVector(row, layout, {}) for row in rows], ["x", "y"], of_tasks)
    np.testing.assert_array_equal(weighted(list(rows), TensorPiece("a", 0, 4)), [8.5, 8, 1.5, 2])


def test_a_sum_of_weighted_models_stays_a_sum(here: None) -> None:
    """Weights of 1 would divide a sum by the number of tasks, as only a mean is divided."""
    call = [*CALL, "--scaling-coefficient", "1"]
    for method in ("task_arithmetic", "consensus_ties"):
        plain, weighted = (merged(*call, "--method", method, *more) for more in ([], ["--weight", "1"]))
        np.testing.assert_allclose(weighted, plain, rtol=1e-6)
