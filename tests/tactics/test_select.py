"""Selection: every candidate with every reason, one order, and nothing but contract, catalogue and policy in it."""

import json
import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nkc import ir
from nkc.ir.contract import Bounded, Combine, Maturity
from nkc.ir.errors import ToolError
from nkc.tactics import catalogue
from nkc.tactics.hardware import LdsFits
from nkc.tactics.predicate import at_most, equals, multiple_of
from nkc.tactics.reason import Reason, StageName
from nkc.tactics.select import Candidate, Policy, Selection, select
from nkc.tactics.tactic import Tactic

from ..fixtures.contracts import Edits, contract, document, problems, read
from ..fixtures.sheets import tactic

EXPERIMENTS = Policy(allow_experimental=True)


def names(candidates: tuple[Candidate, ...]) -> list[str]:
    return [candidate.tactic.name.removeprefix("gfx950.dense.") for candidate in candidates]


def reasons_of(selection: Selection, name: str = "") -> tuple[Reason, ...]:
    return next(found.reasons for found in selection.candidates if found.tactic.name.endswith(name))


def rotation(edits: Edits | None = None) -> ir.Contract:
    """Return a contract of the operation that tests bring along."""
    base = {
        "$.target.arch": "sm_90",
        "$.operation": "rotate_rows",
        "$.shape": {"rows": 48, "hidden": 2048},
        "$.dtypes": {"x": "bf16", "out": "bf16"},
        "$.layouts": {"x": "row_major", "out": "row_major"},
        "$.numerics": {"eps": 1e-6},
        "$.scales": None,
    }
    return read(document({**base, **(edits or {})}))


# completeness


def test_N33_every_reason_of_every_candidate_is_listed() -> None:
    sheet = tactic(
        "t",
        at_most("$.shape.m", 64),
        multiple_of("$.shape.n", 64),
        equals("$.layouts.b", "row_major_nk"),
        deterministic=False,
    )
    selection = select(
        contract({"$.shape.m": 65, "$.shape.n": 65, "$.layouts.b": "shuffled_16x16", "$.constants.x": 1}),
        Policy(only_tactic="another"),
        tactics=[sheet, tactic("also")],
    )
    found = [
        (reason.stage.value, reason.predicate, reason.field, reason.actual) for reason in reasons_of(selection, ".t")
    ]
    assert found == [
        ("predicate", "at_most", "$.shape.m", "65"),
        ("predicate", "multiple_of", "$.shape.n", "65"),
        ("predicate", "equals", "$.layouts.b", "shuffled_16x16"),
        ("predicate", "declares", "$.constants.x", "undeclared: x"),
        ("property", "guarantees", "$.properties.deterministic", "true"),
        ("maturity", "mature", "maturity", "experiment"),
        ("policy", "only_tactic", "policy.only_tactic", "gfx950.dense.t"),
    ]
    assert names(selection.candidates) == ["also", "t"]
    assert selection.eligible == ()
    assert selection.selected is None


def test_candidates_are_all_tactics_of_the_operation_on_every_target() -> None:
    selection = select(contract(), EXPERIMENTS)
    assert {found.tactic.target for found in selection.candidates} == {"gfx950", "sm_90"}
    assert [found.tactic for found in selection.candidates] == list(catalogue.tactics_of("dense"))
    assert selection.selected is not None
    assert selection.selected.tactic.target == "gfx950"
    for found in selection.candidates:
        wrong_chip = [reason for reason in found.reasons if reason.predicate == "is_target"]
        assert bool(wrong_chip) == (found.tactic.target != "gfx950")


def test_F04_a_range_that_fits_only_in_part_is_rejected_whole() -> None:
    sheet = tactic("small", at_most("$.shape.m", 255))
    assert select(contract({"$.shape.m": {"min": 1, "max": 255}}), EXPERIMENTS, tactics=[sheet]).selected is not None
    selection = select(contract({"$.shape.m": {"min": 1, "max": 512}}), EXPERIMENTS, tactics=[sheet])
    (reason,) = reasons_of(selection)
    assert (reason.wanted, reason.actual) == ("at most 255", "1..512")


