"""How a bundle stores one tensor of a task's own update, where the method has no vector that tasks share: a file each.

A coding is of one shape.  Its ``kind`` is its name in bundle.json; a new one is a file here and a line in `CODINGS`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from tallmasks.bundles.codings.low_rank import LowRank
from tallmasks.bundles.codings.signs import Signs
from tallmasks.bundles.codings.ternary import Ternary
from tallmasks.bundles.codings.whole import Whole
from tallmasks.store.tensor_files import TensorSpec

__all__ = ["CODINGS", "Coding", "LowRank", "Signs", "Ternary", "Whole", "coding_of"]

Parts = Mapping[str, NDArray]
"""What is stored of a tensor, by what stands behind its name in the file."""


class Coding(Protocol):
    """How one tensor is stored; `Whole` says what each of these is."""

    kind: ClassVar[str]

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def text(self) -> str: ...
    @property
    def specs(self) -> dict[str, TensorSpec]: ...
    def values(self, content: Any) -> Any: ...
    def pack(self, content: Any) -> dict[str, NDArray]: ...
    def piece(self, parts: Parts, start: int, stop: int) -> NDArray[np.float32]: ...
    def problem(self, parts: Parts) -> str | None: ...


CODINGS: dict[str, Any] = {coding.kind: coding for coding in (Whole, Signs, Ternary, LowRank)}
"""By kind."""


def coding_of(text: str, shape: tuple[int, ...]) -> Coding | None:
    """The coding that its ``text`` means for a tensor of a shape; None where there is none."""
    found = re.fullmatch(r"([a-z_]{1,40})(?::(0|[1-9]\d{0,8}))?", text, re.ASCII)
    if found is None or found[1] not in CODINGS:
        return None
    try:
        return CODINGS[found[1]](shape, *([int(found[2])] if found[2] else []))
    except (TypeError, ValueError):  # a number too many or too few, or one that the shape has no room for
        return None
