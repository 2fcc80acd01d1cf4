"""Draws a profile: counts of the traced run, and the loop model, which is labelled as one everywhere."""

from typing import TYPE_CHECKING

from nkc.cli.parts.console import draw, table

if TYPE_CHECKING:
    from nkc.verify.gfx950.profile_record import ProfileRecord


def draw_profile(found: "ProfileRecord") -> None:
    """Print memory accesses, LDS accesses, waits, and the model of the main loop."""
    ran = f"{len(found.workgroups)} of {found.workgroups_total} workgroups traced"
    memory = table(
        "pc",
        "memory access",
        "waves",
        "bytes",
        "lines",
        "least",
        "coalescing",
        title=f"\nmemory, counted ({ran}): coalescing {found.coalescing:.2f}",
    )
    for access in found.memory:
        memory.add_row(
            f"{access.pc:#x}",
            access.instruction,
            str(access.waves),
            str(access.bytes),
            str(access.lines),
            str(access.least_lines),
            f"{access.coalescing:.2f}",
        )
    lds = table(
        "pc",
        "LDS access",
        "waves",
        "bytes",
        "conflict",
        title=f"\nLDS, counted: worst bank conflict {found.conflict_ways}-way (1 is none)",
    )
    for item in found.lds:
        lds.add_row(f"{item.pc:#x}", item.instruction, str(item.waves), str(item.bytes), f"{item.conflict_ways}-way")
    latencies = [str(reading.latency_clocks) for reading in found.loop]
    waits = table(
        "pc",
        "wait",
        "completed",
        *(f"model: stalls at {latency}" for latency in latencies),
        title="\nwaits: operations completed, counted; clocks stalled a loop step, model",
    )
    for wait in found.waits:
        stalled = [f"{clocks:g}" for clocks in wait.model_stalled_clocks] or ["-"] * len(latencies)
        waits.add_row(f"{wait.pc:#x}", wait.instruction, str(wait.operations), *stalled)
    draw(memory, *([lds] if found.lds else []), waits)
    if not found.loop:
        return
    loop = table(
        "latency, clocks",
        "workgroups a compute unit",
        "clocks a step",
        "MFMA clocks a step",
        "MFMA share",
        title="\nmain loop, model (explains and shortlists; no time is claimed, nobody has run the chip)",
    )
    for reading in found.loop:
        loop.add_row(
            str(reading.latency_clocks),
            str(reading.resident_workgroups),
            f"{reading.clocks_a_step:g}",
            str(reading.mfma_clocks_a_step),
            f"{reading.mfma_share:.0%}",
        )
    draw(loop)
