"""Codes of a product: what every value within its bound gives passes, and every other thing is found."""

import copy

import msgspec
import numpy as np
import pytest

from nkc.ir.contract import Schedule
from nkc.ir.quantising import QUANTISED
from nkc.verify import bounds, legal_codes
from nkc.verify.legal_codes import legal, quantise, staged
from nkc.verify.memory import STORAGE, poisoned
from nkc.verify.numbers import bf16, fp8, fp32
from nkc.verify.numbers.fp8 import Overflow
from nkc.verify.oracles import dense as oracle
from nkc.verify.oracles.group_quant import Flavour
from nkc.verify.oracles.matrix_unit import HOPPER_FP8
from nkc.verify.oracles.silu_mul_quant import Intermediate
from nkc.verify.quantised import SCALES, Rules
from nkc.verify.regimes import Recipe, Regime, activations
from nkc.verify.subjects import dense
from tests.fixtures.contracts import contract as read

CODES = {
    "$.target": {"arch": "sm_90"},
    "$.shape": {"m": 9, "n": 384, "k": 384},
    "$.dtypes.out": "fp8_e4m3",
    "$.scales.out": {"block": [1, 128], "layout": "m_major", "leading_dim": 12},
    "$.numerics": {
        "accumulate": "tensor_core_fp8",
        "combine": "ascending",
        "staging": "bf16",
        "quantize": "divide",
        "overflow": "saturate",
        "amax_floor": 1e-10,
    },
}


def rules(flavour=Flavour.DIVIDE, floor=1e-10, overflow=Overflow.SATURATE):
    return Rules(flavour=flavour, overflow=overflow, amax_floor=floor, group=128)


def between(regime, *, error, seed=3, m=12, d=512):
    """Return the ends of values whose relative error is `error`, and draws of values between them."""
    y = activations(Recipe(regime=regime, seed=seed), m, d, nan=False).astype(np.float64)
    reach = error * np.abs(y) + 1e-30
    draws = [y + reach * np.random.default_rng(seed).uniform(-1, 1, y.shape) for seed in range(3)]
    return y - reach, y + reach, [*draws, y - reach, y + reach]


@pytest.mark.parametrize("staging", Intermediate)
@pytest.mark.parametrize("floor", [1e-10, 0.0])
@pytest.mark.parametrize("flavour", [Flavour.DIVIDE, Flavour.RECIPROCAL, Flavour.UE8M0])
@pytest.mark.parametrize("error", [1e-7, 3e-3, 0.2])
@pytest.mark.parametrize("regime", [Regime.EXACT, Regime.MODEL_LIKE, Regime.WIDE])
def test_whatever_lies_between_passes(regime, error, flavour, floor, staging) -> None:
    said = rules(flavour, floor, Overflow.IEEE)
    low, high, draws = between(regime, error=error)
    for draw in draws:
        made = quantise(staged(draw, staging), said)
        found = legal(made.codes, made.scales, staged(low, staging), staged(high, staging), said, staging)
        assert found.scales.all()
        assert found.codes.all()


def single_faults():
    """Return what is spoiled of codes [m, n] and scales [m, g]: (name, how, where it is to be found)."""
    largest = (0, 5)

    def code_up(codes, scales):
        codes[3, 200] += 2

    def sign(codes, scales):
        codes[3, 200] ^= 0x80

    def nan(codes, scales):
        codes[3, 200] = 0x7F

    def scale_up(codes, scales):
        scales[2, 1] = np.nextafter(scales[2, 1], np.float32(np.inf))

    def scale_unexplained(codes, scales):
        group = codes[largest[0], :128]
        group[(group & 0x7F) == 0x7E] -= 1

    return [
        ("code", code_up, QUANTISED),
        ("sign", sign, QUANTISED),
        ("nan", nan, QUANTISED),
        ("scale", scale_up, SCALES),
        ("largest", scale_unexplained, QUANTISED),
    ]


