"""Reads the scales section: one entry for every operand whose dtype needs scales, and for no other."""

import json
from collections.abc import Mapping

from nkc.ir.contract import Bounded, Dim, DType, Layout, MultipleOf, Scale, dim_max
from nkc.ir.frozen import FrozenMap
from nkc.ir.gather import Gather, Json
from nkc.ir.operation import Operand, Operation
from nkc.ir.scales import ceil_div, scale_shape

MAX_BLOCK = 1 << 20


def read_scales(
    gather: Gather, raw: Json, operation: Operation, shape: Mapping[str, Dim], dtypes: Mapping[str, DType]
) -> FrozenMap[str, Scale]:
    """Read `$.scales` for an operation whose shape and dtypes have been read (as far as they were sound)."""
    scaled = [operand for operand in operation.operands if operand.scales is not None]
    needing = [operand for operand in scaled if operand.needs_scales(dtypes.get(operand.name))]
    section = gather.object({} if raw is None else raw, "$.scales", optional=[operand.name for operand in scaled])
    if section is None:
        return FrozenMap()
    for operand in needing:
        if operand.name not in section:
            gather.add(
                f"$.scales.{operand.name}",
                f"missing, `{dtypes[operand.name]}` means nothing without its scales",
                f'for example {{"block": {_usual_block(operand)}, "layout": "row_major"}}',
            )
    scales = {}
    for operand in scaled:
        if operand.name not in section:
            continue
        path = f"$.scales.{operand.name}"
        if operand.name in dtypes and operand not in needing:
            gather.add(path, f"`{dtypes[operand.name]}` takes no scales", "leave it out")
            continue
        scale = _scale(gather, section[operand.name], path, operand, shape)
        if scale is not None:
            scales[operand.name] = scale
    return FrozenMap(scales)


def _scale(gather: Gather, raw: Json, path: str, operand: Operand, shape: Mapping[str, Dim]) -> Scale | None:
    assert operand.scales is not None
    section = gather.object(raw, path, required=("block", "layout"), optional=("dtype", "leading_dim", "shape"))
    if section is None or "block" not in section or "layout" not in section:
        return None
    block = _block(gather, section["block"], f"{path}.block", operand)
    layout = gather.choice(section["layout"], f"{path}.layout", Layout, operand.scales.layouts, noun="layout")
    dtype = gather.choice(section.get("dtype", "fp32"), f"{path}.dtype", DType, (DType.FP32,), noun="scale dtype")
    if block is None or layout is None or dtype is None or any(axis not in shape for axis in operand.axes):
        return None
    scale = Scale(block=block, dtype=dtype, layout=layout)
    logical = scale_shape(operand, scale, dict(shape))
    if "shape" in section:
        _check_shape(gather, section["shape"], f"{path}.shape", logical, scale)
    leading = _leading_dim(gather, section.get("leading_dim"), f"{path}.leading_dim", layout, logical[0])
    return Scale(block=block, dtype=dtype, layout=layout, leading_dim=leading)


def _usual_block(operand: Operand) -> list[int]:
    """Return the block that deployments use for an operand's scales."""
    assert operand.scales is not None
    return list(operand.scales.block)


def _block(gather: Gather, raw: Json, path: str, operand: Operand) -> tuple[int, int] | None:
    values = gather.array(raw, path)
    if len(values) != len(operand.axes):
        if isinstance(raw, list):
            gather.add(
                path,
                f"{len(values)} extents for a tensor of {len(operand.axes)} axes",
                f"for example {_usual_block(operand)}",
            )
        return None
    sizes = [gather.integer(value, f"{path}[{index}]", 1, MAX_BLOCK) for index, value in enumerate(values)]
    if any(size is None for size in sizes):
        return None
    return sizes[0] or 0, sizes[1] or 0


def _check_shape(gather: Gather, raw: Json, path: str, logical: tuple[Dim, ...], scale: Scale) -> None:
    """The written shape is a cross-check only: it must be ceil(dim / block), and it is never used to find the block."""
    expected = [{"min": dim.min, "max": dim.max} if isinstance(dim, Bounded) else dim for dim in logical]
    if json.dumps(raw, sort_keys=True) != json.dumps(expected, sort_keys=True):  # to Python true is 1, and so is 1.0
        gather.add(
            path,
            f"{gather.show(raw)} is not {gather.show(expected)}, one scale for each block of {list(scale.block)}",
            "the block is stated, never derived from shapes",
        )


def _leading_dim(gather: Gather, raw: Json, path: str, layout: Layout, rows: Dim) -> int | MultipleOf | None:
    """Return the leading dimension in one form only: a number where the rows are exact, else a multiple."""
    if layout is not Layout.M_MAJOR:
        if raw is not None:
            gather.add(path, f"`{layout}` scales are dense in memory", "leave it out, or use `m_major`")
        return None
    multiple = 1
    if isinstance(raw, dict):
        section = gather.object(raw, path, required=("multiple_of",)) or {}
        found = gather.integer(section.get("multiple_of", 1), f"{path}.multiple_of", 1, 1 << 20)
        multiple = found or 1
    elif raw is not None:
        fixed = gather.integer(raw, path, 1, 1 << 40)
        if fixed is not None and fixed < dim_max(rows):
            gather.add(path, f"{fixed} is less than the {dim_max(rows)} rows it must span", f"at least {dim_max(rows)}")
        return fixed
    if isinstance(rows, Bounded):
        return MultipleOf(multiple_of=multiple)
    groups = ceil_div(rows, multiple)
    assert isinstance(groups, int)
    return groups * multiple
