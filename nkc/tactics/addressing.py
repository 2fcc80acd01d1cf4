"""Predicates about memory: what the code assumes of offsets and pointers, unchecked, when it runs."""

from dataclasses import dataclass
from enum import StrEnum

from nkc.ir import operations
from nkc.ir.contract import Contract, Layout, MultipleOf, dim_max
from nkc.ir.operation import Operand
from nkc.ir.scales import leading_extent
from nkc.tactics.predicate import clamp, failed, show
from nkc.tactics.reason import Reason

INT32_MAX = (1 << 31) - 1


class OffsetUnit(StrEnum):
    """What a 32-bit offset counts in the kernel's addressing."""

    ELEMENTS = "elements"
    BYTES = "bytes"


@dataclass(frozen=True, slots=True)
class OffsetsFitInt32:
    """Every offset into the operand fits a signed 32-bit integer, for every value of a bounded dim. Exact arithmetic.

    elements: the offset of the last element. bytes: the size of the tensor, one past the last byte.
    """

    operand: str
    axes: tuple[str, str]
    unit: OffsetUnit
    times: int = 1
    name = "offsets_fit_int32"

    def check(self, contract: Contract) -> Reason | None:
        """Compute the largest offset; an operand that the contract does not have has none."""
        if self.operand not in contract.dtypes:
            return None
        rows, columns = (dim_max(contract.shape[axis]) for axis in self.axes)
        columns *= self.times
        size = contract.dtypes[self.operand].size_bytes
        largest = rows * columns - 1 if self.unit is OffsetUnit.ELEMENTS else rows * columns * size
        if largest <= INT32_MAX:
            return None
        fitting = (INT32_MAX + 1) // columns if self.unit is OffsetUnit.ELEMENTS else INT32_MAX // (columns * size)
        return failed(
            self.name,
            f"$.shape.{self.axes[0]}",
            f"offsets into `{self.operand}` of at most {INT32_MAX} {self.unit.value}",
            f"{largest} with {rows} rows of {columns}",
            clamp(contract.shape[self.axes[0]], 0, fitting) if fitting else None,
        )


@dataclass(frozen=True, slots=True)
class ScaleOffsetsFitInt32:
    """The same of an operand's scales, whose padded leading dimension may reach further than the operand itself."""

    operand: str
    unit: OffsetUnit
    name = "scale_offsets_fit_int32"

    def check(self, contract: Contract) -> Reason | None:
        """Compute the largest offset of M-major scales; row-major ones are dense and smaller than their operand."""
        scale = contract.scales.get(self.operand)
        if scale is None or scale.layout is not Layout.M_MAJOR:
            return None
        operand = operations.get(contract.operation).operand(self.operand)
        dims = {axis: dim_max(contract.shape[axis]) for axis in operand.axes}
        rows, groups = (-(-dims[axis] // block) for axis, block in zip(operand.axes, scale.block, strict=True))
        leading = leading_extent(contract, operand, operand.axes[0]).of(dims)
        reach = (groups - 1) * leading + rows
        if self.unit is OffsetUnit.ELEMENTS:
            largest, room = reach - 1, INT32_MAX + 1 - rows
        else:
            largest, room = reach * scale.dtype.size_bytes, INT32_MAX // scale.dtype.size_bytes - rows
        if largest <= INT32_MAX:
            return None
        fitting = room // (groups - 1) if groups > 1 else 0
        return failed(
            self.name,
            f"$.scales.{self.operand}.leading_dim",
            f"offsets into the scales of `{self.operand}` of at most {INT32_MAX} {self.unit.value}",
            f"{largest} with {groups} groups of {leading}",
            fitting if fitting >= rows else None,
        )


@dataclass(frozen=True, slots=True)
class ScalesPitch:
    """M-major scales whose rows lie so many elements, or a multiple, apart for every value of a bounded dim."""

    operand: str
    multiple_of: int
    why: str = ""
    name = "scales_pitch"

    def check(self, contract: Contract) -> Reason | None:
        """Divide the leading dimension, or what it is padded to; the layout itself is another predicate's."""
        scale = contract.scales.get(self.operand)
        if scale is None or scale.layout is not Layout.M_MAJOR:
            return None
        leading = scale.leading_dim
        steps = leading.multiple_of if isinstance(leading, MultipleOf) else leading
        if steps is not None and steps % self.multiple_of == 0:
            return None
        wanted = f"a multiple of {self.multiple_of}" + (f" ({self.why})" if self.why else "")
        nearest = -(-leading // self.multiple_of) * self.multiple_of if isinstance(leading, int) else None
        return failed(self.name, f"$.scales.{self.operand}.leading_dim", wanted, show(leading), nearest)


@dataclass(frozen=True, slots=True)
class Aligned:
    """The contract promises so many bytes of alignment for a pointer argument; arguments it lacks do not matter."""

    argument: str
    bytes: int
    name = "aligned"

    def check(self, contract: Contract) -> Reason | None:
        """Compare the promise."""
        promised = contract.alignment.get(self.argument)
        if promised is None or promised >= self.bytes:
            return None
        return failed(
            self.name, f"$.alignment.{self.argument}", f"at least {self.bytes} bytes", str(promised), self.bytes
        )


def offsets_fit_int32(operand: Operand, unit: OffsetUnit) -> OffsetsFitInt32:
    """Every offset into the operand fits a signed 32-bit integer."""
    rows, columns = operand.axes
    return OffsetsFitInt32(operand.name, (rows, columns), unit, operand.times)
