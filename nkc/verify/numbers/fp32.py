"""fp32: the exactly rounded fma, bit views and distances in ulp."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nkc.verify.numbers.rounding import widen

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
U32 = NDArray[np.uint32]

UNIT_ROUNDOFF = 2.0**-24
"""Half an ulp at 1: the largest relative error of one rounding to nearest."""
SMALLEST = 2.0**-149
"""Smallest subnormal: twice the largest absolute error of one rounding to nearest near zero."""


def bits(x: ArrayLike) -> U32:
    """Return the bit pattern of every fp32."""
    return np.asarray(x, np.float32).view(np.uint32)


def from_bits(pattern: ArrayLike) -> F32:
    """Return the fp32 of every bit pattern."""
    return np.asarray(pattern, np.uint32).view(np.float32)


def to_odd(high: F64, low: F64) -> F64:
    """Return high + low rounded to odd in float64, for |low| <= ulp(high)/2 (the two parts of an exact sum).

    To odd means: exact where it fits, else whichever of the two neighbours has an odd significand. A later rounding
    to 24 bits then gives what one rounding of the exact sum gives, because 53 >= 24 + 2 (Boldo and Melquiond, 2008).
    """
    even = (np.asarray(high).view(np.uint64) & np.uint64(1)) == 0
    neighbour = np.nextafter(high, np.copysign(np.inf, low))
    return np.where((low != 0) & even & np.isfinite(high), neighbour, high)


def fma(a: ArrayLike, b: ArrayLike, c: ArrayLike) -> F32:
    """Return a*b + c with one rounding to nearest even, subnormals kept.

    The product of two 24-bit significands is exact in float64 (48 bits, exponents within its range). The sum with c
    is split into its rounded value and the exact remainder (Knuth's TwoSum) and rounded to odd, so that the last
    rounding, to fp32, is the only one that shows.
    """
    addend = widen(np.asarray(c, np.float32))
    with np.errstate(invalid="ignore", over="ignore"):
        product = widen(np.asarray(a, np.float32)) * widen(np.asarray(b, np.float32))
        total = product + addend
        back = total - product
        remainder = (product - (total - back)) + (addend - back)
        remainder = np.where(np.isfinite(total), remainder, 0.0)
        return to_odd(total, remainder).astype(np.float32)


def order(x: ArrayLike) -> NDArray[np.int64]:
    """Return each value's place on the fp32 number line: one ulp is one step, both zeros are 0."""
    wide = bits(x).astype(np.int64)
    return np.where(wide & 0x80000000, -(wide & 0x7FFFFFFF), wide)


def ulp_distance(x: ArrayLike, y: ArrayLike) -> NDArray[np.int64]:
    """Return how many fp32 steps lie between x and y; two NaN are 0 apart, a NaN and a number 2^32."""
    x_nan, y_nan = np.isnan(np.asarray(x)), np.isnan(np.asarray(y))
    apart = np.abs(order(x) - order(y))
    return np.where(x_nan & y_nan, 0, np.where(x_nan | y_nan, 1 << 32, apart))
