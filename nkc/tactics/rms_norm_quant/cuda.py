"""What the rms_norm_quant kernels in CUDA C++ share: requirements, constants, and the tactic around them."""

from collections.abc import Callable, Mapping
from functools import partial

from nkc.ir.contract import Contract, DType, Reduce, Schedule, Weight
from nkc.ir.quantising import GROUP
from nkc.tactics import cuda
from nkc.tactics.addressing import OffsetUnit
from nkc.tactics.predicate import Predicate, Serves, at_most, dtypes, one_of
from nkc.tactics.quantising.constants import DECIDING_FILES, ceil_div, rows_text, rules, scale_place, symbol
from nkc.tactics.quantising.requirements import few_rows, quantised, tensors
from nkc.tactics.rms_norm_quant import kernel
from nkc.tactics.tactic import CodePattern, Guarantees, Kernel, Tactic

COLUMNS = 8
"""Columns of bf16 in one 16-byte access."""

LEAST_PRODUCT = 2.0**-100
"""A group's largest product h w from which its smallest that may become a code, 2^-19 of it, keeps all its bits."""

MOST_PRODUCT = 2.0**120
"""And up to which 448 times its reciprocal is a normal number."""


def parts(warps: int) -> int:
    """Return how many sums a row has in shared memory, one a warp, to whole 16-byte accesses."""
    return ceil_div(warps, 4) * 4


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


def constants(contract: Contract, tactic: Tactic, *, warps: int, vectors: int) -> Mapping[str, object]:
    """Return what both templates place. warps: of a CTA. vectors: 16-byte accesses that a thread has of its group."""
    k, epsilon = contract.exact("k"), contract.numerics["epsilon"]
    assert isinstance(epsilon, float)
    floor = contract.numerics["amax_floor"]
    assert isinstance(floor, float)
    wide = contract.dtypes["weight"] is DType.FP32
    lanes = GROUP // (COLUMNS * vectors)
    return {
        **rules(contract),
        "least_product": repr(LEAST_PRODUCT),
        "most_product": repr(MOST_PRODUCT),
        "least_amax": repr(max(LEAST_PRODUCT, floor)),
        "symbol": symbol(contract, tactic),
        "parameters": cuda.parameters(contract, tactic),
        "threads": 32 * warps,
        "warps": warps,
        "parts": parts(warps),
        "vectors": vectors,
        "lanes": lanes,
        "m": rows_text(contract),
        "k": k,
        "row_groups": k // GROUP,
        "reciprocal_k": repr(1.0 / k),
        "epsilon": repr(epsilon),
        "residual": "residual" in contract.dtypes,
        "staging": str(contract.numerics["staging"]),
        "wide_weight": wide,
        "one_plus": contract.numerics["weight"] is Weight.ONE_PLUS,
        "weight_of": "weight + column(v, lane)" if wide else "w[v]",
        "scale_place": scale_place(contract, "row", f"lane / {lanes}").replace("//", "/"),
    }


def tactic(
    form: str,
    geometry: str,
    *,
    rank: int,
    warps: int,
    max_m: int | None,
    vectors: int,
    columns: int,
    lower: Callable[[Contract, Tactic], Contract],
    constants: Callable[[Contract, Tactic], Mapping[str, object]],
    lds_bytes: int,
    note: str,
) -> Tactic:
    """Return the tactic of one geometry. form: of the template. columns: the most that a row may have."""
    shape = kernel.Row(rank, 1, columns // 512 * 256, warps, max_m, 0, "")
    return Tactic(
        name=f"sm_90.rms_norm_quant.{form}_{geometry}",
        operation="rms_norm_quant",
        target="sm_90",
        rank=rank,
        requires=requires(columns, max_m),
        guarantees=Guarantees(reduce=Reduce.TREE, deterministic=True, graph_capture=True),
        schedule=Schedule(waves=warps),
        geometry=geometry,
        lower=lower,
        kernel=Kernel(
            template=f"cuda/rms_norm_quant_{form}.cu.j2",
            constants=constants,
            options={**cuda.OPTIONS, "dynamic_lds_bytes": lds_bytes},
            pattern=CodePattern(matrix=(), at_least=0, fp32_fma=COLUMNS * vectors),
            decided_by=DECIDING_FILES,
        ),
        proofs=partial(kernel.proofs, row=shape, codes=True, longest=columns),
        note=note,
    )
