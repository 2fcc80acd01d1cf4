"""rms_norm_quant: h = x + residual, y = h / sqrt(mean h^2 + epsilon) * weight, and fp8 codes of y or y in bf16."""

from nkc.ir import quantising
from nkc.ir.arguments import operand_arguments
from nkc.ir.budget import U_BF16, Stage, U
from nkc.ir.contract import Access, Argument, Contract, DType, Layout, Nan, Reduce, Round, Staging, Weight
from nkc.ir.errors import Problem
from nkc.ir.operation import DimRule, NumericRule, Operand, Operation

NORM_ERROR = 64 * U
"""Relative error of y: the sum over a row of at most 2^16 by a tree, the root, two products, and a safety of 2."""


def arguments(contract: Contract) -> tuple[Argument, ...]:
    """Return the visible arguments: x, residual, weight, residual_out, out, its scales, the workspace, m if bounded."""
    return operand_arguments(contract, OPERATION.operands)


def check(contract: Contract) -> list[Problem]:
    """Return what breaks a rule across fields: whole groups, both residuals or none, no sum to stage without one."""
    problems = quantising.whole_groups(contract)
    given = [name for name in ("residual", "residual_out") if name in contract.dtypes]
    if len(given) == 1:
        missing = "residual_out" if given == ["residual"] else "residual"
        what = f"missing, but there is `{given[0]}`"
        problems.append(Problem(field=f"$.dtypes.{missing}", what=what, mend="give both or neither"))
    if not given and contract.numerics.get("staging") is Staging.FP32:
        what = "`fp32`, but without a residual there is no sum that waits: x is normalised as it is"
        problems.append(Problem(field="$.numerics.staging", what=what, mend="write `bf16`"))
    return problems


def stages(contract: Contract) -> tuple[Stage, ...]:
    """Return the leaf stages: the sum where there is a residual, the norm, and codes or a rounding store."""
    residual = "residual" in contract.dtypes
    rounded = contract.numerics["staging"] is Staging.BF16
    add = Stage(
        name="rms.add",
        source="x, residual, bf16",
        load="fp32, exact",
        operand="h = fl(x + residual)",
        accumulate="-",
        store="residual_out: bf16, one rounding to nearest even",
        range="beyond the largest finite value: infinity",
        error="u_b |h|",
        bound=f"{U_BF16:.3g} |h|",
        acceptance="residual_out bit-exact",
    )
    norm = Stage(
        name="rms.norm",
        source=("h as stored" if rounded else "h in fp32") if residual else "x",
        load="fp32, exact",
        operand="y = h rstd weight" if contract.numerics["weight"] is Weight.PLAIN else "y = h rstd (1 + weight)",
        accumulate=f"sum of h^2, fp32, {contract.numerics['reduce']}",
        store="fp32 register",
        range="K amax^2 < 3e38, which is |h| < 1.7e17 at K = 1e4; a row of zeros is held by epsilon",
        error="rstd ((n + 1) / 2 + 3) u, n = log2 K + 8 levels of a tree, two products",
        bound=f"{NORM_ERROR:.3g} |y|",
        acceptance="64 u on y",
    )
    store = Stage(
        name="rms.store",
        source="rms.norm",
        load="-",
        operand="fp32",
        accumulate="-",
        store="bf16, one rounding to nearest even",
        range="beyond the largest finite value: infinity",
        error="u_b |y|",
        bound=f"{NORM_ERROR + U_BF16:.3g} |y|",
        acceptance="bound; RMS error / RMS <= 2.5e-3",
    )
    last = quantising.stages(contract, source="rms.norm", value_error=NORM_ERROR) or (store,)
    return (add, norm, *last) if residual else (norm, *last)


def _rows(name: str, access: Access, *, optional: bool = False) -> Operand:
    return Operand(
        name=name,
        axes=("m", "k"),
        access=access,
        dtypes=(DType.BF16,),
        layouts=(Layout.ROW_MAJOR,),
        optional=optional,
    )


OPERATION = Operation(
    name="rms_norm_quant",
    summary="out[M,K] = fp8 codes, or bf16, of (x + residual) / sqrt(mean square + epsilon) * weight[K]",
    dims=(
        DimRule(name="m", meaning="rows of x (tokens)", typical=(1, 64, 4096), bounded=True),
        DimRule(name="k", meaning="columns of x, normalised over", typical=(4096,)),
    ),
    operands=(
        _rows("x", Access.READ),
        _rows("residual", Access.READ, optional=True),
        Operand(
            name="weight",
            axes=("k",),
            access=Access.READ,
            dtypes=(DType.BF16, DType.FP32),
            layouts=(Layout.ROW_MAJOR,),
        ),
        _rows("residual_out", Access.WRITE, optional=True),
        quantising.codes(DType.BF16),
    ),
    numerics=(
        NumericRule(name="reduce", type=Reduce),
        NumericRule(name="staging", type=Staging),
        NumericRule(name="weight", type=Weight),
        NumericRule(name="epsilon", type=float, typical=1e-6),
        *quantising.RULES,
        NumericRule(name="round", type=Round, default=Round.RNE_ONCE),
        NumericRule(name="nan", type=Nan, default=Nan.PROPAGATE),
    ),
    arguments=arguments,
    stages=stages,
    check=check,
)
