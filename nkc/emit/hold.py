"""Holding an object against its contract and its tactic's guarantees: what it says of itself must be what was asked.

Every disagreement is a `Reason` of stage `object`; all are found, not only the first.
"""

from typing import TYPE_CHECKING

from nkc.emit.source import CodeObject, Language, Parameter, Source
from nkc.ir import targets
from nkc.ir.contract import Contract
from nkc.ir.target import Target
from nkc.tactics.reason import Reason, StageName

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nkc.tactics.tactic import CodePattern, Tactic

HIDDEN_POINTERS: dict[Language, tuple[str, ...]] = {"triton": ("global_scratch", "profile_scratch"), "cuda": ()}
"""What a compiler appends to every kernel's parameters. Triton: two pointers, null while the object needs no memory."""

_POINTER_BYTES = 8
_MAP_BYTES, _MAP_ALIGNMENT = 128, 64  # CUtensorMap, by value
_BANK_BEGIN = 0x210  # of parameters in sm_90's constant bank: what they are aligned by. Source: listings of ptxas 13.5


def disagreement(predicate: str, field: str, wanted: object, actual: object) -> Reason:
    """Return the reason for one thing that the object says differently."""
    return Reason(stage=StageName.OBJECT, predicate=predicate, field=field, wanted=str(wanted), actual=str(actual))


def _size(parameter: Parameter) -> int:
    if parameter.type == "tensor_map":
        return _MAP_BYTES
    return _POINTER_BYTES if "*" in parameter.type else 4