@pytest.mark.parametrize("arch", ["gfx950", "sm_90"])
@pytest.mark.parametrize("accumulate", ["matrix_unit_fp32", "tensor_core_fp8"])
def test_F04_what_serves_a_range_serves_every_row_of_it(arch: str, accumulate: str) -> None:
    """N = 32 beside tiles of 32 and 64 columns: nothing that works below 256 rows meets its first prefill unready."""
    fixed = {"$.target.arch": arch, "$.numerics.accumulate": accumulate, "$.shape.n": 32, "$.shape.k": 4096}

    def eligible(m: object) -> set[str]:
        return set(names(select(contract({**fixed, "$.shape.m": m}), EXPERIMENTS).eligible))

    whole = select(contract({**fixed, "$.shape.m": {"min": 1, "max": 512}}), EXPERIMENTS)
    alone = [eligible(m) for m in (1, 255, 256, 512)]
    assert whole.selected is not None
    assert set(names(whole.eligible)) == set.intersection(*alone)
    partly = set.union(*alone) - set.intersection(*alone)
    assert len(partly) > 4
    for found in whole.candidates:
        if names((found,))[0] in partly:
            assert [(reason.field, reason.actual) for reason in found.reasons] == [("$.shape.m", "1..512")]
            assert found.reasons[0].wanted.startswith("at most ")
            nearest = found.reasons[0].nearest
            assert nearest == 1 or isinstance(nearest, Bounded), "the rows that it would serve"


@pytest.mark.parametrize(
    ("arch", "limit", "fits"),
    [
        ("gfx950", 163_840, True),
        ("sm_90", 232_448, True),
        ("gfx942", 65_536, False),
        ("sm_89", 101_376, False),
        ("sm_120", 101_376, False),
    ],
)
def test_F25_a_tactic_says_both_numbers_where_lds_does_not_fit(arch: str, limit: int, fits: bool) -> None:
    """fp8 tiles of 128x256x128 in three stages: 3 * (128 + 256) * 128 bytes."""
    sheet = tactic("fp8_128x256x128_s3", LdsFits(3 * (128 + 256) * 128))
    selection = select(contract({"$.target.arch": arch}), EXPERIMENTS, tactics=[sheet])
    found = [reason for reason in reasons_of(selection) if reason.predicate == "lds_fits"]
    assert bool(found) == (not fits)
    for reason in found:
        assert "147456" in reason.wanted
        assert str(limit) in reason.actual


def test_e4m3fn_is_rejected_on_its_dtype_by_every_candidate_that_asks_for_the_capability() -> None:
    selection = select(contract({"$.target.arch": "gfx942"}), EXPERIMENTS)
    asking = [found for found in selection.candidates if "fp8" in found.tactic.name]
    assert asking
    for found in asking:
        (reason,) = [reason for reason in found.reasons if reason.predicate == "target_has"]
        assert reason.field == "$.dtypes.a"
        assert reason.wanted == "a target with ocp_fp8"
        assert reason.actual == "fp8_e4m3 on gfx942, without it"
    assert selection.selected is None


def test_F01_partial_scale_blocks_of_n_are_no_reason() -> None:
    for n in (576, 2112, 448):
        assert select(contract({"$.shape.n": n, "$.shape.k": 7168}), EXPERIMENTS).selected is not None


def test_F10_another_layout_of_the_scales_is_another_contract() -> None:
    row_major = contract({"$.shape.m": 5, "$.shape.k": 512})
    m_major = contract({"$.shape.m": 5, "$.shape.k": 512, "$.scales.a.layout": "m_major", "$.scales.a.leading_dim": 8})
    assert ir.contract_id(row_major) != ir.contract_id(m_major)
    only = tactic("row_major_only", equals("$.scales.a.layout", "row_major"))
    (reason,) = reasons_of(select(m_major, EXPERIMENTS, tactics=[only]))
    assert (reason.field, reason.wanted, reason.actual) == ("$.scales.a.layout", "row_major", "m_major")


