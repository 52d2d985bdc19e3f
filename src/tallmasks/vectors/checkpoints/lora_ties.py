"""LoRAs on tied tensors, which peft trains and stores under one name or under both."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tallmasks.errors import TallmasksError
from tallmasks.io.tensor_files import name_some
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.library_models import LibraryModel, library_advice

MERGE_IT = "Merge it with peft's merge_and_unload, save the model, and give that folder"
UNTIE = "Save the base with a separate head (tie_word_embeddings: false), and give that as the base"


def refuse_unknown_ties(
    changed: Mapping[str, str | None], model: LibraryModel | None, adapter: Checkpoint, base: Checkpoint
) -> None:
    """Raise TallmasksError if an adapter changes a matrix that may be tied, and transformers cannot tell.

    ``changed``: the base's names of changed embeddings (with None), and of replaced tensors with their names in the
    adapter. Replaced tensors with a new shape are skipped.
    """
    matrices = [name for name, info in base.tensors.items() if name in changed and len(info.shape) == 2]
    inner = model.names(matrices) if model else {}
    unknown = []
    for name in matrices:
        stored = changed[name]
        fits = stored is None or adapter.info(stored).shape == base.info(name).shape
        if fits and (model is None or inner.get(name) not in model.tensors):
            unknown.append(name)
    if unknown:
        raise TallmasksError(
            f"{adapter.title}: it changes {name_some(unknown)}, which {base.title} may tie to another tensor; expected"
            " a base with the config.json of a transformers model, which defines the ties"
            f"{library_advice(base)}. {MERGE_IT}"
        )


def tied_tensors(base: Checkpoint, model: LibraryModel | None) -> set[str]:
    """The base's tensors that are tied to another, in its files or in transformers."""
    tied = set(base.aliases.values())
    if model is not None:
        groups = {*model.tied, *model.tied.values()}
        tied |= {name for name, own in model.names(base.tensors).items() if own in groups}
    return tied


def without_second_names(
    factors: dict[str, dict[str, str]],
    others: dict[str, str],
    model: LibraryModel,
    adapter: Checkpoint,
    base: Checkpoint,
) -> set[str]:
    """Remove the second of two tied tensors from ``factors`` and ``others``, as with peft's `ensure_weight_tying`.
    Return the names that stay. Raises TallmasksError if the two were changed differently."""
    targets = [*(f"{module}.weight" for module in factors), *others]
    groups: dict[str, list[str]] = {}
    for name, own in model.names(targets).items():
        groups.setdefault(model.tie_group(own), []).append(name)
    both = [sorted(names, key=lambda name: name not in base.tensors) for names in groups.values() if len(names) > 1]
    for kept, *rest in both:
        for name in rest:
            if not _is_changed_alike(kept, name, factors, others, adapter):
                raise TallmasksError(
                    f"{adapter.title}: {kept} and {name} were trained separately, but {base.title} ties them. {UNTIE}"
                )
            factors.pop(name.removesuffix(".weight"), None)
            others.pop(name, None)
    return {kept for kept, *_ in both}


def _is_changed_alike(
    kept: str, name: str, factors: Mapping[str, Mapping[str, str]], others: Mapping[str, str], adapter: Checkpoint
) -> bool:
    first, second = (factors.get(one.removesuffix(".weight"), {}) for one in (kept, name))
    if bool(first) != bool(second) or (kept in others) != (name in others):
        return False
    if kept in others and not adapter.same(adapter, others[kept], others[name]):
        return False
    if not first:
        return True
    (a, b), (c, d) = ([adapter.float32(pair[factor]) for factor in "AB"] for pair in (first, second))
    if ("embedding" in first) != ("embedding" in second):  # an embedding's delta is (B A)^T
        c, d = d.T, c.T
    return np.array_equal(a, c) and np.array_equal(b, d)
