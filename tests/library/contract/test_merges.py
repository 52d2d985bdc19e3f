"""Every registered merge, held to the contract."""

from itertools import pairwise

import numpy as np
import pytest

import reference
from tallmasks import methods
from tallmasks.io.tensor_files import Layout
from tallmasks.methods.weighting import WeightedMerge, Weighting
from tallmasks.vectors.task_vectors import TaskVector
from task_statistics import for_merge

LAYOUT = Layout(("a.weight", "b.bias", "c.weight", "d.scale"), ((6, 4), (5,), (3, 3), ()))
MERGES = {name: methods.get_merge(name) for name in (*methods.merge_names(), "model_stock:filter_wise=true")}
OVER = {name: merge.over for name, merge in MERGES.items()}


def vectors(seed: int, tasks: int = 4) -> list[TaskVector]:
    draw = np.random.default_rng(seed)
    flats = draw.normal(size=(tasks, LAYOUT.size)).astype(np.float32)
    flats[:, draw.random(LAYOUT.size) < 0.2] = 0  # weights that no task moved
    return [TaskVector(flat, LAYOUT, {0.2: np.float32(0.5)}) for flat in flats]


def merged(name: str, given: list[TaskVector], statistics: list[dict[str, np.ndarray]] | None = None) -> np.ndarray:
    out = np.full(given[0].flat.size, np.nan, np.float32)
    methods.get_merge(name)(given, out, for_merge(name, LAYOUT, range(4)) if statistics is None else statistics)
    return out


@pytest.mark.parametrize("name", OVER)
def test_a_merge_gives_each_slice_or_tensor_by_itself(name: str) -> None:
    """A model larger than the memory could not be merged piece by piece."""
    given = vectors(0)
    whole = LAYOUT.split(merged(name, given))
    apply = methods.get_merge(name).bind(given, for_merge(name, LAYOUT, range(4)))
    for tensor, values in whole.items():
        ends = {0, values.size} if OVER[name] == "tensors" else {0, values.size // 2, values.size - 1, values.size}
        for start, stop in pairwise(sorted(ends)):
            rows = [LAYOUT.split(vector.flat)[tensor].reshape(-1)[start:stop] for vector in given]
            kept = [row.copy() for row in rows]
            piece = apply(rows, methods.TensorPiece(tensor, start, stop))
            assert piece.dtype == np.float32
            np.testing.assert_array_equal(piece, values.reshape(-1)[start:stop])
            np.testing.assert_array_equal(rows, kept, "a merge must not write to what it merges")


@pytest.mark.parametrize("name", [name for name in OVER if not MERGES[name].learn])
def test_the_order_of_the_tasks_does_not_count(name: str) -> None:
    """Two benchmarks with the same tasks would not be one."""
    given, of_data = vectors(0), for_merge(name, LAYOUT, range(4))
    other = merged(name, given[::-1], of_data[::-1])
    np.testing.assert_allclose(other, merged(name, given, of_data), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in OVER if MERGES[name].combine])
def test_weights_of_one_change_nothing(name: str) -> None:
    """A merge that changes a task alone, other than making it sparse, would be another one once a task has a weight."""
    given = vectors(0)
    weighted = WeightedMerge(MERGES[name], given, ["a", "b", "c", "d"], Weighting({"a": 1.0}))
    for tensor, values in LAYOUT.split(merged(name, given)).items():
        rows = [LAYOUT.split(vector.flat)[tensor].reshape(-1) for vector in given]
        found = weighted(rows, methods.TensorPiece(tensor, 0, values.size))
        np.testing.assert_array_equal(found, values.reshape(-1))


def test_iso_c_and_emr_are_the_plain_statements() -> None:
    """The rows would be other methods'; and nothing may come from a matrix that no task moved."""
    given = vectors(1)
    for vector in given:
        LAYOUT.split(vector.flat)["c.weight"][...] = 0
    for name, found in LAYOUT.split(merged("iso_c", given)).items():
        stacked = np.stack([LAYOUT.split(vector.flat)[name] for vector in given])
        np.testing.assert_allclose(found, reference.iso_c(stacked), rtol=1e-3, atol=1e-4)
    given = vectors(2)
    updates = reference.emr(np.stack([vector.flat for vector in given]), list(pairwise([*LAYOUT.offsets, LAYOUT.size])))
    unified = merged("emr_unified", given)
    for vector, expected in zip(given, updates, strict=True):
        found = methods.get("emr")(
            task_vector=vector.flat, multi_task_vector=unified, stored_vector=unified, layout=LAYOUT
        )
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_what_is_set_of_options_is_in_the_name_and_nowhere_else() -> None:
    """Two settings would share a recipe, or one would have two names."""
    assert methods.get("ties:keep=0.2") is methods.get("ties") or methods.get("ties:keep=0.2").name == "ties"
    tighter = methods.get("consensus_ties:keep=0.05")
    assert (tighter.name, tighter.merge) == ("consensus_ties:keep=0.05", "ties_sum:keep=0.05")
    assert methods.masking("ties_sum:keep=0.05").name == "tall_mask_ties:keep=0.05"
    given = vectors(3)
    assert (merged("ties_sum:keep=0.05", given) != 0).sum() < (merged("ties_sum", given) != 0).sum()
    assert methods.spec_of({"magnitude_masking": {"keep": 0.1}}) == "magnitude_masking", "the default"
