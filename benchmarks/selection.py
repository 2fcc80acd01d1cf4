"""What selection costs: every predicate of every tactic for each contract, in this process, nothing compiled.

Generated contracts (seeded; valid, with dims, layouts, epilogues and rules that deployments mix) against the whole
catalogue, then against parts and multiples of it, and fewer of them: the cost of one candidate must not grow with
either. Processor time of this process, which uses one core; the least of several rounds. Then one line for every
example, wall time: `first` includes loading the catalogue where it is the first of all, `warm` is the median of many.
Exits 1 below the rate that is promised, or where doubling either side costs more than twice.
"""

import dataclasses
import random
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nkc.ir.contract import Contract
    from nkc.tactics.tactic import Tactic

EXAMPLES = Path(__file__).parents[1] / "examples"
CONTRACTS = 10_000
LEAST_RATE = 20_000  # candidate evaluations a second on one core
MOST_GROWTH = (
    1.15  # cost of one candidate in the largest case over that in the smallest, warm caches and noise included
)
ROUNDS = 3
EXAMPLE_ROUNDS = 100


def generated(count: int) -> list["Contract"]:
    """Return valid contracts, the same ones each time."""
    from nkc.ir.reader import parse_document

    draw = random.Random(4711)
    return [parse_document(_document(draw)) for _ in range(count)]


def _document(draw: random.Random) -> dict[str, object]:
    scaled = draw.random() < 0.7
    operand = "fp8_e4m3" if scaled else "bf16"
    high = draw.choice([1, 4, 16, 64, 256, 1024, 8192])
    epilogue = draw.choice([{"kind": "identity"}] * 3 + [{"kind": "bias", "dtype": "bf16"}, {"kind": "silu"}])
    document: dict[str, object] = {
        "schema": "nkc.contract/1",
        "target": {"arch": draw.choice(["gfx950", "sm_90"])},
        "operation": "dense",
        "shape": {
            "m": high if draw.random() < 0.8 else {"min": 0, "max": high},
            "n": draw.choice([64, 256, 576, 2112, 4096, 7168, 18432]),
            "k": 128 * draw.choice([4, 14, 16, 32, 56, 128]),
        },
        "dtypes": {"a": operand, "b": operand, "acc": "fp32", "out": draw.choice(["bf16", "fp32"])},
        "layouts": {
            "a": "row_major",
            "b": draw.choice(["row_major_nk"] * 9 + ["shuffled_16x16"]),
            "out": "row_major",
        },
        "epilogue": epilogue,
        "numerics": {
            "accumulate": draw.choice(["matrix_unit_fp32", "tensor_core_fp8"]),
            "combine": draw.choice(["ascending", "fixed_order"]),
        },
    }
    if scaled:
        document["scales"] = {
            "a": {"block": [1, 128], "layout": draw.choice(["row_major", "m_major"])},
            "b": {"block": [128, 128], "layout": "row_major"},
        }
    return document


def copies(tactics: Sequence["Tactic"], times: int) -> list["Tactic"]:
    """Return a catalogue so many times as large: the same data sheets under other names."""
    return [
        dataclasses.replace(
            tactic, name=tactic.name.replace(tactic.independent_name, f"{tactic.independent_name}_copy{copy}")
        )
        for tactic in tactics
        for copy in range(times)
    ]


def cost(contracts: Sequence["Contract"], tactics: Sequence["Tactic"]) -> float:
    """Return processor seconds for selecting on all contracts; the least of a few rounds."""
    from nkc.tactics.select import Policy, select

    policy = Policy(allow_experimental=True)
    times = []
    for _ in range(ROUNDS):
        begun = time.process_time()
        for contract in contracts:
            select(contract, policy, tactics=tactics)
        times.append(time.process_time() - begun)
    return min(times)


def scaling(contracts: Sequence["Contract"], tactics: Sequence["Tactic"]) -> bool:
    """Print what one candidate costs in small and large cases; return whether rate and growth are as promised."""
    few = contracts[: CONTRACTS // 10]
    cases = [(contracts[: CONTRACTS // 4], tactics), (contracts[: CONTRACTS // 2], tactics), (contracts, tactics)]
    cases += [(few, tactics[::2]), (few, tactics), (few, copies(tactics, 2)), (few, copies(tactics, 4))]
    single = []
    print(f"{'contracts':>9} {'tactics':>8} {'evaluations':>12} {'seconds':>8} {'us each':>8} {'a second':>9}")
    for asked, sheets in cases:
        seconds, evaluations = cost(asked, sheets), len(asked) * len(sheets)
        single.append(seconds / evaluations)
        print(
            f"{len(asked):9,} {len(sheets):8} {evaluations:12,} {seconds:8.2f} "
            f"{single[-1] * 1e6:8.2f} {evaluations / seconds:9,.0f}"
        )
    rate, by_contracts, by_tactics = 1 / single[2], single[2] / single[0], single[6] / single[4]
    print(
        f"cost of one candidate: {by_contracts:.2f} times with 4 times the contracts, {by_tactics:.2f} with the tactics"
    )
    return rate >= LEAST_RATE and max(by_contracts, by_tactics) <= MOST_GROWTH


def examples() -> None:
    """Print a line for every example."""
    from nkc import ir
    from nkc.tactics.select import Policy, select

    policy = Policy(allow_experimental=True)
    for path in sorted(EXAMPLES.glob("*.json")):
        contract = ir.read(path)
        times = []
        for _ in range(EXAMPLE_ROUNDS + 1):
            begun = time.perf_counter()
            selection = select(contract, policy)
            times.append(time.perf_counter() - begun)
        first, warm = times[0] * 1e3, statistics.median(times[1:]) * 1e3
        chosen = selection.selected.tactic.name if selection.selected else f"fallback {contract.fallback}"
        print(f"first {first:6.2f} ms   warm {warm:6.3f} ms   {path.name}: {chosen}")


def main() -> int:
    """Print the examples, then how the cost grows."""
    from nkc.tactics.catalogue import tactics_of

    examples()
    print()
    return 0 if scaling(generated(CONTRACTS), tactics_of("dense")) else 1


if __name__ == "__main__":
    sys.exit(main())
