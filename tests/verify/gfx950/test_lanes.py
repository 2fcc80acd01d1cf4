"""DPP, swaps, permutes, packed arithmetic and 8-bit conversions against lane-by-lane statements."""

import ml_dtypes
import numpy as np
import pytest

from nkc.verify.gfx950.packed import _PK_16
from nkc.verify.gfx950.waves import FP16_OVFL
from tests.verify.gfx950.snippets import Machine, V, const, encode, waitcnt
from tests.verify.gfx950.test_valu import bits32, fma, patterns

VALUE = 1000 + np.arange(64)


def source_lane(control: int, lane: int) -> int | None:
    """Return the lane that DPP reads, None outside its row: as the ISA document's table words it."""
    row, column = divmod(lane, 16)
    if control < 0x100:
        return lane - lane % 4 + (control >> 2 * (lane % 4) & 3)
    amount = control % 16
    if control // 16 == 0x10:
        return lane + amount if column + amount < 16 else None
    if control // 16 == 0x11:
        return lane - amount if column - amount >= 0 else None
    if control // 16 == 0x12:
        return row * 16 + (column - amount) % 16
    if control == 0x140:
        return row * 16 + 15 - column
    if control == 0x141:
        return lane - lane % 8 + 7 - lane % 8
    if control == 0x142:
        return row * 16 - 1 if row else None
    if control == 0x143:
        return 31 if row >= 2 else None
    raise KeyError(control)


CONTROLS = [0xE4, 0x1B, 0x4E, 0x101, 0x10F, 0x111, 0x118, 0x121, 0x128, 0x12F, 0x140, 0x141, 0x142, 0x143]


@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize("bound", [0, 1])
@pytest.mark.parametrize("execute", [(1 << 64) - 1, 0x00FF_F0F0_FFFF_7FFE])
def test_dpp(control, bound, execute):
    m = Machine()
    m.execute(execute)
    m.vgpr(1, VALUE)
    m.vgpr(2, 7)
    m.run(encode("v_mov_b32", "VOP1", vdst=2, src0=V + 1, dpp={"dpp": control, "bound_ctrl": bound}))
    for lane in range(64):
        source = source_lane(control, lane)
        reads = source is not None and execute >> source & 1
        wanted = VALUE[source] if reads else 0 if bound else 7
        assert m.w.V[2, 0, lane] == (wanted if execute >> lane & 1 else 7), lane


def test_dpp_onto_itself_uses_a_snapshot_and_masks_rows():
    m = Machine()
    m.vgpr(1, VALUE)
    m.run(
        encode(
            "v_add_u32",
            "VOP2",
            vdst=1,
            src0=V + 1,
            vsrc1=1,
            dpp={"dpp": 0x12F, "row_mask": 0b0101, "bank_mask": 0b0011},
        )
    )
    for lane in range(64):
        chosen = lane // 16 in (0, 2) and lane % 16 // 4 in (0, 1)
        wanted = VALUE[lane] + VALUE[source_lane(0x12F, lane)] if chosen else VALUE[lane]
        assert m.w.V[1, 0, lane] == wanted


@pytest.mark.parametrize("width", [16, 32])
def test_swaps(width):
    m = Machine()
    m.vgpr(1, VALUE)
    m.vgpr(2, VALUE + 500)
    m.run(encode(f"v_permlane{width}_swap_b32", "VOP1", vdst=1, src0=V + 2))
    for lane in range(64):
        odd = lane // width % 2
        assert m.w.V[1, 0, lane] == (VALUE[lane - width] + 500 if odd else VALUE[lane])
        assert m.w.V[2, 0, lane] == (VALUE[lane] + 500 if odd else VALUE[lane + width])


def test_readlane_and_writelane():
    m = Machine()
    m.execute(0xFFF0)
    m.vgpr(1, VALUE)
    m.vgpr(2, 1)
    m.run(
        encode("v_readfirstlane_b32", "VOP1", vdst=4, src0=V + 1),
        encode("v_readlane_b32", vdst=5, src0=V + 1, src1=const(40)),
        encode("v_writelane_b32", vdst=2, src0=const(9), src1=const(1)),
    )
    assert int(m.w.S[0, 4]) == VALUE[4]
    assert int(m.w.S[0, 5]) == VALUE[40]
    assert m.w.V[2, 0, :3].tolist() == [1, 9, 1]


