"""Error bounds per element, derived from the data in use, and what is accepted.

u = 2^-24 is fp32's unit roundoff, u_b = 2^-8 bf16's, gamma_n = n u / (1 - n u). A bound is the sum of what the leaf
stages may lose; every function states its stage and its derivation. There are no other tolerances.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from nkc.verify.numbers import bf16, fp32
from nkc.verify.numbers.rounding import widen
from nkc.verify.oracles import dense, epilogues
from nkc.verify.oracles.dense import Chain, Operands
from nkc.verify.oracles.matrix_unit import FP32_FMA, MatrixUnit

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]

U = fp32.UNIT_ROUNDOFF
U_BF16 = 2.0**-8
"""Half an ulp of bf16 at 1: eight significand bits."""
BF16_OVERFLOW = 2.0**128 * (1 - 2.0**-9)
"""From here on the nearest bf16 is infinity: halfway from the largest finite value to 2^128."""
BF16_STORE_RATIO = 2.5e-3
"""Limit of err_ratio after a bf16 store. One RNE store of data spread over a binade loses
u_b / sqrt 3 * sqrt(E 1/m^2) = 1.66e-3 RMS; 1.5 times that leaves room for the FP8 unit below it (1e-3 in quadrature
gives 1.94e-3) and none for a second store (2.35e-3) on top of it."""
FP8_UNIT_RATIO = 1e-3
"""Limit of err_ratio for Hopper's FP8 unit before the store: 1.3e-4 on normals, 8-9e-4 on wide-range codes."""
SILU_SLOPE = 1.1
"""max |silu'| = 1.0998 at 2.3994."""
GELU_SLOPE = 1.13
"""max |gelu'|: Phi(sqrt 2) + sqrt 2 phi(sqrt 2) = 1.1289; the tanh form 1.1290."""
EXP_APPROX = 4 * U
"""ex2.approx: 2^-22 relative over the full range (PTX ISA, ex2); AMD's v_exp_f32 is at 1 ulp."""


def gamma(n: float, u: float = U) -> float:
    """Return n u / (1 - n u): the relative error of n roundings in a row, whatever their order or tree."""
    if n * u >= 1:
        raise ValueError(f"gamma of {n} roundings at {u:.3g} says nothing (n u must stay below 1)")
    return n * u / (1 - n * u)


