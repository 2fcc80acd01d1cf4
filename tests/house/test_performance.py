"""The committed performance records, the index of their kernels, and the tuning tables that rest on them."""

import pytest

from nkc.bench.operands import MOST_COPIES
from nkc.emit import measured
from nkc.ir import operations
from nkc.ir.package import PACKAGE, file_sha256
from nkc.tactics import performance
from nkc.tactics.tuning import document, read_table

RECORDS = performance.read_all()
INDEX = performance.read_performance_index()


def test_the_index_is_of_today_s_files() -> None:
    """Where this fails: nkc evidence index."""
    for name, digest in INDEX.files.items():
        assert file_sha256(name) == digest, name


@pytest.mark.parametrize("tactic", sorted(INDEX.tactics))
def test_an_indexed_digest_is_what_the_kernel_renders_to(tactic) -> None:
    """One contract of each tactic; the files' hashes stand for the rest."""
    digests = INDEX.tactics[tactic].requests
    record = next(each for each in RECORDS.records if each.request in digests)
    assert measured.code_digest(record, tactic) == digests[record.request]


def test_every_record_keeps_its_promises() -> None:
    for record in RECORDS.records:
        session = RECORDS.sessions[record.session]
        assert record.floor_us > 0
        for route in record.routes:
            assert route.latency is None or (route.gate is not None and route.gate.passed), route.name
            assert route.latency is None or route.latency.replays >= 11
            assert (route.code_digest is not None) is route.tactic
        assert record.copies * record.bytes > 4 * session.l2_bytes or record.copies == MOST_COPIES


def test_every_row_rests_on_records_that_are_there() -> None:
    known = {record.digest: record for record in RECORDS.records}
    for operation in operations.names():
        for row in read_table(operation).rows:
            for digest in row.records:
                record = known[digest]
                assert row.m[0] <= record.contract["shape"]["m"] <= row.m[1]
                fastest = min(
                    (route for route in record.routes if route.tactic and route.latency),
                    key=lambda r: r.latency.median_us,
                )
                assert fastest.name in row.order
            if len(row.records) == 1:
                assert fastest.name == row.order[0]


def test_tables_are_written_as_the_tool_writes_them() -> None:
    for operation in operations.names():
        path = PACKAGE / "tactics" / operation / "tuning.json"
        if path.exists():
            assert path.read_bytes() == document(read_table(operation))
