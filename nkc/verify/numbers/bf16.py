"""bf16: the upper half of an fp32, rounded to nearest even once."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nkc.verify.numbers.rounding import Rounding, round_to, widen

F32 = NDArray[np.float32]
U16 = NDArray[np.uint16]

NAN_BITS = 0x7FC0
"""The quiet NaN this module writes. Hardware writes others (0x7FFF), so compare NaN as NaN, never by bits."""
MAX = float(np.uint32(0x7F7F0000).view(np.float32))
FRACTION_BITS = 7
MIN_EXPONENT = -126


def decode(bits: U16) -> F32:
    """Return the fp32 value of bf16 bits; exact."""
    return (np.asarray(bits, np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)


def encode(x: ArrayLike) -> U16:
    """Return the bf16 bits of every value, nearest even, with one rounding from the precision given.

    A float64 is rounded from its own 53 bits, never through fp32. Past 2^128 (1 - 2^-9) the result is infinity; a
    NaN, whatever its payload, stays NaN.
    """
    value = widen(x)
    nearest = round_to(value, FRACTION_BITS, MIN_EXPONENT, Rounding.NEAREST_EVEN)
    with np.errstate(over="ignore"):
        bits = nearest.astype(np.float32).view(np.uint32)  # exact, or infinity
    return np.where(np.isnan(value), NAN_BITS, bits >> np.uint32(16)).astype(np.uint16)


def rounded(x: ArrayLike) -> F32:
    """Return the bf16 nearest to every value, as fp32."""
    return decode(encode(x))


def order(bits: U16) -> NDArray[np.int64]:
    """Return each value's place on the bf16 number line: one ulp is one step, both zeros are 0."""
    wide = np.asarray(bits, np.int64)
    return np.where(wide & 0x8000, -(wide & 0x7FFF), wide)
