"""Each vector instruction against a statement of its meaning in Python integers and exact fractions, lane by lane."""

import math
import struct
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from nkc.verify.gfx950 import isa
from nkc.verify.gfx950.valu import OPS
from tests.verify.gfx950.snippets import LITERAL, Machine, V, const, encode

M32, M64 = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF


def f32(bits: int) -> float:
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def bits32(value: float) -> int:
    if math.isnan(value):
        return 0x7FC00000
    try:
        return struct.unpack("<I", struct.pack("<f", value))[0]
    except OverflowError:
        return 0x7F800000 if value > 0 else 0xFF800000


def round32(exact: Fraction) -> int:
    """Return the float32 bits of an exact number, nearest even, denormals kept: by search over the grid."""
    if exact == 0:
        return 0
    sign, size = (0x80000000, -exact) if exact < 0 else (0, exact)
    exponent = max(-126, size.numerator.bit_length() - size.denominator.bit_length())
    while Fraction(2) ** exponent > size and exponent > -126:
        exponent -= 1
    while Fraction(2) ** (exponent + 1) <= size:
        exponent += 1
    step = Fraction(2) ** (exponent - 23)
    whole, rest = divmod(size, step)
    whole += 1 if rest * 2 > step or (rest * 2 == step and whole & 1) else 0
    value = whole * step
    return sign | (0x7F800000 if value >= Fraction(2) ** 128 else bits32(float(value)))


def signed(value: int, bits: int = 32) -> int:
    return value - (1 << bits) if value >> (bits - 1) & 1 else value


EDGES = [0, 1, 2, 31, 32, 63, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x12345678, 0x00FF00FF, 0x0000FFFF, 0xFFFF0000]
FLOATS = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    1.5,
    2.5,
    -2.5,
    3.999,
    448.0,
    -449.5,
    1e-3,
    65504.0,
    1e10,
    -1e10,
    1e38,
    -3e38,
    1e-38,
    1e-40,
    -1e-45,
    math.inf,
    -math.inf,
    math.nan,
    16777217.0,
    0.333333343,
    7.0,
    1e-30,
]


def patterns(kind: str, seed: int) -> np.ndarray:
    """Return 64 values of a source type as bit patterns: edges first, then random ones."""
    rng = np.random.default_rng(seed)
    if kind == "f32":
        values = [bits32(value) for value in FLOATS]
        values += [bits32(float(v)) for v in rng.standard_normal(64) * np.exp(rng.uniform(-20, 20, 64))]
        return rng.permutation(np.asarray(values[:64], np.uint64))
    if kind == "f16":
        values = [0, 0x8000, 0x3C00, 0xBC00, 0x7BFF, 0x7C00, 0x0001, 0x03FF, 0x3555]
        values += [int(v) for v in rng.standard_normal(64).astype(np.float16).view(np.uint16)]
        return rng.permutation(np.asarray(values[:64], np.uint64))
    if kind == "f64":
        return (rng.standard_normal(64) * np.exp(rng.uniform(-20, 20, 64))).view(np.uint64)
    limit = {"u64": M64, "i64": M64, "u16": 0xFFFF, "b16": 0xFFFF}.get(kind, M32)
    values = [value & limit for value in EDGES] + [int(v) & limit for v in rng.integers(0, 2**63, 64)]
    return rng.permutation(np.asarray(values[:64], np.uint64))


