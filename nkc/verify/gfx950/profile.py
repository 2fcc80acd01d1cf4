"""One reading of a kernel's performance from its code and one emulated run. All of it is a *model* or a count.

It explains and shortlists. It never ranks a release, and it knows no microseconds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from nkc.verify.gfx950.emulate import emulate
from nkc.verify.gfx950.launch import LaunchSpec
from nkc.verify.gfx950.loop_model import LATENCIES, LoopReading, read_loop
from nkc.verify.gfx950.traffic import Access, Traffic

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitReading:
    """One wait: how many operations it completed in the run, and clocks a loop step that the *model* stalls there."""

    pc: int
    operations: int
    stalled: tuple[float, ...]  # at each latency of `LATENCIES`; empty outside the loop


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Counts of one run (exact for its inputs) and the loop *model* at three memory latencies."""

    memory: dict[int, Access]
    lds: dict[int, Access]
    waits: tuple[WaitReading, ...]
    loop: tuple[LoopReading, ...]
    instructions: dict[str, int]
    workgroups: tuple[int, ...]
    label: str = "model"

    @property
    def coalescing(self) -> float:
        """Least 128-byte lines over touched lines, over all accesses: 1 is perfect."""
        lines = sum(item.lines for item in self.memory.values())
        return sum(item.least_lines for item in self.memory.values()) / lines if lines else 1.0

    @property
    def conflict_ways(self) -> int:
        """Worst LDS bank conflict: 1 is free of conflicts."""
        return max((item.conflict_ways for item in self.lds.values()), default=1)


def profile(
    data: bytes, launch: LaunchSpec, buffers: Mapping[str, Array], *, workgroups: Sequence[int] | None = None
) -> Profile:
    """Run the chosen workgroups once with a trace and read the main loop. Errors: as `emulate`."""
    traffic = Traffic()
    report = emulate(data, launch, buffers, workgroups=workgroups, trace=traffic)
    conflicts = {pc: item.conflict_ways for pc, item in traffic.lds.items()}
    found = (
        read_loop(
            data,
            waves=launch.waves,
            dynamic_lds_bytes=launch.dynamic_lds_bytes,
            symbol=launch.symbol,
            latency=latency,
            conflicts=conflicts,
        )
        for latency in LATENCIES
    )
    loop = tuple(item for item in found if item is not None)
    waits = []
    for pc in sorted({*report.retired, *(pc for item in loop for pc in item.stalls)}):
        seen = report.retired.get(pc)
        stalled = tuple(item.stalls.get(pc, 0.0) for item in loop)
        waits.append(
            WaitReading(pc=pc, operations=seen.operations if seen else 0, stalled=stalled if any(stalled) else ())
        )
    return Profile(
        memory=dict(sorted(traffic.memory.items())),
        lds=dict(sorted(traffic.lds.items())),
        waits=tuple(waits),
        loop=loop,
        instructions=report.instructions,
        workgroups=report.workgroups,
    )
