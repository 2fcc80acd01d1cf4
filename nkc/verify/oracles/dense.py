"""dense: D = A B^T with block scales, as a float64 value and as every bit of a stated order.

A is [M, K], B is [N, K], both decoded to fp32 (exact from every operand format). Scales: element (i, k) of A has
scale_a[i // block_m, k // block_k], element (j, k) of B has scale_b[j // block_n, k // block_k]; there are
ceil(dim / block) of them, so N = 448 with block 128 has four rows and column 127 uses row 0. Operands without scales
(bf16 x bf16) leave both out.

An fp32 order is two things: how the products inside one piece of k are summed (`MatrixUnit`), and the chains in which
pieces are promoted, acc = fma(piece, fl(sa * sb), acc), and the order in which finished chains are added.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from nkc.verify.numbers import fp32
from nkc.verify.oracles.matrix_unit import FP32_FMA, MatrixUnit, accumulate

if TYPE_CHECKING:
    from collections.abc import Iterator

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]

Piece = tuple[int, int]
"""k_start, k_stop; never across a scale block's edge."""
Chain = tuple[Piece, ...]
Tree = int | tuple["Tree", "Tree"]
"""Order of adding finished chains: a chain's index, or the sum of two trees."""


class Promotion(Enum):
    """How a finished piece P enters the accumulator. `FMA` is the design's rule; the others are other rules."""

    FMA = "fma"  # acc = fma(P, fl(sa sb), acc)
    MUL_ADD = "mul_add"  # acc = fl(acc + fl(P fl(sa sb)))
    SEPARATE = "separate"  # acc = fl(acc + fl(fl(P sa) sb))


