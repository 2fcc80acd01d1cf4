"""What runs around a product otherwise: torch, eager and compiled; and a copy of as many bytes, the ceiling."""

import hashlib
from collections.abc import Callable
from functools import cache
from typing import Any

from nkc.bench.baseline import Baseline, Launch
from nkc.bench.cell import Cell
from nkc.bench.operands import Copy
from nkc.bench.quantised.gate import Value
from nkc.bench.quantised.value import Tensors, summed
from nkc.ir.contract import Contract, Overflow, Quantize
from nkc.ir.quantising import FP8_MAX, QUANTISED
from nkc.ir.scales import argument_name
from nkc.tactics.performance import Gate

COPY = "copy of as many bytes"


def peers(cell: Cell, value: Value, *, compiled_same_rule: bool) -> tuple[Baseline, ...]:
    """Return the baselines of a cell.

    compiled_same_rule: the contract's limits hold what compiled code does: a division within 2 ulp, and no rounding to
    bf16 where the value is used again at once.
    """
    compiled = cache(_compiled)
    return (
        Baseline(name="torch", same_rule=True, prepare=lambda _, copy: _eager(cell.contract, copy, value)),
        Baseline(
            name="torch.compile",
            same_rule=compiled_same_rule,
            prepare=lambda _, copy: _eager(cell.contract, copy, value, through=compiled),
        ),
        Baseline(name=COPY, same_rule=False, prepare=_copy, judge=_judge_copy),
    )


def _eager(
    contract: Contract, copy: Copy, value: Value, through: Callable[[Any], Any] = lambda function: function
) -> Launch:
    """Return a launch of the operation in torch. Raises ValueError for rules that torch has no word for."""
    if QUANTISED in contract.scales and contract.numerics["overflow"] is not Overflow.SATURATE:
        raise ValueError("torch's conversion to e4m3 gives NaN past 464, as `ieee` wants, but no operation asks for it")
    if QUANTISED in contract.scales and contract.numerics["quantize"] is Quantize.RECIPROCAL:
        raise ValueError("nobody writes this rule in torch")
    run = through(_program(contract, value))
    tensors = dict(copy.tensors)
    run(tensors)  # compiled, where it is
    return lambda: run(tensors)


@cache
def _program(contract: Contract, value: Value) -> Callable[[Tensors], None]:
    """Return the operation as it is written in torch, outputs filled in place."""
    import torch

    def run(tensors: Tensors) -> None:
        if "residual_out" in tensors:
            tensors["residual_out"].copy_(summed(tensors))
        y = value(contract, tensors, torch.float32)
        if "product" in tensors:
            tensors["product"].copy_(y)
        if QUANTISED in contract.scales:
            _quantise(contract, y, tensors[QUANTISED], tensors[argument_name(QUANTISED)])
        else:
            tensors[QUANTISED].copy_(y)

    return run


def _quantise(contract: Contract, y: Any, codes: Any, scales: Any) -> None:
    import torch

    floor = contract.numerics["amax_floor"]
    assert isinstance(floor, float)
    groups = y.view(y.shape[0], -1, contract.scales[QUANTISED].block[1])
    each = groups.abs().amax(dim=2).clamp_min(floor) / FP8_MAX
    if contract.numerics["quantize"] is Quantize.UE8M0:
        each = torch.exp2(torch.ceil(torch.log2(each)))
    codes.copy_((groups / each[:, :, None]).view(y.shape))
    scales.copy_(each)


def _compiled(function: Callable[[Tensors], None]) -> Any:
    """Return a function compiled for the shapes of one cell."""
    import torch

    torch._dynamo.reset()  # each cell is another program, and torch keeps no more than eight of one
    return torch.compile(function, dynamic=False, fullgraph=True)


class _Inverted:
    """An elementwise kernel that reads half of some bytes and writes the other half: each word inverted."""

    def __init__(self, count: int, device: Any) -> None:
        import torch

        words = max(4, count // 8)
        self._source = torch.arange(words, dtype=torch.int32, device=device)
        self._target = torch.empty_like(self._source)

    def __call__(self) -> None:
        import torch

        torch.bitwise_not(self._source, out=self._target)

    def right(self) -> bool:
        """Return whether the kernel did so just now."""
        import torch

        self._target.copy_(self._source)
        self()
        return bool(torch.equal(self._target, -1 - self._source))


def _copy(cell: Cell, copy: Copy) -> Launch:
    return _Inverted(cell.bytes, copy.tensors["x"].device)


def _judge_copy(launch: Launch) -> Gate:
    """Judge the ceiling by itself: every word is the inverse of what was read."""
    assert isinstance(launch, _Inverted)
    passed = launch.right()
    digest = hashlib.sha256(f"{COPY}: {passed}".encode()).hexdigest()
    return Gate(passed=passed, worst=None, err_ratio=0.0, err_ratio_limit=0.0, digest=digest)
