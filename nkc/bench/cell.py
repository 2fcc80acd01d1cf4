"""A cell: one contract at one value of its bounded dims, with the fewest bytes and operations that it takes."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from nkc.bench import subjects
from nkc.ir import operations
from nkc.ir.contract import Bounded, Contract
from nkc.ir.errors import UsageError
from nkc.tactics.performance import Ceilings
from nkc.verify.subject import sizes


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
        words += subjects.find(self.contract.operation).words(self.contract)
        first = operations.get(self.contract.operation).operands[0].name
        dtype = self.contract.dtypes[first]
        return f"{self.contract.operation} {self.contract.target.arch} {dtype} {', '.join(words)}"

    @property
    def bytes(self) -> int:
        """Each input read once, each output written once: operands, scales, bias, result."""
        size, total = self.size, 0
        for operand in operations.get(self.contract.operation).operands:
            dtype = self.contract.dtypes.get(operand.name)
            if dtype is None:
                continue
            extents = [size[axis] for axis in operand.axes]
            total += math.prod(extents) * operand.times * dtype.size_bytes
            scale = self.contract.scales.get(operand.name)
            if scale is not None:
                blocks = (-(-extent // block) for extent, block in zip(extents, scale.block, strict=True))
                total += math.prod(blocks) * scale.dtype.size_bytes
        if self.contract.epilogue.dtype is not None:
            total += size["n"] * self.contract.epilogue.dtype.size_bytes
        return total

    @property
    def flops(self) -> int:
        """The fewest operations of a matrix unit."""
        return subjects.find(self.contract.operation).flops(self.size)

    def floor_us(self, ceilings: Ceilings) -> tuple[float, float]:
        """Return the least time in microseconds by bytes and by operations, at the session's own ceilings."""
        benched = subjects.find(self.contract.operation)
        rate = ceilings.read_gbs if benched.bandwidth == "read" else ceilings.copy_gbs
        by_bytes = self.bytes / rate / 1e3
        if benched.products is None:
            return by_bytes, 0.0
        kind = benched.products(self.contract)
        if kind not in ceilings.tflops:
            raise UsageError(f"{self.name}: no ceiling was measured for {kind} products")
        return by_bytes, self.flops / ceilings.tflops[kind] / 1e6


def check_operation(contract: Contract, file: str) -> None:
    """Raise UsageError for an operation that the bench cannot feed."""
    known = subjects.names()
    if contract.operation not in known:
        raise UsageError(f"{file}: `{contract.operation}` cannot be benched yet (known: {', '.join(known)})")
