"""Draws what was measured: one row a cell, every route of a cell where there is only one, then all cells together."""

from typing import TYPE_CHECKING

from nkc.cli.parts.console import draw, table

if TYPE_CHECKING:
    from rich.table import Table

    from nkc.bench.summary import CellLine, Summary
    from nkc.tactics.performance import Latency, Measurements, Record, Route, Session


def draw_bench(found: "Measurements", said: "Summary") -> None:
    """Print a table of all cells; of one cell every route; of several the means by rows."""
    from rich.text import Text

    shown: list[object] = [Text(_session(session)) for session in found.sessions.values()]
    shown.append(_cells(found.records, said.cells))
    if len(found.records) == 1:
        shown.append(_routes(found.records[0]))
    else:
        shown.append(_means(said))
    if said.published is not None:
        shown.append(Text(f"published: not timed here but scaled, by what stands behind the time: {said.published}"))
    draw(*shown)


def _session(session: "Session") -> str:
    best = session.ceilings
    products = ", ".join(f"{kind} {rate:.0f} TFLOP/s" for kind, rate in sorted(best.tflops.items()))
    return f"{session.device}, driver {session.driver}, {session.date}: reads {best.read_gbs:.0f} GB/s, {products}"


def _cells(records: "tuple[Record, ...]", lines: "tuple[CellLine, ...]") -> "Table":
    from nkc.bench.compare import compare

    heads = {_head(record) for record in records}
    drawn = table(
        "cell",
        "candidate",
        "us",
        "floor us",
        "of floor",
        "fastest",
        "us",
        "best baseline",
        "us",
        "speed-up",
        "published peer, us",
        "over all",
        "host us",
        "MHz, W",
        title=heads.pop() if len(heads) == 1 else None,
    )
    for record, line in zip(records, lines, strict=True):
        said = compare(record)
        candidate, fastest, baseline = said.candidate, said.fastest, said.baseline
        alike = candidate is not None and fastest is not None and candidate.name == fastest.name
        drawn.add_row(
            record.cell if drawn.title is None else record.cell.removeprefix(_head(record)).strip(),
            _short_name(line.candidate),
            _median(candidate.latency if candidate else None),
            f"{record.floor_us:.1f} {record.bound}",
            "-" if said.of_floor is None else f"{said.of_floor:.2f}",
            "the same" if alike else _short(fastest),
            "" if alike else _median(fastest.latency if fastest else None),
            _short(baseline),
            _median(baseline.latency if baseline else None),
            f"{said.speed_up:.2f}" if said.speed_up is not None else f"none: {said.refused}",
            _published(line),
            "-" if line.over is None else f"{line.over:.2f}",
            f"{candidate.host_us:.1f}" if candidate and candidate.host_us is not None else "-",
            f"{record.clocks.sm_mhz:.0f}, {record.clocks.power_w:.0f}" if record.clocks else "-",
        )
    return drawn


def _published(line: "CellLine") -> str:
    """Return the fastest published peer: its scaled time, what was published, the factor, and what told it."""
    peer = next((peer for peer in line.peers if peer.published_us is not None), None)
    if peer is None:
        return "-"
    by = f"{peer.factor:.3f} by {peer.scaled_by}" if peer.scaled_by is not None else "unscaled"
    return f"{peer.name} {peer.us:.1f} ({peer.published_us:.1f}, {by})"


def _means(said: "Summary") -> "Table":
    """Return the geometric means by rows: shares of the floor, and the best peer's time over ours."""
    drawn = table(
        "m",
        "rule",
        "cells",
        "of floor",
        "over the best peer",
        "published unscaled",
        "over what was timed",
        "over the best of another rule",
        "worst cell",
        "over each",
    )
    for line in said.rows:
        ratios = (line.of_floor, line.over, line.over_unscaled, line.over_timed, line.over_others)
        worst = "-" if line.worst is None else f"{line.worst:.2f}, {line.worst_cell}"
        drawn.add_row(
            "all" if line.rows is None else str(line.rows),
            line.rule,
            str(line.cells) if line.compared in (0, line.cells) else f"{line.cells} ({line.compared} compared)",
            *("-" if ratio is None else f"{ratio:.2f}" for ratio in ratios),
            worst,
            ", ".join(
                f"{each.name}{'' if each.same_rule else ' (another rule)'} {each.over:.2f}" for each in line.versus
            ),
        )
    return drawn


def _head(record: "Record") -> str:
    """Return operation, target and type, which a cell's name begins with."""
    return " ".join(record.cell.split(" ", 3)[:3])


def _short(route: "Route | None") -> str:
    """Return a route's name, a tactic's without target and operation."""
    if route is None:
        return "-"
    return _short_name(route.name) if route.tactic else route.name


def _short_name(tactic: str | None) -> str:
    """Return a tactic's name without target and operation."""
    return "-" if tactic is None else tactic.split(".", 2)[-1]


def _routes(record: "Record") -> "Table":
    drawn = table("route", "gate", "error/bound", "RMS ratio", "first look us", "us", "p10..p90", "host us", "note")
    for route in record.routes:
        gate, taken = route.gate, route.latency
        note = route.why_not or ("" if route.same_rule else "another rule: shown, not compared")
        if route.name == record.plain:
            note = "plain tile" + (f"; {note}" if note else "")
        drawn.add_row(
            route.name,
            "-" if gate is None else "green" if gate.passed else "RED",
            "-" if gate is None or gate.worst is None else f"{gate.worst:.3g}",
            "-" if gate is None else f"{gate.err_ratio:.2e}",
            "-" if route.quick_us is None else f"{route.quick_us:.1f}",
            _median(taken),
            "-" if taken is None else f"{taken.p10_us:.1f}..{taken.p90_us:.1f}",
            "-" if route.host_us is None else f"{route.host_us:.1f}",
            note,
        )
    return drawn


def _median(latency: "Latency | None") -> str:
    """Return the median with half the spread from the tenth to the ninetieth part, in percent of it."""
    if latency is None:
        return "-"
    spread = (latency.p90_us - latency.p10_us) / 2 / latency.median_us
    return f"{latency.median_us:.1f} ±{100 * spread:.1f}%"
