"""The predicates that our dense kernels share, and those of a split along k."""

from nkc.ir import operations
from nkc.ir.contract import Accumulate, Combine, DType, Layout, Triple
from nkc.tactics.addressing import Aligned, OffsetUnit, ScaleOffsetsFitInt32, offsets_fit_int32
from nkc.tactics.hardware import LdsFits, TargetHas, TilesAtMost
from nkc.tactics.predicate import AtLeast, Predicate, Serves, at_most, dtypes, equals, multiple_of, one_of

ALIGNMENT = 16  # bytes: one 128-bit access
FP8_POINTERS = ("a", "b", "a_scales", "b_scales", "bias", "out", "workspace")
BF16_POINTERS = ("a", "b", "bias", "out", "workspace")


def values() -> tuple[Predicate, ...]:
    """Return that the result is stored as values, and not as codes."""
    return (one_of("$.dtypes.out", DType.BF16, DType.FP32),)


def block_scales() -> tuple[Predicate, ...]:
    """Return which scales: one for 1 x 128 activations, in either layout, one for 128 x 128 weights."""
    return (
        equals("$.scales.a.block", (1, 128)),
        equals("$.scales.b.block", (128, 128)),
        one_of("$.scales.a.layout", Layout.ROW_MAJOR, Layout.M_MAJOR),
        equals("$.scales.b.layout", Layout.ROW_MAJOR),
    )


def rows_along_k() -> tuple[Predicate, ...]:
    """Return how operands lie, k innermost in both, and what may follow the accumulator."""
    return (
        equals("$.layouts.a", Layout.ROW_MAJOR),
        equals("$.layouts.b", Layout.ROW_MAJOR_NK),
        equals("$.layouts.out", Layout.ROW_MAJOR),
        one_of("$.epilogue.kind", "identity", "bias"),
    )


def fp8_block_scaled(
    *,
    tile: Triple,
    max_m: int | None,
    lds_bytes: int,
    accumulate: Accumulate,
    offsets: OffsetUnit,
    split_k: int = 1,
    min_k: int | None = None,
    result: tuple[Predicate, ...] | None = None,
) -> tuple[Predicate, ...]:
    """Return what a contract must say for a block-scaled kernel; max_m and min_k None serve any number.

    result: what is asked of it; None is one of values.
    """
    long: tuple[Predicate, ...] = ()
    if min_k is not None:
        long = (AtLeast("$.shape.k", min_k, why="a shorter loop is unrolled whole and spills"),)
    return (
        TargetHas("ocp_fp8", "$.dtypes.a"),
        *dtypes(a=DType.FP8_E4M3, b=DType.FP8_E4M3, acc=DType.FP32),
        *(values() if result is None else result),
        *block_scales(),
        multiple_of("$.shape.k", tile[2], why="one step covers whole scale blocks along k"),
        *long,
        *_dense(tile, max_m, lds_bytes, accumulate, offsets, split_k),
        ScaleOffsetsFitInt32("a", offsets),
        *(Aligned(pointer, ALIGNMENT) for pointer in FP8_POINTERS),
    )


def bf16(
    *,
    tile: Triple,
    max_m: int | None,
    lds_bytes: int,
    offsets: OffsetUnit,
    split_k: int = 1,
    result: tuple[Predicate, ...] | None = None,
) -> tuple[Predicate, ...]:
    """Return what a contract must say for an unscaled bf16 kernel; max_m None serves any number of rows.

    result: what is asked of it; None is one of values.
    """
    return (
        *dtypes(a=DType.BF16, b=DType.BF16, acc=DType.FP32),
        *(values() if result is None else result),
        multiple_of("$.shape.k", tile[2], why="a step reads whole tiles along k"),
        *_dense(tile, max_m, lds_bytes, Accumulate.MATRIX_UNIT_FP32, offsets, split_k),
        *(Aligned(pointer, ALIGNMENT) for pointer in BF16_POINTERS),
    )


def _dense(
    tile: Triple, max_m: int | None, lds_bytes: int, accumulate: Accumulate, offsets: OffsetUnit, split_k: int
) -> tuple[Predicate, ...]:
    dense = operations.get("dense")
    rows: tuple[Predicate, ...] = ()
    if max_m is not None:
        rows = (at_most("$.shape.m", max_m, why=f"a tile of {tile[0]} rows re-reads B for every tile of rows"),)
    split: tuple[Predicate, ...] = ()
    if split_k > 1:
        split = (
            AtLeast("$.shape.k", split_k * tile[2], why=f"every one of {split_k} pieces adds something"),
            TilesAtMost("$.shape.n", axes=("m", "n"), tile=tile[:2]),
        )
    return (
        *rows_along_k(),
        Serves("$.numerics.accumulate", accumulate),
        Serves("$.numerics.combine", Combine.ASCENDING if split_k == 1 else Combine.FIXED_ORDER),
        *rows,
        *split,
        *(offsets_fit_int32(dense.operand(name), offsets) for name in ("a", "b", "out")),
        LdsFits(lds_bytes),
    )
