"""`explain.json` (`nkc.explain/1`): every candidate with every reason, and what was built. A pure function."""

from typing import Literal

import msgspec

from nkc.emit.inspect.resources import Occupancy, Resources
from nkc.ir import canonical, operations, targets
from nkc.ir.budget import Stage
from nkc.ir.contract import Maturity
from nkc.ir.launch import Launch
from nkc.ir.manifest import Disposition
from nkc.tactics.pieces import Piece
from nkc.tactics.reason import Reason
from nkc.tactics.select import Candidate, Policy, Selection

EXPLAIN_SCHEMA: Literal["nkc.explain/1"] = "nkc.explain/1"


class _Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Frozen, keyword-only, strict."""


class CandidateRecord(_Record, frozen=True, kw_only=True):
    """One candidate.

    name: the tactic's.
    operation: what it computes.
    target: the chip it was written for.
    rank: the catalogue's; lower is tried first, and 1000000000 is last of all.
    effective_rank: [0, place] by a tuning row, else [1, nanoseconds] by the operation's rule, else [1, rank].
    rank_source: where the effective rank comes from.
    rule: the time that the operation's rule tells, and from what; null where it says nothing of this candidate.
    maturity: the effective word: `claimed`, capped by evidence.
    claimed: what the catalogue says.
    engine: what ran the object for that evidence; null where there is none.
    proofs: contracts of the proof set with passing records at their current code digests.
    proofs_wanted: contracts of the proof set.
    measured_here: whether this very contract has such a record.
    needs: what evidence is missing or stale, and what would restore it; null where nothing is.
    toolchains: that compiled the objects of those records.
    foreign: those of them that are not the one installed here; `--strict-evidence` counts none of their records.
    state: what selection made of it.
    reasons: everything that rejects it; empty unless `rejected`.
    """

    name: str
    operation: str
    target: str
    rank: int
    effective_rank: tuple[int, int]
    rank_source: str
    rule: str | None = None
    maturity: Maturity
    claimed: Maturity
    engine: str | None
    proofs: int
    proofs_wanted: int
    measured_here: bool
    needs: str | None
    toolchains: tuple[str, ...]
    foreign: tuple[str, ...]
    state: Literal["selected", "eligible", "rejected"]
    reasons: tuple[Reason, ...]


class FactRecord(_Record, frozen=True, kw_only=True):
    """One fact of the target that the numerical budget rests on, and how it is known.

    name: of the fact.
    value: of the fact.
    unit: what the value counts.
    source: where it comes from.
    basis: `documented`, `measured` or `assumed`.
    """

    name: str
    value: int | float | bool | str
    unit: str
    source: str
    basis: str


class SourceRecord(_Record, frozen=True, kw_only=True):
    """The kernel's text.

    language: `triton`, `cuda` or `amdgcn`.
    symbol: the kernel's name.
    digest: SHA-256 of what the text means.
    closure_digest: SHA-256 of the bytes of its templates.
    closure: each template and include to the SHA-256 of its bytes.
    options: of the toolchain, all of them.
    """

    language: str
    symbol: str
    digest: str
    closure_digest: str
    closure: dict[str, str]
    options: dict[str, bool | int | str]


class ToolchainRecord(_Record, frozen=True, kw_only=True):
    """The compiler.

    name: of its package.
    version: of its package.
    digest: SHA-256 over the files that its package installed.
    """

    name: str
    version: str
    digest: str


class Explain(_Record, frozen=True, kw_only=True, omit_defaults=True):
    """Why this kernel, and what it is. The last seven sections are there once something was built.

    schema: names this form of the document.
    request: id of the contract as written.
    id: of the sealed contract; null where nothing was built.
    operation: what is computed, `dense`.
    target: the chip's name.
    disposition: what became of the contract.
    selected: the tactic; null where none was eligible.
    fallback: the route that the contract names, or null.
    policy: what the caller allowed.
    contract: the contract as written, defaults resolved, provenance left out (`urn:nkc:schema:contract:1`).
    candidates: every tactic of the operation, by name.
    budget: the numerical budget, by leaf stage.
    facts: of the target, on which the budget rests.
    pieces: parts that tuning rows cut a range of rows into, where none holds it whole, each with its own first tactic.
    sealed: the contract with everything that tactic and object filled in (`urn:nkc:schema:contract:1`).
    resources: read back from the object.
    occupancy: of the kernel on a compute unit.
    launch: everything needed to launch the object (`urn:nkc:schema:launch:1`).
    source: the kernel's text.
    toolchain: the compiler.
    artifacts: each file of the object's directory to the SHA-256 of its bytes.
    """

    schema: Literal["nkc.explain/1"]
    request: str
    id: str | None
    operation: str
    target: str
    disposition: Disposition
    selected: str | None
    fallback: str | None
    policy: Policy
    contract: dict[str, object]
    candidates: tuple[CandidateRecord, ...]
    budget: tuple[Stage, ...]
    facts: tuple[FactRecord, ...]
    pieces: tuple[Piece, ...] = ()
    sealed: dict[str, object] | None = None
    resources: Resources | None = None
    occupancy: Occupancy | None = None
    launch: Launch | None = None
    source: SourceRecord | None = None
    toolchain: ToolchainRecord | None = None
    artifacts: dict[str, str] | None = None


def disposition(selection: Selection) -> Disposition:
    """Return what becomes of a contract by its selection alone."""
    if selection.selected is not None:
        return Disposition.OPTIMIZED
    return Disposition.UNSUPPORTED if selection.contract.fallback is None else Disposition.FALLBACK


def explain(selection: Selection) -> Explain:
    """Explain a selection; nothing is compiled, and the object sections are left out."""
    contract = selection.contract
    selected = selection.selected
    target = targets.get(contract.target.arch)
    return Explain(
        schema=EXPLAIN_SCHEMA,
        request=canonical.contract_id(contract),
        id=None,
        operation=contract.operation,
        target=contract.target.arch,
        disposition=disposition(selection),
        selected=selected.tactic.name if selected else None,
        fallback=contract.fallback,
        policy=selection.policy,
        contract=canonical.contract_document(contract),
        candidates=tuple(_candidate(candidate, selected) for candidate in selection.candidates),
        budget=operations.get(contract.operation).stages(contract),
        facts=tuple(
            FactRecord(name=name, value=fact.value, unit=fact.unit, source=fact.source, basis=fact.basis.value)
            for name, fact in sorted(target.facts.items())
            if name.startswith("matrix_")
        ),
        pieces=selection.pieces,
    )


def _candidate(candidate: Candidate, selected: Candidate | None) -> CandidateRecord:
    state: Literal["selected", "eligible", "rejected"] = "rejected" if candidate.reasons else "eligible"
    tactic = candidate.tactic
    return CandidateRecord(
        name=tactic.name,
        operation=tactic.operation,
        target=tactic.target,
        rank=tactic.rank,
        effective_rank=candidate.effective_rank,
        rank_source=candidate.rank_source,
        rule=candidate.rule,
        maturity=candidate.standing.maturity,
        claimed=candidate.standing.claimed,
        engine=candidate.standing.engine,
        proofs=candidate.standing.proofs,
        proofs_wanted=candidate.standing.proofs_wanted,
        measured_here=candidate.standing.measured_here,
        needs=candidate.standing.needs,
        toolchains=candidate.standing.toolchains,
        foreign=candidate.standing.foreign,
        state="selected" if selected is not None and candidate is selected else state,
        reasons=candidate.reasons,
    )


def encode(record: msgspec.Struct) -> bytes:
    """Return a record as the JSON that is written: indented, keys in the record's order, one newline at the end."""
    import orjson  # loaded only where something is written

    return orjson.dumps(msgspec.to_builtins(record), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
