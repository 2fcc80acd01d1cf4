"""A Qwen3-8B-like FP8 decoder layer on nkc's public functions: real shapes, random weights, one decode step.

`contracts` says what its bundle must hold, `Layer` runs it. Rotary embedding and the cache's update are the
framework's own and left out. Used by `serve_layer.py`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from nkc.runtime.dispatch import Explanation

FP8_BLOCK = 128
EPSILON = 1e-6
OPERATIONS = {
    "input_norm": "rms_norm_quant",
    "qkv_proj": "dense_fp8",
    "attention_quant": "group_quant",
    "o_proj": "dense_fp8",
    "post_norm": "rms_norm_quant",
    "gate_up_proj": "dense_fp8",
    "activation": "silu_mul_quant",
    "down_proj": "dense_fp8",
}
"""The layer's operations in the order of a step, and the public function that serves each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A decoder layer. Defaults: Qwen/Qwen3-8B-FP8."""

    hidden: int = 4096
    heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128
    intermediate: int = 12288

    @property
    def projections(self) -> dict[str, tuple[int, int]]:
        """Return n and k of every projection."""
        qkv = (self.heads + 2 * self.kv_heads) * self.head_dim
        return {
            "qkv_proj": (qkv, self.hidden),
            "o_proj": (self.hidden, self.heads * self.head_dim),
            "gate_up_proj": (2 * self.intermediate, self.hidden),
            "down_proj": (self.hidden, self.intermediate),
        }


SMALL = Shape(hidden=256, heads=2, kv_heads=1, head_dim=128, intermediate=256)


def contracts(shape: Shape, arch: str, rows: tuple[int, ...]) -> dict[str, dict]:
    """Return the contracts of the layer by file name: four projections, two norms, two quantisations a row count."""
    found = {}
    scales = {"dtype": "fp32", "layout": "row_major"}
    shared = {"schema": "nkc.contract/1", "target": {"arch": arch}, "fallback": "torch"}
    quantising = {"quantize": "divide", "overflow": "saturate", "amax_floor": 1e-10}
    for m in rows:
        for name, (n, k) in shape.projections.items():
            found[f"{name}.m{m}"] = {
                **shared,
                "operation": "dense",
                "shape": {"m": m, "n": n, "k": k},
                "dtypes": {"a": "fp8_e4m3", "b": "fp8_e4m3", "acc": "fp32", "out": "bf16"},
                "scales": {"a": {"block": [1, FP8_BLOCK], **scales}, "b": {"block": [FP8_BLOCK, FP8_BLOCK], **scales}},
                "layouts": {"a": "row_major", "b": "row_major_nk", "out": "row_major"},
                "numerics": {"accumulate": "tensor_core_fp8", "combine": "fixed_order"},
            }
        codes = {"scales": {"out": {"block": [1, FP8_BLOCK], **scales}}}
        found[f"group_quant.m{m}"] = {
            **shared,
            **codes,
            "operation": "group_quant",
            "shape": {"m": m, "k": shape.heads * shape.head_dim},
            "dtypes": {"x": "bf16", "out": "fp8_e4m3"},
            "layouts": {"x": "row_major", "out": "row_major"},
            "numerics": quantising,
        }
        found[f"silu_mul_quant.m{m}"] = {
            **shared,
            **codes,
            "operation": "silu_mul_quant",
            "shape": {"m": m, "k": shape.intermediate},
            "dtypes": {"x": "bf16", "out": "fp8_e4m3"},
            "layouts": {"x": "row_major", "out": "row_major"},
            "epilogue": {"kind": "gated_silu", "gate": "halves"},
            "numerics": {"staging": "fp32", **quantising},
        }
        norm = ("x", "residual", "weight", "residual_out")
        found[f"rms_norm_quant.m{m}"] = {
            **shared,
            **codes,
            "operation": "rms_norm_quant",
            "shape": {"m": m, "k": shape.hidden},
            "dtypes": {**dict.fromkeys(norm, "bf16"), "out": "fp8_e4m3"},
            "layouts": dict.fromkeys((*norm, "out"), "row_major"),
            "numerics": {
                "reduce": "tree",
                "staging": "bf16",
                "weight": "plain",
                "epsilon": EPSILON,
                **quantising,
            },
        }
    return found


Results = dict[str, "tuple[Tensor, ...]"]
"""What each operation of a step returned, in order; the last ones are the layer's output and its residual."""


