"""The public face: the paper's steps on state dicts in memory."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import reference
import tallmasks
from tallmasks import TallmasksError

README = Path(__file__).parents[2] / "README.md"
SHAPES = {"b.weight": (3, 4), "a": (5,)}


def draws(seed: int) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(seed)
    return {name: draw.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}


def flat(tensors: dict[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([np.asarray(tensors[name]).ravel() for name in sorted(tensors)])


@pytest.fixture
def base() -> dict[str, np.ndarray]:
    return draws(0)


@pytest.fixture
def vectors(base: dict[str, np.ndarray]) -> dict[str, dict[str, np.ndarray]]:
    return {f"task {seed}": tallmasks.task_vector(base, draws(seed)) for seed in (1, 2, 3)}


def test_the_names_are_documented_and_few() -> None:
    """A notebook's author would have to read the package to find what there is."""
    assert set(dir(tallmasks)) == set(tallmasks.__all__) and len(tallmasks.__all__) <= 12
    assert all(getattr(tallmasks, name).__doc__ for name in tallmasks.__all__)


@pytest.mark.parametrize("call", ["import tallmasks", "import tallmasks; tallmasks.merges()"])
def test_torch_is_not_imported_unless_tensors_are_given(call: str) -> None:
    """A script on arrays would wait for seconds."""
    code = f"import sys; {call}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_step_is_the_plain_statement(
    base: dict[str, np.ndarray], vectors: dict[str, dict[str, np.ndarray]]
) -> None:
    """A notebook would show other numbers than the workflow."""
    flats = [flat(vector) for vector in vectors.values()]
    np.testing.assert_array_equal(flats[0], flat(draws(1)) - flat(base))
    merged = tallmasks.merge(vectors)
    np.testing.assert_array_equal(flat(merged), reference.sum_vectors(np.stack(flats)))
    limits = [reference.trim_threshold(one, 0.5) for one in flats]
    ties = tallmasks.merge(list(vectors.values()), "ties_mean", keep=0.5)
    np.testing.assert_array_equal(flat(ties), reference.ties(np.stack(flats), limits, mean=True))
    masks = {name: tallmasks.tall_mask(vector, merged, 0.4) for name, vector in vectors.items()}
    expected = [reference.mask(one, flat(merged), 0.4) for one in flats]
    np.testing.assert_array_equal([flat(mask) for mask in masks.values()], expected)
    grid = tallmasks.tall_mask(vectors["task 1"], merged, [0.2, 0.4])
    np.testing.assert_array_equal(flat(grid[0.4]), expected[0])
    count = tallmasks.agreement(masks)
    np.testing.assert_array_equal(flat(count), np.sum(expected, axis=0))
    shared = tallmasks.consensus(merged, count, k=2)
    np.testing.assert_array_equal(flat(shared), flat(merged) * (np.sum(expected, axis=0) >= 2))
    own = tallmasks.apply(base, tallmasks.apply_mask(merged, masks["task 2"]))
    np.testing.assert_array_equal(flat(own), flat(base) + flat(merged) * expected[1])
    assert list(own) == list(base)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_tensors_come_back_as_tensors(dtype: torch.dtype) -> None:
    """A model would not load its new state dict."""
    base = {name: torch.from_numpy(value).to(dtype) for name, value in draws(0).items()} | {"steps": torch.tensor(7)}
    tuned = {name: torch.from_numpy(value).to(dtype) for name, value in draws(1).items()} | {"steps": torch.tensor(9)}
    vector = tallmasks.task_vector(base, tuned)
    assert set(vector) == set(SHAPES) and all(tensor.dtype == torch.float32 for tensor in vector.values())
    mask = tallmasks.tall_mask(vector, tallmasks.merge([vector, vector]), 1.0)
    assert all(tensor.dtype == torch.bool for tensor in mask.values())
    again = tallmasks.apply(base, vector)
    assert all(torch.allclose(again[name], tuned[name]) and again[name].dtype == dtype for name in SHAPES)
    assert again["steps"] == 7


def test_what_cannot_be_meant_is_refused(base: dict[str, np.ndarray]) -> None:
    """A user would merge models that do not belong together."""
    other = {**base, "b.weight": np.zeros((4, 3), np.float32)}
    with pytest.raises(TallmasksError, match=r"does not fit the base model: wrongly shaped: b.weight"):
        tallmasks.task_vector(base, other)
    with pytest.raises(TallmasksError, match="did you mean 'ties_mean'"):
        tallmasks.merge([base], "ties_men")
    with pytest.raises(TallmasksError, match="no option 'kep'; did you mean 'keep'"):
        tallmasks.merge([base], "ties_mean", kep=0.1)
    with pytest.raises(TallmasksError, match="holds NaN or infinity in a"):
        tallmasks.task_vector(base, {**base, "a": np.full(5, np.nan, np.float32)})
    with pytest.raises(TallmasksError, match="ascending"):
        tallmasks.tall_mask(base, base, [0.4, 0.2])
    with pytest.raises(TallmasksError, match="nothing was given"):
        tallmasks.merge([])
    with pytest.raises(TallmasksError, match="no tensors of floats"):
        tallmasks.merge([{"steps": np.array(3)}])


def test_the_lines_of_the_readme_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first thing that a reader copies into a notebook would fail."""
    (lines,) = re.findall(r"^```python\n(import tallmasks\nfrom safe.*?)^```$", README.read_text(), re.M | re.S)
    assert lines.count("\n") <= 11
    states = {name: draws(seed) for seed, name in enumerate(("base", "cars", "mnist"))}
    for name, tensors in states.items():
        save_file({key: torch.from_numpy(value) for key, value in tensors.items()}, tmp_path / f"{name}.safetensors")
    monkeypatch.chdir(tmp_path)
    found: dict[str, dict[str, torch.Tensor]] = {}
    exec(lines, found)
    vectors = [flat(states[name]) - flat(states["base"]) for name in ("cars", "mnist")]
    merged = reference.sum_vectors(np.stack(vectors))
    masks = [reference.mask(vector, merged, 0.4) for vector in vectors]
    np.testing.assert_array_equal(flat(found["cars"]), flat(states["base"]) + merged * masks[0])
    consensus = merged * (np.sum(masks, axis=0) >= 2)
    np.testing.assert_array_equal(flat(found["both"]), flat(states["base"]) + np.float32(0.3) * consensus)
