"""How a matrix unit adds: a model with its group size, kept bits and rounding as parameters.

A unit takes `group` products and the accumulator at a time. Each addend is aligned to the one with the largest
exponent; what lies more than `addend_fraction_bits` below it is truncated; the aligned addends are summed exactly and
the sum is rounded once into the accumulator register. With one product per step, no alignment limit and rounding to
nearest this is the IEEE fp32 fma chain, so the plain fp32 rule and the tensor cores are points of one model.

Which point a chip is, is a fact of its target, *measured* or *assumed* there; the named units below are those that a
test holds against bits read from the hardware.
"""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from nkc.verify.numbers import fp32
from nkc.verify.numbers.rounding import OF_ZERO, Rounding, exponent_of, round_to

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]

_CHUNK_ELEMENTS = 1 << 21  # products held at once, 16 MiB in float64


class MatrixUnit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One accumulation model."""

    name: str
    group: int
    """Products added in one step, along k ascending; the accumulator is one more addend."""
    addend_fraction_bits: int | None
    """Bits kept below the largest addend's exponent, truncated; None keeps all of them."""
    min_operand_exponent: int = -126
    """Operands below 2^this are not normalised before alignment (the smallest normal of the operand format)."""
    fraction_bits: int = 23
    """Fraction bits of the accumulator register."""
    rounding: Rounding = Rounding.NEAREST_EVEN
    """How the sum enters the register."""

    @property
    def unit_roundoff(self) -> float:
        """Largest relative error of one entry into the register."""
        half = 1 if self.rounding is Rounding.NEAREST_EVEN else 0
        return float(2.0 ** -(self.fraction_bits + half))


FP32_FMA = MatrixUnit(name="fp32_fma", group=1, addend_fraction_bits=None)
"""The IEEE chain, k ascending: what `fp32_sequential` promises."""

HOPPER_FP8 = MatrixUnit(
    name="hopper_fp8",
    group=32,
    addend_fraction_bits=13,
    min_operand_exponent=-6,
    fraction_bits=13,
    rounding=Rounding.TRUNCATE,
)
"""wgmma m64nNk32 e4m3 x e4m3 into fp32. Measured: equal to an H200 in every bit of 532,480 outputs (random codes,
normals, positive data, subnormals, sparse rows, cancelling pairs; K = 32 to 512; tl.dot of Triton 3.6.0). The exponent
of a product is the sum of its operands' exponents, subnormal operands unnormalised, and the register has 13 fraction
bits: as in MMA-Sim (P. Xie et al., "MMA-Sim: Bit-Accurate Reference Model of Tensor Cores and Matrix Cores", 2025)."""

HOPPER_F16 = MatrixUnit(
    name="hopper_f16",
    group=16,
    addend_fraction_bits=25,
    min_operand_exponent=-14,
    rounding=Rounding.TRUNCATE,
)
"""wgmma m64nNk16 and mma.sync m16n8k16, f16 x f16 into fp32; e4m3 converts to f16 exactly. Measured: equal to an H200
in every bit on the data of `HOPPER_FP8`. A kernel that permutes k inside a fragment (Triton does, converting e4m3 to
f16 in registers for mma.sync) sums other groups: the model holds for the k order that the hardware sees."""

HOPPER_BF16 = MatrixUnit(
    name="hopper_bf16",
    group=16,
    addend_fraction_bits=25,
    rounding=Rounding.TRUNCATE,
)
"""wgmma m64nNk16 bf16 x bf16 into fp32. Measured like `HOPPER_F16`, and on operands from the subnormals to 2^30."""


def from_facts(*, kept_bits: int, truncates: bool, group: int = 1) -> MatrixUnit:
    """Return the unit to bound with when a target knows only its kept bits, rounding and group.

    With 23 kept bits or more the order is left open: one product a step, each addition rounded at 23 bits, whose bound
    holds for every order and tree of additions. With fewer, addends are aligned and lost as on Hopper's FP8 unit.
    """
    rounding = Rounding.TRUNCATE if truncates else Rounding.NEAREST_EVEN
    if kept_bits >= 23:
        return MatrixUnit(name="any_order", group=1, addend_fraction_bits=None, rounding=rounding)
    return MatrixUnit(
        name=f"aligned_{kept_bits}",
        group=group,
        addend_fraction_bits=kept_bits,
        min_operand_exponent=-6,
        fraction_bits=kept_bits,
        rounding=rounding,
    )


def accumulate(a: F32, b: F32, unit: MatrixUnit, start: F32 | None = None) -> F32:
    """Return start + a @ b.T as the unit adds it.

    Shapes: a [M, K], b [N, K], start and result [M, N]; K need not be a multiple of the group (the rest is zeros).
    Errors: ValueError where exact group sums are asked of data whose spread float64 cannot hold.
    """
    m, k = a.shape
    n = b.shape[0]
    total = np.zeros((m, n), np.float32) if start is None else np.array(start, np.float32)
    if unit.group == 1 and unit.addend_fraction_bits is None and unit.unit_roundoff == fp32.UNIT_ROUNDOFF:
        return _fp32_chain(a, b, total)
    for k0 in range(0, k, unit.group):
        part = slice(k0, k0 + unit.group)
        total = _step(a[:, part], b[:, part], total, unit)
    return total


