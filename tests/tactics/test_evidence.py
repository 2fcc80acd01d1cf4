"""Standing: the claim capped by records of every proof in every regime at its current code digest."""

import dataclasses
import itertools

import msgspec
import pytest

from nkc.ir.contract import Maturity
from nkc.ir.errors import ToolError
from nkc.tactics import evidence
from nkc.tactics.evidence import REGIMES, Answer, Book, Index, IndexEntry, Records, read_index, read_records
from nkc.tactics.proven import ProvenTactics, read_proven, seal
from nkc.tactics.select import Policy, select
from tests.fixtures.contracts import contract
from tests.fixtures.sheets import tactic
from tests.verify.subjects import check_of

DIGESTS = {"nk_a": "1" * 64, "nk_b": "2" * 64}
HERE = "triton 3.9.0"


@pytest.fixture(autouse=True)
def fresh():
    for cached in (read_records, read_index, read_proven):
        cached.cache_clear()
    yield
    for cached in (read_records, read_index, read_proven):
        cached.cache_clear()


def whole(**fields):
    return [check_of(request, digest, regime, **fields) for request, digest in DIGESTS.items() for regime in REGIMES]


def book(folder, checks, *, claim=Maturity.VERIFIED, digests=DIGESTS, installed=HERE):
    sheet = tactic(claim=claim)
    folder.mkdir(exist_ok=True)
    (folder / f"{sheet.name}.json").write_bytes(msgspec.json.encode(Records(tactic=sheet.name, checks=tuple(checks))))
    return Book(digests=lambda _: digests, toolchain=lambda _: installed, folder=folder), sheet


def test_without_records_a_claim_counts_for_nothing(tmp_path) -> None:
    for claim in (Maturity.EXPERIMENT, Maturity.VERIFIED, Maturity.ACCEPTED):
        standing = Book(folder=tmp_path).standing(tactic(claim=claim))
        assert (standing.maturity, standing.claimed) == (Maturity.EXPERIMENT, claim)
        assert standing.needs == "no evidence (nkc verify --tactic gfx950.dense.plain --record)"


UNBORNE = (
    ({"worst": 1.2}, "passed, but its largest error is 1.2 of its bound"),
    ({"worst": -1.0}, "passed, but its largest error is -1 of its bound"),
    ({"hazards": ("a race",)}, "passed, but a race"),
    ({"bit_equal": Answer.FAILED}, "passed, but a check of it failed"),
    ({"replay": Answer.FAILED}, "passed, but a check of it failed"),
    ({"outside": Answer.FAILED}, "passed, but a check of it failed"),
    ({"engine": "emulator", "replay": Answer.NOT_RUN, "model_bits": Answer.FAILED}, "passed, but a check of it failed"),
    ({"repeats": 3}, "3 runs compared, and 21 are asked for"),
    ({"engine": "emulator", "replay": Answer.NOT_RUN, "repeats": 2}, "2 runs compared, and 3 are asked for"),
    ({"outside": Answer.NOT_RUN}, "nobody looked at what was written outside"),
    ({"notes": {}}, "0 replays of its graph, and 20 are asked for"),
    ({"notes": {"replays": "19"}}, "19 replays of its graph, and 20 are asked for"),
    ({"notes": {"replays": "many"}}, "0 replays of its graph, and 20 are asked for"),
)


@pytest.mark.parametrize(("fields", "why"), UNBORNE)
def test_a_passed_record_counts_only_where_its_own_figures_bear_it_out(tmp_path, fields, why) -> None:
    """A file says what its writer wants: its word is held against its figures, and those against what is asked."""
    assert check_of("nk_a", DIGESTS["nk_a"], "wide", **fields).contradiction == why
    found, sheet = book(tmp_path, whole(**fields))
    standing = found.standing(sheet)
    assert (standing.maturity, standing.proofs, standing.engine) == (Maturity.EXPERIMENT, 0, None)
    assert f"8 records do not bear out their word ({why})" in standing.needs


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"worst": 1.0},
        {"model_bits": Answer.FAILED},
        {"replay": Answer.NOT_PROMISED, "notes": {}},
        {"replay": Answer.NOT_RUN, "notes": {}},
        {"engine": "emulator", "repeats": 3, "replay": Answer.NOT_RUN, "notes": {}},
        {"passed": False, "worst": 7.0, "hazards": ("a race",), "repeats": 0},
    ],
)
def test_what_is_asked_of_an_engine_is_enough(fields) -> None:
    assert check_of("nk_a", DIGESTS["nk_a"], "wide", **fields).contradiction is None