@dataclass(frozen=True, slots=True, kw_only=True)
class Operands:
    """What a dense kernel reads, decoded. Errors: ValueError, one line, for shapes that do not fit each other."""

    a: F32
    b: F32
    scale_a: F32 | None = None
    scale_b: F32 | None = None
    block_m: int = 1
    block_n: int = 128
    block_k: int = 128

    def __post_init__(self) -> None:
        if self.a.ndim != 2 or self.b.ndim != 2 or self.a.shape[1] != self.b.shape[1]:
            raise ValueError(f"a {self.a.shape} and b {self.b.shape} are not [M, K] and [N, K] (same K in both)")
        if (self.scale_a is None) != (self.scale_b is None):
            raise ValueError("one operand has scales and the other none (give both, or neither)")
        for name, scale, rows, block in (
            ("scale_a", self.scale_a, self.m, self.block_m),
            ("scale_b", self.scale_b, self.n, self.block_n),
        ):
            wanted = (-(-rows // block), -(-self.k // self.block_k))
            if scale is not None and scale.shape != wanted:
                raise ValueError(f"{name} has shape {scale.shape}, ceil(dim / block) gives {wanted}")

    @property
    def m(self) -> int:
        return int(self.a.shape[0])

    @property
    def n(self) -> int:
        return int(self.b.shape[0])

    @property
    def k(self) -> int:
        return int(self.a.shape[1])

    @property
    def scaled(self) -> bool:
        return self.scale_a is not None

    def scales(self, k_start: int) -> tuple[F32, F32]:
        """Return the scales in force at k_start, as a column [M, 1] and a row [1, N]; ones without scales."""
        if self.scale_a is None or self.scale_b is None:
            return np.ones((self.m, 1), np.float32), np.ones((1, self.n), np.float32)
        block = k_start // self.block_k
        rows = np.arange(self.m) // self.block_m
        columns = np.arange(self.n) // self.block_n
        return self.scale_a[rows, block][:, None], self.scale_b[columns, block][None, :]

    def blocks(self) -> Iterator[Piece]:
        """Yield the scale blocks along k, ascending; one for all of K without scales."""
        width = self.block_k if self.scaled else max(self.k, 1)
        for k_start in range(0, self.k, width):
            yield k_start, min(k_start + width, self.k)


def value(operands: Operands) -> F64:
    """Return the product in float64.

    A block sum of e4m3 products is exact here in any order (a multiple of 2^-18 below 2^25), a product of two fp32
    scales is exact too; what rounds is one product and one addition per block, so the error is below
    2 (blocks + 1) 2^-53 of the sum of magnitudes. bf16 products are exact, their sum rounds K times at most.
    """
    total = np.zeros((operands.m, operands.n), np.float64)
    wide_a, wide_b = operands.a.astype(np.float64), operands.b.astype(np.float64)
    with np.errstate(invalid="ignore"):
        for k0, k1 in operands.blocks():
            scale_a, scale_b = operands.scales(k0)
            total += (wide_a[:, k0:k1] @ wide_b[:, k0:k1].T) * (scale_a.astype(np.float64) * scale_b)
    return total


def ascending(operands: Operands) -> tuple[Chain, ...]:
    """Return one chain over all scale blocks, k ascending."""
    return (tuple(operands.blocks()),)


def split_k(operands: Operands, parts: int) -> tuple[Chain, ...]:
    """Return `parts` chains over contiguous runs of scale blocks; the first ones take the remainder.

    Without scales K is cut into `parts` equal pieces (the last is shorter).
    """
    if not operands.scaled:
        width = -(-operands.k // parts)
        return tuple(((k0, min(k0 + width, operands.k)),) for k0 in range(0, operands.k, width))
    blocks = tuple(operands.blocks())
    quotient, rest = divmod(len(blocks), parts)
    starts = [part * quotient + min(part, rest) for part in range(parts + 1)]
    return tuple(blocks[first:last] for first, last in itertools.pairwise(starts) if last > first)


def dealt(operands: Operands, ways: int) -> tuple[Chain, ...]:
    """Return `ways` chains, block b going to chain b mod ways (k-blocks dealt to warpgroups)."""
    blocks = tuple(operands.blocks())
    return tuple(blocks[way::ways] for way in range(min(ways, len(blocks))))


def left_to_right(chains: int) -> Tree:
    """Return the tree ((c0 + c1) + c2) + ..."""
    tree: Tree = 0
    for chain in range(1, chains):
        tree = (tree, chain)
    return tree


def accumulator(
    operands: Operands,
    unit: MatrixUnit = FP32_FMA,
    *,
    chains: tuple[Chain, ...] | None = None,
    tree: Tree | None = None,
    promotion: Promotion = Promotion.FMA,
) -> F32:
    """Return the fp32 accumulator before epilogue and store, [M, N], bit for bit under the order given.

    Defaults: one chain over all blocks, k ascending (`combine: ascending`). Other chains are `fixed_order`: each
    starts from zero, and finished chains are added as `tree` says, left to right by default.
    """
    chains = ascending(operands) if chains is None else chains
    _check_cover(chains, operands)
    finished = [_chain(operands, chain, unit, promotion) for chain in chains]

    def add(node: Tree) -> F32:
        return finished[node] if isinstance(node, int) else np.add(add(node[0]), add(node[1]), dtype=np.float32)

    if not finished:  # K = 0
        return np.zeros((operands.m, operands.n), np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        return add(left_to_right(len(finished)) if tree is None else tree)


def fp32_sequential(operands: Operands) -> F32:
    """Return the accumulator of `accumulate: fp32_sequential, combine: ascending`.

    IEEE fp32, k ascending, a fresh sum for each scale block, promoted by acc = fma(sum, fl(sa * sb), acc).
    """
    return accumulator(operands, FP32_FMA)


def _chain(operands: Operands, chain: Chain, unit: MatrixUnit, promotion: Promotion) -> F32:
    acc = np.zeros((operands.m, operands.n), np.float32)
    for k0, k1 in chain:
        piece = accumulate(operands.a[:, k0:k1], operands.b[:, k0:k1], unit)
        scale_a, scale_b = operands.scales(k0)
        with np.errstate(invalid="ignore", over="ignore", under="ignore"):
            match promotion:
                case Promotion.FMA:
                    acc = fp32.fma(piece, scale_a * scale_b, acc)
                case Promotion.MUL_ADD:
                    acc = acc + piece * (scale_a * scale_b)
                case Promotion.SEPARATE:
                    acc = acc + (piece * scale_a) * scale_b
    return acc


def _check_cover(chains: tuple[Chain, ...], operands: Operands) -> None:
    """Every k once, and no piece across a block's edge: anything else is another product."""
    pieces = sorted(piece for chain in chains for piece in chain)
    edge = 0
    for k0, k1 in pieces:
        if k0 != edge or k1 <= k0:
            raise ValueError(f"chains do not cover k once: piece ({k0}, {k1}) follows k = {edge}")
        if operands.scaled and k0 // operands.block_k != (k1 - 1) // operands.block_k:
            raise ValueError(f"piece ({k0}, {k1}) crosses a scale block of {operands.block_k} (cut it at the edge)")
        edge = k1
    if edge != operands.k:
        raise ValueError(f"chains end at k = {edge}, K is {operands.k}")