def _fp32_chain(a: F32, b: F32, total: F32) -> F32:
    """Add k ascending in IEEE fp32. Where every product is exact in fp32, multiply and add equals the fma."""
    a_t, b_t = np.ascontiguousarray(a.T), np.ascontiguousarray(b.T)
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        if products_are_exact(a, b):
            product = np.empty_like(total)
            for a_k, b_k in zip(a_t, b_t, strict=True):
                np.multiply(a_k[:, None], b_k[None, :], out=product)
                total += product
            return total
        for a_k, b_k in zip(a_t, b_t, strict=True):
            total = fp32.fma(a_k[:, None], b_k[None, :], total)
        return total


def products_are_exact(a: F32, b: F32) -> bool:
    """Say whether every a*b fits fp32: at most 24 bits together, and no product below or above fp32's range."""

    def span(x: F32) -> tuple[int, int, int]:
        wide = np.abs(x[np.isfinite(x) & (x != 0)].astype(np.float64))
        if wide.size == 0:
            return 0, 0, 0
        exponent = exponent_of(wide)
        odd = fp32.bits(wide).astype(np.int64) & 0x7FFFFF
        trailing = np.where(odd == 0, 23, exponent_of((odd & -odd).astype(np.float64)))
        return int(23 - trailing.min()) + 1, int(exponent.min()), int(exponent.max())

    (a_bits, a_low, a_high), (b_bits, b_low, b_high) = span(a), span(b)
    fits = a_bits + b_bits <= 24 and a_high + b_high + 2 <= 127
    return fits and a_low + b_low - (a_bits + b_bits) >= -149


def _step(a: F32, b: F32, total: F32, unit: MatrixUnit) -> F32:
    """Add one group of products and the accumulator."""
    if unit.addend_fraction_bits is None:
        return _into_register(_exact_sum(a, b, total), unit)
    m, group = a.shape
    n = b.shape[0]
    rows = max(1, _CHUNK_ELEMENTS // max(1, n * group))
    out = np.empty((m, n), np.float32)
    for m0 in range(0, m, rows):
        part = slice(m0, m0 + rows)
        aligned = _aligned_sum(a[part], b, total[part], unit, unit.addend_fraction_bits)
        out[part] = _into_register(aligned, unit)
    return out


def _exponents(x: F32, floor: int) -> NDArray[np.int16]:
    exponent = exponent_of(x.astype(np.float64))
    return np.where(exponent == OF_ZERO, OF_ZERO, np.maximum(exponent, floor)).astype(np.int16)


def _aligned_sum(a: F32, b: F32, total: F32, unit: MatrixUnit, kept: int) -> F64:
    """Sum the addends on the grid 2^(largest exponent - kept), each truncated toward zero; exact in float64."""
    exponent = _exponents(a, unit.min_operand_exponent)[:, None, :] + _exponents(b, unit.min_operand_exponent)[None]
    largest = np.maximum(exponent.max(axis=-1), _exponents(total, -126)).astype(np.int64)
    grid = np.maximum(largest, -149) - kept
    to_grid = np.ldexp(1.0, -grid)
    with np.errstate(invalid="ignore"):
        products = a.astype(np.float64)[:, None, :] * (b.astype(np.float64)[None])
        products *= to_grid[:, :, None]
        whole = np.trunc(products, out=products).sum(axis=-1) + np.trunc(total * to_grid)
        return np.asarray(np.ldexp(whole, grid), np.float64)


def _exact_sum(a: F32, b: F32, total: F32) -> F64:
    """Sum the group without loss: all addends are whole multiples of one grid and 2^53 of it are enough."""
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(total)
    grid = min(_grid(a) + _grid(b), _grid(total[finite]))
    magnitude = np.abs(np.nan_to_num(wide_a)) @ np.abs(np.nan_to_num(wide_b)).T + np.abs(np.where(finite, total, 0))
    if magnitude.size and magnitude.max() > 2.0 ** (53 + grid):
        raise ValueError(
            f"exact group sums need {magnitude.max():.3g} in steps of 2^{grid}, more than float64's 53 bits"
            " (give the unit addend_fraction_bits, or use data with fewer binades)"
        )
    with np.errstate(invalid="ignore"):
        return np.asarray(wide_a @ wide_b.T + total, np.float64)


def _grid(x: F32) -> int:
    """Return the largest g with every finite value a multiple of 2^g; 0 where all are zero."""
    wide = np.abs(x[np.isfinite(x) & (x != 0)].astype(np.float64))
    if wide.size == 0:
        return 0
    pattern = wide.view(np.uint64).astype(np.int64) & ((1 << 52) - 1)
    trailing = np.where(pattern == 0, 52, exponent_of((pattern & -pattern).astype(np.float64)))
    return int((exponent_of(wide) - 52 + trailing).min())


def _into_register(exact: F64, unit: MatrixUnit) -> F32:
    with np.errstate(over="ignore"):
        return round_to(exact, unit.fraction_bits, -126, unit.rounding).astype(np.float32)