def test_permutes():
    rng = np.random.default_rng(0)
    index = rng.integers(0, 64, 64)
    execute = 0xFFFF_FFFF_0FFF_FFFF
    m = Machine()
    m.vgpr(1, 4 * index)
    m.vgpr(2, VALUE)
    m.vgpr(3, 0)
    m.vgpr(4, 0)
    m.execute(execute)
    m.run(
        encode("ds_bpermute_b32", vdst=3, addr=1, data0=2),
        encode("ds_permute_b32", vdst=4, addr=1, data0=2),
        waitcnt(lgkmcnt=0),
        encode("ds_swizzle_b32", vdst=5, addr=2, offset0=0x1F, offset1=0x04 * 4),
        waitcnt(lgkmcnt=0),
    )
    scattered = {}
    for lane in range(64):
        if execute >> lane & 1:
            scattered[int(index[lane])] = VALUE[lane]
    for lane in range(64):
        if execute >> lane & 1:
            assert m.w.V[3, 0, lane] == (VALUE[index[lane]] if execute >> int(index[lane]) & 1 else 0)
            assert m.w.V[4, 0, lane] == scattered.get(lane, 0)
            assert m.w.V[5, 0, lane] == (VALUE[lane ^ 4] if execute >> (lane ^ 4) & 1 else 0)
        else:
            assert m.w.V[3, 0, lane] == 0


@pytest.mark.parametrize("mnemonic", ["v_pk_fma_f32", "v_pk_mul_f32", "v_pk_add_f32"])
@pytest.mark.parametrize(("low", "high"), [(0, 7), (5, 2), (7, 0)])
def test_packed_f32(mnemonic, low, high):
    sources = [patterns("f32", seed) for seed in range(6)]
    m = Machine()
    for register, source in enumerate(sources):
        m.vgpr(2 + register, source)
    extra = {"src2": V + 6} if "fma" in mnemonic else {}
    m.run(
        encode(
            mnemonic,
            vdst=10,
            src0=V + 2,
            src1=V + 4,
            opsel=low,
            opsel_hi=high & 3,
            opsel_hi2=high >> 2,
            neg=1,
            neg_hi=2,
            **extra,
        )
    )
    for half, (select, negate) in enumerate(((low, 1), (high, 2))):
        for lane in range(64):
            x = []
            for i in range(3):
                value = float(np.uint32(sources[2 * i + (select >> i & 1)][lane]).view(np.float32))
                x.append(-value if negate >> i & 1 else value)
            with np.errstate(all="ignore"):
                a, b = np.float32(x[0]), np.float32(x[1])
                wanted = fma(*x) if "fma" in mnemonic else bits32(float(a * b if "mul" in mnemonic else a + b))
            got = int(m.w.V[10 + half, 0, lane])
            assert got == wanted or (
                np.isnan(np.uint32(wanted).view(np.float32)) and np.isnan(np.uint32(got).view(np.float32))
            )


def test_a_packed_constant_is_in_the_low_half_only():
    m = Machine()
    m.vgpr(2, np.float32(3))
    m.vgpr(3, np.float32(5))
    m.run(
        encode("v_pk_add_f32", vdst=4, src0=V + 2, src1=242, opsel_hi=3, opsel_hi2=1),
        encode("v_pk_add_f32", vdst=6, src0=V + 2, src1=242, opsel_hi=1, opsel_hi2=1),
        encode("v_pk_mov_b32", vdst=8, src0=V + 2, src1=V + 2, opsel=1, opsel_hi=3, opsel_hi2=1),
    )
    assert m.w.F[4:10, 0, 0].tolist() == [4, 5, 4, 6, 5, 3]


PK = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "mul_lo": lambda a, b: a * b,
    "max": np.fmax,
    "min": np.fmin,
    "lshlrev": lambda a, b: b << (a & 15),
    "lshrrev": lambda a, b: b >> (a & 15),
    "ashrrev": lambda a, b: b >> (a & 15),
    "mad": lambda a, b, c: a * b + c,
    "fma": lambda a, b, c: (a.astype(np.longdouble) * b + c).astype(np.float16),
}


