"""MFMA layouts and models against a triple loop over m, n, k in exact fractions."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from nkc.verify.gfx950.mfma import MfmaModel, accumulate
from nkc.verify.gfx950.numeric import add_odd, round_sum
from nkc.verify.gfx950.operands import MissingFeatureError
from tests.verify.gfx950.snippets import Machine, V, const, encode
from tests.verify.gfx950.test_valu import bits32, f32, round32

FP8, BF8 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
SHAPES = {
    "v_mfma_f32_16x16x128_f8f6f4": (16, 128, FP8, FP8),
    "v_mfma_f32_32x32x64_f8f6f4": (32, 64, FP8, FP8),
    "v_mfma_f32_16x16x32_bf16": (16, 32, ml_dtypes.bfloat16, ml_dtypes.bfloat16),
    "v_mfma_f32_32x32x16_bf16": (32, 16, ml_dtypes.bfloat16, ml_dtypes.bfloat16),
    "v_mfma_f32_16x16x32_f16": (16, 32, np.float16, np.float16),
    "v_mfma_f32_32x32x16_f16": (32, 16, np.float16, np.float16),
    "v_mfma_f32_32x32x8_f16": (32, 8, np.float16, np.float16),
    "v_mfma_f32_16x16x16_bf16": (16, 16, ml_dtypes.bfloat16, ml_dtypes.bfloat16),
    "v_mfma_f32_16x16x32_fp8_fp8": (16, 32, FP8, FP8),
    "v_mfma_f32_32x32x16_fp8_bf8": (32, 16, FP8, BF8),
    "v_mfma_f32_16x16x32_bf8_fp8": (16, 32, BF8, FP8),
}


def place(m: Machine, register: int, matrix: np.ndarray, f8f6f4: bool) -> None:
    """Put A[rows, k] (or B[columns, k]) into registers, element by element, as the layout says."""
    rows, k = matrix.shape
    groups = 64 // rows
    size = matrix.dtype.itemsize
    raw = np.zeros((64, k // groups * size), np.uint8)
    for lane in range(64):
        g, r = divmod(lane, rows)
        for element in range(k // groups):
            if f8f6f4:
                kk = 16 * g + element if element < 16 else k // 2 + 16 * g + element - 16
            else:
                kk = k // groups * g + element
            raw[lane, element * size : (element + 1) * size] = np.frombuffer(matrix[r, kk].tobytes(), np.uint8)
    words = raw.view(np.uint32)
    for position in range(words.shape[1]):
        m.vgpr(register + position, words[:, position])


def result(m: Machine, register: int, size: int) -> np.ndarray:
    """Read D[m, n]: 16x16 row 4g + register; 32x32 row 8 (register // 4) + 4g + register % 4; column lane % size."""
    out = np.zeros((size, size), np.float32)
    for lane in range(64):
        g, column = divmod(lane, size)
        for item in range(size * size // 64):
            row = 4 * g + item if size == 16 else 8 * (item // 4) + 4 * g + item % 4
            out[row, column] = m.w.F[register + item, 0, lane]
    return out


def fill(m: Machine, register: int, matrix: np.ndarray) -> None:
    size = matrix.shape[0]
    for item in range(size * size // 64):
        lanes = np.arange(64)
        g, column = lanes // size, lanes % size
        row = 4 * g + item if size == 16 else 8 * (item // 4) + 4 * g + item % 4
        m.vgpr(register + item, matrix[row, column])


def operands(mnemonic: str, seed: int, wide: bool) -> tuple[np.ndarray, ...]:
    size, k, a_type, b_type = SHAPES[mnemonic]
    rng = np.random.default_rng(seed)
    shapes = ((size, k), (size, k), (size, size))
    raw = [rng.standard_normal(shape) * (np.exp(2 * rng.standard_normal(shape)) if wide else 1) for shape in shapes]
    a, b = (np.clip(item, -400, 400).astype(dtype) for item, dtype in zip(raw[:2], (a_type, b_type), strict=True))
    return a, b, raw[2].astype(np.float32)


@pytest.mark.parametrize("mnemonic", SHAPES)
@pytest.mark.parametrize("execute", [(1 << 64) - 1, 0])
def test_once_is_the_exact_sum_rounded_once(mnemonic, execute):
    size, k, *_ = SHAPES[mnemonic]
    a, b, c = operands(mnemonic, 1, wide=True)
    m = Machine()
    m.execute(execute)  # MFMA ignores EXEC
    place(m, 10, a, "f8f6f4" in mnemonic)
    place(m, 30, b, "f8f6f4" in mnemonic)
    fill(m, 50, c)
    m.execute((1 << 64) - 1)
    m.execute(execute)
    m.run(encode(mnemonic, vdst=80, src0=V + 10, src1=V + 30, src2=V + 50))
    got = result(m, 80, size)
    rng = np.random.default_rng(2)
    for row, column in rng.integers(0, size, (40, 2)):
        exact = Fraction(float(c[row, column]))
        exact += sum(Fraction(float(a[row, i])) * Fraction(float(b[column, i])) for i in range(k))
        assert bits32(float(got[row, column])) == round32(exact)


@pytest.mark.parametrize("model", [MfmaModel.SEQUENTIAL, MfmaModel.TREE])
@pytest.mark.parametrize("mnemonic", ["v_mfma_f32_16x16x128_f8f6f4", "v_mfma_f32_32x32x16_bf16"])
def test_the_other_models_round_where_they_say(mnemonic, model):
    size, k, *_ = SHAPES[mnemonic]
    a, b, c = operands(mnemonic, 3, wide=True)
    m = Machine(model=model)
    place(m, 10, a, "f8f6f4" in mnemonic)
    place(m, 30, b, "f8f6f4" in mnemonic)
    fill(m, 50, c)
    m.run(encode(mnemonic, vdst=80, src0=V + 10, src1=V + 30, src2=V + 50))
    got = result(m, 80, size)
    for row, column in np.random.default_rng(2).integers(0, size, (20, 2)):
        products = [Fraction(float(a[row, i])) * Fraction(float(b[column, i])) for i in range(k)]
        if model is MfmaModel.SEQUENTIAL:
            total = bits32(float(c[row, column]))
            for product in products:
                total = round32(Fraction(f32(total)) + product)
        else:
            level = [round32(product) for product in products]
            while len(level) > 1:
                level = [
                    round32(Fraction(f32(x)) + Fraction(f32(y))) for x, y in zip(level[::2], level[1::2], strict=True)
                ]
            total = round32(Fraction(f32(level[0])) + Fraction(float(c[row, column])))
        assert bits32(float(got[row, column])) == total


@pytest.mark.parametrize("mnemonic", ["v_mfma_scale_f32_16x16x128_f8f6f4", "v_mfma_scale_f32_32x32x64_f8f6f4"])
def test_scales_apply_to_blocks_of_32_along_k(mnemonic):
    plain = mnemonic.replace("_scale", "")
    size, k, *_ = SHAPES[plain]
    a, b, c = operands(plain, 5, wide=False)
    rng = np.random.default_rng(6)
    scale_a, scale_b = (rng.integers(120, 134, (size, k // 32)) for _ in range(2))
    m = Machine()
    place(m, 10, a, True)
    place(m, 30, b, True)
    fill(m, 50, c)
    lanes = np.arange(64)
    m.vgpr(100, scale_a[lanes % size, lanes // size] << 8 | 0x11000011)  # byte 1
    m.vgpr(101, scale_b[lanes % size, lanes // size] << 16 | 0x22002222)  # byte 2
    m.run(
        encode(
            mnemonic,
            vdst=80,
            src0=V + 10,
            src1=V + 30,
            src2=V + 50,
            scale_src0=V + 100,
            scale_src1=V + 101,
            opsel=0b01,
            opsel_hi=0b10,
        )
    )
    got = result(m, 80, size)
    for row, column in rng.integers(0, size, (30, 2)):
        exact = Fraction(float(c[row, column]))
        for i in range(k):
            power = int(scale_a[row, i // 32]) + int(scale_b[column, i // 32]) - 254
            exact += Fraction(float(a[row, i])) * Fraction(float(b[column, i])) * Fraction(2) ** power
        assert bits32(float(got[row, column])) == round32(exact)


def test_a_constant_c_and_accumulators_in_agprs():
    a, b, _ = operands("v_mfma_f32_16x16x128_f8f6f4", 1, wide=False)
    m = Machine()
    place(m, 10, a, True)
    place(m, 30, b, True)
    first = encode("v_mfma_f32_16x16x128_f8f6f4", vdst=0, src0=V + 10, src1=V + 30, src2=const(0), acc_cd=1)
    again = encode("v_mfma_f32_16x16x128_f8f6f4", vdst=0, src0=V + 10, src1=V + 30, src2=V, acc_cd=1)
    read = [encode("v_accvgpr_read_b32", vdst=80 + i, src0=V + i) for i in range(4)]
    m.run(first, again, *read)
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    once = exact.astype(np.float32)
    assert np.array_equal(result(m, 80, 16), (exact + once).astype(np.float32))


def test_forms_that_are_not_modelled_are_named():
    code = encode("v_mfma_f32_16x16x128_f8f6f4", vdst=0, src0=V, src1=V + 8, src2=V + 16, cbsz=4, blgp=4)
    with pytest.raises(MissingFeatureError, match="6-bit and 4-bit matrix formats"):
        Machine().run(code)
    with pytest.raises(MissingFeatureError, match="v_smfmac_f32_16x16x64_bf16"):
        Machine().run(encode("v_smfmac_f32_16x16x64_bf16", vdst=0, src0=V, src1=V + 8, src2=V + 16))


def test_round_to_odd_prevents_double_rounding():
    a, b = (
        np.asarray([1.0, 1.0, -1.0, 2.0**-130]),
        np.asarray([2.0**-24 + 2.0**-80, 2.0**-24, -(2.0**-24) - 2.0**-80, 2.0**-160]),
    )
    for x, y, odd in zip(a, b, add_odd(a, b), strict=True):
        assert bits32(float(np.float32(odd))) == round32(Fraction(x) + Fraction(y))
    wide = np.asarray([[[2.0**60 + 1.0]]])
    assert accumulate(wide, np.ones((1, 1, 1)), np.zeros((1, 1, 1), np.float32), MfmaModel.ONCE)[0, 0, 0] == np.float32(
        2.0**60
    )
    assert round_sum(np.asarray([2.0**-150]), np.asarray([2.0**-149], np.float32))[0] == np.float32(2.0**-148)
