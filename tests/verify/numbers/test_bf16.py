"""bf16 rounding: ties to even, overflow, NaN (F23)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nkc.verify.numbers import bf16

EVERY_BITS = np.arange(1 << 16, dtype=np.uint16)


def finite_values():
    values = bf16.decode(EVERY_BITS)
    return values[np.isfinite(values)]


def test_every_pattern_survives_a_round_trip():
    values = bf16.decode(EVERY_BITS)
    nan = np.isnan(values)
    assert np.array_equal(bf16.encode(values)[~nan], EVERY_BITS[~nan])
    assert np.isnan(bf16.decode(bf16.encode(values)))[nan].all()


def test_F23_ties_to_even():
    x = np.float32([1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20])
    assert bf16.rounded(x).tolist() == [1.0, 1.015625, 1.0078125]
    assert bf16.rounded(-x).tolist() == [-1.0, -1.015625, -1.0078125]


def test_every_tie_and_its_neighbours_agree_with_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    upper = (EVERY_BITS.astype(np.uint32) << 16)[np.isfinite(bf16.decode(EVERY_BITS))]
    x = np.concatenate([(upper | low) for low in (0x7FFF, 0x8000, 0x8001)]).view(np.float32)
    with np.errstate(over="ignore"):
        assert np.array_equal(bf16.encode(x), x.astype(ml_dtypes.bfloat16).view(np.uint16))


def test_agrees_with_torch_on_random_patterns():
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(3).integers(0, 1 << 32, 1 << 16, dtype=np.uint32).view(np.float32)
    x = x[~np.isnan(x)]
    assert np.array_equal(bf16.encode(x), torch.tensor(x).bfloat16().view(torch.int16).numpy().view(np.uint16))


def test_a_nan_payload_never_rounds_to_infinity():
    x = np.uint32([0x7F800001, 0xFF800001, 0x7FFFFFFF]).view(np.float32)
    assert np.isnan(bf16.rounded(x)).all()


def test_float64_is_rounded_once():
    x = 1 + 2.0**-8 + 2.0**-40  # through fp32 it would become the tie and go down
    assert bf16.rounded(x) == np.float32(1.0078125)


def test_overflow_starts_halfway_past_the_largest():
    limit = 2.0**128 * (1 - 2.0**-9)
    assert bf16.rounded(np.nextafter(limit, 0)) == np.float32(bf16.MAX)
    assert np.isposinf(bf16.rounded(limit))


@given(x=st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**127), max_value=2.0**127))
def test_the_result_is_a_nearest_value(x):
    here = int(bf16.order(bf16.encode(np.float32(x))))
    got = float(bf16.rounded(np.float32(x)))
    for step in (-1, 1):
        place = here + step
        bits = np.uint16(place if place >= 0 else 0x8000 | -place)
        assert abs(float(bf16.decode(bits)) - x) >= abs(got - x)
