"""Pictures from records: a roofline, and the ratio to the best baseline by cell, in one SVG of stable bytes.

Numbers are placed here, text in `templates/svg/bench.svg.j2`. One colour a number of rows; the legend says which.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from nkc.bench.compare import Comparison, compare
from nkc.bench.summary import CellLine, PeerTime, line_of, rows_of
from nkc.tactics.performance import Measurements, Record, Session

WIDTH, HEIGHT, MARGIN = 1000, 430, 62
Lines = Mapping[str, CellLine]
"""By a record's digest, what may be said of it beside all peers."""

COLOURS = ("#0072b2", "#56b4e9", "#009e73", "#e69f00", "#d55e00", "#cc79a7", "#666666")
"""Okabe and Ito's, told apart without colour vision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """One marker. x, y: in the picture. title: what a pointer reads."""

    x: str
    y: str
    colour: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A mark on an axis."""

    at: str
    text: str


class Axis:
    """A logarithmic axis: values low..high to places start..end."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        self._low, self._high = math.log2(low), math.log2(high)
        self._start, self._end = start, end

    def at(self, value: float) -> float:
        """Return a value's place, inside the axis."""
        share = (math.log2(value) - self._low) / (self._high - self._low)
        return self._start + min(1.0, max(0.0, share)) * (self._end - self._start)

    def ticks(self, step: int = 1) -> tuple[Tick, ...]:
        """Return marks at powers of two, every `step` of them."""
        powers = range(math.ceil(self._low), math.floor(self._high) + 1, step)
        return tuple(Tick(at=_place(self.at(2.0**power)), text=_number(2.0**power)) for power in powers)


def svg(found: Sequence[Measurements]) -> bytes:
    """Return the picture of all records of products. Raises UsageError where there are none."""
    from nkc.emit import templates
    from nkc.ir.errors import UsageError

    sessions = {name: session for each in found for name, session in each.sessions.items()}
    pairs = [(record, compare(record)) for each in found for record in each.records if record.flops]
    shown = [(record, said) for record, said in pairs if said.candidate is not None and said.candidate.latency]
    lines = {record.digest: line_of(record, sessions[record.session]) for record, _ in shown}
    if not shown:
        raise UsageError("nkc: no records to draw (nkc bench --record)")
    shown.sort(key=lambda pair: (rows_of(pair[0]), pair[0].cell))
    colours = _colours(record for record, _ in shown)
    name = "svg/bench.svg.j2"
    text = templates.environment("svg").from_string(templates.read(name, templates.root()))
    session = sessions[shown[0][0].session]
    return text.render(
        width=WIDTH,
        height=2 * HEIGHT + 90,
        heading=_heading(session, len(shown)),
        legend=[
            {"x": _place(MARGIN + 95 * place), "colour": colour, "text": f"m {rows}"}
            for place, (rows, colour) in enumerate(colours.items())
        ],
        roofline=_roofline(shown, colours, session),
        ratios=_ratios(shown, colours, lines),
    ).encode()


def _roofline(
    shown: Sequence[tuple[Record, Comparison]], colours: dict[int, str], session: Session
) -> dict[str, object]:
    """Return TFLOP/s over FLOP per byte, with both ceilings of the session."""
    peak = max(session.ceilings.tflops.values())
    slope = session.ceilings.read_gbs / 1e3  # TFLOP/s at one FLOP per byte
    rates = [record.flops / _us(said) / 1e6 for record, said in shown]
    intensity = [record.flops / record.bytes for record, _ in shown]
    x = Axis(min(intensity) / 1.3, max(max(intensity), 4 * peak / slope), MARGIN, WIDTH - 30)
    y = Axis(min(rates) / 1.5, 1.5 * peak, HEIGHT - 20, 70)
    knee = peak / slope
    left = min(intensity) / 1.3
    return {
        "dots": [
            Dot(
                x=_place(x.at(flops)),
                y=_place(y.at(rate)),
                colour=colours[rows_of(record)],
                title=f"{record.cell}: {rate:.4g} TFLOP/s, {_us(said):.4g} us, floor {record.floor_us:.4g} us",
            )
            for (record, said), flops, rate in zip(shown, intensity, rates, strict=True)
        ],
        "line": " ".join(
            f"{_place(x.at(at))},{_place(y.at(min(peak, slope * at)))}" for at in (left, knee, max(intensity) * 4)
        ),
        "xticks": x.ticks(),
        "yticks": y.ticks(),
        "top": 70,
        "bottom": HEIGHT - 20,
        "left": MARGIN,
        "right": WIDTH - 30,
        "peak": f"{peak:.4g} TFLOP/s and {session.ceilings.read_gbs:.4g} GB/s, measured in the same session",
    }


