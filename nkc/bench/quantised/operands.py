"""Operands around a product: normals times a log-normal per row in bf16, weights near one; outputs poisoned."""

from typing import Any

from nkc.bench.cell import Cell
from nkc.bench.operands import Copy, poison
from nkc.ir import operations
from nkc.ir.contract import Access, Contract, DType, Layout, Weight
from nkc.ir.operation import Operand
from nkc.ir.scales import argument_name, leading_extent

RECIPE = "bench: normal, log-normal rows, weights within a quarter of one"


def make(cell: Cell, seed: int, device: str = "cuda") -> Copy:
    """Return one set of operands; outputs are poisoned. Bits depend on the seed and on torch's generator."""
    import torch

    draw = torch.Generator(device=device).manual_seed(seed)

    def normal(*shape: int) -> Any:
        return torch.randn(shape, generator=draw, device=device, dtype=torch.float32)

    contract, size = cell.contract, cell.size
    found: dict[str, Any] = {}
    written: list[str] = []
    for operand in operations.get(contract.operation).operands:
        dtype = contract.dtypes.get(operand.name)
        if dtype is None:
            continue
        *outer, last = (size[axis] for axis in operand.axes)
        shape = (*outer, last * operand.times)
        if operand.access is not Access.READ:
            found[operand.name] = torch.empty(shape, device=device, dtype=_torch(dtype))
            written.append(operand.name)
            if operand.name in contract.scales:
                found[argument_name(operand.name)] = _scales(contract, operand, size, device)
                written.append(argument_name(operand.name))
        elif len(shape) == 1:
            centre = 1.0 if contract.numerics.get("weight") is Weight.PLAIN else 0.0
            found[operand.name] = (centre + 0.25 * normal(*shape)).to(_torch(dtype))
        else:
            found[operand.name] = (normal(*shape) * torch.exp(0.7 * normal(shape[0], 1))).to(_torch(dtype))
    for name in written:
        poison(found[name])
    return Copy(tensors=found, written=tuple(written))


def _scales(contract: Contract, operand: Operand, size: dict[str, int], device: str) -> Any:
    """Return room for scales [M, G] in the contract's layout."""
    import torch

    scale = contract.scales[operand.name]
    rows, groups = (-(-size[axis] // block) for axis, block in zip(operand.axes, scale.block, strict=True))
    if scale.layout is Layout.ROW_MAJOR:
        return torch.empty((rows, groups), device=device, dtype=torch.float32)
    leading = leading_extent(contract, operand, operand.axes[0]).of(size)
    storage = torch.empty(groups * leading, device=device, dtype=torch.float32)
    return storage.as_strided((rows, groups), (1, leading))


def _torch(dtype: DType) -> Any:
    from nkc.runtime.tensor import torch_dtype

    return torch_dtype(dtype)
