"""What the emulator reports besides values: typed faults, each located by pc, mnemonic, workgroup and wave."""

import enum
from dataclasses import dataclass, field


class HazardKind(enum.Enum):
    """One word per detector."""

    PENDING_READ = "a register is read before the wait for the operation that fills it"
    PENDING_WRITE = "a register is overwritten while an operation that fills it is outstanding"
    UNINITIALISED_REGISTER = "a register is read that nothing has written"
    UNINITIALISED_LDS = "LDS bytes are read that nothing has written"
    LDS_RACE = "two waves touch the same LDS bytes between barriers and one of them writes"
    LDS_PENDING_DMA = "LDS bytes are touched while a load into them is outstanding"
    LDS_OUTSTANDING_AT_BARRIER = "a wave passes a barrier with an LDS write outstanding"
    LDS_READ_ACROSS_BARRIER = "an LDS read outstanding at a barrier overlaps a write behind it"
    LDS_OUT_OF_BOUNDS = "an LDS access lies outside the workgroup's allocation"
    OUT_OF_BOUNDS = "a memory access lies outside every buffer"
    NOT_READABLE = "memory is read that the launch does not define"
    NOT_WRITABLE = "a store goes to a buffer that the launch only reads"
    WORKGROUP_OVERLAP = "two workgroups write the same bytes"
    MEMORY_RACE = "memory that another wave stored is read without a wait and a barrier between"
    CROSS_WORKGROUP_READ = "bytes of another workgroup are read without release and acquire between"
    NO_TERMINATION = "the instruction budget is used up"
    BAD_BRANCH = "control leaves the kernel's code"
    DMA_ORDER_DEPENDENCE = "the outcome depends on when a load into LDS lands"
    STALL_MISSING = "an instruction follows another too soon and the assembler does not insert the wait states"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hazard:
    """One fault; `count` is how many lanes (or bytes, or waves) showed it at this pc."""

    kind: HazardKind
    pc: int
    mnemonic: str
    workgroup: int
    wave: int
    detail: str
    count: int = 1

    def __str__(self) -> str:
        where = f"pc {self.pc:#x} {self.mnemonic}, workgroup {self.workgroup}, wave {self.wave}"
        return f"{where}: {self.kind.value} ({self.detail}; {self.count} times)"


@dataclass(slots=True)
class HazardLog:
    """Collects faults; the first of each (kind, pc) is kept in full, later ones are counted."""

    first: dict[tuple[HazardKind, int], Hazard] = field(default_factory=dict)
    counts: dict[tuple[HazardKind, int], int] = field(default_factory=dict)

    def add(
        self, kind: HazardKind, pc: int, mnemonic: str, workgroup: int, wave: int, detail: str, count: int = 1
    ) -> None:
        """Record one fault."""
        key = (kind, pc)
        if key not in self.first:
            self.first[key] = Hazard(kind=kind, pc=pc, mnemonic=mnemonic, workgroup=workgroup, wave=wave, detail=detail)
        self.counts[key] = self.counts.get(key, 0) + count

    def hazards(self) -> tuple[Hazard, ...]:
        """Return what was found, ordered by pc and kind."""
        out = []
        for key, hazard in sorted(self.first.items(), key=lambda item: (item[0][1], item[0][0].name)):
            out.append(
                Hazard(
                    kind=hazard.kind,
                    pc=hazard.pc,
                    mnemonic=hazard.mnemonic,
                    workgroup=hazard.workgroup,
                    wave=hazard.wave,
                    detail=hazard.detail,
                    count=self.counts[key],
                )
            )
        return tuple(out)

    def merge(self, others: tuple[Hazard, ...]) -> None:
        """Take in faults found elsewhere (another process)."""
        for item in others:
            self.add(item.kind, item.pc, item.mnemonic, item.workgroup, item.wave, item.detail, item.count)
