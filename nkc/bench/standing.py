"""Which records still speak of today's kernels."""

from collections.abc import Iterable

from nkc.tactics.performance import Record
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
