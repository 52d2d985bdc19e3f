"""Check that checkpoints have the architecture of their base, from names, shapes and dtypes; find the tensors that
a task's model shares with its base, and those that only one of them has."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from tallmasks.errors import TallmasksError, grouped_warnings, name_some, warn
from tallmasks.parallel import parallel
from tallmasks.vectors.checkpoints.buffers import Buffer
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.known_tensors import known_tensors

# keys of transformers and MLX in config.json, also inside parts such as `text_config`
_KEYS = ("quantization_config", "quantization")
_SHOWN = 3  # models in a message
# Name endings of scales and packed weights: fp8, LLM.int8(), GPTQ and AWQ, bitsandbytes 4 bit, compressed-tensors,
# HQQ.
_PARTS = ("_scale_inv", ".SCB", ".qweight", ".qzeros", ".g_idx", ".absmax", ".quant_map", ".weight_packed", ".W_q")


def check_fit(
    base: Checkpoint, task_checkpoints: Mapping[str, Checkpoint], per_task: Collection[str] = (), exact: bool = False
) -> None:
    """Refuse task checkpoints that were not fine-tuned from the base's architecture. Reads no float values.

    A differing non-float constant only gives a warning, unless its name is in ``per_task``, the buffers that each task
    keeps; results keep the base's.
    With ``exact``, weights may be quantised, because nothing is computed with them.

    Raises TallmasksError for quantised weights, or if names, shapes, vocabularies, ties or dtypes differ.
    """
    problems = [". ".join(problem) for problem in ([] if exact else _quantised(base))]
    if not base.layout.size:
        problems.insert(0, f"{base.title}: no float tensor found, or all are left out; expected the weights of a model")
    by_advice: dict[str, list[str]] = {}
    for task, checkpoint in task_checkpoints.items():
        for problem, advice in _problems(base, checkpoint, per_task, exact):
            by_advice.setdefault(advice, []).append(f"{task}: {problem}")
    for advice, of_tasks in by_advice.items():
        more = f"; {len(of_tasks) - _SHOWN} more models" if len(of_tasks) > _SHOWN else ""
        problems.append(f"{'; '.join(of_tasks[:_SHOWN])}{more}. {advice}")
    if problems:
        raise TallmasksError(*problems)
    with grouped_warnings():
        for task, checkpoint in task_checkpoints.items():
            if odd := sorted(_differing_constants(base, checkpoint) - set(per_task)):
                warn(
                    f"tensors that are not floats differ from {base.title}: {name_some(odd)}; the result keeps the"
                    " base's",
                    task,
                )


def _differing_constants(base: Checkpoint, task: Checkpoint) -> set[str]:
    """Non-float tensors that differ between the two models, without known buffers."""
    constants = {name for one in (base, task) for name, info in one.tensors.items() if not info.is_float}
    rest = constants - base.buffers.keys() - task.buffers.keys()
    shared = base.tensors.keys() & task.tensors.keys()
    return {name for name in rest if name not in shared or not task.same(base, name)}


def unchanged(base: Checkpoint, tasks: Mapping[str, Checkpoint]) -> tuple[str, ...]:
    """The weights that are byte-identical to the base in every task, sorted. The checkpoints must fit the base."""
    names = base.layout.names
    same = parallel(lambda name: all(task.same(base, name) for task in tasks.values()), names)
    return tuple(compress(names, same))


def _problems(base: Checkpoint, task: Checkpoint, per_task: Collection[str], exact: bool) -> Iterator[tuple[str, str]]:
    """What does not fit, and advice, which is the same for several tasks with the same problem."""
    if not exact and (problems := list(_quantised(task))):
        yield from problems
        return
    missing = {*base.layout.names, *base.averages} - set(task.names)
    extra = {*task.layout.names, *task.averages} - set(base.names)
    if untied := _tied_in(base, extra):
        yield (
            f"{task.title} has separate values for {name_some(sorted(untied))}, which {base.title} ties to another"
            " tensor",
            "Untie the base: copy that tensor to this name, and set tie_word_embeddings to false in config.json. Or"
            f" keep the base's values: `keep_base: {min(untied)}`",
        )
        extra -= untied
    differing = sorted(_differing_constants(base, task) & base.tensors.keys() & task.tensors.keys())
    if not exact and (packed := _packed(differing, base, task)):
        yield (
            f"{task.title} and {base.title} have different integers in {name_some(packed)}, which may be packed weights"
            " of a quantised model; expected floats of at least 16 bits",
            f"Dequantise it. If these are not weights, keep the base's: `keep_base: {packed[0]}`",
        )
    if odd := [
        name
        for name in differing
        if "C64" in (base.tensors[name].dtype, task.tensors[name].dtype) and name not in per_task
    ]:
        yield (
            f"{task.title} and {base.title} have different complex numbers in {name_some(odd)}; expected real floats,"
            " because complex numbers cannot be merged",
            f"Keep the base's: `keep_base: {odd[0]}`",
        )
    heads = "If these are heads, set `heads: true`. "
    for kind, names, advice in (("lacks", missing, ""), ("also has", extra, heads)):
        if names:
            yield (
                f"{task.title} {kind} {name_some(sorted(names))} ({len(names)} in all); expected the tensors of"
                f" {base.title}",
                f"{advice}Give a checkpoint that was fine-tuned from {base.title} and saved by the same library. To"
                " leave these tensors out, set keep_base",
            )
    free = {name for name, kind in (base.buffers | task.buffers).items() if kind is not Buffer.AVERAGE}
    both = set(base.names) & set(task.names) - free
    if apart := sorted(name for name in both if base.aliases.get(name) != task.aliases.get(name)):
        yield (
            f"{task.title} ties {name_some(apart)} to other tensors than {base.title} does; expected the same ties",
            "Load both and save them with the same release of transformers or open_clip",
        )
    yield from _differing_forms(base, task, free)


def _packed(differing: Sequence[str], base: Checkpoint, task: Checkpoint) -> list[str]:
    """Integer arrays among the differing tensors that are not buffers in transformers; they may be packed weights."""
    odd = []
    for name in differing:
        infos = (base.tensors[name], task.tensors[name])
        if all(not info.is_float and info.dtype not in ("BOOL", "C64") and info.size > 1 for info in infos):
            odd.append(name)
    known = known_tensors(odd, base) if odd else {}
    return [name for name in odd if name not in known or known[name].role != "buffer"]


def _differing_forms(base: Checkpoint, task: Checkpoint, free: Collection[str]) -> Iterator[tuple[str, str]]:
    """Tensors with other shapes or dtypes, except those in ``free``."""
    dtypes: list[str] = []
    resized: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {}
    for name in sorted((base.tensors.keys() & task.tensors.keys()).difference(free)):
        mine, theirs = base.tensors[name], task.tensors[name]
        if mine.is_float != theirs.is_float:
            dtypes.append(f"{name} (found {theirs.dtype}, expected {mine.dtype})")
        elif mine.is_float and mine.shape != theirs.shape:
            resized[name] = (theirs.shape, mine.shape)
    matrices = {name: pair for name, pair in resized.items() if len(pair[1]) == 2 and pair[0][1:] == pair[1][1:]}
    biases = {(found[:1], expected[:1]) for found, expected in matrices.values()}  # one value per row of a matrix
    vocabulary: list[str] = []
    shapes: list[str] = []
    for name, (found, expected) in resized.items():
        texts = vocabulary if name in matrices or (found, expected) in biases else shapes
        texts.append(f"{name} (found {list(found)}, expected {list(expected)})")
    if shapes:
        yield (
            f"{task.title} has tensors with other shapes than in {base.title}: {name_some(shapes)}",
            "Give a checkpoint of the same architecture",
        )
    elif vocabulary:
        yield (
            f"{task.title} has outputs, or a vocabulary, of another size: {name_some(vocabulary)}",
            "If these are heads with different labels, set `heads: true`. If the vocabulary differs, `tokens: base`,"
            " which takes the rows of the base's tokens and needs tokenizer.json in both models; or resize it with"
            " transformers' resize_token_embeddings and save the model",
        )
    if dtypes:
        yield (
            f"{task.title} has tensors with other dtypes: {name_some(dtypes)}; expected floats exactly where"
            f" {base.title} has floats",
            "Give a checkpoint that was saved by the same library",
        )


def _tied_in(base: Checkpoint, names: Collection[str]) -> set[str]:
    """Those of ``names`` that transformers ties to a tensor of the base."""
    known = known_tensors({*base.tensors, *names}, base) if names else {}
    of_base = {one.identity for name, one in known.items() if name in base.tensors}
    return {name for name in names if name in known and known[name].identity in of_base}


def _quantised(checkpoint: Checkpoint) -> Iterator[tuple[str, str]]:
    configs = [*checkpoint.configs.values()]
    configs += [inner for config in configs for inner in config.values() if isinstance(inner, dict)]
    signs = [f"config.json has {key}" for key in _KEYS for config in configs if config.get(key)]
    signs += [sign for name, info in checkpoint.tensors.items() if (sign := quantised_tensor(name, *info))]
    if signs:
        yield (
            f"{checkpoint.title} is quantised: {signs[0]}; expected weights of at least 16 bits",
            "Dequantise it and save it again, or give the model that it was quantised from",
        )


def quantised_tensor(name: str, dtype: str, shape: tuple[int, ...]) -> str | None:
    """Why a tensor looks quantised, or None. It does if it has the name of a scale, or is a float of 8 bits or less, or
    a matrix of 8-bit integers. ``dtype`` is a safetensors code or a torch name."""
    is_causal_mask = len(shape) == 4 and shape[:2] == (1, 1)  # of GPT-NeoX, GPT-Neo, CodeGen: uint8 [1, 1, n, n]
    if name.endswith(_PARTS):
        return f"{name} is a part of a quantised weight"
    small_float = dtype.startswith(("F8_", "F6_", "F4", "float8_", "float4_"))
    integers = dtype in ("I8", "U8", "int8", "uint8") and len(shape) > 1 and not is_causal_mask
    return f"{name} is {dtype} {list(shape)}" if small_float or integers else None


def task_only_tensors(base: Checkpoint, task: Checkpoint) -> tuple[str, ...]:
    """The task's tensors that the base lacks, ties, or has in another shape or kind (float or not); sorted. Masks and
    tables are not included, because the model class recomputes them."""
    constants = {name for name, kind in task.buffers.items() if kind is Buffer.CONSTANT}
    return tuple(name for name in sorted(task.tensors.keys() - constants) if not _fits(base, task, name))


def base_only_tensors(base: Checkpoint, task: Checkpoint) -> tuple[str, ...]:
    """The base's tensors that the task's model lacks, except masks, tables and counters; sorted."""
    kinds = {name: base.buffers.get(name) for name in base.tensors.keys() - {*task.names}}
    return tuple(sorted(name for name, kind in kinds.items() if kind in (None, Buffer.AVERAGE)))


def _fits(base: Checkpoint, task: Checkpoint, name: str) -> bool:
    """Whether the base has the tensor in the task's shape and kind (float or not). Masks and tables always fit."""
    if name not in base.tensors:
        return False
    mine, theirs = base.tensors[name], task.tensors[name]
    is_alike = mine.shape == theirs.shape and mine.is_float == theirs.is_float
    return is_alike or base.buffers.get(name) is Buffer.CONSTANT


