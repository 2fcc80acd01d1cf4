"""Records on disk: what a row becomes, what replaces what, and that the same records are the same bytes."""

import random

import pytest

from nkc.tactics.evidence import Answer, Records, read_records, records_path
from nkc.verify.check import verify
from nkc.verify.evidence import merge, merge_all, prune, record
from nkc.verify.regimes import Regime
from tests.verify.subjects import SCALED, FakeEngine, check_of, subjects


@pytest.fixture(autouse=True)
def fresh():
    read_records.cache_clear()
    yield
    read_records.cache_clear()


def test_a_row_becomes_a_record_that_names_kernel_engine_device_and_compiler(tmp_path) -> None:
    subject = subjects(tmp_path / "built", SCALED)[1]
    engine = FakeEngine()
    (row,) = verify(subject, engine, [Regime.WIDE], seed=2)
    check = record(subject, engine, row)
    assert subject.contract.code is not None
    assert (check.request, check.code_digest) == (subject.request, subject.contract.code.digest)
    assert (check.engine, check.device, check.toolchain) == ("emulator", "nothing", "fake 1")
    assert (check.regime, check.seed, check.passed) == ("wide", 2, True)
    assert (check.repeats, check.repeated, check.replay) == (3, Answer.PASSED, Answer.NOT_RUN)
    assert check.notes == {"unit": "fp32_fma"}
    assert float(f"{row.worst:.4g}") == check.worst != row.worst  # four digits: records are small and readable
    merge(SCALED, [check], folder=tmp_path / "evidence")
    assert read_records(SCALED, tmp_path / "evidence") == Records(tactic=SCALED, checks=(check,))


def test_a_later_check_replaces_only_the_one_it_repeats(tmp_path) -> None:
    old = [check_of("nk_a", "1" * 64), check_of("nk_b", "2" * 64)]
    merge("t", old, folder=tmp_path)
    newer = check_of("nk_a", "3" * 64, passed=False)
    beside = [check_of("nk_a", "1" * 64, seed=2), check_of("nk_a", "1" * 64, engine="emulator")]
    merge("t", [newer, *beside], folder=tmp_path)
    kept = read_records("t", tmp_path).checks
    assert old[0] not in kept
    assert all(check in kept for check in (newer, *beside, old[1]))
    assert len(kept) == 4


def test_the_order_in_which_records_arrive_is_not_in_the_bytes(tmp_path) -> None:
    checks = [
        check_of(request, "1" * 64, regime, seed=seed, engine=engine)
        for request in ("nk_a", "nk_b")
        for regime in ("exact", "wide")
        for seed in (1, 10, 2)
        for engine in ("device", "emulator")
    ]
    written = set()
    for number in range(3):
        random.Random(number).shuffle(checks)
        folder = tmp_path / str(number)
        for check in checks:
            merge("t", [check], folder=folder)
        written.add(records_path("t", folder).read_bytes())
    assert len(written) == 1


def test_several_tactics_have_a_file_each(tmp_path) -> None:
    paths = merge_all({"b": [check_of("nk_a", "1" * 64)], "a": [check_of("nk_b", "2" * 64)]}, folder=tmp_path)
    assert [path.name for path in paths] == ["a.json", "b.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "b.json"]


def test_records_of_what_is_no_proof_any_more_are_dropped(tmp_path) -> None:
    kept, gone = check_of("nk_a", "1" * 64), check_of("nk_b", "2" * 64)
    merge("t", [kept, gone], folder=tmp_path)
    assert prune("t", {"nk_a", "nk_b"}, folder=tmp_path) == 0
    assert prune("t", {"nk_a"}, folder=tmp_path) == 1
    assert read_records("t", tmp_path).checks == (kept,)