def piece_error(a: F32, b: F32, unit: MatrixUnit) -> F64:
    """Return the bound for one piece: |accumulate(a, b) - a b^T|, [M, N]. Stage gemm.dot.

    Without alignment: products are exact (8-bit significands twice, or bf16 twice, fit 24 bits), the first enters an
    empty register exactly, so n - 1 roundings for one product a step, or one per step for groups summed exactly:
    gamma times S_b = sum |a b|, for any order or tree.
    With alignment to `kept` bits: in each step every addend of the g products and the register loses less than
    2^-kept of 2^E, E the largest exponent among them, and the register then rounds the sum. 2^E is at most the
    largest of: a product of operands not below the format's smallest normal (subnormals are not normalised), the
    register itself, bounded by the exact prefix sum plus the error so far. Errors of earlier steps pass through
    additions unchanged. A step's largest product is at most its largest |a| times its largest |b|.
    """
    wide_a, wide_b = np.abs(np.nan_to_num(widen(a))), np.abs(np.nan_to_num(widen(b)))
    k = a.shape[1]
    if unit.addend_fraction_bits is None:
        steps = -(-k // unit.group)
        roundings = steps - 1 if unit.group == 1 else steps
        return gamma(max(0, roundings), unit.unit_roundoff) * (wide_a @ wide_b.T)
    lost = (unit.group + 1) * 2.0**-unit.addend_fraction_bits
    smallest = 2.0**unit.min_operand_exponent
    error = np.zeros((a.shape[0], b.shape[0]), np.float64)
    prefix = np.zeros_like(error)
    for k0 in range(0, k, unit.group):
        part = slice(k0, k0 + unit.group)
        product = _step_peak(wide_a[:, part], smallest)[:, None] * _step_peak(wide_b[:, part], smallest)[None, :]
        register = np.abs(prefix) + error
        prefix = prefix + np.nan_to_num(widen(a[:, part])) @ np.nan_to_num(widen(b[:, part])).T
        error = error + lost * np.maximum(product, register)
        error = error + unit.unit_roundoff * (np.abs(prefix) + error)
    return error


def _step_peak(magnitude: F64, smallest: float) -> F64:
    """Largest operand of a step, not below the smallest normal unless all are zero."""
    peak = magnitude.max(axis=1, initial=0.0)
    return np.where(peak > 0, np.maximum(peak, smallest), 0.0)


def magnitude(operands: Operands) -> F64:
    """Return S = sum over k of |a b sa sb|, [M, N]: what every relative error of dense is measured against."""
    return dense.value(
        Operands(
            a=np.abs(operands.a),
            b=np.abs(operands.b),
            scale_a=None if operands.scale_a is None else np.abs(operands.scale_a),
            scale_b=None if operands.scale_b is None else np.abs(operands.scale_b),
            block_m=operands.block_m,
            block_n=operands.block_n,
            block_k=operands.block_k,
        )
    )


def dense_error(operands: Operands, unit: MatrixUnit = FP32_FMA, chains: tuple[Chain, ...] | None = None) -> F64:
    """Return the bound of the fp32 accumulator against `dense.value`, [M, N]. Stages gemm.dot, gemm.promote.

    Each piece P_b carries its own error e_b into |sa sb|. Promotion rounds the scale product, at most once more for
    the term, and once per piece and per finished chain added: gamma_{2 + pieces + chains - 1} of
    sum |sa sb| (|P_b| + e_b). For the fp32 chain that is at most gamma_{129 + blocks} S. Underflow adds half the
    smallest subnormal per rounding, scaled by |P_b| where the scale product itself underflows. The float64 value's
    own 2 (pieces + 1) 2^-53 S is added, because it is what the kernel is compared with.
    """
    chains = dense.ascending(operands) if chains is None else chains
    pieces = [piece for chain in chains for piece in chain]
    shape = (operands.m, operands.n)
    carried, promoted, underflow = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for k0, k1 in pieces:
        a, b = operands.a[:, k0:k1], operands.b[:, k0:k1]
        scale_a, scale_b = operands.scales(k0)
        scale = np.abs(np.nan_to_num(widen(scale_a) * widen(scale_b)))
        error = piece_error(a, b, unit)
        size = np.abs(np.nan_to_num(widen(a)) @ np.nan_to_num(widen(b)).T) + error
        carried += scale * error
        promoted += scale * size
        underflow += fp32.SMALLEST / 2 * (size if operands.scaled else 0.0) + fp32.SMALLEST / 2
    roundings = 2 + len(pieces) + len(chains) - 1 if operands.scaled else len(pieces) + len(chains) - 1
    if not operands.scaled and len(pieces) <= 1:
        roundings = 0  # one piece and no scales: the register is the accumulator
    own = 2 * (len(pieces) + 1) * 2.0**-53 * np.nan_to_num(magnitude(operands))
    if not operands.scaled:
        own *= max(1, operands.k)
    return np.asarray(carried + gamma(roundings) * promoted + underflow + own, np.float64)


def bias_error(y: F64, error: F64) -> F64:
    """Stage epi.bias: one fp32 addition, u of the result."""
    return error + U * (np.abs(y) + error)


def _exp_error(x: F64) -> F64:
    """Relative error of an fp32 exp(-x): ex2 itself, and |x| u each for rounding x log2 e and the constant."""
    return EXP_APPROX + 2 * U * np.abs(x)


def silu_error(x: F64, error: F64) -> F64:
    """Stage epi.silu: the slope times the input's error, and (4 u + exp error) |y| of its own.

    4 u: rounding 1 + e^-x, and a division within 2.5 u (Triton's `/` on sm_90 was measured at 2.44 u). Below -88
    e^-x overflows and the result is -0: all of y, less than 3e-37, may be lost.
    """
    y = np.abs(epilogues.silu(x))
    own = np.where(x < -88, y, (4 * U + _exp_error(x)) * y)
    return SILU_SLOPE * error + own


def gelu_tanh_error(x: F64, error: F64) -> F64:
    """Stage epi.gelu_tanh: the slope times the input's error, and its own arithmetic in the form it takes.

    Through tanh: 3 u |x| for tanh and its argument, 1 to round. Through x / (1 + e^-2t), e's error counts by the share
    1 - y/x that it has in the denominator: exp's own, and 5 u |2t| for the five roundings in 2t; then 4 u as in silu.
    """
    twice = 2.0 * math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)
    y = epilogues.gelu_tanh(x)
    share = 1.0 - np.divide(y, x, out=np.full_like(y, 0.5), where=x != 0)
    sigmoid = np.abs(y) * (4 * U + share * (_exp_error(twice) + 5 * U * np.abs(twice)))
    return GELU_SLOPE * error + np.maximum(4 * U * np.abs(x), sigmoid) + 2.0**-126


def gelu_erf_error(x: F64, error: F64) -> F64:
    """Stage epi.gelu_erf: the slope times the input's error, and its own arithmetic.

    From -4 up, x/2 (1 + erf): 4 u |x| (erf within 2 u, its argument's rounding worth u, the sum and the product).
    Below, x/2 erfc(-x / sqrt 2), relative: erfc magnifies its argument's 2 u by 2 t^2 = x^2, so (2 x^2 + 12) u |y|;
    1 + erf would have lost every digit there. Results under fp32's normal range may be flushed.
    """
    own = np.where(x >= -4, 4 * U * np.abs(x), (2 * x**2 + 12) * U * np.abs(epilogues.gelu_erf(x)))
    return GELU_SLOPE * error + own + 2.0**-126


