"""RTVQ: a shared vector and each task's offset from it, rounded to evenly spaced levels."""

from typing import Any

from tallmasks.io.tensor_files import Layout
from tallmasks.methods import PerTask, Vector, method, storage_formulas
from tallmasks.methods.rows.parts.arrays_and_tensors import copied
from tallmasks.methods.rows.parts.even_levels import Bits, evenly_rounded, is_rounded


@method(
    name="rtvq",
    order=156,
    title="RTVQ",
    paper="Kim et al. 2025, RTVQ",
    usage=PerTask(),
    storage=storage_formulas.shared_and_rounded,
    merge="sum",
    group="later",
)
def rtvq(
    task_vector: Vector, multi_task_vector: Vector, layout: Layout, tasks: int, *, shared_bits: Bits = 3, bits: Bits = 2
) -> Any:
    """Q(m) + Q(tau_t - Q(m)): the mean m of the task vectors, rounded to `shared_bits` bits, and each task's offset
    from it, rounded to `bits` bits. Q rounds as TVQ does.

    As in the official code, the offset is that from the rounded mean ("error correction").
    """
    shared = rounded(multi_task_vector / tasks, layout, shared_bits)
    return shared + rounded(task_vector - shared, layout, bits)


def rounded(vector: Any, layout: Layout, bits: int) -> Any:
    """A whole vector as TVQ rounds it, float32 [P']."""
    out = copied(vector)
    for name, tensor in layout.split(out).items():
        if is_rounded(name, tuple(tensor.shape)):
            tensor[...] = evenly_rounded(tensor, bits)
    return out
