"""fp32 fma: one rounding, checked in exact rational arithmetic."""

from fractions import Fraction

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from nkc.verify.numbers import fp32

floats = st.floats(width=32, allow_nan=False, allow_infinity=False)
patterns = st.integers(0, (1 << 32) - 1).map(lambda p: float(fp32.from_bits(p)))


def nearest(exact: Fraction) -> float:
    """Round a rational to fp32, nearest even, from the definition."""
    if exact == 0:
        return 0.0
    magnitude, exponent = abs(exact), -149
    while magnitude >= Fraction(2) ** (exponent + 24):
        exponent += 1
    quanta, rest = divmod(magnitude, Fraction(2) ** exponent)
    half = Fraction(2) ** exponent / 2
    quanta += rest > half or (rest == half and quanta % 2 == 1)
    value = quanta * Fraction(2) ** exponent
    if value >= Fraction(2) ** 128:
        return float("inf") if exact > 0 else float("-inf")
    return float(value if exact > 0 else -value)


@given(a=floats, b=floats, c=floats)
@example(a=1 + 2.0**-23, b=1 + 2.0**-23, c=2.0**-60)
@example(a=1 + 2.0**-12, b=1 + 2.0**-12, c=2.0**-80)  # a tie of the product, broken far below float64's last bit
@example(a=1 + 2.0**-12, b=1 + 2.0**-12, c=-(2.0**-80))
# float64's sum is one step below a tie with an odd last bit; stepping further, onto the tie, would round up
@example(a=2.0**-24 * (1 - 461 * 2.0**-23), b=1 + 461 * 2.0**-23, c=1 + 2.0**-23)
@example(a=2.0**-100, b=2.0**-49, c=2.0**-149)  # subnormal result
@example(a=2.0**-149, b=2.0**-149, c=-(2.0**-149))
def test_fma_is_rounded_once(a, b, c):
    got = float(fp32.fma(a, b, c))
    assert got == nearest(Fraction(a) * Fraction(b) + Fraction(c))


def test_fma_differs_from_multiply_then_add_and_from_a_double_sum():
    a = b = np.float32(1 + 2**-12)
    assert fp32.fma(a, b, np.float32(-1)) != a * b - np.float32(1)
    doubly = np.float32(np.float64(a) * np.float64(b) + 2.0**-80)
    assert fp32.fma(a, b, np.float32(2.0**-80)) == np.nextafter(doubly, np.float32(2))


def test_fma_passes_infinity_and_nan_and_the_sign_of_zero():
    inf, nan = np.float32(np.inf), np.float32(np.nan)
    assert np.isposinf(fp32.fma(inf, 1, 1))
    assert np.isnan(fp32.fma(inf, 0, 1))
    assert np.isnan(fp32.fma(1, 1, nan))
    assert np.isnan(fp32.fma(inf, 1, -inf))
    assert np.signbit(fp32.fma(-0.0, 1, -0.0))
    assert not np.signbit(fp32.fma(-0.0, 1, 0.0))


@given(pattern=patterns.filter(np.isfinite))
def test_neighbours_are_one_ulp_apart(pattern):
    x = np.float32(pattern)
    if abs(x) < np.finfo(np.float32).max:
        assert fp32.ulp_distance(x, np.nextafter(x, np.float32(np.inf))) == 1


def test_ulp_distance_of_zeros_and_nan():
    assert fp32.ulp_distance(0.0, -0.0) == 0
    assert fp32.ulp_distance(np.nan, np.nan) == 0
    assert fp32.ulp_distance(np.nan, 1.0) == 1 << 32
