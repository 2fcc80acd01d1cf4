"""Which records still speak of today's kernels, and what is selected today for what they timed."""

from collections.abc import Iterable

import msgspec

from nkc.ir.reader import parse_document
from nkc.tactics.evidence import Book
from nkc.tactics.performance import Measurements, Record
from nkc.tactics.select import select
from nkc.tactics.tuning import Tuning


def fresh(records: Iterable[Record], tuning: Tuning) -> tuple[tuple[Record, ...], tuple[str, ...]]:
    """Return the records whose every timed kernel is today's, and a line for each that is not."""
    kept, stale = [], []
    for record in records:
        old = [
            route.name
            for route in record.routes
            if route.tactic and route.latency is not None and route.code_digest != tuning.today(record, route.name)
        ]
        if old:
            stale.append(f"{record.cell}: record {record.digest[:12]} timed other kernels of {', '.join(old)}")
        else:
            kept.append(record)
    return tuple(kept), tuple(stale)


def as_selected_today(found: Measurements, book: Book) -> Measurements:
    """Return measurements whose `selected` is what today's selection takes, timed in the record or not.

    A record keeps what was selected when it was made; a tuning row that it led to comes afterwards.
    """

    def today(record: Record) -> Record:
        selected = select(parse_document(record.contract, record.cell), book=book).selected
        return msgspec.structs.replace(record, selected=None if selected is None else selected.tactic.name)

    return msgspec.structs.replace(found, records=tuple(map(today, found.records)))
