"""dense on sm_90 in bf16 for few tiles: one a CTA, k split over a cluster of them where units would idle.

Two forms of one kernel. `bf16_wave` has activations on wgmma's rows, 64 or 128 of them. `bf16_skinny` has the weights
there and the activations (tokens) on its columns, so that 8 tokens are padded to 8: for few rows, and for many where
there are few weights, since a tile of 64 weight rows and 8 tokens makes eight times as many as one of 64 tokens.
"""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from nkc.ir import targets
from nkc.ir.contract import Accumulate, Bounded, Combine, Contract, DType
from nkc.ir.launch import TensorMap
from nkc.tactics import cuda
from nkc.tactics.dense import wave
from nkc.tactics.dense.kernel import symbol
from nkc.tactics.dense.plan import lower_cluster, schedule, tiles
from nkc.tactics.dense.proofs import bf16_cluster_proofs
from nkc.tactics.dense.sm_90_bf16 import BARRIER_BYTES, SWIZZLED_BYTES, SWIZZLED_K, requirements, store_run, tile_map
from nkc.tactics.predicate import AtLeast, Predicate, at_most
from nkc.tactics.tactic import DEPENDENT, CodePattern, Guarantees, Kernel, Tactic

_RESERVED_BYTES = 1024  # of shared memory, for each CTA of a unit, by the system
_MAX_STAGES = 24
_PIECE_BYTES = 512  # sums that a CTA of a cluster finishes at once, of swapped operands: 16 weight rows x 8 tokens
_MOST_COLUMNS = 168
"""Columns whose sums leave registers enough for the rest where nine warps share them: more pass registers on."""

MOST_ROW_TILES = 64
"""Above, persistent tiles are asked for their operands while another one is stored."""


