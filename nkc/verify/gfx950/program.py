"""A kernel as an executable program: each pc decoded once, bound to a step, with the facts the engine asks for."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from nkc.verify.gfx950.atomics import bind_atomic
from nkc.verify.gfx950.code_object import CodeObject
from nkc.verify.gfx950.crosslane import bind_crosslane
from nkc.verify.gfx950.decode import decode
from nkc.verify.gfx950.ds import access_bytes, bind_ds
from nkc.verify.gfx950.flow import ENDS, JUMP, is_branch, reachable
from nkc.verify.gfx950.instruction import SCC, Instruction, wait_counts
from nkc.verify.gfx950.mfma import MfmaModel, bind_mfma
from nkc.verify.gfx950.operands import MissingFeatureError, Step
from nkc.verify.gfx950.packed import bind_conversion, bind_packed
from nkc.verify.gfx950.private import bind_scratch
from nkc.verify.gfx950.salu import bind_salu
from nkc.verify.gfx950.smem import bind_smem
from nkc.verify.gfx950.valu import bind_valu
from nkc.verify.gfx950.valu_masks import bind_compare, bind_select
from nkc.verify.gfx950.vmem import bind_vmem
from nkc.verify.gfx950.waves import EXEC, VCC, Waves

Array = npt.NDArray[Any]
Condition = Callable[[Waves], Array]

_BRANCHES: dict[str, Condition] = {
    "s_cbranch_scc0": lambda w: ~w.scc,
    "s_cbranch_scc1": lambda w: w.scc,
    "s_cbranch_vccz": lambda w: w.S64[:, VCC // 2] == 0,
    "s_cbranch_vccnz": lambda w: w.S64[:, VCC // 2] != 0,
    "s_cbranch_execz": lambda w: w.S64[:, EXEC // 2] == 0,
    "s_cbranch_execnz": lambda w: w.S64[:, EXEC // 2] != 0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One instruction ready to run. Exactly one of the special fields is set for control instructions."""

    inst: Instruction
    next_pc: int
    reads: int
    touches: int
    writes: int
    step: Step | None = None
    condition: Condition | None = None
    target: int = -1
    jump: bool = False
    barrier: bool = False
    ends: bool = False
    wait: tuple[int, int] | None = None
    loads: bool = False  # fills its destination later and in order


_BINDERS: tuple[Callable[[Instruction], Step | None], ...] = (
    bind_valu,
    bind_compare,
    bind_select,
    bind_packed,
    bind_conversion,
    bind_crosslane,
    bind_smem,
    bind_vmem,
    bind_scratch,
    bind_atomic,
    bind_ds,
    bind_salu,
)


def bind(inst: Instruction, model: MfmaModel) -> Step:
    """Return the step of an instruction that is not control flow.

    Errors: `MissingFeatureError` naming the mnemonic, and the modifier where that is what is missing.
    """
    if inst.mnemonic == "v_nop":
        return lambda w: None
    if inst.is_mfma:
        return bind_mfma(inst, model)
    if inst.mnemonic.startswith("v_accvgpr"):
        step = bind_valu(inst)
        if step is not None:
            return step
    for binder in _BINDERS:
        step = binder(inst)
        if step is not None:
            return step
    raise MissingFeatureError(f"instruction {inst.mnemonic}")


class Program:
    """All nodes of a kernel, reached on demand; unreached bytes are never decoded."""

    def __init__(self, code: CodeObject, model: MfmaModel) -> None:
        self.code = code
        self.model = model
        self._nodes: dict[int, Node] = {}
        self._decoded: dict[int, Instruction] = {}
        self._reachable: dict[int, Instruction] | None = None
        self.mnemonics: dict[int, str] = {}

    def patched(self, code: CodeObject, start: int, end: int) -> "Program":
        """Return the program of `code`, which differs from this one in [start, end) of .text only."""
        out = Program(code, self.model)
        out._decoded = {pc: inst for pc, inst in self._decoded.items() if not start <= pc < end}
        out._nodes = {pc: node for pc, node in self._nodes.items() if not start <= pc < end}
        out.mnemonics = dict(self.mnemonics)
        return out

    def _decode(self, pc: int) -> Instruction:
        found = self._decoded.get(pc)
        if found is None:
            found = self._decoded[pc] = decode(self.code.text, pc)
        return found

    def node(self, pc: int) -> Node:
        """Return the node at `pc`. Errors: `DecodeError`, `MissingFeatureError`."""
        found = self._nodes.get(pc)
        if found is None:
            found = self._nodes[pc] = self._make(pc)
        return found

    def _make(self, pc: int) -> Node:
        inst = self._decode(pc)
        self.mnemonics[pc] = inst.mnemonic
        name = inst.mnemonic
        base: dict[str, Any] = {
            "inst": inst,
            "next_pc": inst.next_pc,
            "reads": inst.reads & ~SCC,
            "touches": (inst.reads | inst.writes) & ~SCC,
            "writes": inst.writes & ~SCC,
        }
        if name in ENDS:
            return Node(**base, ends=True)
        if name == JUMP:
            return Node(**base, jump=True, target=inst.target)
        if name in _BRANCHES:
            return Node(**base, condition=_BRANCHES[name], target=inst.target)
        if name == "s_barrier":
            return Node(**base, barrier=True)
        if name == "s_waitcnt":
            vmcnt, _, lgkmcnt = wait_counts(inst.fields["simm16"])
            return Node(**base, wait=(vmcnt, lgkmcnt))
        loads = inst.is_vmem or inst.format in ("SMEM", "DS")
        try:
            step = bind(inst, self.model)
        except MissingFeatureError as error:
            raise MissingFeatureError(f"pc {pc:#x}: {error}") from None
        return Node(**base, step=step, loads=loads)

    def instructions(self) -> dict[int, Instruction]:
        """Return every instruction reachable from the entry, by pc."""
        if self._reachable is not None:
            return self._reachable
        self._reachable = reachable(self.code, self._decode)
        return self._reachable

    def missing(self) -> tuple[str, ...]:
        """Return what reachable code uses and the emulator does not model, each named once."""
        out: dict[str, None] = {}
        for pc in sorted(self.instructions()):
            try:
                self.node(pc)
            except MissingFeatureError as error:
                out[str(error).split(": ", 1)[1]] = None
        return tuple(out)

    def liveness(self) -> dict[int, int]:
        """Return, by pc, the registers that are read from there on before they are overwritten.

        Vector writes do not end a value: EXEC may leave lanes alone.
        """
        insts = self.instructions()
        live = dict.fromkeys(insts, 0)
        scalars = ((1 << 130) - 1) << 512
        changed = True
        while changed:
            changed = False
            for pc in sorted(insts, reverse=True):
                inst = insts[pc]
                after = 0
                if inst.mnemonic not in ENDS and inst.mnemonic != JUMP:
                    after |= live.get(inst.next_pc, 0)
                if is_branch(inst):
                    after |= live.get(inst.target, 0)
                before = inst.reads | after & ~(inst.writes & scalars)
                if before != live[pc]:
                    live[pc] = before
                    changed = True
        return live

    def lds_grain(self) -> int:
        """Return the smallest LDS access of the code in bytes, the unit of the LDS shadow."""
        sizes = [size for inst in self.instructions().values() if (size := access_bytes(inst))]
        return min([size & -size for size in sizes], default=4)

    def has_atomics(self) -> bool:
        """Whether reachable code does atomics on memory (workgroups then depend on each other)."""
        return any("_atomic_" in inst.mnemonic for inst in self.instructions().values())
