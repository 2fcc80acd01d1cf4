"""rms_norm_quant: h = x + residual, y = h / sqrt(mean h^2 + eps) * weight, then group_quant of y."""

from numbers import Real

import torch

from nkc.ir.errors import UsageError
from nkc.runtime.dispatch import dispatch
from nkc.runtime.functions import quantise
from nkc.runtime.functions.arguments import choice, matrix, on_one_device, refuse_gradients, shaped, signature
from nkc.runtime.route import Call
from nkc.runtime.semantics import fp32

_STAGINGS = ("bf16", "fp32")


def resolve(
    x: torch.Tensor,
    weight: torch.Tensor,
    *,
    eps: float,
    residual: torch.Tensor | None = None,
    one_plus_weight: bool = False,
    staging: str | None = None,
    quantize: str | None = None,
    overflow: str | None = None,
    amax_floor: float | None = None,
    scale_layout: str | None = None,
    leading_dim: int | None = None,
) -> Call:
    """Return the call with its defaults, checked. Errors: UsageError."""
    refuse_gradients("rms_norm_quant", x=x, weight=weight, residual=residual)
    m, d = matrix("rms_norm_quant", "x", x, torch.bfloat16)
    shaped("rms_norm_quant", "weight", weight, (d,), torch.bfloat16, torch.float32)
    if not isinstance(eps, Real) or not 0 <= eps <= quantise.FP32_MAX:
        raise UsageError(f"rms_norm_quant: eps {eps!r} is not a number from 0 to the largest of fp32")
    staging = choice("rms_norm_quant", "staging", staging or "bf16", _STAGINGS)
    if residual is None and staging == "fp32":
        raise UsageError("rms_norm_quant: staging `fp32` without a residual: there is no sum that waits")
    rule = quantise.resolve_rule("rms_norm_quant", m, d, quantize, overflow, amax_floor, scale_layout, leading_dim)
    tensors = {"x": x, "weight": weight}
    if residual is not None:
        shaped("rms_norm_quant", "residual", residual, (m, d), torch.bfloat16)
        tensors["residual"] = residual
    on_one_device("rms_norm_quant", tensors)

    device, adds = x.device, residual is not None  # and not the tensors: a prepared call outlives them

    def allocate() -> dict[str, torch.Tensor]:
        outputs = quantise.make_outputs(m, d, rule, device)
        if adds:
            outputs["residual_out"] = torch.empty((m, d), dtype=torch.bfloat16, device=device)
        return outputs

    return Call(
        operation="rms_norm_quant",
        tensors=tensors,
        wanted={
            **rule.meaning(),
            "epilogue.kind": ("identity",),
            "numerics.epsilon": (fp32(eps),),
            "numerics.staging": (staging,),
            "numerics.weight": ("one_plus" if one_plus_weight else "plain",),
            "numerics.reduce": ("sequential", "tree"),
        },
        allocate=allocate,
        result=lambda outputs: (outputs["out"], outputs["out_scales"], outputs.get("residual_out")),
        key=signature(tensors, eps, one_plus_weight, staging, rule),
        options=(staging, rule),
    )


@dispatch("rms_norm_quant", resolve=resolve)
def rms_norm_quant(
    x: torch.Tensor,
    weight: torch.Tensor,
    *,
    eps: float,
    residual: torch.Tensor | None = None,
    one_plus_weight: bool = False,
    staging: str | None = None,
    quantize: str | None = None,
    overflow: str | None = None,
    amax_floor: float | None = None,
    scale_layout: str | None = None,
    leading_dim: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Return codes [m, d], scales [m, d/128], and bf16(x + residual), None without a residual.

    x and residual [m, d] bf16, weight [d] bf16 or fp32, used as it is or as 1 + weight. staging: whether the sum is
    normalised as rounded to bf16 (the default) or in `fp32`. The rest as in `group_quant`.
    """
    call = resolve(
        x,
        weight,
        eps=eps,
        residual=residual,
        one_plus_weight=one_plus_weight,
        staging=staging,
        quantize=quantize,
        overflow=overflow,
        amax_floor=amax_floor,
        scale_layout=scale_layout,
        leading_dim=leading_dim,
    )
    normalised, rule = call.options
    outputs = call.outputs
    h = x.float()
    if residual is not None:
        h = h + residual.float()
        outputs["residual_out"].copy_(h)
        if normalised == "bf16":
            h = outputs["residual_out"].float()
    factor = weight.float() + 1.0 if one_plus_weight else weight.float()
    y = h * torch.rsqrt(h.square().mean(-1, keepdim=True) + eps) * factor
    quantise.quantise(y, rule, outputs["out"], outputs["out_scales"])
    return outputs["out"], outputs["out_scales"], outputs.get("residual_out")
