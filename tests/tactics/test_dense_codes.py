"""dense whose result becomes codes: who serves it, what its proofs reach, and what templates are told."""

import pytest

from nkc.ir.contract import Contract, DType, Layout
from nkc.ir.quantising import QUANTISED
from nkc.tactics import predicate as p
from nkc.tactics.catalogue import tactics_of
from nkc.tactics.dense import codes, wave
from nkc.tactics.select import Policy, select
from nkc.tactics.tactic import Tactic

from ..fixtures.contracts import contract

EXPERIMENTS = Policy(allow_experimental=True)
QUANTISES = p.Equals("$.dtypes.out", DType.FP8_E4M3)
TACTICS = tuple(tactic for tactic in tactics_of("dense") if QUANTISES in tactic.requires)
RULES = {"staging": "bf16", "quantize": "divide", "overflow": "saturate", "amax_floor": 1e-10}


def of_codes(arch: str, m: int, **edits: object) -> Contract:
    numerics = {"accumulate": "tensor_core_fp8", "combine": "fixed_order", **RULES}
    return contract(
        {
            "$.target": {"arch": arch},
            "$.shape": {"m": m, "n": 4096, "k": 4096},
            "$.dtypes.out": "fp8_e4m3",
            "$.scales.out": {"block": [1, 128], "layout": "row_major"},
            "$.numerics": numerics,
            **edits,
        }
    )


@pytest.mark.parametrize("arch", ["sm_90", "gfx950"])
@pytest.mark.parametrize("m", [1, 16, 64, 4096])
@pytest.mark.parametrize("operands", [{}, {"$.dtypes.a": "bf16", "$.dtypes.b": "bf16"}], ids=["fp8", "bf16"])
def test_no_kernel_that_stores_values_serves_a_contract_of_codes(arch, m, operands) -> None:
    edits = dict(operands)
    if operands:
        edits["$.scales"] = {"out": {"block": [1, 128], "layout": "row_major"}}
    eligible = {found.tactic.name for found in select(of_codes(arch, m, **edits), EXPERIMENTS).eligible}
    assert eligible <= {tactic.name for tactic in TACTICS}


@pytest.mark.parametrize("m", [1, 8, 16, 32, 64, 128, 512, 4096, 65536])
def test_some_kernel_quantises_any_number_of_rows_on_hopper(m) -> None:
    selection = select(of_codes("sm_90", m), EXPERIMENTS)
    assert selection.selected is not None
    assert selection.selected.tactic.family.endswith(codes.CODES)


@pytest.mark.parametrize("tactic", TACTICS, ids=lambda tactic: tactic.name)
def test_a_tile_holds_whole_groups_and_a_kernel_that_quantises_serves_no_values(tactic: Tactic) -> None:
    assert tactic.schedule.tile is not None
    assert tactic.schedule.tile[1] % 128 == 0
    proof = tactic.proofs(tactic)[0]
    for dtype in ("bf16", "fp32"):
        values = contract({"$.target": {"arch": tactic.target}, "$.dtypes.out": dtype})
        assert select(values, EXPERIMENTS, tactics=[tactic]).selected is None
    assert tactic.kernel.decided_by == codes.DECIDING_FILES
    assert set(codes.DECIDING_FILES) >= {"nkc/ir/quantising.py"}
    assert proof.scales[QUANTISED].block == (1, 128)


@pytest.mark.parametrize("tactic", TACTICS, ids=lambda tactic: tactic.name)
def test_proofs_reach_every_rule_about_codes(tactic: Tactic) -> None:
    proofs = tactic.proofs(tactic)

    def reached(*names: str) -> set[tuple[str, ...]]:
        return {tuple(str(proof.numerics[name]) for name in names) for proof in proofs}

    assert reached("quantize", "staging") == {
        (quantize, staging) for quantize in ("divide", "reciprocal", "ue8m0") for staging in ("bf16", "fp32")
    }
    assert reached("quantize", "overflow") == {
        (quantize, overflow) for quantize in ("divide", "reciprocal", "ue8m0") for overflow in ("saturate", "ieee")
    }
    assert {proof.numerics["amax_floor"] == 0.0 for proof in proofs} == {True, False}
    assert {proof.scales[QUANTISED].layout for proof in proofs} == {Layout.ROW_MAJOR, Layout.M_MAJOR}
    assert {proof.epilogue.dtype for proof in proofs} == {None, DType.BF16, DType.FP32}


def test_scales_lie_where_their_layout_says() -> None:
    def place(layout: dict[str, object], m: object = 9) -> object:
        edits = {"$.shape.m": m, "$.scales.out": {"block": [1, 128], **layout}}
        return codes.placed(of_codes("sm_90", 9, **edits), row="r", group="(n0 / 128)")["scale_place"]

    assert place({"layout": "row_major"}) == "r * 32 + (n0 / 128)"
    assert place({"layout": "m_major", "leading_dim": 12}) == "(n0 / 128) * 12 + r"
    padded = {"layout": "m_major", "leading_dim": {"multiple_of": 4}}
    assert place(padded, {"min": 0, "max": 64}) == "(n0 / 128) * ((m + 3) / 4 * 4) + r"


def test_a_result_of_values_places_no_rules() -> None:
    values = contract({"$.target": {"arch": "sm_90"}})
    assert codes.placed(values, row="r", group="(n0 / 128)") == {"codes": False}


def test_a_kernel_that_quantises_is_ranked_at_the_pace_of_the_one_that_stores_values() -> None:
    by_family = {tactic.family: tactic for tactic in TACTICS if tactic.target == "sm_90"}
    for family in ("sm_90.dense.fp8_wave", "sm_90.dense.fp8_tma", "sm_90.dense.fp8_skinny"):
        found = wave.pace_of(by_family[family + codes.CODES], wave.paces())
        assert found is not None
        assert found.family == family
