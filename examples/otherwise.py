"""What a server would otherwise run for an operation of `decoder_layer.py`, with the same arguments and result.

cuBLASLt's block-scaled product, DeepGEMM and the plain Triton kernel for projections; what torch.compile makes of the
PyTorch body for all else. What is not installed, or refuses the call, is named. Used by `serve_layer.py compare`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decoder_layer import FP8_BLOCK, OPERATIONS

if TYPE_CHECKING:
    from torch import Tensor

    from nkc.runtime import Library
    from nkc.verify.subject import Subject

Serve = Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Another route. prepare: returns what serves calls like one with these arguments; raises where it cannot."""

    name: str
    software: str
    prepare: Callable[..., Serve]
    code_digest: str | None = None


def peers(operation: str, request: str, plain: "Mapping[str, tuple[Library, Subject]]") -> Iterator[Peer]:
    """Yield the other routes of an operation. plain: plain Triton kernels by the request that they were built for."""
    import torch

    here = f"torch {torch.__version__}"
    if OPERATIONS[operation] == "dense_fp8":
        yield Peer(name="cuBLASLt block-scaled", software=f"{here}, cuda {torch.version.cuda}", prepare=block_scaled)
        yield Peer(name="DeepGEMM", software=here, prepare=deep_gemm)
        if request in plain:
            library, subject = plain[request]
            yield Peer(
                name=subject.tactic,
                software=subject.toolchain,
                prepare=lambda *_, **__: triton_kernel(library, request),
                code_digest=subject.code_digest,
            )
        return
    body = {"group_quant": group_quant, "silu_mul_quant": silu_mul_quant, "rms_norm_quant": rms_norm_quant}
    yield Peer(
        name=f"torch.compile of {OPERATIONS[operation]}",
        software=f"{here}, triton {version('triton')}",
        prepare=lambda *_, **__: torch.compile(body[OPERATIONS[operation]], fullgraph=True, dynamic=False),
    )


def block_scaled(a: "Tensor", b: "Tensor", a_scales: "Tensor", b_scales: "Tensor") -> Serve:
    """Return cuBLASLt's product of 1 x 128 by 128 x 128 blocks.

    It wants the activations' scales column by column. They are laid out beforehand, which a server could only have if
    its quantising kernel wrote them so: the comparison costs this side nothing for it.
    """
    import torch

    rows, groups = a_scales.shape
    scale_a = torch.empty((groups, rows), device=a.device).copy_(a_scales.T).T
    padded = torch.zeros((b_scales.shape[0], -(-groups // 4) * 4), device=a.device)
    padded[:, :groups] = b_scales
    scale_b = padded[:, :groups].T

    def serve(a: "Tensor", b: "Tensor", *_: "Tensor") -> "Tensor":
        return torch._scaled_mm(a, b.T, scale_a=scale_a, scale_b=scale_b, out_dtype=torch.bfloat16)

    serve(a, b)
    return serve


def deep_gemm(a: "Tensor", b: "Tensor", a_scales: "Tensor", b_scales: "Tensor") -> Serve:
    """Return DeepGEMM's product; its scales, column by column and padded, are laid out beforehand as well."""
    import torch

    library: Any = __import__("deep_gemm")
    rows, groups = a_scales.shape
    stored = torch.zeros((groups, -(-rows // 4) * 4), device=a.device)
    stored[:, :rows] = a_scales.T
    scale_a = stored.as_strided((rows, groups), (1, stored.shape[1]))

    def serve(a: "Tensor", b: "Tensor", *_: "Tensor") -> "Tensor":
        out = torch.empty((a.shape[0], b.shape[0]), dtype=torch.bfloat16, device=a.device)
        library.fp8_gemm_nt((a, scale_a), (b, b_scales), out)
        return out

    serve(a, b)
    return serve


def triton_kernel(library: "Library", request: str) -> Serve:
    """Return the launch of one kernel of a bundle, whatever it was selected for."""
    import torch

    kernel = library[request]

    def serve(a: "Tensor", b: "Tensor", a_scales: "Tensor", b_scales: "Tensor") -> "Tensor":
        out = torch.empty((a.shape[0], b.shape[0]), dtype=torch.bfloat16, device=a.device)
        given = {"a": a, "b": b, "a_scales": a_scales, "b_scales": b_scales, "out": out}
        kernel.launch(*[given[name] for name in kernel.arguments])
        return out

    return serve


def group_quant(x: "Tensor") -> "tuple[Tensor, Tensor]":
    """Return codes and scales per group of 128, as one would write it for a compiler."""
    import torch

    m, k = x.shape
    groups = x.float().view(m, k // FP8_BLOCK, FP8_BLOCK)
    scales = groups.abs().amax(-1).clamp_min(1e-10) / 448.0
    codes = (groups / scales[:, :, None]).clamp(-448.0, 448.0).to(torch.float8_e4m3fn)
    return codes.view(m, k), scales


def silu_mul_quant(x: "Tensor") -> "tuple[Tensor, Tensor, None]":
    """Return codes and scales of silu(gate) * up."""
    gate, up = x.float().chunk(2, -1)
    return *group_quant(gate / (1.0 + (-gate).exp()) * up), None


def rms_norm_quant(x: "Tensor", weight: "Tensor", *, eps: float, residual: "Tensor") -> "tuple[Tensor, Tensor, Tensor]":
    """Return codes and scales of the normalised sum, and the sum in bf16."""
    summed = x + residual
    wide = summed.float()
    y = wide * (wide.square().mean(-1, keepdim=True) + eps).rsqrt() * weight.float()
    return *group_quant(y), summed


def build_plain(files: Mapping[Path, dict], out: Path) -> None:
    """Build the plain Triton kernel of every projection, one bundle a tactic, on a machine without a GPU."""
    import nkc
    from nkc import tactics
    from nkc.bench.gather import ALLOWED, plain_of
    from nkc.emit.proofs import book

    evidence = book()
    by_tactic: dict[str, list[Path]] = {}
    for file, document in files.items():
        if document["operation"] == "dense":
            selection = tactics.select(nkc.ir.read(file), ALLOWED, book=evidence)
            name = plain_of(selection.contract, [each.tactic.name for each in selection.eligible])
            assert name is not None
            by_tactic.setdefault(name, []).append(file)
    for name, chosen in by_tactic.items():
        nkc.compile(chosen, out / name, allow_experimental=True, only_tactic=name)


def load_plain(folder: Path) -> "dict[str, tuple[Library, Subject]]":
    """Return what `build_plain` left, loaded, by request."""
    from nkc import runtime
    from nkc.verify import gather

    found = {}
    for directory in sorted(path.parent for path in folder.glob("*/manifest.json")):
        library = runtime.load(directory)
        found.update({subject.request: (library, subject) for subject in gather.built(directory)})
    return found
