"""Quantising rows per group of 128 in plain PyTorch: what the fallbacks of three functions share.

fp32 with IEEE division throughout. The floor is on amax, never on the scale. 448 is the largest e4m3fn value; e4m3fnuz
(240, another NaN code) is another format and never written.
"""

from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch

from nkc.ir.errors import UsageError
from nkc.ir.quantising import AMAX_FLOOR, FP8_MAX, GROUP
from nkc.runtime.functions.arguments import choice
from nkc.runtime.semantics import fp32

FP8 = torch.float8_e4m3fn
FP8_ROUNDS_BEYOND = 464.0
FP32_MAX = torch.finfo(torch.float32).max
_FLAVOURS = ("divide", "reciprocal", "ue8m0")
_OVERFLOWS = ("saturate", "ieee")
_LAYOUTS = ("row_major", "m_major")
# A power of two at or above a scale, by its bits: 2^-126 to 2^127.
_EXPONENT_MASK, _FRACTION_MASK, _LARGEST_POWER = 0x7F800000, 0x007FFFFF, 0x7F000000


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How values become codes, every default resolved. leading_dim: rows that an m_major scale column is padded to."""

    quantize: str
    overflow: str
    amax_floor: float
    scale_layout: str
    leading_dim: int

    def meaning(self) -> dict[str, tuple[Any, ...]]:
        """Return the contract fields that say the same."""
        return {
            "numerics.quantize": (self.quantize,),
            "numerics.overflow": (self.overflow,),
            "numerics.amax_floor": (fp32(self.amax_floor),),
            "numerics.round": ("rne_once",),
            "numerics.nan": ("propagate",),
        }


def resolve_rule(
    function: str,
    m: int,
    width: int,
    quantize: str | None,
    overflow: str | None,
    amax_floor: float | None,
    scale_layout: str | None,
    leading_dim: int | None,
) -> Rule:
    """Return the rule with its defaults: divide, saturate, 1e-10, row_major, m. Errors: UsageError."""
    if width % GROUP:
        raise UsageError(f"{function}: a row of {width} is not a multiple of the group of {GROUP} (pad the row)")
    layout = choice(function, "scale_layout", scale_layout or "row_major", _LAYOUTS)
    if leading_dim is not None and not isinstance(leading_dim, int | torch.SymInt):
        raise UsageError(f"{function}: leading_dim {leading_dim!r} is not an integer")
    leading = m if leading_dim is None else leading_dim
    if leading < m or (leading_dim is not None and layout == "row_major"):
        raise UsageError(f"{function}: leading_dim {leading} is below m {m}, or given for row-major scales")
    floor = AMAX_FLOOR if amax_floor is None else amax_floor
    if not isinstance(floor, Real) or not 0 <= floor <= FP32_MAX:
        raise UsageError(f"{function}: amax_floor {floor!r} is not a number from 0 to the largest of fp32")
    return Rule(
        quantize=choice(function, "quantize", quantize or "divide", _FLAVOURS),
        overflow=choice(function, "overflow", overflow or "saturate", _OVERFLOWS),
        amax_floor=floor,
        scale_layout=layout,
        leading_dim=leading,
    )


def make_outputs(m: int, width: int, rule: Rule, device: torch.device) -> dict[str, torch.Tensor]:
    """Return uninitialised codes [m, width] and scales [m, width / 128] in the rule's layout."""
    groups = width // GROUP
    codes = torch.empty((m, width), dtype=FP8, device=device)
    if rule.scale_layout == "row_major":
        return {"out": codes, "out_scales": torch.empty((m, groups), dtype=torch.float32, device=device)}
    stored = torch.empty((groups, rule.leading_dim), dtype=torch.float32, device=device)
    return {"out": codes, "out_scales": stored.t()[:m]}


def quantise(value: torch.Tensor, rule: Rule, codes: torch.Tensor, scales: torch.Tensor) -> None:
    """Write the codes and scales of fp32 rows. NaN and infinity follow the contract: see `group_quant`."""
    m, width = value.shape
    parts = value.reshape(m, width // GROUP, GROUP)
    floor = torch.full((), rule.amax_floor, dtype=torch.float32, device=value.device)  # filled there: may be captured
    amax = torch.maximum(parts.abs().amax(-1), floor) if m else parts.new_zeros((0, width // GROUP))
    # By a tensor: torch divides by a Python number through its reciprocal on a GPU, which is another rule.
    largest = torch.full((), FP8_MAX, dtype=torch.float32, device=value.device)
    scale = torch.where(amax == 0, torch.ones_like(amax), amax / largest)
    if rule.quantize == "ue8m0":
        scale = _power_of_two_above(scale)
    each = scale[:, :, None]
    ratio = parts * (1.0 / each) if rule.quantize == "reciprocal" else parts / each
    if rule.overflow == "ieee":
        # Halfway to the value after the largest, and a tie goes to the largest. Stated, because torch's own conversion
        # saturates or not by version and device.
        ratio = torch.where(ratio.abs() > FP8_ROUNDS_BEYOND, torch.nan, ratio)
    ratio = ratio.clamp(-FP8_MAX, FP8_MAX)
    codes.copy_(ratio.reshape(m, width).to(FP8))
    scales.copy_(scale)


def _power_of_two_above(scale: torch.Tensor) -> torch.Tensor:
    """Return the smallest power of two that is not below a positive fp32; infinity becomes 2^127, NaN stays."""
    bits = scale.view(torch.int32)
    up = ((bits + _FRACTION_MASK) & _EXPONENT_MASK).clamp(max=_LARGEST_POWER)
    return torch.where(scale.isnan(), scale, up.view(torch.float32))
