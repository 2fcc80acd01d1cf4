"""What dense kernels on sm_90 in bf16 share: what they ask of a contract, and the maps of their tiles.

An unscaled contract has one block of k, the whole of it: its sums stay in the matrix unit's registers from the first
product to the last, nothing is promoted, and a split along k alone gives up the ascending chain.
"""

from collections.abc import Sequence

from nkc.ir import operations
from nkc.ir.contract import Accumulate, Combine, DType, Layout
from nkc.ir.launch import TensorMap
from nkc.tactics.addressing import Aligned, OffsetUnit, offsets_fit_int32
from nkc.tactics.dense.requirements import ALIGNMENT, values
from nkc.tactics.hardware import LdsFits
from nkc.tactics.predicate import ConstantOperands, Predicate, Serves, dtypes, equals, multiple_of, one_of

SWIZZLED_K = 64
"""Elements along k of a swizzled tile."""

SWIZZLED_BYTES = SWIZZLED_K * DType.BF16.size_bytes
"""Of one of its rows."""

BARRIER_BYTES = 8


def tile_map(rows: int) -> TensorMap:
    """Return the map of an operand whose copies take so many rows of a swizzled tile."""
    return TensorMap(box=(rows, SWIZZLED_K), swizzle_bytes=128, l2_promotion_bytes=256)


def requirements(
    *,
    step: int,
    why: str,
    combine: Combine,
    lds_bytes: int,
    dependent: bool = False,
    addressed: Sequence[str] = ("a", "b", "out"),
    aligned: Sequence[str] = ("a", "b", "out"),
) -> tuple[Predicate, ...]:
    """Return what a contract must say of operands, layouts and sums.

    step: elements that k is a multiple of, and why. addressed: operands whose offsets are 32 bits; the rest have more.
    """
    dense = operations.get("dense")
    return (
        *dtypes(a=DType.BF16, b=DType.BF16, acc=DType.FP32),
        *values(),
        multiple_of("$.shape.k", step, why=why),
        equals("$.layouts.a", Layout.ROW_MAJOR),
        equals("$.layouts.b", Layout.ROW_MAJOR_NK),
        equals("$.layouts.out", Layout.ROW_MAJOR),
        one_of("$.epilogue.kind", "identity", "bias"),
        Serves("$.numerics.accumulate", Accumulate.MATRIX_UNIT_FP32),
        Serves("$.numerics.combine", combine),
        *(offsets_fit_int32(dense.operand(name), OffsetUnit.ELEMENTS) for name in addressed),
        LdsFits(lds_bytes),
        *(Aligned(pointer, ALIGNMENT) for pointer in aligned),
        *([ConstantOperands(("b", "bias"))] if dependent else []),
    )


def store_run(n: int, groups: int, *, out_bf16: bool) -> tuple[int, int]:
    """Return the results of a row that a lane stores at once, and the groups of eight columns that it takes for that.

    n: results between rows. groups: of eight columns that a CTA finishes.
    """
    if not out_bf16 or n % 4 or groups % 2:
        return (1 if n % 2 else 2), 1
    return (4, 2) if n % 8 or groups % 4 else (8, 4)
