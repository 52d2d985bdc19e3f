"""The arithmetic of a bundle on the CPU: packed values in pieces on numba's number of threads.

The update of a task is ``scale * tau`` where its bit is set and +0.0 elsewhere, whatever the signs of scale and tau;
a weight is ``round(float32(theta_0) + update)``, so that a theta_0 of -0.0 without a bit becomes +0.0 (IEEE 754).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from tallmasks.store.dtypes import DTYPES

PIECE = 1 << 21
"""Values that a thread takes at once; a multiple of 8."""
CODES = {"F32": 0, "BF16": 1, "F16": 2, "I8": 3}
"""What the compiled loops call the dtypes."""
SIZES = {code: DTYPES[code].width for code in CODES}
_NO_ROWS = np.ones(1, np.float32)

Raw = NDArray[np.uint8]
Item = TypeVar("Item")


class PackedValues(NamedTuple):
    """Values as they are stored: raw bytes and safetensors' code of their dtype."""

    raw: Raw
    dtype: str


class PackedTau(NamedTuple):
    """One flattened tensor of tau_MTL as it is stored.

    ``raw``: its bytes; ``dtype``: F32, BF16, F16 or I8; of the last, ``row_scales`` float32 [rows], one for every
    ``row`` values.
    """

    raw: Raw
    dtype: str
    row_scales: NDArray[np.float32] = _NO_ROWS
    row: int = 1


def update_piece(tau: PackedTau, bits: Raw, scale: float, start: int, stop: int) -> NDArray[np.float32]:
    """The update of values start..stop of a tensor, float32; ``bits`` uint8 [ceil(P / 8)] of the whole tensor."""
    from tallmasks.bundles import update_loops

    first, size = start // 8 * 8, SIZES[tau.dtype]
    out = np.empty(max(stop - first, 0), np.float32)
    update_loops.updates(
        _sealed(tau.raw[first * size : stop * size]), CODES[tau.dtype], size, _sealed(tau.row_scales), tau.row, first,
        _sealed(bits[first // 8 : -(-stop // 8)]), np.float32(scale), out,
    )  # fmt: skip
    return out[start - first :]


def add_update(theta: PackedValues, tau: PackedTau, bits: Raw, scale: float, start: int, out: PackedValues) -> None:
    """``out`` = theta_0 + update for the values from ``start`` (a multiple of 8) on that ``theta`` and ``out`` hold.

    ``tau`` and ``bits`` are of the whole tensor; theta_0 and out F32, BF16 or F16, rounded once to nearest even.
    """
    from tallmasks.bundles import update_loops

    count = out.raw.size // SIZES[out.dtype]
    stop, size = start + count, SIZES[tau.dtype]
    update_loops.add_updates(
        _sealed(theta.raw), CODES[theta.dtype], SIZES[theta.dtype],
        _sealed(tau.raw[start * size : stop * size]), CODES[tau.dtype], size, _sealed(tau.row_scales), tau.row, start,
        _sealed(bits[start // 8 : -(-stop // 8)]), np.float32(scale),
        out.raw, CODES[out.dtype], SIZES[out.dtype], count,
    )  # fmt: skip


def convert(values: PackedValues, out: PackedValues) -> None:
    """``out`` = the values in another dtype (F32, BF16, F16), rounded to nearest even; the same bytes in its own."""
    from tallmasks.bundles import update_loops

    if values.dtype == out.dtype:
        np.copyto(out.raw, values.raw)
        return
    size, out_size = SIZES[values.dtype], SIZES[out.dtype]
    update_loops.convert(
        _sealed(values.raw), CODES[values.dtype], size, out.raw, CODES[out.dtype], out_size, out.raw.size // out_size
    )


def in_parallel(work: Callable[[Item], None], items: Iterable[Item]) -> None:
    """``work`` on every item, on numba's number of threads; the first exception, once no thread works any more."""
    from tallmasks.vectors import loops

    left = iter(tuple(items))  # whose next() one thread at a time runs: a queue without a lock

    def take() -> None:
        try:
            for item in left:
                work(item)
        except BaseException:
            for _ in left:  # nobody begins another one
                pass
            raise

    helpers = loops.threads() - 1
    if helpers == 0:
        take()
        return
    with ThreadPoolExecutor(helpers) as pool:
        shares = [pool.submit(take) for _ in range(helpers)]
        take()
    for share in shares:
        share.result()


def pieces(size: int) -> list[tuple[int, int]]:
    """Start and stop of every piece of ``size`` values."""
    return [(start, min(start + PIECE, size)) for start in range(0, size, PIECE)]


def _sealed(array: NDArray) -> NDArray:
    """A plain read-only view: memory maps and arrays then share one compiled loop."""
    if type(array) is np.ndarray and not array.flags.writeable:
        return array
    view = np.asarray(array)[:]
    view.flags.writeable = False
    return view
