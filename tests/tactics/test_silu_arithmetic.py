"""The arithmetic of silu_mul_quant in CUDA C++, step by step in fp32, at every bf16 gate."""

import numpy as np
import pytest

from nkc.tactics.silu_mul_quant.sm_90 import CONSTANTS
from nkc.verify.bounds import U
from nkc.verify.numbers import bf16, fp32
from nkc.verify.oracles.epilogues import silu
from nkc.verify.quant_bounds import SILU_MUL

F32 = np.float32
EXPONENTIAL = 2.0**-22.5
"""Relative error of ex2.approx.ftz.f32. Source: PTX ISA, ex2."""
RECIPROCAL = 2.0**-23
"""Relative error of rcp.approx.ftz.f32. Source: PTX ISA, rcp."""

EVERY = (np.arange(1 << 16, dtype=np.uint32) << 16).view(F32)
GATES = EVERY[(EVERY > -88.75) & (np.abs(EVERY) < np.inf) & (np.abs(EVERY) > 2.0**-100)]


def constant(name: str) -> np.float32:
    return F32(str(CONSTANTS[name]))


def flushed(x):
    return np.where(np.abs(x) < 2.0**-126, np.copysign(F32(0), x), x).astype(F32)


def off(x, error):
    return flushed((np.asarray(x, np.float64) * (1 + error)).astype(F32))


def what_is_left(left):
    return np.where((np.abs(left) < constant("nothing_left")) & (left != 0), left, F32(-0.0))


def four_silu_mul(gate, up, exponential=0.0, reciprocal=0.0):
    """Return what `four_silu_mul` computes where the product stays in fp32; the chip is off by that much."""
    with np.errstate(all="ignore"):
        power = off(np.exp2((gate * constant("minus_log2_e_high")).astype(np.float64)), exponential)
        factor = fp32.fma(gate, constant("quarter_lost"), F32(0.25))
        inverse = off(1 / fp32.fma(power, factor, F32(0.25)).astype(np.float64), reciprocal)
        return (gate * up) * inverse


def silu_mul_bf16(gate, up, exponential=0.0, reciprocal=0.0):
    """Return what `silu_mul` computes where the product is rounded to bf16."""
    with np.errstate(all="ignore"):
        power = off(np.exp2((gate * constant("minus_log2_e_high")).astype(np.float64)), exponential)
        quarter, by, x = F32(0.25) * gate, F32(0.25) * power, gate * constant("minus_lost")
        inverse = off(1 / (by + F32(0.25)).astype(np.float64), reciprocal)
        value = quarter * inverse
        left = fp32.fma(-value, F32(0.25), fp32.fma(-value, by, quarter))
        left = fp32.fma(-value, by * x, left) * inverse * up
        return fp32.fma(value, up, what_is_left(left))


def silu_mul_exact(gate, up, reciprocal=0.0, *, rounded=True):
    """Return what `silu_mul_exact` computes; not rounded: for up = 1, the sum that it rounds."""
    turn, one = constant("turn"), 0x3E800000
    with np.errstate(all="ignore"):
        bounded = np.fmin(gate, F32(86))
        turned = fp32.fma(bounded, constant("minus_log2_e"), turn)
        part = fp32.fma(bounded, constant("minus_log2_e_high"), turn - turned)
        part = fp32.fma(bounded, constant("minus_log2_e_low"), part)
        first, *others = (F32(text) for text in CONSTANTS["coefficients"])
        less_one = np.full_like(gate, first)
        for coefficient in others:
            less_one = fp32.fma(less_one, part, coefficient)
        less_one = less_one * part
        bits = ((turned.view(np.uint32) << np.uint32(23)) + np.uint32(125 << 23)).view(np.int32)
        power, large, small = (one.view(F32) for one in (bits, np.maximum(bits, one), np.minimum(bits, one)))
        inverse = off(1 / fp32.fma(power, less_one, F32(0.25) + power).astype(np.float64), reciprocal)
        inverse = np.where(gate < -88.75, F32(0), inverse)
        value = F32(0.25) * gate * inverse
        left = fp32.fma(-value, small, fp32.fma(-value, large, F32(0.25) * gate))
        left = fp32.fma(-value, power * less_one, left) * inverse
        if not rounded:
            return value.astype(np.float64) + left
        return fp32.fma(value, up, what_is_left(left * up))


def relative(got, wanted):
    return float((np.abs(got - wanted) / np.abs(wanted)).max())


CHIPS = [(e, r) for e in (0.0, EXPONENTIAL, -EXPONENTIAL) for r in (0.0, RECIPROCAL, -RECIPROCAL)]


@pytest.mark.parametrize(("exponential", "reciprocal"), CHIPS)
def test_a_value_is_within_6_u_of_its_rounding_to_bf16_whatever_the_chip_approximates(exponential, reciprocal) -> None:
    got = silu_mul_bf16(GATES, np.ones_like(GATES), exponential, reciprocal)
    assert relative(got, silu(GATES.astype(np.float64))) < SILU_MUL.value_error


