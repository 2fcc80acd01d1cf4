"""rms_norm_quant on sm_90 in CUDA C++, many rows: one a CTA, and no warp waits for another before its codes are made.

32 columns a thread, all of one group: the largest magnitude crosses four threads, and codes follow from it at once, for
they need no root. CTAs start in order: ones that walk over rows were 10 % slower (one H200, 16384 x 7168).
"""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from nkc.ir.contract import Bounded, Contract, DType, Staging, dim_max
from nkc.tactics.quantising.constants import ceil_div, lower
from nkc.tactics.rms_norm_quant import cuda
from nkc.tactics.tactic import Tactic

VECTORS = 4
WARP_COLUMNS = 32 * VECTORS * cuda.COLUMNS
BARRIER_BYTES = 8


class Row(NamedTuple):
    """Warps that a row is cut for, and CTAs of a multiprocessor, which registers allow.

    residual: CTAs where there is one. partly: where a row ends within the columns of its warps, or its weight is fp32.
    """

    rank: int
    warps: int
    ctas: int
    residual: int
    partly: int


ROWS = (
    Row(11, 2, 16, 14, 8),
    Row(12, 4, 9, 7, 5),
    Row(13, 5, 7, 5, 4),
    Row(14, 7, 5, 4, 4),
    Row(15, 8, 4, 3, 3),
    Row(16, 12, 3, 2, 2),
    Row(17, 17, 2, 2, 1),
)


def ctas(contract: Contract, row: Row) -> int:
    """Return the CTAs of a multiprocessor."""
    if contract.exact("k") < row.warps * WARP_COLUMNS or contract.dtypes["weight"] is DType.FP32:
        return row.partly
    return row.residual if "residual" in contract.dtypes else row.ctas


def lds_bytes(row: Row) -> int:
    """Return the shared memory of one CTA: the longest row, its residual and its codes, a sum and a barrier a warp."""
    columns = row.warps * WARP_COLUMNS
    bytes_each = 2 * DType.BF16.size_bytes + DType.FP8_E4M3.size_bytes
    return columns * bytes_each + cuda.parts(row.warps) * DType.FP32.size_bytes + row.warps * BARRIER_BYTES


def _lower(contract: Contract, tactic: Tactic) -> Contract:
    return lower(contract, tactic, dim_max(contract.shape["m"]))


def _constants(contract: Contract, tactic: Tactic, *, row: Row) -> Mapping[str, object]:
    k = contract.exact("k")
    residual = "residual" in contract.dtypes
    row_bytes = k * DType.BF16.size_bytes
    at_codes = row_bytes * (2 if residual else 1)
    return {
        **cuda.constants(contract, tactic, warps=row.warps, vectors=VECTORS),
        "ctas": ctas(contract, row),
        "bounded": isinstance(contract.shape["m"], Bounded),
        "whole": k == row.warps * WARP_COLUMNS,
        "used": ceil_div(k, WARP_COLUMNS),
        "in_place": residual and contract.numerics["staging"] is Staging.BF16,
        "row_bytes": row_bytes,
        "at_codes": at_codes,
        "at_parts": at_codes + k,
        "at_barriers": at_codes + k + cuda.parts(row.warps) * DType.FP32.size_bytes,
    }


def _tactic(row: Row) -> Tactic:
    columns = row.warps * WARP_COLUMNS
    return cuda.tactic(
        "rows",
        f"{columns}_w{row.warps}",
        rank=row.rank,
        warps=row.warps,
        max_m=None,
        vectors=VECTORS,
        columns=columns,
        lower=_lower,
        constants=partial(_constants, row=row),
        lds_bytes=lds_bytes(row),
        note=f"{row.warps} warps a row, {row.ctas} CTAs a multiprocessor, one row each, by bulk copies",
    )


TACTICS = tuple(map(_tactic, ROWS))
