"""The paper's steps on state dicts in memory: torch tensors or NumPy arrays by name, in any float type.

Computes in float32. Results are of the same kind as the input: torch tensors on their device, or NumPy arrays. Task
vectors do not contain buffers, such as BatchNorm's running statistics, or tensors that are not floats. A tensor with
several names, such as a tied embedding, counts once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, SupportsFloat, overload

import numpy as np
from numpy.typing import NDArray

from tallmasks.bundles.bundle_models import open_model
from tallmasks.errors import TallmasksError, name_some, short, warn
from tallmasks.io.tensor_files import Layout
from tallmasks.masks.mask_grids import apply_mask as apply_mask_to_flat
from tallmasks.methods import registry
from tallmasks.methods.method_usages import Fixed
from tallmasks.methods.options import parse_spec
from tallmasks.methods.rows.masks_over_merges import keep_agreed
from tallmasks.vectors import kernels
from tallmasks.vectors.checkpoints.buffers import buffers_among
from tallmasks.vectors.checkpoints.checkpoint import Checkpoint
from tallmasks.vectors.checkpoints.fitting import quantised_tensor
from tallmasks.vectors.task_vectors import TaskVector

StateDict = Mapping[str, Any]
Model = Any
"""A state dict, a torch module, or a path or repository of a checkpoint, which is read as float32 arrays."""
Tensors = dict[str, Any]


class _Merged(Tensors):
    masked_as: str | None = None  # the merge to compute masks from, if it is another one


def task_vector(base: Model, finetuned: Model) -> Tensors:
    """tau = theta_t - theta_0, float32, for every weight (Ilharco et al. 2023).

    Buffers are left out, so `apply` keeps the buffers of the base; warns if they differ. A module knows its buffers; in
    a state dict they are recognised by name. (`merge_checkpoints` averages them over the tasks.)

    Raises TallmasksError if names or shapes differ, a model is quantised, or a value is NaN, infinite or too large for
    float32.
    """
    base_checkpoint = _opened(base)
    states = [
        _state_dict(base, base_checkpoint, "base"),
        _state_dict(finetuned, _opened(finetuned, base_checkpoint), "finetuned"),
    ]
    buffers = _buffers(zip((base, finetuned), states, strict=True))
    if lost := [name for name in sorted(buffers) if _differ(name, *states)]:
        warn(f"the buffers {name_some(lost, 2)} differ from the base; `apply` keeps those of the base")
    for name in states[0].keys() & states[1].keys():
        one, other = (state[name] for state in states)
        if "complex" in str(getattr(one, "dtype", "")) and not bool((one == other).all()):
            raise TallmasksError(
                f"tensor {name} is complex and differs; expected real numbers; leave it out of all models"
            )
    before, after = _flats(dict(zip(("base", "finetuned"), states, strict=True)), left_out=buffers)
    if difference := before.layout.describe_difference(after.layout):
        raise TallmasksError(
            f"the fine-tuned model does not fit the base model: {difference}; pass models of one architecture. Leave"
            " heads of other shapes out of both"
        )
    with np.errstate(invalid="ignore", over="ignore"):
        return before.back(after.values - before.values, "finetuned - base")


def merge(task_vectors: Sequence[StateDict] | Mapping[str, StateDict], name: str = "sum", **options: Any) -> Tensors:
    """tau_MTL, float32: the merged task vectors of one model.

    Args:
        task_vectors: a list in any order, or by task.
        name: a merge, such as "sum", "ties_sum", "ties_mean" or "iso_c" (`merges` lists all), or a method that is a
            merge alone, such as "ties" or "task_arithmetic". The result of "weight_averaging" includes its factor 1/T.
        options: of the merge, such as ``keep=0.1`` for TIES.

    Raises TallmasksError for an unknown merge or option, and for task vectors that are missing, differ in names or
    shapes, or contain NaN.
    """
    flats = _all(task_vectors, "task vectors")
    merge_name, factor = _merge_of(name, len(flats))
    chosen = registry.get_merge(registry.with_options(merge_name, options))
    out = np.empty_like(flats[0].values)
    chosen([TaskVector(flat.values, flat.layout, {}) for flat in flats], out)
    merged = _Merged(flats[0].back(out if factor == 1 else out * np.float32(factor), name))
    merged.masked_as = chosen.masked_as
    return merged


def _merge_of(name: str, count: int) -> tuple[str, float]:
    """The merge behind the name of a merge or method, and the method's fixed coefficient for ``count`` tasks, or 1."""
    if not isinstance(name, str):
        raise TallmasksError(f"found {short(name)}, expected the name of a merge, such as 'ties'")
    if parse_spec(name)[0] in registry.merge_names():
        return name, 1.0
    rows = (row for row in registry.names() if registry.get(row).is_merge)
    registry.check_name(name, dict.fromkeys([*merges(), *rows]))
    method = registry.get(name)
    if method.merge is None or not method.is_merge:
        raise TallmasksError(f"{name} does more than merge; expected one of: {', '.join(merges())}")
    return method.merge, method.usage.coefficient_for(count) if isinstance(method.usage, Fixed) else 1.0


