"""Fits the figures of `nkc/tactics/dense/paces.json` to performance records, and says what the rule costs by rows.

python benchmarks/paces.py [--write [--families PATTERN]] [MEASUREMENTS...]

Each family of kernels gets its own figures: first the least mean of |log ratio| and its square over all tactics and
cells measured, what is far from a cell's fastest counting less; then, all families together, the least cost of what
the rule would choose, since a rule is there to choose. Both by a seeded search, so that equal records give equal
figures. Committed records speak, and files of measurements that are named beside them; of several times of one kernel
the last counts. Families that PATTERN leaves out keep their figures.

The table: the time of what the rule would pick over the fastest that was measured, geometric mean by rows and the worst
cell; the same for the catalogue's ranks. `left out`: the cell's own shape was no part of the fit.
"""

import argparse
import math
import random
from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nkc.tactics.dense.wave import Pace, Paces, Work
    from nkc.tactics.performance import Measurements
    from nkc.tactics.tactic import Tactic

START = {"launch": 3000.0, "block": 200.0, "block_element": 0.01, "element": 0.02}
START |= {"edge": 0.5, "absent_row": 1.0, "part": 300.0}
FIGURES = tuple(START)
STEPS = 1500
RESTARTS = 3
READ_GBS = 4200.0
"""What a kernel reaches of the 4.5 TB/s that reading alone does."""
CHOICES = 8000
"""Steps of the search for the least cost of what is chosen."""
MUCH = 0.3
"""From this loss on (log ratio) a cell counts eleven times: one that is far off is worse than many that are near."""
ALSO_TIMES = 0.3
"""What the error of every time counts beside the cost of a choice: a rule also answers for shapes that nobody timed."""
SMALL_ROWS = 64
"""From this tile on Triton takes wgmma: other instructions, other figures."""

Cell = tuple[int, int, int, str]
Group = dict[str, tuple["Work", float]]
"""Tactic to its work and its nanoseconds, of one contract."""
Seen = dict[Cell, dict[str, tuple["Work", float]]]
"""Of each cell (m, n, k, type of the operands): tactic to its work and its nanoseconds."""


def seen(found: Iterable["Measurements"], tactics: Mapping[str, "Tactic"]) -> Seen:
    """Return the last time of every kernel that today's catalogue still has, behind a green gate."""
    from nkc.ir.reader import parse_document
    from nkc.tactics.dense.wave import work_of

    times: Seen = {}
    for record in (record for each in found for record in each.records):
        contract = parse_document(record.contract, record.cell)
        if contract.operation != "dense" or record.dims:
            continue
        cell = contract.exact("m"), contract.exact("n"), contract.exact("k"), str(contract.dtypes["a"])
        for route in record.routes:
            us = route.quick_us if route.latency is None else route.latency.median_us
            tactic = tactics.get(route.name)
            if tactic is None or us is None or route.gate is None or not route.gate.passed:
                continue
            times.setdefault(cell, {})[route.name] = work_of(contract, tactic), us * 1000
    return times


def together(found: Iterable["Measurements"], tactics: Mapping[str, "Tactic"]) -> list[Group]:
    """Return the kernels that stood to choice together: those of one contract, the last time of each."""
    from nkc.ir.reader import parse_document
    from nkc.tactics.dense.wave import work_of

    groups: dict[str, Group] = {}
    for record in (record for each in found for record in each.records):
        contract = parse_document(record.contract, record.cell)
        if contract.operation != "dense" or record.dims:
            continue
        for route in record.routes:
            us = route.quick_us if route.latency is None else route.latency.median_us
            if route.name in tactics and us is not None and route.gate is not None and route.gate.passed:
                group = groups.setdefault(record.request, {})
                group[route.name] = work_of(contract, tactics[route.name]), us * 1000
    return [group for group in groups.values() if len(group) > 1]


