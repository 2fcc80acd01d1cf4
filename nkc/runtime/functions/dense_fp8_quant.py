"""dense_fp8_quant: a b^T with block scales and a bias, then group_quant of it, in one launch where a kernel does so."""

import torch

from nkc.runtime.dispatch import dispatch
from nkc.runtime.functions import quantise
from nkc.runtime.functions.arguments import choice
from nkc.runtime.functions.dense_fp8 import dense_fp8, resolve_as
from nkc.runtime.functions.group_quant import group_quant
from nkc.runtime.route import Call

_STAGINGS = {"bf16": torch.bfloat16, "fp32": torch.float32}


def resolve(
    a: torch.Tensor,
    b: torch.Tensor,
    a_scales: torch.Tensor,
    b_scales: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    staging: str | None = None,
    quantize: str | None = None,
    overflow: str | None = None,
    amax_floor: float | None = None,
    scale_layout: str | None = None,
    leading_dim: int | None = None,
    accumulate: str | None = None,
    combine: str | None = None,
) -> Call:
    """Return the call with its defaults, checked. Errors: UsageError, which is the same on every route."""
    name = "dense_fp8_quant"
    staging = choice(name, "staging", staging or "bf16", tuple(_STAGINGS))
    values = resolve_as(name, a, b, a_scales, b_scales, bias=bias, accumulate=accumulate, combine=combine)
    m, n = a.shape[0], b.shape[0]
    rule = quantise.resolve_rule(name, m, n, quantize, overflow, amax_floor, scale_layout, leading_dim)
    device = a.device  # and not `a`: a prepared call outlives its tensors
    return Call(
        operation="dense",
        tensors=values.tensors,
        wanted={**values.wanted, **rule.meaning(), "numerics.staging": (staging,)},
        allocate=lambda: quantise.make_outputs(m, n, rule, device),
        result=lambda outputs: (outputs["out"], outputs["out_scales"]),
        key=(*values.key, staging, rule),
        options=(staging, rule),
    )


@dispatch("dense", resolve=resolve)
def dense_fp8_quant(
    a: torch.Tensor,
    b: torch.Tensor,
    a_scales: torch.Tensor,
    b_scales: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    staging: str | None = None,
    quantize: str | None = None,
    overflow: str | None = None,
    amax_floor: float | None = None,
    scale_layout: str | None = None,
    leading_dim: int | None = None,
    accumulate: str | None = None,
    combine: str | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return codes [m, n] and scales [m, n/128] of a b^T, or of a b^T + bias; n is a multiple of 128.

    staging: whether the result waits to be quantised rounded to `bf16` (the default: what `dense_fp8` and then
    `group_quant` give) or in `fp32`. Operands, accumulate and combine are those of `dense_fp8`, the rest is that of
    `group_quant`. Where no kernel does both at once, the two functions are called in turn, each by its own routes.
    Errors: UsageError for arguments that no route may serve.
    """
    call = resolve(
        a,
        b,
        a_scales,
        b_scales,
        bias=bias,
        staging=staging,
        quantize=quantize,
        overflow=overflow,
        amax_floor=amax_floor,
        scale_layout=scale_layout,
        leading_dim=leading_dim,
        accumulate=accumulate,
        combine=combine,
    )
    waits_in, rule = call.options
    value = dense_fp8(
        a,
        b,
        a_scales,
        b_scales,
        bias=bias,
        out_dtype=_STAGINGS[waits_in],
        accumulate=accumulate,
        combine=combine,
    )
    return group_quant(
        value,
        quantize=rule.quantize,
        overflow=rule.overflow,
        amax_floor=rule.amax_floor,
        scale_layout=rule.scale_layout,
        leading_dim=rule.leading_dim if rule.scale_layout == "m_major" else None,
    )
