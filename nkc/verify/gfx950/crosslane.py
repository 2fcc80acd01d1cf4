"""Instructions that move values between lanes: readlane, swaps, and the LDS-hardware permutes (no LDS memory)."""

from typing import Any

import numpy as np
import numpy.typing as npt

from nkc.verify.gfx950.instruction import SGPR0, Instruction, Kind
from nkc.verify.gfx950.operands import MissingFeatureError, Step, reader, write_u32
from nkc.verify.gfx950.waves import LANE, Waves

Array = npt.NDArray[Any]


def bind_crosslane(inst: Instruction) -> Step | None:
    """Return the step of a cross-lane vector instruction, or None."""
    match inst.mnemonic:
        case "v_readfirstlane_b32":
            return _readfirstlane(inst)
        case "v_readlane_b32":
            return _readlane(inst)
        case "v_writelane_b32":
            return _writelane(inst)
        case "v_permlane32_swap_b32":
            return _swap(inst, 32)
        case "v_permlane16_swap_b32":
            return _swap(inst, 16)
        case "v_swap_b32":
            return _swap_registers(inst)
    return None


def _scalar_destination(inst: Instruction) -> int:
    index = inst.operands["sdst"].index - SGPR0
    if index >= 126:
        raise MissingFeatureError(f"{inst.mnemonic}: EXEC as destination")
    return index


def _readfirstlane(inst: Instruction) -> Step:
    destination = _scalar_destination(inst)
    value = reader(inst.operands["src0"], "u32")

    def step(w: Waves) -> None:
        # With no active lane, lane 0 is read.
        lane = 0 if w.full else np.argmax(w.mask, axis=1)
        source = np.broadcast_to(value(w), w.mask.shape)
        w.S[:, destination] = source[np.arange(w.count), lane]

    return step


def _readlane(inst: Instruction) -> Step:
    destination = _scalar_destination(inst)
    value = reader(inst.operands["src0"], "u32")
    select = reader(inst.operands["src1"], "u32")

    def step(w: Waves) -> None:
        lane = np.broadcast_to(np.reshape(select(w), -1), (w.count,)) & np.uint32(63)
        w.S[:, destination] = np.broadcast_to(value(w), w.mask.shape)[np.arange(w.count), lane]

    return step


def _writelane(inst: Instruction) -> Step:
    index = inst.operands["vdst"].index
    value, select = reader(inst.operands["src0"], "u32"), reader(inst.operands["src1"], "u32")

    def step(w: Waves) -> None:
        lane = np.broadcast_to(np.reshape(select(w), -1), (w.count,)) & np.uint32(63)
        w.V[index][np.arange(w.count), lane] = np.broadcast_to(np.reshape(value(w), -1), (w.count,))

    return step


def _swap(inst: Instruction, width: int) -> Step:
    """Swap the odd rows of `width` lanes of vdst with the even rows of src0, from a snapshot of both."""
    if inst.operands["src0"].kind is not Kind.VECTOR:
        raise MissingFeatureError(f"{inst.mnemonic}: scalar source")
    if inst.fields.get("opsel"):
        raise MissingFeatureError(f"{inst.mnemonic}: bound_ctrl or fi")
    first, second = inst.operands["vdst"].index, inst.operands["src0"].index
    odd = LANE // width % 2 == 1
    partner = np.where(odd, LANE - width, LANE + width) % 64

    def step(w: Waves) -> None:
        a, b = w.V[first].copy(), w.V[second].copy()
        swapped_a = np.where(odd, b[:, partner], a)
        swapped_b = np.where(odd, b, a[:, partner])
        np.copyto(w.V[first], swapped_a, where=w.mask)
        np.copyto(w.V[second], swapped_b, where=w.mask)

    return step


def _swap_registers(inst: Instruction) -> Step:
    first, second = inst.operands["vdst"].index, inst.operands["src0"].index

    def step(w: Waves) -> None:
        old = w.V[first].copy()
        np.copyto(w.V[first], w.V[second], where=w.mask)
        np.copyto(w.V[second], old, where=w.mask)

    return step


def bind_ds_permute(inst: Instruction) -> Step | None:
    """Return the step of ds_bpermute, ds_permute and ds_swizzle (they use the LDS unit but no memory), or None."""
    offset = np.uint32(inst.fields["offset0"] | inst.fields["offset1"] << 8)
    if inst.mnemonic == "ds_bpermute_b32":
        address, data = inst.operands["addr"].index, inst.operands["data0"].index
        store = write_u32(inst.operands["vdst"].index)

        def bpermute(w: Waves) -> None:
            source = ((w.V[address] + offset) >> np.uint32(2) & np.uint32(63)).astype(np.intp)
            value = np.take_along_axis(w.V[data], source, axis=1)
            if not w.full:  # an inactive lane gives 0
                value = np.where(np.take_along_axis(w.mask, source, axis=1), value, np.uint32(0))
            store(w, value)

        return bpermute
    if inst.mnemonic == "ds_permute_b32":
        address, data = inst.operands["addr"].index, inst.operands["data0"].index
        store = write_u32(inst.operands["vdst"].index)

        def permute(w: Waves) -> None:
            target = ((w.V[address] + offset) >> np.uint32(2) & np.uint32(63)).astype(np.intp)
            out = np.zeros_like(w.V[data])
            rows = np.arange(w.count)
            for lane in range(64):  # the highest source lane wins
                active = w.mask[:, lane]
                out[rows[active], target[active, lane]] = w.V[data][active, lane]
            store(w, out)

        return permute
    if inst.mnemonic == "ds_swizzle_b32":
        control = int(offset)
        if control & 0x8000 and control & 0x7F00 == 0:
            source = (LANE & ~3) | (control >> 2 * (LANE & 3) & 3)
        elif not control & 0x8000:
            keep, either, flip = control & 31, control >> 5 & 31, control >> 10 & 31
            source = (LANE & 32) | (((LANE & 31) & keep | either) ^ flip)
        else:
            raise MissingFeatureError(f"ds_swizzle_b32: offset {control:#x}")
        data = inst.operands["addr"].index
        store = write_u32(inst.operands["vdst"].index)

        def swizzle(w: Waves) -> None:
            value = w.V[data][:, source]
            if not w.full:
                value = np.where(w.mask[:, source], value, np.uint32(0))
            store(w, value)

        return swizzle
    return None
