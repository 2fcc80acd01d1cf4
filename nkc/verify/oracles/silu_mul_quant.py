"""silu_mul_quant: silu(gate) * up, then group_quant of the product.

Two numerical ids: the product stays fp32 (`FP32`), or is rounded to bf16 before amax and division (`BF16`). They
differ in 2 % of the codes, so one must never stand for the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from nkc.verify.numbers import bf16
from nkc.verify.numbers.fp8 import Overflow
from nkc.verify.numbers.rounding import widen
from nkc.verify.oracles import epilogues
from nkc.verify.oracles.group_quant import AMAX_FLOOR, Flavour, Quantised, group_quant

if TYPE_CHECKING:
    from nkc.verify.oracles.epilogues import Halves

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
U16 = NDArray[np.uint16]


class Intermediate(Enum):
    """The precision in which a value waits to be quantised."""

    FP32 = "fp32"
    BF16 = "bf16"


@dataclass(frozen=True, slots=True, kw_only=True)
class SiluMulQuant:
    """value [M, I] float64; product [M, I] bf16 bits, for contracts that store it; quantised."""

    value: F64
    product: U16
    quantised: Quantised


def silu_mul_quant(
    x: F32,
    *,
    order: Halves,
    intermediate: Intermediate,
    flavour: Flavour = Flavour.DIVIDE,
    overflow: Overflow = Overflow.SATURATE,
    amax_floor: float | np.float32 = AMAX_FLOOR,
    group: int = 128,
) -> SiluMulQuant:
    """Return the product of x [M, 2I] and its codes.

    The product is taken in float64 and rounded once to the intermediate: a kernel's fp32 steps stay within
    `bounds.SILU_MUL` of it. The stored product is bf16 under either id.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        value = epilogues.gated_silu(widen(x), order)
        waiting = bf16.rounded(value) if intermediate is Intermediate.BF16 else value.astype(np.float32)
    quantised = group_quant(waiting, flavour=flavour, overflow=overflow, amax_floor=amax_floor, group=group)
    return SiluMulQuant(value=value, product=bf16.encode(waiting), quantised=quantised)
