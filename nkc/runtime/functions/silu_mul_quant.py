"""silu_mul_quant: silu(gate) * up, then group_quant of the product."""

import torch

from nkc.ir.errors import UsageError
from nkc.runtime.dispatch import dispatch
from nkc.runtime.functions import quantise
from nkc.runtime.functions.arguments import choice, matrix, refuse_gradients, signature
from nkc.runtime.route import Call

_GATES = ("halves", "interleaved")
_STAGINGS = ("fp32", "bf16")


def resolve(
    x: torch.Tensor,
    *,
    gate: str | None = None,
    staging: str | None = None,
    store_product: bool = False,
    quantize: str | None = None,
    overflow: str | None = None,
    amax_floor: float | None = None,
    scale_layout: str | None = None,
    leading_dim: int | None = None,
) -> Call:
    """Return the call with its defaults, checked. Errors: UsageError."""
    refuse_gradients("silu_mul_quant", x=x)
    m, both = matrix("silu_mul_quant", "x", x, torch.bfloat16)
    if both % 2:
        raise UsageError(f"silu_mul_quant: a row of {both} has not as many gate as up columns")
    gate = choice("silu_mul_quant", "gate", gate or "halves", _GATES)
    staging = choice("silu_mul_quant", "staging", staging or "fp32", _STAGINGS)
    width = both // 2
    rule = quantise.resolve_rule("silu_mul_quant", m, width, quantize, overflow, amax_floor, scale_layout, leading_dim)
    tensors = {"x": x}
    device = x.device  # and not `x`: a prepared call outlives its tensors

    def allocate() -> dict[str, torch.Tensor]:
        outputs = quantise.make_outputs(m, width, rule, device)
        if store_product:
            outputs["product"] = torch.empty((m, width), dtype=torch.bfloat16, device=device)
        return outputs

    return Call(
        operation="silu_mul_quant",
        tensors=tensors,
        wanted={
            **rule.meaning(),
            "epilogue.kind": ("gated_silu",),
            "epilogue.gate": (gate,),
            "numerics.staging": (staging,),
        },
        allocate=allocate,
        result=lambda outputs: (outputs["out"], outputs["out_scales"], outputs.get("product")),
        key=signature(tensors, gate, staging, store_product, rule),
        options=(gate, staging, rule),
    )


@dispatch("silu_mul_quant", resolve=resolve)
def silu_mul_quant(
    x: torch.Tensor,
    *,
    gate: str | None = None,
    staging: str | None = None,
    store_product: bool = False,
    quantize: str | None = None,
    overflow: str | None = None,
    amax_floor: float | None = None,
    scale_layout: str | None = None,
    leading_dim: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Return codes [m, i] and scales [m, i/128] of silu(gate) * up, x [m, 2i] bf16; and the product, None by default.

    gate: `halves` (gate columns, then up columns) or `interleaved`. staging: whether the product waits to be quantised
    in `fp32` or rounded to `bf16`; they differ in 2 % of the codes. store_product: return it in bf16 as well. The rest
    as in `group_quant`.
    """
    call = resolve(
        x,
        gate=gate,
        staging=staging,
        store_product=store_product,
        quantize=quantize,
        overflow=overflow,
        amax_floor=amax_floor,
        scale_layout=scale_layout,
        leading_dim=leading_dim,
    )
    order, waits_in, rule = call.options
    wide = x.float()
    half = wide.shape[1] // 2
    gates, ups = (wide[:, :half], wide[:, half:]) if order == "halves" else (wide[:, 0::2], wide[:, 1::2])
    product = gates / (1.0 + torch.exp(-gates)) * ups
    outputs = call.outputs
    if store_product:
        outputs["product"].copy_(product)
    if waits_in == "bf16":
        product = product.to(torch.bfloat16).float()
    quantise.quantise(product, rule, outputs["out"], outputs["out_scales"])
    return outputs["out"], outputs["out_scales"], outputs.get("product")
