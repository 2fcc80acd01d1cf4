"""A range of rows that no tuning row holds whole: what the rows that cover it in pieces say of it.

One fixed launch serves the whole range. Where every row that names a tactic able to do that names the same one first,
that tactic goes first. Where they differ none does, and splitting the contract where they meet lets each part have its
own: `nkc split` makes the parts, and in a bundle exactly one of them accepts each number of rows.
"""

from collections.abc import Callable, Collection, Sequence

import msgspec

from nkc.ir.contract import Bounded, Contract, dim_max, dim_min
from nkc.ir.frozen import FrozenMap
from nkc.tactics.tuning import NONE, TUNING_FILE, Ranks, Row

Serves = Callable[[Contract, str], bool]
"""Whether a tactic, by name, serves a contract: every predicate and property holds."""


class Piece(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One part of a range that lies in one tuning row.

    m: the part, both ends inside.
    tactic: what the row puts first for it, of those that serve it; null where it names none.
    """

    m: tuple[int, int]
    tactic: str | None


def pieces(contract: Contract, rows: Sequence[Row], serves: Serves) -> tuple[Piece, ...]:
    """Return the parts into which rows cut a contract's range, neighbours with one tactic as one part."""
    found: list[Piece] = []
    for row in rows:
        low = max(row.m[0], dim_min(contract.shape["m"]))
        high = min(row.m[1], dim_max(contract.shape["m"]))
        dim = high if low == high else Bounded(min=low, max=high)
        part = msgspec.structs.replace(contract, shape=FrozenMap({**contract.shape, "m": dim}))
        tactic = next((name for name in row.order if serves(part, name)), None)
        if found and found[-1].tactic == tactic:
            found[-1] = Piece(m=(found[-1].m[0], high), tactic=tactic)
        else:
            found.append(Piece(m=(low, high), tactic=tactic))
    return tuple(found)


def agreed(contract: Contract, rows: Sequence[Row], serving: Collection[str]) -> Ranks:
    """Return the ranks where all rows that name a tactic serving the whole range name the same one first."""
    firsts = {name for row in rows if (name := next((name for name in row.order if name in serving), None)) is not None}
    if len(firsts) != 1:
        return NONE
    intervals = ", ".join(f"{row.m[0]}..{row.m[1]}" for row in rows)
    source = f"{contract.operation}/{TUNING_FILE}: rows m {intervals} agree on it for the whole range"
    return Ranks(places={next(iter(firsts)): 0}, source=source, named=frozenset(firsts))


def cuts(found: Sequence[Piece]) -> str:
    """Return what `nkc split --at` takes to make these parts, empty where nothing is to cut; 0 alone is no part."""
    return ",".join(str(piece.m[1]) for piece in found[:-1] if piece.m[1] > 0)
