"""The mutants of an object: one instruction replaced by `s_nop`, a wait weakened, or the launch spoilt."""

import enum
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy.typing as npt

from nkc.verify.gfx950.code_object import read_code_object
from nkc.verify.gfx950.instruction import Instruction, wait_counts
from nkc.verify.gfx950.launch import LaunchSpec
from nkc.verify.gfx950.mfma import MfmaModel
from nkc.verify.gfx950.program import Program

Array = npt.NDArray[Any]

S_NOP = 0xBF800000
_WAIT_NOTHING = {"vmcnt": 15 | 3 << 14, "lgkmcnt": 15 << 8}


class MutationKind(enum.Enum):
    """What is taken away or spoilt."""

    BARRIER = "s_barrier removed"
    VMCNT = "wait on vmcnt removed"
    LGKMCNT = "wait on lgkmcnt removed"
    MFMA = "MFMA removed"
    SWAP = "lane swap removed"
    DPP = "DPP operation removed"
    DMA = "load into LDS removed"
    M0 = "write of M0 removed"
    TRANSPOSE = "transposed read made plain"
    STALL = "s_nop shortened"
    LDS_SIZE = "too little LDS"
    GRID = "one workgroup too many"
    FEWER = "one workgroup too few"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """One mutant: the spoilt object, its launch, and where it was spoilt."""

    kind: MutationKind
    pc: int
    mnemonic: str
    data: bytes
    launch: LaunchSpec


def _patched(data: bytes, at: int, size: int, words: tuple[int, ...]) -> bytes:
    raw = b"".join(word.to_bytes(4, "little") for word in words)
    raw += S_NOP.to_bytes(4, "little") * ((size - len(raw)) // 4)
    return data[:at] + raw + data[at + size :]


def _kind_of(inst: Instruction) -> MutationKind | None:
    """Return what removing an instruction is called, None where it is not one of the mutations."""
    if inst.mnemonic == "s_barrier":
        return MutationKind.BARRIER
    if inst.is_mfma:
        return MutationKind.MFMA
    if "permlane" in inst.mnemonic:
        return MutationKind.SWAP
    if "dpp_word" in inst.fields:
        return MutationKind.DPP
    if inst.is_lds_load:
        return MutationKind.DMA
    if inst.writes >> (512 + 124) & 1 and inst.format.startswith("SOP"):
        return MutationKind.M0
    return None


def mutations(data: bytes, launch: LaunchSpec) -> Iterator[Mutation]:
    """Yield every mutant of an object and its launch, by pc, launch mutants last.

    The prologue for firmware that does not preload kernel arguments is left alone: launches here do not run it.
    """
    code = read_code_object(data, launch.symbol)
    program = Program(code, MfmaModel.ONCE)
    first = code.entry + (256 if code.descriptor.preload_length and launch.preload else 0)
    for pc, inst in sorted(program.instructions().items()):
        if pc < first:
            continue
        at = code.text_offset + pc
        kind = _kind_of(inst)
        if kind is not None:
            words = (S_NOP,) if kind is not MutationKind.MFMA else (S_NOP | 15, S_NOP | 15)
            yield Mutation(
                kind=kind, pc=pc, mnemonic=inst.mnemonic, data=_patched(data, at, inst.size, words), launch=launch
            )
        if inst.mnemonic == "s_waitcnt":
            vmcnt, _, lgkmcnt = wait_counts(inst.fields["simm16"])
            for kind, used in ((MutationKind.VMCNT, vmcnt != 63), (MutationKind.LGKMCNT, lgkmcnt != 15)):
                if used:
                    word = 0xBF8C0000 | inst.fields["simm16"] | _WAIT_NOTHING[kind.name.lower()]
                    yield Mutation(
                        kind=kind, pc=pc, mnemonic=inst.mnemonic, data=_patched(data, at, 4, (word,)), launch=launch
                    )
        if inst.mnemonic.startswith("ds_read_b64_tr_b"):
            word = int.from_bytes(data[at : at + 4], "little") & ~(0xFF << 17) | 118 << 17  # ds_read_b64
            spoilt = data[:at] + word.to_bytes(4, "little") + data[at + 4 :]
            yield Mutation(kind=MutationKind.TRANSPOSE, pc=pc, mnemonic=inst.mnemonic, data=spoilt, launch=launch)
        if inst.mnemonic == "s_nop" and inst.fields["simm16"]:
            word = S_NOP | inst.fields["simm16"] - 1
            yield Mutation(
                kind=MutationKind.STALL,
                pc=pc,
                mnemonic=inst.mnemonic,
                data=_patched(data, at, 4, (word,)),
                launch=launch,
            )
    x, y, z = launch.grid
    if launch.dynamic_lds_bytes:
        less = replace(launch, dynamic_lds_bytes=launch.dynamic_lds_bytes - 16)
        yield Mutation(kind=MutationKind.LDS_SIZE, pc=0, mnemonic="(launch)", data=data, launch=less)
    yield Mutation(
        kind=MutationKind.GRID, pc=0, mnemonic="(launch)", data=data, launch=replace(launch, grid=(x, y + 1, z))
    )
    if x > 1:
        yield Mutation(
            kind=MutationKind.FEWER, pc=0, mnemonic="(launch)", data=data, launch=replace(launch, grid=(x - 1, y, z))
        )
