"""explain.json: a pure function of a selection and an artifact, complete, strict, and the same bytes each time."""

import json
from pathlib import Path

import msgspec
import pytest

from nkc import ir
from nkc.emit import build as b
from nkc.emit.explain import Explain, encode, explain
from nkc.ir.contract import Maturity
from nkc.ir.manifest import Disposition
from nkc.tactics.evidence import Book
from nkc.tactics.predicate import at_most
from nkc.tactics.select import Policy, Selection, select

from ..fixtures.contracts import Edits, contract
from ..fixtures.sheets import tactic
from ..fixtures.toolchain import FakeToolchain

EXPERIMENTS = Policy(allow_experimental=True)
OBJECT_SECTIONS = {"sealed", "resources", "occupancy", "launch", "source", "toolchain", "artifacts"}


def explained(edits: Edits | None = None, policy: Policy = EXPERIMENTS) -> Explain:
    return explain(select(contract(edits), policy, book=Book(folder=Path("no evidence"))))


def built() -> Explain:
    outcome = b.build_selection(select(contract(), EXPERIMENTS), FakeToolchain(), on_mismatch=b.OnMismatch.FAIL)
    assert outcome.explain is not None
    return outcome.explain


@pytest.mark.parametrize(
    ("edits", "policy", "disposition"),
    [
        ({}, EXPERIMENTS, Disposition.OPTIMIZED),
        ({"$.fallback": "framework"}, EXPERIMENTS, Disposition.OPTIMIZED),
        ({}, Policy(), Disposition.UNSUPPORTED),
        ({"$.fallback": "framework"}, Policy(), Disposition.FALLBACK),
        ({"$.target.arch": "gfx942"}, EXPERIMENTS, Disposition.UNSUPPORTED),
    ],
    ids=str,
)
def test_every_contract_ends_in_one_disposition(edits: Edits, policy: Policy, disposition: Disposition) -> None:
    record = explained(edits, policy)
    assert record.disposition is disposition
    assert (record.selected is not None) == (disposition is Disposition.OPTIMIZED)
    assert record.id is None
    assert record.fallback == edits.get("$.fallback")


def test_the_document_has_what_others_rely_on() -> None:
    document = json.loads(encode(explained()))
    assert document["schema"] == "nkc.explain/1"
    assert document["request"] == ir.contract_id(contract())
    assert document["id"] is None
    assert document["policy"] == {"allow_experimental": True, "only_tactic": None, "strict_evidence": False}
    assert {"request", "disposition", "selected", "candidates", "contract"} <= set(document)
    for candidate in document["candidates"]:
        assert set(candidate) >= {
            *("name", "operation", "target", "rank", "effective_rank", "rank_source"),
            *("maturity", "claimed", "state", "reasons"),
        }
        assert isinstance(candidate["rank"], int)
        assert len(candidate["effective_rank"]) == 2
        for reason in candidate["reasons"]:
            assert set(reason) == {"stage", "predicate", "field", "wanted", "actual", "nearest"}


def test_without_a_build_the_object_sections_are_left_out() -> None:
    assert not OBJECT_SECTIONS & set(json.loads(encode(explained())))
    assert set(json.loads(encode(built()))) >= OBJECT_SECTIONS


@pytest.mark.parametrize(
    "record", [explained(), explained({"$.shape.m": {"min": 0, "max": 999}}), built()], ids=["open", "range", "built"]
)
def test_it_reads_back_strictly_as_the_same_value(record: Explain) -> None:
    assert msgspec.json.decode(encode(record), type=Explain) == record


def test_a_range_that_is_nearest_is_written_as_a_contract_writes_it() -> None:
    record = explain(
        select(contract({"$.shape.m": {"min": 0, "max": 99}}), tactics=[tactic("t", at_most("$.shape.m", 64))])
    )
    (candidate,) = json.loads(encode(record))["candidates"]
    assert candidate["reasons"][0]["nearest"] == {"min": 0, "max": 64}


def test_the_contract_is_written_as_it_was_asked_for_without_its_notes() -> None:
    record = explained({"$.provenance": {"model": "secret"}, "$.fallback": "framework", "$.maturity": "verified"})
    assert record.contract == ir.contract_document(contract())
    assert b"secret" not in encode(record)


def test_each_candidate_has_one_state() -> None:
    tactics = [tactic("a", rank=2), tactic("b", rank=1), tactic("c", rank=3, claim=Maturity.REJECTED)]
    record = explain(select(contract(), EXPERIMENTS, tactics=tactics))
    assert [(one.name[-1], one.state, one.maturity.value) for one in record.candidates] == [
        ("a", "eligible", "experiment"),
        ("b", "selected", "experiment"),
        ("c", "rejected", "rejected"),
    ]
    assert record.selected == "gfx950.dense.b"
    assert [one.effective_rank for one in record.candidates] == [(1, 2), (1, 1), (1, 3)]


@pytest.mark.parametrize("arch", ["gfx950", "sm_90"])
def test_facts_of_the_budget_say_how_they_are_known(arch: str) -> None:
    record = explained({"$.target.arch": arch})
    assert record.facts
    assert {fact.basis for fact in record.facts} <= {"measured", "assumed", "documented"}
    assert all(fact.source and fact.unit for fact in record.facts)
    assert [stage.name for stage in record.budget] == ["gemm.dot", "gemm.promote", "gemm.store"]


def test_N01_the_same_input_gives_the_same_bytes() -> None:
    def twice(selection: Selection) -> set[bytes]:
        return {encode(explain(selection)), encode(explain(select(selection.contract, selection.policy)))}

    assert len(twice(select(contract(), EXPERIMENTS))) == 1
    assert encode(built()) == encode(built())
    assert encode(built()).endswith(b"}\n")


def test_N29_the_record_says_that_experiments_were_allowed() -> None:
    assert explained().policy.allow_experimental
    assert not explained(policy=Policy()).policy.allow_experimental


def test_N24_another_layout_of_the_same_dims_is_a_recorded_fallback() -> None:
    record = explained({"$.layouts.b": "shuffled_16x16", "$.fallback": "framework"})
    assert (record.disposition, record.selected, record.fallback) == (Disposition.FALLBACK, None, "framework")
    here = [one for one in record.candidates if one.target == "gfx950" and ".fp8_" in one.name]
    assert here
    for candidate in here:
        (reason,) = [reason for reason in candidate.reasons if reason.field == "$.layouts.b"]
        assert (reason.wanted, reason.actual) == ("row_major_nk", "shuffled_16x16")


def test_F04_each_candidate_s_rows_are_in_the_record() -> None:
    document = json.loads(encode(explained({"$.shape": {"m": {"min": 1, "max": 512}, "n": 32, "k": 4096}})))
    said = {
        candidate["name"]: reason
        for candidate in document["candidates"]
        for reason in candidate["reasons"]
        if candidate["target"] == "gfx950" and reason["field"] == "$.shape.m"
    }
    reason = said["gfx950.dense.fp8_mfma_16x64x128_s3"]
    assert reason["actual"] == "1..512"
    assert reason["wanted"].startswith("at most 16 (")
    assert reason["nearest"] == {"min": 1, "max": 16}
