"""Effective maturity: what a tactic claims, capped by what its evidence shows."""

import msgspec

from nkc.ir.contract import Contract, Maturity
from nkc.tactics.tactic import Tactic


class Standing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far a tactic's proof has come.

    maturity: the effective word. claimed: the catalogue's. engine: what ran the object for it. proofs: contracts of
    the proof set with passing records at their current code digests. measured_here: this very contract has one.
    """

    maturity: Maturity
    claimed: Maturity
    engine: str | None = None
    proofs: int = 0
    measured_here: bool = False


def standing(tactic: Tactic, contract: Contract | None = None) -> Standing:
    """Return a tactic's effective maturity. A rejection needs no proof and stays; any other claim does."""
    del contract
    effective = Maturity.REJECTED if tactic.claim is Maturity.REJECTED else Maturity.EXPERIMENT
    return Standing(maturity=effective, claimed=tactic.claim)