INTEGER = {
    "v_mov_b32": lambda a: a,
    "v_not_b32": lambda a: ~a,
    "v_and_b32": lambda a, b: a & b,
    "v_or_b32": lambda a, b: a | b,
    "v_xor_b32": lambda a, b: a ^ b,
    "v_xnor_b32": lambda a, b: ~(a ^ b),
    "v_and_or_b32": lambda a, b, c: a & b | c,
    "v_or3_b32": lambda a, b, c: a | b | c,
    "v_xad_u32": lambda a, b, c: (a ^ b) + c,
    "v_bfi_b32": lambda a, b, c: sum((b if a >> i & 1 else c) >> i & 1 and 1 << i for i in range(32)),
    "v_lshlrev_b32": lambda a, b: b << (a % 32),
    "v_lshrrev_b32": lambda a, b: b >> (a % 32),
    "v_ashrrev_i32": lambda a, b: signed(b) >> (a % 32),
    "v_lshlrev_b64": lambda a, b: b << (a % 64),
    "v_lshrrev_b64": lambda a, b: b >> (a % 64),
    "v_ashrrev_i64": lambda a, b: signed(b, 64) >> (a % 64),
    "v_lshl_or_b32": lambda a, b, c: a << (b % 32) & M32 | c,
    "v_lshl_add_u32": lambda a, b, c: (a << (b % 32)) + c,
    "v_add_lshl_u32": lambda a, b, c: (a + b & M32) << (c % 32),
    "v_lshl_add_u64": lambda a, b, c: (a << (b % 8)) + c,
    "v_alignbit_b32": lambda a, b, c: (a << 32 | b) >> (c % 32),
    "v_alignbyte_b32": lambda a, b, c: (a << 32 | b) >> (c % 4 * 8),
    "v_bfrev_b32": lambda a: int(f"{a:032b}"[::-1], 2),
    "v_bfe_u32": lambda a, b, c: a >> (b % 32) & (1 << c % 32) - 1,
    "v_bfe_i32": lambda a, b, c: signed(signed(a) >> (b % 32) & (1 << c % 32) - 1, c % 32) if c % 32 else 0,
    "v_bfm_b32": lambda a, b: ((1 << a % 32) - 1) << (b % 32),
    "v_bcnt_u32_b32": lambda a, b: f"{a:b}".count("1") + b,
    "v_add_u32": lambda a, b: a + b,
    "v_sub_u32": lambda a, b: a - b,
    "v_subrev_u32": lambda a, b: b - a,
    "v_add3_u32": lambda a, b, c: a + b + c,
    "v_mul_lo_u32": lambda a, b: a * b,
    "v_mul_hi_u32": lambda a, b: a * b >> 32,
    "v_mul_hi_i32": lambda a, b: signed(a) * signed(b) >> 32,
    "v_mul_u32_u24": lambda a, b: a % 2**24 * (b % 2**24),
    "v_mul_i32_i24": lambda a, b: signed(a % 2**24, 24) * signed(b % 2**24, 24),
    "v_mad_u32_u24": lambda a, b, c: a % 2**24 * (b % 2**24) + c,
    "v_mad_i32_i24": lambda a, b, c: signed(a % 2**24, 24) * signed(b % 2**24, 24) + c,
    "v_min_u32": min,
    "v_max_u32": max,
    "v_min_i32": lambda a, b: min(signed(a), signed(b)),
    "v_max_i32": lambda a, b: max(signed(a), signed(b)),
    "v_min3_u32": min,
    "v_max3_u32": max,
    "v_min3_i32": lambda *x: min(map(signed, x)),
    "v_max3_i32": lambda *x: max(map(signed, x)),
    "v_med3_u32": lambda *x: sorted(x)[1],
    "v_med3_i32": lambda *x: sorted(map(signed, x))[1],
    "v_sad_u32": lambda a, b, c: abs(a - b) + c,
    "v_ffbh_u32": lambda a: 32 - a.bit_length() if a else -1,
    "v_ffbl_b32": lambda a: (a & -a).bit_length() - 1 if a else -1,
    "v_add_u16": lambda a, b: a + b,
    "v_sub_u16": lambda a, b: a - b,
    "v_mul_lo_u16": lambda a, b: a * b,
    "v_max_u16": max,
    "v_min_u16": min,
    "v_lshlrev_b16": lambda a, b: b << (a % 16),
    "v_lshrrev_b16": lambda a, b: b >> (a % 16),
    "v_mov_b64": lambda a: a,
    "v_pack_b32_f16": lambda a, b: a | b << 16,
}


def perm(a: int, b: int, selector: int) -> int:
    data = struct.pack("<Q", a << 32 | b)
    out = bytearray()
    for choice in struct.pack("<I", selector):
        if choice < 8:
            out.append(data[choice])
        elif choice < 12:
            out.append(0xFF if data[2 * (choice - 8) + 1] & 0x80 else 0)
        else:
            out.append(0 if choice == 12 else 0xFF)
    return struct.unpack("<I", bytes(out))[0]


def any_nan(*values: float) -> bool:
    return any(math.isnan(value) for value in values)


def fma(a: float, b: float, c: float) -> int:
    if any_nan(a, b, c) or not all(map(math.isfinite, (a, b, c))):
        try:
            return bits32(a * b + c)  # infinities and NaN need no rounding
        except OverflowError:
            return 0x7FC00000
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return bits32(a * b + c if a * b + c == 0 else 0.0)
    return round32(exact)


def add(a: float, b: float) -> int:
    return (
        bits32(a + b)
        if not all(map(math.isfinite, (a, b))) or Fraction(a) + Fraction(b) == 0
        else round32(Fraction(a) + Fraction(b))
    )


