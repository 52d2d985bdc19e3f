"""Checks `examples` in a model's entry in params.yaml: seed and number of examples per split."""

from __future__ import annotations

from reproduction.tasks.catalogues import Params
from tallmasks.errors import TallmasksError

KEYS = ("seed", "train", "validation", "test")


def check_examples(params: Params, catalogue: str) -> None:
    """Raise TallmasksError if a model of the catalogue lacks a key of `examples`."""
    for name, model in params.get("models", {}).items():
        if model["tasks"] == catalogue:
            examples_of(model, f"models.{name}")


def examples_of(model: Params, name: str) -> Params:
    """A model's `examples`.  Raises TallmasksError if a key is missing."""
    section: Params = model.get("examples") or {}
    if missing := [key for key in KEYS if section.get(key) is None]:
        raise TallmasksError(f"params.yaml: {name} needs `examples`: {', '.join(KEYS)}; add {', '.join(missing)}")
    return section
