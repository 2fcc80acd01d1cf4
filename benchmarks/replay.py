"""Capture, then 1,000 replays that equal the eager launch bit for bit: `python benchmarks/replay.py BUNDLE`.

Outputs are filled with another byte before every replay, so that a replay which writes nothing cannot pass. Counts what
torch's allocator and the driver handed out meanwhile: nothing may be allocated after loading. Exit 1 on any difference.
"""

import argparse
from pathlib import Path

from running import exit_with, require_gpu, required
from tensors import machine, operands, record, written

from nkc import runtime
from nkc.runtime import Kernel

torch = required("torch")

REPLAYS = 1000
POISON = 0xA7


def compare(kernel: Kernel) -> dict[str, object]:
    """Return how many of the replays differ from the eager result, and what was allocated meanwhile."""
    tensors = operands(kernel)
    outputs = [tensors[name].untyped_storage() for name in written(kernel)]
    raw = [torch.empty(0, dtype=torch.uint8, device="cuda").set_(storage) for storage in outputs]

    def poison() -> None:
        for each in raw:
            each.fill_(POISON)

    poison()
    kernel.launch(*tensors.values())
    torch.cuda.synchronize()
    eager = [each.clone() for each in raw]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel.launch(*tensors.values())
    different = torch.zeros((), dtype=torch.int64, device="cuda")
    free = torch.cuda.mem_get_info()[0]
    for _ in range(REPLAYS):
        poison()
        graph.replay()
        wrong = [(mine != its).any() for mine, its in zip(raw, eager, strict=True)]
        different += torch.stack(wrong).any()
    torch.cuda.synchronize()
    return {
        "id": kernel.id,
        "symbol": kernel.record.symbol,
        "replays": REPLAYS,
        "different": int(different),
        "written": bool(any((each != POISON).any() for each in eager)),
        "driver_bytes": free - torch.cuda.mem_get_info()[0],
    }


def main() -> int:
    """Compare every kernel of the bundle that promises graph capture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--record", type=Path)
    said = parser.parse_args()
    require_gpu()
    library = runtime.load(said.bundle)
    rows = [compare(kernel) for kernel in library if kernel.record.graph_capture]
    for row in rows:
        words = "equal" if not row["different"] else f"{row['different']} DIFFER"
        print(f"{row['symbol']}: {row['replays']} replays, {words}; driver memory {row['driver_bytes']:+d} bytes")
    record(said.record, {"benchmark": "replay", "kernels": rows, **machine()})
    return int(any(row["different"] or not row["written"] for row in rows) or not rows)


if __name__ == "__main__":
    exit_with(main)
