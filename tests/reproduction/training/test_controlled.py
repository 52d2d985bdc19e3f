"""The controlled experiment's partition of the weights."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from reproduction.training.controlled import Controlled, owners, part_mask


@given(size=st.integers(8, 3000), parts=st.integers(1, 8), seed=st.integers(0, 2**32 - 1))
def test_parts_are_disjoint_equally_large_and_complete(size: int, parts: int, seed: int) -> None:
    """Task vectors would interfere, or one task would train more weights than another."""
    masks = [part_mask(size, {"seed": seed, "parts": parts, "part": part}) for part in range(parts)]
    assert (np.sum(masks, axis=0) == 1).all()
    sizes = [int(mask.sum()) for mask in masks]
    assert max(sizes) - min(sizes) <= 1


def test_the_partition_never_changes() -> None:
    """A checkpoint's recipe would mean other weights on another machine or with another version of NumPy."""
    assert owners(12, 3, 0).tolist() == [0, 2, 1, 1, 2, 2, 1, 1, 0, 0, 0, 2]
    assert (owners(999, 4, 0) != owners(999, 4, 1)).any()


def test_parts_are_random() -> None:
    """Each task would train whole layers, which is another experiment."""
    found = owners(100_000, 8, 0)
    for half in np.split(found, 2):
        assert np.abs(np.bincount(half) / 50_000 - 1 / 8).max() < 0.01


def test_each_task_has_its_part() -> None:
    """A task would train another task's weights."""
    who = Controlled(0, ("cars", "mnist"))
    assert who.partition("mnist") == {"seed": 0, "parts": 2, "part": 1}
    assert str(who) == "0-controlled2"
