"""Integer atomics on memory, and what each computes."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from nkc.verify.gfx950.instruction import Instruction
from nkc.verify.gfx950.memory import ATOMIC, READABLE, WRITABLE
from nkc.verify.gfx950.operands import MissingFeatureError, Step
from nkc.verify.gfx950.vmem import buffer_address, global_address, queue, signed
from nkc.verify.gfx950.waves import Outstanding, Waves

Array = npt.NDArray[Any]
U32, U64 = np.uint32, np.uint64

_ATOMIC = re.compile(r"(buffer|global|flat)_atomic_(\w+?)(_x2)?$")
ATOMIC_FUNCTIONS: dict[str, Callable[[int, int, int], int]] = {  # (old, operand, bits) -> new
    "swap": lambda old, value, bits: value,
    "add": lambda old, value, bits: old + value & (1 << bits) - 1,
    "sub": lambda old, value, bits: old - value & (1 << bits) - 1,
    "umin": lambda old, value, bits: min(old, value),
    "umax": lambda old, value, bits: max(old, value),
    "smin": lambda old, value, bits: min(old, value, key=lambda item: signed(item, bits)),
    "smax": lambda old, value, bits: max(old, value, key=lambda item: signed(item, bits)),
    "and": lambda old, value, bits: old & value,
    "or": lambda old, value, bits: old | value,
    "xor": lambda old, value, bits: old ^ value,
    "inc": lambda old, value, bits: 0 if old >= value else old + 1,
    "dec": lambda old, value, bits: value if old == 0 or old > value else old - 1,
}


def bind_atomic(inst: Instruction) -> Step | None:
    """Return the step of an integer atomic, or None. Lanes take effect in lane order; any order is legal."""
    if "_atomic_" not in inst.mnemonic or not inst.is_vmem:
        return None
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
        queue(w, inst, Outstanding("atomic", mask, inst.pc))

    return step
