"""Epilogues as mathematics: against torch in float64, and where naive forms lose their digits."""

import numpy as np
import pytest

from nkc.verify.oracles import epilogues
from nkc.verify.oracles.epilogues import Halves

X = np.concatenate([np.linspace(-40, 40, 4001), [-1e4, -750.0, -88.8, 0.0, -0.0, 88.8, 1e4]])


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (epilogues.silu, lambda t, x: t.nn.functional.silu(x)),
        (epilogues.gelu_erf, lambda t, x: t.nn.functional.gelu(x)),
        (epilogues.gelu_tanh, lambda t, x: t.nn.functional.gelu(x, approximate="tanh")),
    ],
)
def test_agree_with_torch_in_float64(ours, theirs):
    torch = pytest.importorskip("torch")
    other = theirs(torch, torch.tensor(X)).numpy()
    assert np.allclose(ours(X), other, rtol=1e-13, atol=1e-15)  # torch's 1 + erf cancels below zero


def test_far_below_zero_is_minus_zero_or_tiny_and_never_nan():
    with np.errstate(under="ignore"):
        for function in (epilogues.silu, epilogues.gelu_erf, epilogues.gelu_tanh):
            y = function(np.float64([-1e4, -1e3, 0.0, 1e4]))
            assert np.isfinite(y).all()
            assert np.signbit(y[:2]).all()
            assert y[3] == 1e4


def test_gelu_erf_keeps_its_digits_below_minus_five():
    # x/2 erfc(-x/sqrt 2) at -6, from erfc's asymptotic series with the terms up to t^-10
    assert epilogues.gelu_erf(np.float64([-6.0]))[0] == pytest.approx(-6 * 9.8658764503769814e-10, rel=1e-13)


def test_gating_reads_the_order_it_is_told():
    x = np.float64([[1.0, 2.0, 3.0, 4.0]])
    silu = epilogues.silu
    assert np.array_equal(epilogues.gated_silu(x, Halves.HALVES), silu(x[:, :2]) * x[:, 2:])
    assert np.array_equal(epilogues.gated_silu(x, Halves.INTERLEAVED), silu(x[:, 0::2]) * x[:, 1::2])
    with pytest.raises(ValueError, match=r"a last axis of 3 has no two halves"):
        epilogues.split(x[:, :3], Halves.HALVES)


def test_bias_runs_along_columns():
    assert np.array_equal(epilogues.bias(np.zeros((2, 3)), np.float32([1, 2, 3])), [[1, 2, 3], [1, 2, 3]])
