"""The public functions: the paper's steps on state dicts in memory."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import reference
import tallmasks
from tallmasks import TallmasksError
from tallmasks.cli.main import main
from tallmasks.errors import TallmasksWarning

PAGE = Path(__file__).parents[3] / "docs" / "python.md"
SHAPES = {"b.weight": (3, 4), "a": (5,)}


def draws(seed: int) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(seed)
    return {name: draw.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}


def flat(tensors: dict[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([np.asarray(tensors[name]).ravel() for name in sorted(tensors)])


def test_modules_and_paths_are_models(tmp_path: Path) -> None:
    """Every notebook would need the same lines to load files."""
    before, after = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    expected = tallmasks.task_vector(before.state_dict(), after.state_dict())
    save_file(after.state_dict(), tmp_path / "after.safetensors")
    for finetuned in (after, tmp_path / "after.safetensors", str(tmp_path / "after.safetensors")):
        assert all(torch.equal(one, expected[name]) for name, one in tallmasks.task_vector(before, finetuned).items())
    merged = tallmasks.apply(before, expected)
    assert torch.allclose(merged["weight"], after.weight, atol=1e-6)


def test_buffers_stay_as_in_the_base() -> None:
    """A merged variance could be negative, or a module's parameter with a buffer's name would be left out."""
    before = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    before.register_buffer("own_words", torch.ones(2))
    before.register_parameter("running_mean", torch.nn.Parameter(torch.ones(2)))
    after = copy.deepcopy(before)
    after.load_state_dict({name: tensor + 1 for name, tensor in before.state_dict().items()})
    of_module = {"0.bias", "0.weight", "1.bias", "1.weight", "running_mean"}
    of_names = of_module - {"running_mean"} | {"own_words"}
    for base, tuned, names in ((before, after, of_module), (before.state_dict(), after.state_dict(), of_names)):
        with pytest.warns(UserWarning, match=r"1\.running_mean"):
            vector = tallmasks.task_vector(base, tuned)
        assert vector.keys() == names
        merged = tallmasks.apply(base, vector)
        for name, tensor in before.state_dict().items():
            torch.testing.assert_close(merged[name], tensor + 1 if name in names else tensor)


def test_every_step_is_the_plain_statement() -> None:
    """A notebook would compute other numbers than the workflow."""
    base = draws(0)
    vectors = {f"task {seed}": tallmasks.task_vector(base, draws(seed)) for seed in (1, 2, 3)}
    flats = [flat(vector) for vector in vectors.values()]
    np.testing.assert_array_equal(flats[0], flat(draws(1)) - flat(base))
    merged = tallmasks.merge(vectors)
    np.testing.assert_array_equal(flat(merged), reference.sum_vectors(np.stack(flats)))
    np.testing.assert_allclose(flat(tallmasks.merge(vectors, "weight_averaging")), np.mean(flats, axis=0), rtol=1e-5)
    limits = [reference.trim_threshold(one, 0.5) for one in flats]
    ties = tallmasks.merge(list(vectors.values()), "ties", keep=0.5)
    np.testing.assert_array_equal(flat(ties), reference.ties(np.stack(flats), limits, mean=True))
    masks = {name: tallmasks.tall_mask(vector, merged, 0.4) for name, vector in vectors.items()}
    expected = [reference.mask(one, flat(merged), 0.4) for one in flats]
    np.testing.assert_array_equal([flat(mask) for mask in masks.values()], expected)
    np.testing.assert_array_equal(flat(tallmasks.tall_mask(vectors["task 1"], merged, [0.2, 0.4])[0.4]), expected[0])
    count = tallmasks.agreement(masks)
    np.testing.assert_array_equal(flat(count), np.sum(expected, axis=0))
    shared = tallmasks.consensus(merged, count, k=2)
    np.testing.assert_array_equal(flat(shared), flat(merged) * (np.sum(expected, axis=0) >= 2))
    with pytest.raises(TallmasksError, match=r"k is 4.* 0 to"):
        tallmasks.consensus(merged, count, k=4)
    own = tallmasks.apply(base, tallmasks.apply_mask(merged, masks["task 2"]))
    np.testing.assert_array_equal(flat(own), flat(base) + flat(merged) * expected[1])
    assert list(own) == list(base)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_results_for_tensors_are_tensors(dtype: torch.dtype) -> None:
    """A model could not load its new state dict."""
    base, tuned = ({n: torch.from_numpy(values).to(dtype) for n, values in draws(seed).items()} for seed in (0, 1))
    vector = tallmasks.task_vector(base, tuned)
    assert set(vector) == set(SHAPES) and all(tensor.dtype == torch.float32 for tensor in vector.values())
    mask = tallmasks.tall_mask(vector, tallmasks.merge([vector, vector]), 1.0)
    assert all(tensor.dtype == torch.bool for tensor in mask.values())
    again = tallmasks.apply(base, vector)
    assert all(torch.allclose(again[name], tuned[name]) and again[name].dtype == dtype for name in SHAPES)


@pytest.mark.parametrize("of", [torch.from_numpy, np.asarray])
def test_a_tied_embedding_counts_once(of: Any) -> None:
    """TIES on `model.state_dict()` would keep other weights than `tallmasks merge` on the model's files."""
    states = [{name: of(value) for name, value in draws(seed).items()} for seed in range(3)]
    tied = [{**state, "head": state["a"]} for state in states]
    base, *tuned = states
    expected = tallmasks.merge([tallmasks.task_vector(base, state) for state in tuned], "ties_sum", keep=0.3)
    vectors = [tallmasks.task_vector(tied[0], state) for state in tied[1:]]
    found = tallmasks.merge(vectors, "ties_sum", keep=0.3)
    mask = tallmasks.tall_mask(vectors[0], found, 0.4)
    new = tallmasks.apply(tied[0], tallmasks.apply_mask(found, mask))
    for tensors in (vectors[0], found, mask, new):
        assert tensors.keys() == {*SHAPES, "head"}
        np.testing.assert_array_equal(tensors["head"], tensors["a"])
    for name in SHAPES:
        np.testing.assert_array_equal(found[name], expected[name])
    apart = {**states[1], "head": states[1]["a"] + 1}
    assert float(tallmasks.task_vector(tied[0], apart)["head"][0] - vectors[0]["a"][0]) == pytest.approx(1)