def test_a_device_that_replayed_no_graph_proves_nothing_of_a_kernel_that_promises_it(tmp_path) -> None:
    found, sheet = book(tmp_path, whole(replay=Answer.NOT_RUN, notes={}))
    assert (found.standing(sheet).maturity, found.standing(sheet).proofs) == (Maturity.EXPERIMENT, 0)
    found, sheet = book(tmp_path / "emulated", whole(engine="emulator", replay=Answer.NOT_RUN, notes={}))
    assert found.standing(sheet).maturity is Maturity.VERIFIED


def test_rejected_needs_no_records_and_no_records_lift_it(tmp_path) -> None:
    found, sheet = book(tmp_path, whole(), claim=Maturity.REJECTED)
    assert found.standing(sheet).maturity is Maturity.REJECTED


def test_every_proof_in_every_regime_is_verified_by_that_engine(tmp_path) -> None:
    found, sheet = book(tmp_path, whole())
    standing = found.standing(sheet)
    assert (standing.maturity, standing.engine, standing.proofs, standing.proofs_wanted) == (
        Maturity.VERIFIED,
        "device",
        2,
        2,
    )
    assert (standing.needs, standing.toolchains, standing.foreign) == (None, (HERE,), ())
    assert found.standing(sheet, "nk_a").measured_here
    assert not found.standing(sheet, "nk_other").measured_here


def test_without_a_claim_everything_proven_is_still_an_experiment_and_says_what_it_wants(tmp_path) -> None:
    found, sheet = book(tmp_path, whole(), claim=Maturity.EXPERIMENT)
    standing = found.standing(sheet)
    assert standing.maturity is Maturity.EXPERIMENT
    assert standing.needs == "its claim (nkc promote gfx950.dense.plain); every proof holds on the device"


@pytest.mark.parametrize("place", range(len(DIGESTS) * len(REGIMES)))
@pytest.mark.parametrize(
    ("spoiled", "said"),
    [
        ({"passed": False}, "1 records failed"),
        ({"code_digest": "3" * 64}, "1 records are of another kernel"),
        ({"repeated": Answer.FAILED}, "1 of 2 proofs hold"),
        ({"repeated": Answer.NOT_RUN}, "1 of 2 proofs hold"),
        ({"engine": "interpreter"}, "1 of 2 proofs hold"),
        (None, "1 of 2 proofs hold"),
    ],
    ids=["failed", "stale", "differing", "not-repeated", "interpreted", "missing"],
)
def test_one_record_that_does_not_count_is_one_too_few(tmp_path, place, spoiled, said) -> None:
    checks = whole()
    checks[place : place + 1] = [] if spoiled is None else [msgspec.structs.replace(checks[place], **spoiled)]
    found, sheet = book(tmp_path, checks)
    standing = found.standing(sheet)
    assert (standing.maturity, standing.proofs) == (Maturity.EXPERIMENT, 1)
    assert said in str(standing.needs)
    assert "(nkc verify --tactic gfx950.dense.plain --record)" in str(standing.needs)


def test_the_interpreter_proves_nothing(tmp_path) -> None:
    found, sheet = book(tmp_path, whole(engine="interpreter"))
    assert (found.standing(sheet).maturity, found.standing(sheet).engine) == (Maturity.EXPERIMENT, None)


def test_the_emulator_is_named_and_a_device_goes_first(tmp_path) -> None:
    emulated = whole(engine="emulator", replay=Answer.NOT_RUN)
    found, sheet = book(tmp_path / "one", emulated)
    assert (found.standing(sheet).maturity, found.standing(sheet).engine) == (Maturity.VERIFIED, "emulator")
    found, sheet = book(tmp_path / "two", [*emulated, *whole()])
    assert found.standing(sheet).engine == "device"
    found, sheet = book(tmp_path / "three", [*emulated, *whole()[:-1]])  # the device has not proven everything
    assert (found.standing(sheet).maturity, found.standing(sheet).engine) == (Maturity.VERIFIED, "emulator")


def test_two_engines_do_not_prove_one_half_each(tmp_path) -> None:
    found, sheet = book(tmp_path, [*whole()[:4], *whole(engine="emulator")[4:]])
    assert found.standing(sheet).maturity is Maturity.EXPERIMENT


def test_a_tactic_without_proofs_is_never_proven(tmp_path) -> None:
    found, sheet = book(tmp_path, whole(), digests={})
    assert found.standing(sheet).maturity is Maturity.EXPERIMENT


