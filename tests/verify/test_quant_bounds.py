"""Rounding intervals, scale limits and the share of codes that may move."""

import numpy as np
import pytest

from nkc.verify.numbers import bf16, fp32
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
