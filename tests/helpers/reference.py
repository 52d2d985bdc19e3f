"""The method as its equations state it, in plain NumPy: what the kernels must equal bit for bit.

Written to be read beside Wang et al. 2024 and Yadav et al. 2023, with no thought for speed. Task vectors are
the rows of a float32 array [T, P'].
"""

import numpy as np

PAPER_ROWS = (
    "zeroshot", "weight_averaging", "task_arithmetic", "ties", "consensus_task_arithmetic",
    "consensus_task_arithmetic_k1", "consensus_ties", "consensus_ties_k1", "fine_tuned", "magnitude_pruning",
    "magnitude_masking", "tall_mask_task_arithmetic", "tall_mask_ties",
)  # fmt: skip
"""The rows of the paper's tables, and those beside them, that ship."""


def sum_vectors(vectors):
    """tau_MTL of task arithmetic: the sum, task by task in float32."""
    total = vectors[0].copy()
    for vector in vectors[1:]:
        total = total + vector
    return total


def trim_threshold(vector, fraction, frozen=0):
    """v, the n-th smallest magnitude with n = P - int(fraction P) of the P = P' + F values, the F frozen ones being 0;
    everything stays where n is not positive."""
    every = np.sort(np.abs(np.concatenate([vector, np.zeros(frozen, np.float32)])))
    n = every.size - int(fraction * every.size)
    return every[n - 1] if n > 0 else np.float32(0)


def trim(vector, threshold):
    """Keep |tau| >= v."""
    return np.where(np.abs(vector) >= threshold, vector, np.float32(0))


def ties(vectors, thresholds, mean):
    """Trim, elect, disjoint merge."""
    trimmed = np.stack([trim(vector, limit) for vector, limit in zip(vectors, thresholds, strict=True)])
    elected = np.sign(sum_vectors(trimmed))
    majority = np.sign(elected.astype(np.int64).sum())
    elected = np.where(elected == 0, majority, elected)
    agreeing = (np.sign(trimmed) == elected) & (trimmed != 0)
    merged = np.zeros_like(vectors[0])
    for entries, agrees in zip(trimmed, agreeing, strict=True):
        merged = merged + np.where(agrees, entries, np.float32(0))
    if mean:
        merged = merged / np.maximum(agreeing.sum(0), 1).astype(np.float32)
    return merged


def mask(vector, merged, mask_lambda):
    """m_t = 1{|tau_t| > lambda |tau_MTL - tau_t|}."""
    return np.abs(vector) > np.float32(mask_lambda) * np.abs(merged - vector)


def agreement(masks):
    """n(p), the number of masks that hold each weight."""
    return np.stack(masks).astype(np.uint8).sum(0, dtype=np.uint8)


def iso_c(tensors: np.ndarray) -> np.ndarray:
    """[T, ...] -> [...]: the sum of matrices with all its singular values at their mean; of other tensors the mean."""
    total = np.sum(tensors, axis=0, dtype=np.float64)
    if total.ndim != 2:
        return total / len(tensors)
    left, singular, right = np.linalg.svd(total, full_matrices=False)
    return left @ np.diag(np.full_like(singular, singular.mean())) @ right


def emr(vectors: np.ndarray, bounds: list[tuple[int, int]]) -> list[np.ndarray]:
    """Each task's update from [T, P], the tensors lying between `bounds`."""
    sign = np.sign(np.sum(vectors, axis=0, dtype=np.float64))
    unified = sign * np.max(np.where(vectors * sign > 0, np.abs(vectors), 0), axis=0)
    found = []
    for vector in vectors:
        kept = np.where(vector * unified > 0, unified, 0)
        own, shared = (sum(np.abs(one[a:b]).mean() for a, b in bounds) for one in (vector, kept))
        found.append(kept * own / shared)
    return found


def unpacked(bundle, task, mask_lambda):
    """A mask of an open mask bundle, bool [P']."""
    packed = bundle.packed_mask(task, mask_lambda)
    return np.unpackbits(packed, count=bundle.layout.size, bitorder="little").view(bool)
