"""Scalar loads."""

import re
from typing import Any

import numpy as np
import numpy.typing as npt

from nkc.verify.gfx950.instruction import SGPR0, Instruction
from nkc.verify.gfx950.memory import BASE, READABLE
from nkc.verify.gfx950.operands import MissingFeatureError, Step
from nkc.verify.gfx950.vmem import signed
from nkc.verify.gfx950.waves import Outstanding, Waves

Array = npt.NDArray[Any]
U32, U64 = np.uint32, np.uint64

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
    immediate = signed(inst.fields["offset"], 21) if inst.fields["imm"] else 0
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
