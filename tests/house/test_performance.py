"""The committed performance records, the index of their kernels, and the tuning tables that rest on them."""

import pytest

from nkc.bench.propose import propose
from nkc.emit import measured
from nkc.ir import operations
from nkc.ir.package import PACKAGE, file_sha256
from nkc.tactics import layer, performance
from nkc.tactics.tuning import document, read_table

AGREE = 1.03
"""Two runs of one bench agree within it: records of one row may put tactics that are this close in either order."""

FORMER_MOST = 96
"""Copies that a session walked through at most; it goes when the cells below 2.5 MiB have new records."""

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
    record = next(each for each in (*RECORDS.records, *layer.read_all()) if each.request in digests)
    assert measured.code_digest(record, tactic) == digests[record.request]


def test_every_record_keeps_its_promises() -> None:
    for record in RECORDS.records:
        session = RECORDS.sessions[record.session]
        assert record.floor_us > 0
        for route in record.routes:
            assert route.latency is None or (route.gate is not None and route.gate.passed), route.name
            assert route.latency is None or route.latency.replays >= 11
            assert (route.code_digest is not None) is route.tactic
        assert record.copies * record.bytes > 4 * session.l2_bytes or record.copies == FORMER_MOST


def test_every_row_says_what_its_records_say() -> None:
    """Its order is what the tool makes of the records that it names, and it puts no slow tactic first for any of them.

    Where this fails: nkc tune --write. A stale row is ignored by selection, and here.
    """
    known = {record.digest: record for record in RECORDS.records}
    fresh = measured.tuning()
    for operation in operations.names():
        for row in (each for each in read_table(operation).rows if fresh.why_stale(operation, each) is None):
            records = [known[digest] for digest in row.records]
            (proposed,) = propose(records)[0][operation].rows
            assert proposed.order == row.order, str(row)
            assert proposed.m[1] == row.m[1], str(row)
            for record in records:
                assert row.m[0] <= record.contract["shape"]["m"] <= row.m[1]
                taken = {each.name: each.latency.median_us for each in record.routes if each.tactic and each.latency}
                first = next(name for name in row.order if name in taken)
                assert taken[first] <= AGREE * min(taken.values()), f"{row}: {record.cell}"


def test_tables_are_written_as_the_tool_writes_them() -> None:
    for operation in operations.names():
        path = PACKAGE / "tactics" / operation / "tuning.json"
        if path.exists():
            assert path.read_bytes() == document(read_table(operation))
