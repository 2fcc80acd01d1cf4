"""What codes and scales of a product may be: those of `group_quant` of some value within the product's bound.

A product is not known to the bit. With y its float64 value and e the bound of its fp32 sum (`bounds.dense_error`, and
`bounds.bias_error` after a bias), a kernel holds some x with y - e <= x <= y + e. What waits to be quantised is x
itself (staging fp32) or x rounded to bf16 once; rounding is monotone, so in either case it lies between the staged
ends, low and high. Accepted is what `group_quant` may give, by the contract's flavour, floor and overflow rule, for
some staged values of a group within [low, high]:

scale: scale_of(A) for some staged A that the group's largest magnitude can be: A from the largest of the elements'
    least magnitudes to the largest of their greatest, then floored. All of these can be: the element with the greatest
    takes A, the others their least. scale_of is monotone, so one A near 448 scale, or at an end, decides.
code: by the scale that was stored, from the code of low to the code of high, each with its sign. The code of a value is
    monotone in it for a given scale.
group: its largest code is that of 448, under ue8m0 of 224 or more, unless the floor made the scale: a scale that no
    element of its group explains is refused.
NaN: where y is NaN the group's scale and all its codes are NaN, and nowhere else.

Where the bound is narrow (a matrix unit that keeps 23 bits) that is the oracle's bits but for ties; where it is wide
(13 bits) it is a code or two. So beside it: the RMS error of code times scale against y is at most 1.5 times what the
oracle's own codes lose, and the share of the sum (`bounds.BF16_STORE_RATIO`); data whose sums are exact must give every
bit; and where the matrix unit is known to the bit, so are the codes (`predict`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from nkc.ir.quantising import QUANTISED
from nkc.verify import bounds
from nkc.verify.bounds import Failure, Verdict
from nkc.verify.numbers import bf16, fp8
from nkc.verify.oracles.group_quant import Flavour, Quantised, group_quant
from nkc.verify.oracles.silu_mul_quant import Intermediate
from nkc.verify.quantised import SCALES, Rules, logical, outputs, pad_written, staging_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nkc.ir.contract import Contract
    from nkc.verify.memory import Bits

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
U8 = NDArray[np.uint8]
Mask = NDArray[np.bool_]

RATIO_ROOM = 1.5
"""Of the RMS error that the oracle's own codes have: a second rounding, or one toward zero, has 1.4 and 2 times it."""
_SMALLEST_NORMAL = 2.0**-126


@dataclass(frozen=True, slots=True, kw_only=True)
class Legal:
    """Which codes [M, D] and which scales [M, D / group] may be what they are."""

    codes: Mask
    scales: Mask


def quantise(values: F32, rules: Rules) -> Quantised:
    """Return what `group_quant` makes of staged values [M, D] under a contract's rules."""
    return group_quant(
        values, flavour=rules.flavour, overflow=rules.overflow, amax_floor=rules.amax_floor, group=rules.group
    )


def staged(value: F64 | F32, staging: Intermediate) -> F32:
    """Return values as they wait to be quantised: rounded once, from the precision given."""
    with np.errstate(over="ignore"):
        return bf16.rounded(value) if staging is Intermediate.BF16 else np.asarray(value).astype(np.float32)


