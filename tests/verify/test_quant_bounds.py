"""Rounding intervals, scale limits and the share of codes that may move."""

import numpy as np
import pytest

from nkc.verify.numbers import bf16, fp8, fp32
from nkc.verify.numbers.fp8 import Overflow
from nkc.verify.oracles.epilogues import Halves, split
from nkc.verify.oracles.group_quant import Flavour, group_quant
from nkc.verify.oracles.silu_mul_quant import Intermediate, silu_mul_quant
from nkc.verify.quant_bounds import EXACT, FAST_RECIPROCAL, RMS_NORM, SILU_MUL, judge_quantised
from nkc.verify.regimes import Recipe, Regime, activations

from .recipes import grid

SATURATE = {"overflow": Overflow.SATURATE}


def x_of(regime, m=32, d=1024):
    return activations(Recipe(regime=regime, seed=4), m, d)


@pytest.mark.parametrize("regime", list(Regime))
@pytest.mark.parametrize("flavour", list(Flavour))
def test_the_oracle_agrees_with_itself_exactly(regime, flavour):
    got = group_quant(x_of(regime), flavour=flavour)
    verdict = judge_quantised(got.codes, got.scales, got, EXACT, **SATURATE)
    assert verdict.passed
    assert (verdict.scale_ulp, verdict.outside, verdict.moved) == (0, 0, 0)


def test_another_flavour_is_refused_as_exact_and_accepted_within_four_u():
    x = activations(Recipe(regime=Regime.MODEL_LIKE, seed=4), 256, 2048)
    divided, other = group_quant(x), group_quant(x, flavour=Flavour.RECIPROCAL)
    assert not judge_quantised(other.codes, other.scales, divided, EXACT, **SATURATE).passed
    loose = judge_quantised(other.codes, other.scales, divided, FAST_RECIPROCAL, **SATURATE)
    assert loose.passed
    assert 0 < loose.moved < 1e-3


