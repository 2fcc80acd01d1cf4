"""The arithmetic of rms_norm_quant in CUDA C++, step by step in fp32: codes without the root of their row."""

import numpy as np
import pytest

from nkc.ir.quantising import FP8_MAX, GROUP
from nkc.tactics.rms_norm_quant.cuda import LEAST_PRODUCT, MOST_PRODUCT
from nkc.verify.bounds import U
from nkc.verify.numbers import bf16
from nkc.verify.quant_bounds import RMS_NORM

F32 = np.float32
RECIPROCAL = 2.0**-23
"""Relative error of rcp.approx.ftz.f32. Source: PTX ISA, rcp."""
SMALLEST_CODE = 2.0**-10
"""Ratios below this round to zero: half of the smallest e4m3fn."""


def ratios(h, w, reciprocal):
    """Return what is rounded to codes [rows, groups, 128], the chip's reciprocal off by so much, and the products."""
    products = (h * w).astype(F32)
    largest = np.maximum(np.abs(products).max(axis=-1, keepdims=True), F32(LEAST_PRODUCT))
    inverse = (1 / largest.astype(np.float64) * (1 + reciprocal)).astype(F32)
    return products * (F32(FP8_MAX) * inverse).astype(F32), products


@pytest.mark.parametrize("reciprocal", [0.0, RECIPROCAL, -RECIPROCAL])
@pytest.mark.parametrize("exponent", [-49, 0, 57])
def test_a_ratio_without_the_root_is_the_one_with_it(exponent: int, reciprocal: float) -> None:
    """The root is a factor of a value and of its scale; six roundings are left where 64 u may be."""
    draw = np.random.Generator(np.random.Philox(21))
    h = bf16.rounded(np.ldexp(draw.normal(size=(64, 8, GROUP)), exponent)).astype(F32)
    w = bf16.rounded(np.ldexp(draw.normal(size=(8, GROUP)), exponent)).astype(F32)
    got, products = ratios(h, w, reciprocal)
    assert np.abs(products).max(axis=-1).min() >= LEAST_PRODUCT
    assert np.abs(products).max() <= MOST_PRODUCT
    wide = h.astype(np.float64)
    root = 1 / np.sqrt(np.square(wide).mean(axis=(1, 2), keepdims=True) + 1e-6)
    y = wide * root * w.astype(np.float64)
    wanted = y / (np.abs(y).max(axis=-1, keepdims=True) / FP8_MAX)
    codes = np.abs(wanted) >= SMALLEST_CODE
    error = np.abs(got[codes] / wanted[codes] - 1).max()
    assert error < 6 * U < RMS_NORM.interval / 8


def test_products_from_the_least_to_the_most_leave_normal_numbers() -> None:
    """2^-19 of a group's largest is the least that becomes a code; from there products keep all their bits."""
    factors = np.array([FP8_MAX / LEAST_PRODUCT, FP8_MAX / MOST_PRODUCT, 1 / MOST_PRODUCT])
    assert factors.max() < np.finfo(F32).max
    assert min(factors.min(), LEAST_PRODUCT * SMALLEST_CODE / FP8_MAX) > np.finfo(F32).tiny


def test_a_sum_rounded_once_to_bf16_is_the_one_that_fp32_rounds() -> None:
    """x + residual: every pair of significands and signs, from the same binade until one of them is too small."""
    x = np.arange(128, 256, dtype=np.float64)[:, None, None]
    residual = np.concatenate([x[:, 0, 0], -x[:, 0, 0]])[None, :, None]
    exact = x + np.ldexp(residual, -np.arange(40))  # at most 48 bits
    assert np.array_equal(bf16.rounded(exact), bf16.rounded(exact.astype(F32)))


def test_zeros_keep_their_sign() -> None:
    h = np.zeros((1, 1, GROUP), F32)
    h[..., 1::2] = -0.0
    got, _ = ratios(h, np.ones((1, GROUP), F32), 0.0)
    assert np.array_equal(np.signbit(got), np.signbit(h))
    assert not got.any()
