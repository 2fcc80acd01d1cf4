"""What dense kernels on sm_90 that copy tiles by TMA share: what they ask of a contract, where A's scales come from."""

from collections.abc import Mapping

from nkc.ir.contract import Contract, DType, Layout
from nkc.ir.launch import TensorMap
from nkc.tactics.addressing import Aligned, OffsetUnit, ScaleOffsetsFitInt32, ScalesPitch
from nkc.tactics.dense.codes import stored
from nkc.tactics.dense.kernel import scale_strides
from nkc.tactics.dense.requirements import ALIGNMENT, FP8_POINTERS
from nkc.tactics.hardware import TargetHas
from nkc.tactics.predicate import ConstantOperands, Predicate, dtypes, equals, multiple_of, one_of
from nkc.tactics.tactic import Tactic

BLOCK_K = 128
BEFORE_THE_WAIT = ConstantOperands(("b", "b_scales", "bias"))
"""What a kernel that is launched dependent reads while the kernels ahead still run."""
_PITCH = ScalesPitch("a", 4, why="TMA wants 16 bytes between rows of scales")


def scales_by_tma(contract: Contract) -> bool:
    """Return whether TMA copies A's scales with the tile: M-major ones whose rows lie whole 16 bytes apart.

    Others, row-major ones among them, are loaded by the lanes that need them, four blocks ahead.
    """
    return contract.scales["a"].layout is Layout.M_MAJOR and _PITCH.check(contract) is None


def activation_scales(contract: Contract) -> Mapping[str, object]:
    """Return what a template places for A's scales: who loads them, and their strides in elements."""
    row_stride, block_stride = scale_strides(contract)
    return {
        "scales_by_tma": scales_by_tma(contract),
        "a_scale_row_stride": _in_c(row_stride),
        "a_scale_block_stride": _in_c(block_stride),
    }


def tile_maps(contract: Contract, tile_m: int, tile_n: int, *, cluster: int = 1) -> dict[str, TensorMap]:
    """Return the maps of a block of k: 128-byte swizzled tiles, and A's scales where TMA can copy them.

    cluster: CTAs that share a tile of A, each of which copies its part of it.
    """
    maps = {
        "a": TensorMap(box=(tile_m // cluster, BLOCK_K), swizzle_bytes=128, l2_promotion_bytes=256),
        "b": TensorMap(box=(tile_n, BLOCK_K), swizzle_bytes=128, l2_promotion_bytes=256),
    }
    if scales_by_tma(contract):
        maps["a_scales"] = TensorMap(box=(tile_m, 1), swizzle_bytes=0)
    return maps


def dependent_launch(contract: Contract, tactic: Tactic) -> Mapping[str, object]:
    """Return what a template places for dependent launch.

    first_stages: whose weights a CTA asks for before the wait. load_scale: how A's scales are loaded behind it.
    """
    assert tactic.schedule.stages is not None
    return {
        "dependent": tactic.dependent,
        "first_stages": min(tactic.schedule.stages, contract.exact("k") // BLOCK_K),
        "load_scale": "load_behind" if tactic.dependent else "__ldg",
    }


def _in_c(expression: str) -> str:
    """Return a Python expression of positive integers as C++ writes it: there, `//` starts a comment."""
    return expression.replace("//", "/")


def tiled_requirements(*, codes: bool = False) -> tuple[Predicate, ...]:
    """Return what a contract must say of operands, layouts and scales. codes: the result is quantised."""
    return (
        TargetHas("ocp_fp8", "$.dtypes.a"),
        *dtypes(a=DType.FP8_E4M3, b=DType.FP8_E4M3, acc=DType.FP32),
        *stored(OffsetUnit.ELEMENTS, codes=codes),
        equals("$.scales.a.block", (1, BLOCK_K)),
        equals("$.scales.b.block", (128, BLOCK_K)),
        one_of("$.scales.a.layout", Layout.ROW_MAJOR, Layout.M_MAJOR),
        equals("$.scales.b.layout", Layout.ROW_MAJOR),
        multiple_of("$.shape.k", BLOCK_K, why="a stage is one scale block along k"),
        *([] if codes else [multiple_of("$.shape.n", 8, why="TMA wants 16 bytes between rows of results")]),
        equals("$.layouts.a", Layout.ROW_MAJOR),
        equals("$.layouts.b", Layout.ROW_MAJOR_NK),
        equals("$.layouts.out", Layout.ROW_MAJOR),
        one_of("$.epilogue.kind", "identity", "bias"),
        ScaleOffsetsFitInt32("a", OffsetUnit.ELEMENTS),
        *(Aligned(pointer, ALIGNMENT) for pointer in FP8_POINTERS if pointer not in ("bias", "workspace")),
    )
