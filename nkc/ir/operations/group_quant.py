"""group_quant: every 1 x 128 group of a row becomes e4m3fn codes and one scale."""

from nkc.ir import quantising
from nkc.ir.arguments import operand_arguments
from nkc.ir.budget import Stage
from nkc.ir.contract import Access, Argument, Contract, DType, Layout, Nan, Round
from nkc.ir.operation import DimRule, NumericRule, Operand, Operation


def arguments(contract: Contract) -> tuple[Argument, ...]:
    """Return the visible arguments: x, out, its scales, the workspace, m where it is bounded."""
    return operand_arguments(contract, OPERATION.operands)


def stages(contract: Contract) -> tuple[Stage, ...]:
    """Return the leaf stages; x itself is exact, so every bit of scales and codes is stated."""
    return quantising.stages(contract, source=f"x, {contract.dtypes['x']}; an infinity makes its code NaN")


OPERATION = Operation(
    name="group_quant",
    summary="out[M,K] = fp8 codes of x[M,K], one scale for 1 x 128",
    dims=(
        DimRule(name="m", meaning="rows of x (tokens)", typical=(1, 64, 4096), bounded=True),
        DimRule(name="k", meaning="columns of x", typical=(4096,)),
    ),
    operands=(
        Operand(
            name="x",
            axes=("m", "k"),
            access=Access.READ,
            dtypes=(DType.BF16, DType.FP32),
            layouts=(Layout.ROW_MAJOR,),
        ),
        quantising.codes(),
    ),
    numerics=(
        *quantising.RULES,
        NumericRule(name="round", type=Round, default=Round.RNE_ONCE),
        NumericRule(name="nan", type=Nan, default=Nan.PROPAGATE),
    ),
    arguments=arguments,
    stages=stages,
    check=quantising.whole_groups,
)
