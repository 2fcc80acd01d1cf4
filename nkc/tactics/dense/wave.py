"""How long a tiled dense kernel takes, told from its tiles: what ranks tactics for a shape without a tuning row.

A unit (multiprocessor) works through its pieces in rounds: so many tiles, times the parts that share k, over so many
units. One block of k costs a piece at least the wait for its operands, and a unit at least what its pieces multiply and
load together; the chip reads each operand at least once. `paces.json` beside this file holds what each family of
kernels takes for these, fitted to performance records by `benchmarks/paces.py`.

A rule orders and never admits. It is rough: a row that was measured goes before it.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import msgspec

from nkc.ir import targets
from nkc.ir.contract import Contract, dim_max
from nkc.tactics.dense.codes import CODES
from nkc.tactics.dense.plan import ceil_div, split_of, tile_of, tiles
from nkc.tactics.hardware import LdsFits
from nkc.tactics.tactic import Estimate, Tactic

PACES_SCHEMA: Literal["nkc.paces/1"] = "nkc.paces/1"
PACES_FILE = Path(__file__).with_name("paces.json")

BLOCK_BYTES = 128
"""Of k: what a step of every pace covers."""

_LANE_BYTES = 16  # one load of a lane
_REGISTERS_BESIDE_SUMS = 48
_MAX_REGISTERS = 255
_UNIT_THREADS = 2048
_RESERVED_LDS = 1024  # bytes of every workgroup that belong to the system


class Pace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a family of kernels takes, in nanoseconds.

    family: a tactic's, or `<target>.dense` for families without figures of their own. rows_from: the least rows of a
    tile that the figures hold for. launch: before and after all blocks. block: the wait of a piece for a block of k
    that no other piece covers. block_element: more of it for each result of the tile that four waves share. element,
    edge: what a unit takes for a block, by results of the tile and by rows and columns that are loaded. absent_row: for
    each row of the tile that the contract does not have, once all units ask for the same last one. part: for each part
    of a split along k.
    """

    family: str
    rows_from: int = 0
    launch: float
    block: float
    block_element: float
    element: float
    edge: float
    absent_row: float
    part: float


