"""dense on sm_90 for a few score rows: one tile a CTA, and where units would idle, k split over a cluster of them.

What bounds such a kernel is what a unit takes in: (tile_m + tile_n) bytes for each element of k. A split along k gives
wider tiles to as many units, so that activations are read again less often than by narrow tiles; the parts are added
through distributed shared memory, in ascending order, within the one launch.
"""

from collections.abc import Mapping
from functools import partial
from math import gcd
from typing import NamedTuple

from nkc.ir import operations, targets
from nkc.ir.contract import Accumulate, Bounded, Combine, Contract, DType
from nkc.ir.launch import TensorMap
from nkc.ir.quantising import GROUP
from nkc.tactics import cuda
from nkc.tactics.addressing import OffsetUnit, offsets_fit_int32
from nkc.tactics.dense import wave
from nkc.tactics.dense.codes import CODES, DECIDING_FILES, ROW_LANES, placed
from nkc.tactics.dense.codes_proofs import codes_proofs
from nkc.tactics.dense.kernel import symbol
from nkc.tactics.dense.plan import ceil_div, lower_cluster, schedule, tile_of, tiles
from nkc.tactics.dense.proofs import cluster_proofs
from nkc.tactics.dense.tma import BLOCK_K, activation_scales, scales_by_tma, tile_maps, tiled_requirements
from nkc.tactics.hardware import LdsFits
from nkc.tactics.predicate import AtLeast, ConstantOperands, Predicate, Serves, at_most
from nkc.tactics.tactic import DEPENDENT, CodePattern, Guarantees, Kernel, Tactic

_BARRIER_BYTES = 8
_RESERVED_BYTES = 1024  # of shared memory, for each CTA of a unit, by the system
_MAX_STAGES = 16
_PIECE_BYTES = 512
"""Four sums of each lane of a warp."""
_PEAKS_BYTES = 64
"""An fp32 for each of the 16 rows of a warp."""


