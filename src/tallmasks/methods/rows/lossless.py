"""Lossless: every fine-tuned model, bit for bit."""

from typing import Any

from tallmasks.methods import LOSSLESS, PerTask, Vector, method, storage_formulas


@method(
    name="lossless",
    order=160,
    title="Lossless",
    paper="after Ning et al. 2024, FM-Delta",
    usage=PerTask(),
    storage=storage_formulas.measured,
    codec=LOSSLESS,
    group="later",
)
def lossless(task_vector: Vector) -> Any:
    """tau_t itself. A bundle stores the difference of the bit patterns of theta_t and theta_0, taken as integers in the
    order of the floats, so that every tensor comes back with the same bits. (The task vector would not do: theta_0 +
    tau_t is rounded.)"""
    return task_vector
