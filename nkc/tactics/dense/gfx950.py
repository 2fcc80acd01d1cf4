"""dense on gfx950: fp8 MFMA tiles by Triton. One 16x16x128 MFMA adds one scale block, promoted by one fma.

One MFMA shape for all of them: a 32x32x64 tile rounds twice a block, and would be another numerical rule's bits.
Ranks follow a cost model of the compiled loops, not a measurement: nobody has run these on the chip.
"""

from typing import NamedTuple

from nkc.ir.contract import Accumulate, Combine, Triple
from nkc.tactics.dense.kernel import constants
from nkc.tactics.dense.plan import lower, schedule
from nkc.tactics.dense.proofs import fp8_proofs
from nkc.tactics.dense.requirements import fp8_block_scaled
from nkc.tactics.predicate import OffsetUnit
from nkc.tactics.tactic import CodePattern, Guarantees, Kernel, Tactic


class Row(NamedTuple):
    """One tile. waves_per_eu 0 leaves the register budget to the compiler; 1 allows one wave a SIMD all of it."""

    rank: int
    tile: Triple
    waves: int
    stages: int
    waves_per_eu: int
    max_m: int | None
    note: str


ROWS = (
    Row(10, (16, 64, 128), 2, 3, 0, 16, "small workgroups, five a compute unit, fill the memory queues"),
    Row(20, (16, 128, 128), 4, 2, 0, 16, "half the workgroups of 16x64"),
    Row(30, (16, 64, 256), 2, 2, 0, 16, "two scale blocks an iteration, half the barriers"),
    Row(40, (32, 64, 128), 4, 2, 0, 32, "six workgroups a compute unit"),
    Row(50, (64, 64, 128), 4, 2, 0, 256, "four workgroups a compute unit hide latency"),
    Row(60, (64, 128, 128), 4, 2, 1, 256, "for wide N; the whole register budget keeps promotion unpacked"),
    Row(70, (128, 128, 128), 4, 3, 0, 256, "deep pipeline for grids of one wave"),
    Row(80, (128, 128, 128), 4, 2, 1, None, "two workgroups a compute unit hide promotion"),
    Row(90, (256, 128, 128), 8, 3, 0, None, "fewest bytes a result where latency is long"),
    Row(100, (128, 256, 128), 8, 3, 0, None, "the same, along N"),
)

GUARANTEES = Guarantees(
    accumulate=Accumulate.MATRIX_UNIT_FP32, combine=Combine.ASCENDING, deterministic=True, graph_capture=True
)


def _lds_bytes(row: Row) -> int:
    """Return the least LDS in bytes: every stage holds one A and one B tile of 1-byte elements."""
    tile_m, tile_n, tile_k = row.tile
    return row.stages * (tile_m + tile_n) * tile_k


def _tactic(row: Row) -> Tactic:
    tile_m, tile_n, tile_k = row.tile
    return Tactic(
        name=f"gfx950.dense.fp8_mfma_{tile_m}x{tile_n}x{tile_k}_s{row.stages}",
        operation="dense",
        target="gfx950",
        rank=row.rank,
        requires=fp8_block_scaled(
            tile=row.tile,
            max_m=row.max_m,
            lds_bytes=_lds_bytes(row),
            accumulate=Accumulate.MATRIX_UNIT_FP32,
            combine=Combine.ASCENDING,
            offsets=OffsetUnit.BYTES,
        ),
        guarantees=GUARANTEES,
        schedule=schedule(row.tile, waves=row.waves, stages=row.stages),
        lower=lower,
        kernel=Kernel(
            template="triton/dense_fp8_block.py.j2",
            constants=constants,
            options={
                "enable_fp_fusion": False,
                "matrix_instr_nonkdim": 16,
                "num_stages": 2,  # the loop's own tl.range(num_stages=) decides
                "num_warps": row.waves,
                "waves_per_eu": row.waves_per_eu,
            },
            pattern=CodePattern(matrix=("v_mfma_f32_16x16x128_f8f6f4",)),
            pointer_range_bits=32,
        ),
        proofs=fp8_proofs,
        note=row.note,
    )


TACTICS = tuple(_tactic(row) for row in ROWS)
