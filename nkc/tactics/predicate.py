"""Predicates as values: each one an exact condition on a contract that can say what it wanted and what it found.

Pure, cheap, total, printable, and about integers, enums and flags. A predicate holds only if it holds for every value
of a bounded dim. Equal predicates are evaluated once a contract, however many tactics share them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeAlias

import msgspec

from nkc.ir import operations, targets
from nkc.ir.contract import Accumulate, Bounded, Combine, Contract, Dim, DType, Layout, Reduce, dim_max, dim_min
from nkc.ir.operation import Operand
from nkc.ir.scales import leading_extent
from nkc.tactics.reason import Nearest, Reason, StageName

INT32_MAX = (1 << 31) - 1
ABSENT = "absent"
Written: TypeAlias = int | str | bool | tuple[int, ...]


class Predicate(Protocol):
    """One named, exact condition on a contract."""

    @property
    def name(self) -> str:
        """The phrase that names the condition."""

    def check(self, contract: Contract) -> Reason | None:
        """Return None where the condition holds, else why it does not."""


def lookup(contract: Contract, path: str) -> object:
    """Return the value at a JSON path such as `$.scales.a.block`, or `absent`."""
    value: object = contract
    for step in path.split(".")[1:]:
        value = value.get(step, ABSENT) if isinstance(value, Mapping) else getattr(value, step, ABSENT)
        if value is None or value is ABSENT:
            return ABSENT
    return value


def show(value: object) -> str:
    """Return a value as a reason prints it: enums by word, ranges as `0..64`, tuples as JSON arrays."""
    if isinstance(value, Bounded):
        return f"{value.min}..{value.max}"
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, tuple):
        return f"[{', '.join(show(item) for item in value)}]"
    if isinstance(value, msgspec.Struct):
        fields = ((name, getattr(value, name)) for name in value.__struct_fields__)
        return "{" + ", ".join(f"{name}: {show(item)}" for name, item in fields if item is not None) + "}"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def plain(value: object) -> Written:
    """Return a field's value as it is written: an enum by its word."""
    if isinstance(value, StrEnum):
        return value.value
    assert isinstance(value, int | str | tuple)
    return value


def clamp(dim: Dim, low: int, high: int) -> Dim:
    """Return the dim closest to this one within low and high: what is left of a range, else the closer end."""
    ends = (min(max(dim_min(dim), low), high), min(max(dim_max(dim), low), high))
    return Bounded(min=ends[0], max=ends[1]) if ends[0] < ends[1] else ends[1]


def failed(name: str, field: str, wanted: str, actual: str, nearest: Nearest = None) -> Reason:
    """Return the reason of a predicate that does not hold."""
    return Reason(stage=StageName.PREDICATE, predicate=name, field=field, wanted=wanted, actual=actual, nearest=nearest)


@dataclass(frozen=True, slots=True)
class Equals:
    """The field has exactly this value (a bounded dim never has)."""

    field: str
    value: Written
    name = "equals"

    def check(self, contract: Contract) -> Reason | None:
        """Compare the field."""
        actual = lookup(contract, self.field)
        if actual == self.value:
            return None
        return failed(self.name, self.field, show(self.value), show(actual), plain(self.value))


@dataclass(frozen=True, slots=True)
class OneOf:
    """The field has one of these values."""

    field: str
    values: tuple[Written, ...]
    name = "one_of"

    def check(self, contract: Contract) -> Reason | None:
        """Compare the field with each."""
        actual = lookup(contract, self.field)
        if actual in self.values:
            return None
        return failed(
            self.name,
            self.field,
            f"one of {', '.join(show(value) for value in self.values)}",
            show(actual),
            plain(self.values[0]),
        )