def chosen(groups: list[Group], tactics: Mapping[str, "Tactic"], known: "Paces", pattern: str) -> "Paces":
    """Return the figures with those of the named families moved to where the rule's choice costs least."""
    import msgspec

    from nkc.tactics.dense.wave import nanoseconds, pace_of

    paces = {(pace.family, pace.rows_from): pace for pace in known.paces}

    def place(name: str) -> tuple[str, int]:
        pace = pace_of(tactics[name], known)
        assert pace is not None
        return pace.family, pace.rows_from

    whose = [{name: place(name) for name in group} for group in groups]
    told = [
        {name: nanoseconds(work, paces[whose[i][name]], known.read_gbs) for name, (work, _) in group.items()}
        for i, group in enumerate(groups)
    ]

    def cost(i: int, times: Mapping[str, float]) -> float:
        group = groups[i]
        least = min(ns for _, ns in group.values())
        loss = math.log(group[min(times, key=lambda name: (times[name], name))][1] / least)
        error = sum(abs(math.log(times[name] / ns)) * (least / ns) ** 2 for name, (_, ns) in group.items())
        return loss + 10 * max(0.0, loss - MUCH) + ALSO_TIMES * error / len(group)

    costs = [cost(i, times) for i, times in enumerate(told)]
    movable = [key for key in sorted({key for each in whose for key in each.values()}) if fnmatch(key[0], pattern)]
    touched = {key: [i for i, each in enumerate(whose) if key in each.values()] for key in movable}
    draw, step = random.Random("chosen"), 0.5
    for _ in range(CHOICES if movable else 0):
        key = draw.choice(movable)
        changes = {
            figure: float(f"{max(getattr(paces[key], figure), 1e-4) * math.exp(draw.gauss(0, step)):.3g}")
            for figure in FIGURES
            if draw.random() < 0.35
        }
        pace = msgspec.structs.replace(paces[key], **changes)
        tried = {
            i: {
                name: nanoseconds(work, pace, known.read_gbs) if whose[i][name] == key else told[i][name]
                for name, (work, _) in groups[i].items()
            }
            for i in touched[key]
        }
        now = {i: cost(i, times) for i, times in tried.items()}
        if sum(now.values()) < sum(costs[i] for i in now):
            paces[key], step = pace, min(1.0, step * 1.2)
            for i in now:
                told[i], costs[i] = tried[i], now[i]
        else:
            step = max(0.05, step * 0.995)
    return msgspec.structs.replace(known, paces=tuple(paces.values()))


def family_of(tactic: "Tactic") -> tuple[str, int]:
    """Return what shares figures: the family, and the least rows of a tile."""
    assert tactic.schedule.tile is not None
    return tactic.family, SMALL_ROWS if tactic.schedule.tile[0] >= SMALL_ROWS else 0


def fit(times: Seen, tactics: Mapping[str, "Tactic"]) -> tuple["Pace", ...]:
    """Return the figures of every family, then those of its target for families that have none.

    Such a family is new: it gets the figures of the one that was the fastest in the most cells.
    """
    import msgspec

    samples: dict[tuple[str, int], list[tuple[Work, float, float]]] = {}
    wins: dict[tuple[str, int], int] = {}
    for by_name in times.values():
        first = min(by_name, key=lambda name: (by_name[name][1], name))
        wins[family_of(tactics[first])] = wins.get(family_of(tactics[first]), 0) + 1
        for name, (work, ns) in by_name.items():
            weight = (by_name[first][1] / ns) ** 2
            samples.setdefault(family_of(tactics[name]), []).append((work, ns, weight))
    paces = {family: _fit(*family, known) for family, known in sorted(samples.items())}
    for target in sorted({tactics[name].target for by_name in times.values() for name in by_name}):
        own = [family for family in wins if family[0].startswith(target)]
        most = paces[max(own, key=lambda family: (wins[family], family))]
        paces[f"{target}.dense", 0] = msgspec.structs.replace(most, family=f"{target}.dense", rows_from=0)
    return tuple(paces.values())


def _fit(family: str, rows_from: int, samples: list[tuple["Work", float, float]]) -> "Pace":
    from nkc.tactics.dense.wave import Pace, nanoseconds

    draw = random.Random(f"{family} {rows_from}")

    def pace(logs: list[float]) -> Pace:
        values = {name: float(f"{math.exp(log):.3g}") for name, log in zip(FIGURES, logs, strict=True)}
        return Pace(family=family, rows_from=rows_from, **values)

    def loss(logs: list[float]) -> float:
        one = pace(logs)
        errors = [(abs(math.log(nanoseconds(work, one, READ_GBS) / ns)), weight) for work, ns, weight in samples]
        return sum(weight * (error + error * error) for error, weight in errors) / len(errors)

    best: tuple[float, list[float]] | None = None
    for restart in range(RESTARTS):
        logs = [math.log(value) + (draw.gauss(0, 1) if restart else 0.0) for value in START.values()]
        least, step = loss(logs), 0.5
        for _ in range(STEPS):
            tried = [log + draw.gauss(0, step) * (draw.random() < 0.5) for log in logs]
            if (now := loss(tried)) < least:
                logs, least, step = tried, now, min(1.0, step * 1.3)
            else:
                step = max(0.01, step * 0.98)
        if best is None or least < best[0]:
            best = least, logs
    assert best is not None
    return pace(best[1])


