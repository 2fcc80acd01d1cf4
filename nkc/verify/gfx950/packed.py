"""Packed arithmetic (two values a lane) and the conversions that write part of a register."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from nkc.verify.gfx950 import numeric as n
from nkc.verify.gfx950.instruction import SGPR0, Instruction, Kind, Operand
from nkc.verify.gfx950.operands import MissingFeatureError, Reader, Step, reader, write_f32, write_u32
from nkc.verify.gfx950.waves import FP16_OVFL, Waves

Array = npt.NDArray[Any]
U32 = np.uint32


def _half32(operand: Operand, high: bool, kind: str, negate: bool) -> Reader:
    """Return a reader of one 32-bit half of a register pair. A constant has only a low half."""
    if operand.kind is Kind.CONSTANT:
        base = reader(operand, kind)
        if high:
            zero = np.zeros((), np.float32 if kind == "f32" else U32)
            base = lambda w: zero  # noqa: E731
    else:
        base = reader(Operand(operand.kind, operand.index + high), kind)
    return (lambda w: -base(w)) if negate else base


_PK_F32: dict[str, Callable[..., Array]] = {
    "v_pk_fma_f32": n.fma32,
    "v_pk_mul_f32": np.multiply,
    "v_pk_add_f32": np.add,
}
_PK_16: dict[str, tuple[str, Callable[..., Array]]] = {
    "v_pk_add_f16": ("f16", np.add), "v_pk_mul_f16": ("f16", np.multiply),
    "v_pk_fma_f16": ("f16", lambda a, b, c: n.add_odd(a.astype(np.float64) * b, c).astype(np.float16)),
    "v_pk_min_f16": ("f16", n.minimum), "v_pk_max_f16": ("f16", n.maximum),
    "v_pk_add_u16": ("u16", np.add), "v_pk_sub_u16": ("u16", np.subtract), "v_pk_add_i16": ("i16", np.add),
    "v_pk_sub_i16": ("i16", np.subtract), "v_pk_mul_lo_u16": ("u16", np.multiply),
    "v_pk_max_u16": ("u16", np.maximum), "v_pk_min_u16": ("u16", np.minimum), "v_pk_max_i16": ("i16", np.maximum),
    "v_pk_min_i16": ("i16", np.minimum), "v_pk_lshlrev_b16": ("u16", lambda a, b: b << (a & np.uint16(15))),
    "v_pk_lshrrev_b16": ("u16", lambda a, b: b >> (a & np.uint16(15))),
    "v_pk_ashrrev_i16": ("i16", lambda a, b: b >> (a & np.int16(15))),
    "v_pk_mad_u16": ("u16", lambda a, b, c: a * b + c), "v_pk_mad_i16": ("i16", lambda a, b, c: a * b + c),
}  # fmt: skip


def _halves(inst: Instruction) -> list[tuple[str, bool, bool, bool, bool]]:
    """Return, per source: name, high half for the low result, for the high result, and the two negations."""
    fields = inst.fields
    high_bits = fields["opsel_hi"] | fields["opsel_hi2"] << 2
    out = []
    for position, key in enumerate(("src0", "src1", "src2")):
        if key in inst.operands:
            bit = 1 << position
            flags = (fields["opsel"], high_bits, fields["neg"], fields["neg_hi"])
            low, high, neg, neg_hi = (bool(field & bit) for field in flags)
            out.append((key, low, high, neg, neg_hi))
    return out


def bind_packed(inst: Instruction) -> Step | None:
    """Return the step of a packed VOP3P instruction, or None."""
    name = inst.mnemonic
    if inst.format != "VOP3P":
        return None
    if inst.fields["clamp"]:
        raise MissingFeatureError(f"{name}: modifier clamp")
    destination = inst.operands["vdst"].index
    if name in _PK_F32 or name == "v_pk_mov_b32":
        kind = "f32" if name in _PK_F32 else "u32"
        if name == "v_pk_mov_b32":
            # op_sel picks the half of src0 for the low result and of src1 for the high one
            low = [_half32(inst.operands["src0"], bool(inst.fields["opsel"] & 1), kind, False)]
            high = [_half32(inst.operands["src1"], bool(inst.fields["opsel"] & 2), kind, False)]
            run: Callable[..., Array] = lambda a: a  # noqa: E731
        else:
            parts = _halves(inst)
            low = [_half32(inst.operands[key], lo, kind, neg) for key, lo, _, neg, _ in parts]
            high = [_half32(inst.operands[key], hi, kind, neg) for key, _, hi, _, neg in parts]
            run = _PK_F32[name]
        store = write_f32 if kind == "f32" else write_u32
        store_low, store_high = store(destination), store(destination + 1)

        def step(w: Waves) -> None:
            first = run(*(read(w) for read in low))
            second = run(*(read(w) for read in high))
            store_low(w, first.copy() if name == "v_pk_mov_b32" and isinstance(first, np.ndarray) else first)
            store_high(w, second)

        if name == "v_pk_mov_b32":

            def move(w: Waves) -> None:
                second = np.array(high[0](w))
                store_low(w, low[0](w))
                store_high(w, second)

            return move
        return step
    if name in _PK_16:
        kind, run = _PK_16[name]
        parts = _halves(inst)
        floats = kind == "f16"
        if not floats and any(neg or neg_hi for *_, neg, neg_hi in parts):
            raise MissingFeatureError(f"{name}: neg on an integer")

        def take(key: str, high: bool, neg: bool) -> Reader:
            base = reader(inst.operands[key], kind, high=high and inst.operands[key].kind is not Kind.CONSTANT)
            return (lambda w: -base(w)) if neg else base

        low = [take(key, lo, neg) for key, lo, _, neg, _ in parts]
        high = [take(key, hi, neg) for key, _, hi, _, neg in parts]
        write = write_u32(destination)

        def packed(w: Waves) -> None:
            first = np.asarray(run(*(read(w) for read in low))).view(np.uint16).astype(U32)
            second = np.asarray(run(*(read(w) for read in high))).view(np.uint16).astype(U32)
            write(w, first | second << U32(16))

        return packed
    return _dot(inst)


def _dot(inst: Instruction) -> Step | None:
    """v_dot4_i32_i8 and v_dot2_f32_bf16/f16 are not emitted by anything here."""
    raise MissingFeatureError(inst.mnemonic)


_FP8 = {"fp8": (3, 7), "bf8": (2, 15)}


def bind_conversion(inst: Instruction) -> Step | None:
    """Return the step of an 8-bit float conversion, or None."""
    name = inst.mnemonic
    if "sdwa_word" in inst.fields or "dpp_word" in inst.fields:
        if name.startswith(("v_cvt_f32_fp8", "v_cvt_f32_bf8", "v_cvt_pk_f32_fp8")):
            raise MissingFeatureError(f"{name}: SDWA or DPP")
        return None
    for kind, (mantissa, bias) in _FP8.items():
        if name == f"v_cvt_pk_{kind}_f32":
            return _narrow(inst, mantissa, bias, scaled=False)
        if name == f"v_cvt_scalef32_pk_{kind}_f32":
            return _narrow(inst, mantissa, bias, scaled=True)
        if name == f"v_cvt_pk_f32_{kind}":
            return _widen(inst, kind, scaled=False)
        if name == f"v_cvt_scalef32_pk_f32_{kind}":
            return _widen(inst, kind, scaled=True)
        if name == f"v_cvt_f32_{kind}":
            return _widen_one(inst, kind)
    return None


def _narrow(inst: Instruction, mantissa: int, bias: int, *, scaled: bool) -> Step:
    """Two float32 to 8-bit floats in one half of the destination; op_sel[3] picks it, the other half is kept."""
    first, second = reader(inst.operands["src0"], "f32"), reader(inst.operands["src1"], "f32")
    scale = reader(inst.operands["src2"], "f32") if scaled else None
    opsel = inst.fields["opsel"]
    if opsel & 7 or inst.fields["clamp"] or inst.fields["omod"]:
        raise MissingFeatureError(f"{inst.mnemonic}: op_sel on a source, clamp or omod")
    index = inst.operands["vdst"].index
    store = write_u32(index)
    high = bool(opsel & 8)

    def step(w: Waves) -> None:
        saturate = bool(w.mode & FP16_OVFL)
        a, b = first(w), second(w)
        if scale is not None:
            # Only the exponent of the scale counts.
            shift = 127 - n.exponent(scale(w))
            if np.any(shift):
                a, b = n.ldexp32(a, shift), n.ldexp32(b, shift)
        a = n.to_fp8(np.ascontiguousarray(a), mantissa=mantissa, bias=bias, saturate=saturate)
        b = n.to_fp8(np.ascontiguousarray(b), mantissa=mantissa, bias=bias, saturate=saturate)
        both = a | b << U32(8)
        if high:
            store(w, w.V[index] & U32(0xFFFF) | both << U32(16))
        else:
            store(w, w.V[index] & U32(0xFFFF0000) | both)

    return step


def _widen(inst: Instruction, kind: str, *, scaled: bool) -> Step:
    """Two 8-bit floats of one half of the source to float32; op_sel[0] picks the half."""
    table = (n.E4M3 if kind == "fp8" else n.E5M2).astype(np.float32)
    bits = reader(inst.operands["src0"], "u32")
    scale = reader(inst.operands["src1"], "f32") if scaled else None
    shift = U32(16 if inst.fields.get("opsel", 0) & 1 else 0)
    index = inst.operands["vdst"].index
    low, high = write_f32(index), write_f32(index + 1)

    def step(w: Waves) -> None:
        value = bits(w) >> shift
        a, b = table[value & U32(0xFF)], table[value >> U32(8) & U32(0xFF)]
        if scale is not None:
            power = n.exponent(scale(w)) - 127
            a, b = n.ldexp32(a, power), n.ldexp32(b, power)
        low(w, a)
        high(w, b)

    return step


def _widen_one(inst: Instruction, kind: str) -> Step:
    table = (n.E4M3 if kind == "fp8" else n.E5M2).astype(np.float32)
    bits = reader(inst.operands["src0"], "u32")
    if inst.fields.get("opsel", 0):
        raise MissingFeatureError(f"{inst.mnemonic}: op_sel")
    store = write_f32(inst.operands["vdst"].index)
    return lambda w: store(w, table[bits(w) & U32(0xFF)])


__all__ = ["SGPR0", "bind_conversion", "bind_packed"]
