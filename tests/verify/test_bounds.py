"""Bounds hold for every order that they cover, are not much wider than they must be, and catch seeded faults."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nkc.verify import bounds
from nkc.verify.numbers import bf16, fp32
from nkc.verify.numbers.rounding import Rounding
from nkc.verify.oracles import dense, epilogues
from nkc.verify.oracles.dense import Operands
from nkc.verify.oracles.epilogues import Halves
from nkc.verify.oracles.matrix_unit import (
    FP32_FMA,
    HOPPER_BF16,
    HOPPER_F16,
    HOPPER_FP8,
    MatrixUnit,
    accumulate,
    from_facts,
)
from nkc.verify.regimes import Recipe, Regime, dense_bf16_inputs, dense_inputs

UNITS = (FP32_FMA, HOPPER_FP8, HOPPER_F16, MatrixUnit(name="exact_32", group=32, addend_fraction_bits=None))
ANY_ORDER = from_facts(kept_bits=23, truncates=True)


def operands_of(regime, m=6, n=192, k=1024, seed=2):
    return dense_inputs(Recipe(regime=regime, seed=seed), m, n, k).operands()


def judged(got, operands, bound, **kwargs):
    limits = {"overflow": 2.0**128, "err_ratio_limit": None} | kwargs
    return bounds.judge(got, dense.value(operands), bound, **limits)


@pytest.mark.parametrize("regime", list(Regime))
@pytest.mark.parametrize("unit", UNITS, ids=lambda u: u.name)
def test_every_order_stays_within_its_bound(unit, regime):
    operands = operands_of(regime)
    for chains in (dense.ascending(operands), dense.split_k(operands, 3), dense.dealt(operands, 4)):
        verdict = judged(
            dense.accumulator(operands, unit, chains=chains),
            operands,
            bounds.dense_error(operands, unit, chains),
        )
        assert verdict.passed, verdict
        assert verdict.worst < 1


@pytest.mark.parametrize("regime", list(Regime))
@pytest.mark.parametrize("unit", [HOPPER_F16, UNITS[3], FP32_FMA], ids=lambda u: u.name)
def test_the_bound_for_any_order_covers_units_of_23_bits_and_more(unit, regime):
    operands = operands_of(regime)
    assert judged(dense.accumulator(operands, unit), operands, bounds.dense_error(operands, ANY_ORDER)).passed


def test_the_plain_bound_is_too_tight_for_the_fp8_unit():
    operands = operands_of(Regime.MODEL_LIKE)
    verdict = judged(dense.accumulator(operands, HOPPER_FP8), operands, bounds.dense_error(operands, ANY_ORDER))
    assert not verdict.passed
    assert verdict.failures > 0


def test_the_fp8_bound_is_nearly_reached():
    """One large product and 31 just below the grid: all 31 are lost, and the bound counts 33 addends."""
    a = np.float32([[256.0] + [1.875 * 2.0**-4] * 31])
    b = np.float32([[1.0] + [2.0**-2] * 31])
    lost = abs(float(accumulate(a, b, HOPPER_FP8)[0, 0]) - float((a.astype(np.float64) @ b.T)[0, 0]))
    assert 0.8 < lost / bounds.piece_error(a, b, HOPPER_FP8)[0, 0] < 1


@pytest.mark.parametrize("k", [512, 2048])
def test_the_fp32_bound_is_at_most_gamma_129_plus_blocks(k):
    operands = operands_of(Regime.MODEL_LIKE, k=k)
    ceiling = bounds.gamma(129 + k // 128) * bounds.magnitude(operands)
    bound = bounds.dense_error(operands)
    assert (bound <= ceiling * (1 + 1e-9)).all()
    assert (bound > 0.5 * ceiling).all()


@pytest.mark.parametrize(("k", "stated"), [(2048, 8.64e-6), (5120, 1.01e-5), (7168, 1.10e-5), (17408, 1.58e-5)])
def test_gamma_at_production_depths(k, stated):
    assert bounds.gamma(129 + k // 128) == pytest.approx(stated, rel=6e-3)


def test_gamma_refuses_nonsense():
    with pytest.raises(ValueError, match="says nothing"):
        bounds.gamma(200, 2.0**-7)


def test_truncation_needs_twice_the_roundoff():
    """Positive data, one product a step: a truncating unit passes RNE's gamma_127 S, not its own."""
    rng = np.random.Generator(np.random.Philox(9))
    a, b = (rng.integers(1, 449, (4, 2, 128)) / np.float32(3)).astype(np.float32).transpose(1, 0, 2)
    a, b = bf16.rounded(a), bf16.rounded(b)
    cut = MatrixUnit(name="cut", group=1, addend_fraction_bits=None, rounding=Rounding.TRUNCATE)
    assert cut.unit_roundoff == 2 * FP32_FMA.unit_roundoff
    assert bounds.piece_error(a, b, cut) == pytest.approx(2 * bounds.piece_error(a, b, FP32_FMA), rel=1e-4)


