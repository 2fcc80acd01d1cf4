"""Operands of a product: model-like random values, quantised as the contract says.

A: normals times a log-normal per row, quantised per 1 x block (amax / 448). B: normals, quantised per block x block.
Never zeros: they hide wrong indexing and draw less power.
"""

from typing import Any

from nkc.bench.cell import Cell
from nkc.bench.operands import Copy, poison
from nkc.ir import operations
from nkc.ir.contract import DType, Layout
from nkc.ir.operations.dense import block_scaled
from nkc.ir.quantising import GROUP, QUANTISED
from nkc.ir.scales import argument_name, leading_extent

RECIPE = "bench: normal, log-normal rows, amax/448 per block"
LARGEST_CODE = 448.0


def make(cell: Cell, seed: int, device: str = "cuda") -> Copy:
    """Return one set of operands; outputs are poisoned. Bits depend on the seed and on torch's generator."""
    import torch

    from nkc.runtime.tensor import torch_dtype

    size = cell.size
    m, n, k = (size[dim] for dim in "mnk")
    draw = torch.Generator(device=device).manual_seed(seed)

    def normal(rows: int, columns: int) -> Any:
        return torch.randn((rows, columns), generator=draw, device=device, dtype=torch.float32)

    a, b = normal(m, k), normal(n, k)
    a *= torch.exp(0.7 * normal(m, 1))
    found: dict[str, Any] = {}
    if block_scaled(cell.contract):
        block_n, block_k = cell.contract.scales["b"].block
        found["a"], scale_a = quantise(a, 1, block_k)
        found["b"], scale_b = quantise(b, block_n, block_k)
        found["a_scales"] = _laid_out(cell, "a", scale_a)
        found["b_scales"] = scale_b
    else:
        found["a"], found["b"] = a.to(torch.bfloat16), b.to(torch.bfloat16)
    if (kind := cell.contract.epilogue.dtype) is not None:
        found["bias"] = normal(1, n)[0].to(torch.bfloat16 if kind is DType.BF16 else torch.float32)
    found["out"] = torch.empty((m, n), device=device, dtype=torch_dtype(cell.contract.dtypes["out"]))
    written: tuple[str, ...] = ("out",)
    if QUANTISED in cell.contract.scales:
        written = (QUANTISED, argument_name(QUANTISED))
        found[written[1]] = _laid_out(cell, QUANTISED, torch.empty((m, n // GROUP), device=device))
    for name in written:
        poison(found[name])
    return Copy(tensors=found, written=written)


def quantise(values: Any, rows: int, columns: int) -> tuple[Any, Any]:
    """Return e4m3 codes of fp32 values [R, C] and their fp32 scales [ceil(R / rows), C / columns]."""
    import torch

    height, width = values.shape
    padded = torch.nn.functional.pad(values, (0, 0, 0, -height % rows))
    blocks = padded.view(-1, rows, width // columns, columns)
    scales = blocks.abs().amax(dim=(1, 3)).clamp_min(1e-10) / LARGEST_CODE
    codes = (blocks / scales[:, None, :, None]).to(torch.float8_e4m3fn).view(-1, width)[:height]
    return codes.contiguous(), scales.contiguous()


def _laid_out(cell: Cell, name: str, scales: Any) -> Any:
    """Return an operand's scales [M, G] in the contract's layout; lanes beyond M hold NaN."""
    import torch

    if cell.contract.scales[name].layout is Layout.ROW_MAJOR:
        return scales
    operand = operations.get("dense").operand(name)
    leading = leading_extent(cell.contract, operand, "m").of(dict(cell.size))
    rows, groups = scales.shape
    storage = torch.full((groups, leading), float("nan"), device=scales.device, dtype=torch.float32)
    storage[:, :rows] = scales.T
    return storage.as_strided((rows, groups), (1, leading))
