"""Reading and writing operands as typed numpy arrays, with the modifiers of the vector encodings.

A reader takes the waves and returns an array that broadcasts to [W, 64]; a writer stores one, honouring EXEC.
Types are named as in the ISA: f32, f16, bf16, f64, u32, i32, u16, i16, u64, i64 and b32 (bits).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from nkc.verify.gfx950.decode import LITERAL
from nkc.verify.gfx950.instruction import INLINE_FLOAT, SGPR0, Instruction, Kind, Operand
from nkc.verify.gfx950.waves import EXEC, LANE, Waves, bits_of, lanes_of

Array = npt.NDArray[Any]
Step = Callable[[Waves], None]
Reader = Callable[[Waves], Array]
Writer = Callable[[Waves, Array], None]


class MissingFeatureError(NotImplementedError):
    """The kernel uses something that the emulator does not model; the message names it."""


_DTYPES: dict[str, Any] = {
    "b32": np.uint32, "u32": np.uint32, "i32": np.int32, "f32": np.float32, "u64": np.uint64, "i64": np.int64,
    "f64": np.float64, "b64": np.uint64, "u16": np.uint16, "i16": np.int16, "f16": np.float16, "b16": np.uint16,
}  # fmt: skip


def constant(operand: Operand, kind: str) -> Array:
    """Return the value of a constant operand in the reader's type."""
    dtype = _DTYPES[kind]
    if operand.index in INLINE_FLOAT:
        value = INLINE_FLOAT[operand.index]
        if kind == "f16":
            return np.asarray(np.float16(value))
        if kind in ("f64", "b64", "u64", "i64"):
            return np.asarray(np.float64(value)).view(dtype)
        if kind in ("b16", "u16", "i16"):
            return np.asarray(np.float16(value)).view(dtype)
        return np.asarray(np.float32(value)).view(dtype)
    if operand.index in (251, 252, 253):
        raise MissingFeatureError(f"source operand encoding {operand.index} (vccz, execz or scc) in a vector operation")
    value = operand.value
    if kind == "f64" and operand.index == LITERAL:
        return np.asarray(np.uint64((value & 0xFFFFFFFF) << 32)).view(np.float64)
    if kind in ("u64", "i64", "b64", "f64"):
        wide = value & 0xFFFFFFFFFFFFFFFF
        return np.asarray(np.uint64(wide)).view(dtype)
    if kind in ("u16", "i16", "f16", "b16"):
        return np.asarray(np.uint16(value & 0xFFFF)).view(dtype)
    return np.asarray(np.uint32(value & 0xFFFFFFFF)).view(dtype)


def _raw32(operand: Operand, kind: str) -> Reader:
    index = operand.index
    if operand.kind is Kind.VECTOR:
        if kind == "f32":
            return lambda w: w.F[index]
        if kind == "i32":
            return lambda w: w.V[index].view(np.int32)
        return lambda w: w.V[index]
    s = index - SGPR0
    if kind == "f32":
        return lambda w: w.SF[:, s, None]
    if kind == "i32":
        return lambda w: w.S.view(np.int32)[:, s, None]
    return lambda w: w.S[:, s, None]


def _raw64(operand: Operand, kind: str) -> Reader:
    dtype = _DTYPES[kind]
    index = operand.index
    if operand.kind is Kind.VECTOR:
        return lambda w: (w.V[index].astype(np.uint64) | w.V[index + 1].astype(np.uint64) << np.uint64(32)).view(dtype)
    s = (index - SGPR0) // 2
    if dtype is np.uint64:
        return lambda w: w.S64[:, s, None]
    return lambda w: w.S64.view(dtype)[:, s, None]


def reader(operand: Operand, kind: str, *, high: bool = False) -> Reader:
    """Return a reader of `operand` as `kind`; `high` takes the upper half of a 16-bit operand's register."""
    base: Reader
    if operand.kind is Kind.CONSTANT:
        fixed = constant(operand, kind)
        base = lambda w: fixed  # noqa: E731
    elif kind in ("u64", "i64", "f64", "b64"):
        base = _raw64(operand, kind)
    elif kind in ("u16", "i16", "f16", "b16"):
        whole, dtype, shift = _raw32(operand, "u32"), _DTYPES[kind], np.uint32(16 if high else 0)
        base = lambda w: (whole(w) >> shift).astype(np.uint16).view(dtype)  # noqa: E731
    else:
        base = _raw32(operand, kind)
    if not (operand.neg or operand.abs):
        return base
    if kind not in ("f32", "f64", "f16"):
        raise MissingFeatureError(f"neg or abs on an operand read as {kind}")
    return _modified(base, operand.neg, operand.abs)


def _modified(base: Reader, neg: bool, absolute: bool) -> Reader:
    if neg and absolute:
        return lambda w: -np.abs(base(w))
    if neg:
        return lambda w: -base(w)
    return lambda w: np.abs(base(w))


