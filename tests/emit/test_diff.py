"""Differences: none between equals, every one between others, each in its part and under a path a reader can follow."""

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nkc import ir
from nkc.emit import build as b
from nkc.emit.diff import Change, Part, Row, diff_contracts, diff_explains, diff_manifests, pair_entries
from nkc.emit.explain import Explain, encode, explain
from nkc.ir.manifest import Manifest
from nkc.tactics.predicate import at_most
from nkc.tactics.select import Policy, select

from ..fixtures.contracts import Edits, contract
from ..fixtures.sheets import tactic
from ..fixtures.toolchain import FakeToolchain

OTHER = "sm_90.dense.bf16_64x64x64_w4_s5"  # of another chip, so that a contract for gfx950 has no candidate left
EXPERIMENTS = Policy(allow_experimental=True)


def rows(found: tuple[Row, ...]) -> list[tuple[str, str, object, object]]:
    return [(row.part.value, row.path, row.before, row.after) for row in found]


def built(edits: Edits | None = None, **lds: int) -> Explain:
    outcome = b.build_selection(
        select(contract(edits), EXPERIMENTS), FakeToolchain(lds=lds), on_mismatch=b.OnMismatch.FAIL
    )
    assert outcome.explain is not None
    return outcome.explain


def manifest(out: Path, **inputs: ir.Contract) -> Manifest:
    requests = b.gather_requests((f"{name}.json", value) for name, value in inputs.items())
    return b.write_all(out, requests, b.build_all(requests, FakeToolchain(), policy=EXPERIMENTS))


# contracts


def test_a_changed_field_and_the_ids_that_move_with_it() -> None:
    before, after = (
        contract(),
        contract({"$.shape.m": {"min": 0, "max": 4}, "$.epilogue": {"kind": "bias", "dtype": "bf16"}}),
    )
    assert rows(diff_contracts(before, after)) == [
        ("contract", "$.alignment.bias", None, 16),
        ("contract", "$.epilogue.dtype", None, "bf16"),
        ("contract", "$.epilogue.kind", "identity", "bias"),
        ("contract", "$.shape.m", 1, {"min": 0, "max": 4}),
        ("digests", "$.request", ir.contract_id(before), ir.contract_id(after)),
    ]


def test_notes_are_a_part_of_their_own_and_move_no_id() -> None:
    found = diff_contracts(
        contract({"$.fallback": "a", "$.provenance": {"layer": 1}}), contract({"$.provenance": {"layer": 2}})
    )
    assert rows(found) == [("notes", "$.fallback", "a", None), ("notes", "$.provenance.layer", 1, 2)]
    assert [row.change for row in found] == [Change.REMOVED, Change.CHANGED]


_edits = st.fixed_dictionaries(
    {},
    optional={
        "$.shape.m": st.integers(1, 3) | st.just({"min": 0, "max": 2}),
        "$.shape.n": st.sampled_from([2048, 64]),
        "$.epilogue": st.sampled_from([{"kind": "identity"}, {"kind": "bias", "dtype": "bf16"}]),
        "$.properties.constant": st.lists(st.sampled_from(["a", "b"]), unique=True),
        "$.launch.grid": st.sampled_from([[1, 2, 3], [3, 2, 1]]),
        "$.fallback": st.sampled_from(["a", "b"]),
        "$.arguments": st.permutations([{"name": name, "type": "int32"} for name in "xyz"]),
        "$.provenance": st.sampled_from(
            [{"a": [1]}, {"a": [2]}, {"a": [{"b": 1}, {"b": 2}]}, {"a": [{"b": 2}, {"b": 1}]}]
        ),
    },
)


@settings(max_examples=200)
@given(_edits, _edits)
def test_there_are_rows_exactly_where_contracts_differ(left: Edits, right: Edits) -> None:
    before, after = contract(left), contract(right)
    found = diff_contracts(before, after)
    assert bool(found) == (before != after)
    assert any(row.path == "$.request" for row in found) == (ir.contract_id(before) != ir.contract_id(after))
    back = {(row.path, json.dumps(row.after), json.dumps(row.before)) for row in diff_contracts(after, before)}
    assert back == {(row.path, json.dumps(row.before), json.dumps(row.after)) for row in found}


# explanations


@pytest.mark.parametrize("record", [built(), explain(select(contract(), Policy()))], ids=["built", "open"])
def test_an_explanation_does_not_differ_from_itself_read_back(record: Explain) -> None:
    assert diff_explains(record, msgspec.json.decode(encode(record), type=Explain)) == ()


def test_what_another_contract_would_change_is_listed_from_the_cause_to_the_bytes() -> None:
    found = diff_explains(built(), built({"$.shape.m": 17}))
    parts = [row.part for row in found]
    assert parts == sorted(parts, key=list(Part).index)
    assert set(parts) == {
        *(Part.CONTRACT, Part.SELECTION, Part.CANDIDATES, Part.LOWERED, Part.RESOURCES, Part.LAUNCH, Part.DIGESTS),
    }
    by_path = {row.path: row for row in found}
    assert by_path["$.contract.shape.m"].after == 17
    assert by_path["$.sealed.schedule.tile"].after == [32, 64, 128]
    assert "$.sealed.shape.m" not in by_path, "said by the contract already"
    reason = by_path["$.candidates[gfx950.dense.fp8_mfma_16x64x128_s3].reasons[at_most $.shape.m]"]
    assert reason.change is Change.ADDED
    assert isinstance(reason.after, dict)
    assert (reason.after["actual"], reason.after["nearest"]) == ("17", 16)
    assert by_path["$.candidates[gfx950.dense.fp8_mfma_32x64x128_s2].state"].after == "selected"
    assert by_path["$.id"].part is by_path["$.source.digest"].part is by_path["$.launch.sha256"].part is Part.DIGESTS


