"""dense on sm_90 by Triton: the FP8 tensor core, the exact way through f16, and plain bf16.

From 64 rows an FP8 dot becomes QGMMA, which keeps 13 bits below the largest addend. Converting e4m3 to f16 is exact,
and the f16 unit keeps 23: HGMMA from 64 rows, HMMA below. The object's opcodes say which one it is.
"""

from functools import partial
from typing import NamedTuple

from nkc.ir.contract import Accumulate, Triple
from nkc.tactics.addressing import OffsetUnit
from nkc.tactics.dense.tile import Tile, bf16_tactic, fp8_tactic
from nkc.tactics.tactic import Tactic

WGMMA_ROWS = 64  # the least rows for which Triton emits wgmma

MAX_REGISTERS = 255
"""Registers a thread may take: all of them. Left alone, ptxas saves registers for occupancy and spills at some K and N.

It is not slower either: on an H200 at m=16 (12 tiles of fewer than 64 rows, three shapes, Triton 3.9, graph replay over
copies beyond L2) it was up to 1.31 times faster in 24 of 36 cases, and slower in 6, by 6 % at most.
"""


class Row(NamedTuple):
    """One tile. Ranks follow which tile was fastest on an H200 for its range of m, until a tuning table does."""

    rank: int
    tile: Triple
    waves: int
    stages: int
    max_m: int | None
    accumulate: Accumulate
    split_k: int = 1


_FP8, _EXACT = Accumulate.TENSOR_CORE_FP8, Accumulate.MATRIX_UNIT_FP32

FP8_ROWS = (
    Row(4, (16, 64, 128), 4, 5, 16, _EXACT, 4),
    Row(6, (16, 64, 128), 4, 5, 16, _EXACT, 8),
    Row(10, (16, 32, 128), 4, 6, 16, _EXACT),
    Row(20, (16, 64, 128), 4, 5, 16, _EXACT),
    Row(30, (16, 128, 128), 4, 4, 16, _EXACT),
    Row(36, (64, 64, 128), 4, 4, 64, _FP8, 4),
    Row(40, (64, 32, 128), 4, 6, 64, _FP8),
    Row(50, (64, 64, 128), 4, 6, 256, _FP8),
    Row(60, (64, 64, 128), 4, 4, 256, _FP8),
    Row(70, (64, 128, 128), 8, 4, 512, _FP8),
    Row(80, (64, 128, 128), 4, 3, 512, _FP8),
    Row(90, (128, 128, 128), 8, 3, None, _FP8),
    Row(100, (128, 64, 128), 8, 4, None, _FP8),
    Row(110, (128, 128, 128), 8, 4, None, _FP8),
    Row(210, (32, 32, 128), 4, 6, 64, _EXACT),
    Row(220, (32, 64, 128), 4, 5, 64, _EXACT),
    Row(230, (64, 64, 128), 4, 4, 256, _EXACT),
    Row(240, (64, 128, 128), 8, 3, None, _EXACT),
    Row(250, (128, 128, 128), 8, 3, None, _EXACT),
)

CODES_ROWS = (
    Row(6, (16, 128, 128), 4, 4, 16, _EXACT, 4),
    Row(30, (16, 128, 128), 4, 4, 16, _EXACT),
    Row(90, (128, 128, 128), 8, 3, None, _FP8),
    Row(240, (64, 128, 128), 8, 3, None, _EXACT),
    Row(250, (128, 128, 128), 8, 3, None, _EXACT),
)
"""Tiles as wide as a group, whose results become codes."""

BF16_ROWS = (
    Row(4, (16, 32, 128), 4, 4, 16, _EXACT, 4),
    Row(6, (16, 32, 128), 4, 4, 16, _EXACT, 8),
    Row(10, (16, 32, 128), 4, 5, 16, _EXACT),
    Row(20, (16, 64, 64), 4, 6, 16, _EXACT),  # with 128 along k, ptxas 12.9 spills 8 bytes at m = 16
    Row(30, (32, 32, 128), 4, 5, 64, _EXACT),
    Row(40, (64, 32, 128), 4, 5, 256, _EXACT),
    Row(50, (64, 64, 64), 4, 5, 256, _EXACT),
    Row(60, (128, 64, 64), 4, 4, None, _EXACT),
    Row(70, (128, 128, 64), 8, 4, None, _EXACT),
)

BF16_CODES_ROWS = (
    Row(20, (16, 128, 64), 4, 4, 16, _EXACT),
    Row(60, (64, 128, 64), 4, 4, None, _EXACT),
    Row(70, (128, 128, 64), 8, 4, None, _EXACT),
)


def _fp8_lds_bytes(row: Row) -> int:
    """Return the least shared memory in bytes: tiles of every stage, plus B converted to f16 where wgmma reads it."""
    tile_m, tile_n, tile_k = row.tile
    stage = (tile_m + tile_n) * tile_k
    if row.accumulate is _FP8:
        return row.stages * stage
    converted_b = tile_n * tile_k * 2 if tile_m >= WGMMA_ROWS else 0
    return (row.stages - 1) * stage + converted_b


def _bf16_lds_bytes(row: Row) -> int:
    """Return the least shared memory in bytes: tiles of every stage but, with mma.sync, the one in registers."""
    tile_m, tile_n, tile_k = row.tile
    held = row.stages if tile_m >= WGMMA_ROWS else row.stages - 1
    return held * (tile_m + tile_n) * tile_k * 2


def _f16_matrix(row: Row) -> str:
    return "HGMMA" if row.tile[0] >= WGMMA_ROWS else "HMMA"


def _tile(kind: str, row: Row, *, lds_bytes: int, matrix: str, codes: bool = False) -> Tile:
    return Tile(
        target="sm_90",
        kind=kind,
        detail=f"w{row.waves}_s{row.stages}",
        rank=row.rank,
        size=row.tile,
        waves=row.waves,
        stages=row.stages,
        accumulate=row.accumulate,
        lds_bytes=lds_bytes,
        offsets=OffsetUnit.ELEMENTS,
        options={
            "enable_fp_fusion": False,
            "maxnreg": MAX_REGISTERS,
            "num_stages": 3,  # the option's default: the loop's own tl.range(num_stages=) decides
            "num_warps": row.waves,
        },
        matrix=matrix,
        max_m=row.max_m,
        split_k=row.split_k,
        codes=codes,
    )


def _fp8(row: Row, *, codes: bool = False) -> Tactic:
    if row.accumulate is _FP8:
        return fp8_tactic(_tile("fp8_wgmma", row, lds_bytes=_fp8_lds_bytes(row), matrix="QGMMA", codes=codes))
    tile = _tile("fp8_as_f16", row, lds_bytes=_fp8_lds_bytes(row), matrix=_f16_matrix(row), codes=codes)
    return fp8_tactic(tile, convert=".to(tl.float16)")


def _bf16(row: Row, *, codes: bool = False) -> Tactic:
    return bf16_tactic(_tile("bf16", row, lds_bytes=_bf16_lds_bytes(row), matrix=_f16_matrix(row), codes=codes))


TACTICS = (
    *map(_fp8, FP8_ROWS),
    *map(partial(_fp8, codes=True), CODES_ROWS),
    *map(_bf16, BF16_ROWS),
    *map(partial(_bf16, codes=True), BF16_CODES_ROWS),
)
