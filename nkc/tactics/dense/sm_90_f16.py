"""dense on sm_90, exact products: e4m3 converted to f16 without loss, the f16 tensor core, ascending blocks.

The f16 unit keeps 23 bits where the FP8 unit keeps 13, at half its rate. Converting is what costs: a tile of B is
converted once, by warps of its own, for all rows of a tile; rows of A are converted by the warps that multiply them.
Shared memory's traffic is the limit, and the more rows share a tile of B, the less of it there is.
"""

from collections.abc import Mapping
from enum import StrEnum
from functools import partial
from math import gcd
from typing import NamedTuple

from nkc.ir import operations, targets
from nkc.ir.contract import Accumulate, Bounded, Combine, Contract, DType
from nkc.ir.launch import TensorMap
from nkc.tactics import cuda
from nkc.tactics.addressing import OffsetUnit, offsets_fit_int32
from nkc.tactics.dense import wave
from nkc.tactics.dense.kernel import GROUP_M, symbol
from nkc.tactics.dense.plan import ceil_div, lower_persistent, schedule, tile_of, tiles
from nkc.tactics.dense.proofs import tma_proofs
from nkc.tactics.dense.tma import (
    BEFORE_THE_WAIT,
    BLOCK_K,
    activation_scales,
    dependent_launch,
    scales_by_tma,
    tile_maps,
    tiled_requirements,
)
from nkc.tactics.hardware import LdsFits
from nkc.tactics.predicate import Predicate, Serves
from nkc.tactics.tactic import DEPENDENT, CodePattern, Guarantees, Kernel, Tactic

GROUPS = 2
"""Warpgroups that multiply; each takes 64 rows at once."""

CONVERTERS = 3
"""Warps that convert B: those beside the one that copies."""

BUFFERS = 2
"""Converted tiles of B: one is read by products while the next is written."""

_BARRIER_BYTES = 8
_F16_BYTES = 2
_WEIGHT_SCALES_BYTES = 32  # room for those of 8 groups of columns


class Turns(StrEnum):
    """When a warpgroup hands the tensor cores to the other, so that one converts while the other multiplies.

    Left alone they fall into step: both multiply, each at half the rate, and both convert.
    """

    NONE = ""
    ISSUED = "issued"
    HALF = "half"  # of its products are done


class Row(NamedTuple):
    """One tile. early: codes of the next rows are read under running products. dependent: launch so gains, too."""

    rank: int
    tile_m: int
    tile_n: int
    early: bool = False
    turns: Turns = Turns.NONE
    dependent: bool = False


ROWS = (
    Row(202, 256, 128, turns=Turns.HALF),
    Row(203, 256, 64, early=True, turns=Turns.HALF, dependent=True),
    Row(204, 128, 192),
    Row(205, 128, 64, early=True, turns=Turns.ISSUED, dependent=True),
)


def _stage_bytes(row: Row) -> int:
    """Return a stage's bytes: a tile of A, one of B, and a scale for each row."""
    return (row.tile_m + row.tile_n) * BLOCK_K + row.tile_m * DType.FP32.size_bytes


def _f16_bytes(row: Row) -> int:
    """Return the bytes of the converted tiles, each with its weight scales and two barriers."""
    return BUFFERS * (row.tile_n * BLOCK_K * _F16_BYTES + _WEIGHT_SCALES_BYTES + 2 * _BARRIER_BYTES)


