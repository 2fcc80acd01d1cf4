"""The evidence in the tree: no claim beyond it, no record without its tactic, and an index of this very tree."""

import pytest

from nkc.emit.proofs import book, make_index, make_proven
from nkc.ir import operations
from nkc.ir.contract import Maturity
from nkc.tactics.catalogue import folder_of, tactics_of
from nkc.tactics.evidence import FOLDER, read_index, read_records
from nkc.tactics.maturity import read_claims
from nkc.tactics.proven import ProvenTactics, read_proven

TACTICS = {tactic.name: tactic for name in operations.names() for tactic in tactics_of(name)}
CLAIMED = sorted(name for name, tactic in TACTICS.items() if tactic.claim is not Maturity.EXPERIMENT)


@pytest.fixture(scope="module")
def evidence():
    return book()


def test_no_claim_exceeds_its_evidence(evidence) -> None:
    """A claim that its records no longer bear out is mended by verifying again, or taken back."""
    beyond = {
        name: standing.needs
        for name in CLAIMED
        if (standing := evidence.standing(TACTICS[name])).maturity is not standing.claimed
    }
    assert beyond == {}


def test_the_index_is_that_of_this_tree() -> None:
    made = make_index()
    assert made == read_index(), "run `nkc evidence index`"
    assert make_proven(made) == read_proven(FOLDER), "run `nkc evidence index`"


def test_what_is_kept_is_what_weighing_says(evidence, monkeypatch) -> None:
    kept = {name: evidence.standing(tactic) for name, tactic in TACTICS.items()}
    monkeypatch.setattr("nkc.tactics.evidence.read_proven", lambda _: ProvenTactics(tactics={}))
    weighing = book()
    assert kept == {name: weighing.standing(tactic) for name, tactic in TACTICS.items()}


def test_every_claim_and_every_record_is_of_a_tactic_that_exists() -> None:
    for operation in operations.names():
        folder = folder_of(operation)
        if folder is not None:
            assert set(read_claims(folder)) <= set(TACTICS)
    recorded = {path.stem for path in FOLDER.glob("*.json")} - {"index", "proven"}
    assert recorded <= set(TACTICS)
    for name in recorded:
        records = read_records(name)
        assert records.tactic == name
        assert [check.key for check in records.checks] == sorted({check.key for check in records.checks})


def test_records_are_of_contracts_in_the_proof_set(evidence) -> None:
    """A record of a proof that is no longer one speaks of nothing; `nkc tactics` would show it as stale for ever."""
    for name in sorted(path.stem for path in FOLDER.glob("*.json") if path.stem in TACTICS):
        proofs = evidence.proof_digests(TACTICS[name]) or {}
        assert {check.request for check in read_records(name).checks} <= set(proofs), name