class Row(NamedTuple):
    """One tile. split: parts of k. ctas: of a unit, for its shared memory. blocks: swizzled tiles along k of a stage.

    swapped: the weights are wgmma's rows.
    """

    tile_m: int
    tile_n: int
    split: int = 1
    ctas: int = 1
    blocks: int = 1
    swapped: bool = False

    @property
    def rows(self) -> int:
        """Of wgmma."""
        return self.tile_n if self.swapped else self.tile_m

    @property
    def columns(self) -> int:
        """Of wgmma."""
        return self.tile_m if self.swapped else self.tile_n

    @property
    def groups(self) -> int:
        """Warpgroups that multiply, 64 rows each."""
        return self.rows // 64

    @property
    def column_groups(self) -> int:
        """Of eight columns."""
        return self.columns // 8

    @property
    def fewer_registers(self) -> bool:
        """Whether the warps that do not multiply leave their registers to those that do."""
        return self.groups == 2 and self.columns > _MOST_COLUMNS

    @property
    def threads(self) -> int:
        """Those that multiply, and a warp, or a warpgroup where registers are passed on."""
        return 128 * self.groups + (128 if self.fewer_registers else 32)

    @property
    def tile_k(self) -> int:
        """Elements along k of a stage."""
        return SWIZZLED_K * self.blocks

    @property
    def stage_bytes(self) -> int:
        """A tile of A and one of B."""
        return (self.tile_m + self.tile_n) * SWIZZLED_BYTES * self.blocks

    @property
    def pieces(self) -> int:
        """Pieces of a swapped tile that one CTA of a cluster finishes."""
        return max(4 * self.groups * self.column_groups // self.split, 1)

    @property
    def parts_bytes(self) -> int:
        """Sums that the CTAs of a cluster send to one: all of them, or all others where operands are swapped."""
        if self.split == 1:
            return 0
        if self.swapped:
            return (self.split - 1) * self.pieces * _PIECE_BYTES
        return self.tile_m * self.tile_n * DType.FP32.size_bytes

    @property
    def apart(self) -> bool:
        """Whether sums of others have their own place, and not that of the stages."""
        return self.ctas == 1 or self.swapped

    @property
    def stages(self) -> int:
        """As many as fit where a unit has so many CTAs."""
        limit = targets.get("sm_90").lds_bytes
        room = (limit + _RESERVED_BYTES) // self.ctas - _RESERVED_BYTES - BARRIER_BYTES - self.apart * self.parts_bytes
        return min(room // (self.stage_bytes + 2 * BARRIER_BYTES), _MAX_STAGES // self.blocks)

    @property
    def lds_bytes(self) -> int:
        """Stages with two barriers each, sums of others, and one barrier for them."""
        stages = self.stages * (self.stage_bytes + 2 * BARRIER_BYTES)
        return stages + BARRIER_BYTES + self.apart * self.parts_bytes

    @property
    def name(self) -> str:
        """The tactic's."""
        family = "skinny" if self.swapped else "wave"
        split, ctas = f"_k{self.split}" * (self.split > 1), f"_o{self.ctas}" * (self.ctas > 1)
        return f"sm_90.dense.bf16_{family}_{self.tile_m}x{self.tile_n}x{self.tile_k}_s{self.stages}{split}{ctas}"


ROWS = (
    *(
        Row(tile_m, tile_n, split, ctas, blocks)
        for tile_m, tile_n, split, ctas, blocks in (
            (64, 16, 1, 1, 4),
            (64, 32, 1, 1, 2),
            (64, 32, 2, 1, 1),
            (64, 32, 2, 2, 1),
            (64, 40, 1, 1, 2),
            (64, 48, 1, 1, 2),
            (64, 64, 1, 1, 2),
            (64, 80, 1, 1, 2),
            (64, 80, 2, 1, 2),
            (64, 96, 1, 1, 1),
            (64, 112, 1, 1, 1),
            (64, 192, 1, 2, 1),
            (64, 256, 1, 1, 1),
            (128, 64, 1, 1, 1),
            (128, 64, 2, 1, 1),
            (128, 96, 1, 1, 1),
            (128, 112, 2, 1, 1),
            (128, 128, 1, 1, 1),
            (128, 160, 1, 1, 1),
        )
    ),
    *(
        Row(tile_m, tile_n, split, ctas, blocks, swapped=True)
        for tile_m, tile_n, split, ctas, blocks in (
            (8, 64, 1, 1, 4),
            (8, 64, 8, 2, 2),
            (8, 64, 8, 1, 2),
            (16, 64, 1, 4, 1),
            (16, 64, 1, 1, 2),
            (16, 64, 2, 2, 2),
            (16, 64, 2, 1, 1),
            (16, 64, 2, 1, 2),
            (16, 64, 4, 2, 1),
            (16, 64, 8, 1, 2),
            (16, 128, 2, 1, 1),
            (32, 64, 1, 1, 2),
            (32, 64, 8, 1, 2),
            (64, 64, 2, 1, 2),
            (64, 64, 8, 1, 2),
            (64, 128, 1, 1, 1),
        )
    ),
)
"""Each was the fastest of some 200 somewhere on an H200, by 2 % at least: 21 shapes at 1 to 4096 rows."""


def tensor_maps(contract: Contract, tactic: Tactic, *, row: Row) -> Mapping[str, TensorMap]:
    """Return the maps: 128-byte swizzled tiles."""
    del contract, tactic
    return {"a": tile_map(row.tile_m), "b": tile_map(row.tile_n)}


def constants(contract: Contract, tactic: Tactic, *, row: Row) -> Mapping[str, object]:
    """Return the template's constants."""
    n, m, stages = contract.exact("n"), contract.shape["m"], row.stages
    sums = row.columns // 2
    out_bf16 = contract.dtypes["out"] is DType.BF16
    slice_groups = row.column_groups // row.split
    run, quad = store_run(n, slice_groups, out_bf16=out_bf16)
    a_bytes, b_bytes = (extent * SWIZZLED_BYTES * row.blocks for extent in (row.tile_m, row.tile_n))
    at_b = stages * a_bytes
    at_parts = at_b + stages * b_bytes
    row_tiles, _ = tiles(contract, tactic)
    return {
        "symbol": symbol(contract, tactic),
        "parameters": cuda.parameters(contract, tactic),
        "m": "m" if isinstance(m, Bounded) else str(m),
        "bounded": isinstance(m, Bounded),
        "n": n,
        "tile_m": row.tile_m,
        "tile_n": row.tile_n,
        "tile_rows": row.rows,
        "tile_columns": row.columns,
        "swapped": row.swapped,
        "split": row.split,
        "stages": stages,
        "blocks": row.blocks,
        "steps": contract.exact("k") // row.tile_k,
        "groups": row.column_groups if row.swapped else row.groups,
        "row_groups": row.groups,
        "warps": 4 * row.groups,
        "threads": row.threads,
        "ctas": row.ctas,
        "fewer_registers": row.fewer_registers,
        "row_tiles": row_tiles,
        "dependent": tactic.dependent,
        "finish_waits": tactic.dependent,
        "streamed": row_tiles <= 2,
        "sums": sums,
        "accumulators": list(range(sums)),
        "operand_a": sums,
        "operand_b": sums + 1,
        "keep": sums + 2,
        "a_bytes": a_bytes,
        "b_bytes": b_bytes,
        "rows_bytes": b_bytes if row.swapped else a_bytes,
        "columns_bytes": a_bytes if row.swapped else b_bytes,
        "stage_bytes": row.stage_bytes,
        "at_b": at_b,
        "at_rows": at_b if row.swapped else 0,
        "at_columns": 0 if row.swapped else at_b,
        "at_parts": at_parts if row.apart else 0,
        "at_barriers": at_parts + row.apart * row.parts_bytes,
        "apart": row.apart,
        "parts_bytes": row.parts_bytes,
        "pieces": row.pieces,
        "idle_ranks": max(row.split - 4 * row.groups * row.column_groups, 0) if row.swapped else 0,
        "slice_groups": slice_groups,
        "slice_bytes": row.parts_bytes // row.split,
        "run": run,
        "quad": quad,
        "quad_steps": (1, 2),
        "out_bf16": out_bf16,
        "transposed_store": out_bf16 and n % 2 == 0,
        **cuda.finish(contract, column="column"),
    }


def _requires(row: Row, *, dependent: bool) -> tuple[Predicate, ...]:
    most = MOST_ROW_TILES * max(row.tile_m, 64)
    parts: tuple[Predicate, ...] = ()
    if row.split > 1:
        least = row.split * row.tile_k
        parts = (AtLeast("$.shape.k", least, why=f"every one of {row.split} parts adds something"),)
    return (
        *requirements(
            step=row.tile_k,
            why="a stage is whole swizzled tiles along k",
            combine=_combine(row),
            lds_bytes=row.lds_bytes,
            dependent=dependent,
        ),
        at_most("$.shape.m", most, why="more rows want persistent tiles"),
        *parts,
    )


def _combine(row: Row) -> Combine:
    """Return how sums become the result: a split along k adds partial chains."""
    return Combine.ASCENDING if row.split == 1 else Combine.FIXED_ORDER


def _tactic(row: Row, *, dependent: bool) -> Tactic:
    return Tactic(
        name=f"{row.name}{DEPENDENT if dependent else ''}",
        operation="dense",
        target="sm_90",
        rank=3,
        requires=_requires(row, dependent=dependent),
        guarantees=Guarantees(
            accumulate=Accumulate.MATRIX_UNIT_FP32, combine=_combine(row), deterministic=True, graph_capture=True
        ),
        schedule=schedule(
            (row.tile_m, row.tile_n, row.tile_k), waves=row.threads // 32, stages=row.stages, split_k=row.split
        ),
        lower=lower_cluster,
        kernel=Kernel(
            template="cuda/dense_bf16_wave.cu.j2",
            constants=partial(constants, row=row),
            options={**cuda.OPTIONS, "ctas_per_unit": row.ctas, "dynamic_lds_bytes": row.lds_bytes},
            pattern=CodePattern(matrix=("HGMMA",)),
            tensor_maps=partial(tensor_maps, row=row),
        ),
        estimate=wave.estimate,
        proofs=bf16_cluster_proofs,
        note=f"one tile a CTA, {'weights' if row.swapped else 'activations'} on the tensor core's rows",
    )


TACTICS = tuple(_tactic(row, dependent=False) for row in ROWS)