def test_records_of_another_toolchain_count_flagged_and_not_at_all_when_strict(tmp_path) -> None:
    found, sheet = book(tmp_path / "old", whole(toolchain="triton 3.6.0"))
    standing = found.standing(sheet)
    assert (standing.maturity, standing.foreign) == (Maturity.VERIFIED, ("triton 3.6.0",))
    strict = found.standing(sheet, "nk_a", strict=True)
    assert (strict.maturity, strict.proofs, strict.measured_here) == (Maturity.EXPERIMENT, 0, False)
    assert str(strict.needs).startswith("records of triton 3.6.0, and here is triton 3.9.0 (nkc verify")
    mixed, sheet = book(tmp_path / "mixed", [*whole(toolchain="triton 3.6.0")[:1], *whole()[1:]])
    assert mixed.standing(sheet).maturity is Maturity.VERIFIED
    assert mixed.standing(sheet, strict=True).proofs == 1
    nothing, sheet = book(tmp_path / "none", whole(), installed=None)
    assert (nothing.standing(sheet).maturity, nothing.standing(sheet).foreign) == (Maturity.VERIFIED, ())
    assert nothing.standing(sheet, strict=True).maturity is Maturity.EXPERIMENT


def test_selection_is_strict_when_the_policy_is(tmp_path) -> None:
    found, sheet = book(tmp_path, whole(toolchain="triton 3.6.0"))
    assert select(contract(), tactics=[sheet], book=found).selected is not None
    refused = select(contract(), Policy(strict_evidence=True), tactics=[sheet], book=found)
    assert refused.selected is None
    (reason,) = refused.candidates[0].reasons
    assert (reason.stage, reason.actual) == ("maturity", "experiment")


def test_the_index_is_trusted_while_its_files_are_those_it_saw(tmp_path, monkeypatch) -> None:
    _, sheet = book(tmp_path, whole())
    hashes = {"templates/t.j2": "a" * 64, "nkc/emit/digest.py": "b" * 64}
    entry = IndexEntry(proofs=DIGESTS, files=tuple(hashes))
    index = Index(files=dict(hashes), tactics={sheet.name: entry})
    (tmp_path / "index.json").write_bytes(msgspec.json.encode(index))
    monkeypatch.setattr(evidence, "file_sha256", hashes.get)

    def must_not_render(_):
        raise AssertionError("the index should have been trusted")

    assert Book(digests=must_not_render, folder=tmp_path).standing(sheet).maturity is Maturity.VERIFIED
    for name in list(hashes):
        monkeypatch.setitem(hashes, name, "c" * 64)
        unseen = Book(folder=tmp_path).standing(sheet)
        assert unseen.maturity is Maturity.EXPERIMENT
        assert "its kernel's files have changed (nkc verify" in str(unseen.needs)
        same = Book(digests=lambda _: DIGESTS, folder=tmp_path).standing(sheet)
        assert same.maturity is Maturity.VERIFIED  # other bytes, the same kernel
        other = Book(digests=lambda _: dict.fromkeys(DIGESTS, "4" * 64), folder=tmp_path).standing(sheet)
        assert (other.maturity, other.proofs) == (Maturity.EXPERIMENT, 0)
        monkeypatch.undo()
        monkeypatch.setattr(evidence, "file_sha256", hashes.get)


@pytest.mark.parametrize("text", ["{", '{"schema": "nkc.evidence/2"}', '{"schema": "nkc.evidence/1", "x": 1}', "[]"])
def test_a_damaged_file_is_an_error_that_says_how_to_mend_it(tmp_path, text) -> None:
    sheet = tactic()
    (tmp_path / f"{sheet.name}.json").write_text(text)
    with pytest.raises(ToolError, match=r"gfx950\.dense\.plain\.json: not evidence .* \(restore it from version"):
        Book(folder=tmp_path).standing(sheet)
    (tmp_path / "index.json").write_text(text)
    with pytest.raises(ToolError, match=r"index\.json: not an index .* \(nkc evidence index\)"):
        read_index(tmp_path)


def test_no_order_of_records_changes_a_standing(tmp_path) -> None:
    checks = [*whole(), *whole(engine="emulator"), *whole(passed=False, seed=2)]
    found = set()
    for number, order in enumerate((checks, checks[::-1], checks[3:] + checks[:3])):
        opened, sheet = book(tmp_path / str(number), order)
        found.add(msgspec.json.encode(opened.standing(sheet)))
    assert len(found) == 1


def test_more_records_never_lower_what_an_older_one_holds_for_another_seed(tmp_path) -> None:
    for number, (seed, engine) in enumerate(itertools.product((1, 2), ("device", "emulator"))):
        opened, sheet = book(tmp_path / str(number), [*whole(), *whole(seed=seed, engine=engine)])
        assert opened.standing(sheet).maturity is Maturity.VERIFIED


@pytest.mark.parametrize(("engine", "maturity"), [("device", "experiment"), ("emulator", "experiment")])
def test_a_failure_of_today_s_kernel_outweighs_what_it_passed(tmp_path, engine, maturity) -> None:
    failure = check_of("nk_a", DIGESTS["nk_a"], "wide", seed=2, engine=engine, passed=False)
    opened, sheet = book(tmp_path / "now", [*whole(), failure])
    assert opened.standing(sheet).maturity == maturity
    assert "1 records failed" in str(opened.standing(sheet).needs)
    older = msgspec.structs.replace(failure, code_digest="9" * 64)
    opened, sheet = book(tmp_path / "then", [*whole(), older])
    assert opened.standing(sheet).maturity is Maturity.VERIFIED


