"""rms_norm_quant on sm_90 in CUDA C++, few rows: 8 columns a thread, so that a row is over as soon as it has arrived.

CTAs share the codes of a row, and each of them adds up all of it. In a cluster they would tell each other, which takes
0.4 us more to launch (H200).
"""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from nkc.ir.contract import Bounded, Contract, Reduce, Schedule, dim_max
from nkc.tactics.quantising.constants import DECIDING_FILES, ceil_div, lower
from nkc.tactics.rms_norm_quant import cuda, kernel
from nkc.tactics.tactic import CodePattern, Guarantees, Kernel, Tactic

MAX_M = 64


class Row(NamedTuple):
    """CTAs that share a row, and warps of each."""

    rank: int
    split: int
    warps: int


ROWS = (
    Row(1, 1, 8),
    Row(2, 1, 16),
    Row(3, 4, 7),
    Row(4, 8, 9),
)
"""On one H200 these took least for 2048, 4096, up to 7168, and 17408 columns, of eleven shapes."""


def _columns(row: Row) -> int:
    return row.split * row.warps * 32 * cuda.COLUMNS


def _lower(contract: Contract, tactic: Tactic, *, row: Row) -> Contract:
    return lower(contract, tactic, row.split * dim_max(contract.shape["m"]))


def _constants(contract: Contract, tactic: Tactic, *, row: Row) -> Mapping[str, object]:
    return {
        **cuda.constants(contract, tactic, vectors=1),
        "threads": 32 * row.warps,
        "warps": row.warps,
        "parts": ceil_div(row.warps, 4) * 4,
        "split": row.split,
        "bounded": isinstance(contract.shape["m"], Bounded),
    }


def _tactic(row: Row) -> Tactic:
    columns = _columns(row)
    geometry = f"{columns}_w{row.warps}_s{row.split}"
    shape = kernel.Row(row.rank, 1, columns // 512 * 256, row.warps, MAX_M, 0, "")
    return Tactic(
        name=f"sm_90.rms_norm_quant.few_{geometry}",
        operation="rms_norm_quant",
        target="sm_90",
        rank=row.rank,
        requires=cuda.requires(columns, MAX_M),
        guarantees=Guarantees(reduce=Reduce.TREE, deterministic=True, graph_capture=True),
        schedule=Schedule(waves=row.warps),
        geometry=geometry,
        lower=partial(_lower, row=row),
        kernel=Kernel(
            template="cuda/rms_norm_quant_few.cu.j2",
            constants=partial(_constants, row=row),
            options={**cuda.OPTIONS, "dynamic_lds_bytes": 0},
            pattern=CodePattern(matrix=(), at_least=0, fp32_fma=8),
            decided_by=DECIDING_FILES,
        ),
        proofs=partial(kernel.proofs, row=shape, codes=True, longest=columns),
        note=f"{row.split} CTAs of {row.warps} warps a row, 8 columns a thread",
    )


TACTICS = tuple(map(_tactic, ROWS))
