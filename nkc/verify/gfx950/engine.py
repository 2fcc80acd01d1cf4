"""Run a batch of workgroups: lock-step execution, divergence, barriers, and the register checks before each step."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from nkc.verify.gfx950.hazards import HazardKind
from nkc.verify.gfx950.instruction import SGPR0, DecodeError
from nkc.verify.gfx950.operands import MissingFeatureError
from nkc.verify.gfx950.program import Node, Program
from nkc.verify.gfx950.waves import Batch, Waves

Array = npt.NDArray[Any]


def register_name(bit: int) -> str:
    """Return the assembler's name of a bit of a register set."""
    if bit >= SGPR0:
        s = bit - SGPR0
        return {106: "vcc_lo", 107: "vcc_hi", 124: "m0", 126: "exec_lo", 127: "exec_hi"}.get(s, f"s{s}")
    return f"a{bit - 256}" if bit >= 256 else f"v{bit}"


@dataclass(slots=True)
class Retired:
    """What a wait completed over a run: operations times waves, the registers they filled, their kinds."""

    operations: int = 0
    registers: int = 0
    kinds: set[str] = field(default_factory=set)

    def add(self, other: "Retired") -> None:
        """Take in what it completed elsewhere."""
        self.operations += other.operations
        self.registers |= other.registers
        self.kinds |= other.kinds


@dataclass(slots=True)
class BarrierUse:
    """LDS instructions between a barrier and the one before it, and the one behind it, over a run."""

    reads_before: int = 0
    writes_before: int = 0
    reads_after: int = 0
    writes_after: int = 0

    def add(self, other: "BarrierUse") -> None:
        """Take in what was counted elsewhere."""
        self.reads_before += other.reads_before
        self.writes_before += other.writes_before
        self.reads_after += other.reads_after
        self.writes_after += other.writes_after

    @property
    def orders_something(self) -> bool:
        """Whether an LDS access before it could conflict with one behind it."""
        writes_first = self.writes_before and (self.reads_after or self.writes_after)
        return bool(writes_first or (self.reads_before and self.writes_after))


EPOCHS = 0xFFFF  # the LDS shadow keeps 16 bits of the barrier count