@pytest.mark.parametrize(
    ("how", "where"), [fault[1:] for fault in single_faults()], ids=[f[0] for f in single_faults()]
)
def test_single_faults_are_found(how, where) -> None:
    low, high, (draw, *_) = between(Regime.MODEL_LIKE, error=1e-7)
    said, staging = rules(), Intermediate.FP32
    made = quantise(staged(draw, staging), said)
    codes, scales = made.codes.copy(), made.scales.copy()
    codes[3, 200] = 0x40 if how.__name__ != "scale_unexplained" else codes[3, 200]
    with np.errstate(over="ignore"):
        how(codes, scales)
    found = legal(codes, scales, staged(low, staging), staged(high, staging), said, staging)
    assert not (found.scales.all() if where == SCALES else found.codes.all())


def test_a_scale_of_a_value_that_bf16_does_not_have_is_refused_where_results_wait_in_bf16() -> None:
    low, high, (draw, *_) = between(Regime.MODEL_LIKE, error=3e-3)
    ends = [staged(end, Intermediate.BF16) for end in (low, high)]
    unrounded = quantise(staged(draw, Intermediate.FP32), rules())
    assert not legal(unrounded.codes, unrounded.scales, *ends, rules(), Intermediate.BF16).scales.any()


def test_a_nan_is_one_of_its_whole_group_and_of_no_other() -> None:
    y = activations(Recipe(regime=Regime.MODEL_LIKE, seed=3), 4, 256).astype(np.float32)
    y[1, 130] = np.nan
    made = quantise(y, rules())
    assert fp8.is_nan(made.codes).sum() == 128
    for row, group in ((1, 0), (2, 1)):
        scales, codes = made.scales.copy(), made.codes.copy()
        found = legal(codes, scales, y, y, rules(), Intermediate.FP32)
        assert found.scales.all()
        assert found.codes.all()
        scales[row, group] = np.nan
        codes[row, group * 128 : (group + 1) * 128] = 0x7F
        found = legal(codes, scales, y, y, rules(), Intermediate.FP32)
        assert not found.scales[row, group]
        assert not found.codes[row, group * 128 : (group + 1) * 128].any()
    kept = quantise(np.where(np.isnan(y), np.float32(0), y), rules())
    found = legal(kept.codes, kept.scales, y, y, rules(), Intermediate.FP32)
    assert not found.scales[1, 1]
    assert not found.codes[1, 128:].any()


def test_an_infinite_sum_is_no_data_for_this_judge() -> None:
    ends = np.full((1, 128), np.inf, np.float32)
    with pytest.raises(ValueError, match="infinite"):
        legal(np.zeros((1, 128), np.uint8), np.ones((1, 1), np.float32), ends, ends, rules(), Intermediate.FP32)


def lowered(edits=None):
    """Return a contract of codes as a tactic lowers it: one chain."""
    return msgspec.structs.replace(
        read(copy.deepcopy({**CODES, **(edits or {})})), schedule=Schedule(tile=(64, 128, 128), split_k=1)
    )


def run(contract, recipe, accumulator=None):
    """Return what a kernel leaves whose sums are these, by default those of the modelled unit."""
    operands, bias = dense._operands(contract, recipe, contract.exact("m"))
    if accumulator is None:
        accumulator = oracle.accumulator(operands, HOPPER_FP8)
    made = dense._codes(contract, dense._finished(contract, accumulator, bias))
    left = {}
    for tensor in dense.tensors(contract, recipe, {}):
        if tensor.written:
            storage = poisoned(tensor.dtype, tensor.storage.size)
            values = made.codes if tensor.name == QUANTISED else made.scales
            tensor.view(storage)[...] = values.astype(STORAGE[tensor.dtype])
            left[tensor.name] = storage
    return left


EDITS = {
    "bf16": {},
    "fp32": {"$.numerics.staging": "fp32", "$.numerics.quantize": "reciprocal"},
    "bias": {"$.epilogue": {"kind": "bias", "dtype": "bf16"}, "$.numerics.quantize": "ue8m0"},
    "row_major": {"$.scales.out": {"block": [1, 128], "layout": "row_major"}, "$.numerics.overflow": "ieee"},
    "one_block": {"$.shape.k": 128, "$.numerics.staging": "fp32"},
}


