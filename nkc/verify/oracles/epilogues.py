"""What may follow the accumulator, as mathematics in float64: bias, silu, both gelus, gating.

Each function takes the float64 value of the accumulator and returns the float64 value of the result. No rounding and
no staging: those belong to the bound. Nothing here is the text that a kernel prints.
"""

from __future__ import annotations

import math
from enum import Enum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nkc.verify.numbers.rounding import widen

F64 = NDArray[np.float64]

_ERFC = np.frompyfunc(math.erfc, 1, 1)


class Halves(Enum):
    """Where gate and up stand along the last axis."""

    HALVES = "halves"  # gate first, up second
    INTERLEAVED = "interleaved"  # gate at even places, up at odd ones


def bias(x: F64, b: ArrayLike) -> F64:
    """Return x + b, b along the last axis."""
    return x + widen(b)


def silu(x: F64) -> F64:
    """Return x / (1 + e^-x); -0.0 far below zero, never NaN for finite x.

    e^x / (1 + e^x) below zero, so that no exponential overflows on the way.
    """
    small = np.exp(-np.abs(x))
    return x * np.where(x >= 0, 1.0, small) / (1.0 + small)


def gelu_erf(x: F64) -> F64:
    """Return x/2 (1 + erf(x / sqrt 2)), through erfc so that no digits cancel below zero."""
    return 0.5 * x * np.asarray(_ERFC(-x / math.sqrt(2.0)), np.float64)


def gelu_tanh(x: F64) -> F64:
    """Return x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).

    (1 + tanh t)/2 = 1/(1 + e^-2t) is x * sigmoid(2t), without cancellation.
    """
    twice = 2.0 * math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)
    small = np.exp(-np.abs(twice))
    return x * np.where(twice >= 0, 1.0, small) / (1.0 + small)


def split(x: F64, order: Halves) -> tuple[F64, F64]:
    """Return gate and up, each half as wide as x."""
    width = x.shape[-1]
    if width % 2:
        raise ValueError(f"a last axis of {width} has no two halves (gate and up must be equally wide)")
    if order is Halves.HALVES:
        return x[..., : width // 2], x[..., width // 2 :]
    return x[..., 0::2], x[..., 1::2]


def gated_silu(x: F64, order: Halves) -> F64:
    """Return silu(gate) * up, half as wide as x."""
    gate, up = split(x, order)
    return silu(gate) * up
