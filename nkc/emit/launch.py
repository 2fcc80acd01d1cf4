"""Lowers a built contract to `launch.json`: arguments at their offsets, and every unchecked promise as a guard."""

from nkc.emit.source import CodeObject
from nkc.ir import operations, targets
from nkc.ir.contract import Access, Bounded, Contract, DType, Layout
from nkc.ir.launch import (
    ArgumentKind,
    DistinctGuard,
    Extent,
    Guard,
    Launch,
    LaunchArgument,
    LaunchAttributes,
    LaunchLds,
    LaunchTarget,
    LaunchWorkspace,
    RangeGuard,
    TensorGuard,
)
from nkc.ir.scales import argument_name, extent, operand_extents, scale_extents, scale_strides
from nkc.tactics.tactic import Tactic


def launch_record(
    contract: Contract, tactic: Tactic, built: CodeObject, *, contract_id: str, object_name: str, sha256: str
) -> Launch:
    """Return the launch of a sealed contract's object."""
    assert contract.launch is not None
    assert contract.launch.grid is not None
    assert contract.launch.block is not None
    assert contract.workspace is not None
    workspace = contract.workspace
    return Launch(
        id=contract_id,
        operation=contract.operation,
        tactic=tactic.name,
        target=LaunchTarget(
            arch=contract.target.arch, isa=targets.get(contract.target.arch).isa, wave=contract.target.wave
        ),
        object=object_name,
        sha256=sha256,
        symbol=built.symbol,
        arguments=_arguments(contract, tactic, built),
        kernarg_bytes=built.resources.kernarg_bytes,
        grid=contract.launch.grid,
        block=contract.launch.block,
        lds=LaunchLds(fixed_bytes=built.resources.lds_fixed_bytes, dynamic_bytes=built.lds_dynamic_bytes),
        attributes=LaunchAttributes(
            cluster=built.resources.cluster or (1, 1, 1),
            programmatic_dependent_launch=contract.launch.dependent is True,
        ),
        workspace=LaunchWorkspace(bytes=workspace.bytes, alignment=workspace.alignment, init=workspace.init),
        guards=guards(contract, tactic),
        deterministic=tactic.guarantees.deterministic,
        graph_capture=tactic.guarantees.graph_capture,
    )


def _arguments(contract: Contract, tactic: Tactic, built: CodeObject) -> tuple[LaunchArgument, ...]:
    """Visible arguments in the contract's order, then what the toolchain appended."""
    visible = contract.arguments or ()
    placed = built.resources.arguments
    maps = tactic.kernel.tensor_maps(contract, tactic)
    early = tactic.before_the_wait.of(contract) if tactic.before_the_wait is not None else ()
    listed = []
    for argument, place in zip(visible, placed, strict=False):
        pointer = argument.type.startswith("ptr<")
        tensor_map = maps.get(argument.name)
        kind = ArgumentKind.POINTER if pointer else ArgumentKind.INT32
        listed.append(
            LaunchArgument(
                name=argument.name,
                kind=kind if tensor_map is None else ArgumentKind.TENSOR_MAP,
                offset=place.offset,
                size=place.size,
                dtype=DType(argument.type[4:-1]) if pointer else None,
                access=argument.access if pointer else None,
                dim=None if pointer else argument.name,
                tensor_map=tensor_map,
                constant=argument.name in early,
            )
        )
    for index, place in enumerate(placed[len(visible) :]):
        implicit = place.kind if place.kind is not None and place.kind.startswith("hidden_") else None
        listed.append(
            LaunchArgument(
                name=implicit or f"scratch_{index}",
                kind=ArgumentKind.IMPLICIT if implicit else ArgumentKind.SCRATCH,
                offset=place.offset,
                size=place.size,
                hidden=True,
                implicit=implicit,
            )
        )
    return tuple(listed)


def guards(contract: Contract, tactic: Tactic) -> tuple[Guard, ...]:
    """Return what a launcher has to check: ranges of bounded dims, then tensors in argument order, then overlaps."""
    ranges = tuple(
        RangeGuard(dim=name, min=dim.min, max=dim.max)
        for name, dim in contract.shape.items()
        if isinstance(dim, Bounded)
    )
    shapes = _tensors(contract)
    tensors = tuple(
        TensorGuard(
            argument=argument.name,
            dtype=DType(argument.type[4:-1]),
            shape=shapes[argument.name][0],
            strides=shapes[argument.name][1],
            alignment=tactic.promised_alignment(argument.name) or DType(argument.type[4:-1]).size_bytes,
        )
        for argument in contract.arguments or ()
        if argument.name in shapes
    )
    pointers = [argument for argument in contract.arguments or () if argument.type.startswith("ptr<")]
    distinct = tuple(
        DistinctGuard(argument=written.name, others=others)
        for index, written in enumerate(pointers)
        if written.access is not Access.READ
        and (
            others := tuple(
                other.name
                for place, other in enumerate(pointers)
                if other is not written and (other.access is Access.READ or place < index)
            )
        )
    )
    return (*ranges, *tensors, *distinct)


def _tensors(contract: Contract) -> dict[str, tuple[tuple[Extent, ...], tuple[Extent, ...]]]:
    """Return shape and strides (elements) of every tensor argument by name; the workspace is the launcher's own."""
    operation = operations.get(contract.operation)
    found: dict[str, tuple[tuple[Extent, ...], tuple[Extent, ...]]] = {}
    for operand in operation.present(contract.dtypes):
        shape = operand_extents(contract, operand)
        assert contract.layouts[operand.name] in (Layout.ROW_MAJOR, Layout.ROW_MAJOR_NK), "no kernel serves another"
        strides = (shape[1], Extent(value=1)) if len(shape) == 2 else (Extent(value=1),)
        found[operand.name] = shape, strides
        if operand.name in contract.scales:
            found[argument_name(operand.name)] = scale_extents(contract, operand), scale_strides(contract, operand)
    if contract.epilogue.dtype is not None:
        found["bias"] = (extent(contract, "n"),), (Extent(value=1),)
    return found
