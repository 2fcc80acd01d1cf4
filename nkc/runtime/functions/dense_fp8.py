"""dense_fp8: out = epilogue(a b^T) with block scales, one rounding store."""

from typing import Any

import torch

from nkc.ir.errors import UsageError
from nkc.runtime.dispatch import dispatch
from nkc.runtime.functions.arguments import choice, matrix, on_one_device, refuse_gradients, shaped, signature
from nkc.runtime.route import Call

BLOCK = 128
_FP8 = torch.float8_e4m3fn
# Strictest first; a kernel that guarantees one of these serves a call that asks for it or for a later one.
_ACCUMULATE = ("fp32_sequential", "matrix_unit_fp32", "tensor_core_fp8")
_COMBINE = ("ascending", "fixed_order")
_EPILOGUES = ("identity", "bias", "silu", "gelu_tanh", "gelu_erf", "gated_silu")
_GATES = ("halves", "interleaved")


def resolve_as(
    function: str,
    a: torch.Tensor,
    b: torch.Tensor,
    a_scales: torch.Tensor,
    b_scales: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    epilogue: str | None = None,
    gate: str | None = None,
    out_dtype: torch.dtype | None = None,
    accumulate: str | None = None,
    combine: str | None = None,
) -> Call:
    """Return the call with its defaults, checked. function: which error lines name. Errors: UsageError."""
    refuse_gradients(function, a=a, b=b, a_scales=a_scales, b_scales=b_scales, bias=bias)
    epilogue = ("identity" if bias is None else "bias") if epilogue is None else epilogue
    choice(function, "epilogue", epilogue, _EPILOGUES)
    accumulate = choice(function, "accumulate", accumulate or _ACCUMULATE[-1], _ACCUMULATE)
    combine = choice(function, "combine", combine or _COMBINE[-1], _COMBINE)
    dtype = torch.bfloat16 if out_dtype is None else out_dtype
    m, k = matrix(function, "a", a, _FP8)
    n, _ = matrix(function, "b", b, _FP8)
    shaped(function, "b", b, (n, k), _FP8)
    if k % BLOCK:
        raise UsageError(f"{function}: k {k} is not a multiple of the scale block of {BLOCK} (pad k)")
    shaped(function, "a_scales", a_scales, (m, k // BLOCK), torch.float32)
    shaped(function, "b_scales", b_scales, (-(-n // BLOCK), k // BLOCK), torch.float32)
    if dtype not in (torch.bfloat16, torch.float32):
        raise UsageError(f"{function}: out_dtype {dtype} is not torch.bfloat16 or torch.float32")
    if (bias is not None) != (epilogue == "bias"):
        raise UsageError(f"{function}: a bias is given exactly where the epilogue is `bias`")
    gated = epilogue == "gated_silu"
    if (gate is not None and not gated) or (gated and n % 2):
        raise UsageError(f"{function}: gate is for the epilogue `gated_silu`, which needs an even n")
    tensors = {"a": a, "b": b, "a_scales": a_scales, "b_scales": b_scales}
    meaning: dict[str, tuple[Any, ...]] = {"epilogue.kind": (epilogue,)}
    if gated:
        meaning["epilogue.gate"] = (choice(function, "gate", gate or _GATES[0], _GATES),)
    if bias is not None:
        shaped(function, "bias", bias, (n,), torch.bfloat16, torch.float32)
        tensors["bias"] = bias
        meaning["epilogue.dtype"] = ("bf16" if bias.dtype is torch.bfloat16 else "fp32",)
    on_one_device(function, tensors)
    meaning["numerics.accumulate"] = _ACCUMULATE[: _ACCUMULATE.index(accumulate) + 1]
    meaning["numerics.combine"] = _COMBINE[: _COMBINE.index(combine) + 1]
    meaning["numerics.round"] = ("rne_once",)
    meaning["numerics.nan"] = ("propagate",)
    columns = n // 2 if gated else n
    device = a.device  # and not `a`: a prepared call outlives its tensors
    return Call(
        operation="dense",
        tensors=tensors,
        wanted=meaning,
        allocate=lambda: {"out": torch.empty((m, columns), dtype=dtype, device=device)},
        result=lambda outputs: outputs["out"],
        key=signature(tensors, epilogue, meaning.get("epilogue.gate"), dtype, accumulate, combine),
    )


def resolve(
    a: torch.Tensor,
    b: torch.Tensor,
    a_scales: torch.Tensor,
    b_scales: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    epilogue: str | None = None,
    gate: str | None = None,
    out_dtype: torch.dtype | None = None,
    accumulate: str | None = None,
    combine: str | None = None,
) -> Call:
    """Return the call with its defaults, checked. Errors: UsageError, which is the same on every route."""
    return resolve_as(
        "dense_fp8",
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


@dispatch("dense", resolve=resolve)
def dense_fp8(
    a: torch.Tensor,
    b: torch.Tensor,
    a_scales: torch.Tensor,
    b_scales: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    epilogue: str | None = None,
    gate: str | None = None,
    out_dtype: torch.dtype | None = None,
    accumulate: str | None = None,
    combine: str | None = None,
) -> torch.Tensor:
    """Return epilogue(a b^T) of shape [m, n], or [m, n/2] where it is gated.

    a [m, k] and b [n, k] are float8_e4m3fn; a_scales [m, k/128] and b_scales [ceil(n/128), k/128] fp32, in whatever
    layout a kernel was built for. epilogue: identity, or bias where one is given. gate: where gate and up columns of
    `gated_silu` are, by default in halves. out_dtype: bf16.
    accumulate, combine: the loosest rule that is good enough, by default any that the bundle's contracts licensed.
    Errors: UsageError for arguments that no route may serve.
    """
    call = resolve(
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
    out = call.outputs["out"]
    (kind,) = call.wanted["epilogue.kind"]
    accumulator = torch.zeros((a.shape[0], b.shape[0]), dtype=torch.float32, device=out.device)
    columns = torch.arange(b.shape[0], device=out.device) // BLOCK
    with _ieee_products():
        for block in range(a.shape[1] // BLOCK):
            span = slice(block * BLOCK, (block + 1) * BLOCK)
            products = a[:, span].float() @ b[:, span].float().t()
            scale = a_scales[:, block, None] * b_scales[columns, block][None, :]
            accumulator = torch.addcmul(accumulator, products, scale)
    (columns_of_gate,) = call.wanted.get("epilogue.gate", (None,))
    out.copy_(_epilogue(accumulator, kind, bias, columns_of_gate))
    return out


def _epilogue(accumulator: torch.Tensor, kind: str, bias: torch.Tensor | None, gate: str | None) -> torch.Tensor:
    match kind:
        case "bias":
            assert bias is not None
            return accumulator + bias.float()
        case "silu":
            return accumulator / (1.0 + torch.exp(-accumulator))
        case "gated_silu":
            half = accumulator.shape[1] // 2
            halves = (accumulator[:, :half], accumulator[:, half:])
            gates, ups = halves if gate == "halves" else (accumulator[:, 0::2], accumulator[:, 1::2])
            return gates / (1.0 + torch.exp(-gates)) * ups
        case "gelu_tanh":
            return torch.nn.functional.gelu(accumulator, approximate="tanh")
        case "gelu_erf":
            # relu(x) - |x| erfc(|x| / sqrt 2) / 2: the form with 1 + erf loses every digit below x = -5.
            size = accumulator.abs()
            return torch.relu(accumulator) - 0.5 * size * torch.special.erfc(size / 2**0.5)
        case _:
            return accumulator


class _ieee_products:  # noqa: N801 - read as a statement
    """fp32 products in fp32, whatever the process allows elsewhere: TF32 keeps 10 bits."""

    def __enter__(self) -> None:
        self._allowed = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = False

    def __exit__(self, *_: object) -> None:
        torch.backends.cuda.matmul.allow_tf32 = self._allowed