def test_a_sheet_cannot_say_more_than_its_claim(tmp_path) -> None:
    found, sheet = book(tmp_path, whole(), claim=Maturity.VERIFIED)
    accepted = dataclasses.replace(sheet, claim=Maturity.ACCEPTED)
    assert found.standing(sheet).maturity is Maturity.VERIFIED
    other, _ = book(tmp_path, whole(), claim=Maturity.ACCEPTED)
    assert other.standing(accepted).maturity is Maturity.VERIFIED  # no record compares it inside a layer


def keep(folder, sheet, **fields):
    """Keep what a tactic's records come to; fields: what is kept instead."""
    found = msgspec.structs.replace(evidence.kept(sheet, DIGESTS, folder), **fields)
    (folder / "proven.json").write_bytes(msgspec.json.encode(ProvenTactics(tactics={sheet.name: found})))
    read_proven.cache_clear()


def test_what_is_kept_is_believed_for_the_bytes_that_were_weighed_alone(tmp_path, monkeypatch) -> None:
    """The kept engine is another one here than the records', which tells where a standing comes from."""
    told, sheet = book(tmp_path, whole())
    keep(tmp_path, sheet, engine="emulator", toolchains=("triton 3.8.0",))
    standing = told.standing(sheet, "nk_a")
    assert (standing.maturity, standing.engine, standing.proofs, standing.proofs_wanted) == (
        (Maturity.VERIFIED, "emulator", 2, 2)
    )
    assert (standing.measured_here, standing.foreign) == (True, ("triton 3.8.0",))
    assert not told.standing(sheet, "nk_c").measured_here
    assert told.standing(sheet, strict=True).engine == "device", "strict evidence is weighed by its compilers"

    def engine(**fields) -> str | None:
        read_records.cache_clear()
        given = {"digests": lambda _: DIGESTS, "toolchain": lambda _: HERE, "folder": tmp_path} | fields
        return Book(**given).standing(sheet).engine

    assert engine() == "emulator"
    assert engine(digests=lambda _: {**DIGESTS, "nk_b": "3" * 64}) == "device", "another kernel"
    assert engine(digests=lambda _: {**DIGESTS, "nk_c": "3" * 64}) == "device", "another proof"
    assert engine(digests=None) is None, "no digests, no standing"
    file = tmp_path / f"{sheet.name}.json"
    before = file.read_bytes()
    file.write_bytes(before + b" ")
    assert engine() == "device", "another byte of the records"
    file.unlink()
    assert engine() is None, "no records"
    file.write_bytes(before)
    assert engine() == "emulator"
    for rules in ("nkc/tactics/evidence.py", "nkc/tactics/proven.py"):
        monkeypatch.setattr("nkc.tactics.proven.file_sha256", lambda name, other=rules: "0" * (64 - (name == other)))
        assert engine() == "device", "other rules"


def test_what_is_kept_says_nothing_of_the_claim(tmp_path) -> None:
    told, sheet = book(tmp_path, whole())
    keep(tmp_path, sheet)
    for claim in (Maturity.EXPERIMENT, Maturity.VERIFIED, Maturity.REJECTED):
        claimed = dataclasses.replace(sheet, claim=claim)
        unkept = Book(digests=lambda _: DIGESTS, toolchain=lambda _: HERE, folder=tmp_path)
        unkept.proven = lambda _: None
        kept = Book(digests=lambda _: DIGESTS, toolchain=lambda _: HERE, folder=tmp_path)
        assert kept.proven(claimed) is not None
        assert kept.standing(claimed, "nk_a") == unkept.standing(claimed, "nk_a")
    assert told.standing(sheet).maturity is Maturity.VERIFIED


@pytest.mark.parametrize("left_out", range(8))
def test_nothing_is_kept_of_a_tactic_whose_proofs_do_not_all_hold(tmp_path, left_out) -> None:
    checks = whole()
    _, sheet = book(tmp_path, [*checks[:left_out], *checks[left_out + 1 :]])
    assert evidence.kept(sheet, DIGESTS, tmp_path) is None
    assert seal(DIGESTS, tmp_path / f"{sheet.name}.json") is not None


def test_a_damaged_file_of_what_is_proven_is_an_error(tmp_path) -> None:
    told, sheet = book(tmp_path, whole())
    (tmp_path / "proven.json").write_text('{"schema": "nkc.proven/1", "tactics": {}, "more": 1}')
    with pytest.raises(ToolError, match=r"proven\.json: not what this nkc keeps: .*nkc evidence index"):
        told.standing(sheet)
