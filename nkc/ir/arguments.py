"""The visible arguments of a kernel whose operands speak for themselves: each tensor, then its scales."""

from collections.abc import Iterable

from nkc.ir.contract import Argument, Bounded, Contract, DType
from nkc.ir.operation import Operand, pointer
from nkc.ir.scales import argument_name


def operand_arguments(contract: Contract, operands: Iterable[Operand]) -> tuple[Argument, ...]:
    """Return the operands that the contract has, each before its scales, then the workspace and the bounded dims."""
    listed = []
    for operand in operands:
        if operand.name not in contract.dtypes:
            continue
        listed.append(Argument(name=operand.name, type=pointer(contract.dtypes[operand.name]), access=operand.access))
        scale = contract.scales.get(operand.name)
        if scale is not None:
            listed.append(Argument(name=argument_name(operand.name), type=pointer(scale.dtype), access=operand.access))
    if contract.workspace is not None and contract.workspace.bytes:
        listed.append(Argument(name="workspace", type=pointer(DType.INT32)))
    bounded = sorted(name for name, dim in contract.shape.items() if isinstance(dim, Bounded))
    return (*listed, *(Argument(name=name, type="int32") for name in bounded))