# N23 to N26 on the operation that tests bring along


@pytest.mark.usefixtures("rotate_rows")
class TestExactMatching:
    def test_N23_a_match_on_all_fields_is_selected_without_a_reason(self) -> None:
        selection = select(rotation(), EXPERIMENTS)
        assert selection.selected is not None
        assert selection.selected.tactic.name == "sm_90.rotate_rows.copy"
        assert selection.selected.reasons == ()

    def test_N23_one_constant_changed_is_rejected_by_its_name(self) -> None:
        selection = select(rotation({"$.shape.hidden": 4096}), EXPERIMENTS)
        assert selection.selected is None
        (reason,) = reasons_of(selection, "copy")
        assert (reason.field, reason.wanted, reason.actual) == ("$.shape.hidden", "2048", "4096")

    def test_N25_a_constant_that_the_candidate_never_declared(self) -> None:
        assert select(rotation({"$.constants.by": 3}), EXPERIMENTS).selected is not None
        selection = select(rotation({"$.constants": {"by": 3, "stride": 1}}), EXPERIMENTS)
        assert selection.selected is None
        (reason,) = reasons_of(selection, "copy")
        assert (reason.predicate, reason.field) == ("declares", "$.constants.stride")
        assert reason.actual == "undeclared: stride"

    @pytest.mark.parametrize(
        ("rows", "fits"),
        [
            (48, True),
            (96, True),
            (480, True),
            (47, False),
            (49, False),
            (481, False),
            (528, False),
            ({"min": 48, "max": 96}, False),
        ],
    )
    def test_N26_rows_in_steps(self, rows: object, fits: bool) -> None:
        selection = select(rotation({"$.shape.rows": rows}), EXPERIMENTS)
        assert (selection.selected is not None) == fits
        if not fits:
            (reason,) = reasons_of(selection, "copy")
            assert (reason.field, reason.wanted) == ("$.shape.rows", "48 to 480 in steps of 48")

    def test_N28_a_rejected_sibling_is_never_selected_though_its_rank_is_better(self) -> None:
        selection = select(rotation(), EXPERIMENTS)
        assert names(selection.eligible) == ["sm_90.rotate_rows.copy"]
        (reason,) = reasons_of(selection, "swizzled")
        assert (reason.stage, reason.wanted, reason.actual) == (
            StageName.MATURITY,
            "a tactic that was not rejected",
            "rejected",
        )


def test_an_operation_without_a_folder_has_no_candidates() -> None:
    assert catalogue.packs("no_such_operation") == ()
    assert catalogue.tactics_of("no_such_operation") == ()


def test_N24_the_same_dims_in_another_layout_are_not_selected() -> None:
    selection = select(contract({"$.layouts.b": "shuffled_16x16", "$.fallback": "framework"}), EXPERIMENTS)
    assert selection.selected is None
    on_this_chip = [found for found in selection.candidates if found.tactic.target == "gfx950"]
    assert all(any(reason.field == "$.layouts.b" for reason in found.reasons) for found in on_this_chip)


# maturity and policy


def test_N28_rejected_stays_rejected_whatever_is_allowed() -> None:
    bad = tactic("bad", claim=Maturity.REJECTED)
    for policy in (Policy(), EXPERIMENTS, Policy(allow_experimental=True, only_tactic=bad.name)):
        selection = select(contract(), policy, tactics=[bad])
        assert selection.selected is None
        assert [reason.stage for reason in reasons_of(selection)] == [StageName.MATURITY]


