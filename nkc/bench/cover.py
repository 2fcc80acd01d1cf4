"""Holds a set of contracts against the tuning table: which ranges of m no fresh row covers whole, and the remedy."""

from collections.abc import Iterable
from dataclasses import dataclass

from nkc.bench.gather import ALLOWED
from nkc.bench.propose import serving
from nkc.ir.contract import Contract, dim_max, dim_min
from nkc.tactics.evidence import Book
from nkc.tactics.pieces import cuts
from nkc.tactics.select import select
from nkc.tactics.tactic import Tactic
from nkc.tactics.tuning import Row, Tuning


@dataclass(frozen=True, slots=True, kw_only=True)
class Hole:
    """One contract that the table does not rank. file: where it stands. what: in words, with the remedy.

    A row that never saw a tactic of today's catalogue ranks it last unmeasured: that is a hole too, unless the rule of
    the operation has it behind what the row puts first.
    open: the parts of its range of m that no fresh row covers at all; empty where rows cover it in pieces that differ.
    """

    file: str
    what: str
    open: tuple[tuple[int, int], ...]


def holes(contracts: Iterable[tuple[str, Contract]], tuning: Tuning) -> tuple[Hole, ...]:
    """Return every contract whose range of m lies in no single fresh row, in the order given.

    Rows that cover a range only in pieces are no hole where they agree on every piece: then one of them would say the
    same for the whole.
    """
    found = []
    for file, contract in contracts:
        row, _ = tuning.row_of(contract)
        low, high = dim_min(contract.shape["m"]), dim_max(contract.shape["m"])
        if row is None and (found_pieces := select(contract, ALLOWED, book=Book(tuning=tuning)).pieces):
            if at := cuts(found_pieces):
                parts = ", ".join(f"{_range(*piece.m)} {piece.tactic or 'none'}" for piece in found_pieces)
                what = f"m {_range(low, high)}: its rows differ, {parts} (nkc split {file} --at {at})"
                found.append(Hole(file=file, what=what, open=()))
            continue
        if row is not None and tuning.why_stale(contract.operation, row) is None:
            if newer := _never_timed(contract, row, tuning):
                what = f"its row never saw {', '.join(newer)} (nkc bench --every --record, nkc tune)"
                found.append(Hole(file=file, what=f"m {_range(low, high)}: {what}", open=()))
            continue
        fresh = [each for each in tuning.rows_of(contract) if tuning.why_stale(contract.operation, each) is None]
        missing = _missing(low, high, [each.m for each in fresh])
        if row is not None:
            what = (
                f"its row is stale: {tuning.why_stale(contract.operation, row)} (nkc bench --every --record, nkc tune)"
            )
        else:
            parts = ", ".join(_range(start, end) for start, end in missing)
            what = f"nothing covers m {parts} (nkc bench --every --record, nkc tune)"
        found.append(Hole(file=file, what=f"m {_range(low, high)}: {what}", open=missing))
    return tuple(found)


def _never_timed(contract: Contract, row: Row, tuning: Tuning) -> tuple[str, ...]:
    """Return tactics that serve the contract and that no record of its row looked at: the row goes before them all.

    Left out are those that the operation's rule puts behind what the row puts first: nothing says that they would win.
    """
    timed = tuning.timed(contract.operation, row)
    there = serving(contract)
    first = next((there[name] for name in row.order if name in there), None)
    most = first.estimate(contract, first) if first is not None else None

    def may_win(tactic: Tactic) -> bool:
        told = tactic.estimate(contract, tactic)
        return told is None or most is None or told.ns < most.ns

    return tuple(name for name, tactic in there.items() if tactic.independent_name not in timed and may_win(tactic))


def _range(low: int, high: int) -> str:
    return str(low) if low == high else f"{low}..{high}"


def _missing(low: int, high: int, intervals: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return the parts of low..high that no interval holds."""
    found, at = [], low
    for start, end in sorted(intervals):
        if end < at or start > high:
            continue
        if start > at:
            found.append((at, start - 1))
        at = max(at, end + 1)
    if at <= high:
        found.append((at, high))
    return tuple(found)