def write_u32(index: int) -> Writer:
    """Return a writer of 32-bit values to vector register `index` under EXEC."""

    def write(w: Waves, value: Array) -> None:
        if w.full:
            w.V[index] = value
        else:
            np.copyto(w.V[index], value, where=w.mask)

    return write


def write_f32(index: int) -> Writer:
    """Return a writer of float32 values to vector register `index` under EXEC."""

    def write(w: Waves, value: Array) -> None:
        if w.full:
            w.F[index] = value
        else:
            np.copyto(w.F[index], value, where=w.mask)

    return write


def write_u64(index: int) -> Writer:
    """Return a writer of 64-bit values to a register pair under EXEC."""
    low, high = write_u32(index), write_u32(index + 1)

    def write(w: Waves, value: Array) -> None:
        bits = np.ascontiguousarray(value).view(np.uint64)
        low(w, (bits & np.uint64(0xFFFFFFFF)).astype(np.uint32))
        high(w, (bits >> np.uint64(32)).astype(np.uint32))

    return write


def write_half(index: int, *, high: bool, preserve: bool) -> Writer:
    """Return a writer of 16-bit values to one half of a register; the other half is kept or zeroed."""
    store = write_u32(index)

    def write(w: Waves, value: Array) -> None:
        bits = np.asarray(value).view(np.uint16).astype(np.uint32)
        if high:
            bits = (w.V[index] & np.uint32(0xFFFF)) | bits << np.uint32(16)
        elif preserve:
            bits = (w.V[index] & np.uint32(0xFFFF0000)) | bits
        store(w, bits)

    return write


def writer(inst: Instruction, kind: str) -> Writer:
    """Return the writer for `vdst` of a result of type `kind`, with clamp where the instruction asks for it."""
    operand = inst.operands["vdst"]
    clamp = inst.fields.get("clamp", 0)
    if inst.fields.get("omod", 0) and inst.mnemonic not in ("v_bitop3_b32", "v_bitop3_b16"):
        raise MissingFeatureError(f"{inst.mnemonic}: modifier omod")
    if kind == "f32" and inst.fields.get("dst_sel", 6) == 6:
        store = write_f32(operand.index)
        if clamp:
            return lambda w, value: store(w, np.clip(np.nan_to_num(value, nan=0.0), np.float32(0), np.float32(1)))
        return store
    if clamp:
        raise MissingFeatureError(f"{inst.mnemonic}: modifier clamp on a result of type {kind}")
    if inst.fields.get("dst_sel", 6) != 6:
        if kind not in ("u32", "i32", "u16", "i16", "f16", "b16"):
            raise MissingFeatureError(f"{inst.mnemonic}: SDWA on a result of type {kind}")
        return sdwa_writer(operand.index, inst.fields["dst_sel"], inst.fields["dst_unused"])
    if kind in ("u64", "i64", "f64", "b64"):
        return write_u64(operand.index)
    if kind in ("f16", "u16", "i16", "b16"):
        high = bool(inst.fields.get("opsel", 0) & 8)
        preserve = inst.mnemonic in ("v_fma_f16", "v_mad_u16", "v_mad_i16", "v_div_fixup_f16")
        return write_half(operand.index, high=high, preserve=preserve)
    if kind == "i32":
        store = write_u32(operand.index)
        return lambda w, value: store(w, np.asarray(value).view(np.uint32))
    return write_u32(operand.index)


def sdwa_reader(operand: Operand, kind: str, select: int, extend: bool) -> Reader:
    """Return a reader of a byte or word of a register (SDWA), zero- or sign-extended to 32 bits, then as `kind`."""
    whole = reader(replace(operand, neg=False, abs=False), "u32")
    size, shift = (8, 8 * select) if select < 4 else (16, 16 * (select - 4)) if select < 6 else (32, 0)
    up = np.uint32(32 - size)
    down = np.uint32(shift)

    def picked(w: Waves) -> Array:
        value = np.asarray(whole(w) >> down) << up
        return np.asarray(value.view(np.int32) >> up.view(np.int32)).view(np.uint32) if extend else value >> up

    dtype = _DTYPES[kind]
    base: Reader = picked
    if kind in ("u16", "i16", "f16", "b16"):
        base = lambda w: picked(w).astype(np.uint16).view(dtype)  # noqa: E731
    elif kind in ("f32", "i32"):
        base = lambda w: picked(w).view(dtype)  # noqa: E731
    elif kind != "u32":
        raise MissingFeatureError(f"SDWA on an operand read as {kind}")
    if not (operand.neg or operand.abs):
        return base
    if kind not in ("f32", "f16"):
        raise MissingFeatureError(f"neg or abs on an operand read as {kind}")
    return _modified(base, operand.neg, operand.abs)


