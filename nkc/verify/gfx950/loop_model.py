"""A *model* of one loop on one SIMD: clocks a step and the matrix pipe's share, from the listing alone.

It explains and shortlists; it claims no speed and no time. Every issue takes 4 clocks. State of a SIMD: matrix pipe,
vector pipe, LDS server, memory server; of a wave: its place and its counter queues. Rules and numbers are those of
public MI355X traces and AMD's ISA tables (`Facts` names each); nobody here has run the chip.
"""

from collections import Counter, deque
from dataclasses import dataclass, field

from nkc.verify.gfx950.code_object import CodeObject, read_code_object
from nkc.verify.gfx950.decode import decode_all
from nkc.verify.gfx950.ds import access_bytes
from nkc.verify.gfx950.instruction import Instruction, wait_counts
from nkc.verify.gfx950.wait_states import passes

SIMDS = 4
LDS_BYTES = 160 * 1024
REGISTER_FILE = 512
WAVES_A_SIMD = 8
LATENCIES = (500, 800, 1500)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Costs in clocks and bytes. Source: ROCm gluon tutorials (traced), CDNA4 ISA cycle tables; see each line."""

    issue: int = 4  # one instruction of a wave
    mfma_blocks_valu: int = 8  # a vector instruction waits out an MFMA's first clocks (tutorial trace)
    lds_bytes_a_clock: int = 64  # a SIMD's share: one ds_read_b128 of a wave in 16 clocks
    lds_latency: int = 64
    lds_queue: int = 8
    memory_bytes_a_clock: int = 16  # 64 a compute unit
    in_flight_bytes: int = 11 * 1024  # a SIMD's share of 44 KB
    trans: int = 16  # v_exp, v_rcp and their kin run at quarter rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A loop of the listing: the instructions from the branch's target to the branch."""

    start: int
    end: int
    body: tuple[Instruction, ...]

    @property
    def mfma_count(self) -> int:
        """Matrix instructions in one iteration."""
        return sum(inst.is_mfma for inst in self.body)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopReading:
    """*Model* of one loop at one memory latency. `stalls` maps the pc of a wait or barrier to clocks a step."""

    latency: int
    resident_workgroups: int
    clocks_a_step: float
    mfma_clocks_a_step: int
    mfma_share: float
    stalls: dict[int, float] = field(default_factory=dict)
    label: str = "model"


def loops(code: CodeObject) -> tuple[Loop, ...]:
    """Return the innermost loops of the kernel, those with the most matrix instructions first."""
    insts = decode_all(code.text, code.entry, code.end)
    back = [inst for inst in insts if inst.mnemonic.startswith(("s_branch", "s_cbranch")) and inst.target <= inst.pc]
    found = []
    for branch in back:
        inner = any(branch.target <= other.target and other.pc < branch.pc for other in back)
        body = tuple(inst for inst in insts if branch.target <= inst.pc <= branch.pc)
        if body and not inner:
            found.append(Loop(start=branch.target, end=branch.pc, body=body))
    return tuple(sorted(found, key=lambda loop: (-loop.mfma_count, loop.start)))


