"""Seals: digests by which an artifact vouches for its own content.

An artifact has two digests (XXH3, 128 bits) in a safetensors file's metadata or as keys of a JSON object:

- `content` is of its values: names, dtypes, shapes and bytes of tensors, or a JSON object without the keys in `MAKING`.
- `seal` is of all the rest, `content` included.

They find accidental damage at the speed of memory, but nothing that somebody forged.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import xxhash
from numpy.typing import NDArray

CONTENT = "content"
SEAL = "seal"
MAKING = ("recipe", "made_from", "machine", "origins", CONTENT, SEAL)
"""The keys of a JSON artifact that are no part of its content."""


def canonical(value: object) -> str:
    """JSON with one spelling per value: sorted keys, no spaces, finite numbers only (else a ValueError)."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def content_of_tensors(tensors: Sequence[tuple[str, str, Sequence[int]]], data: NDArray) -> str:
    """The content of a safetensors file, from its data section, uint8 [bytes].

    ``tensors``: name, safetensors' dtype and shape of every tensor, in the order of their bytes.
    """
    digest = xxhash.xxh3_128(canonical([[name, dtype, list(shape)] for name, dtype, shape in tensors]).encode())
    digest.update(data.data)
    return digest.hexdigest()


def content_of_json(value: Mapping[str, Any]) -> str:
    """The content of a JSON artifact."""
    return _digest({key: inner for key, inner in value.items() if key not in MAKING})


def seal_of(facts: Mapping[str, Any]) -> str:
    """The seal of what an artifact says of itself, whatever seal stands in it."""
    return _digest({key: inner for key, inner in facts.items() if key != SEAL})


def _digest(value: object) -> str:
    return xxhash.xxh3_128(canonical(value).encode()).hexdigest()
