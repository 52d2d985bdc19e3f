"""The differences of many models at once: those of each by itself, to the bit."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from small_checkpoints import file_of, state
from tallmasks.vectors.checkpoints.opening import open_checkpoint
from tallmasks.vectors.checkpoints.task_differences import TaskDifferences

TOGETHER = ("a.half", "b.weight", "c.brain")


def saved(folder, seeds=range(4), name="model.safetensors", **more):
    return [open_checkpoint(str(file_of(folder / str(seed), state(seed, **more), name))) for seed in seeds]


@pytest.mark.parametrize("name", ["model.safetensors", "model.pt"])
@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_they_are_those_of_each_model(tmp_path_factory, name, data):
    """A model's changes would be given to another, or begin somewhere else in the tensor."""
    base, *tasks = saved(tmp_path_factory.mktemp("models"), name=name)
    together = TaskDifferences(base, tasks)
    for tensor in TOGETHER:
        size = base.info(tensor).size
        start = data.draw(st.integers(0, size))
        stop = data.draw(st.integers(start, size))
        rows, refused = together(tensor, start, stop)
        assert refused == len(tasks) == len(rows)
        for row, task in zip(rows, tasks, strict=True):
            np.testing.assert_array_equal(row, task.difference(base, tensor, start, stop))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("tensor", TOGETHER)
@pytest.mark.parametrize("place", [0, 18, -1])
def test_the_first_model_that_is_not_finite_is_told(tmp_path, tensor, bad, place):
    """NaN would go into every model that is merged, without a name."""
    base, *tasks = saved(tmp_path)
    for number in (1, 2):
        tensors = load_file(tmp_path / str(number + 1) / "model.safetensors")
        tensors[tensor].reshape(-1)[place] = bad
        tasks[number] = open_checkpoint(str(file_of(tmp_path / f"bad{number}", tensors)))
    assert TaskDifferences(base, tasks)(tensor, 0, base.info(tensor).size)[1] == 1


def test_a_difference_that_is_too_large_is_told(tmp_path):
    """Two finite numbers can be too far from each other for float32."""
    base, task = (saved(tmp_path / str(sign), [0], far=torch.full((3,), sign * 3e38))[0] for sign in (-1, 1))
    assert TaskDifferences(base, [task])("far", 0, 3)[1] == 0


def test_what_does_not_lie_there_as_one_dtype_is_asked_for_one_by_one(tmp_path):
    """Bytes of another dtype, or of another place, would be taken for weights."""
    base, *tasks = saved(tmp_path)
    assert TaskDifferences(base, tasks)("d.double", 0, 9) is None
    tensors = load_file(tmp_path / "1" / "model.safetensors")
    tensors["b.weight"] = tensors["b.weight"].bfloat16()
    other = open_checkpoint(str(file_of(tmp_path / "other", tensors)))
    assert TaskDifferences(base, [*tasks, other])("b.weight", 0, 35) is None
    turned = open_checkpoint(str(file_of(tmp_path / "turned", {"b.weight": torch.randn(5, 7).T}, "model.pt")))
    assert TaskDifferences(base, [turned])("b.weight", 0, 35) is None