def mul(a: float, b: float) -> int:
    if not all(map(math.isfinite, (a, b))):
        return bits32(a * b)
    if a == 0 or b == 0:
        return 0x80000000 if math.copysign(1, a) * math.copysign(1, b) < 0 else 0
    out = round32(Fraction(a) * Fraction(b))
    return out if out & 0x7FFFFFFF else out | (0x80000000 if (a < 0) != (b < 0) else 0)


def least(*values: float) -> float:
    numbers = [value for value in values if not math.isnan(value)]
    return min(numbers, key=lambda v: (v, math.copysign(1, v))) if numbers else math.nan


def most(*values: float) -> float:
    numbers = [value for value in values if not math.isnan(value)]
    return max(numbers, key=lambda v: (v, math.copysign(1, v))) if numbers else math.nan


def to_integer(value: float, low: int, high: int) -> int:
    if math.isnan(value):
        return 0
    return max(low, min(high, math.trunc(value))) if math.isfinite(value) else (low if value < 0 else high)


def ldexp(a: float, n: int) -> int:
    if a == 0 or not math.isfinite(a):
        return bits32(a)
    return round32(Fraction(a) * Fraction(2) ** max(-400, min(400, signed(n)))) or (0x80000000 if a < 0 else 0)


def whole(function):
    return lambda a: bits32(float(function(a)) if math.isfinite(a) and a != 0 else a)


def keep_sign(function):
    def run(a: float) -> int:
        out = whole(function)(a)
        return out | (0x80000000 if math.copysign(1, a) < 0 and out == 0 else 0)

    return run


def med3(a: float, b: float, c: float) -> int:
    return bits32(least(a, b, c) if any_nan(a, b, c) else sorted((a, b, c))[1])


FLOAT = {
    "v_add_f32": add,
    "v_sub_f32": lambda a, b: add(a, -b),
    "v_subrev_f32": lambda a, b: add(b, -a),
    "v_mul_f32": mul,
    "v_mul_legacy_f32": lambda a, b: 0 if a == 0 or b == 0 else mul(a, b),
    "v_fma_f32": fma,
    "v_min_f32": lambda a, b: bits32(least(a, b)),
    "v_max_f32": lambda a, b: bits32(most(a, b)),
    "v_min3_f32": lambda *x: bits32(least(*x)),
    "v_max3_f32": lambda *x: bits32(most(*x)),
    "v_minimum3_f32": lambda *x: bits32(math.nan if any_nan(*x) else min(x)),
    "v_maximum3_f32": lambda *x: bits32(math.nan if any_nan(*x) else max(x)),
    "v_med3_f32": med3,
    "v_trunc_f32": keep_sign(math.trunc),
    "v_ceil_f32": keep_sign(math.ceil),
    "v_floor_f32": keep_sign(math.floor),
    "v_rndne_f32": keep_sign(round),
    "v_cvt_i32_f32": lambda a: to_integer(a, -(2**31), 2**31 - 1),
    "v_cvt_u32_f32": lambda a: to_integer(a, 0, M32),
    "v_cvt_f64_f32": lambda a: struct.unpack("<Q", struct.pack("<d", a))[0],
}
MIXED = {  # sources of other types, given as bits
    "v_perm_b32": perm,
    "v_ldexp_f32": lambda a, n: ldexp(f32(a), n),
    "v_cvt_f32_i32": lambda a: round32(Fraction(signed(a))),
    "v_cvt_f32_u32": lambda a: round32(Fraction(a)),
    "v_cvt_f32_ubyte0": lambda a: bits32(float(a & 255)),
    "v_cvt_f32_ubyte1": lambda a: bits32(float(a >> 8 & 255)),
    "v_cvt_f32_ubyte2": lambda a: bits32(float(a >> 16 & 255)),
    "v_cvt_f32_ubyte3": lambda a: bits32(float(a >> 24)),
    "v_cvt_f64_i32": lambda a: struct.unpack("<Q", struct.pack("<d", float(signed(a))))[0],
    "v_cvt_f64_u32": lambda a: struct.unpack("<Q", struct.pack("<d", float(a)))[0],
    "v_cvt_f32_bf16": lambda a: a << 16,
}
CHECKED_ELSEWHERE = {
    # against numpy or ml_dtypes below
    "v_cvt_pk_bf16_f32",
    "v_cvt_pkrtz_f16_f32",
    "v_cvt_f16_f32",
    "v_cvt_f32_f16",
    "v_cvt_f32_f64",
    "v_add_f64",
    "v_mul_f64",
    "v_fma_f64",
    "v_add_f16",
    "v_sub_f16",
    "v_mul_f16",
    "v_min_f16",
    "v_max_f16",
    "v_fma_f16",
    "v_cvt_u16_f16",
    "v_cvt_f16_u16",
    # approximations of the hardware, within an error
    "v_rcp_f32",
    "v_rcp_iflag_f32",
    "v_sqrt_f32",
    "v_rsq_f32",
    "v_exp_f32",
    "v_log_f32",
    "v_sin_f32",
    "v_cos_f32",
    # by their identities
    "v_fract_f32",
    "v_frexp_mant_f32",
    "v_frexp_exp_i32_f32",
    "v_div_fixup_f32",
    # accumulator moves
    "v_accvgpr_read_b32",
    "v_accvgpr_write_b32",
    "v_accvgpr_mov_b32",
}


