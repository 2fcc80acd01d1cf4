"""The dense oracle: K01 and K17 bit for bit, scale rows (F01, F02), order, and its own independence checks."""

import time

import numpy as np
import pytest

from nkc.verify.numbers import bf16, fp8, fp32
from nkc.verify.oracles import dense
from nkc.verify.oracles.dense import Operands, Promotion
from nkc.verify.oracles.matrix_unit import FP32_FMA, HOPPER_BF16, HOPPER_FP8, MatrixUnit
from tests.fixtures.speed import slowness

from ..recipes import codes, grid, sha

A = codes((2, 256), 37, 11)
B = codes((128, 256), 53, 7)
SCALE_A = np.float32([[2**-9, 3 * 2**-11], [2**-8, 5 * 2**-12]])
SCALE_B = np.float32([[2**-10, 7 * 2**-13]])


def k01(a=A, fmt=fp8.E4M3FN):
    return Operands(a=fp8.decode(a, fmt), b=fp8.decode(B, fmt), scale_a=SCALE_A, scale_b=SCALE_B)


def random_operands(m, n, k, seed=0):
    rng = np.random.Generator(np.random.Philox(seed))
    a, b = (fp8.decode(rng.integers(0, 127, s).astype(np.uint8) | (rng.integers(0, 2, s) << 7).astype(np.uint8))
            for s in ((m, k), (n, k)))  # fmt: skip
    scale_a = np.ldexp(1 + rng.random((m, -(-k // 128))), -9).astype(np.float32)
    scale_b = np.ldexp(1 + rng.random((-(-n // 128), -(-k // 128))), -10).astype(np.float32)
    return Operands(a=a, b=b, scale_a=scale_a, scale_b=scale_b)


def test_K01_the_fma_promotion():
    acc = dense.fp32_sequential(k01())
    assert sha(acc) == "f3a3a1f848672273"
    assert f"{fp32.bits(acc)[0, 26]:08x}" == "bebc0c93"
    assert [f"{v:04x}" for v in bf16.encode(acc)[0, :4]] == ["3df2", "bc9a", "bf87", "3fb8"]
    assert sha(bf16.encode(acc)) == "8d497867c22c2ab7"


def test_K01_multiply_and_add_is_another_rule():
    acc = dense.accumulator(k01(), promotion=Promotion.MUL_ADD)
    assert [f"{v:08x}" for v in fp32.bits(acc)[0, :4]] == ["3df18378", "bc9a6d68", "bf874860", "3fb8493c"]
    assert f"{fp32.bits(acc)[0, 26]:08x}" == "bebc0c94"
    assert sha(bf16.encode(acc)) == "8d497867c22c2ab7"


def test_K01_the_exact_value():
    assert dense.value(k01())[0, :3] == pytest.approx([0.117926558, -0.0188509972, -1.05689627], rel=5e-9)


def test_K01_other_orders_differ_in_the_accumulator_alone():
    multiply_add = dense.accumulator(k01(), promotion=Promotion.MUL_ADD)

    def differing(unit, promotion):
        other = dense.accumulator(k01(), unit, promotion=promotion)
        assert sha(bf16.encode(other)) == "8d497867c22c2ab7"
        return int(np.sum(fp32.bits(other) != fp32.bits(multiply_add)))

    assert differing(FP32_FMA, Promotion.FMA) == 30
    assert differing(FP32_FMA, Promotion.SEPARATE) == 14
    groups = [MatrixUnit(name=f"group_{g}", group=g, addend_fraction_bits=None) for g in (16, 32, 128)]
    assert [differing(unit, Promotion.MUL_ADD) for unit in groups[:1]] == [161]
    assert [differing(unit, Promotion.SEPARATE) for unit in groups[:1]] == [158]
    assert [differing(unit, Promotion.MUL_ADD) for unit in groups[1:]] == [154, 158]


def test_K01_thirteen_bits_into_an_fp32_register():
    """The case's FP22 model aligns at 13 bits and keeps an fp32 register; the H200's own register has 13 bits."""
    exact = bf16.encode(dense.fp32_sequential(k01()))
    paper = MatrixUnit(name="fp22", group=32, addend_fraction_bits=13, min_operand_exponent=-6)
    assert np.sum(bf16.encode(dense.accumulator(k01(), paper)) != exact) == 28
    assert np.sum(bf16.encode(dense.accumulator(k01(), HOPPER_FP8)) != exact) == 29


def test_K17_nan_fills_its_row_and_no_other():
    a = A.copy()
    a[1, 200] = 0x7F
    acc = dense.fp32_sequential(k01(a))
    stored = bf16.encode(acc)
    assert (stored[1] == 0x7FC0).all()
    assert np.array_equal(fp32.bits(acc)[0], fp32.bits(dense.fp32_sequential(k01()))[0])
    assert np.isnan(dense.value(k01(a))[1]).all()
    assert np.isfinite(dense.value(k01(a))[0]).all()


def test_K17_the_wrong_format_gives_a_quarter():
    wrong = dense.fp32_sequential(k01(fmt=fp8.E4M3FNUZ))
    free = ~np.isnan(wrong)
    assert free.any()
    assert np.array_equal(4 * wrong[free], dense.fp32_sequential(k01())[free])


def test_F14_the_negative_zero_code_multiplies_as_zero():
    a = A.copy()
    a[0, ::5] = 0x80
    plus = A.copy()
    plus[0, ::5] = 0x00
    assert np.array_equal(dense.fp32_sequential(k01(a)), dense.fp32_sequential(k01(plus)))


def test_F16_every_bit_of_a_scale_counts():
    ones, third = np.ones((1, 128), np.float32), np.float32([[0.3]])
    operands = Operands(a=ones, b=ones, scale_a=third, scale_b=np.float32([[1]]))
    assert dense.value(operands)[0, 0] == 128 * float(np.float32(0.3))
    assert dense.fp32_sequential(operands)[0, 0] == 128 * np.float32(0.3)
    assert dense.accumulator(operands, HOPPER_FP8)[0, 0] == 128 * np.float32(0.3)


@pytest.mark.parametrize(("n", "rows"), [(576, 5), (2112, 17), (448, 4)])
def test_F01_column_j_uses_scale_row_j_over_128(n, rows):
    ones = np.ones((1, 128), np.float32)
    scale_b = np.arange(1, rows + 1, dtype=np.float32)[:, None]
    operands = Operands(a=ones, b=np.ones((n, 128), np.float32), scale_a=np.float32([[1]]), scale_b=scale_b)
    wanted = 128.0 * (np.arange(n) // 128 + 1)
    assert np.array_equal(dense.value(operands)[0], wanted)
    assert np.array_equal(dense.fp32_sequential(operands)[0], wanted)
    assert np.array_equal(dense.accumulator(operands, HOPPER_FP8)[0], wanted)


def test_F02_scale_shapes_are_checked_not_guessed():
    a, b = np.ones((2, 256), np.float32), np.ones((1000, 256), np.float32)
    sa = np.ones((2, 2), np.float32)
    with pytest.raises(ValueError, match=r"scale_b has shape \(125, 2\), ceil\(dim / block\) gives \(8, 2\)"):
        Operands(a=a, b=b, scale_a=sa, scale_b=np.ones((125, 2), np.float32))
    with pytest.raises(ValueError, match=r"one operand has scales and the other none"):
        Operands(a=a, b=b, scale_a=sa)
    with pytest.raises(ValueError, match=r"are not \[M, K\] and \[N, K\]"):
        Operands(a=a, b=b[:, :128])


def plain_sequential(operands, columns):
    """The rule, written as the sentence that states it: scalars, one rounding at a time."""
    out = np.empty((operands.m, len(columns)), np.float32)
    for i in range(operands.m):
        for place, j in enumerate(columns):
            acc = np.float32(0)
            for block in range(operands.k // 128):
                piece = np.float32(0)
                for k in range(128 * block, 128 * block + 128):
                    piece = np.float32(piece + np.float32(operands.a[i, k] * operands.b[j, k]))
                scale = np.float32(operands.scale_a[i, block] * operands.scale_b[j // 128, block])
                acc = fp32.fma(piece, scale, acc)
            out[i, place] = acc
    return out


def test_sequential_is_the_scalar_loop():
    operands = random_operands(2, 131, 256, seed=4)
    keep = [0, 1, 127, 128, 130]
    got = dense.fp32_sequential(operands)
    assert np.array_equal(fp32.bits(plain_sequential(operands, keep)), fp32.bits(got)[:, keep])


def test_fixed_order_split_k():
    operands = random_operands(3, 40, 1024)
    one = dense.fp32_sequential(operands)
    for chains in (dense.split_k(operands, 3), dense.dealt(operands, 4)):
        got = dense.accumulator(operands, chains=chains)
        assert not np.array_equal(got, one)
        assert np.allclose(got, one, rtol=1e-4, atol=1e-5)
    first, second = dense.split_k(operands, 2)
    assert (first[0], first[-1], second[0]) == ((0, 128), (384, 512), (512, 640))
    halves = [
        dense.accumulator(
            Operands(
                a=operands.a[:, part],
                b=operands.b[:, part],
                scale_a=operands.scale_a[:, s],
                scale_b=operands.scale_b[:, s],
            )
        )
        for part, s in ((slice(0, 512), slice(0, 4)), (slice(512, 1024), slice(4, 8)))
    ]
    assert np.array_equal(dense.accumulator(operands, chains=(first, second)), halves[0] + halves[1])


def test_parts_of_blocks_and_trees():
    operands = random_operands(2, 8, 256)
    quarters = tuple(((k, k + 64),) for k in range(0, 256, 64))
    left = dense.accumulator(operands, chains=quarters)
    tree = dense.accumulator(operands, chains=quarters, tree=((0, 1), (2, 3)))
    assert np.allclose(left, tree, rtol=1e-5)
    assert dense.left_to_right(4) == (((0, 1), 2), 3)


@pytest.mark.parametrize(
    ("chains", "message"),
    [
        ((((0, 128),),), r"chains end at k = 128, K is 256"),
        ((((0, 128), (128, 256)), ((128, 256),)), r"piece \(128, 256\) follows k = 256"),
        ((((0, 256),),), r"piece \(0, 256\) crosses a scale block of 128"),
    ],
)
def test_chains_that_are_not_the_product_are_refused(chains, message):
    with pytest.raises(ValueError, match=message):
        dense.accumulator(k01(), chains=chains)


def test_bf16_operands_without_scales():
    a, b = grid((5, 192), 37, 101, 50, 32), grid((7, 192), 53, 97, 48, 32)
    operands = Operands(a=a, b=b)
    exact = a.astype(np.float64) @ b.T.astype(np.float64)
    assert np.array_equal(dense.value(operands), exact)
    chain = np.zeros((5, 7), np.float32)
    for k in range(192):
        chain = fp32.fma(a[:, k, None], b[None, :, k], chain)
    assert np.array_equal(dense.fp32_sequential(operands), chain)
    assert np.allclose(dense.accumulator(operands, HOPPER_BF16), exact, rtol=1e-5)
    assert dense.split_k(operands, 3) == (((0, 64),), ((64, 128),), ((128, 192),))


def test_no_rows_and_no_k():
    assert dense.fp32_sequential(Operands(a=np.zeros((0, 128), np.float32), b=np.ones((3, 128), np.float32))).shape == (
        0,
        3,
    )
    empty = Operands(a=np.zeros((2, 0), np.float32), b=np.ones((3, 0), np.float32))
    assert np.array_equal(dense.fp32_sequential(empty), np.zeros((2, 3)))


def test_it_is_quick_enough_to_use():
    operands, times = random_operands(256, 256, 1024), []
    for _ in range(3):
        start = time.process_time()
        dense.fp32_sequential(operands)
        times.append(time.process_time() - start)
    assert min(times) < 2.0 * slowness()
