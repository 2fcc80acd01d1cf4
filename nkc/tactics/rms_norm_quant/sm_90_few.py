"""rms_norm_quant on sm_90 in CUDA C++, few rows: 8 columns a thread, so that a row is over as soon as it has arrived.

CTAs share the codes of a row, and each of them adds up all of it. In a cluster they would tell each other, which takes
0.4 us more to launch (H200).
"""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from nkc.ir.contract import Bounded, Contract, dim_max
from nkc.tactics.quantising.constants import lower
from nkc.tactics.rms_norm_quant import cuda
from nkc.tactics.tactic import Tactic

VECTORS = 1


class Row(NamedTuple):
    """CTAs that share a row, warps of each, and the most rows: each CTA reads all of its row."""

    rank: int
    split: int
    warps: int
    max_m: int


ROWS = (
    Row(1, 2, 4, 64),
    Row(2, 4, 4, 64),
    Row(3, 4, 7, 64),
    Row(4, 17, 4, 8),
    Row(5, 4, 17, 64),
)
"""On one H200 these took least for 2048, 4096, up to 7168, and 17408 columns, of eighteen shapes."""


def _columns(row: Row) -> int:
    return row.split * row.warps * 32 * VECTORS * cuda.COLUMNS


def _lower(contract: Contract, tactic: Tactic, *, row: Row) -> Contract:
    return lower(contract, tactic, row.split * dim_max(contract.shape["m"]))


def _constants(contract: Contract, tactic: Tactic, *, row: Row) -> Mapping[str, object]:
    return {
        **cuda.constants(contract, tactic, warps=row.warps, vectors=VECTORS),
        "split": row.split,
        "whole": contract.exact("k") == _columns(row),
        "bounded": isinstance(contract.shape["m"], Bounded),
    }


def _tactic(row: Row) -> Tactic:
    columns = _columns(row)
    return cuda.tactic(
        "few",
        f"{columns}_w{row.warps}_s{row.split}",
        rank=row.rank,
        warps=row.warps,
        max_m=row.max_m,
        vectors=VECTORS,
        columns=columns,
        lower=partial(_lower, row=row),
        constants=partial(_constants, row=row),
        lds_bytes=0,
        note=f"{row.split} CTAs of {row.warps} warps a row, 8 columns a thread",
    )


TACTICS = tuple(map(_tactic, ROWS))
