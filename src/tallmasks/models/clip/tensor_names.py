"""What the names in a family's pretrained file say, for steps that do without torch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tallmasks.store.errors import TallmasksError


@dataclass(frozen=True)
class Naming:
    """A family's tensor names.

    Attributes:
        trainable: the prefix of the tensors that fine-tuning changes.
        uncounted: prefixes of the tensors that the paper's storage formula leaves out.
    """

    trainable: str
    uncounted: tuple[str, ...]


FAMILIES = {
    "clip": Naming(trainable="visual.", uncounted=("transformer.", "text.transformer.", "tokenizer.", "buffers."))
}


def naming(family: str) -> Naming:
    """The naming of a family. Raises TallmasksError if there is no such family."""
    if family not in FAMILIES:
        raise TallmasksError(f"no model family is named {family!r}; there are: {', '.join(FAMILIES)}")
    return FAMILIES[family]


def trainable_names(family: str, names: Iterable[str]) -> tuple[str, ...]:
    """Those of a pretrained file's tensor names that a checkpoint of the family holds, sorted."""
    return tuple(sorted(name for name in names if name.startswith(naming(family).trainable)))


def parameter_counts(family: str, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, int]:
    """P' and F of the paper's storage formula, from the shapes in a pretrained file."""
    names = naming(family)
    sizes = {name: math.prod(shape) for name, shape in shapes.items() if not name.startswith(names.uncounted)}
    trainable = sum(size for name, size in sizes.items() if name.startswith(names.trainable))
    return trainable, sum(sizes.values()) - trainable
