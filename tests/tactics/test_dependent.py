"""Dependent launch as a choice: what a contract must declare constant, what it may demand, and who goes first."""

import pytest

from nkc import ir
from nkc.ir.contract import Contract
from nkc.ir.reader import parse_document
from nkc.tactics import tuning
from nkc.tactics.catalogue import tactics_of
from nkc.tactics.evidence import Book
from nkc.tactics.near import near
from nkc.tactics.reason import StageName
from nkc.tactics.select import Candidate, Policy, Selection, select
from nkc.tactics.tactic import Lowered

EXPERIMENTS = Policy(allow_experimental=True)
GEMV = "sm_90.dense.fp8_gemv_r4_w8"


def contract(
    *constant: str,
    dependent: bool | None = None,
    bias: bool = False,
    shape: tuple[int, int, int] = (1, 1024, 4096),
    accumulate: str = "matrix_unit_fp32",
) -> Contract:
    """Return a row of activations, or `shape` (m, n, k), through block-scaled weights on sm_90."""
    epilogue = {"kind": "bias", "dtype": "bf16"} if bias else {"kind": "identity"}
    return parse_document(
        {
            "schema": "nkc.contract/1",
            "target": {"arch": "sm_90"},
            "operation": "dense",
            "shape": dict(zip("mnk", shape, strict=True)),
            "dtypes": {"a": "fp8_e4m3", "b": "fp8_e4m3", "acc": "fp32", "out": "bf16"},
            "scales": {
                "a": {"block": [1, 128], "layout": "row_major"},
                "b": {"block": [128, 128], "layout": "row_major"},
            },
            "layouts": {"a": "row_major", "b": "row_major_nk", "out": "row_major"},
            "epilogue": epilogue,
            "numerics": {"accumulate": accumulate, "combine": "fixed_order"},
            "properties": {"constant": list(constant)},
            "launch": {"dependent": dependent},
        }
    )


def of(selection: Selection, name: str) -> Candidate:
    return next(candidate for candidate in selection.candidates if candidate.tactic.name == name)


@pytest.mark.parametrize(
    ("constant", "bias", "wanted", "actual", "nearest"),
    [
        ((), False, "b, b_scales", "[]", ("b", "b_scales")),
        (("b",), False, "b, b_scales", "[b]", ("b", "b_scales")),
        (("a", "b_scales"), False, "b, b_scales", "[a, b_scales]", ("a", "b", "b_scales")),
        (("b", "b_scales"), True, "b, b_scales, bias", "[b, b_scales]", ("b", "b_scales", "bias")),
    ],
)
def test_what_is_read_early_must_be_declared_constant(constant, bias, wanted, actual, nearest) -> None:
    selection = select(contract(*constant, bias=bias), EXPERIMENTS)
    (reason,) = of(selection, f"{GEMV}_dependent").reasons
    assert (reason.stage, reason.predicate, reason.field) == (
        StageName.PREDICATE,
        "constant_operands",
        "$.properties.constant",
    )
    assert reason.wanted == f"{wanted} among them (read before the kernels ahead have ended)"
    assert (reason.actual, reason.nearest) == (actual, nearest)
    assert selection.selected is not None
    assert not selection.selected.tactic.dependent


@pytest.mark.parametrize("bias", [False, True])
def test_with_it_each_goes_before_itself_without(bias) -> None:
    """Both are eligible: a constant operand obliges nobody."""
    found = select(contract("b", "b_scales", *["bias"] * bias, bias=bias), EXPERIMENTS)
    names = [candidate.tactic.name for candidate in found.eligible]
    twins = [name for name in names if name.endswith("_dependent") and not of(found, name).crowds]
    assert len(twins) > 2
    for twin in twins:
        plain = twin.removesuffix("_dependent")
        assert of(found, twin).effective_rank == of(found, plain).effective_rank
        assert names.index(twin) < names.index(plain)
    assert found.selected is not None
    assert found.selected.tactic.dependent
    lowered = found.lower(found.selected).contract
    assert lowered.launch is not None
    assert lowered.launch.dependent is True
    assert parse_document(ir.contract_document(lowered)) == lowered
    again = select(lowered, EXPERIMENTS)
    assert again.selected is not None
    assert again.selected.tactic == found.selected.tactic
    assert again.lower(again.selected).contract == lowered


