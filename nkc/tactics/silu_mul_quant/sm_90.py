"""silu_mul_quant on sm_90 in CUDA C++: scales within their two steps.

A value is within 6 u, by the chip's exponential and reciprocal and what they left of the quotient. That is enough for
its code and not for a scale, so what may be the largest of a group is computed again, within 1 u: one in a hundred.
"""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from nkc.ir.contract import Contract, DType, Gate, Schedule
from nkc.ir.quantising import GROUP
from nkc.tactics import cuda
from nkc.tactics.addressing import OffsetUnit
from nkc.tactics.predicate import dtypes, equals
from nkc.tactics.quantising.constants import DECIDING_FILES, run_constants, scale_place
from nkc.tactics.quantising.requirements import few_rows, quantised, tensors
from nkc.tactics.quantising.run import lower_run
from nkc.tactics.silu_mul_quant import kernel
from nkc.tactics.tactic import CodePattern, Guarantees, Kernel, Tactic

MINUS_LOG2_E_HIGH = -1.44268798828125
MINUS_LOG2_E_LOW = -7.052607543300837e-06

CONSTANTS: Mapping[str, object] = {
    "minus_log2_e": repr(-1.4426950408889634),
    "minus_log2_e_high": repr(MINUS_LOG2_E_HIGH),
    "minus_log2_e_low": repr(MINUS_LOG2_E_LOW),
    "minus_lost": repr(MINUS_LOG2_E_LOW * 0.6931471805599453),
    "turn": repr(1.5 * 2.0**23),
    "coefficients": (
        "0.0001535325573058799",
        "0.001339900423772633",
        "0.00961843878030777",
        "0.05550331994891167",
        "0.24022647738456726",
        "0.6931471824645996",
    ),
    "nothing_left": repr(2.0**120),
    "may_be_largest": repr(1 - 2.0**-19),
}
"""log2(e), its leading 16 bits, what they leave of it, and that times log(2), all negated; what turns an fp32 into the
nearest integer; (2^f - 1) / f by its highest power first, 0.04 u of 2^f from it for |f| <= 1/2; what no remainder of a
finite product reaches; 1 - 32 u."""


class Row(NamedTuple):
    """One geometry. columns: of a thread. ctas: of a multiprocessor, for registers. max_m None: any number of rows."""

    rank: int
    columns: int
    warps: int
    ctas: int
    max_m: int | None
    note: str


ROWS = (
    Row(1, 8, 2, 16, 64, "eight columns a thread: enough workgroups for few rows"),
    Row(2, 16, 4, 10, None, "16 columns a thread: 64 bytes in flight"),
)


def _run(row: Row) -> int:
    """Return the groups that a workgroup takes."""
    return row.warps * 32 * row.columns // GROUP


def _constants(contract: Contract, tactic: Tactic, *, row: Row) -> Mapping[str, object]:
    return {
        **run_constants(contract, tactic, _run(row), by_row=True),
        "parameters": cuda.parameters(contract, tactic),
        "threads": 32 * row.warps,
        "ctas": row.ctas,
        "columns": row.columns,
        "lanes": GROUP // row.columns,
        "accesses": 2 * row.columns * DType.BF16.size_bytes // 16,
        "gate": "halves" if contract.epilogue.gate is Gate.HALVES else "interleaved",
        "row_columns": 2 * contract.exact("k"),
        "staging": str(contract.numerics["staging"]),
        "product": "product" in contract.dtypes,
        "scale_place": scale_place(contract, "row", "groups").replace("//", "/"),
        **CONSTANTS,
    }


def _tactic(row: Row) -> Tactic:
    run = _run(row)
    geometry = f"{row.columns}_w{row.warps}"
    return Tactic(
        name=f"sm_90.silu_mul_quant.columns_{geometry}",
        operation="silu_mul_quant",
        target="sm_90",
        rank=row.rank,
        requires=(
            *dtypes(x=DType.BF16),
            equals("$.epilogue.kind", "gated_silu"),
            *quantised(OffsetUnit.ELEMENTS),
            *tensors("silu_mul_quant", OffsetUnit.ELEMENTS),
            *few_rows(row.max_m),
        ),
        guarantees=Guarantees(deterministic=True, graph_capture=True),
        schedule=Schedule(waves=row.warps),
        geometry=geometry,
        lower=partial(lower_run, run=run),
        kernel=Kernel(
            template="cuda/silu_mul_quant.cu.j2",
            constants=partial(_constants, row=row),
            options={**cuda.OPTIONS, "ctas_per_unit": row.ctas, "dynamic_lds_bytes": 0},
            pattern=CodePattern(matrix=(), at_least=0, fp32_fma=2 * row.columns),
            decided_by=DECIDING_FILES,
        ),
        proofs=partial(kernel.proofs, run=run),
        note=row.note,
    )


TACTICS = tuple(map(_tactic, ROWS))
