"""What comparisons come to: per contract first, then one word for the tactic, of today's code alone."""

import msgspec
import pytest

from nkc.ir.contract import Maturity
from nkc.tactics.acceptance import weigh
from nkc.tactics.evidence import REGIMES, Book, Records, read_index, read_records
from nkc.tactics.layer import read_layer
from nkc.tactics.select import Policy, select
from nkc.tactics.tuning import Tuning
from tests.fixtures.contracts import contract
from tests.fixtures.layers import TACTIC, comparison, records, side
from tests.fixtures.sheets import tactic
from tests.verify.subjects import check_of

TODAY = "1" * 64
DIGESTS = {"nk_proof": "9" * 64}
WON, LOST, SAME = (comparison(100.0, us) for us in (110.0, 95.0, 100.0))


@pytest.fixture(autouse=True)
def fresh():
    for cached in (read_records, read_index, read_layer):
        cached.cache_clear()
    yield
    for cached in (read_records, read_index, read_layer):
        cached.cache_clear()


def come_to(*comparisons):
    return weigh(comparisons, lambda _: TODAY)


def test_one_contract_held_and_none_lost_accepts() -> None:
    assert come_to(WON).accepts
    assert come_to(WON, comparison(request="nk_b")).accepts
    assert not come_to().accepts
    assert not come_to(LOST).accepts


def test_a_contract_that_lost_to_one_route_is_lost_whatever_it_won_beside() -> None:
    found = come_to(WON, comparison(100.0, 95.0, theirs=side("another library", 95.0)))
    assert (found.held, found.lost, found.rejects) == (frozenset(), {"nk_a"}, True)


def test_a_lost_contract_neither_rejects_nor_accepts_what_holds_another() -> None:
    found = come_to(LOST, comparison(request="nk_b", rows=64))
    assert (found.accepts, found.rejects) == (False, False)
    assert str(found) == (
        "held 1 of 2 contracts inside a layer, lost 1 (most: 5.00 us a step to a library, o_proj of a layer, 1 rows)"
    )


def test_nothing_but_loss_rejects() -> None:
    assert come_to(LOST).rejects
    assert come_to(LOST, comparison(100.0, 90.0, request="nk_b")).rejects
    assert not come_to().rejects


def test_what_is_undecided_void_or_of_another_kernel_says_nothing() -> None:
    undecided = comparison(100.0, 100.0, request="nk_b", theirs=side("a library", 100.0, apart=2.0))
    void = comparison(100.0, 95.0, request="nk_c", selected=None)
    stale = comparison(100.0, 95.0, request="nk_d", code_digest="2" * 64)
    found = come_to(undecided, void, stale)
    assert (found.accepts, found.rejects, found.undecided) == (False, False, {"nk_b"})
    assert (found.stale, found.void) == (1, 1)
    assert come_to(WON, undecided, void, stale).accepts
    assert str(come_to(stale)) == "no comparison inside a layer but 1 of another kernel"


def book(folder, *comparisons, claim=Maturity.ACCEPTED, today=TODAY, proven=True, installed="triton 3.9.0"):
    sheet = tactic(claim=claim)
    checks = tuple(check_of("nk_proof", "9" * 64, regime) for regime in REGIMES) if proven else ()
    (folder / f"{sheet.name}.json").write_bytes(msgspec.json.encode(Records(tactic=sheet.name, checks=checks)))
    (folder / "layer").mkdir(exist_ok=True)
    (folder / "layer" / f"{sheet.name}.json").write_bytes(msgspec.json.encode(records(*comparisons)))
    assert sheet.name == TACTIC
    tuning = Tuning(digests=lambda *_: today, records=folder / "none")
    found = Book(digests=lambda _: DIGESTS, toolchain=lambda _: installed, folder=folder, tuning=tuning)
    return found, sheet


def test_verified_claimed_and_held_is_accepted_and_selected(tmp_path) -> None:
    found, sheet = book(tmp_path, WON)
    standing = found.standing(sheet)
    assert (standing.maturity, standing.held, standing.compared, standing.needs) == (Maturity.ACCEPTED, 1, 1, None)
    assert standing.engine == "device"
    chosen = select(contract(), tactics=[sheet], book=found).selected
    assert chosen is not None
    assert chosen.standing.maturity is Maturity.ACCEPTED


def test_a_layer_alone_accepts_nothing(tmp_path) -> None:
    found, sheet = book(tmp_path, WON, proven=False)
    assert found.standing(sheet).maturity is Maturity.EXPERIMENT
    found, sheet = book(tmp_path, WON, claim=Maturity.VERIFIED)
    read_records.cache_clear()
    assert found.standing(sheet).maturity is Maturity.VERIFIED


def test_a_claim_that_no_layer_bears_out_says_so(tmp_path) -> None:
    found, sheet = book(tmp_path)
    standing = found.standing(sheet)
    assert (standing.maturity, standing.needs) == (Maturity.VERIFIED, "no comparison inside a layer")


def test_one_changed_instruction_takes_acceptance_and_rejection_away(tmp_path) -> None:
    for one in (WON, LOST):
        read_layer.cache_clear()
        found, sheet = book(tmp_path, one, today="2" * 64)
        standing = found.standing(sheet)
        assert (standing.maturity, standing.compared) == (Maturity.VERIFIED, 0)
        assert standing.needs == "no comparison inside a layer but 1 of another kernel"


def test_a_measured_regression_rejects_whatever_is_claimed_and_allowed(tmp_path) -> None:
    for claim in (Maturity.EXPERIMENT, Maturity.VERIFIED, Maturity.ACCEPTED):
        found, sheet = book(tmp_path, LOST, claim=claim)
        standing = found.standing(sheet)
        assert standing.maturity is Maturity.REJECTED
        assert "lost 1 (most: 5.00 us a step to a library" in str(standing.needs)
        selection = select(contract(), Policy(allow_experimental=True), tactics=[sheet], book=found)
        assert selection.selected is None
        assert selection.candidates[0].reasons[0].actual == "rejected"


def test_a_loss_at_one_row_count_leaves_verified_what_wins_at_another(tmp_path) -> None:
    found, sheet = book(tmp_path, LOST, comparison(request="nk_b", rows=64))
    standing = found.standing(sheet)
    assert (standing.maturity, standing.held, standing.compared) == (Maturity.VERIFIED, 1, 2)
    assert "lost 1" in str(standing.needs)


def test_strict_evidence_wants_comparisons_of_the_installed_compiler(tmp_path) -> None:
    found, sheet = book(tmp_path, WON)
    assert found.standing(sheet, strict=True).maturity is Maturity.ACCEPTED
    other = comparison(ours=msgspec.structs.replace(WON.ours, software="triton 3.6.0"))
    read_layer.cache_clear()
    found, sheet = book(tmp_path, other)
    assert found.standing(sheet).maturity is Maturity.ACCEPTED
    assert found.standing(sheet, strict=True).maturity is Maturity.VERIFIED
