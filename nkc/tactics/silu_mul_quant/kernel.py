"""The one kernel of silu_mul_quant: rules and layouts are placed from the contract; tactics differ in geometry."""

from collections.abc import Mapping

from nkc.ir.contract import Contract, DType, Gate
from nkc.ir.quantising import GROUP
from nkc.tactics.addressing import OffsetUnit
from nkc.tactics.predicate import dtypes, equals
from nkc.tactics.quantising.constants import run_constants
from nkc.tactics.quantising.proofs import M_MAJOR, M_MAJOR_PADDED, ROW_MAJOR, proof, rules, up_to
from nkc.tactics.quantising.run import Row, run_tactic
from nkc.tactics.tactic import Tactic

EXPONENTIAL = {
    "minus_log2_e": repr(-1.4426950408889634),
    "minus_log_2_high": repr(-0.693147182464599609375),
    "minus_log_2_low": repr(1.904654323148236e-09),
}
"""log2(e) rounded, and log(2) as the sum of the nearest fp32 and what that leaves, all negated."""


def tactic(
    target: str, row: Row, *, offsets: OffsetUnit, options: Mapping[str, int | bool | str], range_bits: int | None
) -> Tactic:
    """Return the tactic of one row."""
    return run_tactic(
        "silu_mul_quant",
        target,
        row,
        first=(*dtypes(x=DType.BF16), equals("$.epilogue.kind", "gated_silu")),
        constants=_constants,
        proofs=proofs,
        offsets=offsets,
        options=options,
        range_bits=range_bits,
    )


def placed(contract: Contract) -> Mapping[str, object]:
    """Return what every kernel of this operation places of its gate, its staging and its product."""
    return {
        "gate": str(contract.epilogue.gate),
        "row_columns": 2 * contract.exact("k"),
        "staging": str(contract.numerics["staging"]),
        "product": "product" in contract.dtypes,
    }


def _constants(contract: Contract, tactic: Tactic, *, run: int) -> Mapping[str, object]:
    return {
        **run_constants(contract, tactic, run, by_row=contract.epilogue.gate is Gate.HALVES),
        **placed(contract),
        "pair_group": 2 * GROUP,
        **EXPONENTIAL,
    }


def proofs(tactic: Tactic, *, run: int) -> tuple[Contract, ...]:
    """Return the proof set: gate orders by stagings, the product stored or not, flavours, layouts; tails, bounded m."""
    plain = {"x": "bf16", "out": "fp8_e4m3"}
    stored = {**plain, "product": "bf16"}
    halves, interleaved = ({"kind": "gated_silu", "gate": gate} for gate in ("halves", "interleaved"))
    fp32, bf16 = ({"staging": staging} for staging in ("fp32", "bf16"))
    some = max(run // 2, 4) + 1  # odd: the last workgroup is not full, and M-major scales are padded
    divide, reciprocal, ue8m0 = rules("divide", "saturate"), rules("reciprocal", "ieee"), rules("ue8m0", "saturate")
    return (
        proof(tactic, m=run, k=2 * GROUP, dtypes=plain, numerics=fp32 | divide, epilogue=halves),
        proof(
            tactic,
            m=some,
            k=3 * GROUP,
            dtypes=stored,
            numerics=bf16 | rules("divide", "ieee"),
            scales=M_MAJOR_PADDED,
            epilogue=interleaved,
        ),
        proof(
            tactic,
            m=up_to(some),
            k=3 * GROUP,
            dtypes=stored,
            numerics=fp32 | reciprocal,
            scales=M_MAJOR,
            epilogue=interleaved,
        ),
        proof(
            tactic,
            m=up_to(some),
            k=5 * GROUP,
            dtypes=plain,
            numerics=bf16 | ue8m0,
            scales=M_MAJOR_PADDED,
            epilogue=halves,
        ),
        proof(tactic, m=some, k=3 * GROUP, dtypes=stored, numerics=fp32 | ue8m0, scales=ROW_MAJOR, epilogue=halves),
        proof(
            tactic,
            m=some,
            k=GROUP,
            dtypes=plain,
            numerics=fp32 | rules("divide", "saturate", 0.0),
            scales=M_MAJOR,
            epilogue=interleaved,
        ),
        proof(tactic, m=some, k=GROUP, dtypes=plain, numerics=bf16 | reciprocal, epilogue=halves),
    )
