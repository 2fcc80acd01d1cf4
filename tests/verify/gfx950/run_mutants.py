"""Print the caught/survived table of the mutation suite over the checked-in objects.

    python -m tests.verify.gfx950.run_mutants [--every N] [NAME ...]

Exit status 1 when fewer than 98 % of the non-equivalent mutants are caught.
"""

import argparse
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from nkc.verify.gfx950.mutants import Outcome, baseline, judge
from nkc.verify.gfx950.mutations import MutationKind, mutations
from tests.verify.gfx950.cases import CASES, fp8_gemm, gemm, mx_gemm, quant

WANTED = 0.98
# Survivors that are equivalent for a reason that only a look at the kernel gives, by object and pc.
_REACHES = "the other steps of this maximum still reach all 16 lanes, and taking a maximum twice changes nothing"
_RISES = "the counter's values rise with the lane, so the last lane holds the largest already"
KNOWN: dict[tuple[str, int], str] = {
    ("quant", 0x248): _REACHES,
    ("quant_flat", 0x218): _REACHES,
    **{("split_k_all", pc): _RISES for pc in (0x3BC, 0x3D0, 0x3E0, 0x3F0, 0x400, 0x410)},
}


@dataclass(frozen=True, slots=True)
class Row:
    """One mutant's line: everything but the mutant itself, which is large."""

    name: str
    kind: MutationKind
    pc: int
    mnemonic: str
    caught_by: frozenset[str]
    equivalent: str


def small(name: str):
    """Return a small launch of an object: one full tile and a tail."""
    if name.startswith("fp8_") and name != "fp8_kn":
        tile = int(name.split("_")[1].split("x")[0])
        return fp8_gemm(name, tile + tile // 2)
    if name.startswith("mx"):
        return mx_gemm(name)
    if name.endswith("_kn"):
        return gemm(name, 80)
    return quant(name, 21) if name.startswith("quant") else CASES[name]()


def examine(name: str, every: int) -> list[Row]:
    """Run the mutants of one object."""
    case = small(name)
    base = baseline(case.data, case.launch, case.buffers)
    assert case.wrong(base.report.outputs) == dict.fromkeys(case.expected, 0), name
    assert not base.report.hazards, name
    rows = []
    for position, mutation in enumerate(mutations(case.data, case.launch)):
        if position % every == len(name) % every:
            outcome: Outcome = judge(mutation, base, case.buffers)
            known = "" if outcome.caught_by else KNOWN.get((name, mutation.pc), "")
            reason = outcome.equivalent or known
            rows.append(Row(name, mutation.kind, mutation.pc, mutation.mnemonic, outcome.caught_by, reason))
    return rows


def table(rows: list[Row]) -> str:
    """Return the table: by kind of mutation, how many were made, caught, caught by values alone, equivalent."""
    lines = [f"{'mutation':<30}{'made':>6}{'caught':>8}{'values alone see':>18}{'equivalent':>12}{'survived':>10}"]
    for kind in MutationKind:
        mine = [row for row in rows if row.kind is kind]
        if mine:
            caught = sum(bool(row.caught_by) for row in mine)
            values = sum("values" in row.caught_by for row in mine)
            same = sum(bool(row.equivalent) for row in mine)
            lines.append(
                f"{kind.value:<30}{len(mine):>6}{caught:>8}{values:>18}{same:>12}{len(mine) - caught - same:>10}"
            )
    alone = Counter(next(iter(row.caught_by)) for row in rows if len(row.caught_by) == 1)
    lines.append(
        "caught by one detector alone: " + ", ".join(f"{name} {count}" for name, count in sorted(alone.items()))
    )
    for row in rows:
        if not row.caught_by:
            what = row.equivalent or "SURVIVED"
            lines.append(f"  {row.name} pc {row.pc:#x} {row.mnemonic}: {row.kind.value}: {what}")
    return "\n".join(lines)


def score(rows: list[Row]) -> float:
    """Return the share of non-equivalent mutants that were caught."""
    real = [row for row in rows if not row.equivalent]
    return sum(bool(row.caught_by) for row in real) / len(real)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=[])
    parser.add_argument("--every", type=int, default=1, help="run every Nth mutant of each object")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    names = options.names or [name for name in CASES if name != "softmax"]
    if options.jobs > 1:
        with ProcessPoolExecutor(options.jobs) as pool:
            parts = list(pool.map(examine, names, [options.every] * len(names)))
    else:
        parts = [examine(name, options.every) for name in names]
    rows = [row for part in parts for row in part]
    print(table(rows))
    real = sum(not row.equivalent for row in rows)
    print(f"caught {100 * score(rows):.1f} % of {real} non-equivalent mutants (wanted {100 * WANTED:.0f} %)")
    return 0 if score(rows) >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
