"""Why a mutant that nobody caught does the same as the original: reasons that are checked, not assumed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nkc.verify.gfx950.emulate import EmulationReport, emulate
from nkc.verify.gfx950.instruction import Instruction, wait_counts
from nkc.verify.gfx950.mutations import Mutation, MutationKind
from nkc.verify.gfx950.program import Program
from nkc.verify.gfx950.waves import Waves

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The original's run, against which mutants are compared."""

    report: EmulationReport
    program: Program
    hazards: frozenset[tuple[str, int]]
    stalls: frozenset[tuple[int, str]]


def equivalence(mutation: Mutation, base: Baseline, buffers: Mapping[str, Array]) -> str:
    """Return why an uncaught mutant does the same as the original, or nothing where that cannot be shown."""
    if mutation.pc and not base.report.executed.get(mutation.pc):
        return "never executed by this launch"
    if mutation.kind in (MutationKind.VMCNT, MutationKind.LGKMCNT):
        return idle_wait(mutation, base)
    if mutation.kind is MutationKind.BARRIER:
        return idle_barrier(mutation, base) or apart(mutation, base, buffers)
    if mutation.kind is MutationKind.STALL:
        return "the rules ask for fewer wait states here than the compiler gave"
    return ""


def idle_wait(mutation: Mutation, base: Baseline) -> str:
    """A wait is idle when nothing it completes is used before a later wait completes it, too."""
    seen = base.report.retired.get(mutation.pc)
    if seen is None:
        return "nothing was outstanding at it"
    if seen.kinds <= {"store", "writeback", "scratch"}:
        return "only stores were outstanding at it, and no other workgroup reads them"
    if not seen.kinds <= {"load", "read", "scalar", "atomic", "store", "scratch", "flat"}:
        return ""  # loads into LDS and LDS writes have readers that registers do not show
    vector = mutation.kind is MutationKind.VMCNT
    insts = base.program.instructions()
    counts = wait_counts(insts[mutation.pc].fields["simm16"])
    allowed = counts[0 if vector else 2]  # operations that may be outstanding behind the original wait
    pc, named = insts[mutation.pc].next_pc, False
    while True:
        inst = insts[pc]
        why = "an operand names the register but does not use it" if named else "nothing uses its registers"
        if inst.mnemonic == "s_waitcnt":
            again = wait_counts(inst.fields["simm16"])[0 if vector else 2]
            if again == 0 or (again <= allowed and "scalar" not in seen.kinds):
                return f"the wait at pc {pc:#x} covers it; until there {why}"
        if inst.mnemonic == "s_endpgm":
            return f"until the kernel ends {why}"
        if (inst.reads | inst.writes) & seen.registers or "branch" in inst.mnemonic:
            return ""
        allowed += inst.is_vmem if vector else inst.format in ("DS", "SMEM")
        named = named or any(item.mask & seen.registers for item in inst.operands.values())
        pc = inst.next_pc


def idle_barrier(mutation: Mutation, base: Baseline) -> str:
    """A barrier is idle when no LDS access of the stretch before it can conflict with one of the stretch behind it."""
    use = base.report.barriers.get(mutation.pc)
    if use is None or use.orders_something:
        return ""
    if not (use.reads_before or use.writes_before):
        return "no LDS access lies between it and the barrier before"
    if not (use.reads_after or use.writes_after):
        return "no LDS access lies between it and the barrier behind, or the end"
    return "LDS is only read on both sides of it"


class Stretches:
    """A trace that keeps, for workgroup 0, the LDS bytes each wave reads and writes between barriers."""

    def __init__(self) -> None:
        self.reads: dict[tuple[int, int], set[int]] = {}  # (barrier epoch, wave) -> LDS dwords
        self.writes: dict[tuple[int, int], set[int]] = {}
        self.behind: dict[int, set[int]] = {}  # pc of a barrier -> epochs that it begins
        self.flying: dict[tuple[int, int], int] = {}  # (pc, wave) -> epoch of issue

    def __call__(self, kind: str, inst: Instruction, w: Waves, offset: Array, size: int, lanes: Array) -> None:
        if kind not in ("lds_read", "lds_write", "issue", "landing"):
            return
        for row in np.flatnonzero(w.local == 0):
            wave, epoch = int(w.wave_id[row]), int(w.epoch[row])
            self.behind.setdefault(w.last_barrier, set()).add(epoch)
            at = offset[row][lanes[row]]
            dwords = set((at[:, None] // 4 + np.arange(max(1, size // 4))).ravel().tolist())
            first = self.flying.pop((inst.pc, wave), epoch) if kind == "landing" else epoch
            if kind == "issue":
                self.flying[inst.pc, wave] = epoch
            table = self.reads if kind == "lds_read" else self.writes
            for stretch in range(first, epoch + 1):
                table.setdefault((stretch, wave), set()).update(dwords)

    def conflict(self, pc: int, waves: int) -> bool:
        """Whether, across the barrier at `pc`, two waves touch the same bytes and one of them writes."""
        for epoch in self.behind.get(pc, ()):
            for a in range(waves):
                reads, writes = (table.get((epoch - 1, a), set()) for table in (self.reads, self.writes))
                for b in range(waves):
                    later = self.writes.get((epoch, b), set())
                    if a != b and (writes & (later | self.reads.get((epoch, b), set())) or reads & later):
                        return True
        return False


def apart(mutation: Mutation, base: Baseline, buffers: Mapping[str, Array]) -> str:
    """Show from the addresses of the original's run, without the LDS shadow, that a barrier separates nothing."""
    stretches = Stretches()
    original = base.program.code.file_bytes
    emulate(original, mutation.launch, buffers, program=base.program, trace=stretches)
    if stretches.conflict(mutation.pc, mutation.launch.waves):
        return ""
    return "no two waves touch the same LDS bytes across it, one of them writing"
