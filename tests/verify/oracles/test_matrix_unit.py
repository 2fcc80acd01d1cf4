"""The matrix-unit models against bits and probes read from an H200, and against plain arithmetic."""

from pathlib import Path

import numpy as np
import pytest

from nkc.verify.numbers import bf16, fp8, fp32
from nkc.verify.numbers.fp8 import Overflow
from nkc.verify.numbers.rounding import Rounding
from nkc.verify.oracles.matrix_unit import (
    FP32_FMA,
    HOPPER_BF16,
    HOPPER_F16,
    HOPPER_FP8,
    MatrixUnit,
    accumulate,
    products_are_exact,
)

H200 = np.load(Path(__file__).with_name("h200_matrix_units.npz"))
UNITS = {"fp8": HOPPER_FP8, "f16": HOPPER_F16, "bf16": HOPPER_BF16, "mma": HOPPER_F16}
DATA = [f"{kind}_{k}" for kind in ("bits", "normal", "positive", "subnormal", "sparse", "cancel") for k in (32, 128)]


def differing(got, wanted):
    return int((fp32.ulp_distance(got, wanted) != 0).sum())


@pytest.mark.parametrize(
    ("data", "opcode"), [(data, opcode) for data in DATA for opcode in UNITS if f"{data}_{opcode}" in H200]
)
def test_every_bit_equals_the_h200(data, opcode):
    a, b = fp8.decode(H200[f"{data}_a"]), fp8.decode(H200[f"{data}_b"])
    assert differing(accumulate(a, b, UNITS[opcode]), H200[f"{data}_{opcode}"]) == 0


@pytest.mark.parametrize("data", ["wide_128", "tiny_128"])
def test_every_bit_of_bf16_operands_equals_the_h200(data):
    a, b = bf16.decode(H200[f"{data}_a"]), bf16.decode(H200[f"{data}_b"])
    assert differing(accumulate(a, b, HOPPER_BF16), H200[f"{data}_bf16"]) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"group": 16},
        {"addend_fraction_bits": 14},
        {"fraction_bits": 23},
        {"rounding": Rounding.NEAREST_EVEN},
        {"min_operand_exponent": -126},
    ],
    ids=lambda change: next(iter(change)),
)
def test_another_model_would_be_noticed(wrong):
    unit = MatrixUnit(**{**{f: getattr(HOPPER_FP8, f) for f in HOPPER_FP8.__struct_fields__}, **wrong})
    found = 0
    for data in DATA:
        a, b = fp8.decode(H200[f"{data}_a"]), fp8.decode(H200[f"{data}_b"])
        found += differing(accumulate(a, b, unit), H200[f"{data}_fp8"])
    assert found > 0


def one_large_one_small(shift, place, large_first):
    """256 and 256 2^-shift as products, the small one `place` terms away; K = 128, all else zero."""
    a = np.zeros((1, 128), np.float32)
    b = np.zeros((1, 128), np.float32)
    first, second = (256.0, 256.0 * 2.0**-shift) if large_first else (256.0 * 2.0**-shift, 256.0)
    for where, product in ((0, first), (place, second)):
        a[0, where] = 2.0 ** np.ceil(np.log2(product) / 2)
        b[0, where] = product / a[0, where]
    return a, b


@pytest.mark.parametrize("place", [1, 16, 32, 96], ids=["same_step", "other_half", "next_step", "fourth_step"])
@pytest.mark.parametrize("large_first", [True, False])
@pytest.mark.parametrize(("unit", "kept"), [(HOPPER_FP8, 13), (HOPPER_F16, 23), (HOPPER_BF16, 23)])
def test_alignment_probe(unit, kept, place, large_first):
    """H200: an addend survives down to 2^-kept of the largest and is lost below, wherever the two stand."""
    for shift in range(1, kept + 3):
        a, b = one_large_one_small(shift, place, large_first)
        lost = accumulate(a, b, unit)[0, 0] == 256.0
        assert lost == (shift > kept), shift


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_rounding_probe(sign):
    """H200: 256 + f 2^-s/256 is cut toward zero at 2^-5, for either sign, subnormal addends included."""
    for shift in range(11, 18):
        for factor in (1.0, 1.5, 1.75):
            a = np.float32([[256.0, factor * 2.0**-6] + [0.0] * 30]) * np.float32(sign)
            b = np.float32([[1.0, 2.0 ** (14 - shift)] + [0.0] * 30])
            rest = accumulate(a, b, HOPPER_FP8)[0, 0] - np.float32(256.0 * sign)
            assert rest == sign * np.floor(factor * 2.0 ** (8 - shift) * 32) / 32


