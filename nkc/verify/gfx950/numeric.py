"""Exact arithmetic on numpy arrays: one rounding where the hardware rounds once.

Everything here is a statement about numbers, not about instructions. NaN payloads are not modelled: any NaN
stands for any other, except that conversions give the documented quiet NaN.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_U32 = np.uint32
_TIE = np.uint64(0x10000000)
_LOW = np.uint64(0x1FFFFFFF)
_ONE = np.uint64(1)
_SMALLEST_NORMAL = 2.0**-126
_TINY = (np.uint64(1023 - 126) << np.uint64(53)) - _ONE  # the bits of 2**-126 without the sign, less one


def fma32(a: Array, b: Array, c: Array) -> Array:
    """Return a*b + c for float32 arrays with one rounding to nearest even, denormals kept.

    The float64 product is exact, so only the sum can round. Rounding it a second time to float32 differs from
    rounding once only when the float64 sum is a float32 midpoint or lies in the denormal range: only those
    lanes take the slow way, a round-to-odd sum.
    """
    return round_sum(np.multiply(a, b, dtype=np.float64), c)


def round_sum(exact: Array, c: Array) -> Array:
    """Return exact + c rounded once to float32; `exact` is float64, `c` float32."""
    total = np.asarray(exact + c)
    bits = total.view(np.uint64)
    suspect = (bits & _LOW) == _TIE
    suspect |= (bits << _ONE) - _ONE < _TINY  # denormal, and not zero
    if suspect.any():
        parts = (np.broadcast_to(item, total.shape)[suspect] for item in (exact, c))
        total[suspect] = add_odd(*parts)
    return np.asarray(total.astype(np.float32))


def add_odd(a: Array, b: Array) -> Array:
    """Return the float64 sum rounded to odd: a later rounding to at most 51 bits is then a single rounding."""
    a, b = np.broadcast_arrays(np.asarray(a, np.float64), np.asarray(b, np.float64))
    total = a + b
    back = total - a
    error = (a - (total - back)) + (b - back)
    bits = total.view(np.int64)
    inexact = (error != 0) & np.isfinite(error) & np.isfinite(total) & (bits & 1 == 0)
    # An even result is moved towards the lost part: away from zero when signs agree, else towards zero.
    step = np.where((error > 0) == (total > 0), 1, -1)
    return np.where(inexact, bits + step, bits).view(np.float64)


def fma64(a: Array, b: Array, c: Array) -> Array:
    """Return a*b + c for float64 through Python's exact fractions; slow, used where kernels hardly use it."""
    from fractions import Fraction

    a, b, c = np.broadcast_arrays(a, b, c)
    out = a * b + c
    flat = out.reshape(-1)
    for index, (x, y, z) in enumerate(zip(a.ravel(), b.ravel(), c.ravel(), strict=True)):
        if np.isfinite(x) and np.isfinite(y) and np.isfinite(z):
            exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
            if exact:
                flat[index] = exact.numerator / exact.denominator
    return np.asarray(flat.reshape(out.shape))


def to_bf16(x: Array) -> Array:
    """Return float32 as bfloat16 bits (uint32), nearest even; NaN becomes quiet."""
    bits = np.asarray(x).view(np.uint32)
    rounded = (bits + (_U32(0x7FFF) + (bits >> _U32(16) & _U32(1)))) >> _U32(16)
    return np.where(x != x, (bits >> _U32(16)) | _U32(0x40), rounded)


def from_bf16(bits: Array) -> Array:
    """Return bfloat16 bits as float32, exactly."""
    return (bits.astype(np.uint32) << _U32(16)).view(np.float32)


def to_fp8(x: Array, *, mantissa: int, bias: int, saturate: bool) -> Array:
    """Return float32 as OCP 8-bit float bits (uint32): e4m3fn for (3, 7), e5m2 for (2, 15), nearest even.

    Past the largest finite value: `saturate` gives that value (FP16_OVFL, infinities too), otherwise e4m3fn gives
    NaN and e5m2 infinity. Source: OCP 8-bit floating point specification, conversion modes.
    """
    shift = 23 - mantissa
    bits = np.abs(x).view(np.uint32)
    sign = np.asarray(x).view(np.uint32) >> _U32(24) & _U32(0x80)
    rounded = (bits + _U32((1 << (shift - 1)) - 1) + (bits >> _U32(shift) & _U32(1))) >> _U32(shift)
    normal = rounded.astype(np.int64) - ((127 - bias) << mantissa)
    tiny = np.rint(np.abs(x).astype(np.float64) * 2.0 ** (bias - 1 + mantissa)).clip(0, 1 << (mantissa + 1))
    code = np.where(bits < _U32((128 - bias) << 23), np.nan_to_num(tiny).astype(np.int64), normal)
    e4m3 = mantissa == 3
    largest = 0x7E if e4m3 else 0x7B
    over = 0x7F if e4m3 else 0x7C
    code = np.where(code > largest, largest if saturate else over, code)
    code = np.where(x != x, 0x7F, code)
    return (code.astype(np.uint32) | sign).astype(np.uint32)


def _table(mantissa: int, bias: int) -> Array:
    """Return the 256 values of an OCP 8-bit format as float64."""
    code = np.arange(256)
    exponent = code >> mantissa & ((1 << (7 - mantissa)) - 1)
    fraction = (code & ((1 << mantissa) - 1)) / (1 << mantissa)
    value = np.where(exponent == 0, fraction * 2.0 ** (1 - bias), (1 + fraction) * 2.0 ** (exponent - bias))
    if mantissa == 3:
        value = np.where(code & 0x7F == 0x7F, np.nan, value)
    else:
        special = exponent == 31
        value = np.where(special & (fraction == 0), np.inf, np.where(special, np.nan, value))
    return np.where(code & 0x80, -value, value)


E4M3 = _table(3, 7)
E5M2 = _table(2, 15)


def rcp(x: Array) -> Array:
    """Return 1/x in float32; the hardware is within 1 ulp, this model rounds the float64 quotient once."""
    return np.asarray(np.divide(1.0, x, dtype=np.float64).astype(np.float32))


def ldexp32(x: Array, n: Array | int) -> Array:
    """Return x * 2**n rounded once to float32 (n is clipped to where the result is already zero or infinite)."""
    power = np.clip(n, -400, 400).astype(np.int32)
    return np.asarray(np.ldexp(x.astype(np.float64), power).astype(np.float32))


def exponent(x: Array) -> Array:
    """Return the biased exponent field of float32 values as int64."""
    return (np.asarray(x).view(np.uint32) >> _U32(23) & _U32(0xFF)).astype(np.int64)


def is_denormal(x: Array) -> Array:
    """Return where float32 values are denormal (zero is not)."""
    return np.asarray((x != 0) & (np.abs(x) < np.float32(_SMALLEST_NORMAL)))


def minimum(a: Array, b: Array) -> Array:
    """IEEE minNum: a number beats a NaN, and -0 is below +0."""
    out = np.fmin(a, b)
    return np.where((a == 0) & (b == 0), np.where(np.signbit(a), a, b), out)


def maximum(a: Array, b: Array) -> Array:
    """IEEE maxNum: a number beats a NaN, and +0 is above -0."""
    out = np.fmax(a, b)
    return np.where((a == 0) & (b == 0), np.where(np.signbit(a), b, a), out)


def to_int(x: Array, low: int, high: int) -> Array:
    """Return the value truncated towards zero and clamped to [low, high]; NaN gives 0."""
    y = np.trunc(x.astype(np.float64))
    return np.where(np.isnan(y), 0, np.clip(y, low, high)).astype(np.int64)
