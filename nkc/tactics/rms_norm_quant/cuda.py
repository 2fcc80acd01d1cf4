"""What the rms_norm_quant kernels in CUDA C++ share: requirements, and what their templates place."""

from collections.abc import Mapping

from nkc.ir.contract import Contract, DType, Reduce, Weight
from nkc.ir.quantising import GROUP
from nkc.tactics import cuda
from nkc.tactics.addressing import OffsetUnit
from nkc.tactics.predicate import Predicate, Serves, at_most, dtypes, one_of
from nkc.tactics.quantising.constants import rows_text, rules, scale_place, symbol
from nkc.tactics.quantising.requirements import few_rows, quantised, tensors
from nkc.tactics.tactic import Tactic

OPTIONS = cuda.OPTIONS

COLUMNS = 8
"""Columns of bf16 in one 16-byte access."""

LEAST_PRODUCT = 2.0**-100
"""A group's largest product h w from which its smallest that may become a code, 2^-19 of it, keeps all its bits."""


def requires(longest: int, max_m: int | None) -> tuple[Predicate, ...]:
    """Return what is asked of a contract. longest: columns that the threads of a row hold."""
    return (
        *dtypes(x=DType.BF16),
        one_of("$.dtypes.weight", DType.BF16, DType.FP32),
        Serves("$.numerics.reduce", Reduce.TREE),
        *quantised(OffsetUnit.ELEMENTS),
        at_most("$.shape.k", longest, why="as many columns as the threads of a row hold"),
        *tensors("rms_norm_quant", OffsetUnit.ELEMENTS),
        *few_rows(max_m),
    )


def constants(contract: Contract, tactic: Tactic, *, vectors: int) -> Mapping[str, object]:
    """Return what both templates place. vectors: 16-byte accesses that a thread has of its group."""
    k, epsilon = contract.exact("k"), contract.numerics["epsilon"]
    assert isinstance(epsilon, float)
    placed = rules(contract)
    wide = contract.dtypes["weight"] is DType.FP32
    return {
        **placed,
        # Without a root, products with the weight are up to 1 / sqrt(epsilon) smaller than y.
        "tiny_scales": placed["tiny_scales"] or epsilon < LEAST_EPSILON,
        "least_product": repr(LEAST_PRODUCT),
        "symbol": symbol(contract, tactic),
        "parameters": cuda.parameters(contract, tactic),
        "vectors": vectors,
        "lanes": GROUP // (COLUMNS * vectors),
        "m": rows_text(contract),
        "k": k,
        "row_groups": k // GROUP,
        "reciprocal_k": repr(1.0 / k),
        "epsilon": repr(epsilon),
        "residual": "residual" in contract.dtypes,
        "staging": str(contract.numerics["staging"]),
        "wide_weight": wide,
        "one_plus": contract.numerics["weight"] is Weight.ONE_PLUS,
        "weight_of": "weight + (inside ? column(v, lane) : 0)" if wide else "w[v]",
        "scale_place": scale_place(contract, "row", f"lane / {GROUP // (COLUMNS * vectors)}").replace("//", "/"),
    }


LEAST_EPSILON = 2.0**-40
"""From here rstd is at most 2^20; with the floor on amax at 2^-80, products that may become codes are above 2^-120."""
