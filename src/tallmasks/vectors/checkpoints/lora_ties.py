"""LoRAs on tied tensors, which peft trains and stores under one name or under several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tallmasks.errors import TallmasksError
from tallmasks.io.tensor_files import name_some
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.transformers_models import LibraryModel, library_advice

MERGE_IT = "Merge it with peft's merge_and_unload, save the model, and give that folder"
UNTIE = "Save the base with a separate head (tie_word_embeddings: false), and give that as the base"


def one_name(base: Checkpoint, model: LibraryModel | None) -> dict[str, str]:
    """The one name of each of the base's tensors, by all of its names: those in the files and those of tensors that
    transformers ties to it. Two stored tensors are one if transformers ties them and their bytes are equal."""
    names = {name: base.aliases.get(name, name) for name in base.names}
    if model is None:
        return names
    stored = {own: names[name] for name, own in model.names(base.names).items()}
    groups: dict[str, list[str]] = {}
    for name, source in model.tied.items():
        groups.setdefault(source, [source]).append(name)
    for group in groups.values():
        if not any(name in stored for name in group):
            continue
        first = next(stored[name] for name in group if name in stored)
        for name in group:
            if name not in stored:
                names.setdefault(name, first)
            elif base.same(base, stored[name], first):
                names[stored[name]] = first
    return {name: names[one] for name, one in names.items()}


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


def without_second_names(
    factors: dict[str, dict[str, str]],
    others: dict[str, str],
    targets: Mapping[str, Sequence[str]],
    adapter: Checkpoint,
    base: Checkpoint,
) -> set[str]:
    """Remove all but the first of the targets of one tensor from ``factors`` and ``others``, as with peft's
    `ensure_weight_tying`. Return the tensors with several targets. Raises TallmasksError if these were changed
    differently.

    ``targets``: the names in the adapter, by the base's tensor.
    """
    several = {tensor: names for tensor, names in targets.items() if len(names) > 1}
    for kept, *rest in several.values():
        for name in rest:
            if not _is_changed_alike(kept, name, factors, others, adapter):
                raise TallmasksError(
                    f"{adapter.title}: {kept} and {name} were trained separately, but {base.title} ties them. {UNTIE}"
                )
            factors.pop(name.removesuffix(".weight"), None)
            others.pop(name, None)
    return set(several)


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
