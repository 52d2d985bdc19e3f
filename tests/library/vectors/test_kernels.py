"""The array kernels agree bit for bit with the simple implementation in reference.py."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reference
from strategies import GRIDS, PIECES, no_deadline, task_vectors
from tallmasks.vectors import kernels

FRACTIONS = st.sampled_from([0.0, 0.1, 0.2, 0.5, 0.9, 0.999])


def same_bits(found, expected):
    """Equal as bit patterns, so that 0.0 and -0.0 differ."""
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found.view(np.uint8), np.ascontiguousarray(expected).view(np.uint8))


def merged_by_ties(vectors, fraction, mean, piece=kernels.SLICE):
    """The kernel's TIES and the reference's, from the reference's thresholds."""
    limits = [reference.trim_threshold(vector, fraction) for vector in vectors]
    out = np.empty_like(vectors[0])
    majority = kernels.majority_sign(vectors, limits, piece)
    for start in range(0, out.size, piece):
        some = slice(start, start + piece)
        kernels.merge_ties([vector[some] for vector in vectors], limits, majority, out[some], mean=mean)
    return out, reference.ties(vectors, limits, mean)


def packed_levels(vectors, merged, grid, piece=kernels.SLICE):
    """Bit planes of every task."""
    planes = [np.full((len(grid).bit_length(), -(-merged.size // 8)), 255, np.uint8) for _ in vectors]
    kernels.pack_levels(vectors, merged, grid, planes, piece)
    return planes


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("kind", ["spread", "equal", "denormal"])
def test_nth_magnitude_of_long_vectors(kind, threads, monkeypatch):
    """The threshold would be wrong where most values share a magnitude or a histogram bin."""
    monkeypatch.setattr("tallmasks.vectors.kernels.threads", lambda: threads)
    monkeypatch.setattr(kernels, "PARTITIONED", 1 << 15)
    vectors = np.random.default_rng(0).standard_normal((2, 100_000), dtype=np.float32)
    if kind == "spread":
        vectors = np.ldexp(vectors, np.arange(vectors.shape[1]) % 200 - 100)
    elif kind == "equal":
        vectors[0, :93_000] = -0.5
    else:
        vectors *= np.float32(1e-42)
    for ranks in ([1, 50_000, 100_000], [99_999, 99_999], [100_000]):
        for size in (100_000, 1000):  # by two histograms, and partitioned
            found = kernels.nth_magnitudes(lambda part: vectors[:, part], size, np.minimum(ranks, size))
            same_bits(found, np.sort(np.abs(vectors[:, :size]))[:, np.minimum(ranks, size) - 1])


@no_deadline
@given(task_vectors(), FRACTIONS, st.booleans(), PIECES)
def test_ties_is_trim_elect_merge(vectors, fraction, mean, piece):
    """TIES rows, and all masks on TIES, would be wrong."""
    same_bits(*merged_by_ties(vectors, fraction, mean, piece))


@no_deadline
@given(task_vectors(), GRIDS, PIECES)
def test_levels_hold_every_mask_of_the_grid(vectors, grid, piece):
    """A mask from the one-pass levels would differ from the mask of its own lambda."""
    merged = reference.sum_vectors(vectors)
    for vector, planes in zip(vectors, packed_levels(vectors, merged, grid, piece), strict=True):
        expected = [reference.mask(vector, merged, mask_lambda) for mask_lambda in grid]
        np.testing.assert_array_equal(kernels.unpack_levels(planes, merged.size), np.sum(expected, 0))
        for index, held in enumerate(expected):
            bits = np.packbits(held, bitorder="little")
            same_bits(kernels.packed_mask(planes, index), bits)
            same_bits(kernels.pack_masks([vector], merged, [grid[index]])[0], bits)


@pytest.mark.parametrize("length", [1, 3, 4, 8, 255])
def test_levels_of_grids_of_any_length(length):
    """A longer grid would lose its highest masks because of too few bits."""
    vectors = np.random.default_rng(length).standard_normal((2, 501), dtype=np.float32)
    merged, grid = reference.sum_vectors(vectors), np.linspace(0, 3, length).tolist()
    planes = packed_levels(vectors, merged, grid)
    for index in {*range(0, length, 1 + length // 16), length - 1}:
        expected = np.packbits(reference.mask(vectors[1], merged, grid[index]), bitorder="little")
        same_bits(kernels.packed_mask(planes[1], index), expected)


@no_deadline
@given(task_vectors(max_tasks=9), PIECES)
def test_agreement_counts_the_masks(vectors, piece):
    """The consensus would keep or drop the wrong weights, or a large count would overflow into its neighbour."""
    masks = list(vectors > 0)
    out = np.full(vectors.shape[1], 255, np.uint8)
    planes = [np.packbits(mask, bitorder="little")[None] for mask in masks]
    kernels.count_agreement(planes, [0] * len(planes), out, piece)
    same_bits(out, reference.agreement(masks))
    kernels.count_agreement([np.full_like(planes[0], 255)] * 255, [0] * 255, out, piece)
    assert (out == 255).all()
