"""The compiled loops of a bundle: theta_0 + (bit ? scale * tau : +0.0), from packed values to packed values.

Fast-math stays off: one float32 multiplication (for int8 one more, by the row's scale), one addition and one rounding
to nearest even, in this order.  Values come and go as raw bytes with a code of their dtype, so that every loop is
compiled once; they pass through blocks of ``_BLOCK`` values, which a core's first cache holds.
"""

import numpy as np
from numba import njit

F32, BF16, F16, I8 = 0, 1, 2, 3
"""What raw bytes are."""

_BLOCK = 2048
_SIXTEEN = np.uint32(16)
_ONE = np.uint32(1)
_MAGNITUDE = np.uint32(0x7FFFFFFF)
_INFINITY = np.uint32(0x7F800000)
_ONE_HALF = np.uint32(0x3F000000)
_LOST = np.uint32(13)
_REBIAS = np.uint32(112 << 23)
_HALF_SIGN = np.uint32(0x8000)
_HALF_MAGNITUDE = np.uint32(0x7FFF)
_HALF_NORMAL = np.uint32(1 << 23)
_HALF_INFINITY = np.uint32(31 << 23)
_SMALLEST_NORMAL = np.float32(2.0**-14)
_EACH_BYTE = np.uint64(0x0101010101010101)
_DIAGONAL = np.uint64(0x8040201008040201)
_CARRY = np.uint64(0x7F7F7F7F7F7F7F7F)
_SEVEN = np.uint64(7)
_BUCKET = np.uint32(20)


@njit(nogil=True, cache=True)
def unpack_bits(bits, words):
    """uint8 [m] -> uint64 [m]: a byte of 0 or 1 for each bit, the lowest bit first."""
    for j in range(bits.size):
        words[j] = ((((np.uint64(bits[j]) * _EACH_BYTE) & _DIAGONAL) + _CARRY) >> _SEVEN) & _EACH_BYTE


@njit
def _from_bfloat16(upper):
    return np.uint32(np.uint32(upper) << _SIXTEEN).view(np.float32)


@njit
def _to_bfloat16(pattern):
    """The bits of a float32 -> those of the nearest bfloat16, ties to even; NaN stays NaN."""
    rounded = np.uint32(pattern + np.uint32(0x7FFF) + (np.uint32(pattern >> _SIXTEEN) & _ONE))
    quiet = np.uint32(pattern | np.uint32(0x400000))
    return np.uint16((quiet if np.uint32(pattern & _MAGNITUDE) > _INFINITY else rounded) >> _SIXTEEN)


@njit(nogil=True, cache=True)
def widen(raw, code, out):
    """Raw values [n] of F32, BF16 or F16 -> float32 [n]; exact, subnormal numbers included."""
    patterns = out.view(np.uint32)
    if code == F32:
        single = raw.view(np.float32)
        for i in range(out.size):
            out[i] = single[i]
    elif code == BF16:
        upper = raw.view(np.uint16)
        for i in range(out.size):
            out[i] = _from_bfloat16(upper[i])
    else:
        half = raw.view(np.uint16)
        for i in range(out.size):
            pattern = np.uint32(half[i])
            shifted = np.uint32((pattern & _HALF_MAGNITUDE) << _LOST)
            biased = np.uint32(shifted + _REBIAS)
            # without a subnormal float32 on the way, which a processor may be told to flush
            small = np.float32(np.uint32(biased + _HALF_NORMAL).view(np.float32) - _SMALLEST_NORMAL)
            magnitude = np.uint32(biased + _REBIAS) if shifted >= _HALF_INFINITY else biased
            magnitude = small.view(np.uint32) if shifted < _HALF_NORMAL else magnitude
            patterns[i] = np.uint32((pattern & _HALF_SIGN) << _SIXTEEN) | magnitude


