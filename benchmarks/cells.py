"""Writes the contracts of the 66 dense cells that are benched on an H200: python benchmarks/cells.py OUT

Eleven shapes of DeepSeek-V3 and Qwen3 layers, six numbers of rows, block-scaled FP8 for sm_90, in the form of
`examples/sets`: up to 128 rows partial chains along k are licensed, above that the chain is ascending.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

SHAPES = (  # n, k
    (2112, 7168),
    (24576, 1536),
    (32768, 512),
    (7168, 16384),
    (4096, 7168),
    (7168, 2048),
    (2048, 4096),
    (5120, 5120),
    (34816, 5120),
    (5120, 17408),
    (6144, 4096),
)
ROWS = (1, 16, 64, 128, 512, 4096)
FEW_ROWS = 128


def cells() -> Iterator[tuple[str, dict[str, object]]]:
    """Yield (file name, contract) of every cell."""
    for n, k in SHAPES:
        for m in ROWS:
            yield f"dense.n{n}.k{k}.m{m}.sm_90.json", contract(m, n, k)


def contract(m: int, n: int, k: int) -> dict[str, object]:
    """Return one cell's contract: D[m, n] = A[m, k] B[n, k]^T, scales per 1x128 and 128x128."""
    return {
        "schema": "nkc.contract/1",
        "target": {"arch": "sm_90"},
        "operation": "dense",
        "shape": {"m": m, "n": n, "k": k},
        "dtypes": {"a": "fp8_e4m3", "b": "fp8_e4m3", "acc": "fp32", "out": "bf16"},
        "scales": {
            "a": {"block": [1, 128], "layout": "m_major", "leading_dim": {"multiple_of": 4}},
            "b": {"block": [128, 128], "layout": "row_major"},
        },
        "layouts": {"a": "row_major", "b": "row_major_nk", "out": "row_major"},
        "numerics": {
            "accumulate": "tensor_core_fp8",
            "combine": "fixed_order" if m <= FEW_ROWS else "ascending",
        },
        "fallback": "framework",
    }


def write(out: Path) -> None:
    """Write every contract into a folder."""
    out.mkdir(parents=True, exist_ok=True)
    for name, document in cells():
        (out / name).write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
