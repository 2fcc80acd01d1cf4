"""The public functions as `torch.library` operators, so that `torch.compile` keeps them whole.

`torch.ops.nkc.dense_fp8(...)` and its kin dispatch at run time, outside the compiled graph. Import this module once to
register them. There is no backward: with an input that requires grad the forward is refused, and says why.
"""

# torch is untyped to mypy here, and so are its decorators.
# mypy: disable-error-code="untyped-decorator"

from typing import Any, NoReturn

import torch

from nkc.ir.errors import UsageError
from nkc.runtime.functions import quantise
from nkc.runtime.functions.dense_fp8 import dense_fp8 as _dense_fp8
from nkc.runtime.functions.dense_fp8_quant import dense_fp8_quant as _dense_fp8_quant
from nkc.runtime.functions.group_quant import group_quant as _group_quant
from nkc.runtime.functions.rms_norm_quant import rms_norm_quant as _rms_norm_quant
from nkc.runtime.functions.silu_mul_quant import silu_mul_quant as _silu_mul_quant

_Pair = tuple[torch.Tensor, torch.Tensor]
_Triple = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@torch.library.custom_op("nkc::dense_fp8", mutates_args=())
def dense_fp8(
    a: torch.Tensor,
    b: torch.Tensor,
    a_scales: torch.Tensor,
    b_scales: torch.Tensor,
    bias: torch.Tensor | None = None,
    epilogue: str | None = None,
    gate: str | None = None,
    out_dtype: torch.dtype | None = None,
    accumulate: str | None = None,
    combine: str | None = None,
) -> torch.Tensor:
    """As `nkc.runtime.dense_fp8`."""
    return _dense_fp8(
        a,
        b,
        a_scales,
        b_scales,
        bias=bias,
        epilogue=epilogue,
        gate=gate,
        out_dtype=out_dtype,
        accumulate=accumulate,
        combine=combine,
    )


@dense_fp8.register_fake
def _(
    a: torch.Tensor,
    b: torch.Tensor,
    a_scales: torch.Tensor,
    b_scales: torch.Tensor,
    bias: torch.Tensor | None = None,
    epilogue: str | None = None,
    gate: str | None = None,
    out_dtype: torch.dtype | None = None,
    accumulate: str | None = None,
    combine: str | None = None,
) -> torch.Tensor:
    del a_scales, b_scales, bias, gate, accumulate, combine
    columns = b.shape[0] // 2 if epilogue == "gated_silu" else b.shape[0]
    return a.new_empty((a.shape[0], columns), dtype=out_dtype or torch.bfloat16)