def run_one(mnemonic: str, sources: list[np.ndarray], out: str, form: str | None = None, **fields: int) -> np.ndarray:
    """Run an instruction on register sources (v2, v4, v6) and return v8 (or the pair) as bit patterns."""
    m = Machine()
    kinds = OPS[mnemonic].ins
    for position, (kind, values) in enumerate(zip(kinds, sources, strict=True)):
        register = 2 + 2 * position
        if kind in ("u64", "i64", "f64"):
            m.vgpr64(register, values)
        else:
            m.vgpr(register, values)
    names = ("src0", "src1", "src2")
    places = {names[i]: V + 2 + 2 * i for i in range(len(kinds))}
    m.run(encode(mnemonic, form or long_form(mnemonic), vdst=8, **places, **fields))
    return m.get64(8)[0] if out in ("u64", "i64", "f64") else m.w.V[8, 0].astype(np.uint64)


def long_form(mnemonic: str) -> str:
    return "VOP3P" if mnemonic.startswith("v_pk") else "VOP3"


def test_every_operation_has_a_test():
    assert {*INTEGER, *FLOAT, *MIXED, *CHECKED_ELSEWHERE} == set(OPS)


@pytest.mark.parametrize("mnemonic", [*INTEGER, *MIXED])
def test_integers(mnemonic):
    op = OPS[mnemonic]
    sources = [patterns(kind, seed) for seed, kind in enumerate(op.ins)]
    mask = M64 if op.out in ("u64", "i64", "f64") else 0xFFFF if op.out in ("u16",) else M32
    wanted = [(INTEGER | MIXED)[mnemonic](*(int(v) for v in lane)) & mask for lane in zip(*sources, strict=True)]
    got = run_one(mnemonic, sources, op.out)
    assert [hex(v) for v in got] == [hex(v) for v in wanted]


@pytest.mark.parametrize("mnemonic", FLOAT)
@pytest.mark.parametrize("seed", range(4))
def test_floats(mnemonic, seed):
    op = OPS[mnemonic]
    sources = [patterns(kind, 10 * seed + position) for position, kind in enumerate(op.ins)]
    got = run_one(mnemonic, sources, op.out)
    mask = M64 if op.out == "f64" else M32
    for lane, value in enumerate(got):
        values = [f32(int(source[lane])) for source in sources]
        wanted = FLOAT[mnemonic](*values) & mask
        if op.out == "f32" and math.isnan(f32(wanted)):
            assert math.isnan(f32(int(value))), values
        elif op.out == "f64" and any_nan(*values):
            assert int(value) >> 52 & 0x7FF == 0x7FF
        else:
            assert int(value) == wanted, (mnemonic, values, hex(int(value)), hex(wanted))


def test_fma_rounds_once_where_double_rounding_shows():
    a, b = np.float32(1 + 2**-12), np.float32(1 + 2**-12)
    cases = [
        (float(a), float(b), -1.0),
        (1.0, 1.0, 2.0**-24),
        (1.0, 1.0, 2.0**-24 + 2.0**-47),
        (2.0**-75, 2.0**-75, 2.0**-126),
    ]
    cases += [
        (1 + 2**-23, 1 + 2**-23, 2.0**-24 * (1 - 2**-23)),
        (2.0**-70, 2.0**-80, 2.0**-149),
        (-(2.0**-70), 2.0**-80, 2.0**-149),
    ]
    sources = [np.asarray([bits32(case[i]) for case in cases] + [0] * (64 - len(cases)), np.uint64) for i in range(3)]
    got = run_one("v_fma_f32", sources, "f32")
    for lane, case in enumerate(cases):
        assert int(got[lane]) == fma(*case), case


HALVES = {
    "v_add_f16": lambda a, b: a + b,
    "v_sub_f16": lambda a, b: a - b,
    "v_mul_f16": lambda a, b: a * b,
    "v_min_f16": np.fmin,
    "v_max_f16": np.fmax,
    "v_fma_f16": lambda a, b, c: (a.astype(np.longdouble) * b + c).astype(np.float16),
    "v_cvt_f32_f16": lambda a: a.astype(np.float32),
}


