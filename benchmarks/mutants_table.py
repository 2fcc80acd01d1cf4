"""The faults that `mutants.py` seeds, and those that are known to survive it, each with the reason.

A kernel's fault is a list of edits of its rendered text; an oracle's or recipe's is a function of `nkc.verify` with
another one in its place.
"""
# ruff: noqa: E501 - a table: one fault a line

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec
import numpy as np

from nkc.verify import bounds
from nkc.verify.numbers import bf16, fp8
from nkc.verify.oracles import dense, epilogues
from nkc.verify.regimes import dense as recipes
from nkc.verify.subjects import dense as judged


class Kind(StrEnum):
    """Where a fault sits, and what runs it."""

    KERNEL = "kernel"
    INTERPRETED = "interpreted"
    ORACLE = "oracle"
    RECIPE = "recipe"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The contract on which a fault is shown."""

    tactic: str
    m: int
    n: int
    k: int
    fp32: bool = False
    bias: bool = False
    bounded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One fault. patch: object, attribute, and what makes the faulty one of the sound one."""

    name: str
    what: str
    kind: Kind
    shape: Shape
    edits: tuple[tuple[str, str], ...] = ()
    patch: tuple[Any, str, Callable[[Any], Any]] | None = None


_FP8 = "gfx950.dense.fp8_mfma_16x64x128_s3"
_SPLIT = f"{_FP8}_k4"
_TALL = "gfx950.dense.fp8_mfma_64x64x128_s2"
_BF16 = "gfx950.dense.bf16_mfma_16x32x128_s3"
_CUDA = "sm_90.dense.fp8_as_f16_16x64x128_w4_s5"

FP8 = Shape(tactic=_FP8, m=13, n=448, k=256)
FP8_FP32 = Shape(tactic=_FP8, m=16, n=64, k=512, fp32=True)
FP8_FP32_BIAS = Shape(tactic=_FP8, m=16, n=64, k=512, fp32=True, bias=True)
FP8_BIAS = Shape(tactic=_FP8, m=13, n=168, k=256, bias=True)
TAILS = Shape(tactic=_FP8, m=11, n=168, k=256)
BOUNDED = Shape(tactic=_FP8, m=16, n=64, k=256, bounded=True)
TALL = Shape(tactic=_TALL, m=130, n=104, k=256)
SPLIT = Shape(tactic=_SPLIT, m=16, n=64, k=640, fp32=True)
BF16 = Shape(tactic=_BF16, m=11, n=72, k=256)
CUDA = Shape(tactic=_CUDA, m=11, n=448, k=256)
CUDA_SPLIT = Shape(tactic=f"{_CUDA}_k4", m=16, n=64, k=640, fp32=True)


def _kernel(name: str, what: str, shape: Shape, *edits: tuple[str, str], kind: Kind = Kind.KERNEL) -> Mutant:
    return Mutant(name=name, what=what, kind=kind, shape=shape, edits=edits)


def _oracle(
    name: str, what: str, place: object, attribute: str, make: Callable[[Any], Any], shape: Shape = FP8
) -> Mutant:
    return Mutant(name=name, what=what, kind=Kind.ORACLE, shape=shape, patch=(place, attribute, make))


def _recipe(name: str, what: str, place: object, attribute: str, make: Callable[[Any], Any], shape: Shape) -> Mutant:
    return Mutant(name=name, what=what, kind=Kind.RECIPE, shape=shape, patch=(place, attribute, make))


_FMA = "sum_0 = tl.fma(block_sum, (a_scale * b_scale)[:, None], sum_0)"
_ROUND = "result = (acc).to(tl.bfloat16)"
_BIASED = "result = (tl.fma(acc, 1.0, bias_row)).to(tl.bfloat16)"
_STORE_PIECE = "tl.store(pieces + piece * 1024 + place_0, sum_0)"
_PIECES = "for other in tl.static_range(1, 4):"
_ARRIVE = "tl.store(workspace + tile, 0)\n"

_ATOMICS = (
    (_STORE_PIECE, "tl.atomic_add(pieces + place_0, sum_0)"),
    (_PIECES, "for other in tl.static_range(1, 1):"),
    (
        "        acc = total_0\n",
        "        acc = total_0\n        tl.store(pieces + place_0, tl.zeros((16, 64), tl.float32))\n",
    ),
)

