"""dense on sm_90 for few rows, exact products: weights as wgmma's rows, converted to f16 in registers.

The weights pass once, from memory through registers; only the tokens, few, are converted into shared memory for all. So
the exact class costs no bandwidth. A cluster shares k where a tile for each unit would leave most of them idle.
"""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from nkc.ir import operations, targets
from nkc.ir.contract import Accumulate, Bounded, Combine, Contract, DType
from nkc.ir.launch import TensorMap
from nkc.tactics import cuda
from nkc.tactics.addressing import OffsetUnit, offsets_fit_int32
from nkc.tactics.dense import wave
from nkc.tactics.dense.kernel import symbol
from nkc.tactics.dense.plan import ceil_div, lower_cluster, schedule, tile_of, tiles
from nkc.tactics.dense.proofs import cluster_proofs
from nkc.tactics.dense.tma import (
    BEFORE_THE_WAIT,
    BLOCK_K,
    activation_scales,
    dependent_launch,
    tiled_requirements,
)
from nkc.tactics.hardware import LdsFits
from nkc.tactics.predicate import AtLeast, Predicate, Serves, at_most
from nkc.tactics.tactic import DEPENDENT, CodePattern, Guarantees, Kernel, Tactic

_BARRIER_BYTES = 8
_RESERVED_BYTES = 1024  # of shared memory, for each CTA of a unit, by the system
_MAX_STAGES = 24
_PAD = 4  # floats behind a token's sums, so that lanes that write them meet no bank twice


