"""dense on sm_90 for few rows of activations (tokens): operands swapped, the FP8 tensor core, k split over a cluster.

The weights are wgmma's 64 rows and the tokens its columns, so that 8 tokens are padded to 8 and not to 64. The bytes
under way on all multiprocessors, not the products, set the pace: stages are as many as shared memory holds. The CTAs of
a cluster share a tile along k and add up through distributed shared memory in the same launch: no workspace, no
atomics, ascending ranks. `skinny` has a warp that copies by TMA; in `stream` every thread copies 16 bytes at a time,
and nothing is set up before the weights are asked for.

Launched dependent, both have the weights of the whole ring under way before they wait for the grids ahead.
"""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from nkc.ir import operations, targets
from nkc.ir.contract import Accumulate, Bounded, Combine, Contract, DType, Layout
from nkc.ir.launch import TensorMap
from nkc.ir.quantising import GROUP
from nkc.tactics import cuda
from nkc.tactics.addressing import Aligned, OffsetUnit, ScaleOffsetsFitInt32, offsets_fit_int32
from nkc.tactics.dense import wave
from nkc.tactics.dense.codes import CODES, DECIDING_FILES, placed, stored
from nkc.tactics.dense.codes_proofs import codes_proofs
from nkc.tactics.dense.kernel import symbol
from nkc.tactics.dense.plan import ceil_div, lower_cluster, schedule, tiles
from nkc.tactics.dense.proofs import skinny_proofs
from nkc.tactics.dense.requirements import ALIGNMENT, FP8_POINTERS, block_scales, rows_along_k
from nkc.tactics.dense.tma import BEFORE_THE_WAIT, BLOCK_K, activation_scales, scales_by_tma
from nkc.tactics.hardware import LdsFits, TargetHas
from nkc.tactics.predicate import (
    AtLeast,
    Predicate,
    Serves,
    at_most,
    dtypes,
    multiple_of,
)
from nkc.tactics.tactic import DEPENDENT, CodePattern, Guarantees, Kernel, Tactic

READY_BLOCKS = 64
"""Blocks of a CTA whose scales are multiplied before the first tile is there."""

_BARRIER_BYTES = 8
_SCALE_BYTES = DType.FP32.size_bytes
_PIECE_BYTES = 512
"""Sums that one CTA of a cluster finishes at once: 16 weight rows, 8 tokens, a warp's registers."""
_PEAKS_BYTES = 32
"""An fp32 for each of the 8 tokens of a piece."""
_TMA_BYTES = 128
"""Alignment of what TMA writes into shared memory without swizzle."""
_UNIT_BYTES, _CTA_BYTES = 233_472, 1024
"""Shared memory of a multiprocessor, and what it keeps for each CTA. Source: CUDA C++ programming guide, 9.0."""


