"""Storage in bits, by the formulas of appendix C of Wang et al. 2024 (one float is 32 bits).

Each function can be a method's ``storage``. Its arguments are T tasks, P' trainable and F frozen parameters, and the
method's options. Functions that count each tensor also take ``shapes``, the shapes of the trainable tensors by name
(default: one square matrix inside a block).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tallmasks.methods.rows.parts.even_levels import is_rounded
from tallmasks.methods.rows.parts.layers_in_blocks import is_layer_in_block
from tallmasks.methods.rows.parts.singular_vectors import is_matrix

FLOAT_BITS = 32


@dataclass(frozen=True)
class Storage:
    """A method's storage in bits; ``lower_bound`` if the true size is larger, ``of_checkpoints`` if the tasks' models
    are checkpoints."""

    bits: int
    lower_bound: bool = False
    of_checkpoints: bool = False

    @property
    def gigabits(self) -> float:
        """In the paper's unit, 1 Gb = 1e9 bits."""
        return self.bits / 1e9


Storing = Callable[..., Storage]
Shapes = Mapping[str, tuple[int, ...]]
NO_SHAPES: Shapes = {}


def single(tasks: int, trainable: int, frozen: int) -> Storage:
    """One model: 32 (P' + F)."""
    return Storage(FLOAT_BITS * (trainable + frozen))


def finetuned(tasks: int, trainable: int, frozen: int) -> Storage:
    """T models that share the frozen parameters: 32 (T P' + F)."""
    return Storage(FLOAT_BITS * (tasks * trainable + frozen), of_checkpoints=True)


def few_values(tasks: int, trainable: int, frozen: int, *, keep: float = 0.03) -> Storage:
    """Lower bound: the pretrained model, and per task 4 bits for each kept value; their positions are not counted."""
    return Storage(FLOAT_BITS * (trainable + frozen) + round(4 * keep * tasks * trainable), lower_bound=True)


def masked(tasks: int, trainable: int, frozen: int, *, bits: int = 32) -> Storage:
    """Pretrained model, multi-task vector of ``bits`` bits b per weight, and one bit per weight and task:
    (32 + b + T) P' + 32 F. In a bundle, vector and masks are compressed, so that its files are smaller."""
    return Storage(FLOAT_BITS * (trainable + frozen) + (bits + tasks) * trainable)


def pruned(tasks: int, trainable: int, frozen: int) -> Storage:
    """Lower bound: like `masked`; the positions of the kept values are not counted."""
    return Storage(masked(tasks, trainable, frozen).bits, lower_bound=True)


def masked_and_scaled(tasks: int, trainable: int, frozen: int) -> Storage:
    """Like `masked`, plus one float per task."""
    return Storage(masked(tasks, trainable, frozen).bits + FLOAT_BITS * tasks)


def low_rank(tasks: int, trainable: int, frozen: int, *, shapes: Shapes = NO_SHAPES) -> Storage:
    """TSV-C: the pretrained model; per task and matrix [m, n], floor(min(m, n) / T) singular triplets of m + n + 1
    floats. Other tensors, and matrices for which that number is 0, are stored whole."""

    def floats(shape: tuple[int, ...]) -> int:
        rank = min(shape) // tasks if is_matrix(shape) else 0
        return rank * (sum(shape) + 1) if rank else math.prod(shape)

    own = sum(FLOAT_BITS * floats(shape) for shape in (shapes or _one_matrix(trainable)).values())
    return Storage(FLOAT_BITS * (trainable + frozen) + tasks * own)


def signs(tasks: int, trainable: int, frozen: int, *, shapes: Shapes = NO_SHAPES) -> Storage:
    """BitDelta: the pretrained model; per task, one bit per weight and one float per linear layer in a block. Other
    tensors are stored whole."""

    def bits_of(name: str, shape: tuple[int, ...]) -> int:
        values = math.prod(shape)
        return values + FLOAT_BITS if is_layer_in_block(name, shape) else FLOAT_BITS * values

    own = sum(bits_of(name, shape) for name, shape in (shapes or _one_matrix(trainable)).items())
    return Storage(FLOAT_BITS * (trainable + frozen) + tasks * own)


def switches(tasks: int, trainable: int, frozen: int, *, shapes: Shapes = NO_SHAPES, drop: float = 0.6) -> Storage:
    """T-Switch: the pretrained model; per task, one bit per weight, one per kept weight and one float per tensor."""
    tensors = (shapes or _one_matrix(trainable)).values()
    own = sum(size + int(size * (1 - drop)) + FLOAT_BITS for size in map(math.prod, tensors))
    return Storage(FLOAT_BITS * (trainable + frozen) + tasks * own)


def measured(tasks: int, trainable: int, frozen: int) -> Storage:
    """The pretrained model. The streams of the tasks are added when they are known: see `Evaluation.coded_bytes`."""
    return Storage(FLOAT_BITS * (trainable + frozen))


def evenly_rounded(tasks: int, trainable: int, frozen: int, *, shapes: Shapes = NO_SHAPES, bits: int = 3) -> Storage:
    """TVQ: the pretrained model; per task, ``bits`` bits per weight of a linear layer or convolution, with a scale and
    a zero point. Other tensors are stored whole."""
    own = _even(shapes or _one_matrix(trainable), bits)
    return Storage(FLOAT_BITS * (trainable + frozen) + tasks * own)


def shared_and_rounded(
    tasks: int, trainable: int, frozen: int, *, shapes: Shapes = NO_SHAPES, shared_bits: int = 3, bits: int = 2
) -> Storage:
    """RTVQ: like `evenly_rounded`, plus a shared vector of ``shared_bits`` bits per weight."""
    shared = _even(shapes or _one_matrix(trainable), shared_bits)
    return Storage(evenly_rounded(tasks, trainable, frozen, shapes=shapes, bits=bits).bits + shared)


def _even(shapes: Shapes, bits: int) -> int:
    each = [(math.prod(shape), is_rounded(name, tuple(shape))) for name, shape in shapes.items()]
    return sum(bits * size + 2 * FLOAT_BITS if rounds else FLOAT_BITS * size for size, rounds in each)


def _one_matrix(trainable: int) -> Shapes:
    return {"blocks.0.weight": (math.isqrt(trainable), math.isqrt(trainable))}
