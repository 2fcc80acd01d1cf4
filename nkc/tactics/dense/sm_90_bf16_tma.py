"""dense on sm_90 in bf16 for many rows: persistent CTAs, tiles by TMA, one ascending chain in the matrix unit.

Sums stay in the matrix unit's registers over the whole of k, so that nothing runs beside the products: what bounds such
a kernel is shared memory's traffic, tile_n + 64 rows of 128 bytes for 64 rows of products, and the card's power.
"""

from collections.abc import Mapping
from functools import partial
from math import gcd
from typing import Literal, NamedTuple

from nkc.ir import targets
from nkc.ir.contract import Accumulate, Bounded, Combine, Contract, DType
from nkc.ir.launch import TensorMap
from nkc.tactics import cuda
from nkc.tactics.dense import wave
from nkc.tactics.dense.kernel import GROUP_M, symbol
from nkc.tactics.dense.plan import ceil_div, lower_persistent, schedule, tiles
from nkc.tactics.dense.proofs import bf16_tma_proofs
from nkc.tactics.dense.sm_90_bf16 import BARRIER_BYTES, SWIZZLED_BYTES, SWIZZLED_K, requirements, store_run, tile_map
from nkc.tactics.predicate import Predicate
from nkc.tactics.tactic import CodePattern, Guarantees, Kernel, Tactic

GROUPS = 2
"""Warpgroups that multiply."""

_MAX_PIECE = 64  # columns of bf16 that one swizzled row of shared memory holds
_MOST_STAGES = 8
_BUFFERS = 2  # pieces of the result that a warpgroup has on their way out, at least
_SWIZZLES: dict[int, Literal[32, 64, 128]] = {16: 32, 32: 64, 64: 128}


