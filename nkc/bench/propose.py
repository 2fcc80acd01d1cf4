"""Proposes rows of the tuning table from records: for each shape, which tactics go first in which interval of rows.

A contract with a fixed m stands for the rows down to the next smaller one that was measured: a tile that was fastest
at m = 64 is proposed for 17..64 where 16 was measured too, and never for few rows by what was seen of many. A contract
with a bounded m is measured at several values and stands for its own range, by the geometric mean over them. What is
proposed never reaches beyond what was measured, and nothing is proposed where the rule puts a tactic that nobody timed
far ahead.
"""

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from nkc.ir.contract import Accumulate, Contract, DType, dim_max, dim_min
from nkc.ir.frozen import FrozenMap
from nkc.ir.reader import parse_document
from nkc.tactics.catalogue import tactics_of
from nkc.tactics.performance import Record, Route
from nkc.tactics.select import obstacles
from nkc.tactics.tactic import DEPENDENT, Tactic
from nkc.tactics.tuning import Row, Table

if TYPE_CHECKING:
    from nkc.tactics.predicate import Predicate
    from nkc.tactics.reason import Reason

NEAR = 1.5
"""A tactic slower than the fastest by this factor is left to the catalogue's rank."""

LEAD = 1.15
"""A row goes before all that its records never saw: none is told where the rule puts one of those so far ahead."""

FEW, TILE = 16, 64
"""Rows that every tile has room for; rows that the narrower of two usual tiles has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The records of one contract at one code, one for each value of its bounded dims."""

    contract: Contract
    records: tuple[Record, ...]

    @property
    def shape(self) -> tuple[str, str, tuple[tuple[str, int], ...]]:
        """Operation, target and every dim beside m."""
        dims = {name: self.contract.exact(name) for name in self.contract.shape if name != "m"}
        return self.contract.operation, self.contract.target.arch, tuple(sorted(dims.items()))

    @property
    def rows(self) -> tuple[int, int]:
        """The range of m."""
        return dim_min(self.contract.shape["m"]), dim_max(self.contract.shape["m"])


def measured(records: Iterable[Record]) -> tuple[Measured, ...]:
    """Gather records by contract, in order of shape and rows."""
    by_request: dict[str, list[Record]] = {}
    for record in records:
        by_request.setdefault(record.request, []).append(record)
    found = [
        Measured(contract=parse_document(each[0].contract, each[0].cell), records=tuple(each))
        for each in by_request.values()
    ]
    return tuple(sorted(found, key=lambda each: (each.shape, each.rows, each.records[0].request)))


def propose(records: Iterable[Record]) -> tuple[dict[str, Table], tuple[str, ...]]:
    """Return a table for each operation, and what could not become a row, one line each."""
    by_shape: dict[object, list[Measured]] = {}
    for each in measured(records):
        by_shape.setdefault(each.shape, []).append(each)
    tables: dict[str, list[Row]] = {}
    problems: list[str] = []
    for contracts in by_shape.values():
        operation, target, dims = contracts[0].shape
        for (low, high), group in _intervals(contracts, problems):
            kept: list[Measured] = []
            for part in _by_operands(group):
                if why := _why_no_row(part):
                    problems.append(f"{part[0].records[0].cell}: {why}")
                else:
                    kept += part
            if kept:
                digests = tuple(sorted(record.digest for each in kept for record in each.records))
                row = Row(target=target, dims=dict(dims), m=(low, high), order=_order(kept), records=digests)
                tables.setdefault(operation, []).append(row)
    return {name: Table(operation=name, rows=tuple(rows)) for name, rows in sorted(tables.items())}, tuple(problems)


def _by_operands(group: list[Measured]) -> list[list[Measured]]:
    """Return contracts of one type of operands apart from those of another: no tactic serves both."""
    parts: dict[DType | None, list[Measured]] = {}
    for each in group:
        parts.setdefault(each.contract.dtypes.get("a"), []).append(each)
    return list(parts.values())


def _why_no_row(group: list[Measured]) -> str | None:
    """Return why no row may be told from these contracts, None where one may."""
    order = _order(group)
    if not order:
        return "no tactic was timed behind a green gate"
    if faster := _only_licensed_elsewhere(group):
        return (
            f"a row told under a strict rule alone would go before {faster[0]} and {len(faster) - 1} more that a "
            "looser one licenses (bench that contract too)"
        )
    if unseen := _unseen(group, order):
        return f"the rule puts {unseen[0]}, which nobody timed, far before {order[0]} (nkc bench --every --record)"
    return None


def _intervals(contracts: list[Measured], problems: list[str]) -> list[tuple[tuple[int, int], list[Measured]]]:
    """Return intervals of m with the contracts that speak for each, ascending; a range that overlaps is reported."""
    by_rows: dict[tuple[int, int], list[Measured]] = {}
    for each in contracts:
        by_rows.setdefault(each.rows, []).append(each)
    found: list[tuple[tuple[int, int], list[Measured]]] = []
    end = -1
    for (low, high), group in sorted(by_rows.items(), key=lambda item: (item[0][1], -item[0][0])):
        start = low
        if low == high:
            start = max(end, _least(high)) + 1
        if start <= end:
            name = group[0].records[0].cell
            problems.append(f"{name}: m {low}..{high} overlaps what ends at {end} (nkc split --at {end})")
            continue
        found.append(((start, high), group))
        end = high
    return found


def _least(rows: int) -> int:
    """Return how many rows are too few to be told from so many: half where tiles of half the rows may win."""
    if rows <= FEW:
        return -1
    return rows // (2 if rows <= TILE else 8)


