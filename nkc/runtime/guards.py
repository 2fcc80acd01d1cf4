"""The guards of a launch record, evaluated exactly on views of the caller's tensors.

This is the meaning of a guard. The straight-line check that a launch runs first (`nkc.runtime.specialise`) may only
be stricter: whatever it does not recognise comes here, and here alone a call is refused.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from nkc.ir.launch import ArgumentKind, DistinctGuard, Launch, RangeGuard, TensorGuard
from nkc.runtime.errors import BundleError, Violation
from nkc.runtime.tensor import View, row_major

WORKSPACE = "workspace"


@dataclass(frozen=True, slots=True, kw_only=True)
class DimSource:
    """Where the value of a bounded dim is read: an axis of an argument's tensor."""

    argument: str
    axis: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardSet:
    """The guards of one launch record, sorted by kind. tensors: in the caller's argument order."""

    tensors: tuple[TensorGuard, ...]
    ranges: tuple[RangeGuard, ...]
    distinct: tuple[DistinctGuard, ...]
    sources: Mapping[str, DimSource]

    @classmethod
    def of(cls, launch: Launch) -> "GuardSet":
        """Return the guards of `launch`, checked to be complete.

        Errors: BundleError where a pointer has no tensor guard, or a bounded dim appears in no tensor as it is.
        """
        by_name = {guard.argument: guard for guard in launch.guards if isinstance(guard, TensorGuard)}
        tensors = tuple(by_name[name] for name in caller_arguments(launch) if name in by_name)
        if missing := [name for name in caller_arguments(launch) if name not in by_name]:
            raise BundleError(f"{launch.id}: no tensor guard for the pointer `{missing[0]}` (compile the bundle again)")
        ranges = tuple(guard for guard in launch.guards if isinstance(guard, RangeGuard))
        sources = {}
        for guard in ranges:
            sources[guard.dim] = _source(launch, tensors, guard.dim)
        carried = {argument.dim for argument in launch.arguments if argument.dim is not None}
        if unguarded := sorted(carried - set(sources)):
            raise BundleError(f"{launch.id}: no range guard for the dim `{unguarded[0]}` (compile the bundle again)")
        distinct = tuple(guard for guard in launch.guards if isinstance(guard, DistinctGuard))
        return cls(tensors=tensors, ranges=ranges, distinct=distinct, sources=sources)


def caller_arguments(launch: Launch) -> tuple[str, ...]:
    """Return the names of the tensors that a caller passes, in order: visible pointers and maps but the workspace."""
    return tuple(
        argument.name
        for argument in launch.arguments
        if argument.kind in (ArgumentKind.POINTER, ArgumentKind.TENSOR_MAP)
        and not argument.hidden
        and argument.name != WORKSPACE
    )


def _source(launch: Launch, tensors: tuple[TensorGuard, ...], dim: str) -> DimSource:
    for guard in tensors:
        for axis, extent in enumerate(guard.shape):
            if extent.dim == dim and extent.divisor == 1 and extent.multiple_of == 1:
                return DimSource(argument=guard.argument, axis=axis)
    raise BundleError(f"{launch.id}: no tensor has `{dim}` as an extent, so a launcher cannot read it")


def check(guards: GuardSet, views: Mapping[str, View], device: int) -> tuple[dict[str, int], tuple[Violation, ...]]:
    """Return the values of the bounded dims and every guard that fails, in the order of the arguments.

    Where a tensor has the wrong rank its other guards are not evaluated: they would only repeat it.
    """
    dims: dict[str, int] = {}
    failed: list[Violation] = []
    for guard in guards.tensors:
        if len(views[guard.argument].shape) != len(guard.shape):
            actual = _words(views[guard.argument].shape)
            failed.append(_violation("shape", guard, f"{len(guard.shape)} axes", actual))
    if failed:
        return dims, tuple(failed)
    for bounded in guards.ranges:
        source = guards.sources[bounded.dim]
        dims[bounded.dim] = value = views[source.argument].shape[source.axis]
        if not bounded.min <= value <= bounded.max:
            wanted = f"{bounded.min} to {bounded.max}"
            failed.append(Violation(guard="range", argument=bounded.dim, wanted=wanted, actual=str(value)))
    empty = 0 in dims.values()
    for guard in guards.tensors:
        failed += _check_tensor(guard, views[guard.argument], dims, device, empty)
    if not failed and not empty:
        failed += _check_distinct(guards.distinct, views)
    return dims, tuple(failed)


def _check_tensor(guard: TensorGuard, view: View, dims: dict[str, int], device: int, empty: bool) -> list[Violation]:
    failed = []
    if view.dtype is not guard.dtype:
        failed.append(_violation("dtype", guard, str(guard.dtype), view.dtype_name))
    if view.device is not None and view.device != device:
        actual = "host memory" if view.device < 0 else f"device {view.device}"
        failed.append(_violation("device", guard, f"device {device}", actual))
    shape = tuple(extent.of(dims) for extent in guard.shape)
    if view.shape != shape:
        failed.append(_violation("shape", guard, _words(shape), _words(view.shape)))
    elif not empty:
        strides = tuple(extent.of(dims) for extent in guard.strides)
        if any(have != want for have, want, size in zip(view.strides, strides, shape, strict=True) if size > 1):
            failed.append(_violation("strides", guard, _words(strides), _words(view.strides)))
    if not empty and view.pointer % guard.alignment:
        wanted = f"an address that is a multiple of {guard.alignment} bytes"
        failed.append(
            _violation("alignment", guard, wanted, f"{view.pointer:#x} ({view.pointer % guard.alignment} over)")
        )
    if not empty and not view.pointer:
        failed.append(_violation("address", guard, "memory", "a null pointer"))
    return failed


def _check_distinct(guards: tuple[DistinctGuard, ...], views: Mapping[str, View]) -> list[Violation]:
    failed = []
    for guard in guards:
        if guard.argument not in views:
            continue
        begin, end = span(views[guard.argument])
        for other in guard.others:
            if other not in views:
                continue
            other_begin, other_end = span(views[other])
            if begin < other_end and other_begin < end:
                actual = f"[{begin:#x}, {end:#x}) over [{other_begin:#x}, {other_end:#x})"
                wanted = f"no overlap with `{other}`"
                failed.append(Violation(guard="aliasing", argument=guard.argument, wanted=wanted, actual=actual))
    return failed


def span(view: View) -> tuple[int, int]:
    """Return the first byte of a tensor and the one after its last."""
    assert view.dtype is not None
    last = sum((size - 1) * stride for size, stride in zip(view.shape, view.strides, strict=True))
    return view.pointer, view.pointer + (last + 1) * view.dtype.size_bytes


def size_bytes(view: View) -> int:
    """Return how many bytes a dense tensor holds; 0 where it is not dense or of a type that we do not know."""
    if view.dtype is None or view.strides != row_major(view.shape):
        return 0
    return math.prod(view.shape) * view.dtype.size_bytes


def _violation(kind: str, guard: TensorGuard, wanted: str, actual: str) -> Violation:
    return Violation(guard=kind, argument=guard.argument, wanted=wanted, actual=actual)


def _words(numbers: tuple[int, ...]) -> str:
    return "[" + ", ".join(map(str, numbers)) + "]"
