"""Codings of compressed tensors: the values, pieces and sizes that come back."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from strategies import no_deadline
from tallmasks.bundles.codings import CODINGS, Dense, Levels, LowRank, Signs, Ternary, coding_of, in_few_bits
from tallmasks.io.dtypes import code_of
from task_bundles import coded_content

SHAPES = st.lists(st.integers(0, 9), max_size=3).map(tuple)


@no_deadline
@given(
    st.sampled_from(sorted(CODINGS)), SHAPES, st.integers(0, 99), st.tuples(st.integers(0, 800), st.integers(0, 800))
)
def test_every_piece_is_that_of_the_method(kind, shape, seed, ends):
    """A bundle would give a task another model than the one in the table."""
    if kind == "low_rank":
        shape = (*shape, 3, 4)[:2]
        coding = LowRank(shape, min(shape) // 2)
    elif kind == "levels":
        coding = Levels(shape, 1 + seed % 8, next(n for n in (7, 4, 3, 2, 1) if math.prod(shape) % n == 0))
    else:
        coding = CODINGS[kind](shape)
    found = coded_content(coding, np.random.default_rng(seed))
    parts = coding.pack(found)
    assert {name: (code_of(part.dtype), part.shape) for name, part in parts.items()} == coding.specs
    assert coding_of(coding.text, shape) == coding
    size = math.prod(shape)
    start, stop = sorted(min(end, size) for end in ends)
    expected = np.asarray(coding.values(found)).reshape(-1)[start:stop]
    piece = coding.piece(parts, start, stop)
    assert piece.dtype == np.float32
    whole = coding.piece(parts, 0, size)
    np.testing.assert_array_equal(piece, whole[start:stop])
    by_torch = coding.update({name: torch.from_numpy(part) for name, part in parts.items()})
    np.testing.assert_array_equal(by_torch.numpy().view(np.uint32), whole.view(np.uint32))
    if kind == "low_rank":
        left, right = found
        bound = (abs(left) @ abs(right)).reshape(-1)[start:stop] * (coding.rank + 4) * 2.0**-24
        assert (abs(piece - expected) <= bound).all()
    else:
        np.testing.assert_array_equal(piece, expected.astype(np.float32))


NEGATIVE = np.array([[True, False, False], [False, True, False], [False, False, True]])
SIGNS = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]])
LEFT, RIGHT = np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([[2.0, 0.0, 0.0], [0.0, 3.0, 4.0]])
BYTES = [
    (Dense((3, 2)), SIGNS, {"": SIGNS}),
    (Signs((3, 3)), (NEGATIVE, 0.5), {".signs": [0b10001, 0b1], ".scale": [0.5]}),
    (Ternary((3, 2)), (SIGNS, 0.25), {".ternary": [2 + 3 + 0 + 27 + 81, 2 + 3 + 9 + 27 + 81], ".scale": [0.25]}),
    (Levels((2, 5), 2, 5), (np.arange(10).reshape(2, 5) % 4, np.arange(4), np.ones(2)), {
        ".index": [[0b10101010, 0b10], [0b11001100, 0b00]], ".levels": [0, 1, 2, 3], ".scale": [1, 1],
    }),
    (LowRank((2, 3), 2), (LEFT, RIGHT), {
        ".left": [[1, 0], [0, 1]], ".singular": [5, 2], ".right": [[0, 0.6, 0.8], [1, 0, 0]],
    }),
]  # fmt: skip


@pytest.mark.parametrize(("coding", "content", "stored"), BYTES)
def test_the_stored_bytes_are_those_of_the_documentation(coding, content, stored):
    """A later version would read another model out of a bundle on somebody's disk."""
    packed = coding.pack(content)
    assert packed.keys() == stored.keys()
    for ending, values in stored.items():
        np.testing.assert_array_equal(packed[ending], np.asarray(values, packed[ending].dtype))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "signs:1",
        "levels",
        "levels:3",
        "levels:9:5",
        "levels:0:5",
        "levels:3:4",
        "levels:3:0",
        "levels:3:5:1",
        "low_rank",
        *(f"low_rank:{rank}" for rank in ("4", "-1", "01", "9" * 12)),
        "sgins",
        "dense\n",
    ],
)
def test_what_is_no_coding_is_none(text):
    """A name from somebody's file would reach something else than the codings."""
    assert coding_of(text, (3, 5)) is None
    assert coding_of("dense", ()) == Dense(()) and coding_of("low_rank:3", (3, 5)) == LowRank((3, 5), 3)
    assert coding_of("low_rank:0", (3,)) is None
    assert coding_of("levels:3:5", (3, 5)) == Levels((3, 5), 3, 5)


@pytest.mark.parametrize(
    ("shape", "group"),
    [((64, 32), 32), ((1, 197, 768), 768), ((64, 3, 7, 7), 49), ((4, 64, 32), 32), ((1500, 24), 24), ((40, 8), 320)],
)
def test_each_row_has_a_scale(shape, group):
    """A few trained rows of an embedding, or the matrices of one expert, would get the scale of all others."""
    assert in_few_bits(shape, 2) == Levels(shape, 2, group)


@pytest.mark.parametrize("shape", [(), (5,), (1, 5), (5, 1, 1)])
def test_vectors_are_stored_whole(shape):
    """A vector, whose values the scale of a row would not fit, would be rounded."""
    assert in_few_bits(shape, 2) == Dense(shape)
