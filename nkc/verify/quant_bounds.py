"""What a quantised result may differ by: scales in ulp, codes inside a rounding interval, the share that may move.

iv(r), "every code equals the rounding of some ratio q (1 +- r)", is the rule for codes: near a tie a relative error r
may move a code to its neighbour and never further. Where the oracle gives every bit the limits are zero.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from nkc.verify.bounds import Failure, U
from nkc.verify.numbers import bf16, fp8, fp32
from nkc.verify.numbers.fp8 import E4M3FN, Fp8Format, Overflow
from nkc.verify.oracles.silu_mul_quant import Intermediate

if TYPE_CHECKING:
    from nkc.verify.oracles.group_quant import Quantised

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
U8 = NDArray[np.uint8]


class QuantLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far a quantised result may stand from the oracle's."""

    stage: str
    scale_ulp: int
    value_error: float
    """Relative error of the value before quantisation."""
    interval: float
    """r of iv(r): the value, the scale and the division together."""
    moved: float
    """Share of codes that may differ at all."""


EXACT = QuantLimits(stage="quant.code", scale_ulp=0, value_error=0.0, interval=0.0, moved=0.0)
"""x is exact, and the flavour's fp32 operations are IEEE: every bit is stated."""
FAST_RECIPROCAL = QuantLimits(stage="quant.code", scale_ulp=1, value_error=0.0, interval=4 * U, moved=1e-3)
"""A flavour whose reciprocal or division is within an ulp of the rounded one: scale 1 ulp, ratio 2 u + 2 u. About
0.05 % of the codes of bf16 normals move, because bf16 ratios produce exact ties often."""
SILU_MUL = QuantLimits(stage="smq.act", scale_ulp=2, value_error=6 * U, interval=16 * U, moved=1e-3)
"""silu 4 u + exp, one product: 6 u on the value; then scale and division: 16 u on the ratio. A relative error e moves
about 23 e of the codes (two ties per code spacing, mean |q| over ulp 11.5): 16 u moves 2e-5, the limit is 0.1 %."""
RMS_NORM = QuantLimits(stage="rms.quant", scale_ulp=4, value_error=64 * U, interval=64 * U, moved=1e-3)
"""rstd ((n + 1)/2 + 3) u with n = log2 D + 8 levels of a tree (n = 21 at D = 8192: 14 u), two products, scale and
division, and a safety of 2 for the square root: 64 u on y and on the ratio."""


class QuantVerdict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a comparison of codes and scales found."""

    passed: bool
    scale_ulp: int
    """Largest distance of a scale, in fp32 steps."""
    outside: int
    """Codes outside their interval."""
    moved: float
    """Share of codes that differ from the oracle's."""
    first: Failure | None


def judge_quantised(
    codes: U8,
    scales: F32,
    expected: Quantised,
    limits: QuantLimits,
    *,
    overflow: Overflow,
    value: F64 | None = None,
    intermediate: Intermediate = Intermediate.FP32,
    fmt: Fp8Format = E4M3FN,
) -> QuantVerdict:
    """Compare codes [M, D] and scales [M, D / group] with the oracle's.

    With a bf16 intermediate the value before it (float64) is needed: near a tie of bf16 a kernel may legally round the
    other way, so the interval is taken on both sides of that rounding, and a scale may follow either.
    """
    group = codes.shape[1] // max(1, scales.shape[1])
    low_scale = high_scale = expected.scales
    low = high = np.abs(expected.ratio)
    if intermediate is Intermediate.BF16:
        if value is None:
            raise ValueError("a bf16 intermediate is judged from the value before it (give `value`)")
        low_scale, low, high_scale, high = _both_sides(value, expected, limits, group, fmt)
    apart = np.minimum(
        np.minimum(fp32.ulp_distance(scales, low_scale), fp32.ulp_distance(scales, high_scale)),
        fp32.ulp_distance(scales, expected.scales),
    )
    lowest = fp8.encode(low * (1 - limits.interval), overflow, fmt)
    highest = fp8.encode(high * (1 + limits.interval), overflow, fmt)
    nan, wanted_nan = fp8.is_nan(codes, fmt), fp8.is_nan(expected.codes, fmt)
    place = fp8.order(codes & np.uint8(0x7F), fmt)
    inside = (place >= fp8.order(lowest, fmt)) & (place <= fp8.order(highest, fmt))
    inside &= ((codes ^ expected.codes) & 0x80) == 0
    inside = np.where(nan | wanted_nan, nan & wanted_nan, inside)
    moved = int(np.sum((codes != expected.codes) & ~(nan & wanted_nan)))
    allowed = math.ceil(limits.moved * codes.size)
    first = None
    if not inside.all():
        where = tuple(int(i) for i in np.argwhere(~inside)[0])
        table = fp8.decode_table(fmt)
        first = Failure(
            index=where,
            expected=float(table[expected.codes[where]]),
            got=float(table[codes[where]]),
            bound=limits.interval,
        )
    largest = int(apart.max(initial=0))
    return QuantVerdict(
        passed=largest <= limits.scale_ulp and bool(inside.all()) and moved <= allowed,
        scale_ulp=largest,
        outside=int(np.sum(~inside)),
        moved=moved / codes.size if codes.size else 0.0,
        first=first,
    )


def _both_sides(
    value: F64, expected: Quantised, limits: QuantLimits, group: int, fmt: Fp8Format
) -> tuple[F32, F64, F32, F64]:
    """Return scale and ratio magnitude for the value a little smaller and a little larger, rounded to bf16.

    A scale follows its amax; a group on the floor or at zero keeps the oracle's scale.
    """
    m, d = value.shape
    low = bf16.rounded(np.abs(value) * (1 - limits.value_error)).astype(np.float64)
    high = bf16.rounded(np.abs(value) * (1 + limits.value_error)).astype(np.float64)

    def scale_of(side: F64) -> F32:
        amax = side.reshape(m, d // group, group).max(axis=-1)
        centre = bf16.rounded(np.abs(value)).astype(np.float64).reshape(m, d // group, group).max(axis=-1)
        derived = (amax / fmt.max).astype(np.float32)
        follows = expected.scales == (centre / fmt.max).astype(np.float32)
        return np.where(follows, derived, expected.scales).astype(np.float32)

    low_scale, high_scale = scale_of(low), scale_of(high)
    with np.errstate(invalid="ignore"):
        low_ratio = low / np.repeat(high_scale.astype(np.float64), group, axis=1)
        high_ratio = high / np.repeat(low_scale.astype(np.float64), group, axis=1)
    return low_scale, low_ratio, high_scale, high_ratio
