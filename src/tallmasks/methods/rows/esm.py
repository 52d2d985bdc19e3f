"""ESM: for each task the directions in which its update moves a layer's outputs most, made orthogonal."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from tallmasks.methods import ALPHAS_TO_3, Scaled, Statistics, TensorPiece, Vector, merge, merged_row
from tallmasks.methods.merges import GRAMS
from tallmasks.methods.rows.parts.block_numbers import NUMBER
from tallmasks.methods.rows.parts.singular_vectors import EPSILON, RoundingErrorOf, rounding_errors
from tallmasks.methods.rows.regmean import RIDGE
from tallmasks.methods.rows.tsv_m import tsv_m
from tallmasks.vectors.task_vectors import TaskVector

SPREAD, POWER, FACTOR = 0.15, 2, 2  # constants of the official code; the paper has no SPREAD and no FACTOR

Prepared = tuple[dict[str, Vector], RoundingErrorOf]


def layers(task_vectors: Sequence[TaskVector], grams: Sequence[Statistics]) -> Prepared:
    """All merged linear layers; each is multiplied by (its norm / the mean norm of this layer over the blocks)^2."""
    rounding_error_of, layout, merged = rounding_errors(task_vectors), task_vectors[0].layout, {}
    norms = defaultdict(list)
    for name in sorted(grams[0]):
        part, shape = layout.parts[name], layout.by_name[name]
        tensors = np.stack([vector.flat[part].reshape(shape) for vector in task_vectors])
        merged[name] = merged_layer(tensors, [one[name] for one in grams], rounding_error_of(name))
        norms[NUMBER.sub(".", name, count=1)].append(np.linalg.norm(merged[name]))
    for name, matrix in merged.items():
        if matrix.any():
            matrix *= (np.linalg.norm(matrix) / np.mean(norms[NUMBER.sub(".", name, count=1)])) ** POWER
    return merged, rounding_error_of


def merged_layer(tensors: Vector, grams: Sequence[Vector], rounding_error: float) -> Vector:
    """float32 [T, m, n], T of [n, n] -> [m, n]. If nothing exceeds the rounding error, returns the mean."""
    rank, norms = int(tensors.shape[1] * (1 / len(tensors))), np.linalg.norm(tensors, axis=(1, 2))
    left, right = [], []
    for matrix, gram, norm in zip(tensors, grams, norms, strict=True):
        directions, moved = output_directions(matrix, gram, rank, rounding_error)
        if moved.size:
            scale = moved**SPREAD / np.mean(moved**SPREAD)
            left.append(directions * scale)
            right.append((norm / norms.mean()) ** POWER * scale[:, None] * (directions.T @ matrix))
    if not left:
        return tensors.mean(axis=0)
    rows = np.vstack(right)
    lengths = np.linalg.norm(rows, axis=0)
    rows *= (lengths / lengths.mean()) ** POWER
    return FACTOR * scaled_polar(np.hstack(left)) @ scaled_polar(rows)


def output_directions(matrix: Vector, gram: Vector, rank: int, rounding_error: float) -> tuple[Vector, Vector]:
    """The `rank` eigenvectors [m, k] of D G D^T with the largest eigenvalues [k]; fewer if fewer exceed the rounding
    error."""
    basis, rest = np.linalg.qr(matrix.astype(np.float64))
    values, vectors = np.linalg.eigh(rest @ gram @ rest.T)
    lengths = np.linalg.norm(vectors.T @ rest, axis=1)
    least = max(rounding_error, EPSILON * max(matrix.shape) * lengths.max())
    kept = (lengths > least) & (values > RIDGE * np.trace(gram) * lengths**2)
    top = np.flatnonzero(kept)[::-1][:rank]
    return (basis @ vectors[:, top]).astype(np.float32), values[top].astype(np.float32)


def scaled_polar(matrix: Vector) -> Vector:
    """U V of the singular value decomposition U S V, times the mean of S, without directions below the rounding
    errors."""
    left, singular, right = np.linalg.svd(matrix, full_matrices=False)
    kept = singular > EPSILON * sum(np.sqrt(matrix.shape)) * singular[0]
    return left[:, kept] @ right[kept] * singular[kept].mean()


@merge("esm", over="tensors", prepare=layers, statistics=GRAMS)
def esm(tensors: Vector, piece: TensorPiece, prepared: Prepared) -> Vector:
    """float32 [T, m, n] -> [m, n]: for linear layers 2 P(U) P(V), scaled by the layer's norm; for others TSV-M.

    With the layer's inputs X, U_t [m, floor(m / T)] are the principal directions of the change X D_t^T of its outputs
    on the task's data: the top eigenvectors of D_t G_t D_t^T, where G_t = X^T X / n as in RegMean. Their eigenvalues l
    give the scale e = l^0.15 / mean(l^0.15). U is [U_t diag(e)], and V is [(|D_t| / mean |D|)^2 diag(e) U_t^T D_t] with
    each column times (its length / the mean length)^2. P(A) is the polar factor of A times the mean of its singular
    values. Finally each layer is multiplied by (its norm / the mean norm of this layer over all blocks)^2.

    Like the official code (kiddo127/ESM, ESM-ViT/src/utils/esm_utils.py), with these exceptions: directions in which
    the update or the inputs are only noise are left out; the output layer of attention is merged in the same way (in
    that code only for RoBERTa); alpha scales all tensors, not only these layers; the data are RegMean's examples, there
    32 images.
    """
    merged, rounding_error_of = prepared
    return merged[piece.name] if piece.name in merged else tsv_m(tensors, piece, rounding_error_of)


merged_row(
    "esm",
    order=25,
    title="ESM",
    paper="Li et al. 2026",
    usage=Scaled(ALPHAS_TO_3, unvalidated=1.0),
    group="later",
)
