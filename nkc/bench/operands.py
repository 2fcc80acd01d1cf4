"""Operands in device memory: model-like random values, quantised as the contract says, in as many copies as needed.

A: normals times a log-normal per row, quantised per 1 x block (amax / 448). B: normals, quantised per block x block.
Never zeros: they hide wrong indexing and draw less power.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nkc.bench.cell import Cell
from nkc.ir import operations
from nkc.ir.contract import DType, Layout
from nkc.ir.errors import UsageError
from nkc.ir.scales import leading_extent
from nkc.verify.memory import POISON

if TYPE_CHECKING:
    from collections.abc import Mapping

RECIPE = "bench: normal, log-normal rows, amax/448 per block"
L2_TIMES = 4
MOST_COPIES = 1 << 15
"""A graph has a node for each copy at least: 8 KiB is the smallest cell that is still timed beyond the L2."""

LARGEST_CODE = 448.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """One set of tensors by argument name, as the contract's kernels take them, and the output by name `out`."""

    tensors: "Mapping[str, Any]"


def copies_wanted(cell: Cell, l2_bytes: int) -> int:
    """Return how many copies of everything exceed the L2 four times, at least two.

    Raises UsageError for a cell so small that nobody could walk through so many.
    """
    count = max(2, -(-L2_TIMES * l2_bytes // cell.bytes) + 1)
    if count > MOST_COPIES:
        raise UsageError(
            f"{cell.name}: {cell.bytes} bytes would take {count} copies to exceed the L2 {L2_TIMES} times "
            f"(at most {MOST_COPIES} are walked through)"
        )
    return count


def make(cell: Cell, seed: int, device: str = "cuda") -> Copy:
    """Return one set of operands; the output is poisoned. Bits depend on the seed and on torch's generator."""
    import torch

    size = cell.size
    m, n, k = (size[dim] for dim in "mnk")
    draw = torch.Generator(device=device).manual_seed(seed)

    def normal(rows: int, columns: int) -> Any:
        return torch.randn((rows, columns), generator=draw, device=device, dtype=torch.float32)

    a, b = normal(m, k), normal(n, k)
    a *= torch.exp(0.7 * normal(m, 1))
    found: dict[str, Any] = {}
    if cell.contract.scales:
        block_n, block_k = cell.contract.scales["b"].block
        found["a"], scale_a = quantise(a, 1, block_k)
        found["b"], scale_b = quantise(b, block_n, block_k)
        found["a_scales"] = _laid_out(cell, scale_a)
        found["b_scales"] = scale_b
    else:
        found["a"], found["b"] = a.to(torch.bfloat16), b.to(torch.bfloat16)
    if (kind := cell.contract.epilogue.dtype) is not None:
        found["bias"] = normal(1, n)[0].to(torch.bfloat16 if kind is DType.BF16 else torch.float32)
    narrow = cell.contract.dtypes["out"] is DType.BF16
    found["out"] = torch.empty((m, n), device=device, dtype=torch.bfloat16 if narrow else torch.float32)
    poison(found["out"])
    return Copy(tensors=found)


def quantise(values: Any, rows: int, columns: int) -> tuple[Any, Any]:
    """Return e4m3 codes of fp32 values [R, C] and their fp32 scales [ceil(R / rows), C / columns]."""
    import torch

    height, width = values.shape
    padded = torch.nn.functional.pad(values, (0, 0, 0, -height % rows))
    blocks = padded.view(-1, rows, width // columns, columns)
    scales = blocks.abs().amax(dim=(1, 3)).clamp_min(1e-10) / LARGEST_CODE
    codes = (blocks / scales[:, None, :, None]).to(torch.float8_e4m3fn).view(-1, width)[:height]
    return codes.contiguous(), scales.contiguous()


def clone(copy: Copy) -> Copy:
    """Return the same values elsewhere in memory, strides kept."""
    import torch

    found = {}
    for name, tensor in copy.tensors.items():
        other = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
        found[name] = other.copy_(tensor)
    return Copy(tensors=found)


def poison(tensor: Any) -> None:
    """Fill a dense tensor with NaN."""
    import torch

    tensor.view(torch.uint8).fill_(POISON)


def _laid_out(cell: Cell, scales: Any) -> Any:
    """Return activation scales [M, G] in the contract's layout; lanes beyond M hold NaN."""
    import torch

    if cell.contract.scales["a"].layout is Layout.ROW_MAJOR:
        return scales
    operand = operations.get("dense").operand("a")
    leading = leading_extent(cell.contract, operand, "m").of(dict(cell.size))
    rows, groups = scales.shape
    storage = torch.full((groups, leading), float("nan"), device=scales.device, dtype=torch.float32)
    storage[:, :rows] = scales.T
    return storage.as_strided((rows, groups), (1, leading))
