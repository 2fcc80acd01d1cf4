"""Inputs of dense products: codes, scales and a bias, in each regime."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nkc.verify.numbers import bf16, fp8
from nkc.verify.numbers.fp8 import Overflow
from nkc.verify.oracles.dense import Operands
from nkc.verify.oracles.group_quant import group_quant
from nkc.verify.regimes.exactness import BITS, BLOCK_BITS, prove_exact
from nkc.verify.regimes.recipe import Recipe, Regime, digest
from nkc.verify.regimes.stream import Stream, finite_codes

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseInputs:
    """What a dense kernel is given. a, b: u8 codes with fp32 scales, or u16 bf16 bits without."""

    a: NDArray[np.generic]
    b: NDArray[np.generic]
    scale_a: F32 | None
    scale_b: F32 | None
    bias: F32
    """[N], exact in bf16."""

    def operands(self, block_n: int = 128, block_k: int = 128) -> Operands:
        """Return the decoded operands for the oracle."""
        if self.scale_a is None:
            return Operands(a=bf16.decode(self.a.astype(np.uint16)), b=bf16.decode(self.b.astype(np.uint16)))
        return Operands(
            a=fp8.decode(self.a.astype(np.uint8)),
            b=fp8.decode(self.b.astype(np.uint8)),
            scale_a=self.scale_a,
            scale_b=self.scale_b,
            block_n=block_n,
            block_k=block_k,
        )

    def digest(self) -> str:
        """Return SHA-256 over all arrays in order, as hex."""
        return digest(self.a, self.b, self.scale_a, self.scale_b, self.bias)


def nan_row(m: int) -> int:
    """The row that holds a NaN: the last but one, so that a tail tile sees it and a neighbour on each side."""
    return max(0, m - 2)


def dense_inputs(recipe: Recipe, m: int, n: int, k: int, *, block_n: int = 128, block_k: int = 128) -> DenseInputs:
    """Return codes and scales for a block-scaled e4m3fn product [M, K] x [N, K].

    Rows of scale_b differ from each other in every regime, so that a wrong row shows.
    Errors: ValueError where K is not a multiple of block_k, or `exact` cannot be exact at this K and N.
    """
    if k % block_k:
        raise ValueError(f"k = {k} is not a multiple of the scale block of {block_k}")
    match recipe.regime:
        case Regime.EXACT:
            inputs = _exact(recipe.seed, m, n, k, block_n, block_k)
            prove_exact(inputs.operands(block_n, block_k))
            return inputs
        case Regime.MODEL_LIKE:
            return _model_like(recipe.seed, m, n, k, block_n, block_k)
        case Regime.WIDE:
            return _wide(recipe.seed, m, n, k, block_n, block_k)
        case Regime.EDGES:
            return _edges(recipe.seed, m, n, k, block_n, block_k)


def dense_bf16_inputs(recipe: Recipe, m: int, n: int, k: int) -> DenseInputs:
    """Return bf16 bits for an unscaled product [M, K] x [N, K]."""
    a, b = Stream(recipe.seed, "bf16 a"), Stream(recipe.seed, "bf16 b")
    values: list[F64]
    match recipe.regime:
        case Regime.EXACT:
            limit = _operand_limit(BITS - 1 - max(1, k - 1).bit_length())
            values = [_integers(s, (rows, k), limit) for s, rows in ((a, m), (b, n))]
            values = [v * np.ldexp(1.0, np.arange(len(v)) % 31 - 15)[:, None] for v in values]
        case Regime.MODEL_LIKE:
            values = [s.normal((rows, k)) * s.log_normal((rows, 1), 1.0) for s, rows in ((a, m), (b, n))]
        case Regime.WIDE:
            values = [_forty_binades(s, (rows, k)) for s, rows in ((a, m), (b, n))]
        case Regime.EDGES:
            special = np.array([0.0, -0.0, 2.0**-133, -(2.0**-126), 1.0, -1.0, 2.0**60, 1 + 2.0**-7, 255.0])
            values = [special[s.integers((rows, k), 0, len(special))] for s, rows in ((a, m), (b, n))]
            values[0][nan_row(m), k // 2] = np.nan
    inputs = DenseInputs(
        a=bf16.encode(values[0]), b=bf16.encode(values[1]), scale_a=None, scale_b=None, bias=_bias(recipe.seed, n)
    )
    if recipe.regime is Regime.EXACT:
        prove_exact(inputs.operands())
    return inputs


def _integers(stream: Stream, shape: tuple[int, ...], limit: int) -> F64:
    return stream.integers(shape, -limit, limit + 1).astype(np.float64)


def _forty_binades(stream: Stream, shape: tuple[int, ...]) -> F64:
    """bf16 values of either sign from 2^-20 to 2^20."""
    sign = stream.signs(shape).astype(np.float64)
    fraction = stream.integers(shape, 0, 128) / 128
    return np.asarray(sign * np.ldexp(1 + fraction, stream.integers(shape, -20, 20)), np.float64)


def _operand_limit(product_bits: int) -> int:
    """Largest operand, exact in e4m3 (at most 15), whose square stays within 2^product_bits."""
    return int(max(1, min(15, int(2.0 ** (product_bits / 2)))))


def _row_factor(rows: int) -> F64:
    """Distinct factors: sixteen powers of four, then odd numbers, so few significand bits are spent.

    Powers of four, because a block factor of 1 or 2 comes on top and must not make two rows equal.
    """
    place = np.arange(rows)
    return np.asarray(np.ldexp(2.0 * (place // 16) + 1.0, 2 * (place % 16) - 16), np.float64)


def _bias(seed: int, n: int) -> F32:
    return bf16.rounded(Stream(seed, "bias").integers((n,), -64, 65) / 8.0)


def _exact(seed: int, m: int, n: int, k: int, block_n: int, block_k: int) -> DenseInputs:
    """Integers whose products fit the bits left after K, the row factors and the two block factors of 1 or 2."""
    blocks, rows = k // block_k, -(-n // block_n)
    odd = 2 * ((rows - 1) // 16) + 1
    left = BITS - (k - 1).bit_length() - odd.bit_length() - 2
    limit = _operand_limit(min(left, BLOCK_BITS - (block_k - 1).bit_length()))
    values = [_integers(Stream(seed, name), (r, k), limit) for name, r in (("a", m), ("b", n))]
    codes = [fp8.encode(v, Overflow.IEEE) for v in values]
    per_row = np.ldexp(1.0, np.arange(m) % 31 - 15)[:, None]  # 31 is prime to every tile height
    scale_a = per_row * np.ldexp(1.0, Stream(seed, "scale_a").integers((m, blocks), 0, 2))
    scale_b = _row_factor(rows)[:, None] * np.ldexp(1.0, Stream(seed, "scale_b").integers((rows, blocks), 0, 2))
    return DenseInputs(
        a=codes[0],
        b=codes[1],
        scale_a=scale_a.astype(np.float32),
        scale_b=scale_b.astype(np.float32),
        bias=_bias(seed, n),
    )


def _model_like(seed: int, m: int, n: int, k: int, block_n: int, block_k: int) -> DenseInputs:
    """A: normals times a log-normal per row, quantised per 1 x block; B: normals, quantised per block x block."""
    stream = Stream(seed, "a")
    a = group_quant(bf16.rounded(stream.normal((m, k)) * stream.log_normal((m, 1), 1.0)), group=block_k)
    blocks, rows = k // block_k, -(-n // block_n)
    weights = Stream(seed, "b")
    padded = np.zeros((rows * block_n, k))
    padded[:n] = weights.normal((n, k))
    padded *= np.repeat(weights.log_normal((rows, 1), 0.5), block_n, axis=0)
    tiles = bf16.rounded(padded).reshape(rows, block_n, blocks, block_k).transpose(0, 2, 1, 3)
    b = group_quant(np.ascontiguousarray(tiles).reshape(rows * blocks, -1), group=block_n * block_k)
    codes = b.codes.reshape(rows, blocks, block_n, block_k).transpose(0, 2, 1, 3).reshape(rows * block_n, k)[:n]
    return DenseInputs(
        a=a.codes,
        b=np.ascontiguousarray(codes),
        scale_a=a.scales,
        scale_b=_distinct(b.scales.reshape(rows, blocks)),
        bias=_bias(seed, n),
    )


def _distinct(scales: F32) -> F32:
    """Nudge equal neighbouring rows apart by one ulp times their number: distinct, and no longer exactly amax/448."""
    rows = np.arange(scales.shape[0], dtype=np.uint32)[:, None]
    same = scales == np.roll(scales, 1, axis=0)
    return np.where(same, (scales.view(np.uint32) + rows + np.uint32(1)).view(np.float32), scales)


def _wide(seed: int, m: int, n: int, k: int, block_n: int, block_k: int) -> DenseInputs:
    """All finite codes alike, scales over 40 binades; no scale product leaves fp32's normal range."""
    codes = [finite_codes(Stream(seed, name), (r, k)) for name, r in (("a", m), ("b", n))]

    def scales(name: str, rows: int) -> F32:
        stream = Stream(seed, name)
        shape = (rows, k // block_k)
        fraction = stream.integers(shape, 0, 1 << 23) / float(1 << 23)
        return np.ldexp(1.0 + fraction, stream.integers(shape, -20, 20)).astype(np.float32)

    return DenseInputs(
        a=codes[0],
        b=codes[1],
        scale_a=scales("scale_a", m),
        scale_b=_distinct(scales("scale_b", -(-n // block_n))),
        bias=_bias(seed, n),
    )


def _edges(seed: int, m: int, n: int, k: int, block_n: int, block_k: int) -> DenseInputs:
    """Zeros of both signs, subnormals, the smallest normal, ties' halves, 448; zero groups; the floor's scale.

    One code of one row of A is NaN. Where M = 1 that is the only row, and every output is NaN: M = 1 has no NaN.
    """
    special = np.array([0x00, 0x80, 0x01, 0x81, 0x07, 0x08, 0x88, 0x38, 0xB9, 0x7E, 0xFE, 0x7D], np.uint8)
    a = special[Stream(seed, "a").integers((m, k), 0, len(special))]
    b = special[Stream(seed, "b").integers((n, k), 0, len(special))]
    a[:: max(3, m // 2), :block_k] = 0x80  # a group of negative zeros
    b[n // 2, :] = 0  # a column of zeros
    if m > 1:
        a[nan_row(m), k // 2] = 0x7F
    blocks = k // block_k
    choices = np.array([1e-10 / 448, 1.0, 2.0**-20, 1 / 448, 3.0], np.float32)
    scale_a = choices[Stream(seed, "scale_a").integers((m, blocks), 0, len(choices))]
    scale_b = _row_factor(-(-n // block_n))[:, None] * choices[None, Stream(seed, "sb").integers((blocks,), 0, 5)]
    return DenseInputs(a=a, b=b, scale_a=scale_a, scale_b=scale_b.astype(np.float32), bias=_bias(seed, n))
