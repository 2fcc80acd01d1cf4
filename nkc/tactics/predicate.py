"""Predicates as values: each one an exact condition on a contract that can say what it wanted and what it found.

Pure, cheap, total, printable, and about integers, enums and flags. A predicate holds only if it holds for every value
of a bounded dim. Equal predicates are evaluated once a contract, however many tactics share them.
"""

import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeAlias

import msgspec

from nkc.ir import operations
from nkc.ir.contract import Accumulate, Bounded, Combine, Contract, Dim, DType, Reduce, dim_max, dim_min
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
    if isinstance(value, float):
        return _real(value)
    return str(value)


def _real(value: float) -> str:
    """Return the shortest decimal that is this fp32 value, as all reals of a contract are: `1e-06`."""
    for digits in range(1, 10):
        text = f"{value:.{digits}g}"
        with suppress(OverflowError):  # of the largest, rounded up
            if struct.unpack("<f", struct.pack("<f", float(text)))[0] == value:
                return text
    return repr(value)


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


@dataclass(frozen=True, slots=True)
class ConstantOperands:
    """Every argument that the kernel reads before the kernels ahead have ended is constant. One of dependent launch.

    arguments: pointer arguments by name, in the operation's order; a contract need not have each of them.
    """

    arguments: tuple[str, ...]
    name = "constant_operands"

    def check(self, contract: Contract) -> Reason | None:
        """Compare with the arguments that the contract declares constant."""
        needed = self.of(contract)
        constant = contract.properties.constant
        if set(needed) <= set(constant):
            return None
        return failed(
            self.name,
            "$.properties.constant",
            f"{', '.join(needed)} among them (read before the kernels ahead have ended)",
            show(constant),
            tuple(sorted({*constant, *needed})),
        )

    def of(self, contract: Contract) -> tuple[str, ...]:
        """Return those of the arguments that a kernel for this contract has."""
        there = {argument.name for argument in operations.get(contract.operation).arguments(contract)}
        return tuple(name for name in self.arguments if name in there)


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


def dtypes(**wanted: DType) -> tuple[Equals, ...]:
    """Each named dtype is exactly this one."""
    return tuple(Equals(f"$.dtypes.{name}", dtype) for name, dtype in wanted.items())
