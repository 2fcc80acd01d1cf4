"""Near misses: every suggested set of edits, applied, admits the candidate; none is idle; the nearest come first."""

import json
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nkc import ir
from nkc.ir.contract import Maturity
from nkc.tactics.near import Edit, Near, edited, near
from nkc.tactics.predicate import InSteps, at_most, equals, multiple_of
from nkc.tactics.reason import StageName
from nkc.tactics.select import Policy, obstacles, select
from nkc.tactics.tactic import Tactic

from ..fixtures.contracts import Edits, bf16, contract
from ..fixtures.sheets import tactic

SCALED = (
    equals("$.dtypes.a", "fp8_e4m3"),
    equals("$.dtypes.b", "fp8_e4m3"),
    equals("$.scales.a.block", (1, 128)),
    equals("$.scales.a.layout", "row_major"),
    equals("$.scales.b.block", (128, 128)),
    equals("$.scales.b.layout", "row_major"),
)
EXPERIMENTS = Policy(allow_experimental=True)


def edits_of(entry: Near) -> list[tuple[str, object, object]]:
    return [(edit.path, edit.before, edit.after) for edit in entry.edits]


def near_one(changes: Edits, candidate: Tactic) -> list[tuple[str, object, object]] | None:
    found = near(select(contract(changes), EXPERIMENTS, tactics=[candidate]))
    return edits_of(found[0]) if found else None


@pytest.mark.parametrize(
    ("changes", "candidate", "edits"),
    [
        # one field
        ({"$.shape.m": 100}, tactic("t", at_most("$.shape.m", 64)), [("$.shape.m", 100, 64)]),
        (
            {"$.shape.m": {"min": 0, "max": 100}},
            tactic("t", at_most("$.shape.m", 64)),
            [("$.shape.m", {"min": 0, "max": 100}, {"min": 0, "max": 64})],
        ),
        (
            {"$.scales.a.block": [1, 64]},
            tactic("t", equals("$.scales.a.block", (1, 128))),
            [("$.scales.a.block", [1, 64], [1, 128])],
        ),
        ({}, tactic("t", deterministic=False), [("$.properties.deterministic", True, False)]),
        ({"$.alignment.a": 8}, tactic("t", equals("$.alignment.a", 16)), [("$.alignment.a", 8, 16)]),
        # two predicates that name one field: the second is asked again after the first
        (
            {"$.shape.n": 2049},
            tactic("t", multiple_of("$.shape.n", 64), at_most("$.shape.n", 512)),
            [("$.shape.n", 2049, 512)],
        ),
        # several fields
        (
            {"$.shape.n": 100, "$.shape.m": 3},
            tactic("t", multiple_of("$.shape.n", 64), InSteps("$.shape.m", 8, 64, 8)),
            [("$.shape.m", 3, 8), ("$.shape.n", 100, 128)],
        ),
        # what is too much is left out, whatever the author called it
        ({"$.constants": {"a.b": 1, "c": 2}}, tactic("t", declares=("c",)), [("$.constants.a.b", 1, None)]),
        (
            {"$.constants": {"x": 1, "y": 2}},
            tactic("t"),
            [("$.constants.x", 1, None), ("$.constants.y", 2, None)],
        ),
        # what an edit leaves without a place goes too
        (
            {"$.epilogue": {"kind": "bias", "dtype": "bf16"}, "$.alignment.bias": 32},
            tactic("t", equals("$.epilogue.kind", "identity")),
            [
                ("$.alignment.bias", 32, None),
                ("$.epilogue.dtype", "bf16", None),
                ("$.epilogue.kind", "bias", "identity"),
            ],
        ),
        # defaults that follow from other fields follow the edit, and are none
        (
            {"$.shape.m": 5, "$.scales.a.layout": "m_major"},
            tactic("t", multiple_of("$.shape.m", 8)),
            [("$.shape.m", 5, 8)],
        ),
        (
            {"$.shape.m": 5, "$.scales.a.layout": "m_major", "$.scales.a.leading_dim": 6},
            tactic("t", multiple_of("$.shape.m", 8)),
            [("$.scales.a.leading_dim", 6, None), ("$.shape.m", 5, 8)],
        ),
        # a value that becomes another kind of operand
        (
            bf16(),
            tactic("t", *SCALED),
            [
                ("$.dtypes.a", "bf16", "fp8_e4m3"),
                ("$.dtypes.b", "bf16", "fp8_e4m3"),
                ("$.scales.a.block", None, [1, 128]),
                ("$.scales.a.layout", None, "row_major"),
                ("$.scales.b.block", None, [128, 128]),
                ("$.scales.b.layout", None, "row_major"),
            ],
        ),
        # no edit of this contract gets there
        ({"$.target.arch": "sm_90"}, tactic("t"), None),
        ({}, tactic("t", equals("$.dtypes.acc", "bf16")), None),
        ({}, tactic("t", multiple_of("$.shape.m", 2), multiple_of("$.shape.m", 3), at_most("$.shape.m", 5)), None),
        # nothing stands in the way
        ({}, tactic("t"), None),
    ],
    ids=lambda value: value.name if isinstance(value, Tactic) else None,
)  # fmt: skip
def test_the_edits_of_one_candidate(changes: Edits, candidate: Tactic, edits: object) -> None:
    assert near_one(changes, candidate) == edits


