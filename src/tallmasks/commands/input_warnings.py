"""Warnings about models that should probably not be merged: different configurations or tokenizers, or a wrong base."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from tallmasks.errors import TallmasksError, short, warn
from tallmasks.io.tensor_files import name_some
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.library_models import library_model
from tallmasks.vectors.checkpoints.vocabularies import TOKENIZER, read_tokenizer

if TYPE_CHECKING:
    from tallmasks.commands.opened_models import Models

_HARMLESS = {
    "_name_or_path", "name_or_path", "transformers_version", "torch_dtype", "dtype", "architectures", "auto_map",
    "use_cache", "vocab_size", "finetuning_task", "problem_type", "task_specific_params", "gradient_checkpointing",
    "output_attentions", "output_hidden_states", "return_dict", "tokenizer_class",
}  # fmt: skip
"""Fields of config.json that do not change what the weights compute; nor do dropout and initialisation."""
_SAMPLED = 1 << 18
"""Number of values per task vector that are compared."""
_ONE_WAY = 0.4
"""Cosines between all task vectors above this are suspicious. Swapping the base with one of several unrelated tasks
gives cosines of 0.5 and 0.71 if all task vectors have the same length."""


def warn_of_inputs(models: Models, keeps_own: bool) -> None:
    """Warn about suspicious inputs, from a sample of their values.

    With ``keeps_own``, every task keeps its configuration and tokenizer, so these may differ.
    """
    if not keeps_own:
        _warn_of_configurations(models.base, models.tasks)
        if models.settings.tokens is None:
            _warn_of_tokenizers({"the base": models.base, **models.tasks})
    _warn_of_directions(models)


def _warn_of_configurations(base: Checkpoint, tasks: Mapping[str, Checkpoint]) -> None:
    by_difference: dict[str, list[str]] = {}
    for task, one in tasks.items():
        for name in base.configs.keys() & one.configs.keys():
            if fields := list(_differing(base, one, name)):
                by_difference.setdefault(f"{name} differs from the base's in {name_some(fields, 6)}", []).append(task)
    for difference, names in by_difference.items():
        warn(f"{name_some(names)}: {difference}; the result keeps the base's")


def _differing(base: Checkpoint, task: Checkpoint, name: str) -> Iterator[str]:
    """The differing fields that change what the weights compute, with both values if they are short."""
    mine: Mapping[str, Any] = base.configs[name]
    theirs: Mapping[str, Any] = task.configs[name]
    if not any(_changes(key, mine.get(key), theirs.get(key)) for key in {*mine, *theirs}):
        return
    if name == "config.json" and (ours := library_model(base)) and (own := library_model(task)):
        mine, theirs = ours.settings, own.settings  # with the library's defaults and current names
    for key in sorted({*mine, *theirs}):
        if _changes(key, mine.get(key), theirs.get(key)):
            value, other = theirs.get(key), mine.get(key)
            is_short = not isinstance(value, dict | list) and not isinstance(other, dict | list)
            yield f"{key} ({short(value)}, the base has {short(other)})" if is_short else key


def _changes(key: str, mine: Any, theirs: Any) -> bool:
    is_harmless = key in _HARMLESS or key.startswith(("initializer", "_")) or "drop" in key
    return mine != theirs and not is_harmless


def _warn_of_tokenizers(every: Mapping[str, Checkpoint]) -> None:
    contents = {
        name: one.companions[TOKENIZER].read_bytes() for name, one in every.items() if TOKENIZER in one.companions
    }
    if len(set(contents.values())) < 2:
        return
    advice = "`merge --tokens base` or `--tokens union` aligns the rows by token"
    texts: dict[int, dict[str, str]] = {}
    try:
        for name in contents:
            for text, row in read_tokenizer(every[name]).ids.items():
                texts.setdefault(row, {}).setdefault(text, name)
    except TallmasksError:
        warn(f"{TOKENIZER} differs between {name_some(contents)}, and one of them cannot be read; {advice}")
        return
    clashes = [
        f"row {row} is {' and '.join(f'{short(text)} in {name}' for text, name in list(of_row.items())[:2])}"
        for row, of_row in sorted(texts.items())
        if len(of_row) > 1
    ]
    if clashes:
        warn(f"the tokenizers differ, so rows of different tokens are merged: {name_some(clashes, 2)}. {advice}")
        return
    sets = {name: frozenset(read_tokenizer(every[name]).ids) for name in contents}
    for name, of_task in sets.items():
        if added := sorted(of_task - sets.get("the base", of_task)):
            warn(
                f"{name}: it has tokens that the base lacks ({name_some(added)}); the result keeps the base's. {advice}"
            )


def _warn_of_directions(models: Models) -> None:
    names, tasks = models.layout.names, models.tasks
    if not names:
        return
    count = max(_SAMPLED // len(names), 1)
    pieces = []
    for name in names:
        size = models.part.info(name).size
        start = max(size - count, 0) // 2  # from the middle of each tensor
        pieces.append((name, start, min(start + count, size)))
    vectors = {
        task: np.concatenate([one.difference(models.base, *piece) for piece in pieces]).astype(np.float64)
        for task, one in tasks.items()
    }
    for first, second in combinations(tasks, 2):
        if not {first, second} <= vectors.keys() or not np.array_equal(vectors[first], vectors[second]):
            continue
        if all(tasks[second].same(tasks[first], name) for name in names):
            warn(f"{first} and {second} are the same checkpoint, so it counts twice; leave one out")
            del vectors[second]
    lengths = {task: float(np.linalg.norm(vector)) for task, vector in vectors.items()}
    pairs = list(combinations(vectors, 2)) if all(lengths.values()) else []
    cosines = [float(vectors[a] @ vectors[b]) / (lengths[a] * lengths[b]) for a, b in pairs]
    if cosines and min(cosines) > _ONE_WAY:
        warn(
            f"all task vectors point in a similar direction (cosines from {min(cosines):.2f} to {max(cosines):.2f}):"
            f" check that {models.base.title} is the pretrained base, and not one of the fine-tuned models"
        )
