"""Where an operand's scales lie: the one statement of their shape, strides and argument name."""

from nkc.ir.contract import Bounded, Contract, Dim, Layout, MultipleOf, Scale
from nkc.ir.launch import Extent
from nkc.ir.operation import Operand


def argument_name(operand: str) -> str:
    """Return the name of the argument that carries an operand's scales."""
    return f"{operand}_scales"


def ceil_div(dim: Dim, divisor: int) -> Dim:
    """Return `ceil(dim / divisor)`, exact or bounded like the dim."""
    if isinstance(dim, Bounded):
        return Bounded(min=-(-dim.min // divisor), max=-(-dim.max // divisor))
    return -(-dim // divisor)


def scale_shape(operand: Operand, scale: Scale, shape: dict[str, Dim]) -> tuple[Dim, ...]:
    """Return the logical shape of the scales, `ceil(dim / block)` along each axis of the operand."""
    return tuple(ceil_div(shape[axis], block) for axis, block in zip(operand.axes, scale.block, strict=True))


def operand_extents(contract: Contract, operand: Operand) -> tuple[Extent, ...]:
    """Return the shape of an operand as launch extents."""
    *outer, last = operand.axes
    if operand.times == 1:
        return tuple(extent(contract, axis) for axis in operand.axes)
    return (*(extent(contract, axis) for axis in outer), Extent(value=contract.exact(last) * operand.times))


def extent(contract: Contract, dim: str, divisor: int = 1, multiple_of: int = 1) -> Extent:
    """Return an extent of a tensor for a launch guard: a number where the dim is exact."""
    value = contract.shape[dim]
    symbolic = Extent(dim=dim, divisor=divisor, multiple_of=multiple_of)
    return symbolic if isinstance(value, Bounded) else Extent(value=symbolic.of({dim: value}))


def scale_extents(contract: Contract, operand: Operand) -> tuple[Extent, ...]:
    """Return the logical shape of an operand's scales as launch extents."""
    scale = contract.scales[operand.name]
    return tuple(extent(contract, axis, block) for axis, block in zip(operand.axes, scale.block, strict=True))


def scale_strides(contract: Contract, operand: Operand) -> tuple[Extent, ...]:
    """Return the strides of an operand's scales in elements: row-major, or with the first axis contiguous."""
    scale = contract.scales[operand.name]
    rows, columns = operand.axes
    if scale.layout is Layout.ROW_MAJOR:
        return extent(contract, columns, scale.block[1]), Extent(value=1)
    return Extent(value=1), leading_extent(contract, operand, rows)


def leading_extent(contract: Contract, operand: Operand, rows: str) -> Extent:
    """Return the leading dimension of M-major scales in elements."""
    scale = contract.scales[operand.name]
    match scale.leading_dim:
        case int() as fixed:
            return Extent(value=fixed)
        case MultipleOf(multiple_of=multiple):
            return extent(contract, rows, scale.block[0], multiple)
        case None:
            return extent(contract, rows, scale.block[0])
