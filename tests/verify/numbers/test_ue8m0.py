"""UE8M0: all codes, and rounding a scale up to a power of two."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nkc.verify.numbers import ue8m0

EVERY_CODE = np.arange(256, dtype=np.uint8)


def test_all_codes_agree_with_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    other = EVERY_CODE.view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
    assert np.array_equal(ue8m0.decode(EVERY_CODE), other, equal_nan=True)


def test_codes_survive_a_round_trip():
    assert np.array_equal(ue8m0.encode_up(ue8m0.decode(EVERY_CODE)), EVERY_CODE)


def test_ends():
    x = np.float32([0.0, 2.0**-149, 2.0**-127, np.inf, np.nan, -1.0, 3e38])
    assert ue8m0.encode_up(x).tolist() == [0, 0, 0, 254, 255, 255, 254]


@given(x=st.floats(min_value=2.0**-126, max_value=2.0**127, width=32))
def test_it_is_the_smallest_power_of_two_not_below(x):
    scale = float(ue8m0.decode(ue8m0.encode_up(np.float32(x))))
    assert scale / 2 < x <= scale
