"""Selection: every candidate with every reason, and the one order that decides among those without any.

Nothing but the contract, the catalogue, the evidence and the policy influences the outcome.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from nkc.ir.canonical import contract_id
from nkc.ir.contract import Contract, Maturity
from nkc.tactics.catalogue import tactics_of
from nkc.tactics.evidence import Book, Standing
from nkc.tactics.pieces import Piece, agreed, pieces
from nkc.tactics.predicate import Predicate, lookup, plain, show
from nkc.tactics.reason import Reason, StageName
from nkc.tactics.tactic import Lowered, Tactic
from nkc.tactics.tuning import Ranks, Row


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the caller allows.

    allow_experimental: consider tactics without evidence.
    only_tactic: consider this one alone; lifts neither predicates nor `rejected`.
    strict_evidence: records of another toolchain than the installed one count for nothing.
    """

    allow_experimental: bool = False
    only_tactic: str | None = None
    strict_evidence: bool = False


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """One tactic and why it is not to be had for this contract; without reasons it is eligible.

    rule: what the operation's rule told of its time, and from what; None where it says nothing. crowds: launched
    dependent it is thought to lose, see `Tactic`.
    """

    tactic: Tactic
    standing: Standing
    effective_rank: tuple[int, int]
    rank_source: str
    rule: str | None = None
    crowds: bool = False
    reasons: tuple[Reason, ...]

    @property
    def order(self) -> tuple[tuple[int, int], int, str]:
        """The key that decides among eligible candidates: rank, dependent launch, name. Total: names are unique."""
        return self.effective_rank, 2 if self.crowds else int(not self.tactic.dependent), self.tactic.name


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Every candidate in name order, and the eligible ones in the order in which they are tried.

    pieces: the parts into which tuning rows cut a range of rows that none of them holds whole.
    """

    contract: Contract
    policy: Policy
    candidates: tuple[Candidate, ...]
    eligible: tuple[Candidate, ...]
    pieces: tuple[Piece, ...] = ()

    @property
    def selected(self) -> Candidate | None:
        """The first eligible candidate."""
        return self.eligible[0] if self.eligible else None

    def lower(self, candidate: Candidate) -> Lowered:
        """Return the contract as this candidate lowers it."""
        return Lowered.of(self.contract, candidate.tactic)


def select(
    contract: Contract,
    policy: Policy | None = None,
    *,
    tactics: Iterable[Tactic] | None = None,
    book: Book | None = None,
) -> Selection:
    """Evaluate all tactics of the contract's operation, completely, and order the eligible ones.

    tactics: other candidates than the catalogue's, for tests. book: what the evidence says of them. Raises ToolError
    where a tactic pack or a tuning table cannot be loaded.
    """
    policy = policy or Policy()
    book = book or Book()
    request = contract_id(contract)
    found = tactics_of(contract.operation) if tactics is None else tuple(tactics)
    results: dict[Predicate, Reason | None] = {}
    missing = {tactic.name: obstacles(contract, tactic, results) for tactic in found}
    rows = book.tuning.pieces(contract)
    if rows:
        ranks = agreed(contract, rows, {name for name, reasons in missing.items() if not reasons})
    else:
        ranks = book.tuning.ranks(contract)
    candidates = tuple(
        sorted(
            (
                _candidate(
                    contract,
                    tactic,
                    policy,
                    missing[tactic.name],
                    book.standing(tactic, request, strict=policy.strict_evidence),
                    ranks,
                )
                for tactic in found
            ),
            key=lambda c: c.tactic.name,
        )
    )
    eligible = sorted((candidate for candidate in candidates if not candidate.reasons), key=lambda c: c.order)
    return Selection(
        contract=contract,
        policy=policy,
        candidates=candidates,
        eligible=tuple(eligible),
        pieces=_pieces(contract, found, rows),
    )


def _pieces(contract: Contract, tactics: Sequence[Tactic], rows: Sequence[Row]) -> tuple[Piece, ...]:
    by_name = {tactic.name: tactic for tactic in tactics}

    def serves(part: Contract, name: str) -> bool:
        return name in by_name and not obstacles(part, by_name[name])

    return pieces(contract, rows, serves)


def obstacles(
    contract: Contract, tactic: Tactic, results: dict[Predicate, Reason | None] | None = None
) -> list[Reason]:
    """Return every predicate and property of a tactic that does not hold: what an edit of the contract could mend.

    results: of predicates that were evaluated on this contract before.
    """
    return [*_predicates(contract, tactic, {} if results is None else results), *_properties(contract, tactic)]


def _candidate(
    contract: Contract,
    tactic: Tactic,
    policy: Policy,
    missing: list[Reason],
    stands: Standing,
    ranks: Ranks,
) -> Candidate:
    reasons = [*missing, *_maturity(stands, policy), *_policy(tactic, policy)]
    estimate = None if missing else tactic.estimate(contract, tactic)
    effective_rank, rank_source = ranks.of(tactic, estimate.ns if estimate else None)
    return Candidate(
        tactic=tactic,
        standing=stands,
        effective_rank=effective_rank,
        rank_source=rank_source,
        rule=estimate.words if estimate else None,
        crowds=not missing and tactic.dependent and tactic.crowds(contract, tactic),
        reasons=tuple(reasons),
    )


def _predicates(contract: Contract, tactic: Tactic, results: dict[Predicate, Reason | None]) -> list[Reason]:
    """Evaluate every predicate, each equal one once."""
    reasons = []
    for predicate in tactic.predicates:
        try:
            reason = results[predicate]  # the common case: hashing a predicate is what a selection spends its time on
        except KeyError:
            reason = results[predicate] = _ask(predicate, contract, tactic)
        if reason is not None:
            reasons.append(reason)
    return reasons or _as_written(contract, tactic)


def _ask(predicate: Predicate, contract: Contract, tactic: Tactic) -> Reason | None:
    """Ask one predicate; one that raises is a bug of ours and never a rejection."""
    try:
        return predicate.check(contract)
    except Exception as error:
        error.add_note(f"predicate_raised: {predicate} of {tactic.name}")
        raise


_AUTHORED: Mapping[str, tuple[str, ...]] = {
    "schedule": ("tile", "stages", "waves", "split_k"),
    "launch": ("grid", "block", "dependent"),
    "workspace": ("bytes", "alignment", "init"),
}


def _as_written(contract: Contract, tactic: Tactic) -> list[Reason]:
    """Return where the tactic would fill an open field differently from what the author wrote.

    Asked only of a tactic whose predicates hold: lowering is defined for those alone.
    """
    written = [section for section in (*_AUTHORED, "arguments") if getattr(contract, section) is not None]
    if not written:
        return []
    lowered = Lowered.of(contract, tactic).contract
    reasons = []
    for section in written:
        paths = [f"$.{section}.{name}" for name in _AUTHORED[section]] if section in _AUTHORED else [f"$.{section}"]
        for path in paths:
            author, ours = lookup(contract, path), lookup(lowered, path)
            if path == "$.launch.dependent" and ours == "absent":
                ours = False
            if author not in ("absent", ours):
                reasons.append(
                    Reason(
                        stage=StageName.PREDICATE,
                        predicate="as_written",
                        field=path,
                        wanted=show(ours),
                        actual=show(author),
                        nearest=plain(ours) if section in _AUTHORED else None,
                    )
                )
    return reasons


def _properties(contract: Contract, tactic: Tactic) -> list[Reason]:
    reasons = []
    for name in ("deterministic", "graph_capture"):
        if getattr(contract.properties, name) and not getattr(tactic.guarantees, name):
            reasons.append(
                Reason(
                    stage=StageName.PROPERTY,
                    predicate="guarantees",
                    field=f"$.properties.{name}",
                    wanted="false (the tactic does not guarantee it)",
                    actual="true",
                    nearest=False,
                )
            )
    return reasons


def _maturity(stands: Standing, policy: Policy) -> list[Reason]:
    if stands.maturity is Maturity.REJECTED:
        wanted = "a tactic that was not rejected"
    elif stands.maturity is Maturity.EXPERIMENT and not policy.allow_experimental:
        wanted = "verified or accepted, or --allow-experimental"
    else:
        return []
    return [
        Reason(
            stage=StageName.MATURITY, predicate="mature", field="maturity", wanted=wanted, actual=stands.maturity.value
        )
    ]


def _policy(tactic: Tactic, policy: Policy) -> list[Reason]:
    if policy.only_tactic is None or policy.only_tactic == tactic.name:
        return []
    return [
        Reason(
            stage=StageName.POLICY,
            predicate="only_tactic",
            field="policy.only_tactic",
            wanted=policy.only_tactic,
            actual=tactic.name,
        )
    ]
