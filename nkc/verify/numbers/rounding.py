"""Rounding a float64 to fewer fraction bits: the one primitive under every narrower format."""

from __future__ import annotations

from enum import Enum

import numpy as np
from numpy.typing import ArrayLike, NDArray

F64 = NDArray[np.float64]

OF_ZERO = -5000


class Rounding(Enum):
    """How the bits that do not fit are dropped."""

    NEAREST_EVEN = "nearest_even"
    TRUNCATE = "truncate"  # toward zero


def widen(x: ArrayLike) -> F64:
    """Return float64 of every value; exact. A signalling NaN, legal in any buffer, is no reason for a warning."""
    with np.errstate(invalid="ignore"):
        return np.asarray(x, np.float64)


def exponent_of(x: F64) -> NDArray[np.int64]:
    """Return floor(log2 |x|); `OF_ZERO`, below every other, for zero; meaningless for infinity and NaN."""
    return np.where(x == 0, OF_ZERO, np.frexp(x)[1].astype(np.int64) - 1)


def round_to(x: F64, fraction_bits: int, min_exponent: int, rounding: Rounding) -> F64:
    """Return `x` rounded to `fraction_bits` below its leading bit, or below 2^min_exponent where that is larger.

    Exact: scaling by a power of two and rounding to an integer lose nothing else in float64 as long as the quantum
    2^(min_exponent - fraction_bits) is at least 2^-1074. Overflow is the caller's affair; infinity and NaN pass.
    """
    x = np.asarray(x, np.float64)
    quantum_exponent = np.maximum(exponent_of(x), min_exponent) - fraction_bits
    scaled = np.ldexp(x, -quantum_exponent)
    whole = np.rint(scaled) if rounding is Rounding.NEAREST_EVEN else np.trunc(scaled)
    return np.where(np.isfinite(x), np.ldexp(whole, quantum_exponent), x)
