"""Draws the resources of a code object."""

from typing import TYPE_CHECKING

from nkc.cli.parts.console import draw, table

if TYPE_CHECKING:
    from nkc.emit.inspect.resources import Resources
    from nkc.verify.static import CheckResult


def draw_resources(resources: "Resources") -> None:
    """Print one object's resources and arguments."""
    rows = {
        "container": resources.container,
        "isa": resources.isa,
        "ELF flags": hex(resources.elf_flags),
        "symbol": resources.symbol,
        "wave": f"{resources.wave} lanes",
        "registers": f"{resources.registers} a lane",
        "accumulation registers": resources.accumulation_registers,
        "scalar registers": resources.sgprs,
        "spilled registers": resources.spilled_registers,
        "scratch": f"{resources.scratch_bytes} bytes a lane",
        "LDS, fixed": f"{resources.lds_fixed_bytes} bytes",
        "kernel arguments": f"{resources.kernarg_bytes} bytes",
        "largest workgroup": f"{resources.max_threads} threads",
        "cluster": "x".join(map(str, resources.cluster)) if resources.cluster else None,
        "dependent launch": _dependent(resources),
        "matrix instructions": ", ".join(f"{use.count} {use.mnemonic}" for use in resources.matrix) or "none",
    }
    drawn = table("resource", "value")
    for name, value in rows.items():
        if value is not None:
            drawn.add_row(name, str(value))
    arguments = table("argument", "offset", "size", "kind")
    for index, argument in enumerate(resources.arguments):
        arguments.add_row(argument.name or str(index), str(argument.offset), str(argument.size), argument.kind or "-")
    draw(drawn, arguments)


def _dependent(resources: "Resources") -> str | None:
    """Return what the code does about the kernels around it in the stream; None where it does nothing."""
    if resources.starts_alone:
        return None
    waits, triggers = resources.grid_waits or 0, resources.grid_triggers or 0
    return f"waits for the kernels ahead in {waits} places, lets the one behind begin in {triggers}"


def draw_checks(checks: "tuple[CheckResult, ...]") -> None:
    """Print every static check, what holds where it finds nothing, and what it found."""
    drawn = table("check", "held", "what holds", title="\nstatic checks")
    for result in checks:
        drawn.add_row(result.check, "yes" if result.held else "NO", result.told or result.holds)
    draw(drawn)
