"""The correctness gate: no time is taken of a kernel whose result on the very same operands is not right.

Two looks. A window of rows and columns, tails included, is held against the float64 oracle within the contract's
derived bound, element by element; of codes whole groups of columns, as `nkc.verify.legal_codes` judges them. The whole
output is held against float64 on the device by RMS, and no element of a poisoned output may be left.
"""

import hashlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from nkc.bench.cell import Cell
from nkc.bench.operands import Copy, poison
from nkc.bench.quantised.gate import CODES_RATIO
from nkc.bench.subjects.dense.libraries import dequantised
from nkc.bench.subjects.dense.operands import RECIPE
from nkc.ir.contract import Contract, DType
from nkc.ir.operations.dense import block_scaled
from nkc.ir.quantising import GROUP, QUANTISED
from nkc.ir.scales import argument_name
from nkc.tactics.performance import Gate
from nkc.verify import bounds, legal_codes, quantised
from nkc.verify.numbers import bf16, fp8
from nkc.verify.oracles.dense import Chain, Operands
from nkc.verify.subjects.dense import FP32_OVERFLOW, chains_of, expected

WINDOW_ROWS, WINDOW_COLUMNS, WINDOW_GROUPS = 8, 96, 2
OTHER_RULE_RATIO = 8e-3
"""Limit of the RMS ratio where a route follows another rule: bf16 operands lose 2.3e-3, a wrong result far more."""
NOT_FINITE = 1e9  # JSON has no infinity
ORACLE = "dense, float64"