def gated_silu_error(x: F64, error: F64, order: epilogues.Halves) -> F64:
    """Stage epi.gated: silu's error times |up|, up's error times |silu|, both together, and one product."""
    (gate, up), (gate_error, up_error) = epilogues.split(x, order), epilogues.split(error, order)
    silu, silu_off = np.abs(epilogues.silu(gate)), silu_error(gate, gate_error)
    off = silu_off * np.abs(up) + silu * up_error + silu_off * up_error
    return off + U * (silu * np.abs(up) + off)


def bf16_store_error(y: F64, error: F64) -> F64:
    """Stage gemm.store: one RNE bf16, u_b of what is stored, half the smallest subnormal (2^-133) near zero."""
    return error + U_BF16 * (np.abs(y) + error) + 2.0**-134


def err_ratio(got: ArrayLike, reference: ArrayLike) -> float:
    """Return RMS(got - reference) / (RMS(reference) + 1e-8) over the elements whose reference is finite.

    0 where no element is off by more than 1e-6; infinity where a finite reference met NaN or infinity.
    """
    wide, wanted = widen(got), widen(reference)
    judged = np.isfinite(wanted)
    if not judged.any():
        return 0.0
    difference = (wide - np.where(judged, wanted, 0.0))[judged]
    if not np.isfinite(difference).all():
        return float("inf")
    largest = float(np.abs(difference).max())
    if largest <= 1e-6:
        return 0.0
    peak = float(np.abs(wanted[judged]).max())
    unit = max(peak, largest)  # squares of values near fp32's ends stay in range
    rms = [float(np.sqrt(np.mean((part / unit) ** 2))) * unit for part in (difference, wanted[judged])]
    return rms[0] / (rms[1] + 1e-8)


def bf16_store_ratio(value: F64) -> float:
    """Return the limit of err_ratio after a bf16 store of these values.

    `BF16_STORE_RATIO` is 1.5 times what a store loses of data spread over a binade. Where a few elements, or few
    different values, carry the whole RMS, the one store of the value itself may lose up to u_b: then 1.5 times that.
    """
    return max(BF16_STORE_RATIO, 1.5 * err_ratio(bf16.rounded(value), value))


class Failure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first element (row-major) that is not accepted."""

    index: tuple[int, ...]
    expected: float
    got: float
    bound: float


def first_difference(
    got: NDArray[np.generic], expected: NDArray[np.generic], where: NDArray[np.bool_]
) -> Failure | None:
    """Return the first element (row-major) whose fp32 value is not the expected one to the bit; None where all are.

    got, expected: fp32 values [...]; only elements that `where` names are compared. -0.0 is not 0.0.
    """
    differs = (np.asarray(got, np.float32).view(np.uint32) != np.asarray(expected, np.float32).view(np.uint32)) & where
    if not differs.any():
        return None
    place = tuple(int(i) for i in np.unravel_index(int(np.flatnonzero(differs.ravel())[0]), differs.shape))
    return Failure(index=place, expected=float(expected[place]), got=float(got[place]), bound=0.0)


class Verdict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a comparison found."""

    passed: bool
    worst: float
    """Largest error over its bound; infinity for a NaN out of place."""
    err_ratio: float
    err_ratio_limit: float | None
    failures: int
    first: Failure | None


def judge(got: ArrayLike, value: F64, bound: F64, *, overflow: float, err_ratio_limit: float | None) -> Verdict:
    """Compare a decoded result with its value.

    Accepted: |got - value| <= bound; NaN exactly where the value is NaN; infinity of the value's sign where
    |value| + bound reaches `overflow` (`BF16_OVERFLOW`, or 2^128 for fp32). err_ratio is held to its limit too, where
    there is one; elements that may overflow are left out of it.
    """
    wide = widen(got)
    nan = np.isnan(value)
    may_overflow = ~nan & (np.abs(value) + bound >= overflow)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        difference = np.abs(wide - value)
        off = np.where(difference == 0, 0.0, difference / bound)
    off = np.where(nan, np.where(np.isnan(wide), 0.0, np.inf), np.where(np.isnan(wide), np.inf, off))
    infinite = np.isinf(wide)
    off = np.where(infinite, np.where(may_overflow & (np.sign(wide) == np.sign(value)), 0.0, np.inf), off)
    bad = ~(off <= 1.0)
    ratio = err_ratio(np.where(may_overflow, 0.0, wide), np.where(may_overflow, np.nan, value))
    first = None
    if bad.any():
        place = tuple(int(i) for i in np.unravel_index(int(np.flatnonzero(bad.ravel())[0]), bad.shape))
        first = Failure(index=place, expected=float(value[place]), got=float(wide[place]), bound=float(bound[place]))
    return Verdict(
        passed=not bad.any() and (err_ratio_limit is None or ratio <= err_ratio_limit),
        worst=float(off.max(initial=0.0)),
        err_ratio=ratio,
        err_ratio_limit=err_ratio_limit,
        failures=int(bad.sum()),
        first=first,
    )
