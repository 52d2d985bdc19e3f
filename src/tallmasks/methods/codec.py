"""Decorators of methods that compress each task by itself: `quantizer`, for bundles, and `by_tensor`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallmasks.bundles.streams import Coded, bytes_of_piece, encoded
from tallmasks.bundles.updates import Coding, in_order
from tallmasks.io.tensor_files import Layout
from tallmasks.methods.rows.parts.arrays_and_tensors import array, beside, copied
from tallmasks.parallel import parallel
from tallmasks.vectors.kernels import Vector
from tallmasks.vectors.multiples import Quantized, columns_of, pieces, row_rms, spread, steps_of

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Codec:
    """Attributes:
    coding: what the integers of a bundle are.
    encode: ``(tau, steps_of, name, shape, start, **options) -> (integers, scale)`` for a piece of a tensor: tau float32
        [n] from value ``start`` on; the integers, int32 [n], of steps ``steps_of(scale)``, float32 [rows], and the
        piece's own step. None for differences.
    row_step: the option that is the smallest step of a row (see `steps_of`); without it, all steps are the piece's own.
    """

    coding: Coding
    encode: Callable[..., tuple[NDArray[np.int32], np.float32]] | None = None
    row_step: str | None = None

    def row_step_of(self, options: Mapping[str, Any]) -> float:
        return 0.0 if self.row_step is None else float(options[self.row_step])

    def form(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """What `BundleContents` says of the integers, by field."""
        return {"coding": self.coding, "row_step": self.row_step_of(options)}

    def update(self) -> Callable[..., Any]:
        """The update of a method whose bundles have multiples of steps."""
        assert self.encode is not None
        options = [p for p in inspect.signature(self.encode).parameters.values() if p.kind is p.KEYWORD_ONLY]

        def update(task_vector: Any, pretrained: Any, layout: Layout, **chosen: Any) -> Any:
            values = {option.name: option.default for option in options} | chosen
            tau, theta, out = array(task_vector), array(pretrained), np.empty(layout.size, np.float32)

            def fill(job: tuple[str, Shape, int, int, int]) -> None:
                name, shape, offset, start, stop = job
                here = slice(offset + start, offset + stop)
                rms = row_rms(theta[here], shape, start)
                out[here] = value_of(quantized_piece(self, tau[here], rms, name, shape, start, **values), shape, start)

            parallel(fill, jobs_of(layout))
            return beside(out, task_vector)

        return _with_signature(update, self.encode, ("task_vector", "pretrained", "layout"), options)


LOSSLESS = Codec("bit_deltas")


def quantized_piece(
    codec: Codec, tau: Vector, rms: NDArray[np.float64], name: str, shape: Shape, start: int, **options: Any
) -> Quantized:
    """A piece of a task vector as multiples. ``rms``: of the rows of theta_0 (see `row_rms`)."""
    assert codec.encode is not None
    row_step = codec.row_step_of(options)
    steps = partial(steps_of, rms, row_step=row_step)
    integers, scale = codec.encode(tau, steps, name, shape, start, **options)
    return Quantized(integers, scale, steps(scale))


def encode_bit_deltas(tuned: NDArray, base: NDArray) -> Coded:
    """A piece of a bundle of differences. ``tuned``, ``base``: floats as signed bit patterns, [n]."""
    return encoded(in_order(tuned) - in_order(base))


def encode_piece(
    codec: Codec, tau: Vector, theta: Vector, name: str, shape: Shape, start: int, **options: Any
) -> tuple[Coded, np.float32 | None]:
    """A piece as a bundle stores it, and its step, from the task vector and theta_0, float32 [n]. Differences are those
    of theta_0 + tau, which can differ in the last bit from the fine-tuned weights."""
    if codec.encode is None:
        return encode_bit_deltas(*(np.ascontiguousarray(each).view(np.int32) for each in (theta + tau, theta))), None
    quantized = quantized_piece(codec, tau, row_rms(theta, shape, start), name, shape, start, **options)
    return encoded(quantized.integers), quantized.scale


def coded_bytes(codec: Codec, tau: Vector, theta: Vector, layout: Layout, **options: Any) -> int:
    """The bytes of a task's streams in a bundle, with their lengths and steps. ``tau``, ``theta``: float32 [P']."""

    def nbytes(job: tuple[str, Shape, int, int, int]) -> int:
        name, shape, offset, start, stop = job
        here = slice(offset + start, offset + stop)
        return bytes_of_piece(*encode_piece(codec, tau[here], theta[here], name, shape, start, **options))

    return sum(parallel(nbytes, jobs_of(layout)))


def jobs_of(layout: Layout) -> list[tuple[str, Shape, int, int, int]]:
    """Name, shape and offset of the tensor, and start and stop in it, of every piece."""
    tensors = zip(layout.parts.items(), layout.shapes, strict=True)
    return [(name, shape, part.start, *p) for (name, part), shape in tensors for p in pieces(part.stop - part.start)]


def value_of(quantized: Quantized, shape: Shape, start: int) -> Vector:
    """The update of a piece, float32 [n], from value ``start`` of its tensor on."""
    size = quantized.integers.size
    return quantized.integers.astype(np.float32) * spread(quantized.steps, columns_of(shape), start, size)


def quantizer(*, row_step: str | None = None) -> Callable[[Callable[..., Any]], Codec]:
    """Decorator, placed below `method(...)`: turns a function for one piece of a tensor (see `Codec`) into a method.

    Its keyword-only parameters are the method's options. ``row_step``: the option that is the smallest step of a row.
    """
    return lambda encode: Codec("multiples", encode, row_step)


def by_tensor(compress: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator, placed below `method(...)`: turns a function that compresses and restores one tensor into a method.

    ``compress(tensor, *, options)`` returns the restored tensor. It can have the parameters ``name`` and ``tasks``, the
    number of tasks, too.
    """
    parameters = inspect.signature(compress).parameters

    def update(task_vector: Any, layout: Layout, tasks: int | None = None, **options: Any) -> Any:
        out = copied(task_vector)
        more = {**options, **({"tasks": tasks} if "tasks" in parameters else {})}
        for name, tensor in layout.split(out).items():
            named = {"name": name} if "name" in parameters else {}
            tensor[...] = compress(tensor if tensor.ndim else tensor.reshape(1), **named, **more)
        return out

    options = [p for p in parameters.values() if p.kind is p.KEYWORD_ONLY]
    needs = ("task_vector", "layout", *(["tasks"] if "tasks" in parameters else []))
    return _with_signature(update, compress, needs, options)


def _with_signature(
    update: Callable[..., Any], of: Callable[..., Any], needs: Sequence[str], options: Sequence[inspect.Parameter]
) -> Callable[..., Any]:
    """``update`` with the inputs ``needs`` and these options, and with the name and file of the decorated function."""
    functools.update_wrapper(update, of)
    inputs = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in needs]
    vars(update)["__signature__"] = inspect.Signature([*inputs, *options])
    update.__annotations__ = {option.name: option.annotation for option in options}
    return update
