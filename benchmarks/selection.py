"""What one selection costs: every predicate of every tactic for a contract, in this process, nothing compiled.

`warm` is the median of many; `first` of the first line includes loading the catalogue and the evidence. Wall time.
"""

import statistics
import sys
import time
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"
ROUNDS = 200


def main() -> int:
    """Print a line for every example."""
    from nkc import ir
    from nkc.tactics.select import Policy, select

    policy = Policy(allow_experimental=True)
    for path in sorted(EXAMPLES.glob("*.json")):
        contract = ir.read(path)
        times = []
        for _ in range(ROUNDS + 1):
            begun = time.perf_counter()
            selection = select(contract, policy)
            times.append(time.perf_counter() - begun)
        first, warm = times[0] * 1e3, statistics.median(times[1:]) * 1e3
        chosen = selection.selected.tactic.name if selection.selected else f"fallback {contract.fallback}"
        print(
            f"first {first:6.2f} ms   warm {warm:6.3f} ms   {len(selection.candidates)} candidates   {path.name}: {chosen}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
