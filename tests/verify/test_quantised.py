"""What is judged of codes, scales, sums and products: the oracle passes, and every kind of mistake is found."""

import dataclasses

import numpy as np
import pytest

from nkc.ir.contract import Bounded, DType, Layout, dim_max
from nkc.tactics.catalogue import tactics_of
from nkc.verify.memory import POISON, STORAGE, poisoned
from nkc.verify.numbers import bf16
from nkc.verify.regimes import Recipe, Regime
from nkc.verify.subject import dim_values, judge_of

OPERATIONS = ("group_quant", "silu_mul_quant", "rms_norm_quant")


def proofs(operation):
    """Return the smallest proof set of an operation: codes, and for the norm bf16 results too."""
    found = [tactic for tactic in tactics_of(operation) if tactic.target == "gfx950"]
    kept = {}
    for tactic in found:
        kept.setdefault(tactic.family, tactic)
    return [proof for tactic in kept.values() for proof in tactic.proofs(tactic)]


CASES = [(operation, proof) for operation in OPERATIONS for proof in proofs(operation)]


def ideal(operation, contract, recipe, dims):
    """Return outputs that hold the oracle's values: what a perfect kernel leaves."""
    judge = judge_of(operation)
    m = dims.get("m", dim_max(contract.shape["m"]))
    expected = judge._expected(contract, recipe, m)
    codes = getattr(expected, "quantised", expected)
    values = {"out": expected.normed} if codes is None else {"out": codes.codes, "out_scales": codes.scales}
    values["product"] = getattr(expected, "product", None)
    values["residual_out"] = getattr(expected, "residual_out", None)
    left = {}
    for tensor in judge.tensors(contract, recipe, dims):
        if tensor.written:
            storage = poisoned(tensor.dtype, tensor.storage.size)
            np.lib.stride_tricks.as_strided(
                storage, tensor.shape, [step * storage.itemsize for step in tensor.strides]
            )[...] = values[tensor.name].astype(STORAGE[tensor.dtype])
            left[tensor.name] = storage
    return left


def judged(operation, contract, left, *, regime=Regime.MODEL_LIKE, dims=None, covered=None):
    dims = dims if dims is not None else dim_values(contract)[0]
    return judge_of(operation).judge(contract, Recipe(regime=regime, seed=1), dims, left, covered or {})


@pytest.mark.parametrize("regime", Regime)
@pytest.mark.parametrize(("operation", "contract"), CASES, ids=lambda value: value if isinstance(value, str) else "")
def test_the_oracle_passes_in_every_regime(operation, contract, regime) -> None:
    for dims in dim_values(contract):
        left = ideal(operation, contract, Recipe(regime=regime, seed=1), dims)
        found = judged(operation, contract, left, regime=regime, dims=dims)
        assert found.passed, {name: verdict.first for name, verdict in found.verdicts.items()}
        assert all(verdict.worst <= 1 for verdict in found.verdicts.values())


@pytest.mark.parametrize(("operation", "contract"), CASES, ids=lambda value: value if isinstance(value, str) else "")
def test_what_was_never_written_is_found_in_every_output(operation, contract) -> None:
    dims = dim_values(contract)[0]
    recipe = Recipe(regime=Regime.MODEL_LIKE, seed=1)
    whole = ideal(operation, contract, recipe, dims)
    for name in whole:
        left = {**whole, name: whole[name].copy()}
        left[name].view(np.uint8)[: whole[name].itemsize] = POISON
        found = judged(operation, contract, left)
        assert not found.passed
        assert not found.verdicts[name].passed
        assert found.verdicts[name].failures == 1


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_code_two_steps_away_and_a_scale_a_few_ulp_away_are_found(operation) -> None:
    contract = next(
        proof
        for name, proof in CASES
        if name == operation and proof.scales and not isinstance(proof.shape["m"], Bounded)
    )
    whole = ideal(operation, contract, Recipe(regime=Regime.MODEL_LIKE, seed=1), {})
    place = int(np.flatnonzero((whole["out"] & 0x7F) == 0x60)[0])
    far = {**whole, "out": whole["out"].copy()}
    far["out"][place] += 2
    found = judged(operation, contract, far)
    assert not found.passed
    assert found.verdicts["out"].first is not None
    assert found.verdicts["out"].first.index == divmod(place, contract.exact("k"))
    assert found.verdicts["out_scales"].passed
    scaled = {**whole, "out_scales": (whole["out_scales"].view(np.uint32) + np.uint32(8)).view(np.float32)}
    found = judged(operation, contract, scaled)
    assert not found.verdicts["out_scales"].passed
    assert found.verdicts["out"].passed
    assert found.verdicts["out_scales"].failures == scaled["out_scales"].size


