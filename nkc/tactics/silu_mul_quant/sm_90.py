"""silu_mul_quant on sm_90 in CUDA C++: scales within their two steps.

A value is within 8 u, by the chip's exponential and reciprocal. That is enough for its code and not for a scale, so
what may be the largest of a group is computed again, within 1 u: one in a hundred.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from nkc.ir.contract import Contract, DType, Schedule, Staging
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
MINUS_LOST = MINUS_LOG2_E_LOW * 0.6931471805599453
SECOND_ORDER = 1 - 0.414 * 88.75 * MINUS_LOST
"""The slope by which 1 + slope x is nearest to e^x up to the largest x, of a gate at -88.75: a sixth as far as x is."""

CONSTANTS: Mapping[str, object] = {
    "minus_log2_e": repr(-1.4426950408889634),
    "minus_log2_e_high": repr(MINUS_LOG2_E_HIGH),
    "minus_log2_e_low": repr(MINUS_LOG2_E_LOW),
    "minus_lost": repr(MINUS_LOST),
    "quarter_lost": repr(MINUS_LOST / 4 * SECOND_ORDER),
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
    "least_usual": repr(2.0**-70),
}
"""log2(e), its leading 16 bits, what they leave of it, and that times log(2), all negated; a quarter of that;
what turns an fp32 into the nearest integer; (2^f - 1) / f by its highest power first, 0.04 u of 2^f from it for
|f| <= 1/2; what no remainder of a finite product reaches; 1 - 32 u; and from where a group's largest value leaves its
scale and the quotients by it normal numbers, where the floor does not see to that."""


class Few(NamedTuple):
    """A geometry for the fewest rows: a warp a group. max_m: of rows."""

    rank: int
    warps: int
    max_m: int


class Columns(NamedTuple):
    """A geometry. columns: of a thread. ctas: of a multiprocessor, for registers. max_m None: any number of rows.

    staged: ctas where the product waits in bf16, which takes more registers.
    """

    rank: int
    columns: int
    warps: int
    ctas: int
    staged: int
    max_m: int | None


FEW = (Few(1, 4, 64),)
COLUMNS = (Columns(2, 16, 4, 12, 10, None),)


def _constants(
    contract: Contract, tactic: Tactic, *, run: int, more: Callable[[Contract], Mapping[str, object]]
) -> Mapping[str, object]:
    """Return what both templates place. run: groups of a CTA. more: what only one of them does."""
    return {
        **run_constants(contract, tactic, run, by_row=True),
        **kernel.placed(contract),
        "parameters": cuda.parameters(contract, tactic),
        "threads": 32 * (tactic.schedule.waves or 0),
        "scale_place": scale_place(contract, "row", "groups").replace("//", "/"),
        **more(contract),
        **CONSTANTS,
    }


def _tactic(
    form: str,
    template: str,
    *,
    rank: int,
    warps: int,
    max_m: int | None,
    run: int,
    more: Callable[[Contract], Mapping[str, object]],
    fma: int,
    note: str,
) -> Tactic:
    return Tactic(
        name=f"sm_90.silu_mul_quant.{form}_w{warps}",
        operation="silu_mul_quant",
        target="sm_90",
        rank=rank,
        requires=(
            *dtypes(x=DType.BF16),
            equals("$.epilogue.kind", "gated_silu"),
            *quantised(OffsetUnit.ELEMENTS),
            *tensors("silu_mul_quant", OffsetUnit.ELEMENTS),
            *few_rows(max_m),
        ),
        guarantees=Guarantees(deterministic=True, graph_capture=True),
        schedule=Schedule(waves=warps),
        geometry=f"{form}_w{warps}",
        lower=partial(lower_run, run=run),
        kernel=Kernel(
            template=f"cuda/{template}.cu.j2",
            constants=partial(_constants, run=run, more=more),
            options={**cuda.OPTIONS, "dynamic_lds_bytes": 0},
            pattern=CodePattern(matrix=(), at_least=0, fp32_fma=fma),
            decided_by=DECIDING_FILES,
        ),
        proofs=partial(kernel.proofs, run=run),
        note=note,
    )


def _of_few(contract: Contract, *, row: Few) -> Mapping[str, object]:
    return {"warps": row.warps, "lanes": 32, "one_row": contract.shape["m"] == 1}


def _of_columns(contract: Contract, *, row: Columns) -> Mapping[str, object]:
    return {
        "ctas": row.staged if contract.numerics["staging"] is Staging.BF16 else row.ctas,
        "columns": row.columns,
        "lanes": GROUP // row.columns,
        "accesses": 2 * row.columns * DType.BF16.size_bytes // 16,
    }


def _few(row: Few) -> Tactic:
    return _tactic(
        "few_4",
        "silu_mul_quant_few",
        rank=row.rank,
        warps=row.warps,
        max_m=row.max_m,
        run=row.warps,
        more=partial(_of_few, row=row),
        fma=2 * GROUP // 32,
        note="a warp a group, every value to the last bit at once: the least latency",
    )


def _columns(row: Columns) -> Tactic:
    return _tactic(
        f"columns_{row.columns}",
        "silu_mul_quant",
        rank=row.rank,
        warps=row.warps,
        max_m=row.max_m,
        run=row.warps * 32 * row.columns // GROUP,
        more=partial(_of_columns, row=row),
        fma=2 * row.columns,
        note=f"{row.columns} columns a thread",
    )


TACTICS = (*map(_few, FEW), *map(_columns, COLUMNS))