KERNELS = (
    _kernel("scale_row_floor", "N=448 has four scale rows, not three", FP8,
            ("(tile_column * 64 + 0) // 128", "tl.minimum((tile_column * 64 + 0) // 128, 3 - 1)")),
    _kernel("scale_row_next", "the next column block's scale row", FP8, ("+ 0) // 128", "+ 64) // 128")),
    _kernel("scale_row_first", "one scale row for all of N", FP8, ("b_scale_row_0 * 2", "0")),
    _kernel("scales_swapped", "row and block strides of the activation scales", FP8,
            ("a_rows * 2", "a_rows * 1"), ("+ kb * 1)", "+ kb * 13)")),
    _kernel("scale_block_stuck", "every block takes the first block's scales", FP8, ("b_scale_0 + kb", "b_scale_0")),
    _kernel("no_promotion", "blocks are added without their scales", FP8, (_FMA, "sum_0 = sum_0 + block_sum")),
    _kernel("no_restart", "a block's sum goes on from the one before", FP8,
            ("    for step in", "    block_sum = tl.zeros((16, 64), tl.float32)\n    for step in"),
            ("tl.dot(a_block, b_block, out_dtype", "tl.dot(a_block, b_block, block_sum, out_dtype")),
    _kernel("mul_add_for_fma", "two roundings a block where the rule has one", FP8_FP32,
            (_FMA, "sum_0 = sum_0 + block_sum * (a_scale * b_scale)[:, None]")),
    _kernel("separate_scales", "(block sa) sb, not block fl(sa sb)", FP8_FP32,
            (_FMA, "sum_0 = tl.fma(block_sum * a_scale[:, None], b_scale, sum_0)")),
    _kernel("k_descending", "blocks from last to first where ascending is promised", FP8_FP32,
            ("kb = step * 1 + 0", "kb = 3 - step")),
    _kernel("k_last_dropped", "the last step along k is not added", FP8, ("tl.range(0, 2,", "tl.range(0, 1,")),
    _kernel("k_stale_b", "B of the step before", FP8,
            ("b_tile_0 + kb * 128", "b_tile_0 + tl.maximum(kb - 1, 0) * 128")),
    _kernel("bf16_accumulator", "the accumulator is kept in bf16 between blocks", FP8_FP32,
            (_FMA, _FMA + ".to(tl.bfloat16).to(tl.float32)")),
    _kernel("fnuz_table", "codes read as e4m3fnuz: half of every value", FP8, ("(a_scale * b_scale)", "(a_scale * b_scale * 0.25)")),
    _kernel("store_truncates", "the store drops bits instead of rounding", FP8,
            (_ROUND, "result = ((acc.to(tl.int32, bitcast=True) >> 16).to(tl.int16)).to(tl.bfloat16, bitcast=True)")),
    _kernel("rounded_twice", "half up at 12 bits, then to bf16", FP8,
            (_ROUND, "result = (((acc.to(tl.int32, bitcast=True) + 0x800) & -4096).to(tl.float32, bitcast=True)).to(tl.bfloat16)")),
    _kernel("nan_dropped", "a clamp before the store turns NaN into a number", FP8,
            (_ROUND, "result = tl.maximum(tl.minimum(acc, 3e38), -3e38).to(tl.bfloat16)")),
    _kernel("m_tail_short", "the last row is not stored", TAILS, ("(rows[:, None] < 11)", "(rows[:, None] < 10)")),
    _kernel("m_tail_long", "a row too many is stored", TAILS, ("(rows[:, None] < 11)", "(rows[:, None] < 12)")),
    _kernel("n_tail_short", "the last column is not stored", TAILS, ("[None, :] < 168)", "[None, :] < 167)")),
    _kernel("n_tail_long", "a column too many is stored, into the next row", TAILS,
            ("[None, :] < 168)", "[None, :] < 169)")),
    _kernel("clamped_lanes_stored", "the store has no mask", TAILS,
            (", mask=(rows[:, None] < 11) & (columns_0[None, :] < 168)", "")),
    _kernel("m_clamp_short", "the last row reads the one before", TAILS, ("(rows, 11 - 1)", "(rows, 11 - 2)")),
    _kernel("n_clamp_short", "the last column reads the one before", TAILS, ("(columns_0, 168 - 1)", "(columns_0, 168 - 2)")),
    _kernel("n_clamp_long", "a row of B that is not there is read", TAILS, ("(columns_0, 168 - 1)", "(columns_0, 168 + 9)")),
    _kernel("bounded_m_ignored", "rows up to the largest m, whatever m is", BOUNDED, ("(rows[:, None] < m)", "(rows[:, None] < 16)")),
    _kernel("m_tile_wrong", "row and column tiles change places", TALL,
            ("tile % 3", "tile // 3"), ("tile_column = tile // 3", "tile_column = tile % 3")),
    _kernel("tile_repeated", "two workgroups take one tile and one is left out", TALL,
            ("tile_row = tile % 3", "tile_row = tl.minimum(tile % 3, 1)")),
    _kernel("bias_row_wrong", "the bias of the tile's first columns for all tiles", FP8_BIAS, ("bias + b_rows_0", "bias + b_rows_0 % 64")),
    _kernel("bias_forgotten", "no bias", FP8_BIAS, (_BIASED, "result = (acc + 0.0 * bias_row).to(tl.bfloat16)")),
    _kernel("bias_before_promotion", "the bias starts the accumulator and is rounded with every block", FP8_FP32_BIAS,
            ("sum_0 = tl.zeros((16, 64), tl.float32)",
             "sum_0 = tl.zeros((16, 64), tl.float32) + tl.load(bias + b_rows_0).to(tl.float32)[None, :]"),
            ("result = (tl.fma(acc, 1.0, bias_row))", "result = acc")),
    _kernel("bias_after_store", "the bias is added to the rounded result", FP8_BIAS,
            (_BIASED, "result = (acc.to(tl.bfloat16).to(tl.float32) + bias_row).to(tl.bfloat16)")),
    _kernel("split_atomics", "pieces are added atomically, in the order in which they arrive", SPLIT, *_ATOMICS),
    _kernel("split_order", "pieces are added from last to first", SPLIT,
            ("tl.load(pieces + place_0, cache", "tl.load(pieces + 3 * 1024 + place_0, cache"),
            ("pieces + other * 1024", "pieces + (3 - other) * 1024")),
    _kernel("split_counter_kept", "the counter is not zero again", SPLIT, (_ARRIVE, "pass\n")),
    _kernel("split_counter_early", "the last but one adds up", SPLIT, ("== 511:", "== 383:")),
    _kernel("split_piece_lost", "one piece is left out", SPLIT, (_PIECES, "for other in tl.static_range(1, 3):")),
    _kernel("split_step_lost", "a step between two pieces is in neither", SPLIT,
            ("(piece + 1) * 5 // 4", "(piece + 1) * 4 // 4")),
    _kernel("bf16_k_swapped", "k of B does not meet k of A", BF16, ("[None, :] * 256 + ks[:, None]", "[None, :] * 256 + (ks ^ 1)[:, None]")),
    _kernel("bf16_sum_restarted", "only the last step is kept", BF16, ("tl.dot(a_block, b_block, sum_0,", "tl.dot(a_block, b_block,")),
    _kernel("cuda_scales_swapped", "row and block strides of the activation scales", CUDA,
            ("a_rows * 2", "a_rows * 1"), ("+ kb * 1)", "+ kb * 11)"), kind=Kind.INTERPRETED),
    _kernel("cuda_split_atomics", "pieces are added atomically, in the order in which they arrive", CUDA_SPLIT, *_ATOMICS,
            kind=Kind.INTERPRETED),
    _kernel("cuda_split_counter_kept", "the counter is not zero again", CUDA_SPLIT, (_ARRIVE, "pass\n"),
            kind=Kind.INTERPRETED),
    _kernel("cuda_no_promotion", "blocks are added without their scales", CUDA, (_FMA, "sum_0 = sum_0 + block_sum"),
            kind=Kind.INTERPRETED),
    _kernel("cuda_m_tail_short", "the last row is not stored", CUDA, ("(rows[:, None] < 11)", "(rows[:, None] < 10)"),
            kind=Kind.INTERPRETED),
    _kernel("cuda_clamped_lanes_stored", "the store has no mask", CUDA, (", mask=(rows[:, None] < 11)", ""),
            kind=Kind.INTERPRETED),
)  # fmt: skip


