"""The one kernel of group_quant: rules, layouts and dtypes are placed from the contract; tactics differ in geometry."""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from nkc.ir.contract import Contract, Schedule
from nkc.ir.quantising import GROUP
from nkc.tactics.addressing import OffsetUnit
from nkc.tactics.predicate import one_of
from nkc.tactics.quantising.constants import DECIDING_FILES, lower, run_constants, run_workgroups
from nkc.tactics.quantising.proofs import M_MAJOR, M_MAJOR_PADDED, ROW_MAJOR, proof, rules, up_to
from nkc.tactics.quantising.requirements import few_rows, quantised, tensors
from nkc.tactics.tactic import CodePattern, Guarantees, Kernel, Tactic


class Row(NamedTuple):
    """One geometry. run: groups of 128 that a workgroup takes. max_m None: for any number of rows."""

    rank: int
    run: int
    waves: int
    max_m: int | None
    note: str


def tactic(
    target: str, row: Row, *, offsets: OffsetUnit, options: Mapping[str, int | bool | str], range_bits: int | None
) -> Tactic:
    """Return the tactic of one row."""
    geometry = f"run{row.run}_w{row.waves}"
    return Tactic(
        name=f"{target}.group_quant.groups_{geometry}",
        operation="group_quant",
        target=target,
        rank=row.rank,
        requires=(
            one_of("$.dtypes.x", "bf16", "fp32"),
            *quantised(offsets),
            *tensors("group_quant", offsets),
            *few_rows(row.max_m),
        ),
        guarantees=Guarantees(deterministic=True, graph_capture=True),
        schedule=Schedule(waves=row.waves),
        geometry=geometry,
        lower=partial(_lower, run=row.run),
        kernel=Kernel(
            template="triton/group_quant.py.j2",
            constants=partial(_constants, run=row.run),
            options={"enable_fp_fusion": False, "num_warps": row.waves, **options},
            pattern=CodePattern(matrix=(), at_least=0),
            pointer_range_bits=range_bits,
            decided_by=DECIDING_FILES,
        ),
        proofs=partial(proofs, run=row.run),
        note=row.note,
    )


def _lower(contract: Contract, tactic: Tactic, *, run: int) -> Contract:
    return lower(contract, tactic, run_workgroups(contract, run))


def _constants(contract: Contract, tactic: Tactic, *, run: int) -> Mapping[str, object]:
    return run_constants(contract, tactic, run)


def proofs(tactic: Tactic, *, run: int) -> tuple[Contract, ...]:
    """Return the proof set: flavours by overflow rules, dtypes, layouts; tails, bounded m, no floor."""
    bf16, fp32 = ({"x": x, "out": "fp8_e4m3"} for x in ("bf16", "fp32"))
    some = max(run // 2, 4) + 1  # odd: the last workgroup is not full, and M-major scales are padded
    return (
        proof(tactic, m=run, k=2 * GROUP, dtypes=bf16, numerics=rules("divide", "saturate")),
        proof(tactic, m=some, k=3 * GROUP, dtypes=fp32, numerics=rules("divide", "ieee"), scales=M_MAJOR_PADDED),
        proof(tactic, m=up_to(some), k=5 * GROUP, dtypes=bf16, numerics=rules("divide", "saturate"), scales=M_MAJOR),
        proof(tactic, m=some, k=3 * GROUP, dtypes=bf16, numerics=rules("reciprocal", "ieee"), scales=M_MAJOR_PADDED),
        proof(tactic, m=up_to(some), k=3 * GROUP, dtypes=fp32, numerics=rules("reciprocal", "saturate")),
        proof(tactic, m=some, k=3 * GROUP, dtypes=bf16, numerics=rules("ue8m0", "saturate"), scales=ROW_MAJOR),
        proof(tactic, m=up_to(some), k=3 * GROUP, dtypes=fp32, numerics=rules("ue8m0", "ieee"), scales=M_MAJOR_PADDED),
        proof(tactic, m=some, k=GROUP, dtypes=bf16, numerics=rules("divide", "saturate", 0.0)),
        proof(tactic, m=some, k=GROUP, dtypes=fp32, numerics=rules("divide", "ieee", 0.0), scales=M_MAJOR),
        proof(tactic, m=some, k=GROUP, dtypes=bf16, numerics=rules("reciprocal", "saturate", 0.0)),
        proof(tactic, m=some, k=GROUP, dtypes=fp32, numerics=rules("ue8m0", "saturate", 0.0), scales=M_MAJOR),
    )
