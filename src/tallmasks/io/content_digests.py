"""The digest of a file's content (128-bit XXH3), stored in safetensors metadata or as a JSON key. In artifacts it
excludes the recipe, which has its own digest in the file name. It detects accidental damage, not tampering."""

from __future__ import annotations

import json
from collections.abc import Container, Mapping
from typing import Any

import xxhash
from numpy.typing import NDArray

CONTENT = "content"
NOT_CONTENT = ("recipe", "machine", CONTENT)
"""Keys that are not part of the content."""


def canonical(value: object) -> str:
    """JSON with one spelling per value: sorted keys, no spaces. Raises ValueError for NaN and infinity."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def content_of_tensors(
    infos: Mapping[str, tuple[str, tuple[int, ...]]], data: NDArray, metadata: Mapping[str, str]
) -> str:
    """The content digest of a safetensors file. ``infos``: safetensors dtype and shape of every tensor, in the order of
    their bytes; ``data``: the data section, uint8 [bytes]."""
    described = [[name, dtype, list(shape)] for name, (dtype, shape) in infos.items()]
    digest = xxhash.xxh3_128(canonical(described).encode())
    digest.update(data.data)
    counted = {key: value for key, value in metadata.items() if key not in NOT_CONTENT}
    if counted:
        digest.update(canonical(counted).encode())
    return digest.hexdigest()


def content_of_json(value: Mapping[str, Any], without: Container[str] = NOT_CONTENT) -> str:
    content = {key: inner for key, inner in value.items() if key not in without}
    return xxhash.xxh3_128(canonical(content).encode()).hexdigest()
