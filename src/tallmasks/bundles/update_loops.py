"""The compiled loops of a bundle: theta_0 + (bit ? scale * tau : +0.0), from packed values to packed values.

Fast-math stays off: one float32 multiplication (for int8 one more, by the row's scale), one addition and one rounding
to nearest even, in this order.  Values come and go as raw bytes with a code of their dtype, so that every loop is
compiled once.  What costs time is the memory: each byte is fetched once.  Only float16, and the last values of a
piece, pass through blocks of ``_BLOCK`` float32, which a core's first cache holds.
"""

import numpy as np
from numba import njit

from tallmasks.vectors import half_floats, lanes

F32, BF16, F16, I8 = 0, 1, 2, 3
"""What raw bytes are."""

_NOTHING = -1
"""The code of a theta_0 that is not there: the update alone is wanted."""
_BLOCK = 2048
_WIDTH = lanes.WIDTH
_LANE_BITS = np.uint64(lanes.WIDTH // 8)
_MAGNITUDE = np.uint32(0x7FFFFFFF)
_BUCKET = np.uint32(20)
_PAGE = np.uint64(4096)


@njit(nogil=True, cache=True)
def widen(raw, code, out):
    """Raw values [n] of F32, BF16 or F16 -> float32 [n]; exact, subnormal numbers included."""
    if code == BF16:
        half_floats.widen_bfloat16(raw.view(np.uint16), out)
    elif code == F16:
        half_floats.widen_float16(raw.view(np.uint16), out)
    else:
        single = raw.view(np.float32)
        for i in range(out.size):
            out[i] = single[i]


@njit(nogil=True, cache=True)
def narrow(values, code, raw):
    """float32 [n] -> raw values [n] of F32, BF16 or F16, rounded to nearest even; NaN stays NaN."""
    patterns = values.view(np.int32)
    if code == BF16:
        half_floats.narrow_bfloat16(patterns, raw.view(np.uint16))
    elif code == F16:
        half_floats.narrow_float16(patterns, raw.view(np.uint16))
    else:
        single = raw.view(np.int32)
        for i in range(values.size):
            single[i] = patterns[i]


@njit(forceinline=True)
def _address(array):
    return np.uint64(array.ctypes.data)


@njit(forceinline=True)
def _lanes_bytes(code):
    """Bytes of sixteen values; uint64, of which and an integer with a sign numba would make a float64."""
    return np.uint64(64 if code == F32 else 16 if code == I8 else 32)


@njit(forceinline=True)
def _loaded(address, code):
    """Sixteen values of F32, BF16 or I8."""
    if code == BF16:
        return lanes.load_bfloat16(address)
    if code == I8:
        return lanes.load_int8(address)
    return lanes.load(address)


@njit(forceinline=True)
def _add_lanes(theta, theta_code, tau, tau_code, row_scales, row, first, bits, scale, out, out_code, count):
    """Addresses, codes (no F16) -> ``count`` values at ``out``, a multiple of sixteen; ``first`` is where they begin
    in the tensor, which says whose row's scale is theirs (I8)."""
    theta_step, tau_step, out_step = _lanes_bytes(theta_code), _lanes_bytes(tau_code), _lanes_bytes(out_code)
    zero, scales = lanes.all_of(np.float32(0)), lanes.all_of(scale)
    mixed = np.empty(_WIDTH, np.float32)
    line, left = first // row, row - first % row
    for _ in range(count // _WIDTH):
        lanes.prefetch(tau + _PAGE)  # processors look ahead no further than to the end of a page
        lanes.prefetch(theta + _PAGE)
        lanes.prefetch(out + _PAGE)
        value = _loaded(tau, tau_code)
        if tau_code == I8:
            if left >= _WIDTH:
                value = lanes.multiply(value, lanes.all_of(row_scales[line]))
                left -= _WIDTH
            else:
                for i in range(_WIDTH):
                    if left == 0:
                        line, left = line + 1, row
                    mixed[i] = row_scales[min(line, row_scales.size - 1)]
                    left -= 1
                value = lanes.multiply(value, lanes.load(_address(mixed)))
            if left == 0:
                line, left = line + 1, row
        value = lanes.chosen(lanes.load_bits(bits), lanes.multiply(value, scales), zero)
        if theta_code != _NOTHING:
            value = lanes.add(_loaded(theta, theta_code), value)
        if out_code == BF16:
            lanes.store_bfloat16(out, value)
        else:
            lanes.store(out, value)
        theta, tau, out, bits = theta + theta_step, tau + tau_step, out + out_step, bits + _LANE_BITS


@njit
def _add(theta, theta_code, tau, tau_code, row_scales, row, first, bits, scale, out, out_code, count):
    """:func:`_add_lanes`, of which the compiler makes a loop of its own where all is BF16: half the bytes leave half
    the time."""
    if theta_code == BF16 and tau_code == BF16 and out_code == BF16:
        _add_lanes(theta, BF16, tau, BF16, row_scales, row, first, bits, scale, out, BF16, count)
    else:
        _add_lanes(theta, theta_code, tau, tau_code, row_scales, row, first, bits, scale, out, out_code, count)


@njit
def _copied(raw, place):
    """The bytes at the front of those of ``place``."""
    for i in range(raw.size):
        place[i] = raw[i]


@njit(nogil=True, cache=True)
def add_updates(
    theta, theta_code, theta_size, raw, code, size, row_scales, row, first, bits, scale, out, out_code, out_size, n
):
    """``out`` raw [n * out_size] = theta_0 raw [n * theta_size] + the update (see :func:`updates`), rounded once."""
    weight, vector, result = np.empty(_BLOCK, np.float32), np.empty(_BLOCK, np.float32), np.empty(_BLOCK, np.float32)
    last_bits = np.empty(_BLOCK // 8, np.uint8)
    half = theta_code == F16 or code == F16 or out_code == F16
    start = 0
    while start < n:
        left = n - start
        count = min(left, _BLOCK) if half or left < _WIDTH else left - left % _WIDTH
        stop, whole = start + count, count % _WIDTH == 0
        before, tau = theta[start * theta_size : stop * theta_size], raw[start * size : stop * size]
        held, after = bits[start // 8 : (stop + 7) // 8], out[start * out_size : stop * out_size]
        theta_at, theta_of, tau_at, tau_of = _address(before), theta_code, _address(tau), code
        out_at, out_of, bits_at = _address(after), out_code, _address(held)
        if theta_code == F16 or not (whole or theta_code == _NOTHING):
            widen(before, theta_code, weight[:count])
            theta_at, theta_of = _address(weight), F32
        if code == I8 and not whole:
            _copied(tau, vector.view(np.uint8))
            tau_at = _address(vector)
        elif code == F16 or not whole:
            widen(tau, code, vector[:count])
            tau_at, tau_of = _address(vector), F32
        if not whole:
            _copied(held, last_bits)
            bits_at = _address(last_bits)
        if out_code == F16 or not whole:
            out_at, out_of = _address(result), F32
        padded = (count + _WIDTH - 1) // _WIDTH * _WIDTH
        _add(theta_at, theta_of, tau_at, tau_of, row_scales, row, first + start, bits_at, scale, out_at, out_of, padded)
        if out_code == F16 or not whole:
            narrow(result[:count], out_code, after)
        start = stop


@njit(nogil=True, cache=True)
def updates(raw, code, size, row_scales, row, first, bits, scale, out):
    """``out`` float32 [n] = the update of values first..first+n of a tensor; ``bits`` begin at value ``first``.

    raw: uint8 [n * size] of tau; row_scales: float32 by row of ``row`` values (I8 only).
    """
    add_updates(
        raw[:0], _NOTHING, 0, raw, code, size, row_scales, row, first, bits, scale, out.view(np.uint8), F32, 4, out.size
    )


@njit(nogil=True, cache=True)
def convert(raw, code, size, out, out_code, out_size, n):
    """``out`` raw [n * out_size] = raw values [n * size] of another dtype of floats, rounded to nearest even."""
    weight = np.empty(_BLOCK, np.float32)
    for start in range(0, n, _BLOCK):
        stop = min(start + _BLOCK, n)
        block = weight[: stop - start]
        widen(raw[start * size : stop * size], code, block)
        narrow(block, out_code, out[start * out_size : stop * out_size])


@njit(nogil=True, cache=True)
def largest_magnitude(values):
    """float32 [n] -> the largest |value|, 0 of none; infinity or NaN where there is one."""
    patterns = values.view(np.uint32)
    largest = np.uint32(0)
    for i in range(patterns.size):
        largest = max(largest, np.uint32(patterns[i] & _MAGNITUDE))
    return np.uint32(largest).view(np.float32)


@njit(nogil=True, cache=True)
def quantise_rows(values, row, scales, out):
    """float32 [rows * row] -> scales float32 [rows], the largest |value| / 127, and int8: value / scale to the nearest.

    Ties go to even, in float32 arithmetic; a row whose scale is 0 becomes zeros.
    """
    for line in range(scales.size):
        start, stop = line * row, (line + 1) * row
        part, levels = values[start:stop], out[start:stop]
        scale = np.float32(largest_magnitude(part) / np.float32(127))
        scales[line] = scale
        for i in range(part.size):
            level = np.float32(0) if scale == 0 else np.rint(part[i] / scale)
            levels[i] = np.int8(min(max(level, np.float32(-127)), np.float32(127)))


@njit(nogil=True, cache=True)
def sort_bits(values, bits, by_magnitude, back):
    """uint8 [n], one a value of float32 [n] -> the same by the magnitude of their values; ``back``: the other way.

    Magnitudes are equal where exponent and the first three bits behind it are; what is equal stays as it lies.
    """
    patterns = values.view(np.uint32)
    ends = np.zeros((1 << 11) + 1, np.int64)
    for i in range(patterns.size):
        ends[np.int64((patterns[i] & _MAGNITUDE) >> _BUCKET) + 1] += 1
    for bucket in range(1 << 11):
        ends[bucket + 1] += ends[bucket]
    for i in range(patterns.size):
        found = np.int64((patterns[i] & _MAGNITUDE) >> _BUCKET)
        place = ends[found]
        ends[found] = place + 1
        if back:
            bits[i] = by_magnitude[place]
        else:
            by_magnitude[place] = bits[i]
