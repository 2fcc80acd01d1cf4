"""The 8-bit formats e4m3fn and e4m3fnuz: all 256 codes from their bits, and encoding with one rounding.

Sources: OCP 8-bit Floating Point Specification (OFP8) 1.0, section 5 (e4m3, here e4m3fn: bias 7, no infinity, NaN at
S.1111.111, largest 448); Noune et al., "8-bit Numerical Formats for Deep Neural Networks", 2022 (the fnuz variants:
bias one higher, no negative zero, the only NaN at 0x80, largest 240).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nkc.verify.numbers.rounding import exponent_of, widen

F32 = NDArray[np.float32]
U8 = NDArray[np.uint8]


class Overflow(Enum):
    """What becomes of a value that rounds past the largest finite code. The two are different contracts."""

    SATURATE = "saturate"  # the largest finite code, infinities included; NaN stays NaN
    IEEE = "ieee"  # NaN: neither format has an infinity


@dataclass(frozen=True, slots=True, kw_only=True)
class Fp8Format:
    """One 8-bit layout: sign, exponent and fraction fields, and which codes are special."""

    name: str
    exponent_bits: int
    fraction_bits: int
    bias: int
    nan_codes: tuple[int, ...]
    max_code: int  # the largest finite positive code
    negative_zero: bool

    @property
    def min_exponent(self) -> int:
        """Exponent of the smallest normal number, and of every subnormal's leading field."""
        return 1 - self.bias

    @property
    def max(self) -> float:
        """Largest finite value."""
        return decode_code(self.max_code, self)


E4M3FN = Fp8Format(
    name="e4m3fn", exponent_bits=4, fraction_bits=3, bias=7, nan_codes=(0x7F, 0xFF), max_code=0x7E, negative_zero=True
)
E4M3FNUZ = Fp8Format(
    name="e4m3fnuz", exponent_bits=4, fraction_bits=3, bias=8, nan_codes=(0x80,), max_code=0x7F, negative_zero=False
)


def decode_code(code: int, fmt: Fp8Format) -> float:
    """Return the value of one code, read field by field. 0x80 is -0.0 in e4m3fn and NaN in e4m3fnuz."""
    if code in fmt.nan_codes:
        return float("nan")
    sign = -1.0 if code >> 7 else 1.0
    exponent = (code >> fmt.fraction_bits) & ((1 << fmt.exponent_bits) - 1)
    fraction = (code & ((1 << fmt.fraction_bits) - 1)) / (1 << fmt.fraction_bits)
    significand = fraction if exponent == 0 else 1.0 + fraction
    return float(sign * significand * 2.0 ** (max(exponent, 1) - fmt.bias))


@functools.cache
def decode_table(fmt: Fp8Format) -> F32:
    """Return the 256 values in code order, read-only; each is exact in fp32 (and in bf16 and f16)."""
    table = np.array([decode_code(code, fmt) for code in range(256)], np.float32)
    table.flags.writeable = False
    return table


def decode(codes: U8, fmt: Fp8Format = E4M3FN) -> F32:
    """Return the fp32 value of every code; any shape."""
    return decode_table(fmt)[np.asarray(codes, np.uint8)]


def is_nan(codes: U8, fmt: Fp8Format = E4M3FN) -> NDArray[np.bool_]:
    """Say which codes are NaN."""
    return np.isin(codes, fmt.nan_codes)


def encode(x: ArrayLike, overflow: Overflow, fmt: Fp8Format = E4M3FN) -> U8:
    """Return the nearest code of every value, ties to even, one rounding from the float64 (or fp32) given.

    Positive codes ascend with their value, so the code is the count of quanta in the value's binade plus the codes
    of the binades below; a carry into the next binade needs no care. NaN becomes the positive NaN code, an overflow
    under `IEEE` keeps its sign where the format has two NaN codes. A negative value that rounds to zero becomes 0x80
    in e4m3fn and 0x00 in e4m3fnuz, where 0x80 would be NaN.
    """
    value = widen(x)
    magnitude = np.abs(value)
    finite = np.isfinite(value)
    safe = np.where(finite, magnitude, 0.0)
    exponent = np.maximum(exponent_of(safe), fmt.min_exponent)
    quanta = np.rint(np.ldexp(safe, fmt.fraction_bits - exponent))
    past_end = exponent > 127  # far beyond any code, and too large for the integer below
    binades = np.where(past_end, 0, exponent - fmt.min_exponent)
    code = (binades << fmt.fraction_bits) + np.where(past_end, 0.0, quanta).astype(np.int64)
    too_large = past_end | (code > fmt.max_code) | np.isinf(value)
    code = np.where(too_large, fmt.max_code if overflow is Overflow.SATURATE else fmt.nan_codes[0], code)
    code = np.where(np.isnan(value), fmt.nan_codes[0], code)
    signed = np.signbit(value) & ~np.isnan(value)
    if not fmt.negative_zero:
        signed &= (code != 0) & ~np.isin(code, fmt.nan_codes)
    return np.where(signed, code | 0x80, code).astype(np.uint8)


def order(codes: U8, fmt: Fp8Format = E4M3FN) -> NDArray[np.int64]:
    """Return each finite code's place on the number line: neighbours differ by one, both zeros are 0."""
    wide = np.asarray(codes, np.int64)
    return np.where(wide & 0x80, -(wide & 0x7F), wide)
