"""dense on sm_90 by Triton: the FP8 tensor core, and the exact way through f16.

From 64 rows an FP8 dot becomes QGMMA, which keeps 13 bits below the largest addend. Converting e4m3 to f16 is exact,
and the f16 unit keeps 23: HGMMA from 64 rows, HMMA below. The object's opcodes say which one it is.
"""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from nkc.ir.contract import Accumulate, Combine, Triple
from nkc.tactics.dense.kernel import constants
from nkc.tactics.dense.plan import lower, schedule
from nkc.tactics.dense.proofs import fp8_proofs
from nkc.tactics.dense.requirements import fp8_block_scaled
from nkc.tactics.predicate import OffsetUnit
from nkc.tactics.tactic import CodePattern, Guarantees, Kernel, Tactic

WGMMA_ROWS = 64  # the least rows for which Triton emits wgmma


class Row(NamedTuple):
    """One tile. Ranks follow which tile was fastest on an H200 for its range of m, until a tuning table does."""

    rank: int
    tile: Triple
    waves: int
    stages: int
    max_m: int | None
    accumulate: Accumulate


_FP8, _EXACT = Accumulate.TENSOR_CORE_FP8, Accumulate.MATRIX_UNIT_FP32

ROWS = (
    Row(10, (16, 32, 128), 4, 6, 16, _EXACT),
    Row(20, (16, 64, 128), 4, 5, 16, _EXACT),
    Row(30, (16, 128, 128), 4, 4, 16, _EXACT),
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


def _lds_bytes(row: Row) -> int:
    """Return the least shared memory in bytes: tiles of every stage, plus B converted to f16 where wgmma reads it."""
    tile_m, tile_n, tile_k = row.tile
    stage = (tile_m + tile_n) * tile_k
    if row.accumulate is _FP8:
        return row.stages * stage
    converted_b = tile_n * tile_k * 2 if tile_m >= WGMMA_ROWS else 0
    return (row.stages - 1) * stage + converted_b


def _pattern(row: Row) -> CodePattern:
    if row.accumulate is _FP8:
        return CodePattern(matrix=("QGMMA",))
    return CodePattern(matrix=("HGMMA",) if row.tile[0] >= WGMMA_ROWS else ("HMMA",))


def _options(row: Row) -> Mapping[str, int | bool | str]:
    # num_stages is the option's default: the loop's own tl.range(num_stages=) decides.
    return {"enable_fp_fusion": False, "num_stages": 3, "num_warps": row.waves}


def _tactic(row: Row) -> Tactic:
    tile_m, tile_n, tile_k = row.tile
    unit = "fp8_wgmma" if row.accumulate is _FP8 else "fp8_as_f16"
    convert = "" if row.accumulate is _FP8 else ".to(tl.float16)"
    return Tactic(
        name=f"sm_90.dense.{unit}_{tile_m}x{tile_n}x{tile_k}_w{row.waves}_s{row.stages}",
        operation="dense",
        target="sm_90",
        rank=row.rank,
        requires=fp8_block_scaled(
            tile=row.tile,
            max_m=row.max_m,
            lds_bytes=_lds_bytes(row),
            accumulate=row.accumulate,
            combine=Combine.ASCENDING,
            offsets=OffsetUnit.ELEMENTS,
        ),
        guarantees=Guarantees(
            accumulate=row.accumulate, combine=Combine.ASCENDING, deterministic=True, graph_capture=True
        ),
        schedule=schedule(row.tile, waves=row.waves, stages=row.stages),
        lower=lower,
        kernel=Kernel(
            template="triton/dense_fp8_block.py.j2",
            constants=partial(constants, convert=convert),
            options=_options(row),
            pattern=_pattern(row),
        ),
        proofs=fp8_proofs,
    )


TACTICS = tuple(_tactic(row) for row in ROWS)