def test_bf16_products_without_scales():
    for regime in Regime:
        operands = dense_bf16_inputs(Recipe(regime=regime, seed=3), 6, 40, 512).operands()
        for unit in (FP32_FMA, HOPPER_BF16):
            for chains in (dense.ascending(operands), dense.split_k(operands, 4)):
                got = dense.accumulator(operands, unit, chains=chains)
                verdict = judged(got, operands, bounds.dense_error(operands, unit, chains))
                assert verdict.passed, (regime, unit.name, verdict)


@pytest.mark.parametrize("regime", list(Regime))
@pytest.mark.parametrize("unit", [FP32_FMA, HOPPER_FP8], ids=lambda u: u.name)
def test_a_bf16_store_passes_and_a_truncating_one_fails(unit, regime):
    operands = operands_of(regime, m=16)
    acc = dense.accumulator(operands, unit)
    bound = bounds.bf16_store_error(dense.value(operands), bounds.dense_error(operands, unit))
    limits = {"overflow": bounds.BF16_OVERFLOW, "err_ratio_limit": bounds.BF16_STORE_RATIO}
    assert judged(bf16.rounded(acc), operands, bound, **limits).passed
    cut = fp32.from_bits(fp32.bits(acc) & np.uint32(0xFFFF0000))
    if unit is FP32_FMA and regime is not Regime.EDGES:
        assert not judged(cut, operands, bound, **limits).passed