@pytest.mark.parametrize("mnemonic", HALVES)
def test_halves(mnemonic):
    op = OPS[mnemonic]
    sources = [patterns("f16", seed) for seed in range(len(op.ins))]
    with np.errstate(all="ignore"):
        wanted = HALVES[mnemonic](*(source.astype(np.uint16).view(np.float16) for source in sources))
    got = run_one(mnemonic, sources, op.out).astype(np.uint32)
    shown = got.view(np.float32) if op.out == "f32" else got.astype(np.uint16).view(np.float16)
    assert np.array_equal(shown, wanted, equal_nan=True)


DOUBLES = {
    "v_add_f64": lambda a, b: Fraction(a) + Fraction(b),
    "v_mul_f64": lambda a, b: Fraction(a) * Fraction(b),
    "v_fma_f64": lambda a, b, c: Fraction(a) * Fraction(b) + Fraction(c),
}


@pytest.mark.parametrize("mnemonic", DOUBLES)
def test_doubles(mnemonic):
    op = OPS[mnemonic]
    sources = [patterns("f64", seed) for seed in range(len(op.ins))]
    got = run_one(mnemonic, sources, "f64").view(np.float64)
    for lane, value in enumerate(got):
        exact = DOUBLES[mnemonic](*(float(source.view(np.float64)[lane]) for source in sources))
        assert float(value) == exact.numerator / exact.denominator


def test_conversions_against_other_libraries():
    x, y = patterns("f32", 1), patterns("f32", 2)
    a, b = (item.astype(np.uint32).view(np.float32) for item in (x, y))
    got = run_one("v_cvt_pk_bf16_f32", [x, y], "u32").astype(np.uint32)
    with np.errstate(all="ignore"):
        low, high = (item.astype(ml_dtypes.bfloat16) for item in (a, b))
    for half, wanted in ((got & 0xFFFF, low), (got >> 16, high)):
        assert np.array_equal(
            half.astype(np.uint16).view(ml_dtypes.bfloat16).astype(np.float32),
            wanted.astype(np.float32),
            equal_nan=True,
        )
    with np.errstate(all="ignore"):
        half = a.astype(np.float16)
    got = run_one("v_cvt_f16_f32", [x], "f16").astype(np.uint16).view(np.float16)
    assert np.array_equal(got, half, equal_nan=True)
    wide = patterns("f64", 3)
    assert np.array_equal(
        run_one("v_cvt_f32_f64", [wide], "f32").astype(np.uint32).view(np.float32),
        wide.view(np.float64).astype(np.float32),
    )
    counts = patterns("u16", 5)
    with np.errstate(all="ignore"):
        assert np.array_equal(
            run_one("v_cvt_f16_u16", [counts], "f16").astype(np.uint16).view(np.float16), counts.astype(np.float16)
        )
    halves = patterns("f16", 6)
    whole_numbers = [to_integer(float(h), 0, 65535) for h in halves.astype(np.uint16).view(np.float16)]
    assert list(run_one("v_cvt_u16_f16", [halves], "u16")) == whole_numbers


def test_pkrtz_rounds_towards_zero():
    x = patterns("f32", 4)
    values = x.astype(np.uint32).view(np.float32)
    got = run_one("v_cvt_pkrtz_f16_f32", [x, x], "u32").astype(np.uint32)
    low = (got & 0xFFFF).astype(np.uint16).view(np.float16)
    assert np.array_equal(got & 0xFFFF, got >> 16)
    for value, half in zip(values, low, strict=True):
        if np.isfinite(value):
            assert abs(float(half)) <= abs(float(value))
            with np.errstate(all="ignore"):
                above = np.nextafter(half, np.float16(math.copysign(math.inf, value)))
            assert abs(float(above)) > abs(float(value)) or float(half) == float(value)


APPROXIMATE = {
    "v_rcp_f32": lambda x: 1 / x,
    "v_rcp_iflag_f32": lambda x: 1 / x,
    "v_sqrt_f32": np.sqrt,
    "v_rsq_f32": lambda x: 1 / np.sqrt(x),
    "v_exp_f32": np.exp2,
    "v_log_f32": np.log2,
    "v_sin_f32": lambda x: np.sin(2 * np.pi * x),
    "v_cos_f32": lambda x: np.cos(2 * np.pi * x),
}


@pytest.mark.parametrize("mnemonic", APPROXIMATE)
def test_approximations_are_within_an_ulp(mnemonic):
    x = np.random.default_rng(0).uniform(0.01, 3, 64).astype(np.float32)
    got = run_one(mnemonic, [x.view(np.uint32)], "f32").astype(np.uint32).view(np.float32)
    wanted = APPROXIMATE[mnemonic](x.astype(np.float64))
    assert np.allclose(got, wanted, rtol=2**-23, atol=2**-23)


