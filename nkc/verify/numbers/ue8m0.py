"""UE8M0: a scale that is a power of two, stored as its biased exponent alone (OCP Microscaling Formats 1.0, 5.4.1).

Code c means 2^(c - 127); 255 is NaN; there is no zero, no sign, no infinity. 2^-127 is a subnormal fp32.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nkc.verify.numbers.rounding import widen

F32 = NDArray[np.float32]
U8 = NDArray[np.uint8]

BIAS = 127
MAX_CODE = 254
NAN_CODE = 255


def decode(codes: U8) -> F32:
    """Return the fp32 value of every code; exact."""
    wide = np.asarray(codes, np.int64)
    return np.where(wide == NAN_CODE, np.nan, np.ldexp(1.0, wide - BIAS)).astype(np.float32)


def encode_up(scale: ArrayLike) -> U8:
    """Return the code of the smallest power of two that is not below `scale`.

    Rounding up keeps every quantised magnitude at or below the format's largest. Values under 2^-127, zero included,
    become code 0; values past 2^127, infinity included, saturate at 254; NaN and negative values become 255.
    """
    value = widen(scale)
    significand, exponent = np.frexp(np.where(np.isfinite(value), value, 1.0))
    power = exponent.astype(np.int64) - (significand == 0.5)  # frexp's significand is in [0.5, 1)
    code = np.clip(power + BIAS, 0, MAX_CODE)
    code = np.where(value == 0, 0, np.where(np.isposinf(value), MAX_CODE, code))
    return np.where(np.isnan(value) | (value < 0), NAN_CODE, code).astype(np.uint8)
