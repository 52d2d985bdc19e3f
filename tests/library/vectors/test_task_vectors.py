"""Task vectors from checkpoints of every precision, their thresholds, and errors for bad checkpoints."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reference
from strategies import no_deadline, task_vectors
from tallmasks.errors import TallmasksError
from tallmasks.io.tensor_files import Layout, load_state, open_tensors, write_tensors
from tallmasks.vectors.checkpoints.weight_files import open_weight_files
from tallmasks.vectors.task_vectors import compute_task_vector, open_task_vector, trim_threshold

PRETRAINED = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(5, np.float32), "z": np.ones(2)}
CHECKPOINT = {"a": np.full((2, 3), 0.5, np.float32), "b": np.full(5, 2, np.float32)}


def compute(folder, pretrained=PRETRAINED, checkpoint=CHECKPOINT, trainable=("a", "b")):
    """The task vector of two state dicts, through files."""
    write_tensors(folder / "pretrained", pretrained, {})
    write_tensors(folder / "checkpoint", checkpoint, {})
    files = [folder / name for name in ("pretrained", "checkpoint", "tau")]
    before = open_weight_files({"pretrained": files[0]}, title=str(files[0]))
    initial = {name: before.float32(name) for name in trainable}
    compute_task_vector(*files[:2], initial, files[2], {"recipe": "r"}, [0.2, 0.1])
    return open_task_vector(files[2])


@pytest.mark.parametrize("before", [np.float16, np.float32])
@pytest.mark.parametrize("after", [np.float16, np.float32])
def test_difference_is_taken_in_float32_piece_by_piece(before, after, tmp_path):
    """Half-precision checkpoints would be subtracted in half precision, or the end of a piece would be skipped."""
    draw, shapes = np.random.default_rng(1), {"a": (2, 600_000), "b": (5,)}  # more than a piece, and less
    pretrained, checkpoint = (
        {name: draw.standard_normal(shape, np.float32).astype(dtype) for name, shape in shapes.items()}
        for dtype in (before, after)
    )
    tau = compute(tmp_path, pretrained, checkpoint)
    expected = [checkpoint[name].astype(np.float32) - pretrained[name].astype(np.float32) for name in "ab"]
    np.testing.assert_array_equal(tau.flat, np.concatenate([part.ravel() for part in expected]))
    assert tau.layout == Layout.of(pretrained)
    assert tau.thresholds == {f: reference.trim_threshold(tau.flat, f) for f in (0.2, 0.1)}
    assert open_tensors(tmp_path / "tau").metadata["recipe"] == "r"
    np.testing.assert_array_equal(load_state(tmp_path / "tau")["a"], expected[0])


@no_deadline
@given(task_vectors(max_tasks=1), st.floats(0, 1.5), st.integers(0, 40))
def test_threshold_is_the_nth_smallest_magnitude(vectors, fraction, frozen):
    """TIES, magnitude masking and pruning would keep another fraction than the paper's."""
    vector = vectors[0]
    found = trim_threshold(vector, fraction, frozen)
    assert found.dtype == np.float32
    assert found == reference.trim_threshold(vector, fraction, frozen)
    kept = min(int(fraction * (vector.size + frozen)) + 1, vector.size)
    assert (np.abs(vector) >= found).sum() >= kept


@pytest.mark.parametrize("fraction", [0.2, 0.53])
def test_a_fraction_counts_over_frozen_values_too(fraction, tmp_path):
    """TIES and magnitude masking would keep less than in the paper's published code, which counts over P."""
    draw = np.random.default_rng(3)
    states = [{"a": draw.standard_normal(100).astype(np.float32)} for _ in range(2)]
    for name, state in zip(("pretrained", "checkpoint"), states, strict=True):
        write_tensors(tmp_path / name, state, {})
    files = [tmp_path / name for name in ("pretrained", "checkpoint")]
    compute_task_vector(*files, states[0], tmp_path / "tau", {}, [0.2], frozen=30)
    tau = open_task_vector(tmp_path / "tau")
    assert (np.abs(tau.flat) >= tau.threshold(fraction)).sum() == int(130 * fraction) + 1
    assert (np.abs(tau.flat) >= tau.threshold(fraction, of_trainable=True)).sum() == int(100 * fraction) + 1


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"a": None}, "missing: a"),
        ({"b": np.ones((5, 1), np.float32)}, r"b \(found \[5, 1\], expected \[5\]\)"),
        ({"b": np.float32([1, 2, 3, np.nan, 5])}, "tensor b"),
    ],
)
def test_a_checkpoint_of_another_model_or_of_nan_is_refused(change, complaint, tmp_path):
    """Unrelated tensors would be subtracted, or one diverged task would turn the whole merge into NaN."""
    checkpoint = {name: array for name, array in {**CHECKPOINT, **change}.items() if array is not None}
    with pytest.raises(TallmasksError, match=f"checkpoint.*{complaint}"):
        compute(tmp_path, checkpoint=checkpoint)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint", "pretrained"]