def sdwa_writer(index: int, select: int, unused: int) -> Writer:
    """Return a writer of a byte or word of a register; the rest is zeroed, sign-extended or kept (unused 0, 1, 2)."""
    store = write_u32(index)
    size, shift = (8, 8 * select) if select < 4 else (16, 16 * (select - 4)) if select < 6 else (32, 0)
    mask = (1 << size) - 1

    def write(w: Waves, value: Array) -> None:
        raw = np.ascontiguousarray(value)
        bits = raw.view(np.uint16).astype(np.uint32) if raw.itemsize == 2 else raw.view(np.uint32)
        part = (bits & np.uint32(mask)) << np.uint32(shift)
        if unused == 2:
            part = part | (w.V[index] & np.uint32(~(mask << shift) & 0xFFFFFFFF))
        elif unused == 1:
            gap = 32 - size - shift
            part = ((part << np.uint32(gap)).view(np.int32) >> np.int32(gap)).view(np.uint32)
        store(w, part)

    return write


def mask_reader(operand: Operand) -> Reader:
    """Return a reader of a 64-bit lane mask (VCC or an SGPR pair) as bool [W, 64]."""
    if operand.kind is Kind.CONSTANT:
        bits = constant(operand, "u64")
        fixed = lanes_of(np.asarray([bits], np.uint64))
        return lambda w: fixed
    s = (operand.index - SGPR0) // 2
    return lambda w: lanes_of(w.S64[:, s])


def mask_writer(index: int) -> Writer:
    """Return a writer of bool [W, 64] to the scalar pair with encoding `index`; inactive lanes give 0."""
    s = index // 2

    def write(w: Waves, value: Array) -> None:
        value = np.broadcast_to(value, w.mask.shape)
        w.S64[:, s] = bits_of(value if w.full else value & w.mask)
        if index == EXEC:
            w.exec_changed()

    return write


def dpp_source(inst: Instruction) -> tuple[Array, Array]:
    """Return (source lane per lane, whether the source lies inside the row or wave) for a DPP control value."""
    control, lane = inst.fields["dpp"], LANE
    row, column = lane & ~15, lane & 15
    inside = np.ones(64, bool)
    if control < 0x100:
        source = (lane & ~3) | (control >> 2 * (lane & 3) & 3)
    elif 0x101 <= control <= 0x10F:
        source = column + (control & 15)
        inside, source = source < 16, row + source
    elif 0x111 <= control <= 0x11F:
        source = column - (control & 15)
        inside, source = source >= 0, row + source
    elif 0x121 <= control <= 0x12F:
        source = row + (column - (control & 15)) % 16
    elif control == 0x130:
        source, inside = lane + 1, lane < 63
    elif control == 0x134:
        source = (lane + 1) % 64
    elif control == 0x138:
        source, inside = lane - 1, lane > 0
    elif control == 0x13C:
        source = (lane - 1) % 64
    elif control == 0x140:
        source = row + 15 - column
    elif control == 0x141:
        source = (lane & ~7) + 7 - (lane & 7)
    elif control == 0x142:
        source, inside = row - 1, lane >= 16
    elif control == 0x143:
        source, inside = np.full(64, 31), lane >= 32
    elif 0x150 <= control <= 0x15F:
        source = row + (control & 15)
    else:
        raise MissingFeatureError(f"{inst.mnemonic}: DPP control {control:#x}")
    return np.where(inside, source, 0), inside


def dpp_written(inst: Instruction) -> Array:
    """Return the lanes that the row and bank masks let a DPP operation write."""
    rows, banks = inst.fields["row_mask"], inst.fields["bank_mask"]
    return (rows >> (LANE >> 4) & 1 & (banks >> (LANE >> 2 & 3))).astype(bool)


def with_dpp(inst: Instruction, base: Reader) -> tuple[Reader, Callable[[Waves], Array]]:
    """Return (reader of the permuted source, lanes that may be written) for a DPP instruction.

    A lane whose source is outside its row or inactive reads 0 with bound_ctrl and is not written without it.
    """
    source, inside = dpp_source(inst)
    allowed = dpp_written(inst)
    zero = bool(inst.fields["bound_ctrl"])

    def valid(w: Waves) -> Array:
        return inside & w.mask[:, source] if not w.full else np.broadcast_to(inside, w.mask.shape)

    def read(w: Waves) -> Array:
        value = np.broadcast_to(base(w), w.mask.shape)[:, source]
        if zero and not (w.full and inside.all()):
            value = np.where(valid(w), value, np.zeros((), value.dtype))
        return value

    def written(w: Waves) -> Array:
        return np.broadcast_to(allowed, w.mask.shape) if zero else allowed & valid(w)

    return read, written