def test_fraction_and_exponent():
    x = patterns("f32", 8)
    values = x.astype(np.uint32).view(np.float32)
    mantissa = run_one("v_frexp_mant_f32", [x], "f32").astype(np.uint32).view(np.float32)
    power = run_one("v_frexp_exp_i32_f32", [x], "i32").astype(np.uint32).view(np.int32)
    fraction = run_one("v_fract_f32", [x], "f32").astype(np.uint32).view(np.float32)
    for value, m, e, f in zip(values, mantissa, power, fraction, strict=True):
        if np.isfinite(value):
            assert float(m) * 2.0 ** int(e) == float(value)
            assert 0.5 <= abs(m) < 1 or value == 0
            assert 0 <= f < 1
            assert f == min(np.float32(float(value) - math.floor(value)), np.float32(1 - 2**-24))
        else:
            assert e == 0


def test_division_sequence_is_correctly_rounded():
    """v_div_scale, v_rcp, fma steps, v_div_fmas, v_div_fixup as the compiler emits them equal the IEEE quotient."""
    rng = np.random.default_rng(3)
    top = np.concatenate(
        [
            np.asarray(FLOATS, np.float32),
            (rng.standard_normal(37) * np.exp(rng.uniform(-80, 80, 37))).astype(np.float32),
        ]
    )
    for turn in range(8):
        bottom = rng.permutation(top)
        if turn == 0:
            bottom = np.full(64, 448, np.float32)
        m = Machine()
        m.vgpr(0, top)
        m.vgpr(1, bottom)
        one = 242

        def fma3(dst: int, a: int, b: int, c: int, neg: int = 0) -> bytes:
            return encode("v_fma_f32", "VOP3", vdst=dst, src0=a, src1=b, src2=c, neg=neg)

        m.run(
            encode("v_div_scale_f32", vdst=2, sdst=10, src0=V + 1, src1=V + 1, src2=V),
            encode("v_rcp_f32", "VOP1", vdst=3, src0=V + 2),
            fma3(4, V + 2, V + 3, one, 1),
            fma3(3, V + 4, V + 3, V + 3),
            encode("v_div_scale_f32", vdst=5, sdst=106, src0=V, src1=V + 1, src2=V),
            encode("v_mul_f32", "VOP2", vdst=6, src0=V + 5, vsrc1=3),
            fma3(7, V + 2, V + 6, V + 5, 1),
            fma3(6, V + 7, V + 3, V + 6),
            fma3(7, V + 2, V + 6, V + 5, 1),
            encode("v_div_fmas_f32", vdst=8, src0=V + 7, src1=V + 3, src2=V + 6),
            encode("v_div_fixup_f32", vdst=9, src0=V + 8, src1=V + 1, src2=V),
        )
        with np.errstate(all="ignore"):
            wanted = top / bottom
        tiny = np.abs(wanted) < 2.0**-126  # the last scaling may round a second time there
        got = m.w.F[9, 0]
        wrong = ~tiny & ~((got == wanted) | np.isnan(got) & np.isnan(wanted))
        assert not wrong.any(), [*zip(top[wrong], bottom[wrong], got[wrong], wanted[wrong], strict=True)]
        assert (np.abs(got[tiny].astype(np.float64) - wanted[tiny]) <= 2.0**-149).all()


def test_modifiers():
    x = patterns("f32", 1)
    m = Machine()
    m.vgpr(2, x)
    m.vgpr(4, np.float32(0.25))
    m.run(
        encode("v_add_f32", "VOP3", vdst=8, src0=V + 2, src1=V + 4, neg=1, abs=1),
        encode("v_mul_f32", "VOP3", vdst=9, src0=V + 2, src1=V + 4, clamp=1),
        encode("v_add_u32", "VOP2", vdst=10, src0=LITERAL, vsrc1=4, literal=0x12345678),
        encode("v_fmamk_f32", vdst=11, src0=V + 2, vsrc1=4, literal=bits32(3.0)),
        encode("v_fmaak_f32", vdst=12, src0=V + 2, vsrc1=4, literal=bits32(-2.0)),
        encode("v_fmac_f32", "VOP2", vdst=4, src0=V + 4, vsrc1=4),
    )
    values = x.astype(np.uint32).view(np.float32)
    quarter = np.float32(0.25)
    with np.errstate(all="ignore"):
        assert np.array_equal(m.w.F[8, 0], -np.abs(values) + quarter, equal_nan=True)
        clamped = np.clip(np.nan_to_num(values * quarter, nan=0), 0, 1)
        assert np.array_equal(m.w.F[9, 0], clamped)
        assert np.array_equal(m.w.F[11, 0], (values.astype(np.float64) * 3 + 0.25).astype(np.float32), equal_nan=True)
        assert np.array_equal(m.w.F[12, 0], (values.astype(np.float64) * 0.25 - 2).astype(np.float32), equal_nan=True)
    assert (m.w.V[10, 0] == (0x12345678 + bits32(0.25)) & M32).all()
    assert (m.w.F[4, 0] == np.float32(0.3125)).all()