@njit(nogil=True, cache=True)
def narrow(values, code, raw):
    """float32 [n] -> raw values [n] of F32, BF16 or F16, rounded to nearest even; NaN stays NaN."""
    patterns = values.view(np.uint32)
    if code == F32:
        single = raw.view(np.uint32)
        for i in range(values.size):
            single[i] = patterns[i]
    elif code == BF16:
        upper = raw.view(np.uint16)
        for i in range(values.size):
            upper[i] = _to_bfloat16(patterns[i])
    else:
        half = raw.view(np.uint16)
        for i in range(values.size):
            magnitude = np.uint32(patterns[i] & _MAGNITUDE)
            # adding 0.5 leaves the subnormal half, rounded, in the lowest bits
            shifted = np.float32(magnitude.view(np.float32) + np.float32(0.5))
            small = np.uint32(shifted.view(np.uint32) - _ONE_HALF)
            odd = np.uint32(magnitude >> _LOST) & _ONE
            rounded = np.uint32(np.uint32(magnitude - _REBIAS + np.uint32(0xFFF) + odd) >> _LOST)
            special = np.uint32(0x7E00) if magnitude > _INFINITY else np.uint32(0x7C00)
            result = special if magnitude >= np.uint32(0x47800000) else rounded
            result = small if magnitude < np.uint32(0x38800000) else result
            half[i] = np.uint16((np.uint32(patterns[i] >> _SIXTEEN) & _HALF_SIGN) | result)


@njit(nogil=True, cache=True)
def _masked_block(raw, code, row_scales, row, first, keep, scale, out):
    """``out`` float32 [n] = scale * tau where ``keep`` uint8 [n] is 1, else +0.0."""
    zero = np.float32(0)
    if code == F32:
        single = raw.view(np.float32)
        for i in range(out.size):
            value = single[i] * scale
            out[i] = value if keep[i] else zero
    elif code == I8:
        small = raw.view(np.int8)
        start = 0
        while start < out.size:
            line = (first + start) // row
            stop = min(out.size, (line + 1) * row - first)
            row_scale = row_scales[line]
            # slices, since an index that may be negative keeps the loop from being vectorised
            levels, held, result = small[start:stop], keep[start:stop], out[start:stop]
            for i in range(result.size):
                value = (np.float32(levels[i]) * row_scale) * scale
                result[i] = value if held[i] else zero
            start = stop
    else:
        widen(raw, code, out)
        for i in range(out.size):
            value = out[i] * scale
            out[i] = value if keep[i] else zero


@njit(nogil=True, cache=True)
def _add_bfloat16(theta, tau, keep, scale, raw):
    """What the steps of :func:`add_updates` give where all is BF16, in one: half the bytes leave half the time."""
    out = raw.view(np.uint16)
    for i in range(out.size):
        value = _from_bfloat16(tau[i]) * scale
        update = value if keep[i] else np.float32(0)
        total = np.float32(_from_bfloat16(theta[i]) + update)
        out[i] = _to_bfloat16(total.view(np.uint32))


@njit(nogil=True, cache=True)
def updates(raw, code, size, row_scales, row, first, bits, scale, out):
    """``out`` float32 [n] = the update of values first..first+n of a tensor; ``bits`` begin at value ``first``.

    raw: uint8 [n * size] of tau; row_scales: float32 by row of ``row`` values (I8 only).
    """
    words = np.empty(_BLOCK // 8, np.uint64)
    keep = words.view(np.uint8)
    for start in range(0, out.size, _BLOCK):
        stop = min(start + _BLOCK, out.size)
        unpack_bits(bits[start // 8 : (stop + 7) // 8], words)
        part = raw[start * size : stop * size]
        _masked_block(part, code, row_scales, row, first + start, keep, scale, out[start:stop])


@njit(nogil=True, cache=True)
def add_updates(
    theta, theta_code, theta_size, raw, code, size, row_scales, row, first, bits, scale, out, out_code, out_size, n
):
    """``out`` raw [n * out_size] = theta_0 raw [n * theta_size] + the update (see :func:`updates`), rounded once."""
    words = np.empty(_BLOCK // 8, np.uint64)
    keep = words.view(np.uint8)
    update = np.empty(_BLOCK, np.float32)
    weight = np.empty(_BLOCK, np.float32)
    for start in range(0, n, _BLOCK):
        stop = min(start + _BLOCK, n)
        count = stop - start
        unpack_bits(bits[start // 8 : (stop + 7) // 8], words)
        block = update[:count]
        before = theta[start * theta_size : stop * theta_size]
        after = out[start * out_size : stop * out_size]
        if theta_code == BF16 and code == BF16 and out_code == BF16:
            _add_bfloat16(before.view(np.uint16), raw[start * 2 : stop * 2].view(np.uint16), keep, scale, after)
            continue
        _masked_block(raw[start * size : stop * size], code, row_scales, row, first + start, keep, scale, block)
        if theta_code == F32 and out_code == F32:
            single, result = before.view(np.float32), after.view(np.float32)
            for i in range(count):
                result[i] = single[i] + block[i]
        else:
            widen(before, theta_code, weight[:count])
            for i in range(count):
                block[i] = weight[i] + block[i]
            narrow(block, out_code, after)


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