class Engine:
    """Runs the waves of one batch to their end."""

    def __init__(self, program: Program, batch: Batch, budget: int) -> None:
        self.program = program
        self.batch = batch
        self.budget = budget
        self.steps = 0
        self.wave_steps = 0
        self.counts: dict[int, int] = {}
        self.retired: dict[int, Retired] = {}  # by pc of a wait: what it completed
        self.barriers: dict[int, BarrierUse] = {}
        self._live_registers: dict[int, int] | None = None

    def run(self, waves: Waves) -> None:
        """Run from `waves.pc` until every wave ended, stopped at a fault that ends the run, or the budget is gone."""
        runnable, waiting = [waves], list[Waves]()
        while runnable or waiting:
            if not runnable:
                released = self._release(waiting)
                assert released is not None, "all live waves wait, so some barrier is complete"
                runnable, waiting = released
                continue
            runnable.sort(key=lambda item: item.pc)
            current = runnable.pop(0)
            if runnable and self._join(current, runnable):
                continue
            limit = runnable[0].pc if runnable else -1
            outcome = self._advance(current, limit)
            if outcome == "stop":
                return
            if outcome == "barrier":
                waiting.append(current)
                if not runnable or len(waiting) > 8:
                    released = self._release(waiting)
                    if released:
                        runnable, waiting = runnable + released[0], released[1]
            elif outcome == "ended":
                np.subtract.at(self.batch.live, current.local, 1)
            elif isinstance(outcome, tuple):
                runnable.extend(outcome)
            else:
                runnable.append(current)

    def _join(self, current: Waves, runnable: list[Waves]) -> bool:
        """Merge `current` with a set at the same pc where the book-keeping allows it."""
        for position, other in enumerate(runnable):
            if other.pc != current.pc:
                return False
            if self._live_registers is None:
                self._live_registers = self.program.liveness()
            live = self._live_registers.get(current.pc, -1)
            if current.compatible(other, live):
                runnable[position] = current.join(other)
                return True
        return False

    def _advance(self, w: Waves, limit: int) -> str | tuple[Waves, Waves]:
        """Run one set until it ends, waits, splits, or (with `limit` >= 0) reaches another set's pc."""
        nodes = self.program._nodes
        counts = self.counts
        pc = w.pc
        while True:
            node = nodes.get(pc)
            if node is None:
                try:
                    node = self.program.node(pc)
                except DecodeError as error:
                    w.report(HazardKind.BAD_BRANCH, pc, 0, str(error))
                    return "stop"
            if node.reads & ~w.defined or node.touches & w.pending:
                self._check_registers(w, node)
            counts[pc] = counts.get(pc, 0) + w.count
            self.steps += 1
            if node.step is not None:
                node.step(w)
                w.defined |= node.writes
                pc = node.next_pc
            elif node.wait is not None:
                self._wait(w, pc, node.wait)
                pc = node.next_pc
            elif node.condition is not None:
                taken = node.condition(w)
                if taken.all():
                    pc = node.target
                elif not taken.any():
                    pc = node.next_pc
                else:
                    first, second = w.split(taken)
                    first.pc, second.pc = node.target, node.next_pc
                    return first, second
            elif node.jump:
                pc = node.target
            elif node.barrier:
                self._check_barrier(w, node)
                self._note_barrier(w, pc)
                w.pc = node.next_pc
                if int(w.epoch.max()) >= EPOCHS:
                    raise MissingFeatureError(f"more than {EPOCHS} barriers in one workgroup")
                if self._whole(w):
                    w.epoch = w.epoch + np.uint32(1)
                    pc = node.next_pc
                else:
                    return "barrier"
            else:
                self._note_barrier(w, -1)
                return "ended"
            if self.steps > self.budget:
                w.report(HazardKind.NO_TERMINATION, pc, 0, f"{self.budget} instructions")
                return "stop"
            if limit >= 0 and pc >= limit:
                w.pc = pc
                return "reached"

    def _wait(self, w: Waves, pc: int, counts: tuple[int, int]) -> None:
        before = w.vm + w.lgkm
        w.wait(*counts)
        left = {id(item) for item in w.vm + w.lgkm}
        done = [item for item in before if id(item) not in left]
        if done:
            seen = self.retired.setdefault(pc, Retired())
            seen.operations += len(done) * w.count
            for item in done:
                seen.registers |= item.mask
                seen.kinds.add(item.kind)

    def _note_barrier(self, w: Waves, pc: int) -> None:
        """Count the LDS accesses between barriers, for the barrier before them and the one behind."""
        for at, behind in ((w.last_barrier, True), (pc, False)):
            if at >= 0:
                use = self.barriers.setdefault(at, BarrierUse())
                if behind:
                    use.reads_after += w.lds_reads
                    use.writes_after += w.lds_writes
                else:
                    use.reads_before += w.lds_reads
                    use.writes_before += w.lds_writes
        w.lds_reads = w.lds_writes = 0
        w.last_barrier = pc

    def _whole(self, w: Waves) -> bool:
        """Whether all live waves of its workgroups are in this set."""
        arrived = np.bincount(w.local, minlength=len(self.batch.live))
        return bool((self.batch.live[w.local] == arrived[w.local]).all())

    def _release(self, waiting: list[Waves]) -> tuple[list[Waves], list[Waves]] | None:
        """Let workgroups go whose live waves all wait; return (released sets, sets that still wait)."""
        arrived = np.zeros(len(self.batch.live), np.int64)
        for w in waiting:
            arrived += np.bincount(w.local, minlength=len(arrived))
        complete = (arrived == self.batch.live) & (arrived > 0)
        if not complete.any():
            return None
        released, still = [], []
        for w in waiting:
            go = complete[w.local]
            if go.all():
                leaving: Waves | None = w
            elif not go.any():
                still.append(w)
                continue
            else:
                leaving, staying = w.split(go)
                still.append(staying)
            assert leaving is not None
            leaving.epoch = leaving.epoch + np.uint32(1)
            released.append(leaving)
        return released, still

    def _check_barrier(self, w: Waves, node: Node) -> None:
        writes = [item for item in w.lgkm if item.kind == "write"]
        if writes and self.batch.launch.checked:
            detail = f"the write at pc {writes[0].pc:#x}"
            w.report(HazardKind.LDS_OUTSTANDING_AT_BARRIER, node.inst.pc, 0, detail, w.count)

    def _check_registers(self, w: Waves, node: Node) -> None:
        """Report reads of undefined or pending registers and overwrites of pending ones."""
        if not self.batch.launch.checked:
            w.defined |= node.reads
            return
        inst = node.inst
        if undefined := node.reads & ~w.defined:
            name = register_name((undefined & -undefined).bit_length() - 1)
            w.report(HazardKind.UNINITIALISED_REGISTER, inst.pc, 0, name, w.count)
            w.defined |= undefined
        if early := node.reads & w.pending:
            self._report_pending(w, node, early, HazardKind.PENDING_READ)
        if late := node.writes & ~node.reads & w.pending:
            blocking = 0
            for item in w.vm + w.lgkm:
                # Loads of one counter return in order: the later one wins, as the program says.
                in_order = (
                    node.loads and item.kind != "scalar" and (item in w.vm) == inst.is_vmem and inst.format != "SMEM"
                )
                if not in_order:
                    blocking |= item.mask
            if late & blocking:
                self._report_pending(w, node, late & blocking, HazardKind.PENDING_WRITE)

    def _report_pending(self, w: Waves, node: Node, registers: int, kind: HazardKind) -> None:
        name = register_name((registers & -registers).bit_length() - 1)
        source = next((item.pc for item in w.vm + w.lgkm if item.mask & registers), 0)
        mnemonic = w.launch.mnemonics.get(source, "?")
        w.report(kind, node.inst.pc, 0, f"{name}, filled by {mnemonic} at pc {source:#x}", w.count)
