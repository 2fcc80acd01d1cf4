"""dense on sm_90 for one row of activations: fp32 throughout, e4m3 decoded exactly, no matrix unit.

One row needs the bandwidth and nothing else, so the products that a matrix unit would make for 7 or 15 absent rows are
not missed, and `matrix_unit_fp32` costs no more than the FP8 unit's 13 bits.

Each shape of CTA has a twin that is launched dependent: while the kernel ahead still runs, it asks for the first
weights of every warp and for their scales; activations come after the wait. Same sums, same bits.

A second form adds the blocks of 128 in ascending order, as `combine: ascending` wants it: eight lanes finish a block,
and when all are done one thread for each row makes the chain of fused multiply-adds.
"""

from collections.abc import Mapping
from typing import NamedTuple

from nkc.ir import operations
from nkc.ir.contract import Accumulate, Combine, Contract, DType, Layout
from nkc.ir.scales import leading_extent
from nkc.tactics import cuda
from nkc.tactics.addressing import Aligned, OffsetUnit, offsets_fit_int32
from nkc.tactics.dense import gemv, wave
from nkc.tactics.dense.plan import lower, schedule, tile_of
from nkc.tactics.dense.proofs import gemv_proofs
from nkc.tactics.dense.requirements import ALIGNMENT, block_scales, rows_along_k, values
from nkc.tactics.hardware import LdsFits, TargetHas
from nkc.tactics.predicate import (
    ConstantOperands,
    Predicate,
    Serves,
    at_most,
    dtypes,
    multiple_of,
)
from nkc.tactics.tactic import DEPENDENT, LAST, CodePattern, Guarantees, Kernel, Tactic

BLOCK_K = 128
CHUNK = 512
"""Elements of k that a warp takes at once: 16 bytes a lane."""

MOST_K = 1 << 16
"""Elements of k whose block sums an ascending kernel keeps in shared memory."""


class Row(NamedTuple):
    """One shape of CTA. depth: chunks whose loads a warp has under way. ctas: of a multiprocessor, for registers.

    whole: k is whole rounds of all warps; what would load the rest takes registers that this shape has not.
    """

    rank: int
    rows: int
    warps: int
    depth: int
    ctas: int
    whole: bool = False

    @property
    def name(self) -> str:
        """What tells it from the others."""
        return f"r{self.rows}_w{self.warps}{'_whole' if self.whole else ''}"


ROWS = (
    Row(1, 4, 8, 1, 4),
    Row(2, 2, 4, 2, 8),
    Row(2, 4, 4, 1, 8),
    Row(3, 4, 3, 1, 10),
    Row(3, 4, 5, 1, 6),
    Row(4, 8, 1, 1, 24),
)

FIXED_ORDER_ROWS = (
    Row(LAST, 4, 2, 1, 16),
    Row(LAST, 8, 4, 1, 5),
    Row(LAST, 8, 5, 1, 4),
    Row(LAST, 8, 4, 1, 6, whole=True),
    Row(LAST, 4, 8, 2, 3, whole=True),
    Row(LAST, 16, 1, 1, 16, whole=True),
)
"""Shapes for single k and n, where a tuning row says so: up to four times slower on others, which the rule cannot tell.

More rows a CTA than have room for a sum of every block.
"""


def constants(contract: Contract, tactic: Tactic) -> Mapping[str, object]:
    """Return the template's constants: with those of every such kernel, where the scales lie and how sums are added."""
    n, k = contract.exact("n"), contract.exact("k")
    a = operations.get("dense").operand("a")
    a_scale = contract.scales["a"]
    shared = gemv.constants(contract, tactic, CHUNK)
    return {
        **shared,
        "scale_block_n": contract.scales["b"].block[0],
        "scale_block_k": BLOCK_K,
        "k_blocks": k // BLOCK_K,
        "a_scale_stride": 1 if a_scale.layout is Layout.ROW_MAJOR else leading_extent(contract, a, "m").of({"m": 1}),
        "last_row": n - 1,
        "step_chunks": shared["warps"],
        "ascending": tactic.guarantees.combine is Combine.ASCENDING,
        **_lanes_of_a_block(tile_of(tactic)[1]),
    }