def sdwa(mnemonic: str, form: str, src1: int | None, **modifiers: int) -> bytes:
    """Return an SDWA instruction v8 = op(v2[, v4]); modifiers as the field table names them."""
    fields = isa.FORMATS["SDWA"].fields
    full = {"dst_sel": 6, "src0_sel": 6, "src1_sel": 6, "src0": 2, **modifiers}
    word = sum(value << fields[key].low for key, value in full.items())
    extra = {"vsrc1": src1} if src1 is not None else {}
    return encode(mnemonic, form, vdst=8, src0=249, **extra) + struct.pack("<I", word)


@pytest.mark.parametrize("select", range(7))
@pytest.mark.parametrize("extend", [0, 1])
@pytest.mark.parametrize("unused", [0, 1, 2])
def test_sdwa_picks_and_places_bytes_and_words(select, extend, unused):
    x, y = patterns("u32", 1), patterns("u32", 2)
    size, shift = (8, 8 * select) if select < 4 else (16, 16 * (select - 4)) if select < 6 else (32, 0)
    m = Machine()
    m.vgpr(2, x)
    m.vgpr(4, y)
    m.vgpr(8, 0x89ABCDEF)
    m.run(sdwa("v_add_u32", "VOP2", 4, src0_sel=select, src0_sext=extend, dst_sel=select, dst_unused=unused))
    for lane in range(64):
        part = int(x[lane]) >> shift & (1 << size) - 1
        total = ((signed(part, size) if extend else part) + int(y[lane])) & (1 << size) - 1
        if unused == 2:
            wanted = 0x89ABCDEF & ~(((1 << size) - 1) << shift) | total << shift
        elif unused == 1:
            wanted = signed(total, size) << shift & M32
        else:
            wanted = total << shift
        assert m.w.V[8, 0, lane] == wanted


def test_sdwa_halves_of_floats():
    h = patterns("f16", 3).astype(np.uint32)
    m = Machine()
    m.vgpr(2, h << 16)
    m.vgpr(4, h)
    m.run(sdwa("v_add_f16", "VOP2", 4, src0_sel=5, src1_sel=4, neg0=1, dst_sel=5, dst_unused=0))
    values = h.astype(np.uint16).view(np.float16)
    got = (m.w.V[8, 0] >> 16).astype(np.uint16).view(np.float16)
    with np.errstate(all="ignore"):
        assert np.array_equal(got, values - values, equal_nan=True)


def test_inactive_lanes_keep_their_value():
    m = Machine()
    m.execute(0xF0F0)
    m.vgpr(1, 5)
    m.run(encode("v_mov_b32", "VOP1", vdst=1, src0=const(9)))
    assert [int(v) for v in m.w.V[1, 0, :16]] == ([5] * 4 + [9] * 4) * 2


COMPARE = {
    "f32": {
        "lt": lambda a, b: a < b,
        "eq": lambda a, b: a == b,
        "le": lambda a, b: a <= b,
        "gt": lambda a, b: a > b,
        "lg": lambda a, b: a < b or a > b,
        "ge": lambda a, b: a >= b,
        "o": lambda a, b: not any_nan(a, b),
        "u": any_nan,
        "nge": lambda a, b: not a >= b,
        "nlg": lambda a, b: not (a < b or a > b),
        "ngt": lambda a, b: not a > b,
        "nle": lambda a, b: not a <= b,
        "neq": lambda a, b: a != b,
        "nlt": lambda a, b: not a < b,
    },
    "i32": {
        "lt": lambda a, b: a < b,
        "eq": lambda a, b: a == b,
        "le": lambda a, b: a <= b,
        "gt": lambda a, b: a > b,
        "ne": lambda a, b: a != b,
        "ge": lambda a, b: a >= b,
    },
}