class Layer:
    """The layer's weights and its decode step for `rows` sequences over a filled KV cache.

    functions: what serves each operation of `OPERATIONS`; put another callable there to swap one. notes: where a step
    leaves what its operations returned, None to let each result go as soon as nothing needs it, as a server does.
    """

    def __init__(self, shape: Shape, device: str, context: int, rows: int, seed: int = 0) -> None:
        import torch

        self.shape = shape
        self.functions: dict[str, Callable] = public_functions()
        self.notes: Results | None = None
        generator = torch.Generator(device=device).manual_seed(seed)

        def normal(*size: int) -> "Tensor":
            return torch.randn(*size, generator=generator, device=device).to(torch.bfloat16)

        self.wide = {name: normal(n, k) * k**-0.5 for name, (n, k) in shape.projections.items()}
        self.weights = {name: quantise_blocks(weight) for name, weight in self.wide.items()}
        self.norms = [torch.ones(shape.hidden, dtype=torch.bfloat16, device=device) for _ in range(2)]
        cache = (rows, shape.kv_heads, context, shape.head_dim)
        self.keys, self.values = normal(*cache), normal(*cache)
        self.x, self.residual = normal(rows, shape.hidden), normal(rows, shape.hidden)

    def step(self) -> "tuple[Tensor, Tensor]":
        """Return the layer's output and its residual, both [rows, hidden] bf16."""
        quantised, scales, residual = self._serve("input_norm", self.x, self.norms[0], self.residual)
        attended = self._note("attention", self.attend(self._project("qkv_proj", quantised, scales)))
        out = self._project("o_proj", *self._serve("attention_quant", attended))
        quantised, scales, residual = self._serve("post_norm", out, self.norms[1], residual)
        both = self._project("gate_up_proj", quantised, scales)
        quantised, scales, _ = self._serve("activation", both)
        return self._project("down_proj", quantised, scales), residual

    def step_bf16(self) -> "tuple[Tensor, Tensor]":
        """Return the same from the bf16 weights, nothing quantised."""
        from torch.nn import functional

        note, hidden = self._note, (self.shape.hidden,)
        residual = self.x + self.residual
        h = note("input_norm", functional.rms_norm(residual, hidden, self.norms[0], EPSILON))
        attended = note("attention", self.attend(note("qkv_proj", functional.linear(h, self.wide["qkv_proj"]))))
        out = note("o_proj", functional.linear(attended, self.wide["o_proj"]))
        residual = residual + out
        h = note("post_norm", functional.rms_norm(residual, hidden, self.norms[1], EPSILON))
        gate, up = note("gate_up_proj", functional.linear(h, self.wide["gate_up_proj"])).chunk(2, -1)
        h = note("activation", functional.silu(gate) * up)
        return note("down_proj", functional.linear(h, self.wide["down_proj"])), residual

    def attend(self, qkv: "Tensor") -> "Tensor":
        """Return attention of this step's queries over the cache, [rows, heads * head_dim]."""
        from torch.nn.attention import SDPBackend, sdpa_kernel
        from torch.nn.functional import scaled_dot_product_attention

        shape, rows = self.shape, qkv.shape[0]
        query = qkv[:, : shape.heads * shape.head_dim].view(rows, shape.heads, 1, shape.head_dim)
        # Left to itself torch takes cuDNN's kernel for one query and grouped heads, and that gives other bits from call
        # to call, captured or not: in 836 of 1,000 eager calls at 64 rows, in none by this one (H200, torch 2.11, cuDNN
        # 9.19). Nothing behind it could be compared bit for bit.
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            attended = scaled_dot_product_attention(query, self.keys, self.values, enable_gqa=True)
        return attended.reshape(rows, shape.heads * shape.head_dim)

    def noted(self, step: "Callable[[], tuple[Tensor, Tensor]]") -> Results:
        """Return what every operation of a step returned."""
        self.notes = {}
        try:
            step()
            return self.notes
        finally:
            self.notes = None

    def served(self, operation: str, function: Callable) -> "Callable[[], tuple[Tensor, Tensor]]":
        """Return the step with one operation served by another callable."""
        swapped = {**self.functions, operation: function}

        def step() -> "tuple[Tensor, Tensor]":
            plain, self.functions = self.functions, swapped
            try:
                return self.step()
            finally:
                self.functions = plain

        return step

    def arguments(self, operation: str) -> tuple[tuple, dict]:
        """Return what a step calls one operation with."""
        function, seen = self.functions[operation], []

        def watched(*args, **kwargs):
            seen.append((args, kwargs))
            return function(*args, **kwargs)

        self.served(operation, watched)()
        return seen[0]

    def explained(self) -> "dict[str, Explanation]":
        """Return, operation by operation, what every route says to the call of a step."""
        from nkc.runtime import explain_call

        said = {}
        for name, function in self.functions.items():
            args, kwargs = self.arguments(name)
            said[name] = explain_call(function, *args, **kwargs)
        return said

    def _serve(self, name: str, x: "Tensor", weight: "Tensor | None" = None, residual: "Tensor | None" = None):
        function = self.functions[name]
        if weight is None:
            return self._note(name, function(x))
        return self._note(name, function(x, weight, eps=EPSILON, residual=residual))

    def _project(self, name: str, quantised: "Tensor", scales: "Tensor") -> "Tensor":
        weight, weight_scales = self.weights[name]
        return self._note(name, self.functions[name](quantised, weight, scales, weight_scales))

    def _note(self, name: str, results):
        if self.notes is not None:
            listed = results if isinstance(results, tuple) else (results,)
            self.notes[name] = tuple(each for each in listed if each is not None)
        return results


def public_functions() -> dict[str, Callable]:
    """Return nkc's public function for every operation: the kernels of the bundles in use, or the fallback."""
    from nkc import runtime

    return {name: getattr(runtime, function) for name, function in OPERATIONS.items()}


def fallbacks(functions: Mapping[str, Callable]) -> dict[str, Callable]:
    """Return the bare PyTorch bodies of public functions."""
    return {name: getattr(function, "fallback", function) for name, function in functions.items()}


def quantise_blocks(weight) -> "tuple":
    """Return fp8 codes and fp32 scales of a weight per 128 x 128."""
    import torch

    n, k = weight.shape
    blocks = weight.float().view(n // FP8_BLOCK, FP8_BLOCK, k // FP8_BLOCK, FP8_BLOCK)
    scales = blocks.abs().amax((1, 3)).clamp_min(1e-10) / 448.0
    codes = (blocks / scales[:, None, :, None]).clamp(-448.0, 448.0).view(n, k)
    return codes.to(torch.float8_e4m3fn), scales
