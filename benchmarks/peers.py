"""One run of `nkc bench` in which every peer was timed: the fastest kernel of ours beside each, by cell and by rows.

python benchmarks/peers.py keep EXPORT.json --record FILE   # of an exported run, the medians that matter
python benchmarks/peers.py show FILE

`nkc bench --show` tells of each cell the newest record, whichever run it is from. A ratio of two kernels is to be
trusted only within one run, so what stands here is one run alone, as it was: kernels that were changed since keep the
times they had, and their code digests tell which those are. Peers are what computes the contract by its own rule:
cuBLASLt block-scaled, DeepGEMM in each way of calling it, and the plain Triton tile.
"""

import argparse
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from nkc.tactics.performance import Record, Session


class Cell(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Median device times of one cell in microseconds. floor_us: by bytes or operations. digest: of our code."""

    m: int
    n: int
    k: int
    floor_us: float
    tactic: str
    digest: str
    us: float
    peers: dict[str, float]

    @property
    def ratio(self) -> float:
        """The fastest peer's time over ours."""
        return min(self.peers.values()) / self.us


class Run(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every cell of one run, with the session it was taken in."""

    session: msgspec.Raw
    cells: tuple[Cell, ...]


def cell(record: "Record") -> Cell:
    """Return what a record says of the fastest tactic and of the peers that were timed whole."""
    timed = {route.name: route for route in record.routes if route.latency is not None}
    ours = [route for route in timed.values() if route.tactic]
    first = min(ours, key=lambda route: (route.latency.median_us, route.name))
    peers = {
        route.name: route.latency.median_us
        for route in timed.values()
        if route.same_rule and (not route.tactic or route.name == record.plain)
    }
    shape = record.contract["shape"]
    return Cell(
        **{name: shape[name] for name in "mnk"},
        floor_us=record.floor_us,
        tactic=first.name,
        digest=first.code_digest,
        us=first.latency.median_us,
        peers=dict(sorted(peers.items())),
    )


def keep(export: Path, out: Path) -> None:
    """Write the record of an exported run. Raises ValueError for one of several sessions."""
    from nkc.bench.records import read_exported

    found = read_exported(export)
    sessions: list[Session] = list(found.sessions.values())
    if len(sessions) != 1:
        raise ValueError(f"{export}: {len(sessions)} sessions, wanted the one of a single run")
    cells = sorted((cell(record) for record in found.records), key=lambda each: (each.m, each.n, each.k))
    run = Run(session=msgspec.Raw(msgspec.json.encode(sessions[0])), cells=tuple(cells))
    out.write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=1) + b"\n")


def mean(values: list[float]) -> float:
    """Return the geometric mean."""
    return math.exp(sum(map(math.log, values)) / len(values))


def table(run: Run) -> list[str]:
    """Return the lines of the table by rows."""
    lines = ["| m | cells | of the floor | the best peer / ours | worst cell |", "| --: | --: | --: | --: | :-- |"]
    for rows in (*sorted({each.m for each in run.cells}), None):
        some = [each for each in run.cells if rows in (None, each.m)]
        worst = min(some, key=lambda each: each.ratio)
        share = mean([each.floor_us / each.us for each in some])
        lines.append(
            f"| {'all' if rows is None else rows} | {len(some)} | {share:.2f} | "
            f"{mean([each.ratio for each in some]):.3f} | {worst.ratio:.2f}, m {worst.m}, n {worst.n}, k {worst.k} |"
        )
    return lines


def main() -> None:
    """Keep a run, or print the table of one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    kept = verbs.add_parser("keep")
    kept.add_argument("export", type=Path)
    kept.add_argument("--record", type=Path, required=True)
    shown = verbs.add_parser("show")
    shown.add_argument("record", type=Path)
    options = parser.parse_args()
    if options.verb == "keep":
        keep(options.export, options.record)
    print(*table(msgspec.json.decode(options.record.read_bytes(), type=Run)), sep="\n", file=sys.stdout)


if __name__ == "__main__":
    main()