def _fewer_rows(scales: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(self: dense.Operands, k_start: int) -> Any:
        rows, columns = scales(self, k_start)
        floor = self.n // self.block_n * self.block_n
        return rows, np.where(np.arange(self.n) < floor, columns, columns[:, floor - 1 : floor])

    return wrong


def _half_blocks(scales: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, k_start: scales(self, k_start // 2)


def _swapped(scales: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(self: dense.Operands, k_start: int) -> Any:
        rows, columns = scales(self, k_start)
        return np.resize(np.sort(rows, axis=0), rows.shape), columns

    return wrong


def _no_scales(scales: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(self: dense.Operands, k_start: int) -> Any:
        rows, columns = scales(self, k_start)
        return np.ones_like(rows), columns

    return wrong


def _truncating(encode: Callable[..., Any]) -> Callable[..., Any]:
    del encode
    return lambda x: (np.asarray(x, np.float32).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


def _finite(value: Callable[..., Any]) -> Callable[..., Any]:
    return lambda operands: np.nan_to_num(value(operands))


ORACLES = (
    _oracle("oracle_fnuz", "codes decoded as e4m3fnuz", recipes.fp8, "decode",
            lambda decode: lambda codes: decode(codes, fp8.E4M3FNUZ)),
    _oracle("oracle_scale_rows", "three scale rows at N=448", dense.Operands, "scales", _fewer_rows),
    _oracle("oracle_scale_blocks", "scale blocks along k twice as long", dense.Operands, "scales", _half_blocks),
    _oracle("oracle_scales_sorted", "activation scales in another order", dense.Operands, "scales", _swapped),
    _oracle("oracle_no_scales", "activation scales left out", dense.Operands, "scales", _no_scales),
    _oracle("oracle_store_truncates", "bf16 by truncation", bf16, "rounded", _truncating),
    _oracle("oracle_nan_dropped", "NaN becomes zero in the value", dense, "value", _finite),
    _oracle("oracle_chain_reversed", "blocks promoted from last to first", dense, "_chain",
            lambda chain: lambda operands, pieces, *rest: chain(operands, pieces[::-1], *rest), FP8_FP32),
    _oracle("oracle_mul_add", "promotion with two roundings", dense, "_chain",
            lambda chain: lambda operands, pieces, unit, _: chain(operands, pieces, unit, dense.Promotion.MUL_ADD), FP8_FP32),
    _oracle("oracle_tree", "finished chains added from last to first", dense, "left_to_right",
            lambda _: lambda chains: _descending(chains - 1), SPLIT),
    _oracle("oracle_bias_doubled", "the bias twice", epilogues, "bias", lambda bias: lambda x, b: bias(bias(x, b), b), FP8_BIAS),
    _oracle("oracle_store_bound_gone", "nothing may be lost in the store", bounds, "bf16_store_error",
            lambda _: lambda y, error: error),
    _oracle("oracle_unit_group", "the unit adds groups of 32", judged.dense, "accumulate",
            lambda accumulate: lambda a, b, unit: accumulate(a, b, with_fields(unit, group=32)), FP8_FP32),
    _oracle("oracle_bound_wide", "a bound a thousand times too wide", bounds, "dense_error",
            lambda error: lambda *arguments: 1000 * error(*arguments)),
    _recipe("recipe_too_large", "exact data whose sums do not fit", recipes, "_operand_limit", lambda _: lambda _: 448, FP8),
    _recipe("recipe_no_nan", "edges without a NaN", recipes, "nan_row", lambda _: lambda m: slice(0, 0), FP8),
)  # fmt: skip


def _descending(last: int) -> Any:
    tree: Any = last
    for chain in range(last - 1, -1, -1):
        tree = (tree, chain)
    return tree


def with_fields(unit: Any, **fields: object) -> Any:
    """Return a unit with other fields."""
    return msgspec.structs.replace(unit, **fields)


TABLE = (*KERNELS, *ORACLES)

SURVIVORS = {
    "oracle_bound_wide": "no kernel can show that a bound is too wide; tests/verify/test_bounds.py holds each bound"
    " against data that comes close to it",
    "recipe_no_nan": "data that lacks a case fails nothing; tests/verify/test_regimes.py asks each regime for its cases",
}
"""Faults that running kernels cannot notice, and what notices them instead."""

SAMPLE = (
    "scale_row_floor",
    "no_promotion",
    "mul_add_for_fma",
    "store_truncates",
    "nan_dropped",
    "m_tail_short",
    "clamped_lanes_stored",
    "split_counter_kept",
    "split_order",
    "oracle_fnuz",
    "oracle_scale_rows",
)
"""What every change is tested with: a fault of each kind, on as few kernels as possible."""
