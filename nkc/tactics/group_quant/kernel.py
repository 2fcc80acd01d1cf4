"""The one kernel of group_quant: rules, layouts and dtypes are placed from the contract; tactics differ in geometry."""

from collections.abc import Mapping

from nkc.ir.contract import Contract
from nkc.ir.quantising import GROUP
from nkc.tactics.addressing import OffsetUnit
from nkc.tactics.predicate import one_of
from nkc.tactics.quantising.constants import run_constants
from nkc.tactics.quantising.proofs import M_MAJOR, M_MAJOR_PADDED, ROW_MAJOR, proof, rules, up_to
from nkc.tactics.quantising.run import Row, run_tactic
from nkc.tactics.tactic import Tactic


def tactic(
    target: str, row: Row, *, offsets: OffsetUnit, options: Mapping[str, int | bool | str], range_bits: int | None
) -> Tactic:
    """Return the tactic of one row."""
    return run_tactic(
        "group_quant",
        target,
        row,
        first=(one_of("$.dtypes.x", "bf16", "fp32"),),
        constants=run_constants,
        proofs=proofs,
        offsets=offsets,
        options=options,
        range_bits=range_bits,
    )


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