def _ratios(shown: Sequence[tuple[Record, Comparison]], colours: dict[int, str], lines: Lines) -> dict[str, object]:
    """Return speed over the best timed baseline's by cell, over the best of all peers, and the floor over the time."""
    top, bottom = HEIGHT + 90, 2 * HEIGHT + 30
    ratios = [said.speed_up for _, said in shown if said.speed_up is not None]
    shares = [said.of_floor for _, said in shown if said.of_floor is not None]
    peers = [line.over for line in lines.values() if line.over is not None]
    low, high = min([*ratios, *shares, *peers, 0.5]) / 1.1, max([*ratios, *peers, 2.0]) * 1.1
    y = Axis(low, high, bottom, top)
    step = (WIDTH - 30 - MARGIN) / len(shown)
    dots, floors, diamonds = [], [], []
    for place, (record, said) in enumerate(shown):
        x, line = MARGIN + step * (place + 0.5), lines[record.digest]
        at, colour = _place(x), colours[rows_of(record)]
        if said.of_floor is not None:
            floors.append(Dot(x=at, y=_place(y.at(said.of_floor)), colour="none", title=f"{record.cell}: of the floor"))
        if line.over is not None and line.peers[0].published_us is not None:
            title = f"{record.cell}: {line.candidate}, {line.over:.3g} times as fast as {_told(line.peers[0])}"
            diamonds.append(Dot(x=at, y=_place(y.at(line.over)), colour=colour, title=title))
        if said.speed_up is not None and said.baseline is not None and said.candidate is not None:
            title = f"{record.cell}: {said.candidate.name} is {said.speed_up:.3g} times as fast as {said.baseline.name}"
            dots.append(Dot(x=at, y=_place(y.at(said.speed_up)), colour=colour, title=title))
    return {
        "dots": dots,
        "floors": floors,
        "diamonds": diamonds,
        "one": _place(y.at(1.0)),
        "yticks": y.ticks(),
        "top": top,
        "bottom": bottom,
        "left": MARGIN,
        "right": WIDTH - 30,
        "none": len(shown) - len(dots),
    }


def _told(peer: PeerTime) -> str:
    """Return a published peer in words: its time here, and how that was told."""
    by = f"times {peer.factor:.3f} by {peer.scaled_by}" if peer.scaled_by is not None else "unscaled"
    return f"{peer.name} at {peer.us:.4g} us (published {peer.published_us:.4g} us, {by})"


def _heading(session: Session, count: int) -> str:
    return (
        f"{count} cells on {session.device}, driver {session.driver}, {session.date}; medians of graph replays over "
        "operands beyond the L2"
    )


def _colours(records: Iterable[Record]) -> dict[int, str]:
    rows = sorted({rows_of(record) for record in records})
    return {value: COLOURS[place % len(COLOURS)] for place, value in enumerate(rows)}


def _us(said: Comparison) -> float:
    assert said.candidate is not None
    assert said.candidate.latency is not None
    return said.candidate.latency.median_us


def _place(value: float) -> str:
    return f"{value:.1f}"


def _number(value: float) -> str:
    return f"{value:g}"