def test_N29_an_experiment_needs_consent_and_the_record_keeps_it() -> None:
    sheet = tactic()
    without = select(contract(), tactics=[sheet])
    assert without.selected is None
    (reason,) = reasons_of(without)
    assert (reason.stage, reason.field, reason.actual) == (StageName.MATURITY, "maturity", "experiment")
    assert reason.wanted == "verified or accepted, or --allow-experimental"
    consented = select(contract(), EXPERIMENTS, tactics=[sheet])
    assert consented.selected is not None
    assert consented.policy.allow_experimental


@pytest.mark.parametrize("claim", [Maturity.VERIFIED, Maturity.ACCEPTED])
def test_no_claim_is_believed_without_evidence(claim: Maturity) -> None:
    selection = select(contract(), tactics=[tactic("boastful", claim=claim)])
    assert selection.selected is None
    (found,) = selection.candidates
    assert (found.standing.maturity, found.standing.claimed) == (Maturity.EXPERIMENT, claim)


def test_a_forced_route_lifts_no_predicate() -> None:
    fits, misses = tactic("fits"), tactic("misses", at_most("$.shape.m", 0))
    forced = select(contract(), Policy(allow_experimental=True, only_tactic=misses.name), tactics=[fits, misses])
    assert forced.selected is None
    assert [reason.stage for reason in reasons_of(forced, "fits")] == [StageName.POLICY]
    assert [reason.stage for reason in reasons_of(forced, "misses")] == [StageName.PREDICATE]
    other = select(contract(), Policy(allow_experimental=True, only_tactic=fits.name), tactics=[fits, misses])
    assert other.selected is not None
    assert other.selected.tactic is fits


@pytest.mark.parametrize("name", ["deterministic", "graph_capture"])
@pytest.mark.parametrize("guaranteed", [True, False])
@pytest.mark.parametrize("asked", [True, False])
def test_F31_a_property_is_served_only_where_it_is_guaranteed(name: str, guaranteed: bool, asked: bool) -> None:
    sheet = tactic("t", **{name: guaranteed})  # type: ignore[arg-type]
    selection = select(contract({f"$.properties.{name}": asked}), EXPERIMENTS, tactics=[sheet])
    assert (selection.selected is not None) == (guaranteed or not asked)
    for reason in reasons_of(selection):
        assert (reason.stage, reason.field, reason.nearest) == (StageName.PROPERTY, f"$.properties.{name}", False)


@pytest.mark.parametrize("arch", ["gfx950", "sm_90"])
def test_F31_parts_along_k_serve_a_deterministic_contract_that_lets_them_add_in_a_fixed_order(arch: str) -> None:
    shape = {"$.target.arch": arch, "$.shape": {"m": 16, "n": 512, "k": 4096}}
    fixed = select(contract({**shape, "$.numerics.combine": "fixed_order"}), EXPERIMENTS)
    assert fixed.contract.properties.deterministic
    split = [found.tactic for found in fixed.eligible if (found.tactic.schedule.split_k or 1) > 1]
    assert split
    assert all(tactic.guarantees.deterministic for tactic in split)
    assert {tactic.guarantees.combine for tactic in split} == {Combine.FIXED_ORDER}
    ascending = select(contract(shape), EXPERIMENTS)
    assert ascending.selected is not None
    assert not {tactic.name for tactic in split} & {found.tactic.name for found in ascending.eligible}


# what the author wrote is never changed