def faulty(operands, fault):
    """The product under one fault of a kernel."""
    scale_a, scale_b, columns = operands.scale_a, operands.scale_b, np.arange(operands.n)
    match fault:
        case "wrong scale row":
            rows = np.minimum(columns // (operands.n // scale_b.shape[0]), scale_b.shape[0] - 1)
            scale_b = scale_b[rows]
        case "scale of the next block":
            scale_a, scale_b = np.roll(scale_a, 1, axis=1), scale_b[columns // 128]
        case "no scale":
            scale_a, scale_b = np.ones_like(scale_a), scale_b[columns // 128]
        case _:
            scale_b = scale_b[columns // 128]
    b = np.roll(operands.b, 1, axis=0) if fault == "next column" else operands.b
    a = operands.a.copy()
    if fault == "last k dropped":
        a[:, -1] = 0
    if fault == "nan hidden":
        a = np.nan_to_num(a)
    if fault == "nan spread":
        a[0, 0] = np.nan
    return dense.fp32_sequential(Operands(a=a, b=b, scale_a=scale_a, scale_b=scale_b, block_n=1))


@pytest.mark.parametrize(
    "fault", ["wrong scale row", "scale of the next block", "no scale", "next column", "last k dropped", "nan spread"]
)
def test_faults_leave_the_bound_even_of_the_fp8_unit(fault):
    operands = operands_of(Regime.MODEL_LIKE, n=448)
    bound = bounds.bf16_store_error(dense.value(operands), bounds.dense_error(operands, HOPPER_FP8))
    good = judged(faulty(operands, "none"), operands, bound)
    assert good.passed
    verdict = judged(faulty(operands, fault), operands, bound)
    assert not verdict.passed
    assert verdict.first is not None


def test_a_hidden_nan_is_found_with_its_place():
    operands = operands_of(Regime.EDGES, m=5, n=448)
    bound = bounds.dense_error(operands)
    assert judged(faulty(operands, "none"), operands, bound).passed
    verdict = judged(faulty(operands, "nan hidden"), operands, bound)
    assert verdict.first.index == (3, 0)
    assert verdict.worst == float("inf")
    assert verdict.failures == 448


def test_infinity_is_accepted_only_where_the_value_overflows():
    value, bound = np.float64([3.4e38, 1e38, -3.5e38]), np.float64([1e36, 1e36, 1e36])
    limits = {"overflow": bounds.BF16_OVERFLOW, "err_ratio_limit": None}
    assert bounds.judge(np.float64([np.inf, 1e38, -np.inf]), value, bound, **limits).passed
    assert not bounds.judge(np.float64([-np.inf, 1e38, -np.inf]), value, bound, **limits).passed
    assert not bounds.judge(np.float64([np.inf, np.inf, -np.inf]), value, bound, **limits).passed
    assert not bounds.judge(np.float64([3.4e38, 1e38, 0.0]), value, bound, **limits).passed


def test_err_ratio():
    reference = np.float64([3.0, 4.0, np.nan])
    assert bounds.err_ratio(np.float64([3.0, 4.0, np.nan]), reference) == 0
    assert bounds.err_ratio(np.float64([3.3, 4.4, 0.0]), reference) == pytest.approx(0.1, rel=1e-6)
    assert bounds.err_ratio(np.float64([3.0 + 5e-7, 4.0, 0.0]), reference) == 0
    assert bounds.err_ratio(np.float64([np.nan, 4.0, np.nan]), reference) == float("inf")
    assert bounds.err_ratio(np.float64([3e300, 4e300]), np.float64([3e300, 3e300])) == pytest.approx(2**-0.5 / 3)


def test_one_bf16_store_fits_its_limit_and_two_do_not():
    x = np.random.Generator(np.random.Philox(5)).normal(size=1 << 16)
    once = bounds.err_ratio(bf16.rounded(x), x)
    assert once == pytest.approx(1.66e-3, rel=0.03)
    assert once < np.hypot(once, bounds.FP8_UNIT_RATIO) < bounds.BF16_STORE_RATIO


def fp32_silu(x):
    one = np.float32(1)
    with np.errstate(over="ignore"):
        return (x / (one + np.exp2(-x * np.float32(1.4426950408889634)))).astype(np.float32)


def fp32_gelu_tanh(x):
    t = np.float32(1.5957691216057308) * (x + np.float32(0.044715) * x * x * x)
    with np.errstate(over="ignore"):
        return x / (np.float32(1) + np.exp2(-t * np.float32(1.4426950408889634)))


def fp32_gelu_one_plus_erf(x):
    return np.float32(0.5) * x * (np.float32(1) + (1 - epilogues._ERFC(x / np.float32(2**0.5))).astype(np.float32))


X32 = np.linspace(-30, 30, 20001).astype(np.float32)
NONE = np.zeros(X32.shape)


@pytest.mark.parametrize(
    ("kernel", "oracle", "bound"),
    [
        (fp32_silu, epilogues.silu, bounds.silu_error),
        (fp32_gelu_tanh, epilogues.gelu_tanh, bounds.gelu_tanh_error),
    ],
)
def test_fp32_epilogues_stay_within_their_bounds(kernel, oracle, bound):
    x = np.concatenate([X32, np.float32([-200, -100, -88.9, -88.0, -87.0, 0.0, 100, 1e4])])
    y = oracle(x.astype(np.float64))
    off = np.abs(kernel(x).astype(np.float64) - y)
    assert (off <= bound(x.astype(np.float64), np.zeros(x.shape))).all()


def test_gelu_through_one_plus_erf_passes_above_minus_four_and_fails_below():
    wide = X32.astype(np.float64)
    with np.errstate(under="ignore"):
        off = np.abs(fp32_gelu_one_plus_erf(X32) - epilogues.gelu_erf(wide))
    allowed = bounds.gelu_erf_error(wide, NONE)
    assert (off <= allowed)[X32 >= -4].all()
    assert (off > allowed)[(X32 < -4.5) & (X32 > -6)].mean() > 0.5


@pytest.mark.parametrize(
    ("function", "slope", "steepest"),
    [
        (epilogues.silu, bounds.SILU_SLOPE, 1.0998),
        (epilogues.gelu_erf, bounds.GELU_SLOPE, 1.1289),
        (epilogues.gelu_tanh, bounds.GELU_SLOPE, 1.1290),
    ],
)
def test_slopes(function, slope, steepest):
    x = np.linspace(-12, 12, 240001)
    largest = np.abs(np.diff(function(x)) / np.diff(x)).max()
    assert largest == pytest.approx(steepest, abs=2e-4)
    assert largest < slope


@given(seed=st.integers(0, 1000), size=st.floats(1e-6, 1e-2))
def test_gating_carries_both_errors(seed, size):
    rng = np.random.Generator(np.random.Philox(seed))
    x = rng.normal(size=(3, 64)) * 3
    moved = x + rng.choice([-1, 1], x.shape) * size
    for order in Halves:
        off = np.abs(epilogues.gated_silu(moved, order) - epilogues.gated_silu(x, order))
        assert (off <= bounds.gated_silu_error(x, np.full(x.shape, size), order)).all()


def test_bias_is_one_rounding():
    y = np.float64([1.0, -3.0])
    assert np.array_equal(bounds.bias_error(y, np.zeros(2)), 2.0**-24 * np.abs(y))
