"""group_quant: every 1 x group of a row becomes e4m3fn codes and one scale.

amax = max |x| over the group, floored: max(amax, amax_floor). scale = fl(amax / 448). Then, by flavour,
    divide      code = RNE(fl(x / scale))
    reciprocal  code = RNE(fl(x * fl(1 / scale))), the reciprocal correctly rounded
    multiply    code = RNE(fl(x * fl(448 / amax))), known in the field; no contract asks for it
    ue8m0       scale rounded up to a power of two, code = RNE(x / scale), the division exact
All of it fp32 with IEEE division, so every bit is stated. The floor is on amax, never on scale: an all-zero group has
scale fl(floor / 448) and codes 0; with floor 0 its scale is 1 (and 2^-127 under ue8m0 becomes 1 as well).
Without a floor `reciprocal` and `multiply` overflow for amax below 448 * 2^-128; `divide` and `ue8m0` do not.
NaN: a NaN in the group makes amax, the scale and all codes of the group NaN. Infinity: scale infinity, code NaN at the
infinity, 0 elsewhere; under ue8m0 the scale saturates at 2^127 and the infinity follows the overflow rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from nkc.verify.numbers import fp8, ue8m0
from nkc.verify.numbers.fp8 import E4M3FN, Fp8Format, Overflow

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
U8 = NDArray[np.uint8]

AMAX_FLOOR = np.float32(1e-10)
"""The floor deployments use. 1e-10 / 448 = 2.232e-13, so that a product of two scales and the smallest product of two
codes, 2^-18, stays at 1.9e-31, above fp32's smallest normal 2^-126: no underflow in a GEMM that reads them."""


class Flavour(Enum):
    """How a value meets its scale; each is a numerical id of its own."""

    DIVIDE = "divide"
    RECIPROCAL = "reciprocal"
    MULTIPLY = "multiply"
    UE8M0 = "ue8m0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantised:
    """codes [M, D] u8; scales [M, D / group] fp32; ratio [M, D] float64, what was rounded to a code."""

    codes: U8
    scales: F32
    ratio: F64

    def decoded(self, fmt: Fp8Format = E4M3FN) -> F64:
        """Return code times scale, what a GEMM will read."""
        group = self.codes.shape[1] // max(1, self.scales.shape[1])
        wide = np.repeat(self.scales.astype(np.float64), group, axis=1)
        with np.errstate(invalid="ignore"):
            return fp8.decode(self.codes, fmt) * wide


def group_quant(
    x: F32,
    *,
    flavour: Flavour = Flavour.DIVIDE,
    overflow: Overflow = Overflow.SATURATE,
    amax_floor: float | np.float32 = AMAX_FLOOR,
    group: int = 128,
    fmt: Fp8Format = E4M3FN,
) -> Quantised:
    """Return codes and scales of x [M, D], fp32 (or bf16 decoded, which is exact).

    Errors: ValueError where D is not a multiple of the group.
    """
    m, d = x.shape
    if d % group:
        raise ValueError(f"a row of {d} is not a multiple of the group of {group} (pad the row)")
    parts = np.asarray(x, np.float32).reshape(m, d // group, group)
    amax = group_amax(parts, np.float32(amax_floor))
    with np.errstate(invalid="ignore", over="ignore", under="ignore", divide="ignore"):
        scale = np.where(amax == 0, np.float32(1), amax / np.float32(fmt.max))
        if flavour is Flavour.UE8M0:
            scale = ue8m0.decode(ue8m0.encode_up(scale))
        each = scale[:, :, None]
        match flavour:
            case Flavour.DIVIDE:
                ratio = (parts / each).astype(np.float64)
            case Flavour.RECIPROCAL:
                ratio = (parts * (np.float32(1) / each)).astype(np.float64)
            case Flavour.MULTIPLY:
                factor = np.where(amax == 0, np.float32(1), np.float32(fmt.max) / amax)
                ratio = (parts * factor[:, :, None]).astype(np.float64)
            case Flavour.UE8M0:
                ratio = parts.astype(np.float64) / each  # a power of two: exact
    ratio = ratio.reshape(m, d)
    return Quantised(codes=fp8.encode(ratio, overflow, fmt), scales=scale.astype(np.float32), ratio=ratio)


def group_amax(parts: F32, floor: np.float32) -> F32:
    """Return max(|x|, floor) over the last axis; NaN anywhere in the group gives NaN."""
    if parts.size == 0:
        return np.zeros(parts.shape[:-1], np.float32)
    return np.asarray(np.maximum(np.abs(parts).max(axis=-1), floor), np.float32)


def m_major(scales: F32, leading_dim: int, pad: float = np.nan) -> F32:
    """Return the M-major storage of scales [M, G]: [G, leading_dim], row index fastest, lanes past M holding `pad`.

    Pad lanes may hold anything without affecting a result, so the default is NaN.
    """
    m, groups = scales.shape
    if leading_dim < m:
        raise ValueError(f"a leading dimension of {leading_dim} cannot hold {m} rows (it must be at least m)")
    stored = np.full((groups, leading_dim), pad, np.float32)
    stored[:, :m] = scales.T
    return stored


def from_m_major(stored: F32, m: int) -> F32:
    """Return logical [M, G] scales from M-major storage [G, leading_dim]; pad lanes are not read."""
    return np.ascontiguousarray(stored[:, :m].T)
