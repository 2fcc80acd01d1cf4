"""A cell: one contract at one value of its bounded dims, with the fewest bytes and operations that it takes."""

from collections.abc import Mapping
from dataclasses import dataclass

from nkc.ir.contract import Bounded, Contract, DType
from nkc.ir.errors import UsageError
from nkc.tactics.performance import Ceilings
from nkc.verify.subject import sizes

OPERATIONS = ("dense",)
"""Operations whose operands the bench can make."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One contract, the values of its bounded dims, and what it takes."""

    contract: Contract
    request: str
    dims: Mapping[str, int]

    @property
    def size(self) -> dict[str, int]:
        """The value of every dim."""
        return sizes(self.contract, self.dims)

    @property
    def name(self) -> str:
        """What tables call the cell: operation, target, dims with their range where they have one."""
        size = self.size
        words = []
        for dim in sorted(size, key="mnk".find):
            value = self.contract.shape[dim]
            of = f" of {value.min}..{value.max}" if isinstance(value, Bounded) else ""
            words.append(f"{dim} {size[dim]}{of}")
        return f"{self.contract.operation} {self.contract.target.arch} {self.contract.dtypes['a']} {', '.join(words)}"

    @property
    def bytes(self) -> int:
        """Each input read once, each output written once: operands, scales, bias, result."""
        size, dtypes = self.size, self.contract.dtypes
        m, n, k = (size[dim] for dim in "mnk")
        total = m * k * dtypes["a"].size_bytes + n * k * dtypes["b"].size_bytes + m * n * dtypes["out"].size_bytes
        for name, rows in (("a", m), ("b", n)):
            scale = self.contract.scales.get(name)
            if scale is not None:
                total += -(-rows // scale.block[0]) * (k // scale.block[1]) * scale.dtype.size_bytes
        if self.contract.epilogue.dtype is not None:
            total += n * self.contract.epilogue.dtype.size_bytes
        return total

    @property
    def flops(self) -> int:
        """A multiplication and an addition for each product."""
        m, n, k = (self.size[dim] for dim in "mnk")
        return 2 * m * n * k

    def floor_us(self, ceilings: Ceilings) -> tuple[float, float]:
        """Return the least time in microseconds by bytes and by operations, at the session's own ceilings."""
        kind = "fp8" if self.contract.dtypes["a"] is DType.FP8_E4M3 else "bf16"
        if kind not in ceilings.tflops:
            raise UsageError(f"{self.name}: no ceiling was measured for {kind} products")
        return self.bytes / ceilings.read_gbs / 1e3, self.flops / ceilings.tflops[kind] / 1e6


def check_operation(contract: Contract, file: str) -> None:
    """Raise UsageError for an operation that the bench cannot feed."""
    if contract.operation not in OPERATIONS:
        raise UsageError(f"{file}: `{contract.operation}` cannot be benched yet (known: {', '.join(OPERATIONS)})")