def _stages(row: Row) -> int:
    """Return the stages that fit beside the converted tiles, with two barriers each."""
    room = targets.get("sm_90").lds_bytes - _f16_bytes(row)
    return min(room // (_stage_bytes(row) + 2 * _BARRIER_BYTES), 8)


def _lds_bytes(row: Row) -> int:
    return _stages(row) * (_stage_bytes(row) + 2 * _BARRIER_BYTES) + _f16_bytes(row)


def tensor_maps(contract: Contract, tactic: Tactic, *, row: Row) -> Mapping[str, TensorMap]:
    """Return the maps: 128-byte swizzled tiles, and M-major scales."""
    del tactic
    return tile_maps(contract, row.tile_m, row.tile_n)


def constants(contract: Contract, tactic: Tactic, *, row: Row) -> Mapping[str, object]:
    """Return the template's constants."""
    assert contract.launch is not None
    assert contract.launch.grid is not None
    tile_m, tile_n, _ = tile_of(tactic)
    n, m = contract.exact("n"), contract.shape["m"]
    stages, by_tma = _stages(row), scales_by_tma(contract)
    _, n_tiles = tiles(contract, tactic)
    sums = tile_n // 2
    scale_width = gcd(tile_n, BLOCK_K)  # n0 is a multiple of it, so that its columns have one scale row
    at_b = stages * tile_m * BLOCK_K
    at_f16 = at_b + stages * tile_n * BLOCK_K
    many = 232 if tile_m * tile_n > 128 * 128 else 208
    at_scales = at_f16 + BUFFERS * tile_n * BLOCK_K * _F16_BYTES
    at_weights = at_scales + stages * tile_m * DType.FP32.size_bytes
    return {
        "symbol": symbol(contract, tactic),
        "parameters": cuda.parameters(contract, tactic),
        "maps": sorted(tensor_maps(contract, tactic, row=row)),
        "m": "m" if isinstance(m, Bounded) else str(m),
        "n": n,
        "tile_m": tile_m,
        "tile_n": tile_n,
        "stages": stages,
        "buffers": BUFFERS,
        "converters": CONVERTERS,
        "items": tile_n // 16,
        "held_items": 1 if many > 208 else ceil_div(tile_n // 16, CONVERTERS),
        "turns": row.turns.value,
        "parts": tile_m // (64 * GROUPS),
        "early": row.early,
        "walkers": contract.launch.grid[0],
        "column_tiles": n_tiles,
        "group_m": GROUP_M,
        "k_blocks": contract.exact("k") // BLOCK_K,
        "last_scale_row": ceil_div(n, BLOCK_K) - 1,
        "scale_width": scale_width,
        "scale_columns": tile_n // scale_width,
        "sums": sums,
        "accumulators": list(range(sums)),
        "a_bytes": tile_m * BLOCK_K,
        "b_bytes": tile_n * BLOCK_K,
        "stage_bytes": _stage_bytes(row) - (0 if by_tma else tile_m * DType.FP32.size_bytes),
        "scale_rows": ceil_div(tile_m, CONVERTERS * 32),
        "releases": 4 * GROUPS + CONVERTERS,
        "at_b": at_b,
        "at_f16": at_f16,
        "at_scales": at_scales,
        "at_weights": at_weights,
        "at_barriers": at_weights + BUFFERS * _WEIGHT_SCALES_BYTES,
        "few_registers": 504 - 2 * many,
        "many_registers": many,
        "bf16": contract.dtypes["out"] is DType.BF16,
        **activation_scales(contract),
        **dependent_launch(contract, tactic),
        **cuda.finish(contract, column="column"),
    }


def _requires(row: Row, *, dependent: bool) -> tuple[Predicate, ...]:
    return (
        *tiled_requirements(),
        Serves("$.numerics.accumulate", Accumulate.MATRIX_UNIT_FP32),
        Serves("$.numerics.combine", Combine.ASCENDING),
        *(offsets_fit_int32(operations.get("dense").operand(name), OffsetUnit.ELEMENTS) for name in ("a", "b", "out")),
        LdsFits(_lds_bytes(row)),
        *([BEFORE_THE_WAIT] if dependent else []),
    )


def _tactic(row: Row, *, dependent: bool) -> Tactic:
    stages = _stages(row)
    detail = "_early" * row.early + DEPENDENT * dependent
    return Tactic(
        name=f"sm_90.dense.fp8_f16_{row.tile_m}x{row.tile_n}x{BLOCK_K}_s{stages}{detail}",
        operation="dense",
        target="sm_90",
        rank=row.rank,
        requires=_requires(row, dependent=dependent),
        guarantees=Guarantees(
            accumulate=Accumulate.MATRIX_UNIT_FP32,
            combine=Combine.ASCENDING,
            deterministic=True,
            graph_capture=True,
        ),
        schedule=schedule((row.tile_m, row.tile_n, BLOCK_K), waves=4 * (1 + GROUPS), stages=stages),
        lower=lower_persistent,
        kernel=Kernel(
            template="cuda/dense_fp8_f16.cu.j2",
            constants=partial(constants, row=row),
            options={**cuda.OPTIONS, "dynamic_lds_bytes": _lds_bytes(row)},
            pattern=CodePattern(matrix=("HGMMA",)),
            tensor_maps=partial(tensor_maps, row=row),
        ),
        estimate=wave.estimate,
        proofs=tma_proofs,
        note="persistent, e4m3 as f16, B converted once a tile",
    )


TACTICS = tuple(_tactic(row, dependent=dependent) for row in ROWS for dependent in (False, True)[: 1 + row.dependent])