def test_group_quant_promises_every_bit() -> None:
    contract = CASES[0][1]
    whole = ideal("group_quant", contract, Recipe(regime=Regime.MODEL_LIKE, seed=1), {})
    assert judged("group_quant", contract, whole).bit_equal is True
    near = {**whole, "out": whole["out"].copy()}
    near["out"][5] ^= 1
    assert judged("group_quant", contract, near).bit_equal is False
    sign = {**whole, "out": whole["out"].copy()}
    sign["out"][5] ^= 0x80
    assert not judged("group_quant", contract, sign).passed


def test_lanes_between_the_rows_and_the_leading_dimension_belong_to_nobody() -> None:
    contract = next(
        proof
        for _, proof in CASES
        if proof.scales
        and proof.scales["out"].layout is Layout.M_MAJOR
        and isinstance(proof.shape["m"], int)
        and proof.scales["out"].leading_dim != proof.shape["m"]
    )
    dims = dim_values(contract)[0]
    whole = ideal("group_quant", contract, Recipe(regime=Regime.MODEL_LIKE, seed=1), dims)
    assert judged("group_quant", contract, whole, dims=dims).passed
    whole["out_scales"][dim_max(contract.shape["m"])] = 0.0
    found = judged("group_quant", contract, whole, dims=dims)
    assert not found.verdicts["out_scales"].passed


def test_one_ulp_in_the_sum_is_found_and_a_nan_need_only_be_one() -> None:
    contract = next(proof for name, proof in CASES if name == "rms_norm_quant" and "residual" in proof.dtypes)
    dims = dim_values(contract)[0]
    whole = ideal("rms_norm_quant", contract, Recipe(regime=Regime.EDGES, seed=1), dims)
    nan = np.isnan(bf16.decode(whole["residual_out"]))
    assert nan.any()
    other = {**whole, "residual_out": np.where(nan, 0x7FFF, whole["residual_out"]).astype(np.uint16)}
    assert judged("rms_norm_quant", contract, other, regime=Regime.EDGES, dims=dims).passed
    other["residual_out"][int(np.flatnonzero(~nan)[0])] ^= 1
    found = judged("rms_norm_quant", contract, other, regime=Regime.EDGES, dims=dims)
    assert found.bit_equal is False
    assert not found.verdicts["residual_out"].passed


def test_only_what_a_sampled_run_covered_is_judged() -> None:
    contract = CASES[0][1]
    whole = ideal("group_quant", contract, Recipe(regime=Regime.MODEL_LIKE, seed=1), {})
    left = {name: poisoned(DType.FP8_E4M3 if name == "out" else DType.FP32, data.size) for name, data in whole.items()}
    covered = {name: np.zeros(data.size, np.bool_) for name, data in whole.items()}
    covered["out"][:128] = covered["out_scales"][:1] = True
    assert not judged("group_quant", contract, left, covered=covered).passed
    left["out"][:128], left["out_scales"][:1] = whole["out"][:128], whole["out_scales"][:1]
    assert judged("group_quant", contract, left, covered=covered).passed


def test_inputs_stay_inside_the_range_of_the_norm_and_fp32_inputs_are_not_bf16() -> None:
    from nkc.verify.subjects import group_quant, rms_norm_quant

    norm = next(proof for name, proof in CASES if name == "rms_norm_quant")
    for regime in Regime:
        x = rms_norm_quant._inputs(norm, Recipe(regime=regime, seed=1), 4).x
        squares = np.sum(np.nan_to_num(x).astype(np.float64) ** 2, axis=1)
        assert (squares < 3e38).all()
    wide = next(proof for name, proof in CASES if name == "group_quant" and proof.dtypes["x"] is DType.FP32)
    recipe = Recipe(regime=Regime.MODEL_LIKE, seed=1)
    x = group_quant._input(wide, recipe, 4)
    assert (bf16.rounded(x) != x).mean() > 0.9
    assert dataclasses.is_dataclass(group_quant._expected(wide, recipe, 4))
