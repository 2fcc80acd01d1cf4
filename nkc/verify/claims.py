"""What rows of a verification let one claim: under every model of the matrix unit, or under the one that ran.

How an MFMA rounds is not published, so a value holds under a named model. What does not depend on it holds whatever
the chip does: exact data, whose every partial sum is representable; memory safety; order; independence of schedule.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from nkc.verify.check import Row, together
from nkc.verify.engine import Answer
from nkc.verify.regimes import Regime

EVERY = "every"


class Claim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One claim of one kernel.

    model: under which it holds, `every` where how the matrix unit rounds does not matter. sampled: the share of the
    grid's workgroups that it speaks of.
    """

    what: str
    model: str
    holds: Answer
    sampled: float = 1.0


def claims_of(rows: Mapping[str, Sequence[Row]]) -> tuple[Claim, ...]:
    """Return the claims that rows by model allow, those under every model first."""
    every = [row for each in rows.values() for row in each]
    exact = [row for row in every if row.regime == Regime.EXACT.value]
    independent = {
        "bit-equal to the oracle on exact data": together(row.bit_equal for row in exact) if exact else Answer.NOT_RUN,
        "no access outside its buffers": together(row.outside for row in every),
        "no race, no missing wait or barrier, nothing undefined is read": _answer(not row.hazards for row in every),
        "the same bits in every schedule that was run": together(row.repeated for row in every),
    }
    sampled = min((float(row.notes.get("sampled", "1")) for row in every), default=1.0)
    found = [Claim(what=what, model=EVERY, holds=holds, sampled=sampled) for what, holds in independent.items()]
    for model, each in rows.items():
        bits = together(row.model_bits for row in each)
        found.append(Claim(what=f"bit-exact under model {model}", model=model, holds=bits, sampled=sampled))
        within = _answer(row.failures == 0 for row in each)
        what = f"within the derived bounds under model {model}"
        found.append(Claim(what=what, model=model, holds=within, sampled=sampled))
    return tuple(found)


def _answer(held: Iterable[bool]) -> Answer:
    return Answer.PASSED if all(held) else Answer.FAILED
