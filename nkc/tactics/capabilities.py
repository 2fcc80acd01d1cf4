"""What is implemented: operation by target, dtypes, epilogue and layouts, found by selecting on typical contracts.

Nothing is listed by hand. A capability is implemented where some tactic is eligible at some typical size, experiments
allowed; otherwise it is unsupported for the reasons of the candidate that comes closest.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Literal

import msgspec

from nkc.ir import operations, targets
from nkc.ir.contract import Contract
from nkc.tactics.catalogue import tactics_of
from nkc.tactics.evidence import Book
from nkc.tactics.hardware import IsTarget, LdsFits, TargetHas
from nkc.tactics.probe import Variant, on_target, probes, variants
from nkc.tactics.reason import Reason, StageName
from nkc.tactics.select import Candidate, Policy, select
from nkc.tactics.tactic import Tactic

CAPABILITIES_SCHEMA: Literal["nkc.capabilities/1"] = "nkc.capabilities/1"
EXPERIMENTS = Policy(allow_experimental=True)

_LACKS = (TargetHas.name, LdsFits.name)
"""Predicates about what a chip has: no edit of a contract and no other tile answers them."""


class State(StrEnum):
    """Whether some tactic serves a combination."""

    IMPLEMENTED = "implemented"
    UNSUPPORTED = "unsupported"


class _Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Frozen, keyword-only, strict."""


class Capability(_Record, frozen=True, kw_only=True):
    """One combination on one target.

    families: tactic families that serve it, sorted. closest: the candidate whose reasons are given; None where the
    target has no tactic.
    """

    operation: str
    target: str
    variant: Variant
    state: State
    families: tuple[str, ...] = ()
    closest: str | None = None
    reasons: tuple[Reason, ...] = ()


class Family(_Record, frozen=True, kw_only=True):
    """Tactics that differ in their tile. accumulate, combine, reduce: what its members guarantee, sorted."""

    name: str
    operation: str
    target: str
    tactics: int
    accumulate: tuple[str, ...]
    combine: tuple[str, ...]
    reduce: tuple[str, ...]


class Capabilities(_Record, frozen=True, kw_only=True):
    """Every combination of the operations and targets that were asked for."""

    schema: Literal["nkc.capabilities/1"] = CAPABILITIES_SCHEMA
    families: tuple[Family, ...]
    capabilities: tuple[Capability, ...]


def capabilities(operation_names: Iterable[str], archs: Iterable[str]) -> Capabilities:
    """Return what is implemented of these operations on these targets, in the order given."""
    archs, book = tuple(archs), Book()
    found: list[Capability] = []
    listed: list[Tactic] = []
    for name in operation_names:
        operation = operations.get(name)
        listed += [tactic for tactic in tactics_of(name) if tactic.target in archs]
        read = ((variant, tuple(probes(operation, targets.names()[0], variant))) for variant in variants(operation))
        legal = [(variant, contracts) for variant, contracts in read if contracts]
        found += [_capability(variant, contracts, arch, book) for arch in archs for variant, contracts in legal]
    return Capabilities(families=_families(listed), capabilities=tuple(found))


def _capability(variant: Variant, contracts: Sequence[Contract], arch: str, book: Book) -> Capability:
    """Return one combination's state on one target; contracts: it at every typical size, on any target."""
    operation = contracts[0].operation
    every = tactics_of(operation)
    local = tuple(tactic for tactic in every if tactic.target == arch)
    members = {tactic.family: tactic for tactic in every}
    asked = local or tuple(members.values())  # of each family one member, at one size: enough to see what a chip lacks
    whole = {tactic.family for tactic in local}
    families: set[str] = set()
    closest: Candidate | None = None
    for contract in contracts if local else contracts[:1]:
        selection = select(on_target(contract, arch), EXPERIMENTS, tactics=asked, book=book)
        families |= {candidate.tactic.family for candidate in selection.eligible}
        if not families:
            closest = min((*selection.candidates, *([closest] if closest else [])), key=_distance, default=None)
        elif families == whole:
            break
    if families:
        return Capability(
            operation=operation,
            target=arch,
            variant=variant,
            state=State.IMPLEMENTED,
            families=tuple(sorted(families)),
        )
    return Capability(
        operation=operation,
        target=arch,
        variant=variant,
        state=State.UNSUPPORTED,
        closest=closest.tactic.name if closest is not None and local else None,
        reasons=_reasons(closest, every, arch, local=bool(local)),
    )


def _distance(candidate: Candidate) -> tuple[int, int, tuple[int, int], int, str]:
    """Order candidates by how many conditions on the contract fail, then by all that fail, then as they are tried."""
    about_contract = [reason for reason in candidate.reasons if reason.predicate not in (IsTarget.name, *_LACKS)]
    return len(about_contract), len(candidate.reasons), *candidate.order


def _reasons(closest: Candidate | None, every: tuple[Tactic, ...], arch: str, *, local: bool) -> tuple[Reason, ...]:
    """Return why a combination is unsupported: what the chip lacks first, or that nothing was written for it."""
    lacks = tuple(reason for reason in (closest.reasons if closest else ()) if reason.predicate in _LACKS)
    if local and closest is not None:
        return lacks + tuple(reason for reason in closest.reasons if reason not in lacks)
    if lacks:
        return lacks
    written_for = sorted({tactic.target for tactic in every})
    return (
        Reason(
            stage=StageName.PREDICATE,
            predicate=IsTarget.name,
            field="$.target.arch",
            wanted=f"a target with a tactic: {', '.join(written_for)}" if written_for else "any tactic at all",
            actual=f"no tactic for {arch}",
        ),
    )


def _families(tactics: Iterable[Tactic]) -> tuple[Family, ...]:
    members: dict[str, list[Tactic]] = {}
    for tactic in tactics:
        members.setdefault(tactic.family, []).append(tactic)
    return tuple(
        Family(
            name=name,
            operation=group[0].operation,
            target=group[0].target,
            tactics=len(group),
            accumulate=tuple(sorted({t.guarantees.accumulate for t in group if t.guarantees.accumulate})),
            combine=tuple(sorted({t.guarantees.combine for t in group if t.guarantees.combine})),
            reduce=tuple(sorted({t.guarantees.reduce for t in group if t.guarantees.reduce})),
        )
        for name, group in sorted(members.items())
    )