def legal(codes: U8, scales: F32, low: F32, high: F32, rules: Rules, staging: Intermediate) -> Legal:
    """Say which codes and scales are those of values between low and high [M, D], as the page above defines.

    Errors: ValueError where an end is infinite: no recipe makes such sums, and what an infinity may become is not
    stated here.
    """
    m, d = low.shape
    if np.isinf(low).any() or np.isinf(high).any():
        raise ValueError("a sum may be infinite (use scales whose sums stay finite)")
    parts = (m, d // rules.group, rules.group)
    nan = np.isnan(low).reshape(parts).any(axis=-1)
    low, high = (np.where(np.isnan(end), np.float32(0), end) for end in (low, high))
    magnitudes = np.abs(np.stack((low, high)))
    least = np.where((low <= 0) & (high >= 0), np.float32(0), magnitudes.min(axis=0)).reshape(parts).max(axis=-1)
    most = magnitudes.max(axis=0).reshape(parts).max(axis=-1)
    good = ~np.isnan(scales) & _reachable(scales, least, most, rules, staging)
    each = np.repeat(np.where(good, scales, np.float32(1)), rules.group, axis=1)
    first, last = (_place(_code(end, each, rules)) for end in (low, high))
    place = _place(codes)
    inside = (place >= first) & (place <= last) & ~fp8.is_nan(codes)
    inside &= np.repeat(_explained(codes.reshape(parts), scales, rules), rules.group, axis=1)
    of_nan = np.repeat(nan, rules.group, axis=1)
    return Legal(
        codes=np.where(of_nan, fp8.is_nan(codes), inside),
        scales=np.where(nan, np.isnan(scales), good),
    )


def _reachable(scales: F32, least: F32, most: F32, rules: Rules, staging: Intermediate) -> Mask:
    """Say which scales some staged magnitude from `least` to `most` has; the largest of a group, each [M, G]."""
    with np.errstate(invalid="ignore", over="ignore"):
        near = staged(scales.astype(np.float64) * fp8.E4M3FN.max, staging)
        infinity = np.float32(np.inf)
        tried = [least, most, near, np.nextafter(near, -infinity), np.nextafter(near, infinity)]
        found = np.zeros(scales.shape, np.bool_)
        for amax in tried if staging is Intermediate.FP32 else tried[:3]:
            inside = np.clip(np.where(np.isnan(amax), least, amax), least, most)
            found |= scales == _scale_of(inside, rules)
    return found


def _scale_of(amax: F32, rules: Rules) -> F32:
    """Return the scales of groups whose largest magnitudes are these: groups of one element."""
    alone = Rules(flavour=rules.flavour, overflow=rules.overflow, amax_floor=rules.amax_floor, group=1)
    return quantise(amax.reshape(-1, 1), alone).scales.reshape(amax.shape)


def _code(value: F32, scale: F32, rules: Rules) -> U8:
    """Return the code of a value by a given scale; no magnitude of a group exceeds the largest, which has 448."""
    with np.errstate(invalid="ignore", over="ignore", under="ignore", divide="ignore"):
        match rules.flavour:
            case Flavour.RECIPROCAL:
                ratio = (value * (np.float32(1) / scale)).astype(np.float64)
            case Flavour.UE8M0:
                ratio = value.astype(np.float64) / scale  # a power of two: exact
            case _:
                ratio = (value / scale).astype(np.float64)
    return fp8.encode(np.clip(ratio, -fp8.E4M3FN.max, fp8.E4M3FN.max), rules.overflow)


def _place(codes: U8) -> NDArray[np.int64]:
    """Return each code's place in ascending order of its value, -0.0 before 0.0."""
    magnitude = (codes & 0x7F).astype(np.int64)
    return np.where(codes & 0x80, -1 - magnitude, magnitude)


def _explained(parts: U8, scales: F32, rules: Rules) -> Mask:
    """Say of which groups [M, G, group] the largest code gives the scale, or needs to give none.

    None where the floor made it, or, without one, where all are zero; nor where it is no normal number, whose own
    rounding may cost more than a code.
    """
    largest = (parts & 0x7F).max(axis=-1)
    of_floor = _scale_of(np.zeros_like(scales), rules)
    least = np.float32(224.0 if rules.flavour is Flavour.UE8M0 else 448.0)
    asked = (scales != of_floor) & (scales >= _SMALLEST_NORMAL)
    explained: Mask = ~asked | (largest >= fp8.encode(least, rules.overflow))
    return explained


def judge(
    contract: Contract,
    dims: Mapping[str, int],
    left: Mapping[str, Bits],
    covered: Mapping[str, Mask],
    value: F64,
    error: F64,
) -> dict[str, Verdict]:
    """Judge what a run left of codes and scales against the float64 value [M, D] and the bound of its sum.

    What a sampled run did not compute counts as the oracle's.
    """
    rules, staging = Rules.of(contract), staging_of(contract)
    expected = quantise(staged(value, staging), rules)
    codes_tensor, scales_tensor = outputs(contract, dims)
    codes = logical(codes_tensor, left, covered, expected.codes).astype(np.uint8)
    scales = logical(scales_tensor, left, covered, expected.scales).astype(np.float32)
    found = legal(codes, scales, staged(value - error, staging), staged(value + error, staging), rules, staging)
    wrong_codes = ~found.codes & _computed(codes_tensor.name, codes.shape, covered)
    spilled = pad_written(scales_tensor, left[SCALES])
    decoded = Quantised(codes=codes, scales=scales, ratio=expected.ratio).decoded()
    ratio = bounds.err_ratio(decoded, value)
    limit = RATIO_ROOM * bounds.err_ratio(expected.decoded(), value) + bounds.BF16_STORE_RATIO
    return {
        QUANTISED: Verdict(
            passed=not wrong_codes.any() and ratio <= limit,
            worst=float(np.inf) if wrong_codes.any() else ratio / limit,
            err_ratio=ratio,
            err_ratio_limit=limit,
            failures=int(wrong_codes.sum()),
            first=_first(fp8.decode(codes), fp8.decode(expected.codes), wrong_codes),
        ),
        SCALES: Verdict(
            passed=bool(found.scales.all()) and not spilled,
            worst=float(np.inf) if spilled or not found.scales.all() else 0.0,
            err_ratio=0.0,
            err_ratio_limit=None,
            failures=int((~found.scales).sum()) or int(spilled),
            first=_first(scales, expected.scales, ~found.scales),
        ),
    }


def _computed(name: str, shape: tuple[int, ...], covered: Mapping[str, Mask]) -> Mask:
    """Say which elements of a dense output a run computed."""
    return covered[name].reshape(shape) if name in covered else np.ones(shape, np.bool_)


def _first(got: F32, expected: F32, wrong: Mask) -> Failure | None:
    if not wrong.any():
        return None
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    return Failure(index=place, expected=float(expected[place]), got=float(got[place]), bound=0.0)
