"""The state of a set of waves that run in lock-step, and what their workgroups share.

Registers are structure-of-arrays: `V[register, wave, lane]`, AGPR r at 256 + r; `S[wave, register]` in the
numbering of the scalar encodings (VCC 106, M0 124, EXEC 126). Everything starts poisoned.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from nkc.verify.gfx950.hazards import HazardKind, HazardLog
from nkc.verify.gfx950.lds import Lds
from nkc.verify.gfx950.memory import Arena
from nkc.verify.gfx950.sync import Synchronisation

Array = npt.NDArray[Any]

LANES = 64
SCALARS = 128
VCC, M0, EXEC = 106, 124, 126
VECTOR_POISON = 0x7FC0DEAD
SCALAR_POISON = 0xDEADBEEF
LANE = np.arange(LANES)
MODE_START = 0xF0 | 1 << 8 | 1 << 9  # denormals kept, dx10_clamp, ieee; rounding to nearest even
FP16_OVFL = 1 << 23


@dataclass(slots=True)
class Outstanding:
    """One memory operation that has been issued and not yet waited for."""

    kind: str  # "load", "store", "atomic", "dma", "read", "write", "scalar"
    mask: int  # registers that it will fill
    pc: int
    land: Callable[["Waves", int, tuple[Array, ...]], None] | None = None  # what happens when it completes
    arrays: tuple[Array, ...] = ()  # per wave, handed to `land`

    def take(self, index: Array) -> "Outstanding":
        """Return the part that belongs to a subset of the waves."""
        return Outstanding(self.kind, self.mask, self.pc, self.land, tuple(item[index] for item in self.arrays))

    def same_as(self, other: "Outstanding") -> bool:
        """Whether both are the same instruction's operation, issued by different waves."""
        return (self.kind, self.mask, self.pc, self.land) == (other.kind, other.mask, other.pc, other.land)

    def join(self, other: "Outstanding", order: Array) -> "Outstanding":
        """Return the operation of both sets of waves."""
        arrays = tuple(np.concatenate([a, b])[order] for a, b in zip(self.arrays, other.arrays, strict=True))
        return Outstanding(self.kind, self.mask, self.pc, self.land, arrays)


@dataclass(slots=True)
class Launch:
    """What all workgroups of a launch share."""

    arena: Arena
    log: HazardLog
    sync: Synchronisation
    late_dma: bool
    checked: bool
    mnemonics: dict[int, str]
    trace: Callable[..., None] | None = None


@dataclass(slots=True)
class Batch:
    """What the workgroups that run together share."""

    launch: Launch
    lds: Lds
    scratch: Array  # uint8 [wave, lane, bytes]
    scratch_defined: Array
    dma_in_flight: int = 0
    live: Array = field(default_factory=lambda: np.zeros(0, np.int64))  # waves that have not ended, per workgroup