def resident_workgroups(code: CodeObject, waves: int, dynamic_lds_bytes: int) -> int:
    """Return how many workgroups a compute unit holds: by LDS, registers, and waves a SIMD."""
    lds = code.descriptor.group_segment_fixed_size + dynamic_lds_bytes
    by_lds = LDS_BYTES // lds if lds else WAVES_A_SIMD * SIMDS
    a_simd = min(WAVES_A_SIMD, REGISTER_FILE // code.descriptor.vgprs)
    return max(1, min(by_lds, a_simd * SIMDS // waves))


def read_loop(
    data: bytes,
    *,
    waves: int,
    dynamic_lds_bytes: int = 0,
    symbol: str | None = None,
    latency: int = 800,
    conflicts: dict[int, int] | None = None,
    steps: int = 12,
    facts: Facts | None = None,
) -> LoopReading | None:
    """Return the model's reading of the kernel's main loop, None where it has no loop with matrix instructions.

    `conflicts`: by pc, the ways of LDS bank conflicts (from `traffic`); 1 where absent.
    """
    code = read_code_object(data, symbol)
    candidates = [loop for loop in loops(code) if loop.mfma_count]
    if not candidates:
        return None
    resident = resident_workgroups(code, waves, dynamic_lds_bytes)
    a_simd = max(1, resident * waves // SIMDS)
    groups = max(1, min(resident, a_simd))
    simd = _Simd(candidates[0].body, a_simd, groups, latency, facts or Facts(), conflicts or {})
    clocks = simd.run(steps)
    busy = sum(4 * passes(inst) for inst in candidates[0].body if inst.is_mfma) * a_simd
    stalls = {pc: total / (steps * a_simd) for pc, total in sorted(simd.stalls.items()) if total}
    return LoopReading(
        latency=latency,
        resident_workgroups=resident,
        clocks_a_step=clocks / groups,
        mfma_clocks_a_step=busy // groups,
        mfma_share=min(1.0, busy / clocks) if clocks else 0.0,
        stalls=stalls,
    )


def _memory_bytes(inst: Instruction) -> int:
    """Return what one wave moves with a vector memory instruction."""
    size = {"byte": 1, "ubyte": 1, "short": 2, "ushort": 2, "dwordx2": 8, "dwordx3": 12, "dwordx4": 16}
    return 64 * size.get(inst.mnemonic.rsplit("_", 1)[1], 4)


class _Wave:
    """One wave: its place, when it may issue next, and what it waits for (times of completion, in order)."""

    __slots__ = ("at", "group", "lgkm", "marks", "step", "time", "vm")

    def __init__(self, group: int) -> None:
        self.group, self.at, self.step, self.time = group, 0, 0, 0.0
        self.vm: deque[float] = deque()
        self.lgkm: deque[float] = deque()
        self.marks: list[float] = []


class _Simd:
    """The shared pipes and the loop that serves the wave which can issue first."""

    def __init__(
        self,
        body: tuple[Instruction, ...],
        waves: int,
        groups: int,
        latency: int,
        facts: Facts,
        conflicts: dict[int, int],
    ) -> None:
        self.body, self.latency, self.facts, self.conflicts = body, latency, facts, conflicts
        self.waves = [_Wave(index * groups // waves) for index in range(waves)]
        self.matrix = self.valu = self.lds = self.memory = self.mfma_start = -1e9
        self.lds_queue: deque[float] = deque(maxlen=facts.lds_queue)
        self.flying: deque[tuple[float, int]] = deque()
        self.stalls: Counter[int] = Counter()
        self.arrived: dict[tuple[int, int], list[tuple[_Wave, float]]] = {}

    def run(self, steps: int) -> float:
        """Run every wave for `steps` iterations; return the clocks of one step while all are live."""
        ready = list(self.waves)
        while ready:
            wave = min(ready, key=lambda item: item.time)
            inst = self.body[wave.at]
            if inst.mnemonic == "s_barrier":
                self._barrier(wave, inst, ready)
            else:
                wave.time = self._issue(wave, inst)
            self._advance(wave, steps, ready)
        first = min(len(wave.marks) for wave in self.waves)
        skip = max(1, first // 4)
        if first <= skip + 1:
            return 0.0
        end = min(wave.marks[-1] for wave in self.waves)
        spans = []
        for wave in self.waves:
            marks = [mark for mark in wave.marks if mark <= end]
            if len(marks) > skip + 1:
                spans.append((marks[-1] - marks[skip]) / (len(marks) - 1 - skip))
        return sum(spans) / len(spans)

    def _advance(self, wave: _Wave, steps: int, ready: list[_Wave]) -> None:
        wave.at += 1
        if wave.at == len(self.body):
            wave.at = 0
            wave.step += 1
            wave.marks.append(wave.time)
            if wave.step == steps and wave in ready:
                ready.remove(wave)

    def _barrier(self, wave: _Wave, inst: Instruction, ready: list[_Wave]) -> None:
        """Waves of one workgroup on this SIMD meet; those on the others are taken to arrive alike."""
        key = (wave.group, wave.step * len(self.body) + wave.at)
        met = self.arrived.setdefault(key, [])
        met.append((wave, wave.time))
        ready.remove(wave)
        members = [item for item in self.waves if item.group == wave.group]
        if len(met) == len(members):
            release = max(time for _, time in met) + self.facts.issue
            for item, time in met:
                self.stalls[inst.pc] += int(release - self.facts.issue - time)
                item.time = release
                ready.append(item)

    def _issue(self, wave: _Wave, inst: Instruction) -> float:
        """Return when the wave may issue its next instruction, moving the pipes on."""
        facts, now = self.facts, wave.time
        if inst.mnemonic == "s_nop":
            return now + facts.issue * (inst.fields["simm16"] + 1)
        if inst.mnemonic == "s_waitcnt":
            vmcnt, _, lgkmcnt = wait_counts(inst.fields["simm16"])
            done = now
            for queue, most in ((wave.vm, vmcnt), (wave.lgkm, lgkmcnt)):
                while len(queue) > most:
                    done = max(done, queue.popleft())
            self.stalls[inst.pc] += int(done - now)
            return done + facts.issue
        if inst.is_mfma:
            start = max(now, self.matrix)
            self.matrix, self.mfma_start = start + 4 * passes(inst), start
            return start + facts.issue
        if inst.is_valu:
            start = max(now, self.valu, self.mfma_start + facts.mfma_blocks_valu)
            if inst.mnemonic.startswith("v_pk_"):
                start = max(start, self.matrix)
            trans = inst.mnemonic.startswith(("v_exp", "v_rcp", "v_rsq", "v_log", "v_sqrt"))
            self.valu = start + (facts.trans if trans else facts.issue)
            return start + facts.issue
        if inst.format == "DS":
            start = now
            if len(self.lds_queue) == facts.lds_queue:
                start = max(start, self.lds_queue[0])
            ways = self.conflicts.get(inst.pc, 1)
            cost = max(4, 64 * (access_bytes(inst) or 4) // facts.lds_bytes_a_clock) * ways
            self.lds = max(self.lds, start) + cost
            self.lds_queue.append(self.lds)
            wave.lgkm.append(self.lds + facts.lds_latency)
            return start + facts.issue
        if inst.is_vmem:
            size = _memory_bytes(inst)
            start = now
            while self.flying and (
                self.flying[0][0] <= start or sum(n for _, n in self.flying) + size > facts.in_flight_bytes
            ):
                start = max(start, self.flying.popleft()[0])
            self.memory = max(start + self.latency, self.memory + size / facts.memory_bytes_a_clock)
            self.flying.append((self.memory, size))
            wave.vm.append(self.memory)
            return start + facts.issue
        if inst.format == "SMEM":
            wave.lgkm.append(now + self.latency)
        return now + facts.issue


def readings(
    data: bytes, *, waves: int, dynamic_lds_bytes: int = 0, conflicts: dict[int, int] | None = None
) -> tuple[LoopReading, ...]:
    """Return the *model* at the three latencies that bracket L2 hits and memory."""
    found = (
        read_loop(data, waves=waves, dynamic_lds_bytes=dynamic_lds_bytes, latency=item, conflicts=conflicts)
        for item in LATENCIES
    )
    return tuple(item for item in found if item is not None)
