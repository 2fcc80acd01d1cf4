"""What serves a block-scaled or bf16 product otherwise: cuBLASLt, DeepGEMM in its ways, bf16 matmul."""

from typing import Any

from nkc.bench.baseline import Baseline, Launch
from nkc.bench.cell import Cell
from nkc.bench.operands import Copy
from nkc.bench.subjects.dense import deep_gemm
from nkc.ir.contract import Accumulate, DType


def baselines(cell: Cell) -> tuple[Baseline, ...]:
    """Return the baselines of a cell. The FP8 libraries add in Hopper's FP8 unit, which not every contract licenses."""
    if cell.contract.epilogue.kind != "identity" or cell.contract.dtypes["out"] is not DType.BF16:
        return ()
    if not cell.contract.scales:
        return (Baseline(name="torch.matmul bf16", same_rule=True, prepare=_matmul_bf16),)
    licensed = cell.contract.numerics["accumulate"] is Accumulate.TENSOR_CORE_FP8
    return (
        Baseline(name="cuBLASLt block-scaled", same_rule=licensed, prepare=_scaled_mm),
        *deep_gemm.routes(cell, same_rule=licensed),
        Baseline(name="torch.matmul bf16", same_rule=False, prepare=_matmul_bf16),
    )


def _scaled_mm(cell: Cell, copy: Copy) -> Launch:
    """torch._scaled_mm, 1x128 by 128x128: A's scales M-major, B's transposed with rows padded to 16 bytes."""
    import torch

    del cell
    a, b, out = (copy.tensors[name] for name in ("a", "b", "out"))
    scale_a = copy.tensors["a_scales"]
    rows, groups = scale_a.shape
    scale_a = torch.empty((groups, rows), device="cuda").copy_(scale_a.T).T  # strides (1, M)
    scale_b = copy.tensors["b_scales"]
    padded = torch.zeros((scale_b.shape[0], -(-groups // 4) * 4), device="cuda")
    padded[:, :groups] = scale_b
    scale_b = padded[:, :groups].T

    def launch() -> object:
        return torch._scaled_mm(a, b.T, scale_a=scale_a, scale_b=scale_b, out_dtype=torch.bfloat16, out=out)

    launch()
    torch.cuda.synchronize()
    return launch


def _matmul_bf16(cell: Cell, copy: Copy) -> Launch:
    """torch.matmul of bf16 operands: the values, dequantised beforehand where the contract's are fp8."""
    import torch

    a, b, out = (copy.tensors[name] for name in ("a", "b", "out"))
    if cell.contract.scales:
        block_n, block_k = cell.contract.scales["b"].block
        a = dequantised(a, copy.tensors["a_scales"], 1, block_k, torch.float32).to(torch.bfloat16)
        b = dequantised(b, copy.tensors["b_scales"], block_n, block_k, torch.float32).to(torch.bfloat16)
    b = b.T
    return lambda: torch.matmul(a, b, out=out)


def dequantised(codes: Any, scales: Any, rows: int, columns: int, dtype: Any) -> Any:
    """Return codes [R, C] times their scales in a wider type."""
    height, width = codes.shape
    wide = scales.to(dtype)
    if rows > 1:
        wide = wide.repeat_interleave(rows, 0)[:height]
    return (codes.to(dtype).view(height, width // columns, columns) * wide[:, :, None]).view(height, width)