class Waves:
    """Waves at one pc. `local` is the workgroup's number in the batch, `workgroup` in the grid."""

    __slots__ = (
        "F",
        "S",
        "S64",
        "SF",
        "V",
        "batch",
        "defined",
        "epoch",
        "full",
        "last_barrier",
        "launch",
        "lds_reads",
        "lds_writes",
        "lgkm",
        "local",
        "mask",
        "mode",
        "next",
        "pc",
        "pending",
        "row",
        "scc",
        "vm",
        "wave_id",
        "workgroup",
    )

    def __init__(
        self, batch: Batch, registers: int, *, local: Array, workgroup: Array, wave_id: Array, row: Array
    ) -> None:
        count = len(local)
        self.batch, self.launch = batch, batch.launch
        self.local, self.workgroup, self.wave_id, self.row = local, workgroup, wave_id, row
        self.epoch = np.ones(count, np.uint32)
        self.scc = np.zeros(count, bool)
        self.mask = np.ones((count, LANES), bool)
        self.full = True
        self.pc = self.next = 0
        self.defined = self.pending = 0
        self.vm: list[Outstanding] = []
        self.lgkm: list[Outstanding] = []
        self.mode = MODE_START
        self.lds_reads = self.lds_writes = 0  # since the last barrier
        self.last_barrier = -1
        self._bind(
            np.full((registers, count, LANES), VECTOR_POISON, np.uint32),
            np.full((count, SCALARS), SCALAR_POISON, np.uint32),
        )
        self.S64[:, EXEC // 2] = np.uint64(0xFFFFFFFFFFFFFFFF)

    def _bind(self, vector: Array, scalar: Array) -> None:
        self.V, self.F = vector, vector.view(np.float32)
        self.S, self.SF, self.S64 = scalar, scalar.view(np.float32), scalar.view(np.uint64)

    @property
    def count(self) -> int:
        """Number of waves."""
        return len(self.local)

    # EXEC -------------------------------------------------------------------------------------------------
    def exec_changed(self) -> None:
        """Rebuild the lane mask after EXEC was written."""
        self.mask = lanes_of(self.S64[:, EXEC // 2])
        self.full = bool(self.mask.all())

    # reports ----------------------------------------------------------------------------------------------
    def report(self, kind: HazardKind, pc: int, wave: int, detail: str, count: int = 1) -> None:
        """Record a fault of wave number `wave` of this set."""
        self.launch.log.add(
            kind,
            pc,
            self.launch.mnemonics.get(pc, "?"),
            int(self.workgroup[wave]),
            int(self.wave_id[wave]),
            detail,
            count,
        )

    def lane_marks(self, lanes: Array) -> tuple[Array, Array]:
        """Return (epoch, wave bit) as uint32 [n, 1] for the chosen lanes in row-major order."""
        counts = lanes.sum(axis=1)
        bits = np.uint32(1) << self.wave_id.astype(np.uint32)
        return np.repeat(self.epoch, counts)[:, None], np.repeat(bits, counts)[:, None]

    # waits ------------------------------------------------------------------------------------------------
    def wait(self, vmcnt: int, lgkmcnt: int) -> None:
        """Retire operations until at most `vmcnt` and `lgkmcnt` can be outstanding.

        Scalar loads complete in any order, so only lgkmcnt(0) retires them and, beside them, an LDS operation
        is certainly complete only when fewer younger LDS operations than the count remain.
        """
        if len(self.vm) > vmcnt:
            flat = any(item.kind == "flat" for item in self.vm)
            keep = len(self.vm) if flat and vmcnt else vmcnt
            self.vm = self._retire(self.vm, len(self.vm) - keep)
        if len(self.lgkm) > lgkmcnt:
            if lgkmcnt == 0:
                self.lgkm = self._retire(self.lgkm, len(self.lgkm))
            else:
                ordered = [item for item in self.lgkm if item.kind not in ("scalar", "flat")]
                gone = {id(item) for item in ordered[: max(0, len(ordered) - lgkmcnt)]}
                self._retire([item for item in ordered if id(item) in gone], len(gone))
                self.lgkm = [item for item in self.lgkm if id(item) not in gone]
        pending = 0
        for item in self.vm:
            pending |= item.mask
        for item in self.lgkm:
            pending |= item.mask
        self.pending = pending

    def _retire(self, queue: list[Outstanding], count: int) -> list[Outstanding]:
        for item in queue[:count]:
            if item.land is not None:
                item.land(self, item.pc, item.arrays)
        return queue[count:]

    # splitting and joining --------------------------------------------------------------------------------
    def split(self, take: Array) -> tuple["Waves", "Waves"]:
        """Return (waves where `take`, the others); this set must not be used afterwards."""
        return self._subset(np.flatnonzero(take)), self._subset(np.flatnonzero(~take))

    def _subset(self, index: Array) -> "Waves":
        out = object.__new__(Waves)
        out.batch, out.launch = self.batch, self.launch
        for name in ("local", "workgroup", "wave_id", "row", "epoch", "scc", "mask"):
            setattr(out, name, getattr(self, name)[index])
        out.full = bool(out.mask.all())
        out.pc, out.next, out.mode = self.pc, self.next, self.mode
        out.lds_reads, out.lds_writes, out.last_barrier = self.lds_reads, self.lds_writes, self.last_barrier
        out.defined, out.pending = self.defined, self.pending
        out.vm = [item.take(index) for item in self.vm]
        out.lgkm = [item.take(index) for item in self.lgkm]
        out._bind(np.ascontiguousarray(self.V[:, index]), np.ascontiguousarray(self.S[index]))
        return out

    def compatible(self, other: "Waves", live: int) -> bool:
        """Whether the two sets may go on as one: same place, and the same book-keeping where it matters.

        `live` are the registers that are still read from here on.
        """
        return (
            self.pc == other.pc
            and self.last_barrier == other.last_barrier
            and self.mode == other.mode
            and (self.defined ^ other.defined) & live == 0
            and len(self.vm) == len(other.vm)
            and len(self.lgkm) == len(other.lgkm)
            and all(a.same_as(b) for a, b in zip(self.vm + self.lgkm, other.vm + other.lgkm, strict=True))
        )

    def join(self, other: "Waves") -> "Waves":
        """Return one set that holds the waves of both, ordered by their row in the batch."""
        out = object.__new__(Waves)
        row = np.concatenate([self.row, other.row])
        order = np.argsort(row, kind="stable")
        out.batch, out.launch = self.batch, self.launch
        for name in ("local", "workgroup", "wave_id", "row", "epoch", "scc", "mask"):
            setattr(out, name, np.concatenate([getattr(self, name), getattr(other, name)])[order])
        out.full = bool(out.mask.all())
        out.pc, out.next, out.mode = self.pc, self.next, self.mode
        out.lds_reads, out.lds_writes = self.lds_reads + other.lds_reads, self.lds_writes + other.lds_writes
        out.last_barrier = self.last_barrier
        out.defined, out.pending = self.defined & other.defined, self.pending
        out.vm = [a.join(b, order) for a, b in zip(self.vm, other.vm, strict=True)]
        out.lgkm = [a.join(b, order) for a, b in zip(self.lgkm, other.lgkm, strict=True)]
        out._bind(
            np.ascontiguousarray(np.concatenate([self.V, other.V], axis=1)[:, order]),
            np.ascontiguousarray(np.concatenate([self.S, other.S])[order]),
        )
        return out


def lanes_of(bits: Array) -> Array:
    """Return uint64 [W] as bool [W, 64], bit 0 first."""
    raw = np.ascontiguousarray(bits).view(np.uint8).reshape(len(bits), 8)
    return np.unpackbits(raw, axis=1, bitorder="little").view(bool)


def bits_of(lanes: Array) -> Array:
    """Return bool [W, 64] as uint64 [W]."""
    return np.packbits(lanes, axis=1, bitorder="little").view(np.uint64)[:, 0]
