"""Predicates about the chip: which one, what it can do, what it has room for. Asked of the target's facts."""

from dataclasses import dataclass

from nkc.ir import targets
from nkc.ir.contract import Contract, dim_max
from nkc.tactics.predicate import failed, lookup, show
from nkc.tactics.reason import Reason


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
