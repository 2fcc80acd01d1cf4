"""Every code of both 8-bit formats, and encoding at the places where encoders go wrong (F13, F14, F20, F22)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nkc.verify.numbers import fp8
from nkc.verify.numbers.fp8 import E4M3FN, E4M3FNUZ, Overflow

FORMATS = (E4M3FN, E4M3FNUZ)
EVERY_CODE = np.arange(256, dtype=np.uint8)


def second_opinion(fmt):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    return {"e4m3fn": ml_dtypes.float8_e4m3fn, "e4m3fnuz": ml_dtypes.float8_e4m3fnuz}[fmt.name]


def midpoints(fmt):
    """Every value halfway between neighbouring finite codes, the first overflow tie included, and fp32 neighbours."""
    table = np.sort(fp8.decode_table(fmt)[~fp8.is_nan(EVERY_CODE, fmt)].astype(np.float64))
    ends = np.array([table[-1] + (table[-1] - table[-2]), table[0] - (table[-1] - table[-2])])
    table = np.unique(np.concatenate([table, ends]))
    ties = ((table[1:] + table[:-1]) / 2).astype(np.float32)
    return np.concatenate([ties, np.nextafter(ties, np.float32(np.inf)), np.nextafter(ties, np.float32(-np.inf))])


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda f: f.name)
def test_decode_of_all_codes_agrees_with_ml_dtypes(fmt):
    other = EVERY_CODE.view(second_opinion(fmt)).astype(np.float32)
    ours = fp8.decode_table(fmt)
    assert np.array_equal(ours, other, equal_nan=True)
    assert np.array_equal(np.signbit(ours[ours == 0]), np.signbit(other[ours == 0]))


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda f: f.name)
def test_decode_of_all_codes_agrees_with_torch(fmt):
    torch = pytest.importorskip("torch")
    dtype = {"e4m3fn": torch.float8_e4m3fn, "e4m3fnuz": torch.float8_e4m3fnuz}[fmt.name]
    other = torch.arange(256).to(torch.uint8).view(dtype).to(torch.float32).numpy()
    assert np.array_equal(fp8.decode_table(fmt), other, equal_nan=True)


def test_special_codes():
    assert E4M3FN.max == 448
    assert E4M3FNUZ.max == 240
    assert np.isnan(fp8.decode_table(E4M3FN)[[0x7F, 0xFF]]).all()
    assert np.isnan(fp8.decode_table(E4M3FN)).sum() == 2
    # F13: 0x80 is the one NaN of e4m3fnuz, not a negative zero
    assert np.isnan(fp8.decode_table(E4M3FNUZ)[0x80])
    assert np.isnan(fp8.decode_table(E4M3FNUZ)).sum() == 1
    # K17: the same byte read as fnuz is worth half
    both = ~np.isnan(fp8.decode_table(E4M3FN)) & ~np.isnan(fp8.decode_table(E4M3FNUZ))
    assert np.array_equal(fp8.decode_table(E4M3FN)[both], 2 * fp8.decode_table(E4M3FNUZ)[both])


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda f: f.name)
def test_codes_survive_a_round_trip(fmt):
    finite = EVERY_CODE[~fp8.is_nan(EVERY_CODE, fmt)]
    for overflow in Overflow:
        assert np.array_equal(fp8.encode(fp8.decode(finite, fmt), overflow, fmt), finite)


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda f: f.name)
def test_ieee_encoding_agrees_with_ml_dtypes_at_every_tie_and_beside_it(fmt):
    x = np.concatenate([midpoints(fmt), np.float32([0.0, -0.0, np.inf, -np.inf, 1e30, -1e30, 1e-40, -1e-40])])
    other = x.astype(second_opinion(fmt)).view(np.uint8)
    ours = fp8.encode(x, Overflow.IEEE, fmt)
    nan = fp8.is_nan(ours, fmt)
    assert np.array_equal(nan, fp8.is_nan(other, fmt))
    assert np.array_equal(ours[~nan], other[~nan])


def test_encoding_agrees_with_torch_on_every_bf16():
    """torch 2.13 saturates and earlier ones gave NaN: its own policy is read from one value."""
    torch = pytest.importorskip("torch")
    bits = torch.arange(0, 1 << 16, dtype=torch.int32).to(torch.int16)
    x = bits.view(torch.bfloat16).to(torch.float32)
    x = x[torch.isfinite(x)]
    other = x.to(torch.float8_e4m3fn).view(torch.uint8).numpy()
    saturates = torch.tensor(1e3).to(torch.float8_e4m3fn).float() == 448
    ours = fp8.encode(x.numpy(), Overflow.SATURATE if saturates else Overflow.IEEE)
    nan = fp8.is_nan(ours)
    assert np.array_equal(nan, fp8.is_nan(other))
    assert np.array_equal(ours[~nan], other[~nan])


def test_F20_values_at_and_above_the_largest():
    x = np.float32([448, 449, 464, 465, 1000, -1000, np.inf, -np.inf])
    assert fp8.encode(x, Overflow.SATURATE).tolist() == [0x7E, 0x7E, 0x7E, 0x7E, 0x7E, 0xFE, 0x7E, 0xFE]
    assert fp8.encode(x, Overflow.IEEE).tolist() == [0x7E, 0x7E, 0x7E, 0x7F, 0x7F, 0xFF, 0x7F, 0xFF]
    assert fp8.encode(np.float64([464 + 1e-9]), Overflow.IEEE).tolist() == [0x7F]
    assert fp8.encode(np.float32([240, 247.9, 248]), Overflow.IEEE, E4M3FNUZ).tolist() == [0x7F, 0x7F, 0x80]
    assert fp8.encode(np.float32([248, -1e6]), Overflow.SATURATE, E4M3FNUZ).tolist() == [0x7F, 0xFF]


def test_F14_sign_of_zero():
    x = np.float32([-1e-8, -0.0, 0.0])
    for overflow in Overflow:
        assert fp8.encode(x, overflow, E4M3FN).tolist() == [0x80, 0x80, 0x00]
        assert fp8.encode(x, overflow, E4M3FNUZ).tolist() == [0x00, 0x00, 0x00]


def test_F22_a_tie_goes_to_even_and_an_ulp_above_does_not():
    tie = np.float32(168.0)
    assert fp8.decode(fp8.encode(tie, Overflow.SATURATE)) == 160
    assert fp8.decode(fp8.encode(np.nextafter(tie, np.float32(999)), Overflow.SATURATE)) == 176


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda f: f.name)
def test_nan_stays_nan(fmt):
    for overflow in Overflow:
        assert fp8.is_nan(fp8.encode(np.float32([np.nan, -np.nan]), overflow, fmt), fmt).all()


@given(x=st.floats(width=32, allow_nan=False), fmt=st.sampled_from(FORMATS))
def test_the_code_is_a_nearest_one(x, fmt):
    table = fp8.decode_table(fmt).astype(np.float64)
    got = table[fp8.encode(np.float32(x), Overflow.SATURATE, fmt)]
    clamped = min(max(float(x), -fmt.max), fmt.max)
    assert abs(got - clamped) == np.nanmin(np.abs(table - clamped))


@given(x=st.floats(-500, 500), y=st.floats(-500, 500))
def test_encoding_keeps_the_order(x, y):
    low, high = fp8.order(fp8.encode(np.sort([x, y]), Overflow.SATURATE))
    assert low <= high