@pytest.mark.parametrize(
    ("edits", "field", "wanted"),
    [
        ({"$.schedule.stages": 7}, "$.schedule.stages", "3"),
        ({"$.schedule.tile": [16, 64, 256]}, "$.schedule.tile", "[16, 64, 128]"),
        ({"$.schedule.split_k": 2}, "$.schedule.split_k", "1"),
        ({"$.launch.grid": [33, 1, 1]}, "$.launch.grid", "[32, 1, 1]"),
        ({"$.launch.block": [256, 1, 1]}, "$.launch.block", "[128, 1, 1]"),
        ({"$.workspace.bytes": 1024}, "$.workspace.bytes", "0"),
        (
            {"$.arguments": [{"name": "a", "type": "ptr<fp8_e4m3>"}]},
            "$.arguments",
            "[{name: a, type: ptr<fp8_e4m3>, access: read}, {name: b, type: ptr<fp8_e4m3>, access: read}, "
            "{name: a_scales, type: ptr<fp32>, access: read}, {name: b_scales, type: ptr<fp32>, access: read}, "
            "{name: out, type: ptr<bf16>, access: write}]",
        ),
    ],
    ids=str,
)
def test_a_field_that_the_author_wrote_is_an_exact_predicate(edits: Edits, field: str, wanted: str) -> None:
    sheet = catalogue.find("dense", "gfx950.dense.fp8_mfma_16x64x128_s3")
    (reason,) = reasons_of(select(contract(edits), EXPERIMENTS, tactics=[sheet]))
    assert (reason.predicate, reason.field, reason.wanted) == ("as_written", field, wanted)


def test_the_tactics_own_values_may_be_written() -> None:
    sheet = catalogue.find("dense", "gfx950.dense.fp8_mfma_16x64x128_s3")
    open_one = contract()
    lowered = sheet.lower(open_one, sheet)
    for section in ("schedule", "launch", "workspace", "arguments"):
        written = read({**ir.contract_document(open_one), section: ir.contract_document(lowered)[section]})
        selection = select(written, EXPERIMENTS, tactics=[sheet])
        assert selection.selected is not None
        assert selection.lower(selection.selected).contract == lowered


# order

_sheets = [
    tactic(f"t{index}_{rank}", rank=rank, claim=claim)
    for index, (rank, claim) in enumerate(
        [
            (10, Maturity.EXPERIMENT),
            (10, Maturity.EXPERIMENT),
            (5, Maturity.REJECTED),
            (20, Maturity.EXPERIMENT),
            (7, Maturity.EXPERIMENT),
        ]
    )
]


@given(st.permutations(_sheets))
def test_N30_the_order_of_candidates_decides_nothing(order: list[Tactic]) -> None:
    selection = select(contract(), EXPERIMENTS, tactics=order)
    assert names(selection.candidates) == ["t0_10", "t1_10", "t2_5", "t3_20", "t4_7"]
    assert names(selection.eligible) == ["t4_7", "t0_10", "t1_10", "t3_20"]


@pytest.mark.parametrize("low_first", [True, False])
def test_N30_the_lower_rank_wins(low_first: bool) -> None:
    pair = [tactic("z", rank=1), tactic("a", rank=2)]
    selection = select(contract(), EXPERIMENTS, tactics=pair if low_first else pair[::-1])
    assert names(selection.eligible) == ["z", "a"]


def test_N31_of_equal_ranks_the_name_decides_in_byte_order() -> None:
    equal = [tactic(name) for name in ("b", "a_2", "a_10", "B", "aa")]
    assert names(select(contract(), EXPERIMENTS, tactics=equal).eligible) == sorted(["b", "a_2", "a_10", "B", "aa"])


_PROGRAM = """
import json, sys
from nkc import ir
from nkc.tactics import Policy, select
selection = select(ir.parse(sys.stdin.buffer.read()), Policy(allow_experimental=True))
said = [
    [c.tactic.name, [[r.field, r.wanted, r.actual, str(r.nearest)] for r in c.reasons]]
    for c in selection.candidates
]
print(json.dumps([*said, *(c.tactic.name for c in selection.eligible)]))
print(sorted({"torch", "triton", "networkx", "jinja2", "numpy", "rich", "click"} & set(sys.modules)))
"""


def test_two_hash_seeds_give_the_same_selection_and_load_nothing_heavy() -> None:
    outputs = {
        subprocess.run(
            [sys.executable, "-c", _PROGRAM],
            input=json.dumps(document({"$.constants": {"x": 1, "y": 2, "z": 3}})).encode(),
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "31337")
    }
    (output,) = outputs
    assert output.decode().splitlines()[1] == "[]"


