"""A profile as it is printed and written: every access, wait and loop reading beside the instruction it belongs to."""

from typing import Literal

import msgspec

from nkc.ir.launch import Launch
from nkc.verify.gfx950.code_object import read_code_object
from nkc.verify.gfx950.flow import reachable
from nkc.verify.gfx950.launch import LaunchSpec
from nkc.verify.gfx950.listing import instruction_text
from nkc.verify.gfx950.profile import Profile, profile
from nkc.verify.gfx950.sampling import choose_workgroups
from nkc.verify.gfx950.stand_in import largest_dims, stand_in_buffers

PROFILE_SCHEMA: Literal["nkc.profile/1"] = "nkc.profile/1"
WORKGROUPS = 2
"""Workgroups that are traced, corners of the grid. All of them where a kernel has atomics."""


class _Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Frozen, keyword-only, strict."""


class MemoryRecord(_Record, frozen=True, kw_only=True):
    """One vector memory instruction. Counted: exact for the traced workgroups.

    lines: distinct 128-byte lines, summed over waves. least_lines: what its bytes need when packed. coalescing: the
    second over the first; 1 is perfect.
    """

    pc: int
    instruction: str
    waves: int
    bytes: int
    lines: int
    least_lines: int
    coalescing: float


class LdsRecord(_Record, frozen=True, kw_only=True):
    """One LDS instruction. Counted.

    conflict_ways: most dwords that one bank gives in a phase; 1 is free of conflicts.
    """

    pc: int
    instruction: str
    waves: int
    bytes: int
    conflict_ways: int


class WaitRecord(_Record, frozen=True, kw_only=True):
    """One wait or barrier. operations: what it completed in the run, counted.

    model_stalled_clocks: clocks a step of the main loop at each latency of `loop`, by the model; empty outside of it.
    """

    pc: int
    instruction: str
    operations: int
    model_stalled_clocks: tuple[float, ...] = ()


class LoopRecord(_Record, frozen=True, kw_only=True):
    """The model's reading of the main loop at one memory latency.

    clocks_a_step: of one workgroup. mfma_share: of the time that the matrix pipe is busy.
    """

    latency_clocks: int
    resident_workgroups: int
    clocks_a_step: float
    mfma_clocks_a_step: int
    mfma_share: float
    label: Literal["model"] = "model"


class ProfileRecord(_Record, frozen=True, kw_only=True):
    """What one emulated run and the listing say of performance. No time, and no ranking: nobody has run the chip."""

    schema: Literal["nkc.profile/1"] = PROFILE_SCHEMA
    symbol: str
    workgroups: tuple[int, ...]
    workgroups_total: int
    coalescing: float
    conflict_ways: int
    memory: tuple[MemoryRecord, ...]
    lds: tuple[LdsRecord, ...]
    waits: tuple[WaitRecord, ...]
    loop: tuple[LoopRecord, ...]
    instructions: dict[str, int]


def profile_object(data: bytes, launch: Launch, spec: LaunchSpec) -> ProfileRecord:
    """Trace an object under its launch, bounded dims at their largest, and read its main loop. Errors: as `emulate`."""
    insts = reachable(read_code_object(data, launch.symbol))
    atomics = any("_atomic_" in inst.mnemonic for inst in insts.values())
    chosen = None if atomics else choose_workgroups(spec.grid, WORKGROUPS)
    found = profile(data, spec, stand_in_buffers(launch, largest_dims(launch)), workgroups=chosen)
    return _record(found, launch, spec, {pc: instruction_text(inst) for pc, inst in insts.items()})


def _record(found: Profile, launch: Launch, spec: LaunchSpec, text: dict[int, str]) -> ProfileRecord:
    return ProfileRecord(
        symbol=launch.symbol,
        workgroups=found.workgroups,
        workgroups_total=spec.workgroups,
        coalescing=round(found.coalescing, 4),
        conflict_ways=found.conflict_ways,
        memory=tuple(
            MemoryRecord(
                pc=pc,
                instruction=text[pc],
                waves=item.waves,
                bytes=item.bytes,
                lines=item.lines,
                least_lines=item.least_lines,
                coalescing=round(item.coalescing, 4),
            )
            for pc, item in found.memory.items()
        ),
        lds=tuple(
            LdsRecord(pc=pc, instruction=text[pc], waves=item.waves, bytes=item.bytes, conflict_ways=item.conflict_ways)
            for pc, item in found.lds.items()
        ),
        waits=tuple(
            WaitRecord(
                pc=item.pc,
                instruction=text[item.pc],
                operations=item.operations,
                model_stalled_clocks=tuple(round(clocks, 1) for clocks in item.stalled),
            )
            for item in found.waits
        ),
        loop=tuple(
            LoopRecord(
                latency_clocks=item.latency,
                resident_workgroups=item.resident_workgroups,
                clocks_a_step=round(item.clocks_a_step, 1),
                mfma_clocks_a_step=item.mfma_clocks_a_step,
                mfma_share=round(item.mfma_share, 4),
            )
            for item in found.loop
        ),
        instructions=found.instructions,
    )
