"""Random dropping of weights. The draw of a weight is the same in every run and for every split of its tensor."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tallmasks.vectors.lazy_vectors import LazyVector
from tallmasks.vectors.task_vectors import TaskVector

HEAD, PIECE, EACH_STEP = 64, 1 << 20, 8


def task_keys(task_vectors: Sequence[TaskVector], seed: int) -> list[bytes]:
    """A key for each task's draws, which does not depend on the names or the order of the tasks.

    A digest of the seed and, for every tensor, of its first 64 values; if those are 0, of all its pieces that are not.
    """
    keys = []
    for vector in task_vectors:
        digest = blake2b(str(seed).encode(), digest_size=16)
        for name, part in vector.layout.parts.items():
            head = vector.flat[part.start : min(part.start + HEAD, vector.flat.size)]
            starts = range(part.start, part.stop, PIECE)
            pieces = [head] if head.any() else (vector.flat[start : min(start + PIECE, part.stop)] for start in starts)
            for piece in pieces:
                if piece.any():
                    digest.update(name.encode() + piece.tobytes())
        keys.append(digest.digest())
    return keys


def draws(key: bytes, name: str, start: int, stop: int) -> NDArray[np.uint32]:
    """A random number for each of the values start..stop of a flattened tensor, uint32 [n].

    The counter-based generator Philox is keyed by task and tensor and advanced to ``start``. NumPy guarantees that its
    stream never changes (NEP 19).
    """
    named = blake2b(name.encode(), digest_size=16, key=key).digest()
    generator = np.random.Philox(key=int.from_bytes(named, "little"))
    step, skip = divmod(start, EACH_STEP)
    generator.advance(step)
    numbers = generator.random_raw((skip + stop - start + 1) // 2)
    return numbers.astype("<u8", copy=False).view("<u4")[skip : skip + stop - start]


def dropped(vector: NDArray[np.float32], key: bytes, name: str, start: int, drop: float) -> NDArray[np.float32]:
    """Each value of a slice, float32 [n], set to 0 with probability `drop`, otherwise divided by 1 - drop."""
    kept = draws(key, name, start, start + vector.size) >= np.uint32(drop * 2**32)
    return np.where(kept, vector / np.float32(1 - drop), np.float32(0))


def dropped_vector(vector: TaskVector, key: bytes, drop: float) -> TaskVector:
    """A task vector with values dropped on access, without a copy in memory."""
    offsets = dict(zip(vector.layout.names, vector.layout.offsets, strict=True))

    def piece(name: str, start: int, stop: int) -> NDArray[np.float32]:
        return dropped(vector.flat[offsets[name] + start : offsets[name] + stop], key, name, start, drop)

    return TaskVector(cast(Any, LazyVector(vector.layout, piece)), vector.layout, {}, vector.frozen)
