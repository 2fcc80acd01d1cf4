"""Vector instructions that are more than a function of their sources: comparisons, selections, carries, and forms
that read their destination.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from nkc.verify.gfx950 import numeric as n
from nkc.verify.gfx950.instruction import VCC, Instruction, Kind, Operand
from nkc.verify.gfx950.operands import (
    MissingFeatureError,
    Reader,
    Step,
    mask_reader,
    mask_writer,
    reader,
    with_dpp,
    writer,
)
from nkc.verify.gfx950.valu import LONG_SOURCES, masked, readers, sources
from nkc.verify.gfx950.waves import Waves

Array = npt.NDArray[Any]
U32, I64, U64 = np.uint32, np.int64, np.uint64

_RELATIONS: dict[str, Callable[[Array, Array], Array]] = {
    "f": lambda a, b: np.zeros(np.broadcast_shapes(a.shape, b.shape), bool),
    "lt": np.less,
    "eq": np.equal,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "ne": np.not_equal,
    "lg": lambda a, b: (a < b) | (a > b),
    "o": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
    "u": lambda a, b: np.isnan(a) | np.isnan(b),
    "nge": lambda a, b: ~(a >= b),
    "nlg": lambda a, b: ~((a < b) | (a > b)),
    "ngt": lambda a, b: ~(a > b),
    "nle": lambda a, b: ~(a <= b),
    "neq": lambda a, b: ~(a == b),
    "nlt": lambda a, b: ~(a < b),
    "t": lambda a, b: np.ones(np.broadcast_shapes(a.shape, b.shape), bool),
    "tru": lambda a, b: np.ones(np.broadcast_shapes(a.shape, b.shape), bool),
}


def compare_class(a: Array, classes: Array) -> Array:
    """Return whether each float32 belongs to one of the classes whose bits are set (ISA: V_CMP_CLASS_F32)."""
    negative, exponent = np.signbit(a), n.exponent(a)
    quiet = a.view(U32) >> U32(22) & U32(1)
    kind = np.where(negative, 5, 6)
    kind = np.where(n.is_denormal(a), np.where(negative, 4, 7), kind)
    kind = np.where((exponent > 0) & (exponent < 255), np.where(negative, 3, 8), kind)
    kind = np.where(np.isinf(a), np.where(negative, 2, 9), kind)
    kind = np.where(np.isnan(a), quiet.astype(I64), kind)
    return (classes >> kind.astype(U32) & U32(1)).astype(bool)


def bind_compare(inst: Instruction) -> Step | None:
    """Return the step of v_cmp_* and v_cmpx_*, or None."""
    name = inst.mnemonic
    if not name.startswith(("v_cmp_", "v_cmpx_")):
        return None
    _, _, relation, kind = name.split("_", 3)
    if relation == "class":
        if kind != "f32":
            raise MissingFeatureError(name)
        made, written = readers(inst, ("f32", "u32"))
        function: Callable[[Array, Array], Array] = compare_class
    else:
        made, written = readers(inst, (kind, kind))
        function = _RELATIONS[relation]
    if written is not None:
        raise MissingFeatureError(f"{name}: DPP on a comparison")
    if inst.fields.get("clamp") or inst.fields.get("omod"):
        raise MissingFeatureError(f"{name}: clamp or omod on a comparison")
    destination = inst.operands["sdst"].index - 512 if "sdst" in inst.operands else VCC - 512
    store = mask_writer(destination)
    first, second = made
    if name.startswith("v_cmpx_"):
        execute = mask_writer(126)

        def step(w: Waves) -> None:
            result = function(first(w), second(w))
            store(w, result)
            execute(w, result)

        return step
    return lambda w: store(w, function(first(w), second(w)))


def bind_select(inst: Instruction) -> Step | None:
    """Return the step of the instructions that read or write a lane mask besides their result, or None."""
    name = inst.mnemonic
    match name:
        case "v_cndmask_b32":
            return _cndmask(inst)
        case (
            "v_add_co_u32" | "v_sub_co_u32" | "v_subrev_co_u32" | "v_addc_co_u32" | "v_subb_co_u32" | "v_subbrev_co_u32"
        ):
            return _carry(inst)
        case "v_mad_u64_u32" | "v_mad_i64_i32":
            return _mad64(inst)
        case "v_div_scale_f32":
            return _div_scale(inst)
        case "v_div_fmas_f32":
            return _div_fmas(inst)
        case "v_fmac_f32" | "v_fmamk_f32" | "v_fmaak_f32" | "v_fmac_f64":
            return _fmac(inst)
        case "v_mbcnt_lo_u32_b32" | "v_mbcnt_hi_u32_b32":
            return _mbcnt(inst)
        case "v_bitop3_b32" | "v_bitop3_b16":
            return _bitop3(inst)
    return None


def _vcc_or(inst: Instruction, key: str) -> Reader:
    return mask_reader(inst.operands.get(key, Operand(Kind.SCALAR, VCC, 2)))


def _cndmask(inst: Instruction) -> Step:
    choose = _vcc_or(inst, "src2")
    float_like = any(inst.operands[key].neg or inst.operands[key].abs for key in sources(inst)[:2])
    kind = "f32" if float_like else "u32"
    names = sources(inst)[:2]
    first, second = (reader(inst.operands[name], kind) for name in names)
    store = writer(inst, kind)
    if "dpp_word" in inst.fields:
        first, written = with_dpp(inst, first)
        return masked(lambda w: np.where(choose(w), second(w), first(w)), store, written)
    if "sdwa_word" in inst.fields:
        raise MissingFeatureError(f"{inst.mnemonic}: SDWA")
    return lambda w: store(w, np.where(choose(w), second(w), first(w)))


def _carry(inst: Instruction) -> Step:
    name = inst.mnemonic
    long = inst.format == "VOP3SD"
    names = [key for key in sources(inst) if key != "src2"]
    first, second = (reader(inst.operands[key], "u32") for key in names)
    if "dpp_word" in inst.fields or "sdwa_word" in inst.fields or inst.fields.get("clamp"):
        raise MissingFeatureError(f"{name}: DPP, SDWA or clamp")
    carry_in = _vcc_or(inst, "src2") if name.startswith(("v_addc", "v_subb")) else None
    store = writer(inst, "u32")
    carry_out = mask_writer(inst.operands["sdst"].index - 512 if long else VCC - 512)

    def step(w: Waves) -> None:
        a, b = first(w).astype(I64), second(w).astype(I64)
        c = carry_in(w).astype(I64) if carry_in is not None else 0
        if "add" in name:
            total = a + b + c
        elif "rev" in name:
            total = b - a - c
        else:
            total = a - b - c
        store(w, (total & 0xFFFFFFFF).astype(U32))
        carry_out(w, (total < 0) | (total > 0xFFFFFFFF))

    return step


def _mad64(inst: Instruction) -> Step:
    signed = inst.mnemonic == "v_mad_i64_i32"
    kind, wide = ("i32", "i64") if signed else ("u32", "u64")
    a, b = (reader(inst.operands[key], kind) for key in ("src0", "src1"))
    c = reader(inst.operands["src2"], wide)
    store, carry = writer(inst, wide), mask_writer(inst.operands["sdst"].index - 512)

    def step(w: Waves) -> None:
        dtype = I64 if signed else U64
        product, addend = a(w).astype(dtype) * b(w).astype(dtype), c(w)
        total = product + addend
        store(w, total)
        if signed:
            carry(w, (total < product) != (addend < 0))
        else:
            carry(w, total < product)

    return step


def div_scale(value: Array, denominator: Array, numerator: Array) -> tuple[Array, Array]:
    """Return (scaled value, whether div_fmas must scale back) as the ISA's V_DIV_SCALE_F32 states it.

    The document's cases for a reciprocal that is a float64 denormal cannot occur for float32 and are left out.
    """
    scaled_up = n.ldexp32(value, 64)
    quotient_tiny = n.is_denormal((numerator.astype(np.float64) / denominator).astype(np.float32))
    en, ed = n.exponent(numerator), n.exponent(denominator)
    invalid = (numerator == 0) | (denominator == 0)
    huge = ~invalid & (en - ed >= 96)
    small_denominator = ~invalid & ~huge & n.is_denormal(denominator)
    rest = ~(invalid | huge | small_denominator)
    quotient_only = rest & quotient_tiny
    tiny = rest & ~quotient_tiny & (en <= 23)
    up = huge & (value == denominator) | small_denominator | quotient_only & (value == numerator) | tiny
    out = np.where(invalid, np.float32(np.nan), np.where(up, scaled_up, value))
    return out, huge | quotient_only


def _div_scale(inst: Instruction) -> Step:
    if inst.fields["clamp"] or inst.fields["omod"]:
        raise MissingFeatureError("v_div_scale_f32: clamp or omod")
    value, denominator, numerator = (reader(inst.operands[key], "f32") for key in LONG_SOURCES)
    store, flag = writer(inst, "f32"), mask_writer(inst.operands["sdst"].index - 512)

    def step(w: Waves) -> None:
        out, scale = div_scale(value(w), denominator(w), numerator(w))
        store(w, out)
        flag(w, scale)

    return step


def _div_fmas(inst: Instruction) -> Step:
    a, b, c = (reader(inst.operands[key], "f32") for key in LONG_SOURCES)
    store, scaled = writer(inst, "f32"), _vcc_or(inst, "vcc")

    def step(w: Waves) -> None:
        addend = c(w)
        plain = n.fma32(a(w), b(w), addend)
        flags = scaled(w)
        if flags.any():
            # Undo the 2**64 of v_div_scale: up for a scaled denominator, down for a scaled numerator.
            shift = np.where(n.exponent(addend) > 127, 64, -64)
            plain = np.where(flags, n.ldexp32(plain, shift), plain)
        store(w, plain)

    return step


def _fmac(inst: Instruction) -> Step:
    name = inst.mnemonic
    kind = "f64" if name.endswith("f64") else "f32"
    fma = n.fma64 if kind == "f64" else n.fma32
    names = sources(inst)[:2]
    first, second = (reader(inst.operands[key], kind) for key in names)
    store = writer(inst, kind)
    if "literal" in inst.fields and name in ("v_fmamk_f32", "v_fmaak_f32"):
        literal = np.asarray(U32(inst.fields["literal"])).view(np.float32)
        if name == "v_fmamk_f32":
            return lambda w: store(w, fma(first(w), literal, second(w)))
        return lambda w: store(w, fma(first(w), second(w), literal))
    accumulator = reader(inst.operands["vdst"], kind)
    if "dpp_word" in inst.fields:
        first, written = with_dpp(inst, first)
        return masked(lambda w: fma(first(w), second(w), accumulator(w)), store, written)
    if "sdwa_word" in inst.fields:
        raise MissingFeatureError(f"{name}: SDWA")
    return lambda w: store(w, fma(first(w), second(w), accumulator(w)))


def _mbcnt(inst: Instruction) -> Step:
    low = inst.mnemonic == "v_mbcnt_lo_u32_b32"
    below = [(1 << min(lane, 32)) - 1 if low else (1 << max(lane - 32, 0)) - 1 for lane in range(64)]
    mask = np.asarray(below, U32)
    (value, count), _ = readers(inst, ("u32", "u32"))
    store = writer(inst, "u32")
    return lambda w: store(w, np.bitwise_count(value(w) & mask).astype(U32) + count(w))


def _bitop3(inst: Instruction) -> Step:
    fields = inst.fields
    table = fields["omod"] << 6 | fields["abs"] << 3 | fields["neg"]
    kind, dtype = ("u32", U32) if inst.mnemonic == "v_bitop3_b32" else ("u16", np.uint16)
    a, b, c = (reader(inst.operands[key], kind) for key in LONG_SOURCES)
    if fields["opsel"] or fields["clamp"]:
        raise MissingFeatureError(f"{inst.mnemonic}: op_sel or clamp")
    store = writer(inst, kind)

    def step(w: Waves) -> None:
        x, y, z = a(w), b(w), c(w)
        out = np.zeros(np.broadcast_shapes(x.shape, y.shape, z.shape), dtype)
        for index in range(8):
            if table >> index & 1:
                out |= (x if index & 4 else ~x) & (y if index & 2 else ~y) & (z if index & 1 else ~z)
        store(w, out)

    return step
