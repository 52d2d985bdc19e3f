"""Methods have the same results on pieces of tensors as on whole models."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import reference
from tallmasks import methods
from tallmasks.errors import TallmasksError
from tallmasks.io.tensor_files import Layout
from tallmasks.methods import TensorPiece, registry
from tallmasks.methods.contract import MethodUpdates
from tallmasks.methods.merges import pieces_of_layout
from tallmasks.methods.streaming import PieceInputs, Stream, StreamedMerge
from tallmasks.parallel import parallel
from tallmasks.vectors import kernels
from tallmasks.vectors.differences import ReadPiece
from tallmasks.vectors.task_vectors import TaskVector

LAYOUT = Layout(("a", "b.bias", "c", "d.scalar"), ((96, 128), (7,), (40, 3), ()))
FROZEN = 4_000
LAMBDAS = [0.2, 0.4, 0.6]


@pytest.fixture(autouse=True)
def short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "SLICE", 1 << 9)


def flats(tasks: int = 3) -> list[np.ndarray]:
    """Task vectors with weights that no task moved, and with weights on which tasks cancel each other."""
    draw = np.random.default_rng(0)
    found = draw.normal(size=(tasks, LAYOUT.size)).astype(np.float32)
    found[:, draw.random(LAYOUT.size) < 0.2] = 0
    found[1, ::50] = -found[0, ::50]
    return list(found)


def pieces_of(flat: np.ndarray) -> ReadPiece:
    parts = LAYOUT.split(flat)
    return lambda name, start, stop: parts[name].reshape(-1)[start:stop]


def stream_of(vectors: list[np.ndarray], pretrained: np.ndarray) -> Stream:
    named = {f"task {number}": pieces_of(vector) for number, vector in enumerate(vectors)}
    return Stream(LAYOUT, pieces_of(pretrained), named, FROZEN)


def gathered(stream: Stream, whole_tensors: bool, work: Callable[[TensorPiece], np.ndarray]) -> np.ndarray:
    """The results of `work` on every piece, as one flat vector."""
    out = np.full(LAYOUT.size, np.nan, np.float32)
    parts = LAYOUT.split(out)

    def put(piece: TensorPiece) -> None:
        parts[piece.name].reshape(-1)[piece.start : piece.stop] = work(piece)

    parallel(put, pieces_of_layout(stream.layout, whole_tensors))
    return out


MERGES = map(methods.get_merge, methods.merge_names())
OF_VECTORS = [merge.name for merge in MERGES if not merge.statistics]


@pytest.mark.parametrize("name", OF_VECTORS)
def test_a_merge_in_a_stream_is_the_merge(name: str) -> None:
    """A model larger than RAM would be merged differently. Kept fractions include frozen values."""
    vectors, pretrained = flats(), np.zeros(LAYOUT.size, np.float32)
    expected = np.empty(LAYOUT.size, np.float32)
    methods.get_merge(name)([TaskVector(flat, LAYOUT, {}, FROZEN) for flat in vectors], expected)
    stream = stream_of(vectors, pretrained)
    merging = StreamedMerge(methods.get_merge(name), stream)
    found = gathered(stream, merging.over_tensors, lambda piece: merging(piece, stream.task_vectors_at(piece)))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("merge", ["sum", "ties_sum"])
def test_a_consensus_in_a_stream_is_the_plain_statement(merge: str) -> None:
    """The merged model would have other weights than the paper's."""
    vectors = flats()
    stream = stream_of(vectors, np.zeros(LAYOUT.size, np.float32))
    merging = StreamedMerge(methods.get_merge(merge), stream)
    merged = np.empty(LAYOUT.size, np.float32)
    methods.get_merge(merge)([TaskVector(flat, LAYOUT, {}, FROZEN) for flat in vectors], merged)
    masks = [reference.mask(flat, merged, value) for flat, value in zip(vectors, LAMBDAS, strict=True)]
    consensus = registry.consensus(merge)
    found = gathered(
        stream, False, lambda piece: MethodUpdates(consensus, PieceInputs(stream, piece, merging, LAMBDAS))()
    )
    np.testing.assert_array_equal(found, merged * (sum(masks) >= 2))


def test_a_piece_with_nan_is_refused_by_task_and_tensor() -> None:
    """A merged model would contain NaN, and the user would not know which input caused it."""
    vectors = flats()
    LAYOUT.split(vectors[1])["c"][0, 0] = np.nan
    stream = stream_of(vectors, vectors[0])
    with pytest.raises(TallmasksError, match="task 1: tensor c"):
        parallel(stream.task_vectors_at, pieces_of_layout(stream.layout))
