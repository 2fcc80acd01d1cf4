"""Why a candidate is not selected: one condition, with the field, the wanted and the actual value."""

from enum import StrEnum
from typing import TypeAlias

import msgspec

from nkc.ir.contract import Bounded

Nearest: TypeAlias = int | str | bool | tuple[int | str, ...] | Bounded | None


class StageName(StrEnum):
    """Where a reason arose. All stages are evaluated for every candidate; any reason rejects."""

    PREDICATE = "predicate"
    PROPERTY = "property"
    MATURITY = "maturity"
    POLICY = "policy"
    OBJECT = "object"


class Reason(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One condition that does not hold.

    stage: where it arose.
    predicate: the condition's name.
    field: the JSON path in the contract.
    wanted: what would hold.
    actual: what is there.
    nearest: the value to write at that path so that this condition holds, closest to the one that is there (a range
        stays a range where it can); None where no edit of the contract can do it, or it is no single value.
    """

    stage: StageName
    predicate: str
    field: str
    wanted: str
    actual: str
    nearest: Nearest = None