def merges() -> tuple[str, ...]:
    """The names of all merges."""
    return registry.merge_names()


@overload
def tall_mask(task_vector: StateDict, multi_task_vector: StateDict, mask_lambda: SupportsFloat) -> Tensors: ...
@overload
def tall_mask(
    task_vector: StateDict, multi_task_vector: StateDict, mask_lambda: Sequence[float]
) -> dict[float, Tensors]: ...
def tall_mask(task_vector: StateDict, multi_task_vector: StateDict, mask_lambda: Any) -> Any:
    """m_t = 1{|tau_t| > lambda |tau_MTL - tau_t|}, bool (Wang et al. 2024, Eq. 4 and 5).

    The paper writes >=; its code uses >, as here, so a weight that no task moved is in no mask.

    Args:
        multi_task_vector: result of `merge`. For TIES the paper uses the disjoint sum, "ties_sum"; warns if it is the
            disjoint mean, "ties".
        mask_lambda: a number, or several in ascending order; for several, returns masks by lambda.

    Raises TallmasksError if the vectors differ in names or shapes, or lambdas are negative or not ascending.
    """
    alone = isinstance(mask_lambda, int | float | str) or getattr(mask_lambda, "ndim", None) == 0
    try:
        grid = [] if isinstance(mask_lambda, str) else list(map(float, [mask_lambda] if alone else mask_lambda))
    except (TypeError, ValueError):
        grid = []
    if not grid or grid != sorted(set(grid)) or grid[0] < 0 or len(grid) > 255 or not np.isfinite(grid).all():
        several = "1 to 255 different numbers >= 0, ascending"
        raise TallmasksError(f"mask_lambda is {mask_lambda!r}; expected {'a number >= 0' if alone else several}")
    if isinstance(multi_task_vector, _Merged) and (wanted := multi_task_vector.masked_as):
        warn(f"multi_task_vector: the paper computes masks from {wanted}; pass merge(task_vectors, {wanted!r})")
    own, merged = _fitting({"task_vector": task_vector, "multi_task_vector": multi_task_vector})
    planes = np.empty((len(grid).bit_length(), -(-own.values.size // 8)), np.uint8)
    kernels.pack_levels([own.values], merged.values, grid, [planes])
    levels = kernels.unpack_levels(planes, own.values.size)
    masks = {value: own.back(levels > index) for index, value in enumerate(grid)}
    return masks[grid[0]] if alone else masks


def agreement(masks: Sequence[StateDict] | Mapping[str, StateDict]) -> Tensors:
    """n, uint8: how many tasks' masks keep each weight (Wang et al. 2024, Eq. 7).

    Raises TallmasksError if there are not 1 to 255 masks, or if they differ in names or shapes.
    """
    flats = _all(masks, "masks", np.dtype(np.bool_))
    if len(flats) > 255:
        raise TallmasksError(f"found {len(flats)} masks; expected at most 255")
    total = np.zeros(flats[0].values.size, np.uint8)
    for flat in flats:
        total += flat.values
    return flats[0].back(total)


def consensus(multi_task_vector: StateDict, agreement: StateDict, k: int = 2) -> Tensors:
    """tau_MTL without the weights that fewer than k masks keep, float32 (Wang et al. 2024, Eq. 8 and 9).

    Args:
        agreement: result of `agreement` for the masks at each task's lambda.
        k: the threshold; 0 keeps everything.

    Raises TallmasksError if k is not an integer, negative, or larger than every n, so that nothing would be kept.
    """
    merged, count = _fitting(
        {"multi_task_vector": multi_task_vector, "agreement": agreement}, {"agreement": np.dtype(np.uint8)}
    )
    most = int(count.values.max(initial=0))
    if not isinstance(k, int | np.integer) or not 0 <= k <= most:
        raise TallmasksError(f"k is {k!r}; expected a whole number from 0 to {most}, the largest number in `agreement`")
    return merged.back(keep_agreed(merged.values, count.values, k=k))


def apply_mask(multi_task_vector: StateDict, mask: StateDict) -> Tensors:
    """m_t * tau_MTL, float32: the update of one task."""
    merged, kept = _fitting({"multi_task_vector": multi_task_vector, "mask": mask}, {"mask": np.dtype(np.bool_)})
    return merged.back(apply_mask_to_flat(merged.values, kept.values))


def apply(base: Model, update: StateDict, scaling_coefficient: float = 1.0) -> Tensors:
    """theta_0 + alpha * update: a complete state dict in the dtypes of ``base``.

    Buffers (see `task_vector`) and tensors without an update stay as in ``base``.

    Raises TallmasksError if the update has a name or shape that the base does not have, a sum is too large for the
    base's dtype, or the scaling coefficient is not finite.
    """
    state = _state_dict(base, _opened(base), "base")
    before, change = _flats({"base": state, "update": update}, left_out=_buffers([(base, state)]))
    if difference := change.layout.describe_difference(before.layout):
        raise TallmasksError(f"the update does not fit the base model: {difference}")
    with np.errstate(invalid="ignore", over="ignore"):
        summed = before.values + np.float32(scaling_coefficient) * change.values
    return {**state, **before.back(summed, "base + update", in_its_types=True)}


@dataclass(frozen=True)
class _Flat:
    """A state dict as one vector. ``like``: the state dict; ``tied``: main names by alias."""

    values: NDArray[Any]
    layout: Layout
    like: StateDict
    tied: Mapping[str, str]

    def back(self, values: NDArray[Any], what: str = "", *, in_its_types: bool = False) -> Tensors:
        """Converts a vector to tensors of the original kind in the original order. Tied names share one tensor."""
        parts = self.layout.split(values)
        if values.dtype == np.float32:
            _check_finite(parts, what)
        new = {name: _of_kind(self.like[name], part) for name, part in parts.items()}
        if in_its_types:
            new = {name: _of_dtype(self.like[name], part, f"{what}: tensor {name}") for name, part in new.items()}
        return {name: new[own] for name in self.like if (own := self.tied.get(name, name)) in new}


def _flats(
    given: Mapping[str, StateDict], dtypes: Mapping[str, Any] | None = None, left_out: Collection[str] = ()
) -> list[_Flat]:
    """State dicts as vectors: all float tensors, as float32, or the tensors of the given dtype.

    Tensors are treated as tied if they are tied in all state dicts.
    """
    every = [_tied(tensors, what) for what, tensors in given.items()]
    tied = {name: own for name, own in every[0].items() if all(other.get(name) == own for other in every)}
    flats = []
    for what, tensors in given.items():
        dtype = (dtypes or {}).get(what)
        own = {name: tensor for name, tensor in tensors.items() if name not in tied and name not in left_out}
        for name, tensor in own.items() if dtype is None else ():
            kind = str(getattr(tensor, "dtype", "")).removeprefix("torch.")
            sign = quantised_tensor(name, kind, tuple(getattr(tensor, "shape", ())))
            if sign := f"{name} is {kind}" if kind.startswith(("qint", "quint")) else sign:
                raise TallmasksError(f"{what} is quantised: {sign}; expected 16 bits or more; dequantise it first")
        arrays = {name: array for name, tensor in own.items() if (array := _array(tensor, dtype)) is not None}
        if not arrays:
            found = {str(getattr(one, "dtype", type(one).__name__)).removeprefix("torch.") for one in own.values()}
            raise TallmasksError(
                f"{what}: found {name_some(sorted(found)) or 'nothing'}; expected a state dict with tensors of "
                f"{dtype or 'floats'}"
            )
        _check_finite(arrays, what)
        layout = Layout.of(arrays)
        values = np.concatenate([arrays[name].reshape(-1) for name in layout.names])
        flats.append(_Flat(values, layout, tensors, tied))
    return flats


def _check_finite(arrays: Mapping[str, NDArray[Any]], what: str) -> None:
    if bad := [name for name, array in arrays.items() if not np.isfinite(array).all()]:
        raise TallmasksError(f"{what} holds NaN or infinity in {name_some(bad)}")


def _fitting(given: Mapping[str, StateDict], dtypes: Mapping[str, np.dtype[Any]] | None = None) -> list[_Flat]:
    """Like `_flats`; raises TallmasksError unless all have the same names and shapes."""
    flats = _flats(given, dtypes)
    first, *names = given
    for name, other in zip(names, flats[1:], strict=True):
        if difference := flats[0].layout.describe_difference(other.layout):
            raise TallmasksError(f"{name} does not fit {first}: {difference}; pass tensors of one model")
    return flats


def _all(given: Sequence[StateDict] | Mapping[str, StateDict], what: str, dtype: Any = None) -> list[_Flat]:
    named = given if isinstance(given, Mapping) else {f"{what} {number}": one for number, one in enumerate(given, 1)}
    if not named:
        raise TallmasksError(f"found no {what}; expected a list of {what}, or {what} by task")
    return _fitting(
        {str(name): one for name, one in named.items()}, dict.fromkeys(map(str, named), dtype) if dtype else None
    )


def _opened(model: Model, base: Checkpoint | None = None) -> Checkpoint | None:
    return open_model(os.fspath(model), base) if isinstance(model, str | PathLike) else None


def _state_dict(model: Model, checkpoint: Checkpoint | None, what: str) -> StateDict:
    if checkpoint is None:
        state = model.state_dict() if _is_module(model) else model
        if not isinstance(state, Mapping):
            raise TallmasksError(f"{what}: found {type(state).__name__}; expected a state dict, a module or a path")
        return state
    tensors = {
        name: checkpoint.float32(name) if info.is_float else checkpoint.arrays[name]
        for name, info in checkpoint.tensors.items()
    }
    return tensors | {alias: tensors[name] for alias, name in checkpoint.aliases.items()}


def _buffers(models: Iterable[tuple[Model, StateDict]]) -> set[str]:
    """The names of the buffers of models, given with their state dicts. Without a module they are known by name."""
    buffers: set[str] = set()
    parameters: set[str] = set()
    for model, state in models:
        if _is_module(model):
            buffers |= {name for name, _ in model.named_buffers(remove_duplicate=False)}
            parameters |= {name for name, _ in model.named_parameters(remove_duplicate=False)}
        else:
            buffers |= buffers_among({str(name): np.shape(tensor) for name, tensor in state.items()}).keys()
    return buffers - parameters


def _differ(name: str, *states: StateDict) -> bool:
    one, other = (_array(state[name], None) if name in state else None for state in states)
    return one is not None and other is not None and not np.array_equal(one, other)


def _tied(tensors: StateDict, what: str) -> dict[str, str]:
    """The main names (first in sorted order) of tied tensors, by alias. Raises TallmasksError for a wrong type."""
    if not isinstance(tensors, Mapping):
        raise TallmasksError(f"{what}: found {type(tensors).__name__}; expected a state dict, tensors by name")
    first: dict[Any, str] = {}
    tied = {}
    for name in sorted(tensors):
        if (key := _memory_key(tensors[name], f"{what}: tensor {name}")) and first.setdefault(key, name) != name:
            tied[name] = first[key]
    return tied


def _memory_key(tensor: Any, what: str) -> Any:
    """A key that is equal for tensors that share all their memory; None for a tensor without values."""
    if isinstance(tensor, np.ndarray):
        return (tensor.ctypes.data, tensor.shape, tensor.strides, tensor.dtype) if tensor.size else None
    if not _is_torch(tensor):
        return None
    if tensor.is_meta or str(tensor.layout) != "torch.strided":
        raise TallmasksError(f"{what} is {tensor.layout} on {tensor.device}; expected a dense tensor with values")
    return (tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype) if tensor.numel() else None


def _is_module(given: Any) -> bool:
    return hasattr(given, "state_dict")


def _is_torch(tensor: Any) -> bool:
    torch: Any = sys.modules.get("torch")
    return torch is not None and isinstance(tensor, torch.Tensor)


def _array(tensor: Any, dtype: np.dtype[Any] | None) -> NDArray[Any] | None:
    """The tensor as an array of ``dtype`` (default: any float type, as float32); None if it has another type."""
    if _is_torch(tensor):
        wanted = tensor.is_floating_point() if dtype is None else str(tensor.dtype) == f"torch.{dtype}"
        if not wanted:
            return None
        plain = tensor.detach().cpu()
        return (plain.float() if dtype is None else plain).numpy()
    array = np.asarray(tensor)
    if array.dtype.kind != "f" if dtype is None else array.dtype != dtype:
        return None
    return array.astype(np.float32, copy=False) if dtype is None else array


def _of_kind(like: Any, part: NDArray[Any]) -> Any:
    if not _is_torch(like):
        return part
    import torch

    return torch.from_numpy(part).to(like.device)


def _of_dtype(like: Any, tensor: Any, what: str) -> Any:
    if _is_torch(like):
        new = tensor.to(like.dtype)
        fits = bool(new.isfinite().all())
    else:
        with np.errstate(over="ignore"):
            new = tensor.astype(np.asarray(like).dtype)
        fits = bool(np.isfinite(new).all())
    if not fits:
        kind = str(new.dtype).removeprefix("torch.")
        advice = "use a base in float32 or bfloat16, or a smaller scaling coefficient"
        raise TallmasksError(f"{what} is too large for {kind}; {advice}")
    return new
