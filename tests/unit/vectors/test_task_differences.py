"""The differences of many models at once: those of each by itself, to the bit."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from small_checkpoints import file_of, state
from tallmasks.vectors import kernels
from tallmasks.vectors.checkpoints.float_bytes import gathered
from tallmasks.vectors.checkpoints.opening import open_checkpoint
from tallmasks.vectors.checkpoints.task_differences import TaskDifferences
from tallmasks.vectors.differences import Difference

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


SHAPES = {"a": (300, 517), "b": (0, 3), "c": (), "d": (9001,), "e": (411, 500)}


@pytest.fixture(scope="module", params=[torch.float32, torch.bfloat16, torch.float16], ids=str)
def apart(request, tmp_path_factory):
    """A task vector that is asked for in pieces, the same with where its models lie, and what was told."""
    draw, models = torch.Generator().manual_seed(0), []
    for number in range(2):
        tensors = {name: torch.randn(shape, generator=draw).to(request.param) for name, shape in SHAPES.items()}
        models.append(open_checkpoint(str(file_of(tmp_path_factory.mktemp("models") / str(number), tensors))))
    base, task = models
    told = []
    (lying,) = TaskDifferences(base, [task]).lying(base.layout, told.append)
    assert lying is not None
    known = base.layout, lambda name, start, stop: task.difference(base, name, start, stop)
    return Difference(*known), Difference(*known, lying), told


@given(data=st.data())
@settings(max_examples=50, deadline=None)
def test_runs_are_the_slices(apart, data):
    """Values at the seam of two tensors would be lost, or taken twice."""
    pieces, lying, told = apart
    ends = st.integers(0, pieces.size)
    parts = data.draw(st.lists(st.tuples(ends, ends).map(lambda pair: slice(*sorted(pair))), min_size=1, max_size=4))
    del told[:]
    found = gathered(lying.runs(parts))
    np.testing.assert_array_equal(found, np.concatenate([pieces[part] for part in parts]))
    assert sum(told) == found.size


@pytest.mark.parametrize("long", [1 << 24, 100_000])
def test_thresholds_need_no_pieces(apart, long, monkeypatch):
    """Another weight would be the last that is kept than if the task vector were there."""
    monkeypatch.setattr(kernels, "LONG", long)
    pieces, lying, _ = apart
    magnitudes = np.sort(np.abs(pieces[:]))
    assert len(magnitudes) > kernels.PARTITIONED
    for n in (1, 77_777, len(magnitudes) * 4 // 5, len(magnitudes) - 3, len(magnitudes)):
        assert kernels.nth_magnitude(lying, n) == magnitudes[n - 1] == kernels.nth_magnitude(pieces, n)


def test_one_who_cannot_say_where_is_asked_in_pieces(tmp_path):
    """A LoRA's or a turned tensor's values lie nowhere."""
    base, task = saved(tmp_path, range(2))
    assert TaskDifferences(base, [task]).lying(base.layout, print) == [None]
