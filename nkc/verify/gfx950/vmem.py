"""Vector memory: buffer, global and flat accesses, loads into LDS, cache control."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from nkc.verify.gfx950.instruction import SGPR0, Instruction, Kind
from nkc.verify.gfx950.memory import BASE, READABLE, WRITABLE
from nkc.verify.gfx950.operands import MissingFeatureError, Step
from nkc.verify.gfx950.waves import LANE, M0, Outstanding, Waves

Array = npt.NDArray[Any]
U32, U64 = np.uint32, np.uint64

SIZES = {
    "ubyte": 1, "sbyte": 1, "byte": 1, "ushort": 2, "sshort": 2, "short": 2,
    "dword": 4, "dwordx2": 8, "dwordx3": 12, "dwordx4": 16,
}  # fmt: skip
ACCESS = re.compile(
    r"(?:buffer|global|flat|scratch)_(load|store)_(lds_)?([us]?byte|[us]?short|dword(?:x[234])?)(_d16)?(_hi)?$"
)

Address = Callable[[Waves], tuple[Array, Array]]  # -> (arena offset int64 [W, 64], lanes that access memory)


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


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) & 1 else value


def global_address(inst: Instruction) -> Address:
    """Return the address of a global or flat access: 64-bit vector address, or scalar base + 32-bit offset."""
    immediate = signed(inst.fields["offset"], 13) if inst.format == "GLOBAL" else inst.fields["offset"] & 0xFFF
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
    match = ACCESS.match(name)
    if match is None or inst.format == "SCRATCH":
        return None
    direction, to_lds, kind, d16, hi = match.groups()
    size = SIZES[kind]
    address = buffer_address(inst, size) if inst.format == "MUBUF" else global_address(inst)
    if to_lds or inst.fields.get("lds"):
        return _load_to_lds(inst, address, size)
    return _load(inst, address, size, kind, d16, hi) if direction == "load" else _store(inst, address, size, d16, hi)


def queue(w: Waves, inst: Instruction, item: Outstanding) -> None:
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
        queue(w, inst, Outstanding("load", destination.mask, inst.pc))

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
        queue(w, inst, Outstanding("store", 0, inst.pc, _complete_store, (np.full(w.count, stamp),)))

    return step


def _load_to_lds(inst: Instruction, address: Address, size: int) -> Step:
    """A load whose lanes land in LDS at M0 + immediate + lane * size; counts in vmcnt like any load."""
    if (size not in (4, 12, 16) and size >= 4) or size < 4:
        raise MissingFeatureError(f"{inst.mnemonic}: {size}-byte loads into LDS")
    immediate = inst.fields["offset"] if inst.format == "MUBUF" else signed(inst.fields["offset"], 13)

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
        queue(w, inst, Outstanding("dma", 0, inst.pc, land, (at, active, words)))

    return step


def _cache_control(inst: Instruction) -> Step:
    writes_back = inst.mnemonic == "buffer_wbl2"
    device_scope = bool(inst.fields["sc1"])

    def step(w: Waves) -> None:
        if device_scope:
            (w.launch.sync.write_back if writes_back else w.launch.sync.invalidate)(w.workgroup)
        if writes_back:
            queue(w, inst, Outstanding("writeback", 0, inst.pc))

    return step
