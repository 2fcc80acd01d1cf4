"""Draws an explanation as tables: the decision first, then every candidate, then what was built."""

from typing import TYPE_CHECKING

from nkc.cli.parts.console import draw, table
from nkc.cli.parts.ranks import effective
from nkc.tactics.predicate import show

if TYPE_CHECKING:
    from rich.table import Table

    from nkc.emit.explain import CandidateRecord, Explain

RULES_SHOWN = 3
"""Candidates whose rule is spelled out below the table; --format json has all."""

SAME = "the same"
"""Stands for the reasons of the candidate above, where they are all those of this one."""

_STATES = {"selected": 0, "eligible": 1, "rejected": 2}


def draw_explain(record: "Explain") -> None:
    """Print one explanation."""
    from rich.text import Text

    shown: list[object] = [Text(_headline(record), style="bold"), _summary(record), _candidates(record)]
    others = sum(candidate.target != record.target for candidate in record.candidates)
    if others:
        shown.append(Text(f"{others} candidates for other targets are left out here; --format json lists them", "dim"))
    shown += [Text(line, "dim") for line in _ranking(record)]
    shown.append(_budget(record))
    if record.launch is not None:
        shown.append(_object(record))
    draw(*shown)


def draw_why(candidate: "CandidateRecord") -> None:
    """Print every reason of one candidate."""
    from rich.text import Text

    drawn = table("stage", "predicate", "field", "wanted", "actual", "nearest")
    for reason in candidate.reasons:
        nearest = "-" if reason.nearest is None else show(reason.nearest)
        drawn.add_row(reason.stage.value, reason.predicate, reason.field, reason.wanted, reason.actual, nearest)
    head = Text(f"{candidate.name}: {candidate.state}", style="bold")
    draw(head, *([drawn] if candidate.reasons else []))


def _headline(record: "Explain") -> str:
    if record.selected is not None:
        return f"{record.disposition.value}: {record.selected}"
    if record.fallback is not None:
        return f"{record.disposition.value}: {record.fallback}"
    return f"{record.disposition.value}: no tactic serves this contract, and it names no fallback"


def _summary(record: "Explain") -> "Table":
    from rich.table import Table

    contract = record.contract
    drawn = Table(box=None, show_header=False, pad_edge=False)
    dims = ", ".join(f"{name} {_dim(value)}" for name, value in _section(contract, "shape").items())
    dtypes = ", ".join(f"{name} {value}" for name, value in _section(contract, "dtypes").items())
    numerics = ", ".join(f"{name} {show(value)}" for name, value in _section(contract, "numerics").items())
    drawn.add_row("contract", f"{record.operation} on {record.target}: {dims}")
    drawn.add_row("dtypes", dtypes)
    drawn.add_row("numerics", numerics)
    drawn.add_row("request", record.request)
    if record.id is not None:
        drawn.add_row("id", record.id)
    return drawn


def _section(contract: dict[str, object], name: str) -> dict[str, object]:
    section = contract.get(name)
    return section if isinstance(section, dict) else {}


def _dim(value: object) -> str:
    return f"{value['min']}..{value['max']}" if isinstance(value, dict) else str(value)


def _candidates(record: "Explain") -> "Table":
    drawn = table("candidate", "state", "rank", "maturity", "why not")
    local = [candidate for candidate in record.candidates if candidate.target == record.target] or record.candidates
    for alike in _alike(sorted(local, key=lambda c: (_STATES[c.state], len(c.reasons), c.effective_rank, c.name))):
        for candidate in alike:
            style = "green" if candidate.state == "selected" else None
            why = _why(candidate) if candidate is alike[0] else SAME if candidate.reasons else ""
            rank = effective(candidate.effective_rank, ruled=candidate.rule is not None)
            drawn.add_row(candidate.name, candidate.state, rank, _maturity(candidate), why, style=style)
    return drawn


def _alike(ordered: "list[CandidateRecord]") -> "list[list[CandidateRecord]]":
    """Return candidates in the order given, but each behind the first that has all its reasons and no other."""
    found: dict[tuple[str, str], list[CandidateRecord]] = {}
    for candidate in ordered:
        found.setdefault((candidate.state, _why(candidate)), []).append(candidate)
    return list(found.values())


