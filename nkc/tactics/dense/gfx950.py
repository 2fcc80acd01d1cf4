"""dense on gfx950: MFMA tiles by Triton, fp8 with block scales and plain bf16.

fp8: one 16x16x128 MFMA adds one scale block, promoted by one fma. One MFMA shape for all of them: a 32x32x64 tile
rounds twice a block, and would be another numerical rule's bits. Ranks follow a cost model of the compiled loops, not
a measurement: nobody has run these on the chip.
"""

from typing import NamedTuple

from nkc.ir.contract import Accumulate, Combine, Triple
from nkc.tactics.dense.kernel import bf16_constants, fp8_constants
from nkc.tactics.dense.plan import lower, schedule
from nkc.tactics.dense.proofs import bf16_proofs, fp8_proofs
from nkc.tactics.dense.requirements import bf16, fp8_block_scaled
from nkc.tactics.predicate import OffsetUnit
from nkc.tactics.tactic import CodePattern, Guarantees, Kernel, Tactic

WHOLE_LOOPS_BELOW_K = 1024
"""LLVM unrolls a shorter K loop whole. A tile that fills the registers then spills: 60 to 300 registers at K from 512
to 768 for 128x256, none from 896 on (compiled with Triton 3.9). 256x128 spills with a bias at any K: left out."""


class Row(NamedTuple):
    """One tile. waves_per_eu 0 leaves the register budget to the compiler; 1 allows one wave a SIMD all of it."""

    rank: int
    tile: Triple
    waves: int
    stages: int
    waves_per_eu: int
    max_m: int | None
    note: str
    split_k: int = 1
    min_k: int | None = None


FP8_ROWS = (
    Row(4, (16, 64, 128), 2, 3, 0, 16, "eight pieces of k a tile, for grids that leave compute units idle", 8),
    Row(6, (16, 64, 128), 2, 3, 0, 16, "four pieces of k a tile", 4),
    Row(10, (16, 64, 128), 2, 3, 0, 16, "small workgroups, five a compute unit, fill the memory queues"),
    Row(20, (16, 128, 128), 4, 2, 0, 16, "half the workgroups of 16x64"),
    Row(30, (16, 64, 256), 2, 2, 0, 16, "two scale blocks an iteration, half the barriers"),
    Row(40, (32, 64, 128), 4, 2, 0, 32, "six workgroups a compute unit"),
    Row(45, (64, 64, 128), 4, 2, 0, 64, "four pieces of k a tile", 4),
    Row(50, (64, 64, 128), 4, 2, 0, 256, "four workgroups a compute unit hide latency"),
    Row(60, (64, 128, 128), 4, 2, 1, 256, "for wide N; the whole register budget keeps promotion unpacked"),
    Row(70, (128, 128, 128), 4, 3, 0, 256, "deep pipeline for grids of one wave"),
    Row(80, (128, 128, 128), 4, 2, 1, None, "two workgroups a compute unit hide promotion"),
    Row(100, (128, 256, 128), 8, 3, 0, None, "fewest bytes a result where latency is long", min_k=WHOLE_LOOPS_BELOW_K),
)

BF16_ROWS = (
    Row(4, (16, 32, 128), 2, 3, 0, 16, "eight pieces of k a tile, for projections of few columns", 8),
    Row(6, (16, 32, 128), 2, 3, 0, 16, "four pieces of k a tile", 4),
    Row(10, (16, 32, 128), 2, 3, 0, 16, "narrow tiles, so that few columns still fill compute units"),
    Row(20, (16, 64, 128), 4, 2, 0, 16, "half the workgroups of 16x32"),
    Row(30, (32, 32, 128), 4, 2, 0, 64, "narrow tiles"),
    Row(40, (64, 64, 64), 4, 2, 0, 256, "four workgroups a compute unit hide latency"),
    Row(50, (128, 64, 64), 4, 2, 0, None, "for few columns and many rows"),
    Row(60, (128, 128, 64), 4, 2, 1, None, "two workgroups a compute unit"),
)


def _name(kind: str, row: Row) -> str:
    split = f"_k{row.split_k}" if row.split_k > 1 else ""
    return f"gfx950.dense.{kind}_{'x'.join(map(str, row.tile))}_s{row.stages}{split}"


def _lds_bytes(row: Row, element_bytes: int) -> int:
    """Return the least LDS in bytes: every stage holds one A and one B tile."""
    tile_m, tile_n, tile_k = row.tile
    return row.stages * (tile_m + tile_n) * tile_k * element_bytes


def _guarantees(row: Row) -> Guarantees:
    return Guarantees(
        accumulate=Accumulate.MATRIX_UNIT_FP32,
        combine=Combine.ASCENDING if row.split_k == 1 else Combine.FIXED_ORDER,
        deterministic=True,
        graph_capture=True,
    )


def _options(row: Row) -> dict[str, int | bool | str]:
    return {
        "enable_fp_fusion": False,
        "matrix_instr_nonkdim": 16,
        "num_stages": 2,  # the loop's own tl.range(num_stages=) decides
        "num_warps": row.waves,
        "waves_per_eu": row.waves_per_eu,
    }


def _fp8(row: Row) -> Tactic:
    return Tactic(
        name=_name("fp8_mfma", row),
        operation="dense",
        target="gfx950",
        rank=row.rank,
        requires=fp8_block_scaled(
            tile=row.tile,
            max_m=row.max_m,
            lds_bytes=_lds_bytes(row, 1),
            accumulate=Accumulate.MATRIX_UNIT_FP32,
            offsets=OffsetUnit.BYTES,
            split_k=row.split_k,
            min_k=row.min_k,
        ),
        guarantees=_guarantees(row),
        schedule=schedule(row.tile, waves=row.waves, stages=row.stages, split_k=row.split_k),
        lower=lower,
        kernel=Kernel(
            template="triton/dense_fp8_block.py.j2",
            constants=fp8_constants,
            options=_options(row),
            pattern=CodePattern(matrix=("v_mfma_f32_16x16x128_f8f6f4",)),
            pointer_range_bits=32,
        ),
        proofs=fp8_proofs,
        note=row.note,
    )


def _bf16(row: Row) -> Tactic:
    return Tactic(
        name=_name("bf16_mfma", row),
        operation="dense",
        target="gfx950",
        rank=row.rank,
        requires=bf16(
            tile=row.tile,
            max_m=row.max_m,
            lds_bytes=_lds_bytes(row, 2),
            offsets=OffsetUnit.BYTES,
            split_k=row.split_k,
        ),
        guarantees=_guarantees(row),
        schedule=schedule(row.tile, waves=row.waves, stages=row.stages, split_k=row.split_k),
        lower=lower,
        kernel=Kernel(
            template="triton/dense_bf16.py.j2",
            constants=bf16_constants,
            options=_options(row),
            pattern=CodePattern(matrix=("v_mfma_f32_16x16x32_bf16",)),
            pointer_range_bits=32,
        ),
        proofs=bf16_proofs,
        note=row.note,
    )


TACTICS = (*map(_fp8, FP8_ROWS), *map(_bf16, BF16_ROWS))