def test_an_edit_that_another_one_makes_idle_is_left_out() -> None:
    """Offsets into `out` are mended by fewer columns alone, though `a` asks for fewer rows at first."""
    selection = select(contract({"$.shape.m": 1 << 20, "$.shape.n": 1 << 14}), EXPERIMENTS)
    for entry in near(selection):
        for edit in entry.edits:
            fewer = tuple(other for other in entry.edits if other is not edit)
            try:
                left = edited(selection.contract, fewer)
            except ir.ContractError:
                continue
            assert obstacles(left, entry.candidate.tactic)


def test_what_the_author_fixed_otherwise_is_near_by_the_tactics_own_value() -> None:
    selection = select(
        contract({"$.schedule.stages": 7, "$.launch.block": [128, 1, 1], "$.arguments": []}), EXPERIMENTS
    )
    entry = next(
        entry for entry in near(selection) if entry.candidate.tactic.name == "gfx950.dense.fp8_mfma_16x64x128_s3"
    )
    assert edits_of(entry) == [("$.arguments", [], None), ("$.schedule.stages", 7, 3)]


def test_maturity_and_policy_are_carried_along() -> None:
    mild = tactic("mild", at_most("$.shape.m", 64))
    harsh = tactic("harsh", at_most("$.shape.m", 64), claim=Maturity.REJECTED)
    selection = select(contract({"$.shape.m": 65}), Policy(only_tactic=mild.name), tactics=[mild, harsh])
    stages = {entry.candidate.tactic.name: [reason.stage for reason in entry.remaining] for entry in near(selection)}
    assert stages == {
        mild.name: [StageName.MATURITY],
        harsh.name: [StageName.MATURITY, StageName.POLICY],
    }


def test_fewest_edits_come_first_then_the_smallest_then_rank_and_name() -> None:
    tactics = [
        tactic("two", at_most("$.shape.m", 99), at_most("$.shape.n", 2047), rank=1),
        tactic("far", at_most("$.shape.m", 10), rank=1),
        tactic("close", at_most("$.shape.m", 90), rank=9),
        tactic("close_b", at_most("$.shape.m", 90), rank=2),
        tactic("close_a", at_most("$.shape.m", 90), rank=2),
        tactic("word", equals("$.layouts.b", "shuffled_16x16"), rank=1),
    ]
    for order in (tactics, tactics[::-1]):
        found = near(select(contract({"$.shape.m": 100}), EXPERIMENTS, tactics=order))
        names = [entry.candidate.tactic.name.removeprefix("gfx950.dense.") for entry in found]
        assert names == ["close_a", "close_b", "close", "far", "word", "two"]