@pytest.mark.parametrize(
    ("kind", "relation"), [(k, r) for k in COMPARE for r in COMPARE[k]] + [("u32", r) for r in COMPARE["i32"]]
)
def test_comparisons(kind, relation):
    x, y = patterns("f32" if kind == "f32" else "u32", 1), patterns("f32" if kind == "f32" else "u32", 2)
    y[::5] = x[::5]
    m = Machine()
    m.vgpr(2, x)
    m.vgpr(4, y)
    m.execute(0xFFFFFFFFFFFFFF0F)
    m.run(encode(f"v_cmp_{relation}_{kind}", "VOP3", vdst=20, src0=V + 2, src1=V + 4))
    view = {"f32": f32, "i32": signed, "u32": int}[kind]
    meaning = COMPARE["f32" if kind == "f32" else "i32"][relation]
    wanted = sum(1 << i for i in range(64) if meaning(view(int(x[i])), view(int(y[i]))) and not 4 <= i < 8)
    assert int(m.w.S64[0, 10]) == wanted


def test_compare_class():
    values = [math.nan, -math.inf, -2.0, -1e-40, -0.0, 0.0, 1e-40, 2.0, math.inf]
    m = Machine()
    m.vgpr(2, np.asarray(values + [1.0] * 55, np.float32))
    for bit, lane in ((1, 0), (2, 1), (3, 2), (4, 3), (5, 4), (6, 5), (7, 6), (8, 7), (9, 8)):
        m.vgpr(4, 1 << bit)
        m.w.defined = (1 << 700) - 1
        m.run(encode("v_cmp_class_f32", "VOP3", vdst=20, src0=V + 2, src1=V + 4))
        assert int(m.w.S64[0, 10]) & 0x1FF == 1 << lane


def test_select_carry_and_count():
    m = Machine()
    x, y = patterns("u32", 1), patterns("u32", 2)
    m.vgpr(2, x)
    m.vgpr(4, y)
    m.sgpr64(20, 0x5555555555555555)
    m.sgpr64(106, 0x00000000FFFFFFFF)
    m.run(
        encode("v_cndmask_b32", "VOP3", vdst=5, src0=V + 2, src1=V + 4, src2=20),
        encode("v_cndmask_b32", "VOP2", vdst=6, src0=V + 2, vsrc1=4),
        encode("v_add_co_u32", "VOP3SD", vdst=7, sdst=22, src0=V + 2, src1=V + 4),
        encode("v_addc_co_u32", "VOP3SD", vdst=8, sdst=24, src0=V + 2, src1=V + 4, src2=22),
        encode("v_sub_co_u32", "VOP3SD", vdst=9, sdst=26, src0=V + 2, src1=V + 4),
        encode("v_mad_u64_u32", "VOP3SD", vdst=10, sdst=28, src0=V + 2, src1=V + 4, src2=V + 2),
        encode("v_mbcnt_lo_u32_b32", vdst=14, src0=20, src1=const(3)),
        encode("v_mbcnt_hi_u32_b32", vdst=15, src0=21, src1=V + 14),
    )
    total = 0
    for lane in range(64):
        a, b = int(x[lane]), int(y[lane])
        assert m.w.V[5, 0, lane] == (a if lane % 2 else b)
        assert m.w.V[6, 0, lane] == (b if lane < 32 else a)
        assert m.w.V[7, 0, lane] == (a + b) & M32
        carry = (a + b) >> 32
        assert int(m.w.S64[0, 11]) >> lane & 1 == carry
        assert m.w.V[8, 0, lane] == (a + b + carry) & M32
        assert int(m.w.S64[0, 13]) >> lane & 1 == (b > a)
        wide = a * b + (a | int(m.w.V[3, 0, lane]) << 32)
        assert int(m.get64(10)[0, lane]) == wide & M64
        assert m.w.V[15, 0, lane] == 3 + total
        total += lane % 2 == 0


@pytest.mark.parametrize("bits", [32, 16])
@pytest.mark.parametrize("table", [0xC8, 0x78, 0xDE, 0x01, 0x80, 0x00, 0xFF, 0x96])
def test_bitop3(table, bits):
    sources = [patterns("u32", seed) for seed in range(3)]
    m = Machine()
    for position, source in enumerate(sources):
        m.vgpr(2 + 2 * position, source)
    m.run(
        encode(
            f"v_bitop3_b{bits}",
            vdst=8,
            src0=V + 2,
            src1=V + 4,
            src2=V + 6,
            omod=table >> 6,
            abs=table >> 3 & 7,
            neg=table & 7,
        )
    )
    for lane in range(64):
        a, b, c = (int(source[lane]) for source in sources)
        wanted = sum((table >> ((a >> i & 1) * 4 + (b >> i & 1) * 2 + (c >> i & 1)) & 1) << i for i in range(bits))
        assert m.w.V[8, 0, lane] == wanted