@pytest.mark.parametrize("edits", EDITS.values(), ids=EDITS)
@pytest.mark.parametrize("regime", Regime)
def test_the_modelled_unit_passes_and_is_predicted_to_the_bit(regime, edits) -> None:
    contract, recipe = lowered(edits), Recipe(regime=regime, seed=1)
    left = run(contract, recipe)
    found = dense.judge(contract, recipe, {}, left, {})
    assert found.passed, {name: verdict.first for name, verdict in found.verdicts.items()}
    assert found.bit_equal is (True if regime is Regime.EXACT else None)
    for name, predicted in dense.predict(contract, HOPPER_FP8, recipe, {}).items():
        got = dense.decoded(contract, name, left[name], {})
        assert bounds.first_difference(got, predicted, ~np.isnan(predicted)) is None


@pytest.mark.parametrize("regime", [Regime.MODEL_LIKE, Regime.WIDE])
def test_a_column_of_another_group_a_block_too_few_and_a_bias_left_out_are_found(regime) -> None:
    contract, recipe = lowered(EDITS["bias"]), Recipe(regime=regime, seed=1)
    operands, bias = dense._operands(contract, recipe, contract.exact("m"))
    right = oracle.accumulator(operands, HOPPER_FP8)
    swapped = right.copy()
    swapped[:, [7, 8]] = right[:, [8, 7]]
    chain = oracle.ascending(operands)[0]
    short = oracle._chain(operands, chain[:-1], HOPPER_FP8, oracle.Promotion.FMA)
    without = right - bias if regime is Regime.MODEL_LIKE else np.roll(right, 1, axis=0)
    for wrong in (swapped, short, without):
        assert not dense.judge(contract, recipe, {}, run(contract, recipe, wrong), {}).passed


def test_exact_data_gives_every_bit_of_the_flavour() -> None:
    contract, recipe = lowered(), Recipe(regime=Regime.EXACT, seed=1)
    other = lowered({"$.numerics.quantize": "reciprocal"})
    found = dense.judge(contract, recipe, {}, run(other, recipe), {})
    assert found.bit_equal is False


def test_truncated_codes_are_found_where_the_bound_is_wide() -> None:
    contract, recipe = lowered({"$.shape.k": 3072}), Recipe(regime=Regime.MODEL_LIKE, seed=1)
    left = run(contract, recipe)
    value, _ = dense._expected(contract, recipe, contract.exact("m"))
    scales = dense.tensors(contract, recipe, {})[-1].view(left[SCALES])
    ratio = bf16.rounded(value) / np.repeat(scales, 128, axis=1)
    codes = left[QUANTISED].reshape(ratio.shape)
    over = (np.abs(fp8.decode(codes)) > np.abs(ratio)) & ((codes & 0x7F) > 0)
    codes[over] -= 1
    verdict = dense.judge(contract, recipe, {}, left, {}).verdicts[QUANTISED]
    assert not verdict.passed
    assert verdict.err_ratio > verdict.err_ratio_limit


def test_what_was_not_computed_is_not_judged_and_padding_may_not_be_written() -> None:
    contract, recipe = lowered(), Recipe(regime=Regime.MODEL_LIKE, seed=1)
    left = run(contract, recipe)
    kept = {name: np.ones(bits.size, np.bool_) for name, bits in left.items()}
    left[QUANTISED][:128] = 0x7F
    left[SCALES][0] = np.nan
    assert not dense.judge(contract, recipe, {}, left, {}).passed
    kept[QUANTISED][:128] = False
    kept[SCALES][0] = False
    assert dense.judge(contract, recipe, {}, left, kept).passed
    left[SCALES][9] = 1.0  # between m and the leading dimension
    assert not dense.judge(contract, recipe, {}, left, kept).verdicts[SCALES].passed


def test_the_judge_states_its_limits_from_the_data() -> None:
    contract, recipe = lowered(), Recipe(regime=Regime.MODEL_LIKE, seed=1)
    verdict = dense.judge(contract, recipe, {}, run(contract, recipe), {}).verdicts[QUANTISED]
    value, _ = dense._expected(contract, recipe, contract.exact("m"))
    own = bounds.err_ratio(quantise(staged(value, Intermediate.BF16), rules()).decoded(), value)
    assert verdict.err_ratio_limit == pytest.approx(1.5 * own + bounds.BF16_STORE_RATIO)
    assert verdict.err_ratio == pytest.approx(own, rel=0.02)
    assert fp32.UNIT_ROUNDOFF < own < 0.04
    assert legal_codes.RATIO_ROOM == 1.5
