"""silu_mul_quant: silu(gate) * up, then fp8 codes with one scale for 1 x 128 of the product."""

from nkc.ir import quantising
from nkc.ir.arguments import operand_arguments
from nkc.ir.budget import U_BF16, Stage, U
from nkc.ir.contract import Access, Argument, Contract, DType, Layout, Nan, Round, Staging
from nkc.ir.operation import DimRule, NumericRule, Operand, Operation

ACTIVATION_ERROR = 6 * U
"""Relative error of the fp32 product: the exponential's 4 u where it dominates, the sum, the division, the product."""


def arguments(contract: Contract) -> tuple[Argument, ...]:
    """Return the visible arguments: x, product where it is stored, out, its scales, the workspace, m if bounded."""
    return operand_arguments(contract, OPERATION.operands)


def stages(contract: Contract) -> tuple[Stage, ...]:
    """Return the leaf stages. A bf16 product is rounded before amax and division, and decides the codes."""
    rounded = contract.numerics["staging"] is Staging.BF16
    act = Stage(
        name="smq.act",
        source="x, bf16",
        load="fp32, exact",
        operand="gate / (1 + e^-gate) * up",
        accumulate="-",
        store="bf16, one rounding to nearest even" if rounded else "fp32 register",
        range="gate < -88.7: e^-gate is infinite and the product -0, never NaN",
        error="(4 u + 2 u) |y|" + (" + u_b |y|" if rounded else ""),
        bound=f"{ACTIVATION_ERROR + (U_BF16 if rounded else 0):.3g} |y|",
        acceptance="through quant.scale and quant.code"
        + ("; the stored product within 1 ulp" if "product" in contract.dtypes else ""),
    )
    return act, *quantising.stages(contract, source="smq.act", value_error=ACTIVATION_ERROR)


OPERATION = Operation(
    name="silu_mul_quant",
    summary="out[M,K] = fp8 codes of silu(gate) * up, one scale for 1 x 128; gate and up are the columns of x[M,2K]",
    dims=(
        DimRule(name="m", meaning="rows of x (tokens)", typical=(1, 64, 4096), bounded=True),
        DimRule(name="k", meaning="columns of the product: half of those of x", typical=(4096,)),
    ),
    operands=(
        Operand(
            name="x",
            axes=("m", "k"),
            access=Access.READ,
            dtypes=(DType.BF16,),
            layouts=(Layout.ROW_MAJOR,),
            times=2,
        ),
        Operand(
            name="product",
            axes=("m", "k"),
            access=Access.WRITE,
            dtypes=(DType.BF16,),
            layouts=(Layout.ROW_MAJOR,),
            optional=True,
        ),
        quantising.codes(),
    ),
    epilogues=("gated_silu",),
    numerics=(
        NumericRule(name="staging", type=Staging),
        *quantising.RULES,
        NumericRule(name="round", type=Round, default=Round.RNE_ONCE),
        NumericRule(name="nan", type=Nan, default=Nan.PROPAGATE),
    ),
    arguments=arguments,
    stages=stages,
    check=quantising.whole_groups,
)