def _ranking(record: "Explain") -> list[str]:
    """Return the tuning rows that rank candidates, or would if they were not stale, then what a rule told from what."""
    local = [each for each in record.candidates if each.target == record.target]
    rows = {each.rank_source for each in local} - {"catalogue", "rule"}
    told = [each for each in local if each.rule and each.effective_rank[0] and each.state != "rejected"]
    told = sorted(told, key=lambda each: (each.effective_rank, each.name))[:RULES_SHOWN]
    return [
        *(f"tuned: {row}" for row in sorted(rows)),
        *_pieces(record),
        *(f"by rule: {each.name}: {each.rule}" for each in told),
    ]


def _pieces(record: "Explain") -> list[str]:
    """Return which tactic each part of a range of rows would get that no tuning row holds whole, and how to part it."""
    from nkc.tactics.pieces import cuts

    if not (at := cuts(record.pieces)):
        return []
    parts = ", ".join(f"m {'..'.join(map(str, dict.fromkeys(each.m)))} {each.tactic or '-'}" for each in record.pieces)
    return [f"rows differ over the range: {parts} (nkc split CONTRACT --at {at} gives each part its own)"]


def _maturity(candidate: "CandidateRecord") -> str:
    """Return the effective word with what stands behind it: engine, proofs, this very contract, other toolchains."""
    behind = []
    if candidate.engine is not None:
        behind.append(f"{candidate.engine}, {candidate.proofs} of {candidate.proofs_wanted} proofs")
    if candidate.measured_here:
        behind.append("measured here")
    if candidate.foreign:
        behind.append(f"by {', '.join(candidate.foreign)}")
    return candidate.maturity.value + (f" ({'; '.join(behind)})" if behind else "")


def _why(candidate: "CandidateRecord") -> str:
    lines = []
    for reason in candidate.reasons:
        nearest = "" if reason.nearest is None else show(reason.nearest)
        hint = f" [nearest {nearest}]" if nearest not in ("", reason.wanted) else ""
        lines.append(f"{reason.field}: {reason.actual}, wanted {reason.wanted}{hint}")
    return "\n".join(lines)


def _budget(record: "Explain") -> "Table":
    """Return what each leaf stage may lose: the formula, and its worst case for this contract."""
    drawn = table("stage", "accumulate", "may lose", "here at most")
    for stage in record.budget:
        drawn.add_row(stage.name, stage.accumulate, stage.error, stage.bound)
    return drawn


def _object(record: "Explain") -> "Table":
    from rich.table import Table

    assert record.launch is not None
    assert record.resources is not None
    assert record.occupancy is not None
    launch, resources = record.launch, record.resources
    drawn = Table(box=None, show_header=False, pad_edge=False, title="object", title_justify="left")
    grid, block = ("x".join(map(str, extents)) for extents in (launch.grid, launch.block))
    drawn.add_row("file", f"{record.id}/{launch.object}, symbol {launch.symbol}")
    cluster = "x".join(map(str, launch.attributes.cluster))
    drawn.add_row("launch", f"grid {grid}, block {block}" + (f", clusters of {cluster}" if cluster != "1x1x1" else ""))
    if launch.attributes.programmatic_dependent_launch:
        early = ", ".join(argument.name for argument in launch.arguments if argument.constant)
        drawn.add_row("dependent", f"may begin before the kernels ahead have ended; until then it reads {early} alone")
    drawn.add_row("LDS", f"{launch.lds.fixed_bytes} bytes fixed, {launch.lds.dynamic_bytes} dynamic")
    drawn.add_row(
        "registers",
        f"{resources.registers} a lane, {resources.scratch_bytes} bytes of scratch, {_spills(record)} spilled",
    )
    drawn.add_row(
        "occupancy", f"{record.occupancy.workgroups} workgroups a compute unit, limited by {record.occupancy.limit}"
    )
    drawn.add_row("matrix", ", ".join(f"{use.count} {use.mnemonic}" for use in resources.matrix) or "none")
    if record.toolchain is not None:
        drawn.add_row("toolchain", f"{record.toolchain.name} {record.toolchain.version}")
    return drawn


def _spills(record: "Explain") -> int:
    assert record.resources is not None
    return record.resources.spilled_registers or 0