def _only_licensed_elsewhere(group: list[Measured]) -> tuple[str, ...]:
    """Return tactics that none of these contracts licenses and a looser rule would: nobody timed them.

    A row is about a shape, whatever rule a contract of it asks for: one told from exact products alone would put their
    tactics before the FP8 unit's.
    """
    loosest, found = list(Accumulate)[-1], set[str]()
    for each in group:
        asked = each.contract.numerics.get("accumulate")
        if asked is None or asked is loosest:
            return ()
        numerics = FrozenMap({**each.contract.numerics, "accumulate": loosest})
        loosened = msgspec.structs.replace(each.contract, numerics=numerics)
        found.update(serving(loosened).keys() - serving(each.contract).keys())
    return tuple(sorted(found))


def _unseen(group: list[Measured], order: tuple[str, ...]) -> tuple[str, ...]:
    """Return tactics that none of the records looked at and that the rule puts far before the first of a row."""
    timed = {route.name.removesuffix(DEPENDENT) for each in group for record in each.records for route in record.routes}
    found = set[str]()
    for each in group:
        there = serving(each.contract)
        first = next((there[name] for name in order if name in there), None)
        told = None if first is None else first.estimate(each.contract, first)
        if told is None:
            continue
        found.update(
            tactic.name
            for tactic in there.values()
            if tactic.independent_name not in timed
            and (other := tactic.estimate(each.contract, tactic)) is not None
            and other.ns * LEAD < told.ns
        )
    return tuple(sorted(found))


def serving(contract: Contract) -> dict[str, Tactic]:
    """Return the tactics that serve a contract, by name; a predicate that many of them have is asked once."""
    asked: dict[Predicate, Reason | None] = {}
    return {
        tactic.name: tactic
        for tactic in tactics_of(contract.operation)
        if tactic.target == contract.target.arch and not obstacles(contract, tactic, asked)
    }


def _order(group: list[Measured]) -> tuple[str, ...]:
    """Return the tactics that were timed whole somewhere in the group, by the geometric mean of their ratios.

    A ratio is the time over the fastest one's at the same rows; where a tactic was cut short in every record of those
    rows, its first look counts: on a card that is still cool others are ahead than in whole turns.
    Times of two records are brought together by a baseline that both have, so that what wins under a strict rule stands
    where it belongs among what a looser one admits. Kept is what is near the fastest in some record. With dependent
    launch a kernel has a place of its own, since other tiles win there, and the first of two that nothing tells apart.
    """
    by_rows: dict[tuple[tuple[str, int], ...], list[Record]] = {}
    for record in (record for each in group for record in each.records):
        by_rows.setdefault(tuple(sorted(record.dims.items())), []).append(record)
    ratios: dict[str, list[float]] = {}
    kept: set[str] = set()
    for records in by_rows.values():
        together = _together(records)
        least = min((time for times in together for time in times.values()), default=1.0)
        looks: dict[str, list[float]] = {}
        whole: dict[str, list[float]] = {}
        for record, times in zip(records, together, strict=True):
            near = NEAR * min(times.values(), default=1.0)
            turned = {route.name for route in record.routes if _counts(route)}
            kept.update(name for name in turned if times[name] <= near)
            for name, time in times.items():
                (whole if name in turned else looks).setdefault(name, []).append(time / least)
        for name, found in {**looks, **whole}.items():
            ratios.setdefault(name, []).extend(found)
    means = {name: math.exp(sum(map(math.log, ratios[name])) / len(ratios[name])) for name in kept}
    return tuple(sorted(kept, key=lambda name: (means[name], not name.endswith(DEPENDENT), name)))


def _together(records: list[Record]) -> list[dict[str, float]]:
    """Return the tactics' times of each record in one unit: a baseline that all of them timed, else microseconds."""
    baselines = [
        {route.name: route.latency.median_us for route in record.routes if not route.tactic and route.latency}
        for record in records
    ]
    shared = sorted(set.intersection(*map(set, baselines)))
    units = [found[shared[0]] if shared else 1.0 for found in baselines]
    return [
        {route.name: time / unit for route in record.routes if (time := _time(route)) is not None}
        for record, unit in zip(records, units, strict=True)
    ]


def _time(route: Route) -> float | None:
    """Return a green tactic's time: the median of whole turns, else the first look."""
    if not route.tactic or route.gate is None or not route.gate.passed:
        return None
    return route.quick_us if route.latency is None else route.latency.median_us


def _counts(route: Route) -> bool:
    return route.tactic and route.latency is not None and route.gate is not None and route.gate.passed


def merge(
    old: Table,
    new: Table,
    heard: Collection[str] = (),
    there: Collection[str] | None = None,
    stale: Collection[Row] = (),
) -> Table:
    """Return a table in which the new rows replace every old one of the same shape that they overlap.

    heard: digests of the records that the new rows were told from. An old row that rests on such records alone is told
    anew or not at all. there: digests of all records; an old row that rests on another can never count again. stale:
    old rows that speak of other kernels than today's: they go, and come back from their records if their kernels do.
    """
    kept = [
        row
        for row in old.rows
        if not any(row.shape == each.shape and row.m[0] <= each.m[1] and each.m[0] <= row.m[1] for each in new.rows)
        and not (row.records and all(digest in heard for digest in row.records))
        and (there is None or all(digest in there for digest in row.records))
        and row not in stale
    ]
    rows = sorted((*kept, *new.rows), key=lambda row: (row.shape, row.m))
    return Table(operation=new.operation, rows=tuple(rows))
