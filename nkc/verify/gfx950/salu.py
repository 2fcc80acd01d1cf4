"""Scalar instructions: one value a wave. Functions return (result, new SCC or None)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nkc.verify.gfx950.instruction import INLINE_FLOAT, SGPR0, Instruction, Kind, Operand
from nkc.verify.gfx950.operands import MissingFeatureError, Step, constant
from nkc.verify.gfx950.waves import EXEC, VCC, Waves

Array = npt.NDArray[Any]
U32, U64, I32, I64 = np.uint32, np.uint64, np.int32, np.int64


class ScalarOp(NamedTuple):
    """Source and result types, and what happens to SCC: "nonzero", "function" or "" (kept)."""

    out: str
    ins: tuple[str, ...]
    scc: str
    run: Callable[..., Any]


OPS: dict[str, ScalarOp] = {}


def _op(names: str, out: str, ins: str, scc: str, run: Callable[..., Any]) -> None:
    for name in names.split():
        OPS[name] = ScalarOp(out, tuple(ins.split()), scc, run)


def _wide(a: Array) -> Array:
    return a.astype(I64)


_op("s_mov_b32 s_movk_i32", "u32", "u32", "", lambda a: a)
_op("s_mov_b64", "u64", "u64", "", lambda a: a)
_op("s_not_b32", "u32", "u32", "nonzero", lambda a: ~a)
_op("s_not_b64", "u64", "u64", "nonzero", lambda a: ~a)
for _bits, _one in (("32", U32(1)), ("64", U64(1))):
    _u = "u" + _bits
    _op(f"s_and_b{_bits}", _u, f"{_u} {_u}", "nonzero", lambda a, b: a & b)
    _op(f"s_or_b{_bits}", _u, f"{_u} {_u}", "nonzero", lambda a, b: a | b)
    _op(f"s_xor_b{_bits}", _u, f"{_u} {_u}", "nonzero", lambda a, b: a ^ b)
    _op(f"s_andn2_b{_bits}", _u, f"{_u} {_u}", "nonzero", lambda a, b: a & ~b)
    _op(f"s_orn2_b{_bits}", _u, f"{_u} {_u}", "nonzero", lambda a, b: a | ~b)
    _op(f"s_nand_b{_bits}", _u, f"{_u} {_u}", "nonzero", lambda a, b: ~(a & b))
    _op(f"s_nor_b{_bits}", _u, f"{_u} {_u}", "nonzero", lambda a, b: ~(a | b))
    _op(f"s_xnor_b{_bits}", _u, f"{_u} {_u}", "nonzero", lambda a, b: ~(a ^ b))
    _mask, _cast = int(_bits) - 1, (U32 if _bits == "32" else U64)
    _op(f"s_lshl_b{_bits}", _u, f"{_u} u32", "nonzero", lambda a, b, m=_mask, c=_cast: a << (b & U32(m)).astype(c))
    _op(f"s_lshr_b{_bits}", _u, f"{_u} u32", "nonzero", lambda a, b, m=_mask, c=_cast: a >> (b & U32(m)).astype(c))
    _op(
        f"s_ashr_i{_bits}",
        "i" + _bits,
        f"i{_bits} u32",
        "nonzero",
        lambda a, b, m=_mask: a >> (b & U32(m)).astype(a.dtype),
    )
    _op(f"s_bcnt1_i32_b{_bits}", "u32", _u, "nonzero", lambda a: np.bitwise_count(a).astype(U32))
    _op(f"s_bcnt0_i32_b{_bits}", "u32", _u, "nonzero", lambda a: np.bitwise_count(~a).astype(U32))
    _op(f"s_ff1_i32_b{_bits}", "i32", _u, "", lambda a: _first_bit(a, lowest=True))
    _op(f"s_flbit_i32_b{_bits}", "i32", _u, "", lambda a: _first_bit(a, lowest=False))
    _op(f"s_bfm_b{_bits}", _u, "u32 u32", "", lambda a, b, m=_mask, c=_cast: _mask_of(a, b, m, c))
    for _value in (0, 1):
        _op(
            f"s_bitcmp{_value}_b{_bits}",
            "",
            f"{_u} u32",
            "function",
            lambda a, b, v=_value, m=_mask: (None, (a >> (b & U32(m)).astype(a.dtype) & a.dtype.type(1)) == v),
        )
_op("s_brev_b32", "u32", "u32", "", lambda a: _reverse(a, 32))
_op("s_brev_b64", "u64", "u64", "", lambda a: _reverse(a, 64))
_op("s_sext_i32_i8", "u32", "u32", "", lambda a: a.astype(np.int8).astype(I32).view(U32))
_op("s_sext_i32_i16", "u32", "u32", "", lambda a: a.astype(np.int16).astype(I32).view(U32))
_op("s_add_u32", "u32", "u32 u32", "function", lambda a, b: (a + b, _wide(a) + _wide(b) > 0xFFFFFFFF))
_op("s_sub_u32", "u32", "u32 u32", "function", lambda a, b: (a - b, b > a))
_op("s_add_i32 s_addk_i32", "i32", "i32 i32", "function", lambda a, b: (a + b, _overflows(_wide(a) + _wide(b))))
_op("s_sub_i32", "i32", "i32 i32", "function", lambda a, b: (a - b, _overflows(_wide(a) - _wide(b))))
_op("s_mul_i32 s_mulk_i32", "i32", "i32 i32", "", lambda a, b: a * b)
_op("s_mul_hi_u32", "u32", "u32 u32", "", lambda a, b: (a.astype(U64) * b.astype(U64) >> U64(32)).astype(U32))
_op("s_mul_hi_i32", "i32", "i32 i32", "", lambda a, b: (_wide(a) * _wide(b) >> 32).astype(I32))
_op("s_min_u32", "u32", "u32 u32", "function", lambda a, b: (np.minimum(a, b), a < b))
_op("s_max_u32", "u32", "u32 u32", "function", lambda a, b: (np.maximum(a, b), a > b))
_op("s_min_i32", "i32", "i32 i32", "function", lambda a, b: (np.minimum(a, b), a < b))
_op("s_max_i32", "i32", "i32 i32", "function", lambda a, b: (np.maximum(a, b), a > b))
_op("s_abs_i32", "i32", "i32", "nonzero", np.abs)
_op("s_absdiff_i32", "i32", "i32 i32", "nonzero", lambda a, b: np.abs(a - b))
_op("s_bfe_u32", "u32", "u32 u32", "nonzero", lambda a, b: _field(a.astype(U64), b, 31).astype(U32))
_op("s_bfe_u64", "u64", "u64 u32", "nonzero", lambda a, b: _field(a, b, 63))
_op("s_bfe_i32", "i32", "i32 u32", "nonzero", lambda a, b: _signed_field(_wide(a), b, 31).astype(I32))
_op("s_bfe_i64", "i64", "i64 u32", "nonzero", lambda a, b: _signed_field(a, b, 63))
for _shift in (1, 2, 3, 4):
    _op(
        f"s_lshl{_shift}_add_u32",
        "u32",
        "u32 u32",
        "function",
        lambda a, b, s=_shift: ((a << U32(s)) + b, (a.astype(U64) << U64(s)) + b.astype(U64) > U64(0xFFFFFFFF)),
    )
_op("s_pack_ll_b32_b16", "u32", "u32 u32", "", lambda a, b: a & U32(0xFFFF) | b << U32(16))
_op("s_pack_lh_b32_b16", "u32", "u32 u32", "", lambda a, b: a & U32(0xFFFF) | b & U32(0xFFFF0000))
_op("s_pack_hh_b32_b16", "u32", "u32 u32", "", lambda a, b: a >> U32(16) | b & U32(0xFFFF0000))
for _name, _relation in (
    ("eq", np.equal),
    ("lg", np.not_equal),
    ("gt", np.greater),
    ("ge", np.greater_equal),
    ("lt", np.less),
    ("le", np.less_equal),
):
    for _kind in ("i32", "u32", "u64"):
        _op(
            f"s_cmp_{_name}_{_kind} s_cmpk_{_name}_{_kind}",
            "",
            f"{_kind} {_kind}",
            "function",
            lambda a, b, f=_relation: (None, f(a, b)),
        )


def _mask_of(width: Array, offset: Array, limit: int, dtype: Any) -> Array:
    ones = (dtype(1) << (width & U32(limit)).astype(dtype)) - dtype(1)
    return np.asarray(ones << (offset & U32(limit)).astype(dtype))


def _overflows(total: Array) -> Array:
    return (total < -(2**31)) | (total > 2**31 - 1)


def _first_bit(a: Array, *, lowest: bool) -> Array:
    """Return the position of the lowest set bit, or the count of leading zeros; -1 where there is none."""
    width = 8 * a.dtype.itemsize
    one = a.dtype.type(1)
    if lowest:
        position = np.bitwise_count((a & (~a + one)) - one).astype(I32)
    else:
        filled = a.copy()
        for shift in (1, 2, 4, 8, 16, 32)[: 6 if width == 64 else 5]:
            filled |= filled >> a.dtype.type(shift)
        position = (width - np.bitwise_count(filled)).astype(I32)
    return np.where(a == 0, I32(-1), position)


def _reverse(a: Array, width: int) -> Array:
    bits = np.unpackbits(np.ascontiguousarray(a).view(np.uint8).reshape(len(a), -1), axis=1, bitorder="little")
    return np.packbits(bits[:, ::-1], axis=1, bitorder="little").view(U32 if width == 32 else U64)[:, 0]


def _field(a: Array, spec: Array, mask: int) -> Array:
    offset, width = (spec & U32(mask)).astype(U64), (spec >> U32(16) & U32(127)).astype(U64)
    keep = np.where(width >= U64(64), ~U64(0), (U64(1) << np.minimum(width, U64(63))) - U64(1))
    return a >> offset & keep


def _signed_field(a: Array, spec: Array, mask: int) -> Array:
    offset, width = (spec & U32(mask)).astype(I64), (spec >> U32(16) & U32(127)).astype(I64)
    up = np.clip(64 - width, 0, 63)
    value = (a >> offset) << up >> up
    return np.where(width == 0, 0, value)


_DTYPE = {"u32": U32, "i32": I32, "u64": U64, "i64": I64, "f32": np.float32}


def scalar_reader(operand: Operand, kind: str) -> Callable[[Waves], Array]:
    """Return a reader of a scalar source as [W] of `kind`."""
    dtype = _DTYPE[kind]
    if operand.kind is Kind.VECTOR:
        raise MissingFeatureError("a vector register as scalar source")
    if operand.kind is Kind.CONSTANT:
        if operand.index == 253:
            return lambda w: w.scc.astype(dtype)
        if operand.index == 252:
            return lambda w: (w.S64[:, EXEC // 2] == 0).astype(dtype)
        if operand.index == 251:
            return lambda w: (w.S64[:, VCC // 2] == 0).astype(dtype)
        if operand.index in INLINE_FLOAT or kind in ("u32", "i32", "f32"):
            value = constant(operand, kind)
        else:  # a 32-bit literal is zero-extended, an inline integer sign-extended
            value = np.asarray(
                U64(operand.value & 0xFFFFFFFF if operand.index == 255 else operand.value & (2**64 - 1))
            ).view(dtype)
        return lambda w: np.full(w.count, value)
    index = operand.index - SGPR0
    if kind in ("u64", "i64"):
        if index % 2:
            raise MissingFeatureError(f"an odd scalar pair s{index}")
        return lambda w: w.S64.view(dtype)[:, index // 2]
    return lambda w: w.S.view(dtype)[:, index]


def scalar_writer(index: int, kind: str) -> Callable[[Waves, Array], None]:
    """Return a writer of [W] to the scalar register (pair) with encoding `index`."""
    executes = index in (EXEC, EXEC + 1)
    if kind in ("u64", "i64"):

        def write64(w: Waves, value: Array) -> None:
            w.S64[:, index // 2] = np.asarray(value).view(U64)
            if executes:
                w.exec_changed()

        return write64

    def write32(w: Waves, value: Array) -> None:
        w.S[:, index] = np.asarray(value).view(U32)
        if executes:
            w.exec_changed()

    return write32


def bind_salu(inst: Instruction) -> Step | None:
    """Return the step of a scalar instruction that is not a branch, wait or barrier; None if it is not known."""
    name = inst.mnemonic
    if name.endswith(("_saveexec_b64", "_wrexec_b64")):
        return _saveexec(inst)
    match name:
        case "s_cselect_b32" | "s_cselect_b64" | "s_cmov_b32" | "s_cmov_b64":
            return _cselect(inst)
        case "s_addc_u32" | "s_subb_u32":
            return _addc(inst)
        case "s_bitset0_b32" | "s_bitset1_b32" | "s_bitset0_b64" | "s_bitset1_b64":
            return _bitset(inst)
        case "s_getpc_b64":
            write = scalar_writer(inst.operands["sdst"].index - SGPR0, "u64")
            return lambda w: write(w, np.full(w.count, inst.next_pc, U64))
        case "s_setreg_imm32_b32" | "s_setreg_b32":
            return _setreg(inst)
        case "s_nop" | "s_setprio" | "s_sleep" | "s_icache_inv" | "s_dcache_wb" | "s_dcache_inv":
            return lambda w: None
    op = OPS.get(name)
    if op is None:
        return None
    names = [key for key in ("ssrc0", "ssrc1") if key in inst.operands]
    reads = [scalar_reader(inst.operands[key], kind) for key, kind in zip(names, op.ins, strict=False)]
    if inst.format == "SOPK":
        immediate = inst.fields["simm16"]
        if not (name.startswith("s_cmpk") and name.endswith("u32")) and immediate & 0x8000:
            immediate -= 0x10000
        value = np.asarray(U32(immediate & 0xFFFFFFFF)).view(_DTYPE[op.ins[-1]])
        fixed: Callable[[Waves], Array] = lambda w: np.full(w.count, value)  # noqa: E731
        reads = [fixed] if len(op.ins) == 1 else [scalar_reader(inst.operands["sdst"], op.ins[0]), fixed]
    if len(reads) != len(op.ins):
        raise MissingFeatureError(f"{name}: {len(reads)} sources where {len(op.ins)} are expected")
    run, scc = op.run, op.scc
    store = scalar_writer(inst.operands["sdst"].index - SGPR0, op.out) if op.out else None

    def step(w: Waves) -> None:
        result = run(*(read(w) for read in reads))
        if scc == "function":
            result, flag = result
            w.scc = flag
        elif scc == "nonzero":
            w.scc = result != 0
        if store is not None:
            store(w, result)

    return step


_SAVEEXEC: dict[str, Callable[[Array, Array], Array]] = {
    "s_and_saveexec_b64": lambda s, e: s & e,
    "s_or_saveexec_b64": lambda s, e: s | e,
    "s_xor_saveexec_b64": lambda s, e: s ^ e,
    "s_andn2_saveexec_b64": lambda s, e: s & ~e,
    "s_orn2_saveexec_b64": lambda s, e: s | ~e,
    "s_andn1_saveexec_b64": lambda s, e: ~s & e,
    "s_orn1_saveexec_b64": lambda s, e: ~s | e,
    "s_nand_saveexec_b64": lambda s, e: ~(s & e),
    "s_nor_saveexec_b64": lambda s, e: ~(s | e),
    "s_xnor_saveexec_b64": lambda s, e: ~(s ^ e),
}
_WREXEC: dict[str, Callable[[Array, Array], Array]] = {
    "s_andn1_wrexec_b64": lambda s, e: ~s & e,
    "s_andn2_wrexec_b64": lambda s, e: s & ~e,
}


def _saveexec(inst: Instruction) -> Step:
    read = scalar_reader(inst.operands["ssrc0"], "u64")
    destination = inst.operands["sdst"].index - SGPR0
    write_exec, write = scalar_writer(EXEC, "u64"), scalar_writer(destination, "u64")
    wrexec = _WREXEC.get(inst.mnemonic)
    function = wrexec or _SAVEEXEC.get(inst.mnemonic)
    if function is None:
        raise MissingFeatureError(inst.mnemonic)

    def step(w: Waves) -> None:
        old = w.S64[:, EXEC // 2].copy()
        new = function(read(w).copy(), old)
        write_exec(w, new)
        write(w, new if wrexec else old)
        w.scc = new != 0

    return step


def _cselect(inst: Instruction) -> Step:
    kind = "u64" if inst.mnemonic.endswith("64") else "u32"
    store = scalar_writer(inst.operands["sdst"].index - SGPR0, kind)
    first = scalar_reader(inst.operands["ssrc0"], kind)
    second = scalar_reader(inst.operands.get("ssrc1", inst.operands["sdst"]), kind)
    return lambda w: store(w, np.where(w.scc, first(w), second(w)))


def _addc(inst: Instruction) -> Step:
    first, second = (scalar_reader(inst.operands[key], "u32") for key in ("ssrc0", "ssrc1"))
    store = scalar_writer(inst.operands["sdst"].index - SGPR0, "u32")
    sign = 1 if inst.mnemonic == "s_addc_u32" else -1

    def step(w: Waves) -> None:
        total = _wide(first(w)) + sign * (_wide(second(w)) + w.scc)
        w.scc = (total < 0) | (total > 0xFFFFFFFF)
        store(w, (total & 0xFFFFFFFF).astype(U32))

    return step


def _bitset(inst: Instruction) -> Step:
    wide = inst.mnemonic.endswith("64")
    kind, cast = ("u64", U64) if wide else ("u32", U32)
    which = scalar_reader(inst.operands["ssrc0"], "u32")
    old = scalar_reader(inst.operands["sdst"], kind)
    store = scalar_writer(inst.operands["sdst"].index - SGPR0, kind)
    on = "bitset1" in inst.mnemonic

    def step(w: Waves) -> None:
        one: Array = np.ones(w.count, cast)
        bit = one << (which(w) & U32(63 if wide else 31)).astype(cast)
        store(w, old(w) | bit if on else old(w) & ~bit)

    return step


def _setreg(inst: Instruction) -> Step:
    """Write part of MODE. Only FP16_OVFL (bit 23) may differ from the state at launch."""
    spec = inst.fields["simm16"]
    register, offset, size = spec & 63, spec >> 6 & 31, (spec >> 11 & 31) + 1
    if register != 1:
        raise MissingFeatureError(f"{inst.mnemonic}: hardware register {register}")
    if inst.mnemonic == "s_setreg_b32":
        raise MissingFeatureError("s_setreg_b32: MODE from a register")
    if (offset, size) != (23, 1):
        raise MissingFeatureError(f"{inst.mnemonic}: MODE bits {offset}..{offset + size - 1} (only FP16_OVFL, bit 23)")
    value = inst.fields["literal"] & 1

    def step(w: Waves) -> None:
        w.mode = w.mode & ~(1 << 23) | value << 23

    return step
