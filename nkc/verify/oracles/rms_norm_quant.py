"""rms_norm_quant: h = x + residual, y = h / sqrt(mean h^2 + eps) * weight, then group_quant of y.

h is the fp32 sum; with a residual its bf16 rounding is stored as residual_out, bit-exact. Which of the two is
normalised is a numerical id: `Intermediate.BF16` the rounded h (vLLM), `Intermediate.FP32` the fp32 h. Without a
residual x itself is normalised and nothing is stored. The weight is w, or 1 + w. y waits in fp32 or bf16, an id again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nkc.verify.numbers import bf16
from nkc.verify.numbers.fp8 import Overflow
from nkc.verify.numbers.rounding import widen
from nkc.verify.oracles.group_quant import AMAX_FLOOR, Flavour, Quantised, group_quant
from nkc.verify.oracles.silu_mul_quant import Intermediate

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
U16 = NDArray[np.uint16]


@dataclass(frozen=True, slots=True, kw_only=True)
class RmsNorm:
    """y [M, D] float64; normed [M, D] bf16 bits; residual_out bf16 bits or None; quantised or None."""

    y: F64
    normed: U16
    residual_out: U16 | None
    quantised: Quantised | None


def rms_norm(
    x: F32,
    weight: F32,
    *,
    eps: float,
    residual: F32 | None = None,
    h: Intermediate = Intermediate.BF16,
    one_plus_weight: bool = False,
) -> RmsNorm:
    """Return the normalised rows of x [M, D], without codes. x and residual are bf16 decoded; weight is [D].

    The mean, the root and the products are float64; eps is the fp32 nearest to the one given.
    """
    stored = None
    waiting = np.asarray(x, np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        if residual is not None:
            waiting = waiting + np.asarray(residual, np.float32)
            stored = bf16.encode(waiting)
            if h is Intermediate.BF16:
                waiting = bf16.decode(stored)
        wide = widen(waiting)
        mean = np.mean(wide**2, axis=-1, keepdims=True) if wide.shape[-1] else np.zeros((*wide.shape[:-1], 1))
        factor = widen(weight) + 1.0 if one_plus_weight else widen(weight)
        y = wide / np.sqrt(mean + float(np.float32(eps))) * factor
    return RmsNorm(y=y, normed=bf16.encode(y), residual_out=stored, quantised=None)


def rms_norm_quant(
    x: F32,
    weight: F32,
    *,
    eps: float,
    residual: F32 | None = None,
    h: Intermediate = Intermediate.BF16,
    one_plus_weight: bool = False,
    intermediate: Intermediate = Intermediate.FP32,
    flavour: Flavour = Flavour.DIVIDE,
    overflow: Overflow = Overflow.SATURATE,
    amax_floor: float | np.float32 = AMAX_FLOOR,
    group: int = 128,
) -> RmsNorm:
    """Return `rms_norm` with the codes of y, rounded once to the intermediate."""
    plain = rms_norm(x, weight, eps=eps, residual=residual, h=h, one_plus_weight=one_plus_weight)
    with np.errstate(over="ignore"):
        waiting = bf16.decode(plain.normed) if intermediate is Intermediate.BF16 else plain.y.astype(np.float32)
    quantised = group_quant(waiting, flavour=flavour, overflow=overflow, amax_floor=amax_floor, group=group)
    return RmsNorm(y=plain.y, normed=plain.normed, residual_out=plain.residual_out, quantised=quantised)