class Row(NamedTuple):
    """One tile: tokens by weight rows. split: parts of k. converters: warps. ctas: of a unit, for its shared memory."""

    rank: int
    tokens: int
    weights: int
    split: int
    converters: int
    ctas: int

    @property
    def groups(self) -> int:
        """Warpgroups, side by side along the weights."""
        return self.weights // 64

    @property
    def buffers(self) -> int:
        """Converted tiles of tokens: products read one, converters are ahead by the others."""
        return 3 if self.tokens <= 32 else 2

    @property
    def early(self) -> bool:
        """Whether codes of the next block are read under running products: where registers are left for them."""
        return self.tokens <= 16 or self.ctas == 1

    @property
    def stage_bytes(self) -> int:
        """A tile of weights and one of tokens."""
        return (self.weights + self.tokens) * BLOCK_K

    @property
    def buffer_bytes(self) -> int:
        """A tile of tokens in f16, and a scale for each."""
        return self.tokens * (BLOCK_K * 2 + DType.FP32.size_bytes)

    @property
    def slice_bytes(self) -> int:
        """What a CTA adds up of each part: its share of the tokens."""
        return self.tokens // self.split * (self.weights + _PAD) * DType.FP32.size_bytes

    @property
    def fixed_bytes(self) -> int:
        """What does not depend on the number of stages."""
        slices = self.split * self.slice_bytes if self.split > 1 else 0
        return self.buffers * (self.buffer_bytes + 2 * _BARRIER_BYTES) + slices + _BARRIER_BYTES

    @property
    def stages(self) -> int:
        """As many as fit where a unit has so many CTAs."""
        room = (targets.get("sm_90").lds_bytes + _RESERVED_BYTES) // self.ctas - _RESERVED_BYTES
        return min((room - self.fixed_bytes) // (self.stage_bytes + 2 * _BARRIER_BYTES), _MAX_STAGES)

    @property
    def lds_bytes(self) -> int:
        """Stages and converted tiles with two barriers each, the slices of all parts, and their barrier."""
        return self.stages * (self.stage_bytes + 2 * _BARRIER_BYTES) + self.fixed_bytes


ROWS = tuple(
    Row(rank, tokens, weights, split, converters=converters, ctas=ctas)
    for rank, tokens, weights, converters, ctas, splits in (
        (211, 16, 128, 1, 2, (4,)),
        (212, 32, 64, 1, 3, (4,)),
        (213, 64, 64, 2, 2, (1, 2, 4)),
        (214, 64, 128, 2, 1, (2, 4)),
    )
    for split in splits
)


def tensor_maps(contract: Contract, tactic: Tactic, *, row: Row) -> Mapping[str, TensorMap]:
    """Return the maps: 128-byte swizzled tiles."""
    del contract, tactic
    return {
        "a": TensorMap(box=(row.tokens, BLOCK_K), swizzle_bytes=128, l2_promotion_bytes=256),
        "b": TensorMap(box=(row.weights, BLOCK_K), swizzle_bytes=128, l2_promotion_bytes=256),
    }


def constants(contract: Contract, tactic: Tactic, *, row: Row) -> Mapping[str, object]:
    """Return the template's constants."""
    tile_m, tile_n, _ = tile_of(tactic)
    m, stages, sums = contract.shape["m"], row.stages, tile_m // 2
    at_a = stages * tile_n * BLOCK_K
    at_f16 = at_a + stages * tile_m * BLOCK_K
    at_scales = at_f16 + row.buffers * tile_m * BLOCK_K * 2
    at_slices = at_scales + row.buffers * tile_m * DType.FP32.size_bytes
    slices_bytes = row.split * row.slice_bytes
    assert slices_bytes <= at_f16, "a CTA's own sums lie where the stages were"
    return {
        "symbol": symbol(contract, tactic),
        "parameters": cuda.parameters(contract, tactic),
        "m": "m" if isinstance(m, Bounded) else str(m),
        "bounded": isinstance(m, Bounded),
        "n": contract.exact("n"),
        "tile_m": tile_m,
        "tile_n": tile_n,
        "split": row.split,
        "stages": stages,
        "buffers": row.buffers,
        "groups": row.groups,
        "converters": row.converters,
        "early": row.early,
        "threads": 128 * row.groups + 32 * (1 + row.converters),
        "ctas_per_unit": row.ctas,
        "row_tiles": tiles(contract, tactic)[0],
        "k_blocks": contract.exact("k") // BLOCK_K,
        "sums": sums,
        "accumulators": list(range(sums)),
        "column_groups": tile_m // 8,
        "a_bytes": tile_m * BLOCK_K,
        "b_bytes": tile_n * BLOCK_K,
        "scale_rounds": ceil_div(tile_m, 32 * row.converters),
        "convert_rounds": ceil_div(2 * tile_m, 32 * row.converters),
        "store_rounds": ceil_div(tile_m // row.split * (tile_n // 2), 128 * row.groups),
        "pitch": tile_n + _PAD,
        "slice_bytes": row.slice_bytes,
        "at_a": at_a,
        "at_f16": at_f16,
        "at_scales": at_scales,
        "at_slices": at_slices,
        "at_barriers": at_slices + (slices_bytes if row.split > 1 else 0),
        "bf16": contract.dtypes["out"] is DType.BF16,
        **activation_scales(contract),
        **dependent_launch(contract, tactic),
        **cuda.finish(contract, column="column + e"),
    }


def _requires(row: Row, *, dependent: bool) -> tuple[Predicate, ...]:
    longer = (AtLeast("$.shape.k", row.split * BLOCK_K, why=f"every one of {row.split} parts adds something"),)
    return (
        *tiled_requirements(),
        Serves("$.numerics.accumulate", Accumulate.MATRIX_UNIT_FP32),
        Serves("$.numerics.combine", Combine.ASCENDING if row.split == 1 else Combine.FIXED_ORDER),
        at_most("$.shape.m", 8 * row.tokens, why="every tile of tokens reads the weights again"),
        *(longer if row.split > 1 else ()),
        *(offsets_fit_int32(operations.get("dense").operand(name), OffsetUnit.ELEMENTS) for name in ("a", "b", "out")),
        LdsFits(row.lds_bytes),
        *([BEFORE_THE_WAIT] if dependent else []),
    )


def _tactic(row: Row, *, dependent: bool) -> Tactic:
    split = f"_k{row.split}" * (row.split > 1) + DEPENDENT * dependent
    return Tactic(
        name=f"sm_90.dense.fp8_f16_few_{row.tokens}x{row.weights}x{BLOCK_K}_s{row.stages}{split}",
        operation="dense",
        target="sm_90",
        rank=row.rank,
        requires=_requires(row, dependent=dependent),
        guarantees=Guarantees(
            accumulate=Accumulate.MATRIX_UNIT_FP32,
            combine=Combine.ASCENDING if row.split == 1 else Combine.FIXED_ORDER,
            deterministic=True,
            graph_capture=True,
        ),
        schedule=schedule(
            (row.tokens, row.weights, BLOCK_K),
            waves=4 * row.groups + 1 + row.converters,
            stages=row.stages,
            split_k=row.split,
        ),
        lower=lower_cluster,
        kernel=Kernel(
            template="cuda/dense_fp8_f16_few.cu.j2",
            constants=partial(constants, row=row),
            options={**cuda.OPTIONS, "ctas_per_unit": row.ctas, "dynamic_lds_bytes": row.lds_bytes},
            pattern=CodePattern(matrix=("HGMMA",)),
            tensor_maps=partial(tensor_maps, row=row),
        ),
        estimate=wave.estimate,
        crowds=wave.crowds,
        proofs=cluster_proofs,
        note="weights as rows, e4m3 as f16, k over a cluster",
    )


TACTICS = tuple(_tactic(row, dependent=dependent) for row in ROWS for dependent in (False, True))