def _lanes_of_a_block(rows: int) -> Mapping[str, object]:
    """Return how the 8 lanes of a block add up their rows: halvings (lanes apart, rows kept), then plain additions."""
    halvings: list[tuple[int, int]] = []
    apart = 1
    while rows >> len(halvings) > 1:
        halvings.append((apart, rows >> len(halvings) + 1))
        apart *= 2
    bits = [f"(lane / {of} % 2) * {kept}" for of, kept in halvings]
    return {
        "halvings": halvings,
        "additions": [of for of in (1, 2, 4) if of >= apart],
        "row_of_lane": " + ".join(bits) or "0",
    }


def _requires(row: Row, *, ascending: bool, dependent: bool) -> tuple[Predicate, ...]:
    dense = operations.get("dense")
    return (
        TargetHas("ocp_fp8", "$.dtypes.a"),
        *dtypes(a=DType.FP8_E4M3, b=DType.FP8_E4M3, acc=DType.FP32),
        *values(),
        *block_scales(),
        multiple_of("$.shape.k", _round(row), why="its warps share k in whole rounds")
        if row.whole
        else multiple_of("$.shape.k", BLOCK_K, why="a lane's 16 elements have one scale"),
        *rows_along_k(),
        Serves("$.numerics.accumulate", Accumulate.MATRIX_UNIT_FP32),
        Serves("$.numerics.combine", _combine(ascending=ascending)),
        at_most("$.shape.m", 1, why="it multiplies one row of activations"),
        *(offsets_fit_int32(dense.operand(name), OffsetUnit.ELEMENTS) for name in ("a", "out")[ascending:]),
        *([at_most("$.shape.k", MOST_K, why="the sums of every block wait in shared memory")] if ascending else []),
        LdsFits((MOST_K // BLOCK_K * (row.rows + 1) if ascending else row.rows * row.warps) * 4),
        Aligned("a", ALIGNMENT),
        Aligned("b", ALIGNMENT),
        *([ConstantOperands(("b", "b_scales", "bias"))] if dependent else []),
    )


def _no_estimate(_contract: Contract, _tactic: Tactic) -> None:
    """Say nothing of the time."""


def _round(row: Row) -> int:
    """Return the elements of k that all warps take at once."""
    return CHUNK * row.warps * row.depth


def _combine(*, ascending: bool) -> Combine:
    return Combine.ASCENDING if ascending else Combine.FIXED_ORDER


def _tactic(row: Row, *, ascending: bool, dependent: bool) -> Tactic:
    geometry = f"{row.name}{'_ascending' if ascending else ''}{DEPENDENT if dependent else ''}"
    return Tactic(
        name=f"sm_90.dense.fp8_gemv_{geometry}",
        operation="dense",
        target="sm_90",
        rank=row.rank + 4 * ascending,
        requires=_requires(row, ascending=ascending, dependent=dependent),
        guarantees=Guarantees(
            accumulate=Accumulate.MATRIX_UNIT_FP32,
            combine=_combine(ascending=ascending),
            deterministic=True,
            graph_capture=True,
        ),
        schedule=schedule((1, row.rows, BLOCK_K), waves=row.warps, stages=row.depth),
        lower=lower,
        kernel=Kernel(
            template="cuda/dense_fp8_gemv.cu.j2",
            constants=constants,
            options={**cuda.OPTIONS, "ctas_per_unit": row.ctas, "dynamic_lds_bytes": 0},
            pattern=CodePattern(matrix=(), at_least=0, fp32_fma=16 * row.rows),
        ),
        geometry=geometry,
        estimate=wave.estimate if row.rank < LAST else _no_estimate,
        proofs=gemv_proofs,
        note=f"{row.rows} weight rows a CTA, {row.warps} warps share k, fp32 FMA",
    )


TACTICS = tuple(
    _tactic(row, ascending=ascending, dependent=dependent)
    for row in (*ROWS, *FIXED_ORDER_ROWS)
    for ascending in (False, True)[: 1 + (row in ROWS)]
    for dependent in (False, True)
    if not (row.rows == 8 and ascending and dependent)  # spills: all three want registers
)
