"""Private memory of a lane: scratch loads and stores."""

from typing import Any

import numpy as np
import numpy.typing as npt

from nkc.verify.gfx950.hazards import HazardKind
from nkc.verify.gfx950.instruction import SGPR0, Instruction
from nkc.verify.gfx950.operands import Step
from nkc.verify.gfx950.vmem import ACCESS, SIZES, queue, signed, spread
from nkc.verify.gfx950.waves import LANE, Outstanding, Waves

Array = npt.NDArray[Any]
U32, U64 = np.uint32, np.uint64


def bind_scratch(inst: Instruction) -> Step | None:
    """Return the step of a scratch access, or None.

    The memory is `scratch[wave, lane, byte]`; the address is scalar + vector + immediate.
    """
    match = ACCESS.match(inst.mnemonic)
    if match is None or inst.format != "SCRATCH":
        return None
    direction, _, kind, d16, hi = match.groups()
    size = SIZES[kind]
    immediate = signed(inst.fields["offset"], 13)
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
                wave, lane = np.argwhere(bad)[0]
                detail = f"lane {lane}, scratch byte {int(at[wave, lane])}"
                w.report(HazardKind.NOT_READABLE, inst.pc, int(wave), detail, int(bad.sum()))
            value = raw.view(U32) if size >= 4 else _narrow(raw)
            spread(w, destination.index, value, kind, d16, hi)
            queue(w, inst, Outstanding("load", destination.mask, inst.pc))

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
