"""What records say together: geometric means by rows over the best of all peers, shares of the floor, worst cells."""

import math
from collections.abc import Iterable, Sequence

import msgspec

from nkc.bench.compare import compare, is_rival
from nkc.bench.published import Peer, peers, read_published
from nkc.tactics.performance import Measurements, Record, Session


class _Struct(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Frozen, keyword-only, strict."""


class PeerTime(_Struct, frozen=True, kw_only=True):
    """A peer's microseconds in one cell. tactic: our plain tile. The last three: of one that was not timed here."""

    name: str
    us: float
    tactic: bool = False
    published_us: float | None = None
    factor: float | None = None
    scaled_by: str | None = None


class CellLine(_Struct, frozen=True, kw_only=True):
    """One cell: ours, every peer that follows the contract's rule, and the best peer's time over ours.

    others: what adds by another rule than the contract's, shown and never the best peer. over_unscaled: the same with
    published times as they were published. over_timed: over the best that was timed here. over_others: over the best of
    the others, which is no speed-up. Ratios are null where no speed-up may be printed; `refused` says why: candidate is
    what selection takes, timed or not. rule: how the contract lets sums be made.
    """

    cell: str
    rows: int
    rule: str
    candidate: str | None
    us: float | None
    of_floor: float | None
    peers: tuple[PeerTime, ...]
    others: tuple[PeerTime, ...]
    over: float | None
    over_unscaled: float | None
    over_timed: float | None
    over_others: float | None
    refused: str | None


class Versus(_Struct, frozen=True, kw_only=True):
    """One peer over all cells that it has a time in: its time over ours, the geometric mean.

    same_rule: it adds as the contract asks; where not, it is another product that is faster or slower.
    """

    name: str
    over: float
    cells: int
    same_rule: bool


class RowsLine(_Struct, frozen=True, kw_only=True):
    """All cells of one number of rows and one rule; rows null: of all rows. Ratios: geometric means.

    compared: how many cells there is a ratio for.
    """

    rows: int | None
    rule: str
    cells: int
    compared: int
    of_floor: float | None
    over: float | None
    over_unscaled: float | None
    over_timed: float | None
    over_others: float | None
    worst: float | None
    worst_cell: str | None
    versus: tuple[Versus, ...]


class Summary(_Struct, frozen=True, kw_only=True):
    """published: where published times come from, null where none was used."""

    published: str | None
    rows: tuple[RowsLine, ...]
    cells: tuple[CellLine, ...]


def summarise(found: Sequence[Measurements]) -> Summary:
    """Return what may be said of all records, in the order of rule and rows."""
    lines = [line_of(record, each.sessions[record.session]) for each in found for record in each.records]
    rules = sorted({line.rule for line in lines})
    rows = []
    for rule in rules:
        own = [line for line in lines if line.rule == rule]
        numbers = sorted({line.rows for line in own})
        rows += [_rows_line(rule, number, [line for line in own if line.rows == number]) for number in numbers]
        if len(numbers) > 1:
            rows.append(_rows_line(rule, None, own))
    used = any(peer.published_us is not None for line in lines for peer in (*line.peers, *line.others))
    return Summary(published=read_published().source if used else None, rows=tuple(rows), cells=tuple(lines))


def line_of(record: Record, session: Session) -> CellLine:
    """Return what may be said of one record."""
    said = compare(record)
    ours = said.candidate.latency.median_us if said.candidate is not None and said.candidate.latency else None
    published = peers(record, session)
    listed = [peer for peer in published if peer.same_rule]
    timed = [
        PeerTime(name=route.name, us=route.latency.median_us, tactic=route.tactic)
        for route in record.routes
        if route.latency is not None and is_rival(record, route) and route != said.candidate
    ]
    others = [
        PeerTime(name=route.name, us=route.latency.median_us)
        for route in record.routes
        if route.latency is not None and not route.tactic and not route.same_rule and route.gate and route.gate.passed
    ]
    others += [_published(peer) for peer in published if not peer.same_rule]
    allowed = ours is not None and (said.refused is None or (not timed and bool(listed)))
    return CellLine(
        cell=record.cell,
        rows=rows_of(record),
        rule=_rule(record),
        candidate=said.candidate.name if said.candidate is not None else record.selected,
        us=ours,
        of_floor=_shown(said.of_floor),
        peers=_ordered([*timed, *map(_published, listed)]),
        others=_ordered(others),
        over=_over(ours, [*(peer.us for peer in timed), *(peer.us for peer in listed)]) if allowed else None,
        over_unscaled=_over(ours, [*(peer.us for peer in timed), *(peer.published_us for peer in listed)])
        if allowed
        else None,
        over_timed=_shown(said.speed_up),
        over_others=_over(ours, [peer.us for peer in others]),
        refused=None if allowed else said.refused,
    )


def _ordered(found: Iterable[PeerTime]) -> tuple[PeerTime, ...]:
    return tuple(sorted(found, key=lambda peer: (peer.us, peer.name)))


def _versus(lines: Sequence[CellLine]) -> tuple[Versus, ...]:
    """Return every peer by name, ours and plain tiles apart, the hardest to beat first."""
    ratios: dict[tuple[str, bool], list[float]] = {}
    for line in lines:
        if line.us is None:  # no time, or behind a red gate
            continue
        for same, found in ((True, line.peers), (False, line.others)):
            for peer in found:
                if not peer.tactic:
                    ratios.setdefault((peer.name, same), []).append(peer.us / line.us)
    listed = [
        Versus(name=name, over=_shown(_mean(seen)) or 0.0, cells=len(seen), same_rule=same)
        for (name, same), seen in ratios.items()
    ]
    return tuple(sorted(listed, key=lambda each: (not each.same_rule, each.over, each.name)))


def _published(peer: Peer) -> PeerTime:
    return PeerTime(
        name=peer.name, us=peer.us, published_us=peer.published_us, factor=peer.factor, scaled_by=peer.scaled_by
    )


def _over(ours: float | None, times: Sequence[float]) -> float | None:
    return _shown(min(times) / ours) if ours is not None and times else None


def _rows_line(rule: str, rows: int | None, lines: Sequence[CellLine]) -> RowsLine:
    compared = [line for line in lines if line.over is not None]
    worst = min(compared, key=lambda line: (line.over or 0.0, line.cell), default=None)
    return RowsLine(
        rows=rows,
        rule=rule,
        cells=len(lines),
        compared=len(compared),
        of_floor=_mean(line.of_floor for line in lines),
        over=_mean(line.over for line in lines),
        over_unscaled=_mean(line.over_unscaled for line in lines),
        over_timed=_mean(line.over_timed for line in lines),
        over_others=_mean(line.over_others for line in lines),
        worst=worst.over if worst else None,
        worst_cell=worst.cell if worst else None,
        versus=_versus(lines),
    )


def _mean(values: Iterable[float | None]) -> float | None:
    """Return the geometric mean of those that are there."""
    logs = [math.log(value) for value in values if value is not None]
    return _shown(math.exp(sum(logs) / len(logs))) if logs else None


def _shown(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def rows_of(record: Record) -> int:
    """Return the number of rows that a record was timed at."""
    shape = record.contract["shape"]
    assert isinstance(shape, dict)
    value = record.dims.get("m", shape["m"])
    assert isinstance(value, int)
    return value


def _rule(record: Record) -> str:
    numerics, dtypes = record.contract["numerics"], record.contract["dtypes"]
    assert isinstance(numerics, dict)
    assert isinstance(dtypes, dict)
    if "accumulate" not in numerics:
        residual = ", residual" if "residual" in dtypes else ""
        return f"{record.contract['operation']}, {dtypes['x']} to {dtypes['out']}{residual}"
    properties = record.contract["properties"]
    assert isinstance(properties, dict)
    constant = ", constant operands" if properties.get("constant") else ""
    return f"{dtypes['a']}, {numerics['accumulate']}{constant}"
