"""group_quant on sm_90 in CUDA C++: 16 columns a thread, and codes in 16-byte stores of whole lines."""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from nkc.ir.contract import Contract, DType, Layout, Schedule
from nkc.ir.quantising import GROUP, QUANTISED
from nkc.tactics import cuda
from nkc.tactics.addressing import OffsetUnit
from nkc.tactics.group_quant import kernel
from nkc.tactics.predicate import one_of
from nkc.tactics.quantising.constants import DECIDING_FILES, run_constants, scale_place
from nkc.tactics.quantising.requirements import quantised, tensors
from nkc.tactics.quantising.run import lower_run
from nkc.tactics.tactic import CodePattern, Guarantees, Kernel, Tactic

COLUMNS = 16


class Row(NamedTuple):
    """One geometry. ctas: of a multiprocessor, for registers; more: where x is fp32, or the chip divides."""

    rank: int
    warps: int
    ctas: int
    more: int


ROWS = (Row(15, 4, 16, 10),)


def _constants(contract: Contract, tactic: Tactic, *, run: int, row: Row) -> Mapping[str, object]:
    wide = contract.dtypes["x"] is DType.FP32
    placed = run_constants(contract, tactic, run)
    by_row = contract.scales[QUANTISED].layout is Layout.M_MAJOR
    return {
        **placed,
        "parameters": cuda.parameters(contract, tactic),
        "threads": 32 * row.warps,
        "ctas": row.more if wide or placed["tiny_scales"] else row.ctas,
        "columns": COLUMNS,
        "lanes": GROUP // COLUMNS,
        "wide": wide,
        "scale_place": scale_place(contract, "row", "groups").replace("//", "/") if by_row else "group",
    }


def _tactic(row: Row) -> Tactic:
    run = row.warps * 32 * COLUMNS // GROUP
    geometry = f"columns_{COLUMNS}_w{row.warps}"
    return Tactic(
        name=f"sm_90.group_quant.{geometry}",
        operation="group_quant",
        target="sm_90",
        rank=row.rank,
        requires=(
            one_of("$.dtypes.x", "bf16", "fp32"),
            *quantised(OffsetUnit.ELEMENTS),
            *tensors("group_quant", OffsetUnit.ELEMENTS),
        ),
        guarantees=Guarantees(deterministic=True, graph_capture=True),
        schedule=Schedule(waves=row.warps),
        geometry=geometry,
        lower=partial(lower_run, run=run),
        kernel=Kernel(
            template="cuda/group_quant.cu.j2",
            constants=partial(_constants, run=run, row=row),
            options={**cuda.OPTIONS, "dynamic_lds_bytes": 0},
            pattern=CodePattern(matrix=(), at_least=0),
            decided_by=DECIDING_FILES,
        ),
        proofs=partial(kernel.proofs, run=run),
        note=f"{COLUMNS} columns a thread: 32 bytes of bf16 in flight",
    )


TACTICS = tuple(map(_tactic, ROWS))
