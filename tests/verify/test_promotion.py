"""Promotion: every gate in each state, and the one edit, made only of what the caller found ready."""

import json

import msgspec
import pytest

from nkc.ir.contract import Maturity
from nkc.tactics.evidence import REGIMES, Answer, Book, Records, read_records
from nkc.tactics.layer import read_layer
from nkc.tactics.maturity import read_claims
from nkc.tactics.tuning import Tuning
from nkc.verify import promotion
from nkc.verify.promotion import gates, layer_gate
from tests.fixtures.layers import comparison, records
from tests.fixtures.sheets import tactic
from tests.verify.subjects import check_of

DIGESTS = {"nk_a": "1" * 64, "nk_b": "2" * 64}


@pytest.fixture(autouse=True)
def fresh():
    read_records.cache_clear()
    yield
    read_records.cache_clear()


def whole(**fields):
    return [check_of(request, digest, regime, **fields) for request, digest in DIGESTS.items() for regime in REGIMES]


def states(folder, checks, digests=DIGESTS, **sheet_fields):
    sheet = tactic(**sheet_fields)
    (folder / f"{sheet.name}.json").write_bytes(msgspec.json.encode(Records(tactic=sheet.name, checks=tuple(checks))))
    read_records.cache_clear()
    return {gate.name: gate.state for gate in gates(sheet, Book(digests=lambda _: digests, folder=folder))}


MET = {
    "proof set": "met",
    **{f"regime {regime}": "met" for regime in REGIMES},
    "repeats": "met",
    "graph replay": "met",
}


def test_everything_met(tmp_path) -> None:
    assert states(tmp_path, whole()) == MET


def test_no_proofs_no_promotion(tmp_path) -> None:
    assert states(tmp_path, whole(), digests={}) == {"proof set": "missing"}


def test_what_was_rejected_stays_so(tmp_path) -> None:
    assert states(tmp_path, whole(), claim=Maturity.REJECTED) == {"claim": "failed"}


def test_nothing_recorded(tmp_path) -> None:
    found = states(tmp_path, [])
    assert found == {**dict.fromkeys(MET, "missing"), "proof set": "met", "graph replay": "met"}


def test_one_regime_of_one_proof_is_missing_stale_or_failed(tmp_path) -> None:
    for regime in REGIMES:
        gate = f"regime {regime}"
        others = [check for check in whole() if (check.request, check.regime) != ("nk_b", regime)]
        assert states(tmp_path, others) == {**MET, gate: "missing"}
        stale = check_of("nk_b", "9" * 64, regime)
        assert states(tmp_path, [*others, stale]) == {**MET, gate: "stale"}
        failed = check_of("nk_b", "2" * 64, regime, passed=False)
        assert states(tmp_path, [*others, failed]) == {**MET, gate: "failed"}


def test_the_interpreter_opens_no_gate(tmp_path) -> None:
    found = states(tmp_path, whole(engine="interpreter"))
    assert {state for name, state in found.items() if name.startswith("regime")} == {"missing"}


def test_an_emulator_is_not_blocked_by_the_replay_it_cannot_run_but_a_device_is(tmp_path) -> None:
    assert states(tmp_path, whole(engine="emulator", replay=Answer.NOT_RUN)) == MET
    assert states(tmp_path, whole(replay=Answer.NOT_RUN)) == {**MET, "graph replay": "missing"}
    one_failed = [*whole()[1:], check_of("nk_a", "1" * 64, replay=Answer.FAILED, passed=False)]
    assert states(tmp_path, one_failed)["graph replay"] == "failed"
    unpromised = states(tmp_path, whole(replay=Answer.NOT_RUN), graph_capture=False)
    assert unpromised == MET


def test_runs_that_differ_close_a_gate(tmp_path) -> None:
    differing = [*whole()[1:], check_of("nk_a", "1" * 64, repeated=Answer.FAILED, passed=False)]
    assert states(tmp_path, differing)["repeats"] == "failed"


@pytest.mark.parametrize(
    ("found", "state", "said"),
    [
        ([], "missing", "no comparison inside a layer (examples/serve_layer.py compare"),
        ([comparison()], "met", "held 1 of 1"),
        ([comparison(100.0, 95.0)], "failed", "lost 1"),
        ([comparison(100.0, 95.0), comparison(request="nk_b")], "failed", "held 1 of 2"),
        ([comparison(code_digest="2" * 64)], "stale", "1 of another kernel"),
    ],
    ids=["nothing", "held", "lost", "mixed", "stale"],
)
def test_the_gate_to_accepted(tmp_path, found, state, said) -> None:
    (tmp_path / "layer").mkdir()
    (tmp_path / "layer" / f"{tactic().name}.json").write_bytes(msgspec.json.encode(records(*found)))
    read_layer.cache_clear()
    book = Book(folder=tmp_path, tuning=Tuning(digests=lambda *_: "1" * 64, records=tmp_path / "none"))
    gate = layer_gate(tactic(), book)
    read_layer.cache_clear()
    assert (gate.name, gate.state) == ("layer", state)
    assert said in gate.what


def test_acceptance_raises_what_was_verified_and_never_what_was_rejected(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(promotion, "folder_of", lambda _: tmp_path)
    claimed = {"gfx950.dense.bad": "rejected", "gfx950.dense.good": "verified", "gfx950.dense.top": "accepted"}
    (tmp_path / "claims.json").write_text(json.dumps(claimed))
    tactics = [tactic(name) for name in ("bad", "good", "new", "top")]
    assert promotion.promote(tactics, Maturity.ACCEPTED) == ("gfx950.dense.good", "gfx950.dense.new")
    assert read_claims(tmp_path)["gfx950.dense.bad"] is Maturity.REJECTED
    assert read_claims(tmp_path)["gfx950.dense.good"] is Maturity.ACCEPTED
    assert promotion.promote(tactics, Maturity.VERIFIED) == ()


def test_a_promotion_edits_claims_and_nothing_twice(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(promotion, "folder_of", lambda _: tmp_path)
    (tmp_path / "claims.json").write_text(json.dumps({"gfx950.dense.bad": "rejected", "gfx950.dense.top": "accepted"}))
    names = ["new", "bad", "top"]
    assert promotion.promote([tactic(name) for name in names]) == ("gfx950.dense.new",)
    assert read_claims(tmp_path) == {
        "gfx950.dense.bad": Maturity.REJECTED,  # for ever
        "gfx950.dense.new": Maturity.VERIFIED,
        "gfx950.dense.top": Maturity.ACCEPTED,  # more than verified already
    }
    before = (tmp_path / "claims.json").read_bytes()
    assert promotion.promote([tactic(name) for name in names]) == ()
    assert (tmp_path / "claims.json").read_bytes() == before