@pytest.mark.parametrize("mnemonic", _PK_16)
def test_packed_16_bit(mnemonic):
    name, kind = mnemonic.removeprefix("v_pk_").rsplit("_", 1)
    dtype = {"f16": np.float16, "u16": np.uint16, "i16": np.int16, "b16": np.uint16}[kind]
    halves = [patterns("f16" if kind == "f16" else "u16", seed).astype(np.uint16).view(dtype) for seed in range(6)]
    words = [
        halves[2 * i].view(np.uint16).astype(np.uint32) | halves[2 * i + 1].view(np.uint16).astype(np.uint32) << 16
        for i in range(3)
    ]
    m = Machine()
    for register, word in enumerate(words):
        m.vgpr(2 + register, word)
    extra = {"src2": V + 4} if name in ("mad", "fma") else {}
    m.run(encode(mnemonic, vdst=10, src0=V + 2, src1=V + 3, opsel=1, opsel_hi=3, opsel_hi2=1, **extra))
    count = 3 if extra else 2
    with np.errstate(all="ignore"):
        low = PK[name](*(halves[1 if i == 0 else 2 * i] for i in range(count)))
        high = PK[name](*(halves[2 * i + 1] for i in range(count)))
    got = m.w.V[10, 0]
    for part, wanted in ((got & 0xFFFF, low), (got >> 16, high)):
        assert np.array_equal(part.astype(np.uint16).view(dtype), wanted.astype(dtype), equal_nan=kind == "f16")


@pytest.mark.parametrize(("kind", "dtype"), [("fp8", ml_dtypes.float8_e4m3fn), ("bf8", ml_dtypes.float8_e5m2)])
@pytest.mark.parametrize("saturate", [False, True])
def test_narrowing_to_8_bits(kind, dtype, saturate):
    x, y = patterns("f32", 11), patterns("f32", 12)
    largest = float(ml_dtypes.finfo(dtype).max)
    x[:6] = [bits32(v) for v in (largest, largest * 1.03, largest * 1.07, -largest * 2, 2.0**-10, 2.0**-9 * 1.5)]
    m = Machine()
    if saturate:
        m.w.mode |= FP16_OVFL
    m.vgpr(2, x)
    m.vgpr(3, y)
    m.vgpr(4, 0xABCD1234)
    m.vgpr(5, 0xABCD1234)
    m.vgpr(6, np.float32(2.0**3 * 1.75))
    m.run(
        encode(f"v_cvt_pk_{kind}_f32", vdst=4, src0=V + 2, src1=V + 3),
        encode(f"v_cvt_scalef32_pk_{kind}_f32", vdst=5, src0=V + 2, src1=V + 3, src2=V + 6, opsel=8),
    )

    def expected(values: np.ndarray, scale: float) -> np.ndarray:
        with np.errstate(all="ignore"):
            v = values.astype(np.uint32).view(np.float32).astype(np.float64) / scale
            v = v.astype(np.float32)
            if saturate:
                v = np.where(np.isnan(v), v, np.clip(v, -largest, largest))
            return v.astype(dtype).astype(np.float32)

    def decode(codes: np.ndarray) -> np.ndarray:
        return codes.astype(np.uint8).view(dtype).astype(np.float32)

    plain, scaled = m.w.V[4, 0], m.w.V[5, 0]
    assert (plain >> 16 == 0xABCD).all()
    assert (scaled & 0xFFFF == 0x1234).all()
    for got, wanted in (
        (plain & 255, expected(x, 1)),
        (plain >> 8 & 255, expected(y, 1)),
        (scaled >> 16 & 255, expected(x, 8)),  # the scale's exponent alone counts
        (scaled >> 24, expected(y, 8)),
    ):
        assert np.array_equal(decode(got), wanted, equal_nan=True)


@pytest.mark.parametrize(("kind", "dtype"), [("fp8", ml_dtypes.float8_e4m3fn), ("bf8", ml_dtypes.float8_e5m2)])
def test_widening_from_8_bits(kind, dtype):
    codes = np.arange(256).reshape(4, 64)
    m = Machine()
    m.vgpr(2, codes[0] | codes[1] << 8 | codes[2] << 16 | codes[3] << 24)
    m.vgpr(3, np.float32(4.0))
    m.run(
        encode(f"v_cvt_pk_f32_{kind}", "VOP1", vdst=4, src0=V + 2),
        encode(f"v_cvt_scalef32_pk_f32_{kind}", vdst=6, src0=V + 2, src1=V + 3, opsel=1),
        encode(f"v_cvt_f32_{kind}", "VOP1", vdst=8, src0=V + 2),
    )
    values = codes.astype(np.uint8).view(dtype).astype(np.float32)
    for register, wanted in ((4, values[0]), (5, values[1]), (6, values[2] * 4), (7, values[3] * 4), (8, values[0])):
        assert np.array_equal(m.w.F[register, 0], wanted, equal_nan=True)


def test_saturation_is_a_mode_bit():
    m = Machine()
    m.run(encode("s_setreg_imm32_b32", simm16=1 | 23 << 6, literal=1))
    assert m.w.mode & FP16_OVFL
