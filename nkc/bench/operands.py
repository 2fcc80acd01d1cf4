"""Operands in device memory, in as many copies as exceed the L2; what they hold is the operation's (`subjects`)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nkc.bench.cell import Cell
from nkc.ir.errors import UsageError
from nkc.verify.memory import POISON

if TYPE_CHECKING:
    from collections.abc import Mapping

L2_TIMES = 4
MOST_COPIES = 1 << 15
"""A graph has a node for each copy at least: 8 KiB is the smallest cell that is still timed beyond the L2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """One set of tensors by argument name, as the contract's kernels take them.

    written: the outputs among them.
    """

    tensors: "Mapping[str, Any]"
    written: tuple[str, ...] = ("out",)


def copies_wanted(cell: Cell, l2_bytes: int) -> int:
    """Return how many copies of everything exceed the L2 four times, at least two.

    Raises UsageError for a cell so small that nobody could walk through so many.
    """
    count = max(2, -(-L2_TIMES * l2_bytes // cell.bytes) + 1)
    if count > MOST_COPIES:
        raise UsageError(
            f"{cell.name}: {cell.bytes} bytes would take {count} copies to exceed the L2 {L2_TIMES} times "
            f"(at most {MOST_COPIES} are walked through)"
        )
    return count


def clone(copy: Copy) -> Copy:
    """Return the same values elsewhere in memory, strides kept."""
    import torch

    found = {}
    for name, tensor in copy.tensors.items():
        other = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
        found[name] = other.copy_(tensor)
    return Copy(tensors=found, written=copy.written)


def poison(tensor: Any) -> None:
    """Fill a tensor with NaN, and whatever lies between its elements."""
    import torch

    elements = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    tensor.as_strided((elements,), (1,)).view(torch.uint8).fill_(POISON)