SPARSE = {"a": torch.eye(5).to_sparse(), "b.weight": torch.ones(3, 4)}
EIGHT = {"a": torch.ones(5), "b.weight": torch.ones(3, 4).to(torch.float8_e4m3fn)}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda one: tallmasks.merge({"x": SPARSE}), "x: tensor a .*sparse"),
        (lambda one: tallmasks.apply(one, one, float("inf")), "NaN or infinity"),
        (lambda one: tallmasks.apply({"a": np.full(5, 6e4, np.float16)}, {"a": 1e5 + one["a"]}), "tensor a .*float16"),
        (lambda one: tallmasks.merge([one], "consensus_ties"), "consensus_ties.*ties_mean"),
        (lambda one: tallmasks.merge([one], None), "found None, expected the name of a merge"),
        (lambda one: tallmasks.merge([one], "ties_sum", keep=np.float32(2)), "option keep: found 2.0, expected"),
        (lambda one: tallmasks.tall_mask(one, one, [0.4, 0.2]), "ascending"),
        (lambda one: tallmasks.tall_mask(one, one, "4"), "mask_lambda is '4'; expected a number"),
        (lambda one: tallmasks.task_vector(one, {**one, "b.weight": np.zeros((4, 3), np.float32)}), "shaped: b.weight"),
        (lambda one: tallmasks.merge({"cars": one, "dtd": one | {"a": one["a"] * np.nan}}), "dtd holds NaN .* in a"),
        (lambda one: tallmasks.task_vector(one, EIGHT), "b.weight .*float8_e4m3fn"),
    ],
)
def test_wrong_arguments_are_refused(call: Any, message: str) -> None:
    """A user would merge models that do not fit, or get a traceback from inside the package."""
    with pytest.raises(TallmasksError, match=message):
        call(draws(0))


def test_masks_over_the_disjoint_mean_cause_a_warning() -> None:
    """Masks would differ from the table's without a warning: the paper uses the disjoint sum."""
    with pytest.warns(TallmasksWarning, match="merge.task_vectors, 'ties_sum'"):
        tallmasks.tall_mask(draws(0), tallmasks.merge([draws(0), draws(1)], "ties"), 0.4)


def test_the_examples_in_the_docs_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first lines that a reader copies into a notebook would fail."""
    lines, on_disk = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    monkeypatch.chdir(tmp_path)
    assert main(["example", "demo"]) == 0
    found: dict[str, Any] = {}
    exec(lines, found)
    names = ("base", "cars", "mnist")
    states = {name: {key: value.numpy() for key, value in found["weights"](name).items()} for name in names}
    vectors = [flat(states[name]) - flat(states["base"]) for name in ("cars", "mnist")]
    merged = reference.sum_vectors(np.stack(vectors))
    masks = [reference.mask(vector, merged, 0.4) for vector in vectors]
    np.testing.assert_array_equal(flat(found["cars"]), flat(states["base"]) + merged * masks[0])
    consensus = merged * (np.sum(masks, axis=0) >= 2)
    np.testing.assert_array_equal(flat(found["both"]), flat(states["base"]) + np.float32(0.3) * consensus)
    exec(on_disk, found)
    assert Path("merged/heads/dtd.safetensors").exists() and tallmasks.load_bundle("bundle").tasks == ("cars", "dtd")
