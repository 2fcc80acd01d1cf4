"""group_quant: every group of 128 along a row becomes float8_e4m3fn codes and one fp32 scale."""

import torch

from nkc.runtime.dispatch import dispatch
from nkc.runtime.functions import quantise
from nkc.runtime.functions.arguments import matrix, refuse_gradients, signature
from nkc.runtime.route import Call


def resolve(
    x: torch.Tensor,
    *,
    quantize: str | None = None,
    overflow: str | None = None,
    amax_floor: float | None = None,
    scale_layout: str | None = None,
    leading_dim: int | None = None,
) -> Call:
    """Return the call with its defaults, checked. Errors: UsageError."""
    refuse_gradients("group_quant", x=x)
    m, k = matrix("group_quant", "x", x, torch.bfloat16, torch.float32)
    rule = quantise.resolve_rule("group_quant", m, k, quantize, overflow, amax_floor, scale_layout, leading_dim)
    tensors = {"x": x}
    device = x.device  # and not `x`: a prepared call outlives its tensors
    return Call(
        operation="group_quant",
        tensors=tensors,
        wanted={**rule.meaning(), "epilogue.kind": ("identity",)},
        allocate=lambda: quantise.make_outputs(m, k, rule, device),
        result=lambda outputs: (outputs["out"], outputs["out_scales"]),
        key=signature(tensors, rule),
        options=rule,
    )


@dispatch("group_quant", resolve=resolve)
def group_quant(
    x: torch.Tensor,
    *,
    quantize: str | None = None,
    overflow: str | None = None,
    amax_floor: float | None = None,
    scale_layout: str | None = None,
    leading_dim: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return codes [m, k] and scales [m, k/128] of x [m, k], bf16 or fp32.

    scale = max(amax, amax_floor) / 448 (1 for a zero group without a floor). quantize: `divide` (code of x / scale),
    `reciprocal` (of x * (1 / scale)) or `ue8m0` (scale rounded up to a power of two). overflow: `saturate`, or `ieee`
    (NaN beyond 464). scale_layout: `row_major`, or `m_major` with an optional padded leading_dim.
    Defaults: divide, saturate, 1e-10, row_major, m. A NaN makes its group NaN. An infinity makes the scale infinite,
    its own code NaN and the others 0.
    """
    call = resolve(
        x,
        quantize=quantize,
        overflow=overflow,
        amax_floor=amax_floor,
        scale_layout=scale_layout,
        leading_dim=leading_dim,
    )
    outputs = call.outputs
    quantise.quantise(x.float(), call.options, outputs["out"], outputs["out_scales"])
    return outputs["out"], outputs["out_scales"]