class Paces(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fitted figures. source: of which records. read_gbs: bytes that the chip reads in a nanosecond."""

    schema: Literal["nkc.paces/1"] = PACES_SCHEMA
    source: str
    read_gbs: float
    paces: tuple[Pace, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a tactic makes of a contract at its largest m.

    pieces: tiles times parts of k. resident: pieces that a unit holds at once. blocks: of k, a piece. absent_rows: of a
    tile, on average. bytes: each operand once.
    """

    tile_m: int
    tile_n: int
    waves: int
    parts: int
    pieces: int
    units: int
    resident: int
    blocks: int
    absent_rows: float
    bytes: int

    @property
    def rounds(self) -> int:
        """Pieces of the busiest unit."""
        return ceil_div(self.pieces, self.units)

    @property
    def waits(self) -> int:
        """Rounds of as many pieces as the units hold at once."""
        return ceil_div(self.pieces, self.units * self.resident)


@lru_cache(maxsize=1)
def paces() -> Paces:
    """Return the fitted figures."""
    return msgspec.json.decode(PACES_FILE.read_bytes(), type=Paces)


def estimate(contract: Contract, tactic: Tactic) -> Estimate | None:
    """Return the time of a contract that the predicates admit; None where nothing is known of the target."""
    found = pace_of(tactic, paces())
    if found is None:
        return None
    work = work_of(contract, tactic)
    ns = round(nanoseconds(work, found, paces().read_gbs))
    parts = f" in {work.parts} parts" if work.parts > 1 else ""
    whose = "" if found.family == tactic.family else f", at the pace of {found.family}"
    tile_count = work.pieces // work.parts
    words = (
        f"{tile_count} tile{'s' * (tile_count > 1)} of {work.tile_m}x{work.tile_n}{parts}, {work.rounds} a unit "
        f"({work.resident} at once), {work.blocks} blocks of k{whose}: {ns / 1000:.1f} us"
    )
    return Estimate(ns=ns, words=words)


def crowds(contract: Contract, tactic: Tactic) -> bool:
    """Return whether a unit has room for several workgroups and the chip for more than there are.

    Launched dependent, such a kernel fills up the units that the grid ahead left empty: 112 tiles of 64x64, two a unit,
    took 41.3 us for 32.2 on an H200 (`docs/notes/dependent-launch.md`).
    """
    resident = tactic.kernel.options["ctas_per_unit"]
    assert isinstance(resident, int)
    return crowded(contract, tactic, resident=resident)


def crowded(contract: Contract, tactic: Tactic, *, resident: int) -> bool:
    """Return `crowds` of a kernel of which a unit has room for so many workgroups."""
    work = work_of(contract, tactic)
    return resident > 1 and work.pieces < work.units * resident


def pace_of(tactic: Tactic, known: Paces) -> Pace | None:
    """Return the figures of a tactic's family for its tile, else those of its target, None without either.

    A kernel whose results become codes keeps the pace of the one that stores them.
    """
    rows = tile_of(tactic)[0]
    for family in (tactic.family, tactic.family.removesuffix(CODES), f"{tactic.target}.{tactic.operation}"):
        fitting = [pace for pace in known.paces if pace.family == family and pace.rows_from <= rows]
        if fitting:
            return max(fitting, key=lambda pace: pace.rows_from)
    return None


def work_of(contract: Contract, tactic: Tactic) -> Work:
    """Return what the tactic makes of the contract."""
    (tile_m, tile_n, _), (m_tiles, n_tiles) = tile_of(tactic), tiles(contract, tactic)
    m, n, k = dim_max(contract.shape["m"]), contract.exact("n"), contract.exact("k")
    dtypes, parts = contract.dtypes, split_of(tactic)
    waves = tactic.schedule.waves
    assert waves is not None
    target = targets.get(contract.target.arch)
    step = waves * target.wave * _LANE_BYTES if tile_m == 1 else BLOCK_BYTES  # waves that share k end together
    return Work(
        tile_m=tile_m,
        tile_n=tile_n,
        waves=waves,
        parts=parts,
        pieces=m_tiles * n_tiles * parts,
        units=target.compute_units,
        resident=_resident(tactic, threads=waves * target.wave),
        blocks=ceil_div(ceil_div(k * dtypes["a"].size_bytes, step) * step // BLOCK_BYTES, parts),
        absent_rows=tile_m - m / max(m_tiles, 1),
        bytes=m * k * dtypes["a"].size_bytes + n * k * dtypes["b"].size_bytes + m * n * dtypes["out"].size_bytes,
    )


def _resident(tactic: Tactic, *, threads: int) -> int:
    """Return how many pieces a unit holds, as far as threads, LDS and the registers of two sets of sums say."""
    tile_m, tile_n, _ = tile_of(tactic)
    target = targets.get(tactic.target)
    lds = max((each.bytes for each in tactic.requires if isinstance(each, LdsFits)), default=0)
    registers = min(_MAX_REGISTERS, 2 * tile_m * tile_n // threads + _REGISTERS_BESIDE_SUMS)
    return max(
        1,
        min(
            _UNIT_THREADS // threads,
            (target.lds_bytes + _RESERVED_LDS) // (lds + _RESERVED_LDS),
            target.integer("registers") // (registers * threads),
        ),
    )


def nanoseconds(work: Work, pace: Pace, read_gbs: float) -> float:
    """Return the time of some work at a pace."""
    results = work.tile_m * work.tile_n
    absent = pace.absent_row * work.absent_rows * min(1.0, work.pieces / work.units)  # all ask for one row at once
    waited = pace.block + pace.block_element * results * 4 / work.waves + absent
    worked = pace.element * results + pace.edge * (work.tile_m + work.tile_n) + absent
    units = work.blocks * max(waited * work.waits, worked * work.rounds)
    parts = pace.part * work.parts if work.parts > 1 else 0.0
    return pace.launch + max(units, work.bytes / read_gbs) + parts