def test_a_contract_may_forbid_it() -> None:
    found = select(contract("b", "b_scales", dependent=False), EXPERIMENTS)
    assert found.selected is not None
    assert not found.selected.tactic.dependent
    lowered = found.lower(found.selected).contract
    assert lowered.launch is not None
    assert lowered.launch.dependent is False, "what the author wrote stays"
    (reason,) = of(found, f"{GEMV}_dependent").reasons
    assert (reason.predicate, reason.field) == ("as_written", "$.launch.dependent")
    assert (reason.wanted, reason.actual, reason.nearest) == ("true", "false", True)


def test_a_contract_may_demand_it_and_is_told_what_is_missing() -> None:
    demanding = contract(dependent=True)
    found = select(demanding, EXPERIMENTS)
    assert not found.eligible
    (reason,) = of(found, GEMV).reasons
    assert (reason.predicate, reason.wanted, reason.actual, reason.nearest) == ("as_written", "false", "true", False)
    edits = {
        entry.candidate.tactic.name: {edit.path: edit.after for edit in entry.edits}
        for entry in near(select(demanding, EXPERIMENTS, tactics=[t for t in tactics_of("dense") if "gemv" in t.name]))
    }
    assert edits[f"{GEMV}_dependent"] == {"$.properties.constant": ["b", "b_scales"]}
    assert edits[GEMV] in ({"$.launch.dependent": False}, {"$.launch.dependent": None})
    selected = select(contract("b", "b_scales", dependent=True), EXPERIMENTS).selected
    assert selected is not None
    assert selected.tactic.dependent


def test_a_row_of_the_tuning_table_ranks_both_until_it_names_one() -> None:
    known = {tactic.name: tactic for tactic in tactics_of("dense")}
    twin = known[f"{GEMV}_dependent"]
    ranks = tuning.Ranks(places={"other": 0, GEMV: 1}, source="row", named=frozenset({"other", GEMV}))
    assert ranks.of(twin) == ((0, 1), "row")
    named = tuning.Ranks(places={twin.name: 0, GEMV: 1}, source="row", named=frozenset({twin.name, GEMV}))
    assert named.of(twin) == ((0, 0), "row")
    assert named.of(known[GEMV]) == ((0, 1), "row")


def test_its_kernel_waits_once_and_without_it_the_text_is_another() -> None:
    from nkc.emit.render import render

    known = {tactic.name: tactic for tactic in tactics_of("dense")}
    for tactic in (known[GEMV], known[f"{GEMV}_dependent"]):
        for proof in tactic.proofs(tactic):
            text = render(Lowered.of(proof, tactic)).text
            assert text.count("  grids_ahead_wait();") == text.count("  grid_behind_begin();") == int(tactic.dependent)
            if tactic.dependent:
                assert "ld.global.nc" not in text, "nothing orders the read-only path behind the wait"
                assert "__ldg" not in text


@pytest.mark.parametrize(
    ("tactic", "shape", "crowded"),
    [
        ("fp8_wave_64x64x128_s6_o2", (64, 7168, 16384), True),  # 112 tiles, 264 places
        ("fp8_wave_64x64x128_s6_k2_o2", (64, 5120, 17408), True),
        ("fp8_wave_64x64x128_s6_o2", (64, 24576, 1536), False),  # 384 tiles
        ("fp8_wave_64x32x128_s16_k2", (64, 2112, 7168), False),  # a unit holds one
        ("fp8_skinny_16x64x128_s3x2_k2", (16, 7168, 16384), True),  # 224 CTAs, 396 places, 64 blocks each
        ("fp8_skinny_16x64x128_s3x2_k2", (16, 5120, 5120), False),  # 160 CTAs, for 20 blocks
        ("fp8_stream_16x64x128_s3x2_k2", (16, 7168, 16384), True),  # 224 CTAs, 396 places, 64 blocks each
        ("fp8_stream_16x64x128_s3x2_k4", (16, 7168, 16384), False),  # 448 CTAs
        ("fp8_stream_16x64x128_s3x2_k4", (16, 5120, 5120), False),  # 320 CTAs, for 10 blocks
    ],
)
def test_one_that_would_share_units_goes_behind_itself_without(tactic, shape, crowded) -> None:
    asked = contract("b", "b_scales", shape=shape, accumulate="tensor_core_fp8")
    found = select(asked, EXPERIMENTS, book=Book())
    names = [candidate.tactic.name for candidate in found.eligible]
    plain, twin = f"sm_90.dense.{tactic}", f"sm_90.dense.{tactic}_dependent"
    assert of(found, twin).crowds is crowded
    assert (names.index(plain) < names.index(twin)) is crowded
