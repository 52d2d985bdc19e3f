"""Check that checkpoints have the architecture of their base, from names, shapes and dtypes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType

from tallmasks.errors import TallmasksError, grouped_warnings, name_some, warn
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
    base: Checkpoint,
    task_checkpoints: Mapping[str, Checkpoint],
    not_shared: Mapping[str, Collection[str]] = MappingProxyType({}),
    for_bundle: bool = False,
    exact: bool = False,
) -> None:
    """Refuse task checkpoints that were not fine-tuned from the base's architecture. Reads no float values.

    Args:
        not_shared: by task, tensors that need not fit.
        for_bundle: whether each task keeps what is not a weight.
        exact: weights may be quantised, because nothing is computed with them.

    Raises TallmasksError for quantised weights, or if names, shapes, vocabularies, ties or dtypes differ.
    """
    problems = [". ".join(problem) for problem in ([] if exact else _quantised(base))]
    if not base.layout.size:
        problems.insert(0, f"{base.title}: no float tensor found, or all are left out; expected the weights of a model")
    by_advice: dict[str, list[str]] = {}
    for task, checkpoint in task_checkpoints.items():
        names = not_shared.get(task, ())
        for problem, advice in _problems(base.without(names), checkpoint.without(names), for_bundle, exact):
            by_advice.setdefault(advice, []).append(f"{task}: {problem}")
    for advice, of_tasks in by_advice.items():
        more = f"; {len(of_tasks) - _SHOWN} more models" if len(of_tasks) > _SHOWN else ""
        problems.append(f"{'; '.join(of_tasks[:_SHOWN])}{more}. {advice}")
    if problems:
        raise TallmasksError(*problems)


def warn_of_constants(base: Checkpoint, tasks: Mapping[str, Checkpoint], known: Mapping[str, Collection[str]]) -> None:
    """Warn about tensors that are not floats, and differ from the base's, except those in ``known`` of the task."""
    with grouped_warnings():
        for task, checkpoint in tasks.items():
            if odd := sorted(_differing_constants(base, checkpoint).difference(known[task])):
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


def _problems(base: Checkpoint, task: Checkpoint, for_bundle: bool, exact: bool) -> Iterator[tuple[str, str]]:
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
        if "C64" in (base.tensors[name].dtype, task.tensors[name].dtype)
        and not (for_bundle and has_form(base, task, name))
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
    may_differ = {name for name, kind in (base.buffers | task.buffers).items() if kind is not Buffer.AVERAGE}
    both = set(base.names) & set(task.names) - may_differ
    if apart := sorted(name for name in both if base.aliases.get(name) != task.aliases.get(name)):
        yield (
            f"{task.title} ties {name_some(apart)} to other tensors than {base.title} does; expected the same ties",
            "Load both and save them with the same release of transformers or open_clip",
        )
    yield from _differing_forms(base, task, may_differ)


def _packed(differing: Sequence[str], base: Checkpoint, task: Checkpoint) -> list[str]:
    """Integer arrays among the differing tensors that are not buffers in transformers; they may be packed weights."""
    odd = []
    for name in differing:
        infos = (base.tensors[name], task.tensors[name])
        if all(not info.is_float and info.dtype not in ("BOOL", "C64") and info.size > 1 for info in infos):
            odd.append(name)
    known = known_tensors(odd, base) if odd else {}
    return [name for name in odd if name not in known or known[name].role != "buffer"]


def _differing_forms(base: Checkpoint, task: Checkpoint, may_differ: Collection[str]) -> Iterator[tuple[str, str]]:
    """Tensors with other shapes or dtypes, except those in ``may_differ``."""
    dtypes: list[str] = []
    resized: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {}
    for name in sorted((base.tensors.keys() & task.tensors.keys()).difference(may_differ)):
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


def has_form(base: Checkpoint, task: Checkpoint, name: str) -> bool:
    """Whether a tensor of a task has the shape and kind of the base's."""
    if name not in base.names or name not in task.names:
        return False
    mine, theirs = base.info(name), task.info(name)
    return mine.shape == theirs.shape and (mine.dtype == theirs.dtype or (mine.is_float and theirs.is_float))
