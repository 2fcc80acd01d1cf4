"""dense on gfx950: MFMA tiles by Triton, fp8 with block scales and plain bf16.

fp8: one 16x16x128 MFMA adds one scale block, promoted by one fma. One MFMA shape for all of them: a 32x32x64 tile
rounds twice a block, and would be another numerical rule's bits. Ranks follow a cost model of the compiled loops, not
a measurement: nobody has run these on the chip.
"""

from functools import partial
from typing import NamedTuple

from nkc.ir.contract import Accumulate, Triple
from nkc.tactics.addressing import OffsetUnit
from nkc.tactics.dense.tile import Tile, bf16_tactic, fp8_tactic

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

CODES_ROWS = (
    Row(4, (16, 128, 128), 4, 2, 0, 16, "eight pieces of k a tile", 8),
    Row(6, (16, 128, 128), 4, 2, 0, 16, "four pieces of k a tile", 4),
    Row(20, (16, 128, 128), 4, 2, 0, 16, "whole rows of a group in four waves"),
    Row(60, (64, 128, 128), 4, 2, 1, 256, "the whole register budget keeps promotion unpacked"),
    Row(80, (128, 128, 128), 4, 2, 1, None, "two workgroups a compute unit hide promotion"),
)
"""Tiles as wide as a group, whose results become codes."""

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

BF16_CODES_ROWS = (
    Row(20, (16, 128, 64), 4, 2, 0, 16, "whole rows of a group in four waves"),
    Row(40, (32, 128, 64), 4, 2, 0, None, "the largest that keeps its groups in registers"),
)


def _tile(kind: str, row: Row, *, element_bytes: int, matrix: str, codes: bool = False) -> Tile:
    tile_m, tile_n, tile_k = row.tile
    return Tile(
        target="gfx950",
        kind=kind,
        detail=f"s{row.stages}",
        rank=row.rank,
        size=row.tile,
        waves=row.waves,
        stages=row.stages,
        accumulate=Accumulate.MATRIX_UNIT_FP32,
        lds_bytes=row.stages * (tile_m + tile_n) * tile_k * element_bytes,  # every stage holds one A and one B tile
        offsets=OffsetUnit.BYTES,
        options={
            "enable_fp_fusion": False,
            "matrix_instr_nonkdim": 16,
            "num_stages": 2,  # the loop's own tl.range(num_stages=) decides
            "num_warps": row.waves,
            "waves_per_eu": row.waves_per_eu,
        },
        matrix=matrix,
        max_m=row.max_m,
        min_k=row.min_k,
        split_k=row.split_k,
        pointer_range_bits=32,
        note=row.note,
        codes=codes,
    )


_BF16 = partial(_tile, "bf16_mfma", element_bytes=2, matrix="v_mfma_f32_16x16x32_bf16")
_FP8 = partial(_tile, "fp8_mfma", element_bytes=1, matrix="v_mfma_f32_16x16x128_f8f6f4")

TACTICS = (
    *(fp8_tactic(_FP8(row)) for row in FP8_ROWS),
    *(fp8_tactic(_FP8(row, codes=True)) for row in CODES_ROWS),
    *(bf16_tactic(_BF16(row)) for row in BF16_ROWS),
    *(bf16_tactic(_BF16(row, codes=True)) for row in BF16_CODES_ROWS),
)
