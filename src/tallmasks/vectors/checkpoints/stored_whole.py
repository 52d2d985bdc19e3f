"""The weights of a task that every bundle stores whole, because a lossy update could be far off: heads, which start
from new values and not from the base's, and small tensors whose role is unknown, such as statistics that normalise
inputs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from math import prod

from tallmasks.errors import warn
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.known_tensors import known_tensors, library_advice
from tallmasks.vectors.multiples import is_vector

SMALL = 1024
"""A tensor of unknown role with fewer values is stored whole. Measured: in BERT, ViT, Swin, ResNet, MobileNet and
Qwen2 of 2 to 494 million values, vectors have up to 1.5 % of the values, and no other tensor is below this limit; one
of 4,096 adds up to 0.5 %. In small models of transformers' classes (40,000 to 95,000 values), vectors and tensors below
this limit have 0.5 to 5 % of the values, and below 4,096, 36 to 61 %. Storing them whole changes T-Switch's relative
error of 0.47 to 0.48 by at most 0.02, and its accuracy by at most 0.1 %."""
_WITHOUT_HEAD = re.compile(r"\w+((?<!Heads)Model|ForCausalLM|ForConditionalGeneration)")
"""Classes of transformers that are a base model, with at most a layer that predicts tokens."""


def is_small(shape: tuple[int, ...]) -> bool:
    """True for a vector, and for fewer than `SMALL` values."""
    return is_vector(shape) or prod(shape) < SMALL


def stored_whole(base: Checkpoint, tasks: Collection[Checkpoint], have_heads: bool) -> dict[str, str]:
    """The base's tensors to store whole for each task, and why.

    A base of a class without a head has weights only. Otherwise transformers answers for the classes that the
    configurations name: everything outside the base model is a head. Of models that it does not know, small tensors
    are stored whole, and the heads of classifiers.

    Args:
        have_heads: whether every task has tensors that the base lacks, so these are probably the heads.
    """
    if _is_without_head(base):
        return {}
    heads: dict[str, str] = {}
    weights: set[str] = set()
    for one in _one_of_each_class(base, tasks):
        known = known_tensors(base.tensors.keys(), one)
        inside = {name for name, tensor in known.items() if tensor.role == "weight"}
        if 2 * _values(base, inside) > _values(base):  # otherwise it is not the model of this file
            (name, *_) = one.config.get("architectures") or ["the model"]
            heads |= dict.fromkeys(base.tensors.keys() - inside, f"transformers: head of {name}")
            weights |= inside
    if not weights:
        heads = dict.fromkeys(_outside_main_module(base), "head, outside of the module with most weights")
        may_have_head = not heads and "model_type" in base.config
        if may_have_head and not have_heads:
            warn(f"heads that have the same shape as the base's are compressed with loss{library_advice(*tasks, base)}")
    small = {name for name, info in base.tensors.items() if is_small(info.shape)}
    return dict.fromkeys(small - weights, "vectors and small tensors") | heads


def _is_without_head(base: Checkpoint) -> bool:
    classes = base.config.get("architectures") or [""]
    return "model_type" in base.config and all(_WITHOUT_HEAD.fullmatch(str(name)) for name in classes)


def _outside_main_module(base: Checkpoint) -> set[str]:
    """The head of a class such as ViTForImageClassification, which has its base model in one module (`vit`): the
    tensors beside the module that has nearly all values. Empty if there is none, and for other classes."""
    if "Classification" not in str(base.config.get("architectures")):
        return set()
    values: Counter[str] = Counter()
    for name, info in base.tensors.items():
        values[name.partition(".")[0]] += info.size
    for main, most in values.most_common(1):
        if 10 * most > 9 * values.total():
            return {name for name in base.tensors if name.partition(".")[0] != main}
    return set()


def _one_of_each_class(base: Checkpoint, tasks: Collection[Checkpoint]) -> Collection[Checkpoint]:
    return {str(one.config.get("architectures")): one for one in (*tasks, base)}.values()


def _values(base: Checkpoint, names: Collection[str] | None = None) -> int:
    return sum(base.tensors[name].size for name in (base.tensors if names is None else names))
