"""What is quantised, in torch: one statement for float32, which is what an eager program computes, and float64."""

from collections.abc import Mapping
from typing import Any

from nkc.ir.contract import Contract, Gate, Staging, Weight

Tensors = Mapping[str, Any]


def of_group_quant(contract: Contract, tensors: Tensors, dtype: Any) -> Any:
    """Return x [M, K]."""
    del contract
    return tensors["x"].to(dtype)


def of_silu_mul_quant(contract: Contract, tensors: Tensors, dtype: Any) -> Any:
    """Return silu(gate) * up [M, K], rounded as it waits."""
    import torch

    x = tensors["x"].to(dtype)
    if contract.epilogue.gate is Gate.HALVES:
        gate, up = x.chunk(2, dim=1)
    else:
        gate, up = x[:, 0::2], x[:, 1::2]
    return _staged(contract, torch.nn.functional.silu(gate) * up, dtype)


def of_rms_norm_quant(contract: Contract, tensors: Tensors, dtype: Any) -> Any:
    """Return the normalised rows [M, K]."""
    import torch

    h = tensors["x"].to(dtype)
    if "residual" in tensors:
        h = _staged(contract, summed(tensors), dtype)
    weight = tensors["weight"].to(dtype)
    if contract.numerics["weight"] is Weight.ONE_PLUS:
        weight = weight + 1
    epsilon = contract.numerics["epsilon"]
    assert isinstance(epsilon, float)
    return h * torch.rsqrt(h.square().mean(dim=1, keepdim=True) + epsilon) * weight


def summed(tensors: Tensors) -> Any:
    """Return x + residual in fp32, rounded once."""
    import torch

    return tensors["x"].to(torch.float32) + tensors["residual"].to(torch.float32)


def _staged(contract: Contract, value: Any, dtype: Any) -> Any:
    import torch

    return value.to(torch.bfloat16).to(dtype) if contract.numerics["staging"] is Staging.BF16 else value.to(dtype)
