"""Writes contracts of cells for sm_90: python benchmarks/cells.py OUT [--set h200|exact|outside|production|bf16|quant]

`h200`: eleven shapes of DeepSeek-V3 and Qwen3 layers at six numbers of rows, block-scaled FP8, those that published
times of other libraries are for. `exact`: the same without a licence for Hopper's FP8 unit. `outside`: numbers of
rows that are in no set, for three of those shapes, and three shapes with tails and few blocks of k. `production`: every
block-scaled shape of `shapes.json`, the layers of public checkpoints at tensor parallelism 1, 2, 4 and 8, or of those
whose layers' names hold a word. `bf16`: its unquantised layers, and the same three shapes in bf16.
`quant`: what makes the codes that those products read, with their scales M-major.

In the form of `examples/sets`: up to 128 rows partial chains along k are licensed, above that the chain is ascending.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
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
THREE_SHAPES = ((4096, 7168), (7168, 2048), (5120, 5120))
ROWS = (1, 16, 64, 128, 512, 4096)
OUTSIDE_SHAPES = ((576, 7168), (1152, 7168), (2048, 1408))
OUTSIDE_ROWS = (3, 33, 200, 1000, 8192)
FEW_ROWS = 128
QUANT_COLUMNS = (2048, 7168, 17408)
QUANT_ROWS = (16, 64, 4096)
"""One row of 2048 columns is 6 KB: forty thousand copies of it would be no more than the L2 four times."""
SETS = ("h200", "exact", "outside", "production", "bf16", "quant")


def shapes(kind: str, words: Sequence[str] = ()) -> tuple[tuple[int, int], ...]:
    """Return the (n, k) of a set; words: only shapes of a layer whose name holds one of them."""
    if kind in ("h200", "exact"):
        return SHAPES
    listed = json.loads(Path(__file__).with_name("shapes.json").read_text())["shapes"]
    dtype = "bf16" if kind == "bf16" else "fp8_e4m3"
    named = [
        shape for shape in listed if not words or any(word in layer for layer in shape["layers"] for word in words)
    ]
    found = tuple((shape["n"], shape["k"]) for shape in named if shape["dtype"] == dtype)
    return (*found, *THREE_SHAPES) if kind == "bf16" else tuple(shape for shape in found if shape not in SHAPES)


def cells(
    kind: str = "h200", rows: Sequence[int] = ROWS, words: Sequence[str] = ()
) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield (file name, contract) of every cell of a set."""
    if kind == "quant":
        for k in QUANT_COLUMNS:
            for m in QUANT_ROWS:
                yield from around(m, k)
        return
    scaled, exact = kind != "bf16", kind in ("exact", "bf16")
    if kind == "outside":
        listed = [(n, k, (*rows, *OUTSIDE_ROWS)) for n, k in OUTSIDE_SHAPES]
        listed += [(n, k, OUTSIDE_ROWS) for n, k in THREE_SHAPES]
    else:
        listed = [(n, k, tuple(rows)) for n, k in shapes(kind, words)]
    for n, k, numbers in listed:
        for m in sorted(numbers):
            yield (
                f"dense.{'' if scaled else 'bf16.'}n{n}.k{k}.m{m}.sm_90.json",
                contract(m, n, k, scaled=scaled, exact=exact),
            )


def contract(m: int, n: int, k: int, *, scaled: bool = True, exact: bool = False) -> dict[str, object]:
    """Return one cell's contract: D[m, n] = A[m, k] B[n, k]^T, where scaled by 1x128 and 128x128, else in bf16.

    exact: products are added with 23 fraction bits at least.
    """
    operand = "fp8_e4m3" if scaled else "bf16"
    scales = {
        "a": {"block": [1, 128], "layout": "m_major", "leading_dim": {"multiple_of": 4}},
        "b": {"block": [128, 128], "layout": "row_major"},
    }
    return {
        "schema": "nkc.contract/1",
        "target": {"arch": "sm_90"},
        "operation": "dense",
        "shape": {"m": m, "n": n, "k": k},
        "dtypes": {"a": operand, "b": operand, "acc": "fp32", "out": "bf16"},
        **({"scales": scales} if scaled else {}),
        "layouts": {"a": "row_major", "b": "row_major_nk", "out": "row_major"},
        "numerics": {
            "accumulate": "matrix_unit_fp32" if exact else "tensor_core_fp8",
            "combine": "fixed_order" if m <= FEW_ROWS else "ascending",
        },
        "fallback": "framework",
    }


def around(m: int, k: int) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield (file name, contract) of the operations that write the codes of A[m, k]."""
    codes = {"quantize": "divide", "overflow": "saturate", "amax_floor": 1e-10}
    norm = {"reduce": "tree", "staging": "bf16", "weight": "plain", "epsilon": 1e-6}
    operations: dict[str, tuple[str, tuple[str, ...], dict[str, object], dict[str, object]]] = {
        "group_quant": ("group_quant", (), {}, {}),
        "silu_mul_quant": (
            "silu_mul_quant",
            (),
            {"staging": "fp32"},
            {"epilogue": {"kind": "gated_silu", "gate": "halves"}},
        ),
        "rms_norm_quant": ("rms_norm_quant", ("weight",), dict(norm), {}),
        "rms_norm_quant.residual": ("rms_norm_quant", ("residual", "weight", "residual_out"), dict(norm), {}),
    }
    for name, (operation, more, numerics, rest) in operations.items():
        dtypes = {"x": "bf16", **dict.fromkeys(more, "bf16"), "out": "fp8_e4m3"}
        yield (
            f"{name}.k{k}.m{m}.sm_90.json",
            {
                "schema": "nkc.contract/1",
                "target": {"arch": "sm_90"},
                "operation": operation,
                "shape": {"m": m, "k": k},
                "dtypes": dtypes,
                "scales": {"out": {"block": [1, 128], "layout": "m_major", "leading_dim": {"multiple_of": 4}}},
                "layouts": dict.fromkeys(dtypes, "row_major"),
                "numerics": {**numerics, **codes},
                "fallback": "framework",
                **rest,
            },
        )


def write(out: Path, kind: str = "h200", rows: Sequence[int] = ROWS, words: Sequence[str] = ()) -> None:
    """Write every contract of a set into a folder."""
    out.mkdir(parents=True, exist_ok=True)
    for name, document in cells(kind, rows, words):
        (out / name).write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--set", choices=SETS, default="h200")
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    parser.add_argument("--layers", metavar="WORD", nargs="+", default=(), help="of `production`, by part of a name")
    options = parser.parse_args()
    write(options.out, options.set, options.rows, options.layers)
