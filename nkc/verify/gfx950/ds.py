"""LDS instructions: reads, writes, transposed reads and integer atomics, all through the shadow of `lds`."""

import re
from typing import Any

import numpy as np
import numpy.typing as npt

from nkc.verify.gfx950.atomics import ATOMIC_FUNCTIONS
from nkc.verify.gfx950.crosslane import bind_ds_permute
from nkc.verify.gfx950.instruction import Instruction
from nkc.verify.gfx950.operands import MissingFeatureError, Step
from nkc.verify.gfx950.vmem import spread
from nkc.verify.gfx950.waves import LANE, Outstanding, Waves

Array = npt.NDArray[Any]
U32 = np.uint32

_PLAIN = re.compile(r"ds_(read|write)(2?)(st64)?_([bui])(\d+)(_d16)?(_hi)?$")
_TRANSPOSED = re.compile(r"ds_read_b64_tr_b(8|16)$")
_ATOMIC = re.compile(r"ds_(add|sub|inc|dec|min|max|and|or|xor|wrxchg|cmpst)(_rtn)?_([uib])(32|64)$")
_ATOMIC_NAMES = {"wrxchg": "swap", "min_u": "umin", "max_u": "umax", "min_i": "smin", "max_i": "smax"}


def access_bytes(inst: Instruction) -> int | None:
    """Return how many bytes one lane touches at once, or None when no LDS memory is touched."""
    if match := _PLAIN.match(inst.mnemonic):
        return int(match.group(5)) // 8
    if _TRANSPOSED.match(inst.mnemonic):
        return 8
    if match := _ATOMIC.match(inst.mnemonic):
        return int(match.group(4)) // 8
    if inst.is_lds_load:
        return {"dword": 4, "dwordx3": 4, "dwordx4": 16}.get(inst.mnemonic.rsplit("_", 1)[1])
    return None


def bind_ds(inst: Instruction) -> Step | None:
    """Return the step of an LDS instruction, or None."""
    if inst.format != "DS":
        return None
    if inst.fields["gds"]:
        raise MissingFeatureError(f"{inst.mnemonic}: modifier gds")
    if (step := bind_ds_permute(inst)) is not None:
        inner, mask = step, inst.operands["vdst"].mask

        def permute(w: Waves) -> None:
            inner(w)
            w.lgkm.append(Outstanding("read", mask, inst.pc))
            w.pending |= mask

        return permute
    if match := _PLAIN.match(inst.mnemonic):
        direction, two, st64, sign, bits, d16, hi = match.groups()
        size = int(bits) // 8
        offsets = _offsets(inst, size, bool(two), bool(st64))
        if direction == "read":
            kind = {"i8": "sbyte", "i16": "sshort"}.get(sign + bits, "dword")
            return _read(inst, size, offsets, kind, d16, hi)
        return _write(inst, size, offsets, bool(d16 or hi))
    if match := _TRANSPOSED.match(inst.mnemonic):
        return _read_transposed(inst, int(match.group(1)))
    if _ATOMIC.match(inst.mnemonic):
        return _atomic(inst)
    return None


def _offsets(inst: Instruction, size: int, two: bool, st64: bool) -> tuple[int, ...]:
    low, high = inst.fields["offset0"], inst.fields["offset1"]
    if not two:
        return (low | high << 8,)
    unit = size * (64 if st64 else 1)
    return low * unit, high * unit


def _retire_read(w: Waves, pc: int, arrays: tuple[Array, ...]) -> None:
    """A read that completes after a barrier counts in the epoch where it completes, too."""
    epoch, at, lanes, size = arrays
    moved = w.epoch != epoch
    if moved.any() and w.batch.lds.checked:
        w.batch.lds.note_late_read(w, pc, at, int(size[0]), lanes & moved[:, None])


