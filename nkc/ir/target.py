"""What a target is: a chip's facts, each with unit, source, and whether it was measured or is assumed."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Basis(StrEnum):
    """How a fact is known: `documented` by the vendor, `measured` on the chip, or `assumed` until somebody can."""

    DOCUMENTED = "documented"
    MEASURED = "measured"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One value with its unit, where it comes from and how it is known."""

    value: int | float | bool | str
    unit: str
    source: str
    basis: Basis


class Vendor(StrEnum):
    """Who makes the chip, which settles driver and container of the code object."""

    AMD = "amd"
    NVIDIA = "nvidia"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One chip. isa: what its code objects name. facts: by name; capabilities are boolean facts.

    Hardware conditions are asked of a target by capability, never by its name.
    """

    arch: str
    isa: str
    vendor: Vendor
    title: str
    facts: Mapping[str, Fact]

    def has(self, capability: str) -> bool:
        """Return whether the chip is known to have a capability; one that is not stated is not there."""
        fact = self.facts.get(capability)
        return fact is not None and fact.value is True

    def integer(self, name: str) -> int:
        """Return a whole-number fact. Raises KeyError for one the chip does not state."""
        value = self.facts[name].value
        assert isinstance(value, int), name
        return value

    @property
    def wave(self) -> int:
        """Lanes of a wave (warp)."""
        return self.integer("wave")

    @property
    def lds_bytes(self) -> int:
        """Largest LDS (shared memory) of one workgroup, in bytes."""
        return self.integer("lds_bytes")

    @property
    def max_threads(self) -> int:
        """Largest workgroup, in threads."""
        return self.integer("max_threads")

    @property
    def compute_units(self) -> int:
        """Compute units (multiprocessors) of the whole chip."""
        return self.integer("compute_units")