def normal_operands(k, seed=0):
    rng = np.random.Generator(np.random.Philox(seed))
    x = rng.normal(size=(2, 192, k)) * 100
    return tuple(fp8.decode(fp8.encode(part, Overflow.SATURATE)) for part in x)


@pytest.mark.parametrize(
    ("k", "promote", "relative", "differing_bf16"),
    [(128, 128, 1.3e-4, 0.0419), (1024, 128, 1.3e-4, 0.0633), (1024, 32, 4.4e-5, 0.0258), (1024, 1024, 5.5e-4, 0.136)],
)
def test_error_statistics_of_the_fp8_unit(k, promote, relative, differing_bf16):
    """H200, normal data: RMS error over RMS value, and the share of bf16 results that are not the exact ones."""
    a, b = normal_operands(k)
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    total = np.zeros(exact.shape, np.float32)
    for k0 in range(0, k, promote):
        total += accumulate(a[:, k0 : k0 + promote], b[:, k0 : k0 + promote], HOPPER_FP8)
    error = np.sqrt(np.mean((total - exact) ** 2) / np.mean(exact**2))
    assert error == pytest.approx(relative, rel=0.1)
    assert np.mean(bf16.encode(total) != bf16.encode(exact)) == pytest.approx(differing_bf16, rel=0.15)


def test_positive_data_shrinks_without_promotion():
    """H200: 1.5 % low at K = 1024 when the accumulator stays in the unit (an error that random data hides)."""
    rng = np.random.Generator(np.random.Philox(1))
    a, b = (fp8.decode(fp8.encode(part, Overflow.SATURATE)) for part in rng.random((2, 64, 1024)) * 448)
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    assert np.mean(accumulate(a, b, HOPPER_FP8) / exact - 1) == pytest.approx(-0.015, rel=0.03)


def test_one_product_a_step_is_the_fp32_chain():
    a, b = normal_operands(96, seed=5)
    general = MatrixUnit(name="general", group=1, addend_fraction_bits=40)
    assert differing(accumulate(a[:8], b[:8], FP32_FMA), accumulate(a[:8], b[:8], general)) == 0


def test_products_that_do_not_fit_fp32_take_the_fma():
    a = np.float32([[1 + 2.0**-12, 1.0]])
    assert not products_are_exact(a, a)
    assert not products_are_exact(np.float32([[2.0**-80]]), np.float32([[2.0**-80]]))
    assert products_are_exact(*normal_operands(16))
    start = np.float32([[-1 - 2.0**-11]])
    assert accumulate(a[:, :1], a[:, :1], FP32_FMA, start) == 2.0**-24  # multiply, then add, would leave zero


def test_exact_groups_refuse_what_float64_cannot_hold():
    a = np.float32([[2.0**60, 1.0]])
    with pytest.raises(ValueError, match=r"exact group sums need .* more than float64's 53 bits"):
        accumulate(a, np.float32([[1.0, 2.0**-20]]), MatrixUnit(name="exact", group=2, addend_fraction_bits=None))


def test_nan_stays_in_its_row():
    a, b = normal_operands(64)
    a[3, 40] = np.nan
    for unit in (FP32_FMA, HOPPER_FP8, HOPPER_F16, MatrixUnit(name="e", group=32, addend_fraction_bits=None)):
        nan = np.isnan(accumulate(a[:6], b[:5], unit))
        assert nan[3].all()
        assert nan.sum() == 5
