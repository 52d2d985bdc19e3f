"""BitDelta: of each task's own matrices a sign per weight and one magnitude."""

from tallmasks.methods import Vector, method
from tallmasks.methods.parts.arrays_and_tensors import copied, exact
from tallmasks.store.tensor_files import Layout


@method(
    name="bitdelta",
    row=130,
    title="BitDelta",
    section="compression",
    paper="Liu et al. 2024, without distillation",
    protocol="per_task",
    storage="signs",
    over="model",
    group="later",
)
def bitdelta(task_vector: Vector, layout: Layout) -> Vector:
    """sign(D) * mean |D| of every matrix D of tau_t; the rest as it is.

    A bit has no zero: as in the official code (FasterDecoding/BitDelta) a weight that did not move counts as positive.
    That code compresses the linear layers of attention and MLP, and the paper distils the magnitudes from the
    fine-tuned model afterwards; here every 2-D tensor is compressed, and nothing is trained.
    """
    out = copied(task_vector)
    whole = layout.split(out)
    for name, part in layout.split(task_vector).items():
        if part.ndim == 2:
            whole[name][...] = (1.0 - 2.0 * (part < 0)) * float(abs(exact(part)).mean())
    return out