@pytest.mark.parametrize(
    ("before", "after", "size"),
    [
        (100, 90, Fraction(1, 10)),
        (90, 100, Fraction(1, 10)),
        (1, 1, Fraction(0)),
        (True, False, Fraction(1)),
        ({"min": 0, "max": 100}, {"min": 0, "max": 50}, Fraction(1, 4)),
        ({"min": 50, "max": 100}, 50, Fraction(1, 4)),
        ([1, 64], [1, 128], Fraction(1, 4)),
        ("bf16", "fp32", Fraction(1)),
        (7, None, Fraction(1)),
        (None, [1, 128], Fraction(1)),
    ],
)  # fmt: skip
def test_the_size_of_an_edit(before: object, after: object, size: Fraction) -> None:
    assert Edit(path="$", before=before, after=after).size == size


# any contract, every tactic there is

_changes = st.fixed_dictionaries(
    {},
    optional={
        "$.target.arch": st.sampled_from(["gfx950", "sm_90"]),
        "$.shape.m": st.integers(1, 1 << 20) | st.integers(1, 1 << 12).map(lambda high: {"min": 0, "max": high}),
        "$.shape.n": st.integers(1, 1 << 17).map(lambda half: 2 * half),
        "$.shape.k": st.integers(1, 1 << 9).map(lambda blocks: blocks * 128),
        "$.dtypes.out": st.sampled_from(["bf16", "fp32"]),
        "$.scales.a.layout": st.sampled_from(["row_major", "m_major"]),
        "$.scales.a.block": st.sampled_from([[1, 64], [128, 128], [1, 128]]),
        "$.scales.b.block": st.sampled_from([[64, 128], [128, 64], [128, 128]]),
        "$.layouts.b": st.sampled_from(["row_major_nk", "shuffled_16x16"]),
        "$.epilogue": st.sampled_from(
            [{"kind": "silu"}, {"kind": "bias", "dtype": "bf16"}, {"kind": "gated_silu", "gate": "halves"}]
        ),
        "$.numerics.accumulate": st.sampled_from(["fp32_sequential", "matrix_unit_fp32", "tensor_core_fp8"]),
        "$.numerics.combine": st.sampled_from(["ascending", "fixed_order"]),
        "$.alignment": st.dictionaries(st.sampled_from(["a", "b", "out"]), st.sampled_from([1, 2, 8, 16, 32])),
        "$.constants": st.dictionaries(st.sampled_from(["x", "y.z"]), st.integers(0, 3), max_size=2),
        "$.schedule": st.fixed_dictionaries(
            {},
            optional={"stages": st.integers(1, 4), "split_k": st.integers(1, 2), "tile": st.just([16, 64, 128])},
        ),
        "$.launch": st.fixed_dictionaries({}, optional={"block": st.just([128, 1, 1]), "grid": st.just([7, 1, 1])}),
        "$.workspace": st.sampled_from([{"bytes": 0}, {"bytes": 1024, "alignment": 16}]),
        "$.arguments": st.just([]),
        "$.fallback": st.just("framework"),
    },
)


@settings(max_examples=60)
@given(_changes, st.booleans())
def test_every_suggested_set_of_edits_admits_its_candidate(changes: dict[str, object], unscaled: bool) -> None:
    if unscaled:
        changes = bf16({path: value for path, value in changes.items() if not path.startswith("$.scales")})
    original = contract(changes)
    selection = select(original, EXPERIMENTS)
    found = near(selection)
    assert [entry.order for entry in found] == sorted(entry.order for entry in found)
    for entry in found:
        assert entry.edits
        assert entry.candidate.reasons
        assert obstacles(entry.contract, entry.candidate.tactic) == []
        assert edited(original, entry.edits) == entry.contract
        assert ir.parse(_json(entry.contract)) == entry.contract
        assert select(entry.contract, EXPERIMENTS, tactics=[entry.candidate.tactic]).selected is not None
        assert entry.contract.fallback == original.fallback


def _json(contract: ir.Contract) -> bytes:
    return json.dumps(ir.contract_document(contract, notes=True)).encode()
