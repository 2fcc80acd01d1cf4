"""rms_norm_quant on sm_90 in CUDA C++, many rows: as many warps as a row needs, the next row on its way meanwhile.

32 columns a thread, all of one group: the largest magnitude crosses four threads. Products with the weight are made
before the root is known, which is one factor of the row. A CTA has few neighbouring rows, and CTAs start in order:
ones that walk over all rows with a stride were 12 % slower (one H200, 16384 x 7168).
"""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from nkc.ir import targets
from nkc.ir.contract import Bounded, Contract, DType, Layout, Reduce, Schedule, dim_max
from nkc.ir.quantising import QUANTISED
from nkc.tactics.quantising.constants import DECIDING_FILES, ceil_div, lower
from nkc.tactics.rms_norm_quant import cuda, kernel
from nkc.tactics.tactic import CodePattern, Guarantees, Kernel, Tactic

VECTORS = 4
WARP_COLUMNS = 32 * VECTORS * cuda.COLUMNS
MOST_STAGES = 4
BARRIER_BYTES = 8
RESERVED_BYTES = 1024  # of each CTA, by the system. Source: CUDA C++ programming guide, compute capability 9.0
SHARED_BYTES = 228 * 1024  # of a multiprocessor, the same source


class Row(NamedTuple):
    """Warps that a row is cut for, and CTAs that a multiprocessor holds: registers and stages allow no more.

    ctas_summing: with a residual, or a weight in fp32. ctas_m_major: where scales lie M-major, if fewer.
    hold: products with the weight wait for the root in registers, twice as many as what they are made again from.
    rows: of a CTA, neighbours; the next ones are on their way.
    """

    rank: int
    warps: int
    ctas: int
    ctas_summing: int
    ctas_m_major: int | None = None
    hold: bool = False
    rows: int = 2


ROWS = (
    Row(11, 2, 16, 8),
    Row(12, 4, 8, 4),
    Row(13, 5, 6, 3),
    Row(14, 7, 5, 2, ctas_m_major=4),
    Row(15, 8, 4, 2),
    Row(16, 12, 2, 1),
    Row(17, 17, 2, 1, ctas_m_major=1),
)


def ctas(contract: Contract, row: Row) -> int:
    """Return the CTAs of a multiprocessor."""
    summing = "residual" in contract.dtypes or contract.dtypes["weight"] is DType.FP32
    if summing:
        return row.ctas_summing
    scale = contract.scales.get(QUANTISED)
    m_major = scale is not None and scale.layout is Layout.M_MAJOR
    return row.ctas_m_major if m_major and row.ctas_m_major is not None else row.ctas


def lds_bytes(row: Row) -> int:
    """Return the shared memory of one CTA: what its share of a multiprocessor's leaves, to whole 128 bytes."""
    most = targets.get("sm_90").lds_bytes
    return min(most, SHARED_BYTES // row.ctas - RESERVED_BYTES) // 128 * 128


def stages(contract: Contract, row: Row) -> int:
    """Return how many rows, x and residual, fit beside two rows of codes, two sets of sums, and barriers."""
    room = lds_bytes(row) - 2 * (contract.exact("k") + _parts(row) * DType.FP32.size_bytes)
    return min(MOST_STAGES, row.rows, room // (_stage_bytes(contract) + BARRIER_BYTES))


def _stage_bytes(contract: Contract) -> int:
    return contract.exact("k") * DType.BF16.size_bytes * (2 if "residual" in contract.dtypes else 1)


def _parts(row: Row) -> int:
    """Return how many sums a row has, to whole 16-byte accesses."""
    return ceil_div(row.warps, 4) * 4


def _lower(contract: Contract, tactic: Tactic, *, row: Row) -> Contract:
    return lower(contract, tactic, ceil_div(dim_max(contract.shape["m"]), row.rows))


def _constants(contract: Contract, tactic: Tactic, *, row: Row) -> Mapping[str, object]:
    held = stages(contract, row)
    at_codes = held * _stage_bytes(contract)
    at_parts = at_codes + 2 * contract.exact("k")
    return {
        **cuda.constants(contract, tactic, vectors=VECTORS),
        "threads": 32 * row.warps,
        "ctas": ctas(contract, row),
        "stages": held,
        "stage_bytes": _stage_bytes(contract),
        "row_bytes": contract.exact("k") * DType.BF16.size_bytes,
        "parts": _parts(row),
        "cta_rows": row.rows,
        "row_tail": isinstance(m := contract.shape["m"], Bounded) or m % row.rows != 0,
        "hold": row.hold,
        "at_codes": at_codes,
        "at_parts": at_parts,
        "at_barriers": at_parts + 2 * _parts(row) * DType.FP32.size_bytes,
    }


def _tactic(row: Row) -> Tactic:
    columns = row.warps * WARP_COLUMNS
    shape = kernel.Row(row.rank, 1, columns // 512 * 256, row.warps, None, 0, "")
    return Tactic(
        name=f"sm_90.rms_norm_quant.rows_{columns}_w{row.warps}",
        operation="rms_norm_quant",
        target="sm_90",
        rank=row.rank,
        requires=cuda.requires(columns, None),
        guarantees=Guarantees(reduce=Reduce.TREE, deterministic=True, graph_capture=True),
        schedule=Schedule(waves=row.warps),
        geometry=f"{columns}_w{row.warps}",
        lower=partial(_lower, row=row),
        kernel=Kernel(
            template="cuda/rms_norm_quant_rows.cu.j2",
            constants=partial(_constants, row=row),
            options={**cuda.OPTIONS, "dynamic_lds_bytes": lds_bytes(row)},
            pattern=CodePattern(matrix=(), at_least=0, fp32_fma=8 * VECTORS),
            decided_by=DECIDING_FILES,
        ),
        proofs=partial(kernel.proofs, row=shape, codes=True, longest=columns),
        note=f"{row.warps} warps a row, {row.ctas} CTAs a multiprocessor, rows ahead by bulk copies",
    )


TACTICS = tuple(map(_tactic, ROWS))