@pytest.mark.parametrize("fault", ["code", "sign", "scale", "hidden nan", "stray nan"])
def test_single_faults_are_found(fault):
    x = x_of(Regime.EDGES)
    expected = group_quant(x)
    codes, scales = expected.codes.copy(), expected.scales.copy()
    row, column = (int(i) for i in np.argwhere(expected.codes == 0x7E)[0])
    nan_row, nan_column = (int(i) for i in np.argwhere(expected.codes == 0x7F)[0])
    match fault:
        case "code":
            codes[row, column] -= 1
        case "sign":
            codes[row, column] ^= 0x80
        case "scale":
            scales[row, column // 128] = fp32.from_bits(fp32.bits(scales[row, column // 128]) + 5)
        case "hidden nan":
            codes[nan_row, nan_column] = 0x7E
        case "stray nan":
            codes[row, column] = 0x7F
    verdict = judge_quantised(codes, scales, expected, RMS_NORM, **SATURATE)
    assert not verdict.passed
    if fault != "scale":
        assert verdict.outside == 1
        assert verdict.first.index == ((nan_row, nan_column) if fault == "hidden nan" else (row, column))


def fp32_product(x):
    gate, up = split(x.astype(np.float64), Halves.HALVES)
    gate, up = gate.astype(np.float32), up.astype(np.float32)
    one = np.float32(1)
    return gate / (one + np.exp2(-gate * np.float32(1.4426950408889634))) * up


@pytest.mark.parametrize("intermediate", list(Intermediate))
def test_a_kernel_in_fp32_steps_is_accepted_and_the_other_staging_is_not(intermediate):
    x = activations(Recipe(regime=Regime.MODEL_LIKE, seed=6), 64, 2048)
    y = fp32_product(x)
    staged = {Intermediate.FP32: y, Intermediate.BF16: bf16.rounded(y)}
    judgements = {}
    for name, waiting in staged.items():
        oracle = silu_mul_quant(x, order=Halves.HALVES, intermediate=intermediate)
        got = group_quant(waiting)
        judgements[name] = judge_quantised(
            got.codes, got.scales, oracle.quantised, SILU_MUL, value=oracle.value, intermediate=intermediate, **SATURATE
        )
    assert judgements.pop(intermediate).passed
    (other,) = judgements.values()
    assert not other.passed
    assert other.moved > 5e-3


def test_K03_the_wrong_staging_is_rejected():
    x = grid((1, 256), 61, 253, 126, 32)
    right = silu_mul_quant(x, order=Halves.HALVES, intermediate=Intermediate.FP32)
    wrong = silu_mul_quant(x, order=Halves.HALVES, intermediate=Intermediate.BF16).quantised
    assert not judge_quantised(wrong.codes, wrong.scales, right.quantised, SILU_MUL, **SATURATE).passed


def test_a_bf16_intermediate_needs_its_value():
    got = group_quant(x_of(Regime.EXACT))
    with pytest.raises(ValueError, match="a bf16 intermediate is judged from the value before it"):
        judge_quantised(got.codes, got.scales, got, SILU_MUL, intermediate=Intermediate.BF16, **SATURATE)


def tie_of_bf16():
    """Return values whose largest, in the second of three groups, is a little below a tie of bf16, and their oracle's.

    1 + 2^-7 + 2^-8 is the tie; 1e-9 below it the oracle rounds down, and fp32 cannot see the difference.
    """
    value = np.random.default_rng(5).normal(size=(1, 384)) * 0.2
    value[0, 200] = (1 + 2**-7 + 2**-8) * (1 - 1e-9)
    return value, group_quant(bf16.rounded(value))


def judged(value, oracle, codes, scales):
    return judge_quantised(
        codes, scales, oracle, SILU_MUL, value=value, intermediate=Intermediate.BF16, overflow=Overflow.SATURATE
    )


def the_other_side(value):
    """Return what a kernel leaves that rounded the tie up, as one does that has only fp32 before bf16."""
    up = bf16.rounded(value.astype(np.float32))
    up[0, 200] = np.float32(1 + 2**-6)
    return group_quant(up)


def test_a_group_whose_largest_value_took_the_other_side_of_a_tie_is_held_against_that_scale():
    value, oracle = tie_of_bf16()
    other = the_other_side(value)
    assert fp32.ulp_distance(other.scales, oracle.scales).tolist()[0][1] > 1000
    assert np.sum(other.codes != oracle.codes) > 4  # of 384 codes one may move
    verdict = judged(value, oracle, other.codes, other.scales)
    assert verdict.passed
    assert (verdict.scale_ulp, verdict.outside, verdict.moved) == (0, 0, 0)


@pytest.mark.parametrize("fault", ["codes of the other scale", "no tie", "half a step", "truncated", "next group"])
def test_a_wrong_kernel_is_not_excused_by_a_tie(fault):
    value, oracle = tie_of_bf16()
    other = the_other_side(value)
    codes, scales = other.codes.copy(), other.scales.copy()
    match fault:
        case "codes of the other scale":  # the scale of one side beside the codes of the other
            codes = oracle.codes
        case "no tie":  # the same step where the value is 100 u from a tie
            value[0, 200] = (1 + 2**-7 + 2**-8) * (1 - 100 * 2.0**-24)
        case "half a step":  # neither side's scale
            scales[0, 1] = (oracle.scales[0, 1] + other.scales[0, 1]) / 2
        case "truncated":  # codes toward zero, in that group alone
            here = (slice(None), slice(128, 256))
            codes[here] -= np.abs(fp8.decode(codes[here])) > np.abs(other.ratio[here])
        case "next group":  # the excuse is of one group, not of its neighbour
            scales[0, 2] *= np.float32(1 + 2**-8)
    assert not judged(value, oracle, codes, scales).passed


def test_a_scale_that_took_the_oracles_side_leaves_no_room_for_codes_of_the_other():
    value, oracle = tie_of_bf16()
    assert judged(value, oracle, oracle.codes, oracle.scales).passed
    mixed = oracle.codes.copy()
    mixed[0, 128:256] = the_other_side(value).codes[0, 128:256]
    assert judged(value, oracle, mixed, oracle.scales).outside > 0