class Reference:
    """What one cell's operands multiply to: a window on the host, the whole on the device."""

    def __init__(self, cell: Cell, copy: Copy, seed: int) -> None:
        self._cell = cell
        self._seed = seed
        self._rows = _spread(cell.size["m"], WINDOW_ROWS)
        self._codes = QUANTISED in cell.contract.scales
        self._groups = _spread(cell.size["n"] // GROUP, WINDOW_GROUPS) if self._codes else _spread(1, 1)
        self._columns = _spread(cell.size["n"], WINDOW_COLUMNS)
        if self._codes:
            self._columns = (self._groups[:, None] * GROUP + np.arange(GROUP)).reshape(-1)
        self._operands, self._bias = _window(cell, copy, self._rows, self._columns)
        self._whole = _whole(cell, copy)
        self._norm = float(self._whole.square().sum()) or 1.0
        self._by_chains: dict[tuple[Chain, ...], tuple[NDArray[np.float64], NDArray[np.float64]]] = {}

    def judge(self, launch: Callable[[], object], copy: Copy, sealed: Contract | None) -> Gate:
        """Run once on poisoned outputs and judge them. sealed: the built contract; None for another rule."""
        import torch

        for name in copy.written:
            poison(copy.tensors[name])
        launch()
        if copy.tensors["out"].is_cuda:
            torch.cuda.synchronize()
        worst, held = None, True
        if sealed is not None:
            worst, held = self._window(copy, sealed)
        ratio = self._ratio(copy)
        limit = OTHER_RULE_RATIO if sealed is None else bounds.BF16_STORE_RATIO
        limit = CODES_RATIO if self._codes else limit
        passed = held and ratio <= limit
        said: dict[str, object] = {
            "passed": passed,
            "worst": worst,
            "err_ratio": ratio,
            "limit": limit,
            "oracle": ORACLE,
        }
        said |= {"recipe": RECIPE, "seed": self._seed, "request": self._cell.request, "dims": dict(self._cell.dims)}
        return Gate(
            passed=passed,
            worst=worst,
            err_ratio=ratio,
            err_ratio_limit=limit,
            digest=hashlib.sha256(msgspec.json.encode(said, order="sorted")).hexdigest(),
        )

    def _window(self, copy: Copy, sealed: Contract) -> tuple[float, bool]:
        """Return the largest error over its bound in the window, and whether all of it is within."""
        chains = chains_of(sealed, self._operands)
        if chains not in self._by_chains:
            self._by_chains[chains] = expected(sealed, self._operands, self._bias, chains)
        value, bound = self._by_chains[chains]
        if self._codes:
            legal = self._legal(copy, sealed, value, bound)
            return 0.0 if legal else NOT_FINITE, legal
        got = copy.tensors["out"][self._rows][:, self._columns].float().cpu().numpy()
        narrow = sealed.dtypes["out"] is DType.BF16
        verdict = bounds.judge(
            got, value, bound, overflow=bounds.BF16_OVERFLOW if narrow else FP32_OVERFLOW, err_ratio_limit=None
        )
        return float(f"{verdict.worst:.4g}"), verdict.passed

    def _legal(self, copy: Copy, sealed: Contract, value: NDArray[np.float64], bound: NDArray[np.float64]) -> bool:
        """Return whether the window's codes and scales are those of some value within the bound."""
        import torch

        rules, staging = quantised.Rules.of(sealed), quantised.staging_of(sealed)
        codes = copy.tensors[QUANTISED].view(torch.uint8)[self._rows][:, self._columns].cpu().numpy()
        scales = copy.tensors[argument_name(QUANTISED)][self._rows][:, self._groups].cpu().numpy()
        low, high = (legal_codes.staged(end, staging) for end in (value - bound, value + bound))
        found = legal_codes.legal(codes, np.ascontiguousarray(scales), low, high, rules, staging)
        return bool(found.codes.all() and found.scales.all())

    def _ratio(self, copy: Copy) -> float:
        """Return RMS(out - reference) / RMS(reference) over the whole output; `NOT_FINITE` where an element is NaN."""
        out, squares = copy.tensors["out"], 0.0
        for start in range(0, out.shape[0], _ROWS_AT_ONCE):
            part = slice(start, start + _ROWS_AT_ONCE)
            found = out[part].double()
            if self._codes:
                found = found * copy.tensors[argument_name(QUANTISED)][part].double().repeat_interleave(GROUP, dim=1)
            squares += float((found - self._whole[part]).square().sum())
        ratio = (squares / self._norm) ** 0.5
        return float(f"{ratio:.4g}") if np.isfinite(ratio) else NOT_FINITE


_ROWS_AT_ONCE = 1024


def _whole(cell: Cell, copy: Copy) -> Any:
    """Return the float64 product [M, N] on the device."""
    import torch

    a, b = copy.tensors["a"], copy.tensors["b"]
    if block_scaled(cell.contract):
        block_n, block_k = cell.contract.scales["b"].block
        wide_a = dequantised(a, copy.tensors["a_scales"], 1, block_k, torch.float64)
        wide_b = dequantised(b, copy.tensors["b_scales"], block_n, block_k, torch.float64)
    else:
        wide_a, wide_b = a.double(), b.double()
    product = wide_a @ wide_b.T
    return product + copy.tensors["bias"].double() if "bias" in copy.tensors else product


def _window(
    cell: Cell, copy: Copy, rows: NDArray[np.int64], columns: NDArray[np.int64]
) -> tuple[Operands, NDArray[np.float32]]:
    """Return the operands of the window's elements, decoded on the host, and its bias."""
    import torch

    def host(name: str, kept: NDArray[np.int64]) -> NDArray[np.generic]:
        picked = copy.tensors[name].view(torch.uint8 if block_scaled(cell.contract) else torch.int16)
        array: NDArray[np.generic] = picked[torch.from_numpy(kept).to(picked.device)].cpu().numpy()
        return array

    codes = host("a", rows), host("b", columns)
    bias = np.zeros(len(columns), np.float32)
    if "bias" in copy.tensors:
        bias = copy.tensors["bias"].float().cpu().numpy()[columns]
    if not block_scaled(cell.contract):
        return Operands(a=bf16.decode(codes[0].view(np.uint16)), b=bf16.decode(codes[1].view(np.uint16))), bias
    block_n, block_k = cell.contract.scales["b"].block
    operands = Operands(
        a=fp8.decode(codes[0].astype(np.uint8)),
        b=fp8.decode(codes[1].astype(np.uint8)),
        scale_a=np.ascontiguousarray(copy.tensors["a_scales"].cpu().numpy()[rows]),
        scale_b=np.ascontiguousarray(copy.tensors["b_scales"].cpu().numpy()[columns // block_n]),
        block_n=1,  # a row of scales for each column that was picked
        block_k=block_k,
    )
    return operands, bias


@lru_cache(maxsize=64)
def _spread(extent: int, most: int) -> NDArray[np.int64]:
    """Return at most so many places, the first and the last among them, evenly spread."""
    return np.unique(np.linspace(0, extent - 1, min(extent, most)).round().astype(np.int64))


__all__ = ["ORACLE", "Reference"]