def losses(times: Seen, tactics: Mapping[str, "Tactic"], paces: "Paces") -> dict[Cell, tuple[float, float]]:
    """Return by cell what the rule's choice and the catalogue's cost over the fastest that was measured."""
    from nkc.tactics.dense.wave import nanoseconds, pace_of

    found = {}
    for cell, by_name in times.items():
        told = {}
        for name, (work, _) in by_name.items():
            pace = pace_of(tactics[name], paces)
            assert pace is not None
            told[name] = nanoseconds(work, pace, paces.read_gbs)
        least = min(ns for _, ns in by_name.values())
        rule = min(by_name, key=lambda name: (told[name], name))
        ranked = min(by_name, key=lambda name: (tactics[name].rank, name))
        found[cell] = by_name[rule][1] / least, by_name[ranked][1] / least
    return found


def mean(values: Iterable[float]) -> float:
    """Return the geometric mean."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs))


def left_out(times: Seen, tactics: Mapping[str, "Tactic"], source: str) -> dict[Cell, float]:
    """Return by cell what the rule costs when it was fitted without every cell of that shape."""
    from nkc.tactics.dense.wave import Paces

    found = {}
    for shape in sorted({cell[1:3] for cell in times}):
        others = {cell: by_name for cell, by_name in times.items() if cell[1:3] != shape}
        own = {cell: by_name for cell, by_name in times.items() if cell[1:3] == shape}
        paces = Paces(source=source, read_gbs=READ_GBS, paces=fit(others, tactics))
        found.update({cell: rule for cell, (rule, _) in losses(own, tactics, paces).items()})
    return found


def main() -> None:
    """Fit, print the table, and write the figures where that is asked."""
    from nkc.bench.records import read_exported
    from nkc.tactics.catalogue import tactics_of
    from nkc.tactics.dense.wave import PACES_FILE, Paces, paces
    from nkc.tactics.performance import read_all

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measurements", nargs="*", type=Path)
    parser.add_argument("--write", action="store_true", help="into the checkout; without it today's figures are shown")
    parser.add_argument("--families", default="*", metavar="PATTERN", help="fit these alone, as `sm_90.dense.fp8_s*`")
    parser.add_argument("--left-out", action="store_true", help="fit once more for each shape, without it")
    options = parser.parse_args()
    tactics = {tactic.name: tactic for tactic in tactics_of("dense")}
    found = [*map(read_exported, options.measurements), read_all()]
    times = seen(found, tactics)
    sessions = {session.device: session.date for each in found for session in each.sessions.values()}
    devices = ", ".join(f"{device}, {date[:10]}" for device, date in sorted(sessions.items()))
    source = f"{sum(map(len, times.values()))} kernels in {len(times)} cells, nkc bench on {devices}"
    known = paces()
    if options.write:
        kept = {(pace.family, pace.rows_from): pace for pace in known.paces}
        fitted = {(pace.family, pace.rows_from): pace for pace in fit(times, tactics)}
        fresh = {key: pace for key, pace in fitted.items() if fnmatch(key[0], options.families)}
        begun = Paces(source=source, read_gbs=READ_GBS, paces=tuple(dict(sorted({**kept, **fresh}.items())).values()))
        known = chosen(together(found, tactics), tactics, begun, options.families)
        PACES_FILE.write_bytes(document(known))
    without = left_out(times, tactics, source) if options.left_out else {}
    by_cell = losses(times, tactics, known)
    print(source)
    print("| m | rule | worst | left out | catalogue |\n| --: | --: | --: | --: | --: |")
    for rows in (*sorted({cell[0] for cell in times}), None):
        cells = [cell for cell in times if rows in (None, cell[0])]
        worst = max(cells, key=lambda cell: by_cell[cell][0])
        aside = f"{mean(without[cell] for cell in cells):.3f}" if without else "-"
        rule, ranked = (mean(by_cell[cell][place] for cell in cells) for place in (0, 1))
        name = f"{by_cell[worst][0]:.2f} (m {worst[0]}, n {worst[1]}, k {worst[2]})"
        print(f"| {'all' if rows is None else rows} | {rule:.3f} | {name} | {aside} | {ranked:.3f} |")


def document(known: "Paces") -> bytes:
    """Return the file's bytes, one family a line."""
    import msgspec

    lines = ",\n".join(f" {msgspec.json.encode(pace).decode()}" for pace in known.paces)
    text = f'{{\n"schema": "{known.schema}",\n"source": {msgspec.json.encode(known.source).decode()},\n'
    return f'{text}"read_gbs": {known.read_gbs},\n"paces": [\n{lines}\n]\n}}\n'.encode()


if __name__ == "__main__":
    main()
