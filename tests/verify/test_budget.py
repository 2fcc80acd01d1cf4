"""The budget's numbers against what verification computes, and the facts against the units that were measured."""

import msgspec
import numpy as np
import pytest

from nkc.ir import operations, targets
from nkc.ir.frozen import FrozenMap
from nkc.ir.operations.dense import dot_error, product_error
from nkc.tactics.catalogue import find
from nkc.verify import bounds
from nkc.verify.numbers.rounding import Rounding
from nkc.verify.oracles.dense import Operands
from nkc.verify.oracles.matrix_unit import FP32_FMA, HOPPER_BF16, HOPPER_F16, HOPPER_FP8
from nkc.verify.subjects.dense import chains_of, unit_of
from tests.fixtures.contracts import contract

FLOAT64 = 1 + 1e-9
"""A bound computed for data adds the reference's own rounding and underflow, which no budget names."""
TENSOR_CORE = {"$.target.arch": "sm_90", "$.numerics.accumulate": "tensor_core_fp8"}


def bound_of(chosen, stage):
    found = next(s for s in operations.get("dense").stages(chosen) if s.name == stage)
    return found.bound


@pytest.mark.parametrize(("kind", "unit"), [("fp8", HOPPER_FP8), ("f16", HOPPER_F16), ("bf16", HOPPER_BF16)])
def test_the_facts_of_sm_90_are_the_units_held_against_the_chip(kind, unit) -> None:
    facts = targets.get("sm_90").facts
    stated = {
        name: facts[f"matrix_{kind}_{name}"].value for name in ("group", "kept_bits", "register_bits", "truncates")
    }
    assert stated == {
        "group": unit.group,
        "kept_bits": unit.addend_fraction_bits,
        "register_bits": unit.fraction_bits,
        "truncates": unit.rounding is Rounding.TRUNCATE,
    }
    assert all(facts[f"matrix_{kind}_{name}"].basis == "measured" for name in stated)


def test_the_number_of_plain_fp32_is_the_one_in_the_books() -> None:
    """gamma_{129 + blocks}: 8.64e-6 at K = 2048, 1.10e-5 at 7168."""
    for k, said in ((2048, "8.64e-06 S"), (5120, "1.01e-05 S"), (7168, "1.1e-05 S"), (17408, "1.58e-05 S")):
        chosen = contract({"$.shape.k": k, "$.numerics.accumulate": "fp32_sequential"})
        assert bound_of(chosen, "gemm.promote") == said


def test_a_truncating_unit_may_lose_twice_as_much_in_a_block() -> None:
    fp32, unit = (contract({"$.numerics.accumulate": rule}) for rule in ("fp32_sequential", "matrix_unit_fp32"))
    assert dot_error(unit) == pytest.approx(2 * dot_error(fp32), rel=1e-4)


def test_the_fp8_unit_of_hopper_may_lose_a_sixtieth_of_a_block() -> None:
    chosen = contract(TENSOR_CORE)
    assert bound_of(chosen, "gemm.dot") == "0.0167 S_b"
    dot = operations.get("dense").stages(chosen)[0]
    assert "13 fraction bits" in dot.accumulate
    assert "33 addends truncated at 2^-13" in dot.error


@pytest.mark.parametrize(
    "edits",
    [
        {},
        {"$.numerics.accumulate": "fp32_sequential"},
        TENSOR_CORE,
        {"$.target.arch": "sm_90"},
    ],
    ids=["gfx950", "fp32", "fp8-unit", "through-f16"],
)
def test_no_bound_of_any_data_exceeds_the_budget_and_positive_data_come_close(edits) -> None:
    """What `nkc explain` prints is the worst case of what `nkc verify` accepts."""
    chosen = contract({"$.shape.k": 512, **edits})
    unit = FP32_FMA if "fp32" in str(edits) else unit_of(chosen)
    random = np.random.default_rng(1)
    for positive in (True, False):
        a, b = (random.integers(1, 16, (rows, 512)).astype(np.float32) for rows in (8, 128))
        if not positive:
            a = a * random.choice([-1, 1], a.shape).astype(np.float32)
        operands = Operands(a=a, b=b, scale_a=np.ones((8, 4), np.float32), scale_b=np.ones((1, 4), np.float32))
        share = bounds.dense_error(operands, unit) / bounds.magnitude(operands)
        worst = product_error(chosen)
        assert worst is not None
        assert share.max() <= worst * FLOAT64
        if positive and unit is not HOPPER_FP8:  # there the largest addend is far below the whole block
            assert share.max() >= 0.98 * worst


def test_a_split_may_round_once_more_for_each_of_its_chains() -> None:
    ascending = contract({"$.numerics.combine": "ascending"})
    fixed = contract({"$.numerics.combine": "fixed_order"})
    assert product_error(fixed) > product_error(ascending)
    tactic = find("dense", "gfx950.dense.fp8_mfma_16x64x128_s3_k4")
    proof = msgspec.structs.replace(tactic.proofs(tactic)[0], shape=FrozenMap({"m": 16, "n": 64, "k": 512}))
    lowered = tactic.lower(proof, tactic)
    ones = np.ones((16, 512), np.float32)
    operands = Operands(a=ones, b=ones, scale_a=np.ones((16, 4), np.float32), scale_b=np.ones((1, 4), np.float32))
    chains = chains_of(lowered, operands)
    assert len(chains) == 4
    share = bounds.dense_error(operands, unit_of(lowered), chains) / bounds.magnitude(operands)
    assert share.max() <= product_error(proof) * FLOAT64


def test_a_target_without_a_known_unit_has_no_number() -> None:
    assert bound_of(contract({"$.target.arch": "sm_100"}), "gemm.dot").startswith("unknown")


def test_what_follows_the_accumulator_has_a_stage_of_its_own() -> None:
    assert [s.name for s in operations.get("dense").stages(contract())] == ["gemm.dot", "gemm.promote", "gemm.store"]
    biased = contract({"$.epilogue": {"kind": "bias", "dtype": "bf16"}})
    assert [s.name for s in operations.get("dense").stages(biased)][2] == "epi.bias"
    assert bound_of(biased, "epi.bias") == f"{2.0**-24:.3g} |y|"
    assert bound_of(contract({"$.dtypes.out": "fp32"}), "gemm.store") == "0"


def test_the_limit_of_the_rms_follows_what_one_store_loses() -> None:
    spread = np.random.default_rng(2).standard_normal((256, 256))
    assert bounds.bf16_store_ratio(spread) == pytest.approx(bounds.BF16_STORE_RATIO, rel=0.02)
    assert bounds.bf16_store_ratio(np.ones((4, 4))) == bounds.BF16_STORE_RATIO  # never less, though nothing is lost
    single = np.full((4, 4), 1 + 2.0**-8 - 2.0**-20)  # one value, nearly a tie: the store loses almost u_b of it
    assert bounds.bf16_store_ratio(single) == pytest.approx(1.5 * 2.0**-8, rel=1e-2)
