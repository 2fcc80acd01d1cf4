"""The proof that data is exact: every partial sum of every output is representable, in any order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from nkc.verify.oracles.dense import Operands

F64 = NDArray[np.float64]

BLOCK_BITS = 13
"""A block's magnitudes sum within 2^13 steps: exact even where a unit keeps 13 bits below its largest addend."""
BITS = 24
"""Significand bits of fp32."""


def prove_exact(operands: Operands) -> None:
    """Raise ValueError unless every partial sum is representable, in any order, even with 13 bits kept in a block.

    For each output: all terms are whole multiples of a step, and the sum of their magnitudes is at most 2^24 steps
    (2^13 for the raw sums of one block), so no partial sum of any subset needs more bits than there are. Scale
    products and terms must themselves be exact: their significands are counted.
    """
    a, b = operands.a.astype(np.float64), operands.b.astype(np.float64)
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise ValueError("exact data holds a NaN or an infinity")
    total = np.zeros((operands.m, operands.n))
    step = np.full((operands.m, operands.n), np.inf)
    for k0, k1 in operands.blocks():
        raw_step = _row_step(a[:, k0:k1])[:, None] * _row_step(b[:, k0:k1])[None, :]
        raw = np.abs(a[:, k0:k1]) @ np.abs(b[:, k0:k1]).T
        if operands.scaled and (raw > 2.0**BLOCK_BITS * raw_step).any():
            raise ValueError(f"a block's magnitudes pass 2^{BLOCK_BITS} steps at k = {k0} (use smaller operands)")
        scale_a, scale_b = operands.scales(k0)
        scale = scale_a.astype(np.float64) * scale_b
        if (scale != (scale_a * scale_b).astype(np.float64)).any():
            raise ValueError(f"a product of scales is not exact at k = {k0} (use fewer significand bits)")
        total += raw * scale
        step = np.minimum(step, np.where(raw > 0, raw_step * _step(scale), np.inf))
    used = np.where(total > 0, total / step, 0.0).max(initial=0.0)
    if used > 2.0**BITS:
        raise ValueError(f"the magnitudes pass 2^{BITS} steps ({used:.3g}; use a smaller k or smaller operands)")


def _step(x: F64) -> F64:
    """Largest power of two that divides each value; infinity for zero."""
    significand, exponent = np.frexp(np.abs(x))
    whole = np.ldexp(significand, 53).astype(np.int64)
    return np.where(x == 0, np.inf, np.ldexp((whole & -whole).astype(np.float64), exponent - 53))


def _row_step(x: F64) -> F64:
    """Largest power of two that divides every value of a row; 1 for a row of zeros."""
    step = _step(x).min(axis=1, initial=np.inf)
    return np.where(np.isinf(step), 1.0, step)
