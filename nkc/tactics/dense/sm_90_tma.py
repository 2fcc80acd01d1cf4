"""dense on sm_90 for many rows: persistent CTAs, tiles and scales by TMA, the FP8 tensor core, ascending blocks.

One warp copies; its barrier counts the bytes of both tiles and of the activation scales, so that nothing else waits for
memory. Two warpgroups multiply: while one promotes, the other's products run, or (`ahead`) those of its own next block.
"""

from collections.abc import Mapping
from functools import partial
from math import gcd
from typing import Literal, NamedTuple

from nkc.ir import operations, targets
from nkc.ir.contract import Accumulate, Bounded, Combine, Contract, DType
from nkc.ir.launch import TensorMap
from nkc.ir.quantising import GROUP
from nkc.tactics import cuda
from nkc.tactics.addressing import OffsetUnit, offsets_fit_int32
from nkc.tactics.dense import wave
from nkc.tactics.dense.codes import CODES, DECIDING_FILES, ROW_LANES, placed
from nkc.tactics.dense.codes_proofs import codes_proofs
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

GROUP_ROWS = 64
"""Rows that a warpgroup multiplies at once."""

_BARRIER_BYTES = 8
_RESULT_BYTES = DType.BF16.size_bytes
_MAX_PIECE = 64  # columns of bf16 that one swizzled row of shared memory holds
_SWIZZLES: dict[int, Literal[32, 64, 128]] = {16: 32, 32: 64, 64: 128}


class Row(NamedTuple):
    """One tile. cluster: CTAs that share a tile of A. ahead: products of the next block run under a promotion. codes:
    it quantises, and no piece of the result waits in shared memory.

    Ranks are those of tiles without an estimate; which tile fills whole rounds decides, and `wave` tells that.
    """

    rank: int
    tile_m: int
    tile_n: int
    cluster: int = 1
    ahead: bool = False
    codes: bool = False


ROWS = (
    Row(62, 128, 128, ahead=True),
    Row(63, 128, 192),
    Row(64, 256, 128, cluster=2),
    Row(65, 128, 160),
    Row(66, 128, 64, ahead=True),
    Row(62, 128, GROUP, ahead=True, codes=True),
    Row(64, 256, GROUP, cluster=2, codes=True),
)


def _groups(row: Row) -> int:
    """Return how many warpgroups multiply."""
    return 1 if row.tile_m == GROUP_ROWS else 2


def _piece(row: Row) -> int:
    """Return the columns of a piece of the result: the most that a swizzled row holds and that divide the tile."""
    return gcd(row.tile_n, _MAX_PIECE)


def _stage_bytes(row: Row) -> int:
    """Return a stage's bytes: a tile of A, one of B, and a scale for each row."""
    return (row.tile_m + row.tile_n) * BLOCK_K + row.tile_m * DType.FP32.size_bytes


def _result_bytes(row: Row) -> int:
    """Return the bytes of the pieces of a tile's result."""
    return 0 if row.codes else row.tile_m * row.tile_n * _RESULT_BYTES


def _stages(row: Row) -> int:
    """Return the stages that fit beside the pieces of the result and two barriers each."""
    room = targets.get("sm_90").lds_bytes - _result_bytes(row)
    return room // (_stage_bytes(row) + 2 * _BARRIER_BYTES)


def _lds_bytes(row: Row) -> int:
    return _stages(row) * (_stage_bytes(row) + 2 * _BARRIER_BYTES) + _result_bytes(row)


def tensor_maps(contract: Contract, tactic: Tactic, *, row: Row) -> Mapping[str, TensorMap]:
    """Return the maps: 128-byte swizzled tiles, of which a CTA of a pair copies half of A; scales; bf16 pieces."""
    del tactic
    maps = tile_maps(contract, row.tile_m, row.tile_n, cluster=row.cluster)
    if contract.dtypes["out"] is DType.BF16:
        piece = _piece(row)
        maps["out"] = TensorMap(box=(GROUP_ROWS, piece), swizzle_bytes=_SWIZZLES[piece])
    return maps


