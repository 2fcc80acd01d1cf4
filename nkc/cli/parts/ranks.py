"""Says a rank in words: a place in a tuning row, a time that a rule tells, the catalogue's number, or last of all."""

from nkc.tactics.tactic import LAST

LAST_WORD = "last"


def effective(rank: tuple[int, int], *, ruled: bool) -> str:
    """Return an effective rank as a table shows it; ruled: nanoseconds that a rule tells stand in it."""
    tier, place = rank
    if not tier:
        return f"row {place}"
    return f"~{place / 1000:.1f} us" if ruled else catalogued(place)


def catalogued(rank: int) -> str:
    """Return the catalogue's rank as a table shows it; JSON carries the number, which sorts."""
    return str(rank) if rank < LAST else LAST_WORD