@pytest.mark.parametrize(("exponential", "reciprocal"), CHIPS)
def test_a_value_that_stays_in_fp32_is_within_what_its_code_may_be_off(exponential, reciprocal) -> None:
    """Beside it the scale may be 2 steps off, of 2 u each at most, and its reciprocal and the product with it 1 u."""
    got = four_silu_mul(GATES, np.ones_like(GATES), exponential, reciprocal)
    finite = np.isfinite(got)
    assert finite[np.abs(GATES) < 2.0**125].all()
    error = relative(got[finite].astype(np.float64) / 4, silu(GATES[finite].astype(np.float64)))
    assert error < 8 * U < SILU_MUL.interval - (2 * 2 + 2) * U
    # What may be the largest is looked for 32 u below the largest found: two such errors, and what is rounded.
    assert 1 - float(constant("may_be_largest")) > 2 * 8 * U + 2 * U


@pytest.mark.parametrize("reciprocal", [0.0, 2 * RECIPROCAL, -2 * RECIPROCAL])
def test_what_gives_a_scale_is_within_1_u_before_it_is_rounded(reciprocal) -> None:
    """Then two roundings to fp32, the product's and the scale's, are each one step at most.

    1 u is less than one step of a product's fp32 everywhere below 2, so that the product is at most one step from the
    rounded one; that is at most 256 / 224 steps of a scale, which is a product over 448; and its own rounding adds less
    than one. Two steps of a scale are what is allowed.
    """
    assert relative(silu_mul_exact(GATES, F32(1), reciprocal, rounded=False), silu(GATES.astype(np.float64))) < U


def test_no_scale_is_three_steps_off() -> None:
    draw = np.random.default_rng(3)
    gate = draw.choice(GATES[np.abs(GATES) < 90], 200_000)
    up = bf16.rounded(draw.normal(size=gate.size))
    wanted = (silu(gate.astype(np.float64)) * up).astype(F32)
    for reciprocal in (-RECIPROCAL, RECIPROCAL):
        got = silu_mul_exact(gate, up, reciprocal)
        assert fp32.ulp_distance(got, wanted).max() == 1
        assert fp32.ulp_distance(got / F32(448), wanted / F32(448)).max() <= SILU_MUL.scale_ulp
    assert fp32.ulp_distance(four_silu_mul(gate, up, EXPONENTIAL) / 4, wanted).max() > 2, "the faster one would not do"


def specials():
    """Return gates, ups, and what the product is but for its size, where either is not an ordinary number."""
    special = np.array(
        [np.inf, -np.inf, np.nan, 0.0, -0.0, 3.3e38, -3.3e38, -89.0, 100.0, 2.0**-133, -(2.0**-133)], F32
    )
    ups = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0, -1.0, 3e38], F32)
    gate, up = (one.reshape(-1) for one in np.meshgrid(special, ups))
    with np.errstate(all="ignore"):
        small = np.where(gate < -88.75, F32(0), np.where(np.abs(gate) < 1, F32(0.5), F32(1)))  # silu over gate
        return gate, up, gate * small * up


@pytest.mark.parametrize("computed", [silu_mul_bf16, silu_mul_exact])
def test_zeros_keep_their_sign_and_infinities_and_nan_pass(computed) -> None:
    gate, up, wanted = specials()
    got = computed(gate, up)
    assert np.array_equal(np.isnan(got), np.isnan(wanted))
    kept = ~np.isnan(wanted)
    assert np.array_equal(np.signbit(got[kept]), np.signbit(wanted[kept]))
    assert np.array_equal(np.isinf(got), np.isinf(wanted))
    assert np.array_equal(got == 0, wanted == 0)


def test_the_faster_one_is_finite_only_where_it_is_right() -> None:
    """What is not finite sends its group to `silu_mul_exact`; whatever is finite stays, and its sign is a code's."""
    gate, up, wanted = specials()
    got = four_silu_mul(gate, up)
    assert not np.isfinite(got[~np.isfinite(wanted)]).any()
    kept = np.isfinite(got)
    assert np.array_equal(np.signbit(got[kept]), np.signbit(wanted[kept]))
    assert np.array_equal(got[kept] == 0, wanted[kept] == 0)


def test_the_faster_one_keeps_its_bits_wherever_an_up_is_large_and_a_gate_far_below_zero() -> None:
    """The product of gate and up is exact, and the reciprocal of the denominator normal, until silu is -0.0."""
    gate = np.repeat(GATES[GATES < -60], 64)
    up = bf16.rounded(np.exp2(np.random.default_rng(5).uniform(-60, 110, gate.size)))
    got = four_silu_mul(gate, up, EXPONENTIAL, RECIPROCAL).astype(np.float64) / 4
    wanted = silu(gate.astype(np.float64)) * up
    whole = np.isfinite(got) & (np.abs(wanted) > 2.0**-124)
    assert whole.mean() > 0.5
    assert relative(got[whole], wanted[whole]) < 8 * U
