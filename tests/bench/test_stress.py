"""benchmarks/stress.py: whose finding a sanitizer's line is, what a record keeps, and that rings meet every ratio."""

from pathlib import Path

import msgspec
import pytest

from tests.fixtures.scripts import benchmark

record = benchmark("stress_record")
ratios = benchmark("ratios")
stress = benchmark("stress")
RACE = record.Check.RACECHECK
RUN = record.Run(device="a GPU", driver="1.2", date="2026-01-01", nkc="0", torch="2", method="as told")


def row(request: str, *, check=RACE, tactic: str = "t", findings: int = 0):
    return record.Row(
        check=check,
        tactic=tactic,
        request=request,
        code_digest="d",
        launches=1,
        findings=findings,
        passed=not findings,
    )


def printed(*lines: object) -> str:
    return "\n".join(
        line if isinstance(line, str) else f"#kernel {msgspec.json.encode(line).decode()}" for line in lines
    )


FOUND = """========= Error: Race reported between Write access at step+0x10 in kernel.cu
=========     and Read access at step+0x20 in kernel.cu [4 hazards]
========= """


def test_a_finding_counts_for_the_kernel_whose_line_ends_it() -> None:
    text = printed("========= COMPUTE-SANITIZER", row("one"), FOUND, FOUND, row("two"), row("three"))
    rows = record.rows_of(RACE, text + "\n========= RACECHECK SUMMARY: 3 hazards displayed (3 errors, 0 warnings)\n")
    assert [(each.request, each.findings, each.passed) for each in rows] == [
        ("one", 0, True),
        ("two", 2, False),
        ("three", 0, True),
    ]


def test_a_kernel_that_ends_the_process_failed() -> None:
    begun = f"#begun {msgspec.json.encode(row('two')).decode()}"
    assert record.rows_of(RACE, printed(row("one"), begun)) == [row("one"), row("two", findings=1)]
    assert record.rows_of(RACE, printed(row("one"), begun, FOUND, FOUND))[1] == row("two", findings=2)
    assert record.rows_of(RACE, printed(begun, row("two"))) == [row("two")]


def test_what_was_found_is_told_with_its_kernel() -> None:
    begun = [f"#begun {msgspec.json.encode(row(name)).decode()}" for name in ("one", "two")]
    told = record.findings_of(RACE, printed(FOUND, begun[0], row("one"), begun[1], FOUND, row("two"), FOUND))
    assert told == [f"t: two: {line.removeprefix('========= ')}" for line in FOUND.splitlines()[:2]]


def test_other_checks_count_by_themselves() -> None:
    one = row("one", check=record.Check.REPLAYS, findings=3)
    assert record.rows_of(record.Check.REPLAYS, printed("torch says", one)) == [one]


def test_a_later_row_replaces_an_earlier_one_and_a_run_without_rows_goes(tmp_path: Path) -> None:
    place = tmp_path / "stress.json"
    second, third = (msgspec.structs.replace(RUN, date=date) for date in ("2026-01-02", "2026-01-03"))
    record.keep(place, RUN, [row("b"), row("a")])
    record.keep(place, second, [row("b", findings=1), row("b", check=record.Check.CHAIN)])
    kept = record.read(place)
    assert [(each.request, each.check.value, each.findings, each.run) for each in kept.rows] == [
        ("a", "racecheck", 0, 0),
        ("b", "chain", 0, 1),
        ("b", "racecheck", 1, 1),
    ]
    record.keep(place, third, [row("a")])
    kept = record.read(place)
    assert [each.date for each in kept.runs] == ["2026-01-02", "2026-01-03"]
    assert [each.run for each in kept.rows] == [1, 0, 0]


@pytest.mark.parametrize("tactic", list(ratios.pipelined("sm_90.*")), ids=lambda tactic: tactic.name)
def test_a_ring_meets_every_ratio_of_stages_to_blocks(tactic) -> None:
    stages, split = tactic.schedule.stages, tactic.schedule.split_k or 1
    lengths = [contract.exact("k") for contract in ratios.contracts(tactic)]
    least = min(lengths)
    filled = {length // least for length in lengths}
    assert {1, stages - 1, stages, stages + 1, 2 * stages - 1, 2 * stages, 2 * stages + 1} == filled
    assert least % split == 0


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("========= Barrier error detected. Divergent thread(s) in warp", True),
        ("========= Error: Race reported between Write access at step+0x10 in kernel.cu", True),
        ("========= Error: Target application terminated before first instrumented API call", False),
        ("========= Target application returned an error", False),
        ("========= ERROR SUMMARY: 0 errors", False),
        ("=========     at step+0x10 in kernel.cu", False),
        ("========= ", False),
    ],
)
def test_what_the_sanitizer_says_of_itself_is_no_finding(line: str, found: bool) -> None:
    assert record.reports(f"torch says\n{line}\n") is found
