"""The digest of an artifact's content: XXH3, 128 bits, in a safetensors file's metadata or as a key of a JSON object.

It is of everything in the file but the recipe, whose own digest is in the file's name.  It finds accidental damage at
the speed of memory, but nothing that somebody forged.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import xxhash
from numpy.typing import NDArray

CONTENT = "content"
NOT_CONTENT = ("recipe", "made_from", "machine", CONTENT, "seal")
"""Keys that are no part of the content; earlier releases wrote ``made_from``, ``machine`` and ``seal``."""


def canonical(value: object) -> str:
    """JSON with one spelling per value: sorted keys, no spaces, finite numbers only (else a ValueError)."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def content_of_tensors(
    tensors: Sequence[tuple[str, str, Sequence[int]]], data: NDArray, metadata: Mapping[str, str]
) -> str:
    """The content of a safetensors file.

    Args:
        tensors: name, safetensors' dtype and shape of every tensor, in the order of their bytes.
        data: its data section, uint8 [bytes].
        metadata: of the file.
    """
    digest = xxhash.xxh3_128(canonical([[name, dtype, list(shape)] for name, dtype, shape in tensors]).encode())
    digest.update(data.data)
    facts = {key: value for key, value in metadata.items() if key not in NOT_CONTENT}
    if facts and "seal" not in metadata:  # with which earlier releases covered the metadata
        digest.update(canonical(facts).encode())
    return digest.hexdigest()


def content_of_json(value: Mapping[str, Any]) -> str:
    """The content of a JSON artifact."""
    without = (*NOT_CONTENT, *(["origins"] if "seal" in value else []))
    content = {key: inner for key, inner in value.items() if key not in without}
    return xxhash.xxh3_128(canonical(content).encode()).hexdigest()
