"""What a quantised result may differ by: scales in ulp, codes inside a rounding interval, the share that may move.

iv(r), "every code equals the rounding of some ratio q (1 +- r)", is the rule for codes: near a tie a relative error r
may move a code to its neighbour and never further. Where the oracle gives every bit the limits are zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from nkc.verify.bounds import Failure, U
from nkc.verify.numbers import bf16, fp8, fp32
from nkc.verify.numbers.fp8 import E4M3FN, Fp8Format, Overflow
from nkc.verify.oracles.group_quant import Flavour
from nkc.verify.oracles.silu_mul_quant import Intermediate

if TYPE_CHECKING:
    from nkc.verify.oracles.group_quant import Quantised

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
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
    flavour: Flavour = Flavour.DIVIDE,
    value: F64 | None = None,
    intermediate: Intermediate = Intermediate.FP32,
    fmt: Fp8Format = E4M3FN,
) -> QuantVerdict:
    """Compare codes [M, D] and scales [M, D / group] with the oracle's.

    With a bf16 intermediate the value before it (float64) is needed: near a tie of bf16 a kernel may legally round the
    other way. Where the largest of a group does, its scale is another one, as legal and a bf16 step (2^-8) from the
    oracle's, and then codes are held against that scale: see `_sides`.
    """
    group = codes.shape[1] // max(1, scales.shape[1])
    apart = fp32.ulp_distance(scales, expected.scales)
    low = high = np.abs(expected.ratio)
    reference = expected.codes
    if intermediate is Intermediate.BF16:
        if value is None:
            raise ValueError("a bf16 intermediate is judged from the value before it (give `value`)")
        sides = _sides(value, expected, limits, group, fmt)
        apart, low, high, reference = sides.followed_by(scales, expected, limits, flavour, overflow, fmt)
    lowest = fp8.encode(low * (1 - limits.interval), overflow, fmt)
    highest = fp8.encode(high * (1 + limits.interval), overflow, fmt)
    nan, wanted_nan = fp8.is_nan(codes, fmt), fp8.is_nan(expected.codes, fmt)
    place = fp8.order(codes & np.uint8(0x7F), fmt)
    inside = (place >= fp8.order(lowest, fmt)) & (place <= fp8.order(highest, fmt))
    inside &= ((codes ^ expected.codes) & 0x80) == 0
    inside = np.where(nan | wanted_nan, nan & wanted_nan, inside)
    moved = int(np.sum((codes != reference) & ~(nan & wanted_nan)))
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sides:
    """What a value may be in bf16: magnitudes [M, D] rounded as they are, a bit smaller, a bit larger; and scales."""

    centre: F64
    low: F64
    high: F64
    low_scale: F32
    high_scale: F32

    def followed_by(
        self,
        scales: F32,
        expected: Quantised,
        limits: QuantLimits,
        flavour: Flavour,
        overflow: Overflow,
        fmt: Fp8Format,
    ) -> tuple[I64, F64, F64, U8]:
        """Return, for the legal scale that each group of a kernel took, how far its scale is from it (fp32 steps), the
        lowest and the highest ratio, and the codes.

        The oracle's scale where that is near enough, or where none is: a scale of another side licenses nothing unless
        the kernel wrote it. Ratios and codes follow from the scale taken: had the oracle rounded the largest value the
        other way, these would be its codes. Held against the codes of the scale that was not taken, 2^-8 of a ratio
        would move 23 * 2^-8 = 9 % of the group's codes, which no share for relative errors of 16 u is meant for; and
        codes that do not follow the scale that was written are refused by the same share.
        """
        apart = fp32.ulp_distance(scales, expected.scales)
        taken, codes = expected.scales, expected.codes
        for side in (self.low_scale, self.high_scale):
            steps = fp32.ulp_distance(scales, side)
            other = (apart > limits.scale_ulp) & (steps <= limits.scale_ulp)
            apart, taken = np.where(other, steps, apart), np.where(other, side, taken)
        group = codes.shape[1] // max(1, taken.shape[1])
        each = np.repeat(taken, group, axis=1)
        moved = np.repeat(fp32.bits(taken) != fp32.bits(expected.scales), group, axis=1)
        with np.errstate(invalid="ignore", over="ignore", under="ignore", divide="ignore"):
            centre = self.centre.astype(np.float32)  # exact
            ratio = centre * (np.float32(1) / each) if flavour is Flavour.RECIPROCAL else centre / each
            again = fp8.encode(np.copysign(ratio.astype(np.float64), expected.ratio), overflow, fmt)
            wide = each.astype(np.float64)
            return apart, self.low / wide, self.high / wide, np.where(moved, again, codes)


def _sides(value: F64, expected: Quantised, limits: QuantLimits, group: int, fmt: Fp8Format) -> _Sides:
    """Return what the value may be after its rounding to bf16, given its error before it.

    A scale follows its amax; a group on the floor or at zero, or with a scale that is rounded up to a power of two,
    keeps the oracle's.
    """
    m, d = value.shape
    centre = bf16.rounded(np.abs(value)).astype(np.float64)
    low = bf16.rounded(np.abs(value) * (1 - limits.value_error)).astype(np.float64)
    high = bf16.rounded(np.abs(value) * (1 + limits.value_error)).astype(np.float64)

    def of_largest(side: F64) -> F32:
        scale: F32 = (side.reshape(m, d // group, group).max(axis=-1) / fmt.max).astype(np.float32)
        return scale

    follows = expected.scales == of_largest(centre)
    return _Sides(
        centre=centre,
        low=low,
        high=high,
        low_scale=np.where(follows, of_largest(low), expected.scales).astype(np.float32),
        high_scale=np.where(follows, of_largest(high), expected.scales).astype(np.float32),
    )