@dataclass(frozen=True, slots=True)
class MultipleOf:
    """Every value of the dim is a multiple of the divisor."""

    field: str
    divisor: int
    why: str = ""
    name = "multiple_of"

    def check(self, contract: Contract) -> Reason | None:
        """Divide; a range passes only if the divisor is 1."""
        dim = lookup(contract, self.field)
        wanted = f"a multiple of {self.divisor}" + (f" ({self.why})" if self.why else "")
        if isinstance(dim, int):
            if dim % self.divisor == 0:
                return None
            below = dim - dim % self.divisor
            nearest = below if below and dim - below < self.divisor - (dim - below) else below + self.divisor
            return failed(self.name, self.field, wanted, show(dim), nearest)
        if isinstance(dim, Bounded) and self.divisor > 1:
            return failed(self.name, self.field, wanted, show(dim), -(-dim.max // self.divisor) * self.divisor)
        return None if isinstance(dim, Bounded) else failed(self.name, self.field, wanted, show(dim))


@dataclass(frozen=True, slots=True)
class AtMost:
    """No value of the dim is above the limit."""

    field: str
    limit: int
    why: str = ""
    name = "at_most"

    def check(self, contract: Contract) -> Reason | None:
        """Compare the largest value."""
        dim = lookup(contract, self.field)
        if isinstance(dim, int | Bounded) and dim_max(dim) <= self.limit:
            return None
        wanted = f"at most {self.limit}" + (f" ({self.why})" if self.why else "")
        nearest = clamp(dim, 0, self.limit) if isinstance(dim, Bounded) else self.limit
        return failed(self.name, self.field, wanted, show(dim), nearest)


@dataclass(frozen=True, slots=True)
class AtLeast:
    """No value of the dim is below the limit."""

    field: str
    limit: int
    why: str = ""
    name = "at_least"

    def check(self, contract: Contract) -> Reason | None:
        """Compare the smallest value."""
        dim = lookup(contract, self.field)
        if isinstance(dim, int | Bounded) and dim_min(dim) >= self.limit:
            return None
        wanted = f"at least {self.limit}" + (f" ({self.why})" if self.why else "")
        nearest = clamp(dim, self.limit, max(dim.max, self.limit)) if isinstance(dim, Bounded) else self.limit
        return failed(self.name, self.field, wanted, show(dim), nearest)


@dataclass(frozen=True, slots=True)
class InSteps:
    """The dim is one of min, min + step, … max. A range of more than one value passes only with a step of 1."""

    field: str
    min: int
    max: int
    step: int
    name = "in_steps"

    def check(self, contract: Contract) -> Reason | None:
        """Test membership."""
        dim = lookup(contract, self.field)
        if isinstance(dim, int) and self.min <= dim <= self.max and (dim - self.min) % self.step == 0:
            return None
        if isinstance(dim, Bounded) and self.step == 1 and self.min <= dim.min and dim.max <= self.max:
            return None
        nearest: Dim = self.min
        if isinstance(dim, Bounded) and self.step == 1:
            nearest = clamp(dim, self.min, self.max)
        elif isinstance(dim, int | Bounded):
            steps = (dim_max(clamp(dim, self.min, self.max)) - self.min + self.step // 2) // self.step
            nearest = self.min + min(steps, (self.max - self.min) // self.step) * self.step
        return failed(self.name, self.field, f"{self.min} to {self.max} in steps of {self.step}", show(dim), nearest)


@dataclass(frozen=True, slots=True)
class IsTarget:
    """The contract is for the chip this tactic was written for."""

    arch: str
    name = "is_target"

    def check(self, contract: Contract) -> Reason | None:
        """Compare the target; another chip is another contract, so nothing near is offered."""
        actual = contract.target.arch
        return None if actual == self.arch else failed(self.name, "$.target.arch", self.arch, actual)


@dataclass(frozen=True, slots=True)
class TargetHas:
    """The contract's target has a capability; `field` is what in the contract asks for it."""

    capability: str
    field: str
    name = "target_has"

    def check(self, contract: Contract) -> Reason | None:
        """Ask the target's facts."""
        if targets.get(contract.target.arch).has(self.capability):
            return None
        asked = show(lookup(contract, self.field))
        return failed(
            self.name, self.field, f"a target with {self.capability}", f"{asked} on {contract.target.arch}, without it"
        )


@dataclass(frozen=True, slots=True)
class LdsFits:
    """The least LDS the kernel can need, in bytes a workgroup, is within the target's limit. Exact, limit included."""

    bytes: int
    name = "lds_fits"

    def check(self, contract: Contract) -> Reason | None:
        """Compare with the target's limit."""
        limit = targets.get(contract.target.arch).lds_bytes
        if self.bytes <= limit:
            return None
        return failed(
            self.name,
            "$.target.arch",
            f"a target with at least {self.bytes} bytes of LDS a workgroup",
            f"{contract.target.arch} with {limit}",
        )


@dataclass(frozen=True, slots=True)
class Serves:
    """The contract's numerical rule is one that this guarantee serves: the same, or a later one in its order."""

    field: str
    guarantee: Accumulate | Combine | Reduce
    name = "serves"

    def check(self, contract: Contract) -> Reason | None:
        """Compare by the order of the rule."""
        asked = lookup(contract, self.field)
        kind = type(self.guarantee)
        if isinstance(asked, kind) and self.guarantee.serves(asked):  # type: ignore[arg-type]
            return None
        served = [rule.value for rule in kind if self.guarantee.serves(rule)]  # type: ignore[arg-type]
        return failed(self.name, self.field, " or ".join(served), show(asked), served[0])


@dataclass(frozen=True, slots=True)
class TilesAtMost:
    """There are no more tiles than the target has compute units; beyond that a split along k has nothing to fill.

    field: the dim along columns, which is named where it does not hold.
    """

    field: str
    axes: tuple[str, str]
    tile: tuple[int, int]
    name = "tiles_at_most_compute_units"

    def check(self, contract: Contract) -> Reason | None:
        """Count the tiles at the largest value of every dim."""
        limit = targets.get(contract.target.arch).compute_units
        rows, columns = (
            -(-dim_max(contract.shape[axis]) // size) for axis, size in zip(self.axes, self.tile, strict=True)
        )
        if rows * columns <= limit:
            return None
        return failed(
            self.name,
            self.field,
            f"at most {limit} tiles of {self.tile[0]}x{self.tile[1]}, one a compute unit",
            f"{rows * columns}",
            limit // rows * self.tile[1] or None,
        )


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


@dataclass(frozen=True, slots=True)
class Declares:
    """Every constant of the contract is one that the tactic declares; an undeclared one is never ignored."""

    constants: tuple[str, ...]
    name = "declares"

    def check(self, contract: Contract) -> Reason | None:
        """Compare the names."""
        undeclared = [constant for constant in contract.constants if constant not in self.constants]
        if not undeclared:
            return None
        known = ", ".join(self.constants) or "none"
        return failed(
            self.name,
            f"$.constants.{undeclared[0]}",
            f"only declared constants ({known})",
            f"undeclared: {', '.join(undeclared)}",
        )


def equals(field: str, value: Written) -> Equals:
    """The field has exactly this value."""
    return Equals(field, value)


def one_of(field: str, *values: Written) -> OneOf:
    """The field has one of these values."""
    return OneOf(field, values)


def multiple_of(field: str, divisor: int, why: str = "") -> MultipleOf:
    """Every value of the dim is a multiple of the divisor."""
    return MultipleOf(field, divisor, why)


def at_most(field: str, limit: int, why: str = "") -> AtMost:
    """No value of the dim is above the limit."""
    return AtMost(field, limit, why)


def offsets_fit_int32(operand: Operand, unit: OffsetUnit) -> OffsetsFitInt32:
    """Every offset into the operand fits a signed 32-bit integer."""
    rows, columns = operand.axes
    return OffsetsFitInt32(operand.name, (rows, columns), unit, operand.times)


def dtypes(**wanted: DType) -> tuple[Equals, ...]:
    """Each named dtype is exactly this one."""
    return tuple(Equals(f"$.dtypes.{name}", dtype) for name, dtype in wanted.items())
