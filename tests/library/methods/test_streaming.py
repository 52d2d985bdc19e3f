"""Merges have the same results on pieces of tensors, read from files, as on whole models in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tallmasks
from tallmasks import methods
from tallmasks.io.tensor_files import load_state, write_tensors
from tallmasks.vectors import kernels

SHAPES = {"layers.0.w.weight": (96, 128), "layers.0.w.bias": (7,), "layers.1.w.weight": (40, 3)}
TASKS = ("a", "b", "c")
LAMBDAS = dict(zip(TASKS, (0.2, 0.4, 0.6), strict=True))


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, np.ndarray]]:
    """Models over a base of zeros, saved in the current folder, with weights that no task moved and weights on which
    two tasks cancel each other; they are read in short pieces."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(kernels, "SLICE", 1 << 9)
    draw = np.random.default_rng(0)
    found = {task: {n: draw.normal(size=shape).astype(np.float32) for n, shape in SHAPES.items()} for task in TASKS}
    for name, shape in SHAPES.items():
        moved = draw.random(shape) > 0.2
        for tensors in found.values():
            tensors[name] *= moved
        found["b"][name].reshape(-1)[::50] = -found["a"][name].reshape(-1)[::50]
    write_tensors(Path("base.safetensors"), {name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()}, {})
    for task, tensors in found.items():
        write_tensors(Path(f"{task}.safetensors"), tensors, {})
    return found


@pytest.mark.parametrize("name", tallmasks.method_names())
def test_a_merge_of_files_is_the_merge_in_memory(models: dict[str, dict[str, np.ndarray]], name: str) -> None:
    """A model larger than RAM would be merged differently."""
    method, settings = methods.get(name), {}
    if isinstance(method.usage, methods.Scaled):
        settings["scaling_coefficient"] = 1
    if method.is_merge:
        expected = tallmasks.merge(models, name)
    else:
        merged, settings["mask_lambda"] = tallmasks.merge(models, str(method.merge)), LAMBDAS
        masks = {task: tallmasks.tall_mask(models[task], merged, LAMBDAS[task]) for task in TASKS}
        expected = tallmasks.consensus(merged, tallmasks.agreement(masks), k=method.chosen["k"])
    paths = {task: f"{task}.safetensors" for task in TASKS}
    out = tallmasks.merge_checkpoints("base.safetensors", paths, "out.safetensors", method=name, **settings)
    for tensor, values in load_state(out).items():
        np.testing.assert_allclose(values, expected[tensor], rtol=1e-5, atol=1e-6)


def test_a_model_with_nan_is_refused_by_task_and_tensor(models: dict[str, dict[str, np.ndarray]]) -> None:
    """A merged model would contain NaN, and the user would not know which input caused it."""
    models["b"]["layers.1.w.weight"][0, 0] = np.nan
    write_tensors(Path("b.safetensors"), models["b"], {})
    paths = {task: f"{task}.safetensors" for task in TASKS}
    with pytest.raises(tallmasks.TallmasksError, match=r"b: tensor layers\.1\.w\.weight"):
        tallmasks.merge_checkpoints("base.safetensors", paths, "out.safetensors", method="ties")
