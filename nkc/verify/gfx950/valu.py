"""What each vector instruction computes in one lane, as a function over numpy arrays. No state, no modifiers.

`OPS` maps a mnemonic to its result type, source types and function; `bind_valu` turns an instruction into a step.
`max3` and the like follow the ISA document's pseudo code; approximations (rcp, rsq, exp, log, sqrt) round the exact
value once, which the hardware need not do.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nkc.verify.gfx950 import numeric as n
from nkc.verify.gfx950.instruction import Instruction
from nkc.verify.gfx950.operands import (
    MissingFeatureError,
    Reader,
    Step,
    reader,
    sdwa_reader,
    with_dpp,
    writer,
)
from nkc.verify.gfx950.waves import Waves

Array = npt.NDArray[Any]
U32, I64, U64 = np.uint32, np.int64, np.uint64


class Op(NamedTuple):
    """Result type, source types and the function of the sources."""

    out: str
    ins: tuple[str, ...]
    run: Callable[..., Array]


OPS: dict[str, Op] = {}


def _op(names: str, out: str, ins: str) -> Callable[[Callable[..., Array]], Callable[..., Array]]:
    def register(function: Callable[..., Array]) -> Callable[..., Array]:
        for name in names.split():
            OPS[name] = Op(out, tuple(ins.split()), function)
        return function

    return register


def _simple(names: str, out: str, ins: str, function: Callable[..., Array]) -> None:
    _op(names, out, ins)(function)


# moves and bits -------------------------------------------------------------------------------------------
_simple("v_mov_b32 v_accvgpr_read_b32 v_accvgpr_write_b32 v_accvgpr_mov_b32", "u32", "u32", lambda a: a)
_simple("v_mov_b64", "u64", "u64", lambda a: a)
_simple("v_not_b32", "u32", "u32", lambda a: ~a)
_simple("v_and_b32", "u32", "u32 u32", lambda a, b: a & b)
_simple("v_or_b32", "u32", "u32 u32", lambda a, b: a | b)
_simple("v_xor_b32", "u32", "u32 u32", lambda a, b: a ^ b)
_simple("v_xnor_b32", "u32", "u32 u32", lambda a, b: ~(a ^ b))
_simple("v_and_or_b32", "u32", "u32 u32 u32", lambda a, b, c: a & b | c)
_simple("v_or3_b32", "u32", "u32 u32 u32", lambda a, b, c: a | b | c)
_simple("v_xad_u32", "u32", "u32 u32 u32", lambda a, b, c: (a ^ b) + c)
_simple("v_bfi_b32", "u32", "u32 u32 u32", lambda a, b, c: (a & b) | (~a & c))
_simple("v_lshlrev_b32", "u32", "u32 u32", lambda a, b: b << (a & U32(31)))
_simple("v_lshrrev_b32", "u32", "u32 u32", lambda a, b: b >> (a & U32(31)))
_simple("v_ashrrev_i32", "i32", "i32 i32", lambda a, b: b >> (a & 31))
_simple("v_lshlrev_b64", "u64", "u32 u64", lambda a, b: b << (a & U32(63)).astype(U64))
_simple("v_lshrrev_b64", "u64", "u32 u64", lambda a, b: b >> (a & U32(63)).astype(U64))
_simple("v_ashrrev_i64", "i64", "u32 i64", lambda a, b: b >> (a & U32(63)).astype(I64))
_simple("v_lshl_or_b32", "u32", "u32 u32 u32", lambda a, b, c: a << (b & U32(31)) | c)
_simple("v_lshl_add_u32", "u32", "u32 u32 u32", lambda a, b, c: (a << (b & U32(31))) + c)
_simple("v_add_lshl_u32", "u32", "u32 u32 u32", lambda a, b, c: (a + b) << (c & U32(31)))
_simple("v_lshl_add_u64", "u64", "u64 u32 u64", lambda a, b, c: (a << (b & U32(7)).astype(U64)) + c)
_simple("v_alignbit_b32", "u32", "u32 u32 u32", lambda a, b, c: _funnel(a, b, c & U32(31)))
_simple("v_alignbyte_b32", "u32", "u32 u32 u32", lambda a, b, c: _funnel(a, b, (c & U32(3)) * U32(8)))


def _funnel(high: Array, low: Array, shift: Array) -> Array:
    return ((high.astype(U64) << U64(32) | low.astype(U64)) >> shift.astype(U64)).astype(U32)


@_op("v_bfrev_b32", "u32", "u32")
def _bfrev(a: Array) -> Array:
    a = (a >> U32(1) & U32(0x55555555)) | (a & U32(0x55555555)) << U32(1)
    a = (a >> U32(2) & U32(0x33333333)) | (a & U32(0x33333333)) << U32(2)
    a = (a >> U32(4) & U32(0x0F0F0F0F)) | (a & U32(0x0F0F0F0F)) << U32(4)
    return np.asarray(a).byteswap()


@_op("v_bfe_u32", "u32", "u32 u32 u32")
def _bfe_u32(a: Array, offset: Array, width: Array) -> Array:
    mask = (U64(1) << (width & U32(31)).astype(U64)) - U64(1)
    return (a.astype(U64) >> (offset & U32(31)).astype(U64) & mask).astype(U32)


@_op("v_bfe_i32", "u32", "u32 u32 u32")
def _bfe_i32(a: Array, offset: Array, width: Array) -> Array:
    wide = (width & U32(31)).astype(I64)
    field = a.view(np.int32).astype(I64) >> (offset & U32(31)).astype(I64) & (1 << wide) - 1
    sign = np.where(wide > 0, 1 << np.maximum(wide - 1, 0), 0)
    return ((field ^ sign) - sign).astype(U32)


_simple("v_bfm_b32", "u32", "u32 u32", lambda a, b: ((U32(1) << (a & U32(31))) - U32(1)) << (b & U32(31)))
_simple("v_bcnt_u32_b32", "u32", "u32 u32", lambda a, b: np.bitwise_count(a).astype(U32) + b)


@_op("v_perm_b32", "u32", "u32 u32 u32")
def _perm(a: Array, b: Array, selector: Array) -> Array:
    data = a.astype(U64) << U64(32) | b.astype(U64)
    out = np.zeros(np.broadcast_shapes(data.shape, selector.shape), U32)
    for byte in range(4):
        choice = selector >> U32(8 * byte) & U32(0xFF)
        picked = data >> (U64(8) * np.minimum(choice, 7).astype(U64)) & U64(0xFF)
        sign = (data >> (U64(16) * (np.clip(choice, 8, 11) - U32(8)).astype(U64) + U64(15)) & U64(1)) * U64(0xFF)
        value = np.where(choice < 8, picked, np.where(choice < 12, sign, np.where(choice == 12, U64(0), U64(0xFF))))
        out |= value.astype(U32) << U32(8 * byte)
    return out


# integers -------------------------------------------------------------------------------------------------
_simple("v_add_u32", "u32", "u32 u32", lambda a, b: a + b)
_simple("v_sub_u32", "u32", "u32 u32", lambda a, b: a - b)
_simple("v_subrev_u32", "u32", "u32 u32", lambda a, b: b - a)
_simple("v_add3_u32", "u32", "u32 u32 u32", lambda a, b, c: a + b + c)
_simple("v_mul_lo_u32", "u32", "u32 u32", lambda a, b: a * b)
_simple("v_mul_hi_u32", "u32", "u32 u32", lambda a, b: (a.astype(U64) * b.astype(U64) >> U64(32)).astype(U32))
_simple("v_mul_hi_i32", "i32", "i32 i32", lambda a, b: (a.astype(I64) * b.astype(I64) >> 32).astype(np.int32))
_simple("v_mul_u32_u24", "u32", "u32 u32", lambda a, b: (a & U32(0xFFFFFF)) * (b & U32(0xFFFFFF)))
_simple("v_mul_i32_i24", "i32", "i32 i32", lambda a, b: (a << 8 >> 8) * (b << 8 >> 8))
_simple("v_mad_u32_u24", "u32", "u32 u32 u32", lambda a, b, c: (a & U32(0xFFFFFF)) * (b & U32(0xFFFFFF)) + c)
_simple("v_mad_i32_i24", "i32", "i32 i32 i32", lambda a, b, c: (a << 8 >> 8) * (b << 8 >> 8) + c)
_simple("v_min_u32", "u32", "u32 u32", np.minimum)
_simple("v_max_u32", "u32", "u32 u32", np.maximum)
_simple("v_min_i32", "i32", "i32 i32", np.minimum)
_simple("v_max_i32", "i32", "i32 i32", np.maximum)
_simple("v_min3_u32", "u32", "u32 u32 u32", lambda a, b, c: np.minimum(np.minimum(a, b), c))
_simple("v_max3_u32", "u32", "u32 u32 u32", lambda a, b, c: np.maximum(np.maximum(a, b), c))
_simple("v_min3_i32", "i32", "i32 i32 i32", lambda a, b, c: np.minimum(np.minimum(a, b), c))
_simple("v_max3_i32", "i32", "i32 i32 i32", lambda a, b, c: np.maximum(np.maximum(a, b), c))
_simple(
    "v_med3_i32", "i32", "i32 i32 i32", lambda a, b, c: np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))
)
_simple(
    "v_med3_u32", "u32", "u32 u32 u32", lambda a, b, c: np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))
)
_simple("v_sad_u32", "u32", "u32 u32 u32", lambda a, b, c: np.maximum(a, b) - np.minimum(a, b) + c)
_simple("v_ffbh_u32", "u32", "u32", lambda a: np.where(a == 0, U32(0xFFFFFFFF), 31 - _log2(a)).astype(U32))
_simple("v_ffbl_b32", "u32", "u32", lambda a: np.where(a == 0, U32(0xFFFFFFFF), _log2(a & (~a + U32(1)))).astype(U32))
_simple("v_add_u16", "u16", "u16 u16", lambda a, b: a + b)
_simple("v_sub_u16", "u16", "u16 u16", lambda a, b: a - b)
_simple("v_mul_lo_u16", "u16", "u16 u16", lambda a, b: a * b)
_simple("v_max_u16", "u16", "u16 u16", np.maximum)
_simple("v_min_u16", "u16", "u16 u16", np.minimum)
_simple("v_lshlrev_b16", "u16", "u16 u16", lambda a, b: b << (a & np.uint16(15)))
_simple("v_lshrrev_b16", "u16", "u16 u16", lambda a, b: b >> (a & np.uint16(15)))


def _log2(a: Array) -> Array:
    return np.frexp(np.maximum(a, 1).astype(np.float64))[1] - 1


# float32 --------------------------------------------------------------------------------------------------
_simple("v_add_f32", "f32", "f32 f32", np.add)
_simple("v_sub_f32", "f32", "f32 f32", np.subtract)
_simple("v_subrev_f32", "f32", "f32 f32", lambda a, b: b - a)
_simple("v_mul_f32", "f32", "f32 f32", np.multiply)
_simple("v_mul_legacy_f32", "f32", "f32 f32", lambda a, b: np.where((a == 0) | (b == 0), np.float32(0), a * b))
_simple("v_fma_f32", "f32", "f32 f32 f32", n.fma32)
_simple("v_min_f32", "f32", "f32 f32", n.minimum)
_simple("v_max_f32", "f32", "f32 f32", n.maximum)
_simple("v_min3_f32", "f32", "f32 f32 f32", lambda a, b, c: n.minimum(n.minimum(a, b), c))
_simple("v_max3_f32", "f32", "f32 f32 f32", lambda a, b, c: n.maximum(n.maximum(a, b), c))
_simple("v_maximum3_f32", "f32", "f32 f32 f32", lambda a, b, c: np.maximum(np.maximum(a, b), c))
_simple("v_minimum3_f32", "f32", "f32 f32 f32", lambda a, b, c: np.minimum(np.minimum(a, b), c))
_simple("v_trunc_f32", "f32", "f32", np.trunc)
_simple("v_ceil_f32", "f32", "f32", np.ceil)
_simple("v_floor_f32", "f32", "f32", np.floor)
_simple("v_rndne_f32", "f32", "f32", np.rint)
_simple("v_fract_f32", "f32", "f32", lambda a: np.minimum(a - np.floor(a), np.float32(1 - 2**-24)))
_simple("v_rcp_f32 v_rcp_iflag_f32", "f32", "f32", n.rcp)
_simple("v_sqrt_f32", "f32", "f32", lambda a: np.sqrt(a, dtype=np.float64).astype(np.float32))
_simple("v_rsq_f32", "f32", "f32", lambda a: (1 / np.sqrt(a, dtype=np.float64)).astype(np.float32))
_simple("v_exp_f32", "f32", "f32", lambda a: np.exp2(a, dtype=np.float64).astype(np.float32))
_simple("v_log_f32", "f32", "f32", lambda a: np.log2(a, dtype=np.float64).astype(np.float32))
_simple("v_sin_f32", "f32", "f32", lambda a: np.sin(a.astype(np.float64) * 2 * np.pi).astype(np.float32))
_simple("v_cos_f32", "f32", "f32", lambda a: np.cos(a.astype(np.float64) * 2 * np.pi).astype(np.float32))
_simple("v_ldexp_f32", "f32", "f32 i32", n.ldexp32)
_simple("v_frexp_exp_i32_f32", "i32", "f32", lambda a: np.where(np.isfinite(a), np.frexp(a)[1], 0).astype(np.int32))


@_op("v_frexp_mant_f32", "f32", "f32")
def _frexp_mant(a: Array) -> Array:
    return np.where(np.isfinite(a), np.frexp(a)[0], a)


@_op("v_med3_f32", "f32", "f32 f32 f32")
def _med3(a: Array, b: Array, c: Array) -> Array:
    low, high = n.minimum(a, b), n.maximum(a, b)
    middle = n.maximum(low, n.minimum(high, c))
    return np.where(np.isnan(a) | np.isnan(b) | np.isnan(c), n.minimum(low, c), middle)


@_op("v_div_fixup_f32", "f32", "f32 f32 f32")
def _div_fixup(quotient: Array, denominator: Array, numerator: Array) -> Array:
    sign = np.signbit(denominator) ^ np.signbit(numerator)
    # The steps before turn a quotient past the range into inf - inf. The document does not say what happens then;
    # IEEE division, which the sequence is known to implement, gives infinity.
    out = np.where(np.isnan(quotient), np.float32(np.inf), np.abs(quotient))
    out = np.where(n.exponent(numerator) - n.exponent(denominator) < -150, np.float32(0), out)
    out = np.where(np.isinf(denominator) | (numerator == 0), np.float32(0), out)
    out = np.where((denominator == 0) | np.isinf(numerator), np.float32(np.inf), out)
    invalid = (denominator == 0) & (numerator == 0) | np.isinf(denominator) & np.isinf(numerator)
    out = np.where(invalid | np.isnan(denominator) | np.isnan(numerator), np.float32(np.nan), out)
    return np.where(sign, -out, out)


# conversions ----------------------------------------------------------------------------------------------
_simple("v_cvt_f32_i32", "f32", "i32", lambda a: a.astype(np.float32))
_simple("v_cvt_f32_u32", "f32", "u32", lambda a: a.astype(np.float32))
_simple("v_cvt_i32_f32", "i32", "f32", lambda a: n.to_int(a, -(2**31), 2**31 - 1).astype(np.int32))
_simple("v_cvt_u32_f32", "u32", "f32", lambda a: n.to_int(a, 0, 2**32 - 1).astype(U32))
_simple("v_cvt_f16_f32", "f16", "f32", lambda a: a.astype(np.float16))
_simple("v_cvt_f32_f16", "f32", "f16", lambda a: a.astype(np.float32))
_simple("v_cvt_f32_bf16", "f32", "u16", n.from_bf16)
_simple("v_cvt_f64_f32", "f64", "f32", lambda a: a.astype(np.float64))
_simple("v_cvt_f32_f64", "f32", "f64", lambda a: a.astype(np.float32))
_simple("v_cvt_f64_i32", "f64", "i32", lambda a: a.astype(np.float64))
_simple("v_cvt_f64_u32", "f64", "u32", lambda a: a.astype(np.float64))
_simple("v_cvt_u16_f16", "u16", "f16", lambda a: n.to_int(a, 0, 65535).astype(np.uint16))
_simple("v_cvt_f16_u16", "f16", "u16", lambda a: a.astype(np.float16))
for _byte in range(4):
    _simple(f"v_cvt_f32_ubyte{_byte}", "f32", "u32", lambda a, s=8 * _byte: (a >> U32(s) & U32(255)).astype(np.float32))
_simple("v_cvt_pk_bf16_f32", "u32", "f32 f32", lambda a, b: n.to_bf16(a) | n.to_bf16(b) << U32(16))
_simple("v_pack_b32_f16", "u32", "b16 b16", lambda a, b: a.astype(U32) | b.astype(U32) << U32(16))


@_op("v_cvt_pkrtz_f16_f32", "u32", "f32 f32")
def _cvt_pkrtz(a: Array, b: Array) -> Array:
    def towards_zero(x: Array) -> Array:
        near = x.astype(np.float16)
        beyond = np.abs(near.astype(np.float32)) > np.abs(x)
        return np.where(beyond, np.nextafter(near, np.float16(0)), near).view(np.uint16).astype(U32)

    return np.asarray(towards_zero(a) | towards_zero(b) << U32(16))


# float64 and float16 --------------------------------------------------------------------------------------
_simple("v_add_f64", "f64", "f64 f64", np.add)
_simple("v_mul_f64", "f64", "f64 f64", np.multiply)
_simple("v_fma_f64", "f64", "f64 f64 f64", n.fma64)
_simple("v_add_f16", "f16", "f16 f16", np.add)
_simple("v_sub_f16", "f16", "f16 f16", np.subtract)
_simple("v_mul_f16", "f16", "f16 f16", np.multiply)
_simple("v_min_f16", "f16", "f16 f16", n.minimum)
_simple("v_max_f16", "f16", "f16 f16", n.maximum)
_simple("v_fma_f16", "f16", "f16 f16 f16", lambda a, b, c: n.add_odd(a.astype(np.float64) * b, c).astype(np.float16))

LONG_SOURCES = ("src0", "src1", "src2")


def sources(inst: Instruction) -> tuple[str, ...]:
    """Return the names of the source operands in order."""
    return tuple(key for key in (*LONG_SOURCES[:1], "vsrc1", *LONG_SOURCES[1:]) if key in inst.operands)


def readers(inst: Instruction, kinds: tuple[str, ...]) -> tuple[list[Reader], Callable[[Waves], Array] | None]:
    """Return readers of the sources, and for DPP the lanes that may be written."""
    opsel = inst.fields.get("opsel", 0)
    names = sources(inst)
    if len(names) != len(kinds):
        raise MissingFeatureError(f"{inst.mnemonic}: {len(names)} sources where {len(kinds)} are expected")
    wide = [kind not in ("f16", "u16", "i16", "b16") for kind in kinds]
    for position, is_wide in enumerate(wide):
        if is_wide and opsel >> position & 1:
            raise MissingFeatureError(f"{inst.mnemonic}: op_sel on a 32-bit source")
    if "sdwa_word" in inst.fields:
        return [
            sdwa_reader(inst.operands[name], kind, inst.fields[f"src{at}_sel"], bool(inst.fields[f"src{at}_sext"]))
            for at, (name, kind) in enumerate(zip(names, kinds, strict=True))
        ], None
    made = [
        reader(inst.operands[name], kind, high=bool(opsel >> position & 1))
        for position, (name, kind) in enumerate(zip(names, kinds, strict=True))
    ]
    if "dpp_word" in inst.fields:
        made[0], written = with_dpp(inst, made[0])
        return made, written
    return made, None


def bind_valu(inst: Instruction) -> Step | None:
    """Return the step of a vector instruction that computes lane by lane, or None if it is not one."""
    op = OPS.get(inst.mnemonic)
    if op is None:
        return None
    if inst.fields.get("opsel", 0) & 8 and op.out not in ("f16", "u16", "i16", "b16"):
        raise MissingFeatureError(f"{inst.mnemonic}: op_sel on a 32-bit result")
    made, written = readers(inst, op.ins)
    store = writer(inst, op.out)
    run = op.run
    if written is not None:
        return masked(lambda w: run(*(read(w) for read in made)), store, written)
    if len(made) == 1:
        (one,) = made
        return lambda w: store(w, run(one(w)))
    if len(made) == 2:
        first, second = made
        return lambda w: store(w, run(first(w), second(w)))
    first, second, third = made
    return lambda w: store(w, run(first(w), second(w), third(w)))


def masked(value: Reader, store: Callable[[Waves, Array], None], written: Callable[[Waves], Array]) -> Step:
    """Return a step that stores under EXEC and a further lane mask."""

    def step(w: Waves) -> None:
        result, lanes = value(w), written(w)
        mask, full = w.mask, w.full
        w.mask, w.full = mask & lanes, False
        store(w, np.broadcast_to(result, mask.shape))
        w.mask, w.full = mask, full

    return step
