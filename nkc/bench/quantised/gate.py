"""The correctness gate of codes and scales: rows against the oracle, then every element against float64 on the device.

A window of whole rows, first and last among them, is held against the operation's oracle within its limits. Every
element of the result must be the nearest code to its value under the scale that was written, up to a rounding of the
value before, and every scale that of its group's largest value.
"""

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from nkc.bench.cell import Cell
from nkc.bench.operands import Copy, poison
from nkc.bench.quantised.operands import RECIPE
from nkc.bench.quantised.value import Tensors, summed
from nkc.ir.contract import Contract, Quantize
from nkc.ir.quantising import FP8_MAX, QUANTISED
from nkc.ir.scales import argument_name
from nkc.tactics.performance import Gate
from nkc.verify import bounds, quantised
from nkc.verify.numbers import bf16
from nkc.verify.oracles.group_quant import Quantised
from nkc.verify.oracles.silu_mul_quant import Intermediate
from nkc.verify.quant_bounds import EXACT, QuantLimits, judge_quantised

ROWS = 8
"""Rows of the window."""
CODES_RATIO = 3.6e-2
"""Limit of the RMS ratio of what codes stand for: rounding to 3 fraction bits loses 2.4e-2 of data spread over a
binade (2^-4 / sqrt 3 * sqrt(3 / 7)); 1.5 times that, as for a bf16 store."""
NEAREST = 2.0**-4 + 2.0**-7
"""Half a step of e4m3 over its value, and a bf16 rounding of the value before (2^-8) with what moves at its tie."""
SMALLEST_NORMAL = 2.0**-6
SCALE_SLACK = 2.0**-7
"""Of a scale over that of the largest value: two bf16 roundings."""
NOT_FINITE = 1e9  # JSON has no infinity
ORACLE = "rows by the operation's oracle, all elements by float64"
_ROWS_AT_ONCE = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What the window's rows must be.

    quantised: codes and scales, with their limits and what waits for them; None where the result is bf16. near: bf16
    outputs by name, a float64 value and its error before the store. bits: bf16 outputs that must have these.
    """

    quantised: Quantised | None
    limits: QuantLimits = EXACT
    value: NDArray[np.float64] | None = None
    staging: Intermediate = Intermediate.FP32
    near: Mapping[str, tuple[NDArray[np.float64], NDArray[np.float64]]]
    bits: Mapping[str, NDArray[np.uint16]]


Oracle = Callable[[Contract, Mapping[str, NDArray[np.float32]]], Expected]
Value = Callable[[Contract, Tensors, Any], Any]


class Reference:
    """What one cell's operands lead to: a window on the host, the whole on the device, part by part."""

    def __init__(self, cell: Cell, copy: Copy, seed: int, *, oracle: Oracle, value: Value) -> None:
        self._cell = cell
        self._seed = seed
        self._value = value
        rows = cell.size["m"]
        self._rows = np.unique(np.linspace(0, rows - 1, min(rows, ROWS)).round().astype(np.int64))
        given = {name: tensor for name, tensor in copy.tensors.items() if name not in copy.written}
        self._expected = oracle(cell.contract, {name: self._window(tensor) for name, tensor in given.items()})

    def judge(self, launch: Callable[[], object], copy: Copy, sealed: Contract | None) -> Gate:
        """Run once on poisoned outputs and judge them. sealed: the built contract; None for another rule."""
        import torch

        for name in copy.written:
            poison(copy.tensors[name])
        launch()
        if copy.tensors["x"].is_cuda:
            torch.cuda.synchronize()
        ratio, far = self._whole(copy.tensors)
        worst = None if sealed is None else max(self._window_worst(copy.tensors), far if far > 1 else 0.0)
        limit = CODES_RATIO if QUANTISED in self._cell.contract.scales else bounds.BF16_STORE_RATIO
        passed = ratio <= limit and (worst is None or worst <= 1)
        said: dict[str, object] = {"passed": passed, "worst": worst, "err_ratio": ratio, "limit": limit}
        said |= {"oracle": ORACLE, "recipe": RECIPE, "seed": self._seed, "request": self._cell.request}
        said |= {"dims": dict(self._cell.dims)}
        return Gate(
            passed=passed,
            worst=worst if worst is None else _shown(worst),
            err_ratio=ratio,
            err_ratio_limit=limit,
            digest=hashlib.sha256(msgspec.json.encode(said, order="sorted")).hexdigest(),
        )

    def _window(self, tensor: Any) -> NDArray[np.float32]:
        import torch

        picked = tensor if tensor.dim() == 1 else tensor[torch.from_numpy(self._rows).to(tensor.device)]
        found: NDArray[np.float32] = picked.float().cpu().numpy()
        return np.ascontiguousarray(found)

    def _window_worst(self, tensors: Tensors) -> float:
        """Return the largest error over its limit in the window, infinity where something has no limit to exceed."""
        import torch

        expected, worst = self._expected, [0.0]
        if expected.quantised is not None:
            rules = quantised.Rules.of(self._cell.contract)
            rows = torch.from_numpy(self._rows).to(tensors[QUANTISED].device)
            found = judge_quantised(
                tensors[QUANTISED].view(torch.uint8)[rows].cpu().numpy(),
                self._window(tensors[argument_name(QUANTISED)]),
                expected.quantised,
                expected.limits,
                overflow=rules.overflow,
                flavour=rules.flavour,
                value=expected.value,
                intermediate=expected.staging,
            )
            allowed = math.ceil(expected.limits.moved * expected.quantised.codes.size)
            moved = round(found.moved * expected.quantised.codes.size)
            worst += [math.inf if found.outside else 0.0, _over(moved, allowed)]
            worst.append(_over(found.scale_ulp, expected.limits.scale_ulp))
        for name, (value, error) in expected.near.items():
            bound = bounds.bf16_store_error(value, error)
            verdict = bounds.judge(
                self._window(tensors[name]), value, bound, overflow=bounds.BF16_OVERFLOW, err_ratio_limit=None
            )
            worst.append(verdict.worst)
        for name, wanted in expected.bits.items():
            same = np.array_equal(bf16.encode(self._window(tensors[name])), wanted)
            worst.append(0.0 if same else math.inf)
        return max(worst)

    def _whole(self, tensors: Tensors) -> tuple[float, float]:
        """Return RMS(result - value) / RMS(value), and the largest error over the bound of any element."""
        squares, norm, worst = 0.0, 0.0, 0.0
        for start in range(0, tensors["x"].shape[0], _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            part = {name: tensor if tensor.dim() == 1 else tensor[rows] for name, tensor in tensors.items()}
            found = self._part(part)
            squares, norm, worst = squares + found[0], norm + found[1], max(worst, found[2])
        ratio = (squares / (norm or 1.0)) ** 0.5
        return _shown(ratio), worst if math.isfinite(worst) else math.inf

    def _part(self, tensors: Tensors) -> tuple[float, float, float]:
        import torch

        contract = self._cell.contract
        value = self._value(contract, tensors, torch.float64)
        out = tensors[QUANTISED].to(torch.float64)
        worst = 0.0
        if QUANTISED in contract.scales:
            group = contract.scales[QUANTISED].block[1]
            scales = tensors[argument_name(QUANTISED)].to(torch.float64)
            each = scales.repeat_interleave(group, dim=1)
            out = out * each
            bound = NEAREST * torch.maximum(value.abs(), SMALLEST_NORMAL * each)
            worst = _scales_off(contract, value, scales, group)
        else:
            bound = (2.0**-8 + 2.0**-9) * value.abs() + bounds.BF16_STORE_RATIO * 2.0**-126
        off = (out - value).abs()
        worst = max(worst, _largest(off / bound))
        if "product" in tensors:
            worst = max(worst, _largest((tensors["product"].to(torch.float64) - value).abs() / (2.0**-7 * value.abs())))
        if "residual_out" in tensors and not torch.equal(tensors["residual_out"], summed(tensors).to(torch.bfloat16)):
            worst = math.inf
        return float(off.square().sum()), float(value.square().sum()), worst


def _scales_off(contract: Contract, value: Any, scales: Any, group: int) -> float:
    """Return how far the scale that is farthest from its group's largest value is, over the slack."""
    floor = contract.numerics["amax_floor"]
    assert isinstance(floor, float)
    largest = value.abs().view(value.shape[0], -1, group).amax(dim=2).clamp_min(max(floor, 2.0**-126))
    over = scales * FP8_MAX / largest
    above = 2.0 if contract.numerics["quantize"] is Quantize.UE8M0 else 1.0  # rounded up to a power of two
    return max(_largest((1 - over) / SCALE_SLACK), _largest((over / above - 1) / SCALE_SLACK))


def _largest(values: Any) -> float:
    """Return the largest value, infinity where one is NaN."""
    found = float(values.amax())
    return math.inf if math.isnan(found) else found


def _over(found: float, limit: float) -> float:
    return found / limit if limit else (math.inf if found else 0.0)


def _shown(value: float) -> float:
    return float(f"{value:.4g}") if math.isfinite(value) else NOT_FINITE
