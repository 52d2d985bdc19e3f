"""BitDelta: of each task's own matrices a sign per weight and one magnitude."""

from typing import Any

from tallmasks.bundles.codings import Coding, Signs, Whole
from tallmasks.methods import PerTask, Vector, bits, by_tensor, method
from tallmasks.methods.rows.parts.arrays_and_tensors import exact
from tallmasks.methods.rows.parts.layers_in_blocks import is_layer_in_block


def coding(shape: tuple[int, ...], name: str) -> Coding:
    """Signs of a layer's matrix."""
    return Signs(shape) if is_layer_in_block(name, shape) else Whole(shape)


@method(
    name="bitdelta",
    row=130,
    title="BitDelta",
    paper="Liu et al. 2024, without distillation",
    protocol=PerTask(),
    storage=bits.signs,
    group="later",
)
@by_tensor(coding)
def bitdelta(matrix: Vector, coding: Coding) -> tuple[Any, float]:
    """sign(D) * mean |D| of every matrix D of tau_t that is a linear layer of a numbered block; the rest as it is.

    A bit has no zero: as in the official code (FasterDecoding/BitDelta) a weight that did not move counts as positive.
    So tables, of which most rows do not move, are stored whole, and heads too.  That code compresses the linear layers
    of attention and MLP alone as well.  The paper distils the magnitudes from the fine-tuned model afterwards; here
    nothing is trained.
    """
    return matrix < 0, float(abs(exact(matrix)).mean())