def parameter_layout(
    parameters: tuple[Parameter, ...], language: Language = "triton"
) -> tuple[tuple[str, int, int], ...]:
    """Return name, offset and size (bytes) of every parameter, hidden pointers included, each naturally aligned."""
    layout, offset = [], 0
    sizes = [(item.name, _size(item)) for item in parameters]
    for name, size in [*sizes, *((name, _POINTER_BYTES) for name in HIDDEN_POINTERS[language])]:
        alignment = min(size, _MAP_ALIGNMENT)
        offset = -(-(_BANK_BEGIN + offset) // alignment) * alignment - _BANK_BEGIN
        layout.append((name, offset, size))
        offset += size
    return tuple(layout)


def _identity(built: CodeObject, source: Source, contract: Contract, target: Target) -> "Iterator[Reason]":
    resources = built.resources
    if resources.isa != target.isa:
        yield disagreement("object_isa", "$.target.arch", target.isa, resources.isa)
    flags = target.facts.get("elf_flags")
    if flags is not None and resources.elf_flags != flags.value:
        yield disagreement("object_elf_flags", "$.target.arch", hex(int(flags.value)), hex(resources.elf_flags))
    if resources.wave != contract.target.wave:
        yield disagreement("object_wave", "$.target.wave", contract.target.wave, resources.wave)
    if resources.symbol != source.symbol or built.symbol != source.symbol:
        yield disagreement("object_symbol", "$.arguments", source.symbol, resources.symbol)


def _arguments(built: CodeObject, source: Source) -> "Iterator[Reason]":
    wanted = parameter_layout(source.parameters, source.language)
    found = [
        (item.offset, item.size) for item in built.resources.arguments if not (item.kind or "").startswith("hidden_")
    ]
    if found != [(offset, size) for _, offset, size in wanted]:
        listing = ", ".join(f"{name} at {offset}+{size}" for name, offset, size in wanted)
        said = ", ".join(f"{offset}+{size}" for offset, size in found)
        yield disagreement("object_kernarg_layout", "$.arguments", listing, said)
    least = wanted[-1][1] + wanted[-1][2]
    if built.resources.kernarg_bytes < least:
        yield disagreement("object_kernarg_bytes", "$.arguments", f"at least {least}", built.resources.kernarg_bytes)


def _code(source: Source, contract: Contract) -> "Iterator[Reason]":
    written = contract.code
    if written is not None and (written.language, written.digest) != (source.language, source.digest):
        yield disagreement(
            "object_code", "$.code", f"{written.language} {written.digest}", f"{source.language} {source.digest}"
        )


def _launch(built: CodeObject, contract: Contract) -> "Iterator[Reason]":
    assert contract.launch is not None
    assert contract.launch.block is not None
    x, y, z = contract.launch.block
    threads, resources = x * y * z, built.resources
    if built.waves * resources.wave != threads:
        yield disagreement("object_waves", "$.launch.block", f"{threads} threads", built.waves * resources.wave)
    if resources.max_threads < threads:
        yield disagreement("object_max_threads", "$.launch.block", f"at least {threads}", resources.max_threads)


def _start(built: CodeObject, contract: Contract, tactic: "Tactic") -> "Iterator[Reason]":
    """Clusters fill the grid; the code waits for the kernels ahead, and lets the one behind begin, where it is to."""
    assert contract.launch is not None
    assert contract.launch.grid is not None
    resources, grid = built.resources, contract.launch.grid
    cluster = resources.cluster or (1, 1, 1)
    if any(extent % along for extent, along in zip(grid, cluster, strict=True)):
        wanted = f"whole clusters of {'x'.join(map(str, cluster))}"
        yield disagreement("object_cluster", "$.launch.grid", wanted, "x".join(map(str, grid)))
    said = f"{resources.grid_waits or 0} waits, {resources.grid_triggers or 0} triggers"
    if tactic.dependent and not (resources.grid_waits and resources.grid_triggers):
        wanted = "a wait for the kernels ahead and a trigger for the one behind"
        yield disagreement("object_dependent", "$.launch.dependent", wanted, said)
    if not tactic.dependent and not resources.starts_alone:
        yield disagreement("object_dependent", "$.launch.dependent", "neither wait nor trigger", said)


def _memory(built: CodeObject, contract: Contract, target: Target) -> "Iterator[Reason]":
    resources = built.resources
    fixed, dynamic = resources.lds_fixed_bytes, built.lds_dynamic_bytes
    if fixed + dynamic > target.lds_bytes:
        yield disagreement("object_lds_fits", "$.target.arch", f"at most {target.lds_bytes} bytes", fixed + dynamic)
    written = contract.lds
    if written is not None:
        if written.fixed_bytes not in (None, fixed):
            yield disagreement("object_lds", "$.lds.fixed_bytes", written.fixed_bytes, fixed)
        if written.dynamic_bytes not in (None, dynamic):
            yield disagreement("object_lds", "$.lds.dynamic_bytes", written.dynamic_bytes, dynamic)
    if resources.spilled_registers or resources.scratch_bytes or resources.dynamic_stack:
        said = f"{resources.spilled_registers or 0} spills, {resources.scratch_bytes} bytes of scratch a lane"
        yield disagreement("object_spills", "$.schedule", "no spill, no scratch", said)
    if built.scratch_bytes:
        yield disagreement("object_global_scratch", "$.workspace", 0, built.scratch_bytes)


def _guarantees(built: CodeObject, pattern: "CodePattern") -> "Iterator[Reason]":
    matrix = built.resources.matrix
    strangers = [use.mnemonic for use in matrix if not use.mnemonic.startswith(pattern.matrix)]
    allowed = " or ".join(pattern.matrix) or "none"
    if strangers:
        yield disagreement(
            "object_matrix_instructions", "$.numerics.accumulate", f"only {allowed}", ", ".join(strangers)
        )
    count = sum(use.count for use in matrix) if not strangers else 0
    if not strangers and count < pattern.at_least:
        yield disagreement(
            "object_matrix_instructions", "$.numerics.accumulate", f"at least {pattern.at_least} of {allowed}", count
        )
    fused = built.resources.fp32_fma
    if pattern.fp32_fma and (fused or 0) < pattern.fp32_fma:
        yield disagreement("object_fp32_fma", "$.numerics.accumulate", f"at least {pattern.fp32_fma} FFMA", fused or 0)
    if built.resources.denormals is False:
        yield disagreement("object_float_mode", "$.numerics.round", "to nearest even, denormals kept", "another mode")


def hold(built: CodeObject, source: Source, contract: Contract, tactic: "Tactic") -> tuple[Reason, ...]:
    """Return everything in which an object disagrees with its lowered contract and its tactic; empty when it holds."""
    target = targets.get(contract.target.arch)
    return (
        *_identity(built, source, contract, target),
        *_code(source, contract),
        *_arguments(built, source),
        *_launch(built, contract),
        *_start(built, contract, tactic),
        *_memory(built, contract, target),
        *_guarantees(built, tactic.kernel.pattern),
    )