@settings(max_examples=100)
@given(
    st.integers(1, 1 << 16) | st.integers(1, 8192).map(lambda high: {"min": 0, "max": high}),
    st.integers(1, 1 << 15),
    st.integers(1, 128).map(lambda blocks: blocks * 128),
    st.sampled_from(["fp32_sequential", "matrix_unit_fp32", "tensor_core_fp8"]),
    st.sampled_from(["gfx950", "sm_90", "gfx942"]),
)
def test_a_selected_tactic_guarantees_what_the_contract_asks(
    m: object, n: int, k: int, accumulate: str, arch: str
) -> None:
    asked = contract({"$.target.arch": arch, "$.shape": {"m": m, "n": n, "k": k}, "$.numerics.accumulate": accumulate})
    selection = select(asked, EXPERIMENTS)
    assert [found.order for found in selection.eligible] == sorted(found.order for found in selection.eligible)
    assert {found.tactic.name for found in selection.eligible} == {
        found.tactic.name for found in selection.candidates if not found.reasons
    }
    for found in selection.eligible:
        guarantees = found.tactic.guarantees
        assert found.tactic.target == arch
        assert guarantees.accumulate is not None
        assert guarantees.accumulate.serves(asked.numerics["accumulate"])  # type: ignore[arg-type]
        assert guarantees.combine is not None
        assert guarantees.combine.serves(asked.numerics["combine"])  # type: ignore[arg-type]


# the catalogue itself


def test_a_predicate_that_raises_is_our_bug_and_never_a_rejection() -> None:
    class Broken:
        name = "broken"

        def check(self, contract: ir.Contract) -> Reason | None:
            raise ZeroDivisionError("for this test")

    with pytest.raises(ZeroDivisionError) as caught:
        select(contract(), tactics=[tactic("t", Broken())])
    assert caught.value.__notes__[0].startswith("predicate_raised: ")
    assert caught.value.__notes__[0].endswith("of gfx950.dense.t")


def test_a_tactic_without_predicates_is_refused() -> None:
    import dataclasses

    with pytest.raises(ValueError, match="would accept everything"):
        dataclasses.replace(tactic(), requires=())
    with pytest.raises(ValueError, match="from target to operation to detail"):
        dataclasses.replace(tactic(), name="dense.gfx950.x")


def test_a_pack_that_cannot_be_loaded_is_named(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    import nkc.tactics

    package = tmp_path / "broken_operation"
    package.mkdir()
    (package / "__init__.py").write_text('"""For this test."""\n')
    (package / "gfx950.py").write_text("import no_such_module_at_all\n")
    monkeypatch.setattr(nkc.tactics, "__path__", [*nkc.tactics.__path__, str(tmp_path)])
    with pytest.raises(ToolError) as caught:
        catalogue.tactics_of("broken_operation")
    assert str(caught.value) == (
        "nkc.tactics.broken_operation.gfx950: this tactic pack cannot be loaded: "
        "No module named 'no_such_module_at_all'"
    )
    assert caught.value.exit_code == 4


def test_N12_k_is_whole_scale_blocks_and_n_only_where_a_tactic_says_so() -> None:
    (line,) = problems(document({"$.shape.k": 4100}))
    assert line.startswith("$.shape.k: 4100 is not a multiple of 128, the FP8 scale block of `a` along k")
    with pytest.raises(ir.ContractError) as caught:
        contract({"$.shape.k": 4100})
    assert caught.value.exit_code == 2
    partial = contract({"$.shape.n": 576})
    assert select(partial, EXPERIMENTS).selected is not None
    whole = tactic("whole", multiple_of("$.shape.n", 128, why="a tile is as wide as a scale block"))
    (reason,) = reasons_of(select(partial, EXPERIMENTS, tactics=[whole]))
    assert (reason.stage, reason.field, reason.actual, reason.nearest) == (
        StageName.PREDICATE,
        "$.shape.n",
        "576",
        640,
    )