@torch.library.custom_op("nkc::dense_fp8_quant", mutates_args=())
def dense_fp8_quant(
    a: torch.Tensor,
    b: torch.Tensor,
    a_scales: torch.Tensor,
    b_scales: torch.Tensor,
    bias: torch.Tensor | None = None,
    staging: str | None = None,
    quantize: str | None = None,
    overflow: str | None = None,
    amax_floor: float | None = None,
    scale_layout: str | None = None,
    leading_dim: int | None = None,
    accumulate: str | None = None,
    combine: str | None = None,
) -> _Pair:
    """As `nkc.runtime.dense_fp8_quant`."""
    return _dense_fp8_quant(
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


@dense_fp8_quant.register_fake
def _(
    a: torch.Tensor,
    b: torch.Tensor,
    a_scales: torch.Tensor,
    b_scales: torch.Tensor,
    bias: torch.Tensor | None = None,
    staging: str | None = None,
    quantize: str | None = None,
    overflow: str | None = None,
    amax_floor: float | None = None,
    scale_layout: str | None = None,
    leading_dim: int | None = None,
    accumulate: str | None = None,
    combine: str | None = None,
) -> _Pair:
    del a_scales, b_scales, bias, staging, accumulate, combine
    return _quantised(a, b.shape[0], quantize, overflow, amax_floor, scale_layout, leading_dim)


@torch.library.custom_op("nkc::group_quant", mutates_args=())
def group_quant(
    x: torch.Tensor,
    quantize: str | None = None,
    overflow: str | None = None,
    amax_floor: float | None = None,
    scale_layout: str | None = None,
    leading_dim: int | None = None,
) -> _Pair:
    """As `nkc.runtime.group_quant`."""
    return _group_quant(
        x,
        quantize=quantize,
        overflow=overflow,
        amax_floor=amax_floor,
        scale_layout=scale_layout,
        leading_dim=leading_dim,
    )


@group_quant.register_fake
def _(
    x: torch.Tensor,
    quantize: str | None = None,
    overflow: str | None = None,
    amax_floor: float | None = None,
    scale_layout: str | None = None,
    leading_dim: int | None = None,
) -> _Pair:
    return _quantised(x, x.shape[1], quantize, overflow, amax_floor, scale_layout, leading_dim)


@torch.library.custom_op("nkc::silu_mul_quant", mutates_args=())
def silu_mul_quant(
    x: torch.Tensor,
    gate: str | None = None,
    staging: str | None = None,
    quantize: str | None = None,
    overflow: str | None = None,
    amax_floor: float | None = None,
    scale_layout: str | None = None,
    leading_dim: int | None = None,
) -> _Pair:
    """As `nkc.runtime.silu_mul_quant` without the product."""
    codes, scales, _ = _silu_mul_quant(
        x,
        gate=gate,
        staging=staging,
        quantize=quantize,
        overflow=overflow,
        amax_floor=amax_floor,
        scale_layout=scale_layout,
        leading_dim=leading_dim,
    )
    return codes, scales


@silu_mul_quant.register_fake
def _(
    x: torch.Tensor,
    gate: str | None = None,
    staging: str | None = None,
    quantize: str | None = None,
    overflow: str | None = None,
    amax_floor: float | None = None,
    scale_layout: str | None = None,
    leading_dim: int | None = None,
) -> _Pair:
    del gate, staging
    return _quantised(x, x.shape[1] // 2, quantize, overflow, amax_floor, scale_layout, leading_dim)


@torch.library.custom_op("nkc::rms_norm_quant", mutates_args=())
def rms_norm_quant(
    x: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    one_plus_weight: bool = False,
    staging: str | None = None,
    quantize: str | None = None,
    overflow: str | None = None,
    amax_floor: float | None = None,
    scale_layout: str | None = None,
    leading_dim: int | None = None,
) -> _Pair:
    """As `nkc.runtime.rms_norm_quant` without a residual."""
    codes, scales, _ = _rms_norm_quant(
        x,
        weight,
        eps=eps,
        one_plus_weight=one_plus_weight,
        staging=staging,
        quantize=quantize,
        overflow=overflow,
        amax_floor=amax_floor,
        scale_layout=scale_layout,
        leading_dim=leading_dim,
    )
    return codes, scales


@rms_norm_quant.register_fake
def _(
    x: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    one_plus_weight: bool = False,
    staging: str | None = None,
    quantize: str | None = None,
    overflow: str | None = None,
    amax_floor: float | None = None,
    scale_layout: str | None = None,
    leading_dim: int | None = None,
) -> _Pair:
    del weight, eps, one_plus_weight, staging
    return _quantised(x, x.shape[1], quantize, overflow, amax_floor, scale_layout, leading_dim)


@torch.library.custom_op("nkc::add_rms_norm_quant", mutates_args=())
def add_rms_norm_quant(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    one_plus_weight: bool = False,
    staging: str | None = None,
    quantize: str | None = None,
    overflow: str | None = None,
    amax_floor: float | None = None,
    scale_layout: str | None = None,
    leading_dim: int | None = None,
) -> _Triple:
    """As `nkc.runtime.rms_norm_quant` with a residual; an operator's results are always there."""
    codes, scales, total = _rms_norm_quant(
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
    assert total is not None
    return codes, scales, total


@add_rms_norm_quant.register_fake
def _(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    one_plus_weight: bool = False,
    staging: str | None = None,
    quantize: str | None = None,
    overflow: str | None = None,
    amax_floor: float | None = None,
    scale_layout: str | None = None,
    leading_dim: int | None = None,
) -> _Triple:
    del weight, eps, one_plus_weight, staging, residual
    codes, scales = _quantised(x, x.shape[1], quantize, overflow, amax_floor, scale_layout, leading_dim)
    return codes, scales, torch.empty_like(x)


def _quantised(
    x: torch.Tensor,
    width: int,
    quantize: str | None,
    overflow: str | None,
    amax_floor: float | None,
    scale_layout: str | None,
    leading_dim: int | None,
) -> _Pair:
    """Return codes and scales as the real functions allocate them, so that their strides agree."""
    m = x.shape[0]
    rule = quantise.resolve_rule("nkc", m, width, quantize, overflow, amax_floor, scale_layout, leading_dim)
    outputs = quantise.make_outputs(m, width, rule, x.device)
    return outputs["out"], outputs["out_scales"]


def _no_backward(*_: Any, **__: Any) -> NoReturn:
    raise UsageError(
        "an input requires grad, and the operators of nkc have no backward (call under torch.no_grad(), or detach it)"
    )


OPERATORS = (dense_fp8, dense_fp8_quant, group_quant, silu_mul_quant, rms_norm_quant, add_rms_norm_quant)
for _operator in OPERATORS:
    _operator.register_autograd(_no_backward, setup_context=_no_backward)
