"""The paper's steps on state dicts in memory: tensors by name, of torch or of NumPy, in any float type.

Everything is computed in float32, as in the workflow, and comes back as what went in: torch tensors on their device, or
NumPy arrays.  torch is imported only where tensors are given.  Tensors that are not of floats (counters, say) are no
part of a task vector.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from tallmasks.masks.bundles import apply_mask as apply_mask_to_flat
from tallmasks.masks.consensus import keep_agreed
from tallmasks.methods import registry
from tallmasks.store.errors import TallmasksError
from tallmasks.store.tensor_files import Layout, name_some
from tallmasks.vectors import kernels
from tallmasks.vectors.task_vectors import TaskVector

StateDict = Mapping[str, Any]
"""Tensors or arrays by name."""
Tensors = dict[str, Any]


def task_vector(base: StateDict, finetuned: StateDict) -> Tensors:
    """tau = theta_t - theta_0, float32, for every tensor of floats (Ilharco et al. 2023).

    Args:
        base: the pretrained model's state dict.
        finetuned: the fine-tuned one's, with the same names and shapes.

    Raises:
        TallmasksError: names or shapes differ, or a value is NaN, infinite or too large to subtract in float32.
    """
    before, after = _Flat.of(base, "base"), _Flat.of(finetuned, "finetuned")
    if difference := before.layout.describe_difference(after.layout):
        raise TallmasksError(f"the fine-tuned model does not fit the base model: {difference}")
    with np.errstate(invalid="ignore", over="ignore"):
        return before.back(after.values - before.values, "finetuned - base")


def merge(task_vectors: Sequence[StateDict] | Mapping[str, StateDict], name: str = "sum", **options: Any) -> Tensors:
    """tau_MTL, float32: task vectors of one model, merged.

    Args:
        task_vectors: in any order that counts for no merge; or by task.
        name: "sum", "ties_sum", "ties_mean", "iso_c", ...: `merges` lists them.
        options: of the merge, as ``keep=0.1`` for TIES.

    Raises:
        TallmasksError: there is no such merge or option, no task vector, or they differ in names or shapes.
    """
    flats = _all(task_vectors)
    chosen = registry.get_merge(registry.with_options(name, options))
    out = np.empty_like(flats[0].values)
    chosen([TaskVector(flat.values, flat.layout, {}) for flat in flats], out)
    return flats[0].back(out, name)


def merges() -> tuple[str, ...]:
    """The names of all merges."""
    return registry.merge_names()


@overload
def tall_mask(task_vector: StateDict, multi_task_vector: StateDict, mask_lambda: float) -> Tensors: ...
@overload
def tall_mask(
    task_vector: StateDict, multi_task_vector: StateDict, mask_lambda: Sequence[float]
) -> dict[float, Tensors]: ...
def tall_mask(task_vector: StateDict, multi_task_vector: StateDict, mask_lambda: Any) -> Any:
    """m_t = 1{|tau_t| >= lambda |tau_MTL - tau_t|}, bool (Wang et al. 2024, Eq. 4 and 5).

    Args:
        task_vector: of one task.
        multi_task_vector: what `merge` gave.
        mask_lambda: the lambda; or several, ascending, for a mask for each of them, by lambda.

    Raises:
        TallmasksError: the vectors differ in names or shapes, or lambdas are not ascending from 0.
    """
    grid = [float(mask_lambda)] if isinstance(mask_lambda, int | float) else [float(value) for value in mask_lambda]
    if not grid or grid != sorted(set(grid)) or grid[0] < 0 or len(grid) > 255 or not np.isfinite(grid).all():
        raise TallmasksError(f"mask_lambda is {mask_lambda}; expected 1 to 255 different numbers from 0 up, ascending")
    own, merged = _all([task_vector, multi_task_vector])
    planes = np.empty((len(grid).bit_length(), -(-own.values.size // 8)), np.uint8)
    kernels.pack_levels([own.values], merged.values, grid, [planes])
    found = {
        value: own.back(
            np.unpackbits(kernels.packed_mask(planes, place), count=own.values.size, bitorder="little").view(np.bool_)
        )
        for place, value in enumerate(grid)
    }
    return found[grid[0]] if isinstance(mask_lambda, int | float) else found


def agreement(masks: Sequence[StateDict] | Mapping[str, StateDict]) -> Tensors:
    """n, uint8: how many tasks' masks hold each weight (Wang et al. 2024, Eq. 7).

    Raises:
        TallmasksError: there is no mask, or more than 255, or they differ in names or shapes.
    """
    flats = _all(masks, np.dtype(np.bool_))
    if len(flats) > 255:
        raise TallmasksError(f"{len(flats)} masks; 255 can be counted")
    total = np.zeros(flats[0].values.size, np.uint8)
    for flat in flats:
        total += flat.values
    return flats[0].back(total)


def consensus(multi_task_vector: StateDict, agreement: StateDict, k: int = 2) -> Tensors:
    """tau_MTL without the weights that fewer than k tasks need, float32 (Wang et al. 2024, Eq. 8 and 9).

    Args:
        multi_task_vector: what `merge` gave.
        agreement: what `agreement` gave, of the masks at each task's lambda.
        k: the threshold; 0 keeps everything.
    """
    (merged,) = _all([multi_task_vector])
    (count,) = _all([agreement], np.dtype(np.uint8))
    _check_layouts([merged, count])
    return merged.back(keep_agreed(merged.values, count.values, k))


def apply_mask(multi_task_vector: StateDict, mask: StateDict) -> Tensors:
    """m_t * tau_MTL, float32: what one task takes of the merged vector."""
    (merged,) = _all([multi_task_vector])
    (kept,) = _all([mask], np.dtype(np.bool_))
    _check_layouts([merged, kept])
    return merged.back(apply_mask_to_flat(merged.values, kept.values))


def apply(base: StateDict, update: StateDict, scaling_coefficient: float = 1.0) -> Tensors:
    """theta_0 + alpha * update: a whole state dict in the types of ``base``, whose other tensors stay as they are.

    Raises:
        TallmasksError: the update has a name or a shape that the base model has not.
    """
    before, change = _Flat.of(base, "base"), _Flat.of(update, "update")
    if difference := change.layout.describe_difference(before.layout):
        raise TallmasksError(f"the update does not fit the base model: {difference}")
    new = before.back(before.values + np.float32(scaling_coefficient) * change.values, "base + update")
    return {name: _as(new[name], tensor) if name in new else tensor for name, tensor in base.items()}


# -- flat vectors ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Flat:
    """A state dict as one vector, and what it came from."""

    values: NDArray[Any]
    layout: Layout
    like: StateDict

    @classmethod
    def of(cls, tensors: StateDict, what: str, dtype: np.dtype[Any] | None = None) -> _Flat:
        """The tensors of floats of a state dict, as float32; or those of another type."""
        arrays = {name: found for name, tensor in tensors.items() if (found := _array(tensor, dtype)) is not None}
        if not arrays:
            raise TallmasksError(f"{what}: found no tensors of {dtype or 'floats'}; expected a state dict")
        names = tuple(sorted(arrays))
        layout = Layout(names, tuple(arrays[name].shape for name in names))
        return cls(np.concatenate([arrays[name].reshape(-1) for name in names]), layout, tensors)

    def back(self, values: NDArray[Any], what: str = "") -> Tensors:
        """A vector as tensors of the kind that this came from, in their order."""
        if values.dtype == np.float32 and not np.isfinite(values).all():
            bad = [name for name, part in self.layout.split(values).items() if not np.isfinite(part).all()]
            raise TallmasksError(f"{what} holds NaN or infinity in {name_some(bad)}")
        parts = self.layout.split(values)
        return {name: _kind(parts[name], tensor) for name, tensor in self.like.items() if name in parts}


def _all(given: Sequence[StateDict] | Mapping[str, StateDict], dtype: np.dtype[Any] | None = None) -> list[_Flat]:
    named = given.items() if isinstance(given, Mapping) else enumerate(given, 1)
    flats = [_Flat.of(tensors, str(name), dtype) for name, tensors in named]
    if not flats:
        raise TallmasksError("nothing was given; expected one state dict at least")
    _check_layouts(flats)
    return flats


def _check_layouts(flats: Iterable[_Flat]) -> None:
    first, *others = flats
    for other in others:
        if difference := first.layout.describe_difference(other.layout):
            raise TallmasksError(f"these are of different models: {difference}")


def _is_torch(tensor: Any) -> bool:
    return type(tensor).__module__.partition(".")[0] == "torch"


def _array(tensor: Any, dtype: np.dtype[Any] | None) -> NDArray[Any] | None:
    """A tensor as an array of a dtype, of float32 where that is None; None where it is of another kind."""
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


def _kind(part: NDArray[Any], like: Any) -> Any:
    """An array as a tensor, where `like` is one, on its device."""
    if not _is_torch(like):
        return part
    import torch

    return torch.from_numpy(part).to(like.device)


def _as(tensor: Any, like: Any) -> Any:
    """A tensor or an array in the type of another."""
    return tensor.to(like.dtype) if _is_torch(like) else tensor.astype(np.asarray(like).dtype)
