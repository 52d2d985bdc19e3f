"""One model's tensors under the names that another file of its family has: libraries save tied weights differently.

A pickle has both names of an embedding that is the output layer too, a safetensors file one of them.  A model with a
head has a prefix, `vit.`, before the names that its base has without the head.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from tallmasks.vectors.checkpoints.checkpoint import Checkpoint

OF_VOCABULARY = ("embed", "shared", "wte", "lm_head")
"""Parts of the names of input and output embeddings."""
_TIES = "tie_word_embeddings"


def named_as(base: Checkpoint, task: Checkpoint) -> Checkpoint:
    """A checkpoint with the base's names for the tensors that it ties, and for those behind a prefix.

    Where it lacks an embedding of the base, its only one of that shape stands for it.  config.json, its own or else the
    base's, must say that the model ties them.  A tensor that the base has under no name stays as it is.
    """
    if type(task) is not Checkpoint:  # a LoRA, or a bundle's model: it has the base's names
        return task
    task = _without_prefix(base, task)
    own: dict[str, str] = {}
    for name in base.tensors:
        names = [name, *(alias for alias, of in base.aliases.items() if of == name)]
        places = {task.aliases.get(one, one) for one in names if one in task.names} or _only_embedding(base, task, name)
        if len(places) == 1:  # with two, the base ties what the task does not
            own[name] = places.pop()
        else:
            own |= {place: place for place in places}
    rest = task.tensors.keys() - own.values()
    own |= {name: name for name in rest}
    return replace(
        task,
        tensors={name: task.tensors[own[name]] for name in sorted(own)},
        aliases={alias: name for alias, name in base.aliases.items() if name in own and alias not in own},
        arrays={name: task.arrays[place] for name, place in own.items()},
        places={name: task.places[place] for name, place in own.items() if place in task.places},
    )


def _without_prefix(base: Checkpoint, task: Checkpoint) -> Checkpoint:
    """A checkpoint with no name of the base's, without the prefix that most of these names have in it."""
    names = set(base.names)
    if not names.isdisjoint(task.names):
        return task
    heads_and_tails = (
        (name[: at + 1], name[at + 1 :]) for name in task.names for at, sign in enumerate(name) if sign == "."
    )
    prefixes = Counter(head for head, tail in heads_and_tails if tail in names)
    if not prefixes:
        return task
    ((prefix, _),) = prefixes.most_common(1)
    return replace(
        task,
        tensors=dict(sorted((name.removeprefix(prefix), info) for name, info in task.tensors.items())),
        aliases={alias.removeprefix(prefix): of.removeprefix(prefix) for alias, of in task.aliases.items()},
        arrays={name.removeprefix(prefix): array for name, array in task.arrays.items()},
        places={name.removeprefix(prefix): place for name, place in task.places.items()},
    )


def ties(checkpoint: Checkpoint) -> bool | None:
    """Whether config.json says that input and output embeddings are one tensor; None where it says nothing."""
    return bool(checkpoint.config[_TIES]) if _TIES in checkpoint.config else None


def is_embedding(name: str) -> bool:
    """Whether a tensor is of the vocabulary, by its name."""
    return any(part in name for part in OF_VOCABULARY) and "position" not in name


def _only_embedding(base: Checkpoint, task: Checkpoint, name: str) -> set[str]:
    """The tensor of a task that stands for an embedding of the base that it lacks."""
    says = ties(task)
    if not is_embedding(name) or not (ties(base) if says is None else says):
        return set()
    shape = base.tensors[name].shape
    fitting = {one for one, info in task.tensors.items() if is_embedding(one) and info.shape == shape}
    return fitting if len(fitting) == 1 else set()
