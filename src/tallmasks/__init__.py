"""TALL-masks and Consensus Merging on state dicts in memory, and on checkpoints on disk.

import tallmasks

vectors = {name: tallmasks.task_vector(base, model) for name, model in finetuned.items()}
merged = tallmasks.merge(vectors, "sum")
masks = {name: tallmasks.tall_mask(vector, merged, 0.4) for name, vector in vectors.items()}
cars = tallmasks.apply(base, tallmasks.apply_mask(merged, masks["cars"]))
shared = tallmasks.consensus(merged, tallmasks.agreement(masks), k=2)
one_for_all = tallmasks.apply(base, shared, scaling_coefficient=0.3)

models = {"cars": "./cars", "dtd": "./dtd"}
tallmasks.merge_checkpoints("./base", models, "./merged", method="ties", weight={"cars": 0.7})
tallmasks.compress("./base", models, "./bundle")
bundle = tallmasks.load_bundle("./bundle")
bundle.apply_(module, "cars")
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "1.0.0"

_HOME = "tallmasks.methods.state_dicts"
_ELSEWHERE = {
    "TallmasksError": "tallmasks.errors",
    "compress": "tallmasks.operations.compress",
    "load_bundle": "tallmasks.bundles.bundle",
    "merge_checkpoints": "tallmasks.operations.merge",
    "method_names": "tallmasks.operations.merge",
}
__all__ = [
    "TallmasksError",
    "__version__",
    "agreement",
    "apply",
    "apply_mask",
    "compress",
    "consensus",
    "load_bundle",
    "merge",
    "merge_checkpoints",
    "merges",
    "method_names",
    "tall_mask",
    "task_vector",
]

if TYPE_CHECKING:
    from tallmasks.bundles.bundle import load_bundle
    from tallmasks.errors import TallmasksError
    from tallmasks.methods.state_dicts import (
        agreement,
        apply,
        apply_mask,
        consensus,
        merge,
        merges,
        tall_mask,
        task_vector,
    )
    from tallmasks.operations.compress import compress
    from tallmasks.operations.merge import merge_checkpoints, method_names


def __getattr__(name: str) -> Any:
    """Import a public name at its first use, because NumPy and numba take a second to import."""
    if name in __all__:
        return getattr(importlib.import_module(_ELSEWHERE.get(name, _HOME)), name)
    raise AttributeError(f"module 'tallmasks' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
