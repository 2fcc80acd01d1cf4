"""The gates between a tactic and the words `verified` and `accepted`, and the one edit that a promotion makes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nkc.ir.contract import Maturity
from nkc.tactics.catalogue import folder_of, tactics_of
from nkc.tactics.evidence import PROVING_ENGINES, REGIMES, Answer, Book, Check
from nkc.tactics.maturity import read_claims, write_claims
from nkc.tactics.tactic import Tactic


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One condition of a promotion. state: `met`, `missing`, `stale` or `failed`."""

    name: str
    state: str
    what: str

    @property
    def met(self) -> bool:
        """Whether the condition holds."""
        return self.state == "met"


def gates(tactic: Tactic, book: Book) -> tuple[Gate, ...]:
    """Return every gate: the proofs are known, each is within bound in every regime, and what it promises held."""
    if tactic.claim is Maturity.REJECTED:
        return (Gate(name="claim", state="failed", what="rejected on record, which nothing lifts"),)
    digests = book.proof_digests(tactic) or {}
    if not digests:
        return (Gate(name="proof set", state="missing", what="the tactic has no proofs, or they cannot be rendered"),)
    checks = [check for check in book.records(tactic) if check.engine in PROVING_ENGINES]
    return (
        Gate(name="proof set", state="met", what=f"{len(digests)} contracts"),
        *(_regime(regime, digests, checks) for regime in REGIMES),
        _answered("repeats", "bitwise", "repeated", digests, checks),
        _replay(tactic, digests, checks),
    )


def layer_gate(tactic: Tactic, book: Book) -> Gate:
    """Return the gate between `verified` and `accepted`: the kernel held its place inside a layer, and lost nowhere."""
    found = book.in_layers(tactic)
    state = "met" if found.accepts else "failed" if found.lost else "stale" if found.stale else "missing"
    what = str(found) if found.compared else f"{found} (examples/serve_layer.py compare, nkc evidence add)"
    return Gate(name="layer", state=state, what=what)


def _regime(regime: str, digests: Mapping[str, str], checks: list[Check]) -> Gate:
    here = [check for check in checks if check.regime == regime]
    fresh = [check for check in here if digests.get(check.request) == check.code_digest]
    failed = [check for check in fresh if not check.passed]
    unborne = [why for check in fresh if (why := check.contradiction) is not None]
    whole = {check.request for check in fresh if check.passed and check.contradiction is None}
    if failed:
        return Gate(name=f"regime {regime}", state="failed", what=f"{len(failed)} records failed")
    if whole >= set(digests):
        engines = sorted({check.engine for check in fresh})
        worst = max(check.worst for check in fresh)
        return Gate(
            name=f"regime {regime}", state="met", what=f"{', '.join(engines)}; largest error {worst:.3g} of its bound"
        )
    stale = len(here) - len(fresh)
    state = "stale" if stale else "missing"
    what = f"{len(whole)} of {len(digests)} proofs, {stale} stale records"
    if unborne:
        what += f", {len(unborne)} that do not bear out their word ({unborne[0]})"
    return Gate(name=f"regime {regime}", state=state, what=what)


def _answered(name: str, what: str, field: str, digests: Mapping[str, str], checks: list[Check]) -> Gate:
    fresh = [check for check in checks if digests.get(check.request) == check.code_digest]
    good = {check.request for check in fresh if getattr(check, field) is Answer.PASSED}
    bad = [check for check in fresh if getattr(check, field) is Answer.FAILED]
    stale = any(digests.get(check.request) != check.code_digest for check in checks)
    state = "failed" if bad else "met" if good >= set(digests) else "stale" if stale else "missing"
    return Gate(name=name, state=state, what=f"{what}, {len(good)} of {len(digests)} proofs")


def _replay(tactic: Tactic, digests: Mapping[str, str], checks: list[Check]) -> Gate:
    """Graph replay is a check of the device; an emulator reads `not run`, and does not block."""
    if not tactic.guarantees.graph_capture:
        return Gate(name="graph replay", state="met", what="not promised")
    fresh = [check for check in checks if digests.get(check.request) == check.code_digest]
    on_device = [check for check in fresh if check.engine == "device"]
    if not on_device:
        return Gate(name="graph replay", state="met", what="not run (no device)")
    return _answered("graph replay", "equal to eager", "replay", digests, on_device)


ORDER = (Maturity.EXPERIMENT, Maturity.VERIFIED, Maturity.ACCEPTED)
"""Claims that a promotion raises, each over those before it. `rejected` is none of them."""


def promote(tactics: Iterable[Tactic], to: Maturity = Maturity.VERIFIED) -> tuple[str, ...]:
    """Make tactics claim a word, where they do not claim more; return the names of those whose claim changed.

    The caller has seen every gate met; a claim that is not borne out counts for nothing anyway.
    """
    changed = []
    by_operation: dict[str, list[Tactic]] = {}
    for tactic in tactics:
        by_operation.setdefault(tactic.operation, []).append(tactic)
    for operation, group in sorted(by_operation.items()):
        folder = folder_of(operation)
        assert folder is not None
        claims = read_claims(folder)
        for tactic in group:
            if claims.get(tactic.name, Maturity.EXPERIMENT) in ORDER[: ORDER.index(to)]:
                claims[tactic.name] = to
                changed.append(tactic.name)
        write_claims(folder, claims)
    tactics_of.cache_clear()
    return tuple(sorted(changed))