def test_a_compiler_that_uses_more_is_seen_in_resources_and_digests_alone() -> None:
    found = diff_explains(built(), built(dense=40_960))
    assert {row.part for row in found} == {Part.LOWERED, Part.RESOURCES, Part.LAUNCH, Part.DIGESTS}
    assert ("lowered", "$.sealed.lds.dynamic_bytes", 1024, 40_960) in rows(found)


def test_a_reason_that_says_something_else_is_one_field() -> None:
    old, new = (
        explain(select(contract({"$.shape.m": m}), tactics=[tactic("t", at_most("$.shape.m", 64))])) for m in (65, 66)
    )
    assert ("candidates", "$.candidates[gfx950.dense.t].reasons[at_most $.shape.m].actual", "65", "66") in rows(
        diff_explains(old, new)
    )


def test_policy_and_disposition_are_selection() -> None:
    forced = Policy(only_tactic=OTHER)
    found = diff_explains(explain(select(contract(), forced)), explain(select(contract(), EXPERIMENTS)))
    selection = {row.path: row.after for row in found if row.part is Part.SELECTION}
    assert selection == {
        "$.disposition": "optimized",
        "$.policy.allow_experimental": True,
        "$.policy.only_tactic": None,
        "$.selected": "gfx950.dense.fp8_mfma_16x64x128_s3",
    }


def test_records_in_another_order_are_a_difference() -> None:
    record = built()
    assert record.launch is not None
    turned = msgspec.structs.replace(
        record, launch=msgspec.structs.replace(record.launch, arguments=record.launch.arguments[::-1])
    )
    (row,) = diff_explains(record, turned)
    assert row.path == "$.launch.arguments"
    assert isinstance(row.before, list)
    assert row.after == row.before[::-1]


# builds


def test_equal_builds_do_not_differ(tmp_path: Path) -> None:
    made = manifest(tmp_path, a=contract({"$.provenance": {"layers": [1, {"x": 2}]}}))
    read = msgspec.json.decode((tmp_path / "manifest.json").read_bytes(), type=Manifest)
    assert diff_manifests(made, read) == ()


def test_entries_are_paired_by_request_then_by_input(tmp_path: Path) -> None:
    before = manifest(
        tmp_path / "1", same=contract(), moved=contract({"$.shape.n": 64}), gone=contract({"$.shape.n": 128})
    )
    after = manifest(
        tmp_path / "2", renamed=contract(), moved=contract({"$.shape.n": 192}), new=contract({"$.shape.n": 256})
    )
    names = [
        tuple(entry.bindings[0].source if entry else None for entry in pair) for pair in pair_entries(before, after)
    ]
    assert sorted(names, key=str) == [
        ("gone.json", None), ("moved.json", "moved.json"), ("same.json", "renamed.json"), (None, "new.json"),
    ]  # fmt: skip
    found = {(row.part, row.path, row.change) for row in diff_manifests(before, after)}
    assert (Part.SELECTION, "$.entries[gone.json]", Change.REMOVED) in found
    assert (Part.SELECTION, "$.entries[new.json]", Change.ADDED) in found
    assert (Part.DIGESTS, "$.entries[moved.json].request", Change.CHANGED) in found
    assert (Part.DIGESTS, "$.entries[moved.json].sha256.kernel.hsaco", Change.CHANGED) in found
    assert (Part.BINDINGS, "$.entries[renamed.json].bindings[renamed.json].source", Change.CHANGED) in found


def test_pairs_are_listed_by_request_and_one_input_pairs_once(tmp_path: Path) -> None:
    sizes = range(64, 64 * 21, 64)
    before = manifest(tmp_path / "1", **{f"same{n}": contract({"$.shape.n": n}) for n in sizes})
    pairs = pair_entries(before, before)
    assert [old.request for old, _ in pairs if old] == sorted(entry.request for entry in before.entries)
    twice = [("x.json", contract({"$.shape.m": m, "$.shape.n": n})) for m in (1, 2) for n in sizes]
    requests = b.gather_requests(twice)
    many = b.write_all(tmp_path / "2", requests, b.build_all(requests, FakeToolchain(), policy=EXPERIMENTS))
    one = manifest(tmp_path / "3", x=contract({"$.shape.m": 3}))
    (_, matched), *others = sorted(pair_entries(one, many), key=lambda pair: pair[0] is None)
    assert matched is not None
    assert matched.request == min(entry.request for entry in many.entries)
    listed = [new.request for _, new in others if new]
    assert listed == sorted(listed)
    assert len(listed) == len(many.entries) - 1


def test_a_disposition_that_changes_is_selection(tmp_path: Path) -> None:
    asked = contract({"$.fallback": "framework"})
    (request,) = requests = b.gather_requests([("a.json", asked)])
    before = manifest(tmp_path / "1", a=asked)
    after = b.write_all(
        tmp_path / "2", requests, b.build_all(requests, FakeToolchain(), policy=Policy(only_tactic=OTHER))
    )
    found = rows(diff_manifests(before, after))
    assert ("selection", "$.entries[a.json].disposition", "optimized", "fallback") in found
    assert ("selection", "$.entries[a.json].tactic", before.entries[0].tactic, None) in found
    assert not [row for row in found if row[1].endswith((".object", ".explain", ".launch"))]
    assert request.id == before.entries[0].request