class Row(NamedTuple):
    """One kernel. tokens, weights: its tile. split: CTAs of a cluster, along k. blocks: of k in one stage.

    ctas: of a multiprocessor, from which the stages follow. ready: scales are multiplied first, by all warps, and kept;
    else they travel with the tiles. by_tma: a warp copies, else every thread. codes: it quantises.
    """

    rank: int
    tokens: int
    weights: int
    split: int
    blocks: int
    ctas: int
    ready: bool = False
    by_tma: bool = True
    codes: bool = False

    @property
    def warps(self) -> int:
        """Warps that multiply."""
        return self.weights // 16

    @property
    def pieces(self) -> int:
        """Pieces of a tile that one CTA of a cluster finishes; of codes all that a token has."""
        return max(self.warps * (self.tokens // 8) // self.split, self.warps if self.codes else 1)

    @property
    def peaks_bytes(self) -> int:
        """The largest of each token that a CTA finishes, of every warp, where results become codes."""
        return self.pieces * _PEAKS_BYTES if self.codes else 0

    @property
    def parts_bytes(self) -> int:
        """What the other CTAs of the cluster send to one."""
        return (self.split - 1) * self.pieces * _PIECE_BYTES

    @property
    def scale_slot(self) -> int:
        """Bytes of a stage's activation scales; none where all are ready."""
        size = self.blocks * self.tokens * _SCALE_BYTES
        return 0 if self.ready else ceil_div(size, _TMA_BYTES) * _TMA_BYTES

    @property
    def stage_barrier_bytes(self) -> int:
        """A stage has arrived, and is free again."""
        return 2 * _BARRIER_BYTES if self.by_tma else 0

    @property
    def stage_bytes(self) -> int:
        """Tiles of weights and tokens, scales, barriers."""
        return (self.tokens + self.weights) * BLOCK_K * self.blocks + self.scale_slot + self.stage_barrier_bytes

    @property
    def fixed_bytes(self) -> int:
        """What lies beside the stages: sums of the others and their barrier, scales that are ready, what is largest."""
        ready = READY_BLOCKS * self.tokens * _SCALE_BYTES if self.ready else 0
        return self.parts_bytes + ready + _BARRIER_BYTES + self.peaks_bytes

    @property
    def stages(self) -> int:
        """As many as fit where a multiprocessor holds so many CTAs."""
        room = min(_UNIT_BYTES // self.ctas - _CTA_BYTES, targets.get("sm_90").lds_bytes)
        return (room - self.fixed_bytes) // self.stage_bytes

    @property
    def lds_bytes(self) -> int:
        """Shared memory of a CTA."""
        return self.stages * self.stage_bytes + self.fixed_bytes

    @property
    def family(self) -> str:
        """What copies, as the tactic's name says it."""
        return ("skinny" if self.by_tma else "stream") + CODES * self.codes

    @property
    def name(self) -> str:
        """The tactic's name."""
        detail = f"_s{self.stages}" + f"x{self.blocks}" * (self.blocks > 1) + f"_k{self.split}" * (self.split > 1)
        tile = f"{self.tokens}x{self.weights}x{BLOCK_K}"
        return f"sm_90.dense.fp8_{self.family}_{tile}{detail}{'_ready' * self.ready}"


MOST_DEPENDENT_TOKENS = 16
"""Of tiles by TMA: above, the time that dependent launch saves is a small part. By every thread none is timed yet."""

SHARED_BLOCKS = 32
"""Blocks of k of a CTA, above which it matters that CTAs begun early share the units left empty.

Told from the twins of `skinny` at 11 shapes and 16 rows on an H200: where there was room for more CTAs and each had
more blocks, 8 of 12 took longer than their plain forms, 1.32 times at most; of the other 62 five, 1.08 times at most.
"""

ROWS = (
    Row(50, 8, 64, 1, 2, 4),
    Row(51, 8, 64, 4, 1, 4),
    Row(50, 16, 64, 1, 1, 4),
    Row(51, 16, 64, 2, 1, 4),
    Row(51, 16, 64, 2, 2, 3),
    Row(51, 16, 64, 2, 2, 4, ready=True),
    Row(52, 16, 64, 4, 1, 4),
    Row(52, 16, 64, 4, 2, 3, ready=True),
    Row(52, 16, 64, 8, 1, 4, ready=True),
    Row(50, 16, 64, 1, 2, 3, by_tma=False),
    Row(51, 16, 64, 2, 2, 3, by_tma=False),
    Row(52, 16, 64, 4, 2, 3, by_tma=False),
    Row(50, 32, 64, 1, 1, 3),
    Row(51, 32, 64, 2, 1, 3),
    Row(51, 32, 64, 2, 1, 4),
    Row(52, 32, 64, 4, 1, 3),
    Row(50, 32, 64, 1, 2, 3, by_tma=False),
    Row(52, 32, 64, 4, 2, 3, by_tma=False),
)

CODES_ROWS = tuple(
    Row(50 + split.bit_length() - 1, tokens, GROUP, split, 1, 2, codes=True)
    for tokens in (8, 16, 32)
    for split in (1, 2, 4)
)
"""As many weights as a group has columns. Two blocks of k in a stage, scales made ready, or eight parts of k gained
nothing on an H200 (three shapes at 1 and 16 rows)."""


def scales_by(contract: Contract, row: Row) -> str:
    """Return how activation scales reach shared memory.

    `ready`: multiplied beforehand. `map`: by TMA with the tiles. `async`: copied one by one, whatever the layout.
    """
    if row.ready:
        return "ready"
    return "map" if row.by_tma and scales_by_tma(contract) else "async"


def tensor_maps(contract: Contract, tactic: Tactic, *, row: Row) -> Mapping[str, TensorMap]:
    """Return the maps: 128-byte swizzled tiles of one block of k; the scales of a stage where TMA copies them."""
    del tactic
    if not row.by_tma:
        return {}
    maps = {
        "a": TensorMap(box=(row.tokens, BLOCK_K), swizzle_bytes=128, l2_promotion_bytes=256),
        "b": TensorMap(box=(row.weights, BLOCK_K), swizzle_bytes=128, l2_promotion_bytes=256),
    }
    if scales_by(contract, row) == "map":
        maps["a_scales"] = TensorMap(box=(row.tokens, row.blocks), swizzle_bytes=0)
    return maps


def _places(row: Row) -> Mapping[str, int]:
    """Return where everything lies in shared memory: weights, tokens, sums of the others, scales, barriers."""
    at_a = row.stages * row.blocks * row.weights * BLOCK_K
    at_parts = at_a + row.stages * row.blocks * row.tokens * BLOCK_K
    at_scales = at_parts + row.parts_bytes
    scale_bytes = READY_BLOCKS * row.tokens * _SCALE_BYTES if row.ready else row.stages * row.scale_slot
    at_barriers = at_scales + scale_bytes
    return {
        "at_a": at_a,
        "at_parts": at_parts,
        "at_scales": at_scales,
        "at_barriers": at_barriers,
        "at_parts_arrived": at_barriers + row.stages * row.stage_barrier_bytes,
        "at_peaks": at_barriers + row.stages * row.stage_barrier_bytes + _BARRIER_BYTES,
    }


def constants(contract: Contract, tactic: Tactic, *, row: Row) -> Mapping[str, object]:
    """Return the template's constants."""
    n, k_blocks, m = contract.exact("n"), contract.exact("k") // BLOCK_K, contract.shape["m"]
    threads, sums, scales = 32 * row.warps, row.tokens // 2, scales_by(contract, row)
    most_stages = ceil_div(ceil_div(k_blocks, row.split), row.blocks)
    most_local, refill = most_stages * row.blocks, most_stages > row.stages
    row_tiles, _ = tiles(contract, tactic)
    strides = activation_scales(contract)
    early = tactic.dependent and not row.by_tma
    assert not early or row.tokens * 8 >= threads, "behind the wait every thread brings tokens of each block"
    return {
        "symbol": symbol(contract, tactic),
        "parameters": cuda.parameters(contract, tactic),
        "m": "m" if isinstance(m, Bounded) else str(m),
        "n": n,
        "k": contract.exact("k"),
        "k_blocks": k_blocks,
        "tile_m": row.tokens,
        "tile_n": row.weights,
        "row_tiles": row_tiles,
        "rows_may_end": row_tiles > 1 and isinstance(m, Bounded),
        "n_tail": n % row.weights != 0,
        "split": row.split,
        "blocks": row.blocks,
        "range_blocks": list(range(row.blocks)),
        "stages": row.stages,
        "most_stages": most_stages,
        "most_local": most_local,
        "refill": refill,
        "ragged": row.blocks > 1 and k_blocks % (row.blocks * row.split) != 0,
        "warps": row.warps,
        "threads": threads + (32 if row.by_tma else 0),
        "ctas": row.ctas,
        "dependent": tactic.dependent,
        "finish_waits": tactic.dependent and not early,  # where every thread copies, each has waited
        "scales_early": early,
        "scales": scales,
        "row_major": contract.scales["a"].layout is Layout.ROW_MAJOR,
        "row_stride": strides["a_scale_row_stride"],
        "block_stride": strides["a_scale_block_stride"],
        "ready_unroll": min(max(most_local * row.tokens // threads, 1), 8),
        "guarded_release": row.by_tma and refill and scales != "ready",
        "arrivals": 33 if scales == "async" else 1,
        "weight_copies": row.weights * 8 // threads,
        "token_copies": row.tokens * 8 // threads,
        "groups": row.tokens // 8,
        "sums": sums,
        "accumulators": list(range(sums)),
        "operand_a": sums,
        "operand_b": sums + 1,
        "keep": sums + 2,
        "a_bytes": row.tokens * BLOCK_K,
        "b_bytes": row.weights * BLOCK_K,
        "block_bytes": (row.tokens + row.weights) * BLOCK_K,
        "scale_bytes": row.blocks * row.tokens * _SCALE_BYTES if scales == "map" else 0,
        "scale_slot": row.scale_slot,
        "pieces": row.pieces,
        "parts_bytes": row.parts_bytes,
        "idle_ranks": max(row.split - row.warps * (row.tokens // 8) // row.pieces, 0),
        "transposed_store": row.codes or (contract.dtypes["out"] is DType.BF16 and n % 2 == 0),
        "own_groups": row.pieces // row.warps,
        "row_values": 2,
        "lanes": 1,  # a lane has two columns of a token, and finds the others in its own way
        **placed(contract, row="out_row", group=f"(n0 / {GROUP})"),
        **_places(row),
        **cuda.finish(contract, column="column"),
    }


def _requires(row: Row, *, dependent: bool) -> tuple[Predicate, ...]:
    dense = operations.get("dense")
    least = row.split * row.blocks * BLOCK_K
    length: tuple[Predicate, ...] = ()
    if row.ready:
        most = row.split * READY_BLOCKS * BLOCK_K
        length = (at_most("$.shape.k", most, why=f"a CTA keeps the scales of {READY_BLOCKS} blocks"),)
    return (
        TargetHas("ocp_fp8", "$.dtypes.a"),
        *dtypes(a=DType.FP8_E4M3, b=DType.FP8_E4M3, acc=DType.FP32),
        *stored(OffsetUnit.ELEMENTS, codes=row.codes),
        *block_scales(),
        multiple_of("$.shape.k", BLOCK_K, why="a copy brings one scale block along k"),
        AtLeast("$.shape.k", least, why=f"every one of {row.split} CTAs has a stage of {row.blocks} blocks"),
        *length,
        *rows_along_k(),
        Serves("$.numerics.accumulate", Accumulate.TENSOR_CORE_FP8),
        Serves("$.numerics.combine", _combine(row)),
        at_most("$.shape.m", row.tokens, why=f"every {row.tokens} tokens read all weights again"),
        *(offsets_fit_int32(dense.operand(name), OffsetUnit.ELEMENTS) for name in ("a", "b", "out")),
        ScaleOffsetsFitInt32("a", OffsetUnit.ELEMENTS),
        LdsFits(row.lds_bytes),
        *(Aligned(pointer, ALIGNMENT) for pointer in FP8_POINTERS if pointer not in ("bias", "workspace")),
        *([BEFORE_THE_WAIT] if dependent else []),
    )


def _crowds(contract: Contract, tactic: Tactic, *, row: Row) -> bool:
    """Return whether CTAs begun early would share units for long."""
    long = wave.work_of(contract, tactic).blocks > SHARED_BLOCKS
    return long and wave.crowded(contract, tactic, resident=row.ctas)


def _combine(row: Row) -> Combine:
    """Return how block sums become the result: a split along k adds partial chains."""
    return Combine.ASCENDING if row.split == 1 else Combine.FIXED_ORDER


def _tactic(row: Row, *, dependent: bool) -> Tactic:
    copying = "tiles by TMA" if row.by_tma else "tiles copied by every thread"
    return Tactic(
        name=f"{row.name}{DEPENDENT if dependent else ''}",
        operation="dense",
        target="sm_90",
        rank=row.rank,
        requires=_requires(row, dependent=dependent),
        guarantees=Guarantees(
            accumulate=Accumulate.TENSOR_CORE_FP8,
            combine=_combine(row),
            deterministic=True,
            graph_capture=True,
        ),
        schedule=schedule(
            (row.tokens, row.weights, BLOCK_K),
            waves=row.warps + (1 if row.by_tma else 0),
            stages=row.stages,
            split_k=row.split,
        ),
        lower=lower_cluster,
        kernel=Kernel(
            template=f"cuda/dense_fp8_{row.family.removesuffix(CODES)}.cu.j2",
            constants=partial(constants, row=row),
            options={**cuda.OPTIONS, "dynamic_lds_bytes": row.lds_bytes},
            pattern=CodePattern(matrix=("QGMMA",)),
            tensor_maps=partial(tensor_maps, row=row),
            decided_by=DECIDING_FILES if row.codes else (),
        ),
        estimate=wave.estimate,
        crowds=partial(_crowds, row=row),
        proofs=codes_proofs if row.codes else skinny_proofs,
        note=f"weights on the tensor core's rows, {copying}" + ", all columns of a token become codes" * row.codes,
    )


TACTICS = tuple(
    _tactic(row, dependent=dependent)
    for row in (*ROWS, *CODES_ROWS)
    for dependent in (False, True)[: 1 + (not row.by_tma or row.tokens <= MOST_DEPENDENT_TOKENS)]
)
