"""What a kernel means beyond its tensors: epilogue, numerical rules and constants of its sealed contract.

Guards say which tensors a kernel takes; two kernels with equal guards may still compute different things. A call says
what it means field by field, and a kernel serves it only where every field of either side is one that both know.
"""

import struct
from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from nkc.runtime.errors import BundleError

Value: TypeAlias = str | int | float | bool | None
# A field's acceptable values; of ordered rules all those that serve the asked one.
Wanted: TypeAlias = Mapping[str, tuple[Value, ...]]


class _Sections(msgspec.Struct, frozen=True):
    """The sections of a contract that change what is computed; the others are identity, guards or schedule."""

    epilogue: dict[str, Value] = msgspec.field(default_factory=dict)
    numerics: dict[str, Value] = msgspec.field(default_factory=dict)
    constants: dict[str, Value] = msgspec.field(default_factory=dict)
    specialization: dict[str, Value] = msgspec.field(default_factory=dict)


def read(file: str, contract: bytes) -> dict[str, Value]:
    """Return the fields of a sealed contract as `section.field`. Errors: BundleError."""
    try:
        sections = msgspec.json.decode(contract, type=_Sections)
    except msgspec.DecodeError as error:
        raise BundleError(f"{file}: {error}") from None
    found: dict[str, Value] = {}
    for section in ("epilogue", "numerics", "constants", "specialization"):
        for name, value in getattr(sections, section).items():
            found[f"{section}.{name}"] = real(value)
    return found


def real(value: Value) -> Value:
    """Return a real, also one written as a `float.hex` string, as the fp32 it is; everything else as it stands."""
    if isinstance(value, str) and value.lstrip("-").startswith("0x"):
        value = float.fromhex(value)
    return fp32(value) if isinstance(value, float) else value


def fp32(value: float) -> float:
    """Return a real as a contract holds it, rounded to fp32."""
    rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return rounded


def mismatches(has: Mapping[str, Value], wanted: Wanted) -> list[str]:
    """Return what keeps a kernel from meaning what the call means; a field that one side does not know counts."""
    found = []
    for field in sorted({*has, *wanted}):
        asked = wanted.get(field)
        value = has.get(field)
        if asked is None:
            if value is not None:
                found.append(f"{field}: the kernel has `{value}`, the call does not know this field")
        elif value not in asked:
            words = " or ".join(f"`{each}`" for each in asked)
            found.append(f"{field}: wanted {words}, the kernel has `{value}`")
    return found
