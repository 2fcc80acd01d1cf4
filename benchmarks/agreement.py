"""How far two runs of one bench are apart: python benchmarks/agreement.py FIRST.json SECOND.json [--record FILE]

FIRST, SECOND: what `nkc bench --export` wrote, on one machine or two of a kind. Compared is every route that both timed
in whole turns, by its median: baselines, and tactics whose code has the same digest. Exit 1 where the median of all
differences is beyond 3 %.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from nkc.bench.records import read_exported
from nkc.bench.summary import rows_of
from nkc.tactics.performance import Measurements, Session

LIMIT = 0.03
WORST_SHOWN = 5


def apart(first: Measurements, second: Measurements) -> Iterator[tuple[float, int, str, str]]:
    """Yield (difference over the smaller time, rows, cell, route) of everything that both timed."""
    others = {(record.request, tuple(sorted(record.dims.items()))): record for record in second.records}
    for record in first.records:
        other = others.get((record.request, tuple(sorted(record.dims.items()))))
        for route in record.routes if other is not None else ():
            twin = other.route(route.name)
            if twin is None or route.latency is None or twin.latency is None or twin.code_digest != route.code_digest:
                continue
            low, high = sorted((route.latency.median_us, twin.latency.median_us))
            yield high / low - 1, rows_of(record), record.cell, route.name


def summary(first: Measurements, second: Measurements) -> dict[str, object]:
    """Return what is recorded: the machines, and how far medians are apart, over all and by rows."""
    found = sorted(apart(first, second), reverse=True)
    rows = sorted({each[1] for each in found})
    return {
        "benchmark": "agreement",
        "sessions": [[_said(session) for session in each.sessions.values()] for each in (first, second)],
        "all": _spread([each[0] for each in found]),
        "by_rows": {str(m): _spread([each[0] for each in found if each[1] == m]) for m in rows},
        "worst": [
            {"cell": cell, "route": route, "apart": _shown(value)} for value, _, cell, route in found[:WORST_SHOWN]
        ],
    }


def _said(session: Session) -> dict[str, object]:
    return {
        "device": session.device,
        "driver": session.driver,
        "date": session.date,
        "software": dict(session.software),
        "command": session.command,
    }


def _spread(values: Sequence[float]) -> Mapping[str, float | int]:
    ordered = sorted(values)
    return {
        "routes": len(ordered),
        "median": _shown(statistics.median(ordered)),
        "p90": _shown(ordered[round(0.9 * (len(ordered) - 1))]),
        "worst": _shown(ordered[-1]),
        "beyond": sum(value > LIMIT for value in ordered),
    }


def _shown(value: float) -> float:
    return float(f"{value:.3g}")


def main() -> int:
    """Print how far two runs are apart."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    parser.add_argument("--record", type=Path)
    said = parser.parse_args()
    found = summary(read_exported(said.first), read_exported(said.second))
    for word, spread in {"all": found["all"], **found["by_rows"]}.items():
        print(f"{word if word == 'all' else f'm {word}':8} {spread}")
    for each in found["worst"]:
        print(f"{each['apart']:.1%} {each['cell']}: {each['route']}")
    if said.record is not None:
        said.record.write_text(json.dumps(found, indent=1) + "\n")
    return int(found["all"]["median"] > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