class Row(NamedTuple):
    """One tile. split: parts of k. ctas: of a unit, for its shared memory and registers. codes: it quantises.

    A tile of 128 rows has two warpgroups.
    """

    rank: int
    tile_m: int
    tile_n: int
    split: int
    ctas: int = 1
    codes: bool = False

    @property
    def groups(self) -> int:
        """Warpgroups that multiply, 64 rows each."""
        return self.tile_m // 64

    @property
    def fewer_registers(self) -> bool:
        """Whether the warps that do not multiply leave their registers to those that do."""
        return self.groups == 2 and self.tile_n > 64

    @property
    def ahead(self) -> bool:
        """Whether the products of the next block run under a promotion."""
        return self.tile_n <= (128 if self.fewer_registers or self.ctas == 1 else 64)

    @property
    def detail(self) -> str:
        """What a name says beside the tile."""
        split, ctas = f"_k{self.split}" * (self.split > 1), f"_o{self.ctas}" * (self.ctas > 1)
        return f"s{self.stages}{split}{ctas}"

    @property
    def threads(self) -> int:
        """Those that multiply, and a warp, or a warpgroup where registers are passed on."""
        return 128 * self.groups + (128 if self.fewer_registers else 32)

    @property
    def stage_bytes(self) -> int:
        """A tile of A, one of B, and a scale for each row."""
        return (self.tile_m + self.tile_n) * BLOCK_K + self.tile_m * DType.FP32.size_bytes

    @property
    def sums_bytes(self) -> int:
        """The slices of all parts; none without a split."""
        return self.tile_m * self.tile_n * DType.FP32.size_bytes if self.split > 1 else 0

    @property
    def peaks_bytes(self) -> int:
        """The largest of each row of each warp, where warps share rows whose results become codes."""
        return _PEAKS_BYTES * 4 * self.groups if self.codes and self.split > 1 else 0

    @property
    def apart(self) -> bool:
        """Whether slices have their own place, and not that of the stages."""
        return self.ctas == 1

    @property
    def stages(self) -> int:
        """As many as fit where a unit has so many CTAs."""
        limit = targets.get("sm_90").lds_bytes
        beside = _BARRIER_BYTES + self.apart * self.sums_bytes + self.peaks_bytes
        room = (limit + _RESERVED_BYTES) // self.ctas - _RESERVED_BYTES - beside
        return min(room // (self.stage_bytes + 2 * _BARRIER_BYTES), _MAX_STAGES)

    @property
    def lds_bytes(self) -> int:
        """Stages with two barriers each, slices, one barrier for them, and what is largest in rows."""
        stages = self.stages * (self.stage_bytes + 2 * _BARRIER_BYTES)
        return stages + _BARRIER_BYTES + self.apart * self.sums_bytes + self.peaks_bytes


MOST_DEPENDENT_ROWS = 64
"""Of a tile of codes: above, the time that dependent launch saves is a small part of what they take."""

NEVER_AHEAD = ((64, 96, 1, 3),)
"""Tiles that launched dependent were never ahead of the fastest that is not, and up to 12 % behind themselves."""

ROWS = tuple(
    Row(62, tile_m, tile_n, split, ctas)
    for tile_m, tile_n, split, ctas in (
        (64, 32, 1, 2),
        (64, 32, 2, 1),
        (64, 32, 4, 1),
        (64, 64, 1, 2),
        (64, 64, 1, 3),
        (64, 64, 2, 2),
        (64, 96, 1, 3),
        (64, 128, 1, 2),
        (128, 32, 2, 1),
        (128, 48, 1, 1),
        (128, 64, 1, 1),
        (128, 64, 2, 1),
        (128, 96, 2, 1),
        (128, 128, 1, 1),
        (128, 128, 2, 1),
    )
)
"""Each was the fastest of 45 somewhere on an H200: 11 shapes at 64, 128 and 512 rows, and a few of other n and k."""

CODES_ROWS = tuple(
    Row(62, tile_m, GROUP, split, ctas, codes=True)
    for tile_m, split, ctas in ((64, 1, 2), (64, 2, 1), (64, 2, 2), (128, 1, 1))
)
"""Tiles as wide as a group. With four parts of k, or two of 128 rows, nothing was faster on an H200 (three shapes)."""


def tensor_maps(contract: Contract, tactic: Tactic, *, row: Row) -> Mapping[str, TensorMap]:
    """Return the maps: 128-byte swizzled tiles, and scales where TMA can copy them."""
    del tactic
    return tile_maps(contract, row.tile_m, row.tile_n)


def constants(contract: Contract, tactic: Tactic, *, row: Row) -> Mapping[str, object]:
    """Return the template's constants."""
    tile_m, tile_n, _ = tile_of(tactic)
    n, m, stages = contract.exact("n"), contract.shape["m"], row.stages
    sums = tile_n // 2
    chunks = sums // 4 // row.split
    two = BLOCK_K % tile_n != 0
    scale_width = gcd(tile_n, BLOCK_K) if two else tile_n
    at_b = stages * tile_m * BLOCK_K
    at_slices = at_b + stages * tile_n * BLOCK_K
    at_scales = at_slices + row.apart * row.sums_bytes
    scale_bytes = tile_m * DType.FP32.size_bytes
    by_tma = scales_by_tma(contract)
    return {
        "symbol": symbol(contract, tactic),
        "parameters": cuda.parameters(contract, tactic),
        "maps": sorted(tensor_maps(contract, tactic, row=row)),
        "m": "m" if isinstance(m, Bounded) else str(m),
        "bounded": isinstance(m, Bounded),
        "n": n,
        "tile_m": tile_m,
        "tile_n": tile_n,
        "split": row.split,
        "stages": stages,
        "groups": row.groups,
        "threads": row.threads,
        "ctas_per_unit": row.ctas,
        "fewer_registers": row.fewer_registers,
        "row_tiles": tiles(contract, tactic)[0],
        "k_blocks": contract.exact("k") // BLOCK_K,
        "last_scale_row": ceil_div(n, BLOCK_K) - 1,
        "ahead": row.ahead,
        "guarded_release": by_tma and not row.ahead,
        "dependent": tactic.dependent,
        "apart": row.apart,
        "streamed": tiles(contract, tactic)[0] <= 2,
        "two_scale_rows": two,
        "scale_width": scale_width,
        "scale_columns": tile_n // scale_width,
        "sums": sums,
        "slice_chunks": chunks,
        "slice_bytes": row.sums_bytes // row.split,
        "quad": gcd(chunks, 4),
        "quad_steps": (1, 2),
        "accumulators": list(range(sums)),
        "operand_a": sums,
        "operand_b": sums + 1,
        "keep": sums + 2,
        "a_bytes": tile_m * BLOCK_K,
        "b_bytes": tile_n * BLOCK_K,
        "scale_bytes": scale_bytes,
        "stage_bytes": row.stage_bytes if by_tma else row.stage_bytes - scale_bytes,
        "at_b": at_b,
        "at_slices": at_slices if row.apart else 0,
        "at_scales": at_scales,
        "at_barriers": at_scales + stages * scale_bytes,
        "out_bf16": contract.dtypes["out"] is DType.BF16,
        "slice_warps": 4 * row.groups // row.split,
        "warp_bytes": sums // 4 * _PIECE_BYTES,
        "row_values": tile_n // row.split // ROW_LANES,
        "lanes": ROW_LANES,
        **placed(contract, row="out_row", group=f"(n0 / {GROUP})"),
        **activation_scales(contract),
        **cuda.finish(contract, column="at"),
    }


def _requires(row: Row, *, dependent: bool) -> tuple[Predicate, ...]:
    return (
        *tiled_requirements(codes=row.codes),
        Serves("$.numerics.accumulate", Accumulate.TENSOR_CORE_FP8),
        Serves("$.numerics.combine", Combine.ASCENDING if row.split == 1 else Combine.FIXED_ORDER),
        at_most("$.shape.m", 64 * row.tile_m, why="more rows want persistent tiles"),
        *(
            (AtLeast("$.shape.k", row.split * BLOCK_K, why=f"every one of {row.split} parts adds something"),)
            if row.split > 1
            else ()
        ),
        *(offsets_fit_int32(operations.get("dense").operand(name), OffsetUnit.ELEMENTS) for name in ("a", "out")),
        LdsFits(row.lds_bytes),
        *([ConstantOperands(("b", "b_scales", "bias"))] if dependent else []),
    )


def _tactic(row: Row, *, dependent: bool) -> Tactic:
    family, tile = f"fp8_wave{CODES * row.codes}", f"{row.tile_m}x{row.tile_n}x{BLOCK_K}"
    return Tactic(
        name=f"sm_90.dense.{family}_{tile}_{row.detail}{DEPENDENT if dependent else ''}",
        operation="dense",
        target="sm_90",
        rank=row.rank,
        requires=_requires(row, dependent=dependent),
        guarantees=Guarantees(
            accumulate=Accumulate.TENSOR_CORE_FP8,
            combine=Combine.ASCENDING if row.split == 1 else Combine.FIXED_ORDER,
            deterministic=True,
            graph_capture=True,
        ),
        schedule=schedule(
            (row.tile_m, row.tile_n, BLOCK_K), waves=row.threads // 32, stages=row.stages, split_k=row.split
        ),
        lower=lower_cluster,
        kernel=Kernel(
            template="cuda/dense_fp8_wave.cu.j2",
            constants=partial(constants, row=row),
            options={**cuda.OPTIONS, "ctas_per_unit": row.ctas, "dynamic_lds_bytes": row.lds_bytes},
            pattern=CodePattern(matrix=("QGMMA",)),
            tensor_maps=partial(tensor_maps, row=row),
            decided_by=DECIDING_FILES if row.codes else (),
        ),
        estimate=wave.estimate,
        crowds=wave.crowds,
        proofs=codes_proofs if row.codes else cluster_proofs,
        note="one tile a CTA, k over a cluster, sums through distributed shared memory"
        + ", whole rows of which become codes" * row.codes,
    )


def _gains_dependent(row: Row) -> bool:
    """Return whether a tile is worth having in the form that is launched dependent, too."""
    few_enough = row.tile_m <= MOST_DEPENDENT_ROWS or not row.codes
    return few_enough and (row.tile_m, row.tile_n, row.split, row.ctas) not in NEVER_AHEAD


TACTICS = tuple(
    _tactic(row, dependent=dependent)
    for row in (*ROWS, *CODES_ROWS)
    for dependent in (False, True)[: 1 + _gains_dependent(row)]
)
