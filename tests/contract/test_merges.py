"""What a merge or a method may look at: weights, tensors, or the whole model; one property for each, and Iso-C and EMR
by plain statements."""

from __future__ import annotations

import numpy as np
import pytest

from tallmasks import methods
from tallmasks.store.tensor_files import Layout
from tallmasks.vectors.task_vectors import TaskVector
from task_statistics import for_merge

LAYOUT = Layout(("a.weight", "b.bias", "c.weight"), ((6, 4), (5,), (3, 3)))
OVER = {
    scope: [name for name in methods.merge_names() if methods.get_merge(name).over == scope]
    for scope in ("weights", "places", "tensors")
}


def vectors(seed: int, tasks: int = 4) -> list[TaskVector]:
    draw = np.random.default_rng(seed)
    flats = draw.normal(size=(tasks, LAYOUT.size)).astype(np.float32)
    flats[:, draw.random(LAYOUT.size) < 0.2] = 0  # weights that no task moved
    return [TaskVector(flat, LAYOUT, {0.2: np.float32(0.5)}) for flat in flats]


def merged(name: str, given: list[TaskVector], statistics: list[dict[str, np.ndarray]] | None = None) -> np.ndarray:
    out = np.full(given[0].flat.size, np.nan, np.float32)
    methods.get_merge(name)(given, out, for_merge(name, LAYOUT, range(4)) if statistics is None else statistics)
    return out


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", OVER["weights"])
def test_a_merge_over_weights_gives_each_slice_by_itself(name: str, seed: int) -> None:
    """A model larger than the memory could not be merged piece by piece."""
    given = vectors(seed)
    whole = merged(name, given)
    merge = methods.get_merge(name).prepared(given)
    for some in (slice(0, 7), slice(7, 30), slice(30, LAYOUT.size)):
        found = np.full(some.stop - some.start, np.nan, np.float32)
        merge([vector.flat[some] for vector in given], found)
        np.testing.assert_array_equal(found, whole[some])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", OVER["places"])
def test_a_merge_over_places_gives_each_slice_of_a_tensor_by_itself(name: str, seed: int) -> None:
    """A model larger than the memory would be merged in another way, piece by piece."""
    given = vectors(seed)
    whole = LAYOUT.split(merged(name, given))
    merge = methods.get_merge(name).prepared(given, for_merge(name, LAYOUT, range(4)))
    for tensor, values in whole.items():
        for start, stop in ((0, 2), (2, values.size - 1), (values.size - 1, values.size)):
            found = np.full(stop - start, np.nan, np.float32)
            rows = [LAYOUT.split(vector.flat)[tensor].reshape(-1)[start:stop] for vector in given]
            merge(rows, found, methods.Place(tensor, start, stop))
            np.testing.assert_array_equal(found, values.reshape(-1)[start:stop])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", OVER["tensors"])
def test_a_merge_over_tensors_gives_each_tensor_by_itself(name: str, seed: int) -> None:
    """It could not be streamed tensor by tensor."""
    given = vectors(seed)
    whole = LAYOUT.split(merged(name, given))
    for tensor, shape in zip(LAYOUT.names, LAYOUT.shapes, strict=True):
        layout = Layout((tensor,), (shape,))
        alone = [TaskVector(LAYOUT.split(vector.flat)[tensor].reshape(-1).copy(), layout, {}) for vector in given]
        np.testing.assert_array_equal(merged(name, alone), whole[tensor].reshape(-1))


@pytest.mark.parametrize("name", methods.merge_names())
def test_the_order_of_the_tasks_does_not_count(name: str) -> None:
    """Two benchmarks with the same tasks would not be one."""
    given, known = vectors(0), for_merge(name, LAYOUT, range(4))
    np.testing.assert_allclose(merged(name, given[::-1], known[::-1]), merged(name, given, known), rtol=1e-4, atol=1e-5)


def test_iso_c_is_the_plain_statement() -> None:
    """The row would be another method's: singular values made equal, other tensors averaged, nothing from nothing."""
    given = vectors(1)
    for vector in given:
        LAYOUT.split(vector.flat)["c.weight"][...] = 0
    found = LAYOUT.split(merged("iso_c", given))
    total = np.sum([LAYOUT.split(vector.flat)["a.weight"] for vector in given], axis=0, dtype=np.float64)
    eigenvalues, right = np.linalg.eigh(total.T @ total)
    singular = np.sqrt(eigenvalues)
    expected = total @ right @ np.diag(singular.mean() / singular) @ right.T
    np.testing.assert_allclose(found["a.weight"], expected, rtol=1e-3, atol=1e-4)
    means = np.mean([LAYOUT.split(vector.flat)["b.bias"] for vector in given], axis=0)
    np.testing.assert_allclose(found["b.bias"], means, rtol=1e-6)
    assert not found["c.weight"].any()


def test_emr_is_the_plain_statement() -> None:
    """The row would be another method's: elected sign, largest agreeing magnitude, one mask and one scale a task."""
    given = vectors(2)
    unified = merged("emr_unified", given)
    for place in range(LAYOUT.size):
        values = [float(vector.flat[place]) for vector in given]
        sign = np.sign(sum(values))
        agreeing = [abs(value) for value in values if value * sign > 0]
        assert unified[place] == np.float32(sign * max(agreeing, default=0))
    method = methods.get("emr")
    for vector in given:
        kept = np.where(vector.flat * unified > 0, unified, 0)
        scale = sum(np.abs(own).mean() for own in LAYOUT.split(vector.flat).values())
        scale /= sum(np.abs(own).mean() for own in LAYOUT.split(kept).values())
        found = method(task_vector=vector.flat, multi_task_vector=unified, layout=LAYOUT)
        np.testing.assert_allclose(found, kept * scale, rtol=1e-5)


def test_what_is_set_of_options_is_in_the_name_and_nowhere_else() -> None:
    """Two settings would share a recipe, or one would have two names."""
    assert methods.get("ties:keep=0.2") is methods.get("ties") or methods.get("ties:keep=0.2").name == "ties"
    tighter = methods.get("consensus_ties:keep=0.05")
    assert (tighter.name, tighter.merge) == ("consensus_ties:keep=0.05", "ties_sum:keep=0.05")
    assert methods.masking("ties_sum:keep=0.05").name == "tall_mask_ties:keep=0.05"
    given = vectors(3)
    assert (merged("ties_sum:keep=0.05", given) != 0).sum() < (merged("ties_sum", given) != 0).sum()
    assert methods.spec_of({"magnitude_masking": {"keep": 0.1}}) == "magnitude_masking", "the default"