def constants(contract: Contract, tactic: Tactic, *, row: Row) -> Mapping[str, object]:
    """Return the template's constants."""
    assert contract.launch is not None
    assert contract.launch.grid is not None
    tile_m, tile_n, _ = tile_of(tactic)
    n, m = contract.exact("n"), contract.shape["m"]
    stages, groups, piece = _stages(row), _groups(row), _piece(row)
    _, n_tiles = tiles(contract, tactic)
    sums = tile_n // 2
    two = BLOCK_K % tile_n != 0 and tile_n % BLOCK_K != 0
    scale_width = gcd(tile_n, BLOCK_K) if two else tile_n
    at_b = stages * tile_m * BLOCK_K
    at_pieces = at_b + stages * tile_n * BLOCK_K
    at_scales = at_pieces + _result_bytes(row)
    maps, by_tma = tensor_maps(contract, tactic, row=row), scales_by_tma(contract)
    return {
        "symbol": symbol(contract, tactic),
        "parameters": cuda.parameters(contract, tactic),
        "maps": sorted(maps),
        "m": "m" if isinstance(m, Bounded) else str(m),
        "n": n,
        "tile_m": tile_m,
        "tile_n": tile_n,
        "stages": stages,
        "groups": groups,
        "parts": tile_m // (GROUP_ROWS * groups),
        "threads": 128 * (1 + groups),
        "cluster": row.cluster,
        "walkers": contract.launch.grid[0] // row.cluster,
        "column_tiles": ceil_div(n_tiles, row.cluster),
        "group_m": GROUP_M,
        "k_blocks": contract.exact("k") // BLOCK_K,
        "last_scale_row": ceil_div(n, BLOCK_K) - 1,
        "ahead": row.ahead,
        "two_scale_rows": two,
        "scale_width": scale_width,
        "scale_columns": tile_n // scale_width,
        "sums": sums,
        "accumulators": list(range(sums)),
        "operand_a": sums,
        "operand_b": sums + 1,
        "keep": sums + 2,
        "a_bytes": tile_m * BLOCK_K,
        "b_bytes": tile_n * BLOCK_K,
        "stage_bytes": _stage_bytes(row) - (0 if by_tma else tile_m * DType.FP32.size_bytes),
        "releases": 4 * groups * row.cluster,
        "at_b": at_b,
        "at_pieces": at_pieces,
        "at_scales": at_scales,
        "at_barriers": at_scales + stages * tile_m * DType.FP32.size_bytes,
        "piece": piece if "out" in maps else 0,
        "pieces": tile_n // piece,
        "pieces_bytes": tile_m // groups * tile_n * _RESULT_BYTES,
        "swizzle_rows": _MAX_PIECE // piece,
        **activation_scales(contract),
        **dependent_launch(contract, tactic),
        **cuda.finish(contract, column="column"),
        "row_values": tile_n // ROW_LANES,
        "lanes": ROW_LANES,
        **placed(contract, row="out_row", group=f"(n0 / {GROUP})"),
    }


def _requires(row: Row, *, dependent: bool) -> tuple[Predicate, ...]:
    return (
        *tiled_requirements(codes=row.codes),
        Serves("$.numerics.accumulate", Accumulate.TENSOR_CORE_FP8),
        Serves("$.numerics.combine", Combine.ASCENDING),
        *(offsets_fit_int32(operations.get("dense").operand(name), OffsetUnit.ELEMENTS) for name in ("a", "b", "out")),
        LdsFits(_lds_bytes(row)),
        *([BEFORE_THE_WAIT] if dependent else []),
    )


def _tactic(row: Row, *, dependent: bool) -> Tactic:
    stages = _stages(row)
    detail = "_pair" * (row.cluster == 2) + "_ahead" * row.ahead + DEPENDENT * dependent
    return Tactic(
        name=f"sm_90.dense.fp8_tma{CODES * row.codes}_{row.tile_m}x{row.tile_n}x{BLOCK_K}_s{stages}{detail}",
        operation="dense",
        target="sm_90",
        rank=row.rank,
        requires=_requires(row, dependent=dependent),
        guarantees=Guarantees(
            accumulate=Accumulate.TENSOR_CORE_FP8,
            combine=Combine.ASCENDING,
            deterministic=True,
            graph_capture=True,
        ),
        schedule=schedule((row.tile_m, row.tile_n, BLOCK_K), waves=4 * (1 + _groups(row)), stages=stages),
        lower=partial(lower_persistent, cluster=(1, row.cluster)),
        kernel=Kernel(
            template="cuda/dense_fp8_tma.cu.j2",
            constants=partial(constants, row=row),
            options={**cuda.OPTIONS, "dynamic_lds_bytes": _lds_bytes(row)},
            pattern=CodePattern(matrix=("QGMMA",)),
            tensor_maps=partial(tensor_maps, row=row),
            decided_by=DECIDING_FILES if row.codes else (),
        ),
        estimate=wave.estimate,
        proofs=codes_proofs if row.codes else tma_proofs,
        note="persistent, tiles and scales by TMA" + ", whole rows of a tile become codes" * row.codes,
    )


TACTICS = tuple(
    _tactic(row, dependent=dependent)
    for row in ROWS
    for dependent in (False, True)[: 1 + (row.codes or not row.ahead)]  # with products ahead it loses on an H200
)
