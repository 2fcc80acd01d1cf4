"""The predicates that every fp8 block-scaled dense kernel of ours shares."""

from nkc.ir import operations
from nkc.ir.contract import Accumulate, Combine, DType, Layout, Triple
from nkc.tactics.predicate import (
    Aligned,
    LdsFits,
    OffsetUnit,
    Predicate,
    Serves,
    TargetHas,
    at_most,
    dtypes,
    equals,
    multiple_of,
    offsets_fit_int32,
    one_of,
)

POINTERS = ("a", "b", "a_scales", "b_scales", "out")
ALIGNMENT = 16  # bytes: one 128-bit access


def fp8_block_scaled(
    *,
    tile: Triple,
    max_m: int | None,
    lds_bytes: int,
    accumulate: Accumulate,
    combine: Combine,
    offsets: OffsetUnit,
) -> tuple[Predicate, ...]:
    """Return what a contract must say for a kernel of this tile; max_m None serves any number of rows."""
    dense = operations.get("dense")
    rows: tuple[Predicate, ...] = ()
    if max_m is not None:
        rows = (at_most("$.shape.m", max_m, why=f"a tile of {tile[0]} rows re-reads B for every tile of rows"),)
    return (
        TargetHas("ocp_fp8", "$.dtypes.a"),
        *dtypes(a=DType.FP8_E4M3, b=DType.FP8_E4M3, acc=DType.FP32),
        equals("$.scales.a.block", (1, 128)),
        equals("$.scales.b.block", (128, 128)),
        one_of("$.scales.a.layout", Layout.ROW_MAJOR, Layout.M_MAJOR),
        equals("$.scales.b.layout", Layout.ROW_MAJOR),
        equals("$.layouts.a", Layout.ROW_MAJOR),
        equals("$.layouts.b", Layout.ROW_MAJOR_NK),
        equals("$.layouts.out", Layout.ROW_MAJOR),
        equals("$.epilogue.kind", "identity"),
        Serves("$.numerics.accumulate", accumulate),
        Serves("$.numerics.combine", combine),
        *rows,
        multiple_of("$.shape.k", tile[2], why="one step covers whole scale blocks along k"),
        *(offsets_fit_int32(dense.operand(name), offsets) for name in ("a", "b", "out")),
        *(Aligned(pointer, ALIGNMENT) for pointer in POINTERS),
        LdsFits(lds_bytes),
    )
