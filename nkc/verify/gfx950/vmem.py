"""Vector and scalar memory: buffer, global, flat and scratch accesses, loads into LDS, atomics, cache control."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from nkc.verify.gfx950.decode import SGPR0, Instruction, Kind
from nkc.verify.gfx950.memory import ATOMIC, BASE, READABLE, WRITABLE
from nkc.verify.gfx950.operands import MissingFeatureError, Step
from nkc.verify.gfx950.waves import LANE, M0, Outstanding, Waves

Array = npt.NDArray[Any]
U32, U64 = np.uint32, np.uint64

_SIZES = {
    "ubyte": 1, "sbyte": 1, "byte": 1, "ushort": 2, "sshort": 2, "short": 2,
    "dword": 4, "dwordx2": 8, "dwordx3": 12, "dwordx4": 16,
}  # fmt: skip
_ACCESS = re.compile(
    r"(?:buffer|global|flat|scratch)_(load|store)_(lds_)?([us]?byte|[us]?short|dword(?:x[234])?)(_d16)?(_hi)?$"
)

Address = Callable[[Waves], tuple[Array, Array]]  # -> (arena offset int64 [W, 64], lanes that access memory)


def _active(w: Waves) -> Array:
    return w.mask


def buffer_address(inst: Instruction, size: int) -> Address:
    """Return the address of a MUBUF access: V# base + soffset + voffset + immediate, range-checked as raw buffer.

    Lanes past num_records load 0 and store nothing. Only raw buffers are modelled: swizzle and idxen are not.
    """
    if inst.fields["idxen"]:
        raise MissingFeatureError(f"{inst.mnemonic}: modifier idxen")
    rsrc = inst.operands["srsrc"].index - SGPR0
    if rsrc % 4 or rsrc > 124:
        raise MissingFeatureError(f"{inst.mnemonic}: resource in s{rsrc}")
    immediate = inst.fields["offset"]
    offen = inst.fields["offen"]
    vaddr = inst.operands["vaddr"].index if offen else -1
    soffset = inst.operands["soffset"]

    def address(w: Waves) -> tuple[Array, Array]:
        words = w.S[:, rsrc : rsrc + 4].astype(np.int64)
        if (words[:, 1] >> 31).any():
            raise MissingFeatureError(f"{inst.mnemonic}: swizzle in the buffer resource")
        base = words[:, 0] | (words[:, 1] & 0xFFFF) << 32
        records = words[:, 2]
        if soffset.kind is Kind.CONSTANT:
            scalar: Any = soffset.value
        else:
            scalar = w.S[:, soffset.index - SGPR0].astype(np.int64)[:, None]
        within = immediate + scalar
        if offen:
            within = w.V[vaddr].astype(np.int64) + within
        within = np.broadcast_to(within, w.mask.shape)
        lanes = within + size <= records[:, None]
        edge = ~lanes & (within < records[:, None])
        if edge.any():
            raise MissingFeatureError(f"{inst.mnemonic}: an access that crosses num_records")
        if not w.full:
            lanes = lanes & w.mask
        return within + (base - BASE)[:, None], lanes

    return address


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) & 1 else value


def global_address(inst: Instruction) -> Address:
    """Return the address of a global or flat access: 64-bit vector address, or scalar base + 32-bit offset."""
    immediate = _signed(inst.fields["offset"], 13) if inst.format == "GLOBAL" else inst.fields["offset"] & 0xFFF
    vector = inst.operands["addr"].index
    if "saddr" in inst.operands:
        pair = (inst.operands["saddr"].index - SGPR0) // 2

        def scalar_base(w: Waves) -> tuple[Array, Array]:
            base = w.S64[:, pair].astype(np.int64) + (immediate - BASE)
            return base[:, None] + w.V[vector].astype(np.int64), w.mask

        return scalar_base

    def vector_address(w: Waves) -> tuple[Array, Array]:
        at = w.V[vector].astype(np.int64) | w.V[vector + 1].astype(np.int64) << 32
        return at + (immediate - BASE), w.mask

    return vector_address


def bind_vmem(inst: Instruction) -> Step | None:
    """Return the step of a vector memory instruction, or None."""
    name = inst.mnemonic
    if name in ("buffer_inv", "buffer_wbl2"):
        return _cache_control(inst)
    match = _ACCESS.match(name)
    if match is None:
        return _bind_atomic(inst) if "_atomic_" in name else None
    direction, to_lds, kind, d16, hi = match.groups()
    size = _SIZES[kind]
    if inst.format == "SCRATCH":
        return _scratch(inst, direction, size, kind, d16, hi)
    address = buffer_address(inst, size) if inst.format == "MUBUF" else global_address(inst)
    if to_lds or inst.fields.get("lds"):
        return _load_to_lds(inst, address, size)
    return _load(inst, address, size, kind, d16, hi) if direction == "load" else _store(inst, address, size, d16, hi)


def _queue(w: Waves, inst: Instruction, item: Outstanding) -> None:
    w.vm.append(item)
    if inst.format == "FLAT":
        item.kind = "flat"
        w.lgkm.append(Outstanding("flat", item.mask, item.pc))
    w.pending |= item.mask


def spread(w: Waves, index: int, words: Array, kind: str, d16: str | None, hi: str | None) -> None:
    """Write loaded words [W, 64, n] to registers under EXEC, sign-extended or into one half as the kind says."""
    if kind in ("sbyte", "sshort"):
        bits = 8 if kind == "sbyte" else 16
        words = (words << U32(32 - bits)).view(np.int32) >> (32 - bits)
        words = words.view(U32)
    if d16:
        old, value = w.V[index], words[..., 0] & U32(0xFFFF)
        words = (old & U32(0xFFFF) | value << U32(16) if hi else old & U32(0xFFFF0000) | value)[..., None]
    for position in range(words.shape[-1]):
        if w.full:
            w.V[index + position] = words[..., position]
        else:
            np.copyto(w.V[index + position], words[..., position], where=w.mask)


def _load(inst: Instruction, address: Address, size: int, kind: str, d16: str | None, hi: str | None) -> Step:
    destination = inst.operands["vdst" if "vdst" in inst.operands else "vdata"]

    def step(w: Waves) -> None:
        offset, lanes = address(w)
        arena = w.launch.arena
        lanes = arena.check(w, inst.pc, offset, size, lanes, READABLE)
        if w.launch.trace is not None:
            w.launch.trace("load", inst, w, offset, size, lanes)
        spread(w, destination.index, arena.read(offset, size, lanes), kind, d16, hi)
        _queue(w, inst, Outstanding("load", destination.mask, inst.pc))

    return step


def _complete_store(w: Waves, pc: int, arrays: tuple[Array, ...]) -> None:
    w.launch.sync.complete_store(int(arrays[0][0]), w.workgroup, w.wave_id, w.epoch)


def _store(inst: Instruction, address: Address, size: int, d16: str | None, hi: str | None) -> Step:
    data = inst.operands["data" if "data" in inst.operands else "vdata"]
    shift = U32(16 if hi else 0)

    def step(w: Waves) -> None:
        offset, lanes = address(w)
        arena = w.launch.arena
        lanes = arena.check(w, inst.pc, offset, size, lanes, WRITABLE)
        if w.launch.trace is not None:
            w.launch.trace("store", inst, w, offset, size, lanes)
        values = np.moveaxis(w.V[data.index : data.index + max(1, size // 4)], 0, -1) >> shift
        stamp = w.launch.sync.issue_store(w.workgroup)
        arena.write(w, inst.pc, offset, values, size, lanes, stamp)
        _queue(w, inst, Outstanding("store", 0, inst.pc, _complete_store, (np.full(w.count, stamp),)))

    return step


def _load_to_lds(inst: Instruction, address: Address, size: int) -> Step:
    """A load whose lanes land in LDS at M0 + immediate + lane * size; counts in vmcnt like any load."""
    if (size not in (4, 12, 16) and size >= 4) or size < 4:
        raise MissingFeatureError(f"{inst.mnemonic}: {size}-byte loads into LDS")
    immediate = inst.fields["offset"] if inst.format == "MUBUF" else _signed(inst.fields["offset"], 13)

    def land(w: Waves, pc: int, arrays: tuple[Array, ...]) -> None:
        at, lanes, words = arrays
        lds = w.batch.lds
        if lds.checked:
            units = lds._units(at, size, lanes)
            lds.pending[units] -= np.minimum(lds.pending[units], 1)
        if w.launch.late_dma:
            same, kept = lds.write(at, words, size, lanes)
        else:
            same = kept = np.zeros(int(lanes.sum()), bool)
        lds.note_write(w, pc, at, size, lanes, same=same & False, kept=kept, landing=True)
        if w.launch.trace is not None:
            w.launch.trace("landing", inst, w, at, size, lanes)
        w.batch.dma_in_flight -= 1

    def step(w: Waves) -> None:
        offset, inside = address(w)
        arena = w.launch.arena
        active = w.mask
        lanes = arena.check(w, inst.pc, offset, size, inside, READABLE)
        words = arena.read(offset, size, lanes)
        if w.launch.trace is not None:
            w.launch.trace("dma", inst, w, offset, size, lanes)
        where = (w.S[:, M0].astype(np.int64) + immediate)[:, None] + LANE * size
        at, active = w.batch.lds.locate(w, inst.pc, where, size, active)
        lds = w.batch.lds
        lds.note_write(
            w, inst.pc, at, size, active, same=np.zeros(int(active.sum()), bool), kept=np.zeros(int(active.sum()), bool)
        )
        if lds.checked:
            lds.pending[lds._units(at, size, active)] += 1
        w.batch.dma_in_flight += 1
        if w.launch.trace is not None:
            w.launch.trace("issue", inst, w, at, size, active)
        if not w.launch.late_dma:
            lds.write(at, words, size, active)
        _queue(w, inst, Outstanding("dma", 0, inst.pc, land, (at, active, words)))

    return step


def _cache_control(inst: Instruction) -> Step:
    writes_back = inst.mnemonic == "buffer_wbl2"
    device_scope = bool(inst.fields["sc1"])

    def step(w: Waves) -> None:
        if device_scope:
            (w.launch.sync.write_back if writes_back else w.launch.sync.invalidate)(w.workgroup)
        if writes_back:
            _queue(w, inst, Outstanding("writeback", 0, inst.pc))

    return step


# scratch --------------------------------------------------------------------------------------------------
def _scratch(inst: Instruction, direction: str, size: int, kind: str, d16: str | None, hi: str | None) -> Step:
    """Private memory of a lane: `scratch[wave, lane, byte]`; the address is scalar + vector + immediate."""
    immediate = _signed(inst.fields["offset"], 13)
    vector = inst.operands["addr"].index if "addr" in inst.operands else None
    scalar = inst.operands["saddr"].index - SGPR0 if "saddr" in inst.operands else None
    words = max(1, size // 4)

    def locate(w: Waves) -> tuple[Array, Array]:
        at = np.full(w.mask.shape, immediate, np.int64)
        if vector is not None:
            at += w.V[vector].astype(np.int64)
        if scalar is not None:
            at += w.S[:, scalar].astype(np.int64)[:, None]
        limit = w.batch.scratch.shape[2]
        inside = (at >= 0) & (at <= limit - size)
        if (bad := w.mask & ~inside).any():
            from nkc.verify.gfx950.hazards import HazardKind

            wave, lane = np.argwhere(bad)[0]
            detail = f"lane {lane}, scratch byte {int(at[wave, lane])} of {limit}"
            w.report(HazardKind.OUT_OF_BOUNDS, inst.pc, int(wave), detail, int(bad.sum()))
        return np.where(inside, at, 0), w.mask & inside

    if direction == "load":
        destination = inst.operands["vdst"]

        def load(w: Waves) -> None:
            at, lanes = locate(w)
            every = at[..., None] + np.arange(size)
            rows = w.row[:, None, None]
            raw = w.batch.scratch[rows, LANE[None, :, None], every]
            known = w.batch.scratch_defined[rows, LANE[None, :, None], every].all(axis=2)
            if (bad := lanes & ~known).any():
                from nkc.verify.gfx950.hazards import HazardKind

                wave, lane = np.argwhere(bad)[0]
                detail = f"lane {lane}, scratch byte {int(at[wave, lane])}"
                w.report(HazardKind.NOT_READABLE, inst.pc, int(wave), detail, int(bad.sum()))
            value = raw.view(U32) if size >= 4 else _narrow(raw)
            spread(w, destination.index, value, kind, d16, hi)
            _queue(w, inst, Outstanding("load", destination.mask, inst.pc))

        return load
    data = inst.operands["data"].index
    shift = U32(16 if hi else 0)

    def store(w: Waves) -> None:
        at, lanes = locate(w)
        wave, lane = np.nonzero(lanes)
        values = np.moveaxis(w.V[data : data + words], 0, -1) >> shift
        raw = np.ascontiguousarray(values[wave, lane]).view(np.uint8).reshape(len(wave), 4 * words)[:, :size]
        every = at[wave, lane][:, None] + np.arange(size)
        w.batch.scratch[w.row[wave][:, None], lane[:, None], every] = raw
        w.batch.scratch_defined[w.row[wave][:, None], lane[:, None], every] = True
        w.vm.append(Outstanding("scratch", 0, inst.pc))

    return store


def _narrow(raw: Array) -> Array:
    value = raw[..., 0].astype(U32)
    if raw.shape[-1] == 2:
        value |= raw[..., 1].astype(U32) << U32(8)
    return value[..., None]


# atomics --------------------------------------------------------------------------------------------------
_ATOMIC = re.compile(r"(buffer|global|flat)_atomic_(\w+?)(_x2)?$")
ATOMIC_FUNCTIONS: dict[str, Callable[[int, int, int], int]] = {  # (old, operand, bits) -> new
    "swap": lambda old, value, bits: value,
    "add": lambda old, value, bits: old + value & (1 << bits) - 1,
    "sub": lambda old, value, bits: old - value & (1 << bits) - 1,
    "umin": lambda old, value, bits: min(old, value),
    "umax": lambda old, value, bits: max(old, value),
    "smin": lambda old, value, bits: min(old, value, key=lambda item: _signed(item, bits)),
    "smax": lambda old, value, bits: max(old, value, key=lambda item: _signed(item, bits)),
    "and": lambda old, value, bits: old & value,
    "or": lambda old, value, bits: old | value,
    "xor": lambda old, value, bits: old ^ value,
    "inc": lambda old, value, bits: 0 if old >= value else old + 1,
    "dec": lambda old, value, bits: value if old == 0 or old > value else old - 1,
}


def _bind_atomic(inst: Instruction) -> Step:
    """An integer atomic: lanes take effect one after the other, in lane order (any order is legal)."""
    match = _ATOMIC.match(inst.mnemonic)
    if match is None:
        raise MissingFeatureError(inst.mnemonic)
    operation, wide = match.group(2), bool(match.group(3))
    if operation not in ATOMIC_FUNCTIONS and operation != "cmpswap":
        raise MissingFeatureError(f"{inst.mnemonic}: floating-point atomics")
    bits = 64 if wide else 32
    size = bits // 8
    words = bits // 32
    address = buffer_address(inst, size) if inst.format == "MUBUF" else global_address(inst)
    data = inst.operands["data" if "data" in inst.operands else "vdata"].index
    returns = bool(inst.fields["sc0"])
    target = inst.operands.get("vdst") or inst.operands.get("vdata")

    def operand(w: Waves, wave: int, lane: int, first: int) -> int:
        low = int(w.V[first, wave, lane])
        return low | int(w.V[first + 1, wave, lane]) << 32 if wide else low

    def step(w: Waves) -> None:
        offset, lanes = address(w)
        arena = w.launch.arena
        lanes = arena.check(w, inst.pc, offset, size, lanes, READABLE | WRITABLE)
        if w.launch.trace is not None:
            w.launch.trace("atomic", inst, w, offset, size, lanes)
        view = arena.data.view(U64 if wide else U32)
        stores = sum(item.kind == "store" for item in w.vm)
        for wave, lane in np.argwhere(lanes):
            at = int(offset[wave, lane])
            if at % size:
                raise MissingFeatureError(f"{inst.mnemonic}: unaligned address")
            w.launch.sync.atomic(int(w.workgroup[wave]), at, own_stores_complete=not stores)
            old = int(view[at // size])
            value = operand(w, wave, lane, data)
            if operation == "cmpswap":
                new = value if operand(w, wave, lane, data + words) == old else old
            else:
                new = ATOMIC_FUNCTIONS[operation](old, value, bits)
            view[at // size] = new
            arena.owner[at : at + size] = ATOMIC
            if returns and target is not None:
                w.V[target.index, wave, lane] = old & 0xFFFFFFFF
                if wide:
                    w.V[target.index + 1, wave, lane] = old >> 32
        mask = target.mask if returns and target is not None else 0
        _queue(w, inst, Outstanding("atomic", mask, inst.pc))

    return step


# scalar loads ---------------------------------------------------------------------------------------------
_SCALAR = re.compile(r"s_(buffer_)?load_dword(?:x(\d+))?$")


def bind_smem(inst: Instruction) -> Step | None:
    """Return the step of s_load_* and s_buffer_load_*, or None."""
    match = _SCALAR.match(inst.mnemonic)
    if match is None:
        return None
    count = int(match.group(2) or 1)
    buffered = bool(match.group(1))
    base = inst.operands["sbase"].index - SGPR0
    destination = inst.operands["sdata"]
    start = destination.index - SGPR0
    immediate = _signed(inst.fields["offset"], 21) if inst.fields["imm"] else 0
    soffset = inst.operands["soffset"].index - SGPR0 if "soffset" in inst.operands else None
    if not inst.fields["imm"] and not inst.fields["soffset_en"]:
        raise MissingFeatureError(f"{inst.mnemonic}: offset register in the immediate field")

    def step(w: Waves) -> None:
        address = w.S[:, base].astype(np.int64) | (w.S[:, base + 1].astype(np.int64) & 0xFFFF) << 32
        offset = np.full(w.count, immediate, np.int64)
        if soffset is not None:
            offset += w.S[:, soffset].astype(np.int64)
        at = ((address + offset) & ~3) - BASE
        arena = w.launch.arena
        for position in range(count):
            here = np.broadcast_to((at + 4 * position)[:, None], (w.count, 1))
            lanes = np.ones((w.count, 1), bool)
            if buffered:
                lanes &= ((offset + 4 * position + 4) <= w.S[:, base + 2].astype(np.int64))[:, None]
            ok = arena.check(w, inst.pc, here, 4, lanes, READABLE)
            w.S[:, start + position] = arena.read(here, 4, ok)[:, 0, 0]
        w.lgkm.append(Outstanding("scalar", destination.mask, inst.pc))
        w.pending |= destination.mask

    return step
