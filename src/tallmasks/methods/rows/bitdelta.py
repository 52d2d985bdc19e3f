"""BitDelta: each task's matrices as one sign per weight and one magnitude."""

from typing import Any

from tallmasks.methods import PerTask, Vector, by_tensor, method, storage_formulas
from tallmasks.methods.rows.parts.arrays_and_tensors import exact
from tallmasks.methods.rows.parts.layers_in_blocks import is_layer_in_block


@method(
    name="bitdelta",
    order=130,
    title="BitDelta",
    paper="Liu et al. 2024, without distillation",
    usage=PerTask(),
    storage=storage_formulas.signs,
    group="later",
)
@by_tensor
def bitdelta(tensor: Vector, name: str) -> Any:
    """sign(D) * mean |D| for every matrix D of tau_t that is a linear layer in a numbered block; other tensors
    unchanged.

    As in the official code (FasterDecoding/BitDelta), a sign is a single bit, so a weight that did not move counts as
    positive, and only linear layers of attention and MLP are compressed: in embedding tables most rows do not move. The
    paper also trains the magnitudes by distillation; this is not done here.
    """
    if not is_layer_in_block(name, tuple(tensor.shape)):
        return tensor
    return (1.0 - 2.0 * (tensor < 0)) * float(abs(exact(tensor)).mean())
