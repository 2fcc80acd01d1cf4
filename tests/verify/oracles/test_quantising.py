"""The quantising operations at the exact values of the numerical and field cases."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nkc.verify.numbers import bf16, fp8, fp32
from nkc.verify.numbers.fp8 import Overflow
from nkc.verify.oracles.epilogues import Halves
from nkc.verify.oracles.group_quant import AMAX_FLOOR, Flavour, from_m_major, group_quant, m_major
from nkc.verify.oracles.rms_norm_quant import rms_norm, rms_norm_quant
from nkc.verify.oracles.silu_mul_quant import Intermediate, silu_mul_quant

from ..recipes import grid, sha


def hexes(array):
    return " ".join(f"{v:02x}" for v in array)


def test_K02_group_quant():
    x = grid((2, 256), 73, 257, 128, 16)
    got = group_quant(x)
    assert [f"{v:08x}" for v in fp32.bits(got.scales).ravel()] == ["3c924925", "3c912492", "3c924925", "3c912492"]
    assert hexes(got.codes[0, :8]) == "fe f4 68 7a fa e9 74 7e"
    assert sha(got.codes) == "e2f8ed1437ece66b"
    for flavour in (Flavour.RECIPROCAL, Flavour.MULTIPLY):
        assert sha(group_quant(x, flavour=flavour).codes) == "e2f8ed1437ece66b"


def test_K03_silu_mul_quant():
    x = grid((1, 256), 61, 253, 126, 32)
    got = silu_mul_quant(x, order=Halves.HALVES, intermediate=Intermediate.FP32).quantised
    assert f"{fp32.bits(got.scales)[0, 0]:08x}" == "3cc4ee72"
    assert hexes(got.codes[0, :8]) == "d1 5f 44 63 7c 5f 52 5a"
    assert sha(got.codes) == "975f5eb165371bbb"
    other = silu_mul_quant(x, order=Halves.HALVES, intermediate=Intermediate.BF16).quantised
    assert f"{fp32.bits(other.scales)[0, 0]:08x}" == "3cc49249"
    assert sha(other.codes) == "e904a95236533ede"
    assert np.sum(got.codes != other.codes) == 3


def test_interleaved_is_a_permutation_of_halves():
    x = grid((2, 512), 61, 253, 126, 32)
    woven = np.empty_like(x)
    woven[:, 0::2], woven[:, 1::2] = x[:, :256], x[:, 256:]
    one = silu_mul_quant(x, order=Halves.HALVES, intermediate=Intermediate.FP32)
    two = silu_mul_quant(woven, order=Halves.INTERLEAVED, intermediate=Intermediate.FP32)
    assert np.array_equal(one.quantised.codes, two.quantised.codes)
    assert np.array_equal(one.product, two.product)


def test_K04_rms_norm_quant():
    x, r = grid((2, 256), 67, 251, 125, 32), grid((2, 256), 43, 241, 120, 64)
    w = bf16.rounded(1 + grid((256,), 19, 63, 31, 256))
    got = rms_norm_quant(x, w, residual=r, eps=1e-6)
    assert bf16.decode(got.residual_out)[0, :4].tolist() == [-5.78125, -3.015625, -0.25, 2.515625]
    assert sha(got.residual_out) == "0ccd9a319c0a488a"
    stated = np.float32([-1.99812138, -1.13027668, -0.101382159, 1.08971417])
    assert np.array_equal(got.y[0, :4].astype(np.float32), stated)
    bits = [f"{v:08x}" for v in fp32.bits(got.quantised.scales).ravel()]
    assert bits == ["3ba917d9", "3b9d5dbe", "3b9d7d18", "3ba71257"]
    assert hexes(got.quantised.codes[0, :8]) == "fc f6 da 75 f3 57 e8 70"
    assert sha(got.quantised.codes) == "c33403c1b18b1e9d"


def test_rms_norm_variants_differ_where_they_should():
    x, r = grid((4, 256), 67, 251, 125, 32), grid((4, 256), 43, 241, 120, 61)
    w = grid((256,), 19, 63, 31, 256)
    rounded = rms_norm(x, w, residual=r, eps=1e-6)
    assert not np.array_equal(rounded.y, rms_norm(x, w, residual=r, eps=1e-6, h=Intermediate.FP32).y)
    plus_one = rms_norm(x, w, residual=r, eps=1e-6, one_plus_weight=True)
    assert np.allclose(plus_one.y, rms_norm(x, w + 1, residual=r, eps=1e-6).y, rtol=1e-14)
    alone = rms_norm(x, w, eps=1e-6)
    assert alone.residual_out is None
    assert np.allclose(alone.y, rms_norm(x, w, residual=np.zeros_like(x), eps=1e-6).y, rtol=1e-14)
    zero = rms_norm(np.zeros((1, 256), np.float32), w, eps=1e-6)
    assert np.array_equal(zero.y, np.zeros((1, 256)))


def test_K10_ties_subnormals_and_signed_zero():
    group = [448, 1.0625, 1.1875, 2**-10, 3 * 2**-10, 17, 19, 432, -17, -0.0, 447, 5 * 2**-10]
    x = np.float32([group + [0.0] * (128 - len(group))])
    for flavour in Flavour:
        got = group_quant(x, flavour=flavour)
        assert f"{fp32.bits(got.scales)[0, 0]:08x}" == "3f800000"
        assert hexes(got.codes[0, :12]) == "7e 38 3a 00 02 58 5a 7e d8 80 7e 02"
        assert not got.codes[0, 12:].any()


@pytest.mark.parametrize("flavour", list(Flavour))
def test_F17_an_all_zero_group(flavour):
    x = np.concatenate([np.zeros((1, 128)), grid((1, 128), 73, 257, 128, 16)], axis=1).astype(np.float32)
    beside = group_quant(x[:, 128:], flavour=flavour)
    for floor, scale in ((AMAX_FLOOR, "2a7b5123"), (0.0, "3f800000")):
        got = group_quant(x, flavour=flavour, amax_floor=floor)
        assert not got.codes[0, :128].any()
        if flavour is not Flavour.UE8M0 or floor == 0:
            assert f"{fp32.bits(got.scales)[0, 0]:08x}" == scale
        assert got.scales[0, 0] > 0
        assert np.array_equal(got.decoded()[0, :128], np.zeros(128))
        assert np.array_equal(got.codes[0, 128:], beside.codes[0])
        assert got.scales[0, 1] == beside.scales[0, 0]
    assert np.isfinite(group_quant(np.zeros((3, 256), np.float32), flavour=flavour, amax_floor=0).decoded()).all()


def test_F19_infinity_under_a_power_of_two_scale():
    x = np.ones((1, 128), np.float32)
    x[0, 3], x[0, 7] = np.inf, -np.inf
    saturated = group_quant(x, flavour=Flavour.UE8M0)
    assert saturated.scales[0, 0] == np.float32(2.0**127)
    assert saturated.codes[0, [3, 7]].tolist() == [0x7E, 0xFE]
    assert fp8.is_nan(group_quant(x, flavour=Flavour.UE8M0, overflow=Overflow.IEEE).codes[0, [3, 7]]).all()


def test_K20_infinity_and_nan_are_never_silently_finite():
    x = np.ones((2, 256), np.float32)
    x[0, 3], x[1, 130] = np.inf, np.nan
    got = group_quant(x)
    assert np.isposinf(got.scales[0, 0])
    assert fp8.is_nan(got.codes[0]).nonzero()[0].tolist() == [3]
    assert np.isnan(got.scales[1, 1])
    assert fp8.is_nan(got.codes[1, 128:]).all()
    assert not fp8.is_nan(got.codes[1, :128]).any()


def test_F22_division_and_reciprocal_part_at_ties():
    rng = np.random.Generator(np.random.Philox(22))
    x = bf16.rounded(rng.normal(size=(256, 2048)))
    divided = group_quant(x).codes
    for flavour, share in ((Flavour.RECIPROCAL, 5e-4), (Flavour.MULTIPLY, 3e-4)):
        other = group_quant(x, flavour=flavour).codes
        moved = divided != other
        assert moved.mean() == pytest.approx(share, rel=0.5)
        assert np.abs(fp8.order(divided) - fp8.order(other)).max() == 1


def test_F10_m_major_scales_are_another_layout():
    scales = grid((5, 4), 3, 23, 0, 1)
    stored = m_major(scales, 8)
    assert stored.shape == (4, 8)
    assert np.isnan(stored[:, 5:]).all()
    assert np.array_equal(from_m_major(stored, 5), scales)
    with pytest.raises(ValueError, match=r"a leading dimension of 4 cannot hold 5 rows"):
        m_major(scales, 4)


def test_no_rows_and_ragged_rows():
    assert group_quant(np.zeros((0, 256), np.float32)).codes.shape == (0, 256)
    with pytest.raises(ValueError, match=r"a row of 200 is not a multiple of the group of 128 \(pad the row\)"):
        group_quant(np.zeros((1, 200), np.float32))


@given(amax=st.floats(2.0**-110, 2.0**120, width=32), flavour=st.sampled_from(list(Flavour)))
def test_the_largest_element_gets_the_largest_code_and_none_overflows(amax, flavour):
    x = np.float32(amax) * np.linspace(-1, 1, 128, dtype=np.float32)[None, :]
    got = group_quant(x, flavour=flavour, overflow=Overflow.IEEE, amax_floor=0)
    assert not fp8.is_nan(got.codes).any()
    if flavour is not Flavour.UE8M0:
        assert got.codes[0, -1] == 0x7E
    assert np.abs(got.decoded() - x).max() <= amax * 2**-4 * 1.01