def _read(inst: Instruction, size: int, offsets: tuple[int, ...], kind: str, d16: str | None, hi: str | None) -> Step:
    address, destination = inst.operands["addr"].index, inst.operands["vdst"]
    step_registers = max(1, size // 4)

    def step(w: Waves) -> None:
        lds = w.batch.lds
        base = w.V[address].astype(np.int64)
        for position, offset in enumerate(offsets):
            at, lanes = lds.locate(w, inst.pc, base + offset, size, w.mask)
            lds.note_read(w, inst.pc, at, size, lanes)
            if w.launch.trace is not None:
                w.launch.trace("lds_read", inst, w, at, size, lanes)
            spread(w, destination.index + position * step_registers, lds.read(at, size, lanes), kind, d16, hi)
            mask = destination.mask if position == len(offsets) - 1 else 0
            sizes = np.full(w.count, size)
            if position == len(offsets) - 1:
                w.lgkm.append(Outstanding("read", mask, inst.pc, _retire_read, (w.epoch, at, lanes, sizes)))
        w.pending |= destination.mask

    return step


def _write(inst: Instruction, size: int, offsets: tuple[int, ...], high: bool) -> Step:
    address = inst.operands["addr"].index
    data = [inst.operands[key].index for key in ("data0", "data1") if key in inst.operands]
    registers = max(1, size // 4)
    shift = U32(16 if high else 0)

    def step(w: Waves) -> None:
        lds = w.batch.lds
        base = w.V[address].astype(np.int64)
        for source, offset in zip(data, offsets, strict=True):
            at, lanes = lds.locate(w, inst.pc, base + offset, size, w.mask)
            if w.launch.trace is not None:
                w.launch.trace("lds_write", inst, w, at, size, lanes)
            values = np.moveaxis(w.V[source : source + registers], 0, -1) >> shift
            same, kept = lds.write(at, values, size, lanes)
            lds.note_write(w, inst.pc, at, size, lanes, same=same, kept=kept)
        w.lgkm.append(Outstanding("write", 0, inst.pc))

    return step


def _read_transposed(inst: Instruction, bits: int) -> Step:
    """ds_read_b64_tr_b16 and _b8: groups of 16 lanes read 8 bytes each and transpose the elements.

    b16: out[l][j] = in[4j + l // 4][l % 4]; b8: out[l][j] = in[2j + l // 8][l % 8], within 16 lanes.
    """
    address, destination = inst.operands["addr"].index, inst.operands["vdst"]
    offset = inst.fields["offset0"] | inst.fields["offset1"] << 8
    per = 64 // bits  # elements a lane
    lane, element = LANE % 16, np.arange(per)
    row = (16 // per * element[None, :] + lane[:, None] // per) + (LANE // 16 * 16)[:, None]
    column = np.broadcast_to((lane % per)[:, None], row.shape)
    dtype = np.uint8 if bits == 8 else np.uint16

    def step(w: Waves) -> None:
        if not w.full:
            raise MissingFeatureError(f"{inst.mnemonic}: some lanes are inactive")
        lds = w.batch.lds
        at, lanes = lds.locate(w, inst.pc, w.V[address].astype(np.int64) + offset, 8, w.mask)
        lds.note_read(w, inst.pc, at, 8, lanes)
        if w.launch.trace is not None:
            w.launch.trace("lds_read", inst, w, at, 8, lanes)
        elements = lds.read(at, 8, lanes).view(dtype)
        words = np.ascontiguousarray(elements[:, row, column]).view(U32)
        spread(w, destination.index, words, "dword", None, None)
        sizes = np.full(w.count, 8)
        w.lgkm.append(Outstanding("read", destination.mask, inst.pc, _retire_read, (w.epoch, at, lanes, sizes)))
        w.pending |= destination.mask

    return step


def _atomic(inst: Instruction) -> Step:
    """An integer LDS atomic, lane after lane. Atomics do not race with each other, but with plain accesses they do."""
    match = _ATOMIC.match(inst.mnemonic)
    assert match is not None
    name, returns, sign, width = match.groups()
    operation = _ATOMIC_NAMES.get(name) or _ATOMIC_NAMES.get(f"{name}_{sign}") or name
    bits = int(width)
    size = bits // 8
    address, data = inst.operands["addr"].index, inst.operands["data0"].index
    second = inst.operands["data1"].index if "data1" in inst.operands else -1
    offset = inst.fields["offset0"] | inst.fields["offset1"] << 8
    target = inst.operands.get("vdst")

    def operand(w: Waves, wave: int, lane: int, first: int) -> int:
        low = int(w.V[first, wave, lane])
        return low | int(w.V[first + 1, wave, lane]) << 32 if bits == 64 else low

    def step(w: Waves) -> None:
        lds = w.batch.lds
        at, lanes = lds.locate(w, inst.pc, w.V[address].astype(np.int64) + offset, size, w.mask)
        lds.note_read(w, inst.pc, at, size, lanes)
        view = lds.data.view(np.uint64 if bits == 64 else U32)
        for wave, lane in np.argwhere(lanes):
            where = int(at[wave, lane])
            if where % size:
                raise MissingFeatureError(f"{inst.mnemonic}: unaligned address")
            old = int(view[where // size])
            value = operand(w, wave, lane, data)
            if operation == "cmpst":  # data0 is compared, data1 stored
                new = operand(w, wave, lane, second) if value == old else old
            else:
                new = ATOMIC_FUNCTIONS[operation](old, value, bits)
            view[where // size] = new
            if returns and target is not None:
                w.V[target.index, wave, lane] = old & 0xFFFFFFFF
                if bits == 64:
                    w.V[target.index + 1, wave, lane] = old >> 32
        mask = target.mask if returns and target is not None else 0
        w.lgkm.append(Outstanding("read" if returns else "write", mask, inst.pc))
        w.pending |= mask

    return step
