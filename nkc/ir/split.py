"""Splits one contract with a bounded dim into several whose ranges lie side by side and cover it."""

from collections.abc import Sequence

import msgspec

from nkc.ir.contract import Bounded, Contract
from nkc.ir.errors import UsageError
from nkc.ir.frozen import FrozenMap


def split(contract: Contract, at: Sequence[int], *, dim: str = "m") -> tuple[Contract, ...]:
    """Return contracts for min..at[0], at[0]+1..at[1], ..., at[-1]+1..max; a part of one value is exact, not a range.

    Cuts outside the range, or at its end, cut nothing and are an error, as are cuts out of order.
    Raises UsageError, also where the dim is no range, or the author fixed a launch that one range alone can have.
    """
    whole = contract.shape.get(dim)
    if not isinstance(whole, Bounded):
        raise UsageError(f"$.shape.{dim}: is {whole}, not a range (only a range can be split)")
    if contract.launch is not None or contract.workspace is not None:
        raise UsageError("$.launch: is fixed for the whole range (leave launch and workspace open, then split)")
    if not at or list(at) != sorted(set(at)):
        raise UsageError(f"--at {','.join(map(str, at))}: not ascending numbers (16,64,256)")
    least = max(1, whole.min)  # 0 alone is no contract: it is part of the first range
    if at[0] < least or at[-1] >= whole.max:
        raise UsageError(
            f"--at {','.join(map(str, at))}: outside $.shape.{dim} (it is {whole.min}..{whole.max}; a cut at c ends a "
            f"range at c, so from {least} to {whole.max - 1})"
        )
    starts, ends = (whole.min, *(cut + 1 for cut in at)), (*at, whole.max)
    return tuple(
        msgspec.structs.replace(contract, shape=FrozenMap({**contract.shape, dim: _range(start, end)}))
        for start, end in zip(starts, ends, strict=True)
    )


def _range(start: int, end: int) -> Bounded | int:
    return start if start == end else Bounded(min=start, max=end)