@dataclass(frozen=True, eq=False, kw_only=True)
class OnBase(Checkpoint):
    """A task's model with exactly the base's tensors; those in ``of_base`` come from the base."""

    task: Checkpoint
    base: Checkpoint
    of_base: frozenset[str]

    def stored(self, name: str, start: int, stop: int) -> NDArray[np.uint8]:
        return self._of(name).stored(name, start, stop)

    def piece(self, name: str, start: int, stop: int) -> NDArray[np.float32]:
        return self._of(name).piece(name, start, stop)

    def difference(self, base: Checkpoint, name: str, start: int, stop: int) -> NDArray[np.float32]:
        return self._of(name).difference(base, name, start, stop)

    def roundoff(self, name: str) -> float:
        return self._of(name).roundoff(name)

    def same(self, base: Checkpoint, name: str, other: str | None = None) -> bool:
        return self._of(name).same(base, name, other)

    def _of(self, name: str) -> Checkpoint:
        return self.base if self.aliases.get(name, name) in self.of_base else self.task


def on_base(base: Checkpoint, task: Checkpoint, task_only: Collection[str], base_only: Collection[str]) -> Checkpoint:
    if not task_only and not base_only:
        return task
    of_base = {*task_only, *base_only} & base.tensors.keys()
    tensors = {name: info for name, info in task.tensors.items() if name not in task_only}
    tensors |= {name: base.tensors[name] for name in of_base}
    attributes = {field.name: getattr(task, field.name) for field in fields(Checkpoint)}
    attributes |= {"tensors": dict(sorted(tensors.items())), "aliases": base.aliases}
    return OnBase(**attributes, task=task, base=base, of_base=frozenset(of_base))