class Row(NamedTuple):
    """One tile. pair: along which dim two CTAs are neighbours that share an operand.

    direct: results leave by registers, not through shared memory.
    """

    tile_m: int
    tile_n: int
    pair: Literal["", "m", "n"] = ""
    direct: bool = False

    @property
    def cluster(self) -> int:
        """CTAs."""
        return 2 if self.pair else 1

    @property
    def parts(self) -> int:
        """Products of 64 rows that a warpgroup makes for a step of 16 along k."""
        return self.tile_m // (64 * GROUPS)

    @property
    def piece(self) -> int:
        """The columns of a piece of the result: the most that a swizzled row holds and that divide the tile."""
        return gcd(self.tile_n, _MAX_PIECE)

    @property
    def piece_bytes(self) -> int:
        """Bytes of one."""
        return 64 * self.piece * DType.BF16.size_bytes

    @property
    def stage_bytes(self) -> int:
        """A tile of A and one of B."""
        return (self.tile_m + self.tile_n) * SWIZZLED_BYTES

    @property
    def stages(self) -> int:
        """As many as fit beside two buffers of a warpgroup."""
        room = targets.get("sm_90").lds_bytes - (not self.direct) * GROUPS * _BUFFERS * self.piece_bytes
        return min(room // (self.stage_bytes + 2 * BARRIER_BYTES), _MOST_STAGES)

    @property
    def buffers(self) -> int:
        """Pieces of the result that fit beside the stages, for each warpgroup: as many as divide its pieces.

        With others the tile after would begin with the buffer that was given away last.
        """
        if self.direct:
            return 0
        room = targets.get("sm_90").lds_bytes - self.stages * (self.stage_bytes + 2 * BARRIER_BYTES)
        pieces = self.parts * self.tile_n // self.piece
        return max(
            count
            for count in range(1, pieces + 1)
            if pieces % count == 0 and count <= room // (GROUPS * self.piece_bytes)
        )

    @property
    def lds_bytes(self) -> int:
        """Stages with two barriers each, and pieces of the result."""
        return self.stages * (self.stage_bytes + 2 * BARRIER_BYTES) + GROUPS * self.buffers * self.piece_bytes

    @property
    def name(self) -> str:
        """The tactic's."""
        detail = (f"_pair_{self.pair}" if self.pair else "") + "_direct" * self.direct
        return f"sm_90.dense.bf16_tma_{self.tile_m}x{self.tile_n}x{SWIZZLED_K}_s{self.stages}{detail}"


ROWS = (
    Row(128, 128),
    Row(128, 160, "m"),
    Row(128, 176, "n", direct=True),
    Row(128, 192, direct=True),
    Row(128, 224, direct=True),
    Row(128, 256),
    Row(128, 256, "m"),
    Row(256, 128),
    Row(256, 128, "n"),
)


def tensor_maps(contract: Contract, tactic: Tactic, *, row: Row) -> Mapping[str, TensorMap]:
    """Return the maps: 128-byte swizzled tiles, of which a CTA of a pair copies half; bf16 pieces of the result."""
    del tactic
    boxes = {"a": row.tile_m // (1 + (row.pair == "n")), "b": row.tile_n // (1 + (row.pair == "m"))}
    maps = {name: tile_map(rows) for name, rows in boxes.items()}
    if not row.direct and contract.dtypes["out"] is DType.BF16 and contract.exact("n") % 8 == 0:
        maps["out"] = TensorMap(box=(64, row.piece), swizzle_bytes=_SWIZZLES[row.piece])
    return maps


def constants(contract: Contract, tactic: Tactic, *, row: Row) -> Mapping[str, object]:
    """Return the template's constants."""
    assert contract.launch is not None
    assert contract.launch.grid is not None
    n, m = contract.exact("n"), contract.shape["m"]
    _, n_tiles = tiles(contract, tactic)
    stages, sums, maps = row.stages, row.tile_n // 2, tensor_maps(contract, tactic, row=row)
    a_bytes, b_bytes = row.tile_m * SWIZZLED_BYTES, row.tile_n * SWIZZLED_BYTES
    at_pieces = stages * (a_bytes + b_bytes)
    out_bf16 = contract.dtypes["out"] is DType.BF16
    run, quad = (2, 1) if "out" in maps else store_run(n, row.tile_n // 8, out_bf16=out_bf16)
    along_m, along_n = (2 if row.pair == axis else 1 for axis in "mn")
    return {
        "symbol": symbol(contract, tactic),
        "parameters": cuda.parameters(contract, tactic),
        "maps": sorted(maps),
        "m": "m" if isinstance(m, Bounded) else str(m),
        "n": n,
        "tile_m": row.tile_m,
        "tile_n": row.tile_n,
        "rows_at_once": row.tile_m * along_m,
        "stages": stages,
        "groups": GROUPS,
        "parts": row.parts,
        "threads": 128 * (1 + GROUPS),
        "pair": row.pair,
        "cluster": row.cluster,
        "walkers": contract.launch.grid[0] // row.cluster,
        "column_tiles": ceil_div(n_tiles, along_n),
        "group_m": GROUP_M,
        "steps": contract.exact("k") // SWIZZLED_K,
        "sums": sums,
        "accumulators": list(range(sums)),
        "operand_a": sums,
        "operand_b": sums + 1,
        "keep": sums + 2,
        "a_bytes": a_bytes,
        "b_bytes": b_bytes,
        "releases": 4 * GROUPS * row.cluster,
        "at_b": stages * a_bytes,
        "at_pieces": at_pieces,
        "at_barriers": at_pieces + GROUPS * row.buffers * row.piece_bytes,
        "piece": row.piece,
        "pieces": row.tile_n // row.piece,
        "buffers": row.buffers if "out" in maps else 0,
        "swizzle_rows": _MAX_PIECE // row.piece,
        "groups_of_columns": row.tile_n // 8,
        "run": run,
        "quad": quad,
        "quad_steps": (1, 2),
        "out_bf16": out_bf16,
        **cuda.finish(contract, column="column"),
    }


def _requires(row: Row) -> tuple[Predicate, ...]:
    return (
        *requirements(
            step=SWIZZLED_K,
            why="a stage is one swizzled tile along k",
            combine=Combine.ASCENDING,
            lds_bytes=row.lds_bytes,
        ),
    )


def _tactic(row: Row) -> Tactic:
    return Tactic(
        name=row.name,
        operation="dense",
        target="sm_90",
        rank=4,
        requires=_requires(row),
        guarantees=Guarantees(
            accumulate=Accumulate.MATRIX_UNIT_FP32,
            combine=Combine.ASCENDING,
            deterministic=True,
            graph_capture=True,
        ),
        schedule=schedule((row.tile_m, row.tile_n, SWIZZLED_K), waves=4 * (1 + GROUPS), stages=row.stages),
        lower=partial(lower_persistent, cluster=(2 if row.pair == "m" else 1, 2 if row.pair == "n" else 1)),
        kernel=Kernel(
            template="cuda/dense_bf16_tma.cu.j2",
            constants=partial(constants, row=row),
            options={**cuda.OPTIONS, "dynamic_lds_bytes": row.lds_bytes},
            pattern=CodePattern(matrix=("HGMMA",)),
            tensor_maps=partial(tensor_maps, row=row),
        ),
        estimate=wave.estimate,
        proofs=bf16_tma_proofs,
        note="persistent, tiles by TMA, sums in the matrix unit over the whole of k",
    )


TACTICS = tuple(map(_tactic, ROWS))
