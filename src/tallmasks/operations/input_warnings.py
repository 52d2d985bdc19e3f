"""Warnings about models that should probably not be merged: different configurations or tokenizers, or a wrong base."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

import numpy as np

from tallmasks.errors import TallmasksError, grouped_warnings, name_some, short, warn
from tallmasks.io.tensor_files import Layout
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.known_tensors import BOOKKEEPING, library_settings
from tallmasks.vectors.checkpoints.vocabularies import clashes, read_tokenizer, vocabulary_digests

_OF_HEADS = {"id2label", "label2id", "num_labels"}
_SAMPLED = 1 << 18
"""Number of values per task vector that are compared."""
_ONE_WAY = 0.4
"""Cosines between all task vectors above this are suspicious. Swapping the base with one of several unrelated tasks
gives cosines of 0.5 and 0.71 if all task vectors have the same length."""


def warn_of_inputs(
    base: Checkpoint, tasks: Mapping[str, Checkpoint], layout: Layout, tokenizers_may_differ: bool
) -> None:
    """Warn about suspicious models, from a sample of their values. ``layout``: the merged weights."""
    if not tokenizers_may_differ:
        _warn_of_tokenizers({"the base": base, **tasks})
    _warn_of_directions(base, tasks, layout)


def warn_of_configurations(base: Checkpoint, tasks: Mapping[str, Checkpoint], heads: object) -> None:
    """Warn about fields of config.json that change what the weights compute, or what the outputs mean unless each task
    keeps its head; a merged model has the base's. ``heads``: true if each task does."""
    with grouped_warnings():
        for task, name in _differing_configurations(base, tasks):
            fields = dict(_differing_fields(base, tasks[task], name))
            if shown := [text for key, text in fields.items() if not (heads and key in _OF_HEADS)]:
                warn(f"{name} differs from the base's in {name_some(shown, 6)}; the result keeps the base's", task)


def _differing_configurations(base: Checkpoint, tasks: Mapping[str, Checkpoint]) -> Iterator[tuple[str, str]]:
    """Tasks, and their files that differ from the base's as they are written."""
    for task, one in tasks.items():
        for name in base.configs.keys() & one.configs.keys():
            mine, theirs = base.configs[name], one.configs[name]
            if any(changes(key, mine.get(key), theirs.get(key)) for key in {*mine, *theirs}):
                yield task, name


def _differing_fields(base: Checkpoint, task: Checkpoint, name: str) -> Iterator[tuple[str, str]]:
    """The differing fields that change what the weights compute, and how to show them: with short values."""
    mine: Mapping[str, Any] = base.configs[name]
    theirs: Mapping[str, Any] = task.configs[name]
    if name == "config.json" and (ours := library_settings(base)) and (own := library_settings(task)):
        mine, theirs = ours, own  # with the library's defaults and current names
    for key in sorted({*mine, *theirs}):
        if changes(key, mine.get(key), theirs.get(key)):
            value, other = theirs.get(key), mine.get(key)
            is_short = not isinstance(value, dict | list) and not isinstance(other, dict | list)
            yield key, f"{key} ({short(value)}, the base has {short(other)})" if is_short else key


def changes(key: str, mine: Any, theirs: Any) -> bool:
    """Whether two values of a field of a configuration differ in what a model computes. Nested settings, such as
    `text_config`, are compared field by field."""
    if isinstance(mine, dict) and isinstance(theirs, dict):
        return any(changes(inner, mine.get(inner), theirs.get(inner)) for inner in {*mine, *theirs})
    is_harmless = key in {*BOOKKEEPING, "vocab_size"} or key.startswith(("initializer", "_")) or "drop" in key
    return mine != theirs and not is_harmless


def _warn_of_tokenizers(every: Mapping[str, Checkpoint]) -> None:
    digests = {name: str(of_files) for name, one in every.items() if (of_files := vocabulary_digests(one))}
    first: dict[str, str] = {}  # the first model with these files: each tokenizer is read once
    for name, digest in digests.items():
        first.setdefault(digest, name)
    if len(first) < 2:
        return
    advice = "the result keeps the base's. `tokens: base` or `tokens: union` aligns the rows by token"
    try:
        ids = {name: read_tokenizer(every[name]).ids for name in first.values()}
    except TallmasksError as error:
        warn(f"the tokenizers of {name_some(digests)} have different files and cannot be compared: {error}")
        return
    if clashing := list(clashes(ids)):
        warn(f"the tokenizers differ, so rows of different tokens are merged: {name_some(clashing, 2)}; {advice}")
        return
    with grouped_warnings():
        for name, digest in digests.items():
            of_task = ids[first[digest]]
            if added := sorted(of_task.keys() - ids.get("the base", of_task).keys()):
                warn(f"tokens that the base lacks ({name_some(added)}); {advice}", name)


def _warn_of_directions(base: Checkpoint, tasks: Mapping[str, Checkpoint], layout: Layout) -> None:
    names = layout.names
    if not names:
        return
    count = max(_SAMPLED // len(names), 1)
    pieces = []
    for name in names:
        size = math.prod(layout.by_name[name])
        start = max(size - count, 0) // 2  # from the middle of each tensor
        pieces.append((name, start, min(start + count, size)))
    vectors = {
        task: np.concatenate([one.difference(base, *piece) for piece in pieces]).astype(np.float64)
        for task, one in tasks.items()
    }
    for first, second in combinations(tasks, 2):
        is_sampled = {first, second} <= vectors.keys() and np.array_equal(vectors[first], vectors[second])
        if is_sampled and all(tasks[second].same(tasks[first], name) for name in names):
            warn(f"{first} and {second} are the same checkpoint, so it counts twice; leave one out")
            del vectors[second]
    lengths = {task: float(np.linalg.norm(vector)) for task, vector in vectors.items()}
    pairs = list(combinations(vectors, 2)) if all(lengths.values()) else []
    cosines = [float(vectors[a] @ vectors[b]) / (lengths[a] * lengths[b]) for a, b in pairs]
    if cosines and min(cosines) > _ONE_WAY:
        warn(
            f"all task vectors point in a similar direction (cosines from {min(cosines):.2f} to {max(cosines):.2f}):"
            f" check that {base.title} is the pretrained base, and not one of the fine-tuned models"
        )
