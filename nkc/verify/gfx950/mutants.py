"""Break a real object on purpose and see who notices: the self-test of the detectors.

A mutation replaces one instruction of the object by `s_nop` (or spoils the launch) and the mutant runs like the
original. It is caught when an output differs, a detector fires that did not fire before, or the wait-state linter
does. A survivor is either equivalent, for a reason that is checked here and named, or a hole.
"""

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from nkc.verify.gfx950.code_object import read_code_object
from nkc.verify.gfx950.decode import Instruction
from nkc.verify.gfx950.emulate import DmaPolicy, EmulationReport, emulate
from nkc.verify.gfx950.launch import LaunchError, LaunchSpec
from nkc.verify.gfx950.mfma import MfmaModel
from nkc.verify.gfx950.program import Program, wait_counts
from nkc.verify.gfx950.wait_states import lint
from nkc.verify.gfx950.waves import Waves

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Who caught a mutant (`values`, the linter as `wait_states`, or hazard kinds), or why nobody should have."""

    mutation: Mutation
    caught_by: frozenset[str]
    equivalent: str = ""  # the reason, where the mutant does the same as the original

    @property
    def survived(self) -> bool:
        """Whether it is a hole: neither caught nor equivalent."""
        return not self.caught_by and not self.equivalent


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The original's run, against which mutants are compared."""

    report: EmulationReport
    program: Program
    hazards: frozenset[tuple[str, int]]
    stalls: frozenset[tuple[int, str]]


def baseline(data: bytes, launch: LaunchSpec, buffers: Mapping[str, Array]) -> Baseline:
    """Run the original. Its own findings do not count against mutants."""
    program = _program(data, launch)
    report = emulate(data, launch, buffers, program=program)
    late = emulate(data, launch, buffers, program=program, dma=DmaPolicy.RETIRE)
    found = (*report.hazards, *late.hazards)
    return Baseline(
        report=report,
        program=program,
        hazards=frozenset((item.kind.name, item.pc) for item in found),
        stalls=frozenset((item.pc, item.detail) for item in lint(program)),
    )


def _program(data: bytes, launch: LaunchSpec) -> Program:
    return Program(read_code_object(data, launch.symbol), MfmaModel.ONCE)


def judge(mutation: Mutation, base: Baseline, buffers: Mapping[str, Array]) -> Outcome:
    """Run one mutant, with loads into LDS landing early and, when that shows nothing, late; say who caught it.

    Only a shortened s_nop can make a wait state too few, so only there is the linter asked.
    """
    caught: set[str] = set()
    budget = 4 * max(1000, sum(base.report.executed.values()))
    code = read_code_object(mutation.data, mutation.launch.symbol)
    program = base.program.patched(code, mutation.pc, mutation.pc + 8 if mutation.pc else 0)
    if mutation.kind is MutationKind.STALL:
        found = frozenset((item.pc, item.detail) for item in lint(program))
        caught |= {"wait_states"} if found - base.stalls else set()
    for dma in DmaPolicy:
        if caught:
            break
        try:
            report = emulate(mutation.data, mutation.launch, buffers, budget=budget, dma=dma, program=program)
        except LaunchError:
            caught.add("launch")
            break
        caught |= {"missing"} if report.missing else set()
        caught |= {item.kind.name for item in report.hazards if (item.kind.name, item.pc) not in base.hazards}
        if any(_differs(report.outputs[name], value) for name, value in base.report.outputs.items()):
            caught.add("values")
    reason = "" if caught else _equivalence(mutation, base, buffers)
    return Outcome(mutation=mutation, caught_by=frozenset(caught), equivalent=reason)


def _differs(a: Array, b: Array) -> bool:
    x, y = (np.ascontiguousarray(item).reshape(-1).view(np.uint8) for item in (a, b))
    return not np.array_equal(x, y)


def _equivalence(mutation: Mutation, base: Baseline, buffers: Mapping[str, Array]) -> str:
    """Return why an uncaught mutant does the same as the original, or nothing where that cannot be shown."""
    if mutation.pc and not base.report.executed.get(mutation.pc):
        return "never executed by this launch"
    if mutation.kind in (MutationKind.VMCNT, MutationKind.LGKMCNT):
        return _idle_wait(mutation, base)
    if mutation.kind is MutationKind.BARRIER:
        return _idle_barrier(mutation, base) or _apart(mutation, base, buffers)
    if mutation.kind is MutationKind.STALL:
        return "the rules ask for fewer wait states here than the compiler gave"
    return ""


def _idle_wait(mutation: Mutation, base: Baseline) -> str:
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


def _idle_barrier(mutation: Mutation, base: Baseline) -> str:
    """A barrier is idle when no LDS access of the stretch before it can conflict with one of the stretch behind it."""
    use = base.report.barriers.get(mutation.pc)
    if use is None or use.orders_something:
        return ""
    if not (use.reads_before or use.writes_before):
        return "no LDS access lies between it and the barrier before"
    if not (use.reads_after or use.writes_after):
        return "no LDS access lies between it and the barrier behind, or the end"
    return "LDS is only read on both sides of it"


class _Stretches:
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


def _apart(mutation: Mutation, base: Baseline, buffers: Mapping[str, Array]) -> str:
    """Show from the addresses of the original's run, without the LDS shadow, that a barrier separates nothing."""
    stretches = _Stretches()
    original = base.program.code.file_bytes
    emulate(original, mutation.launch, buffers, program=base.program, trace=stretches)
    if stretches.conflict(mutation.pc, mutation.launch.waves):
        return ""
    return "no two waves touch the same LDS bytes across it, one of them writing"
