"""The straight-line launch of one kernel: Python text made from its record, with every constant in place.

A launch must cost a few microseconds, so nothing is looped over or looked up: the function below is written out per
argument structure and its constants are bound as globals. What it checks on torch tensors is sufficient, never
weaker than `nkc.runtime.guards`; anything else (another tensor library, an unusual but legal stride, a failure to
explain) goes to the exact check.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import CodeType
from typing import Any

from nkc.ir.launch import Extent, TensorGuard
from nkc.runtime.guards import WORKSPACE, GuardSet
from nkc.runtime.kernargs import KernargPlan
from nkc.runtime.tensor import torch_dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """The source of a launch function and the constants it names."""

    source: str
    constants: Mapping[str, object]


def write(
    guards: GuardSet,
    plan: KernargPlan,
    *,
    device: int,
    workspace: bool,
    stream_in_buffer: bool,
    behind_stream: int = 0,
) -> Text:
    """Return the launch function of a kernel, for torch tensors. behind_stream: numbers written after the stream.

    Globals that the caller of `build` adds: `_slow`, `_handle`, `_current`, `_pop`, `_push`, `_new`, `_pack`,
    `_begin`, `_retry`, `_behind_0` and on, with a workspace `_slots` and `_assign`, and of each tensor map `_made_` and
    `_make_` it.
    """
    names = [guard.argument for guard in guards.tensors]
    constants: dict[str, object] = {"_device": device}
    refusals: list[str] = []
    for guard in guards.tensors:
        refusals += _refusals(guard, constants)
    for bounded in guards.ranges:
        constants[f"_min_{bounded.dim}"], constants[f"_max_{bounded.dim}"] = max(bounded.min, 1), bounded.max
        refusals.append(f"not _min_{bounded.dim} <= _dim_{bounded.dim} <= _max_{bounded.dim}")
    refusals += _misaligned(guards, constants)
    # A tensor keeps its shape when its memory is given back; its address is then null, and aligned to anything.
    refusals.append(f"not ({' and '.join(f'_p_{name}' for name in names)})")
    refusals += _overlaps(guards)
    spans = _spans(guards, constants)
    slow = f"return _slow({', '.join(names)}, stream=stream, workspace=workspace)"
    lines = [f"def launch({', '.join(names)}, *, stream=None, workspace=None):", "    try:"]
    lines += [f"        _dim_{dim} = {source.argument}.shape[{source.axis}]" for dim, source in guards.sources.items()]
    lines += [f"        _p_{name} = {name}.data_ptr()" for name in names]
    lines += spans
    condition = "\n            or ".join((*refusals, "workspace is not None"))
    lines += [f"        _exact = ({condition})"]
    # Whatever the exact check raises is its own affair, so it is called outside of the try.
    lines += ["    except (AttributeError, TypeError, IndexError):", "        _exact = True"]
    lines += ["    if _exact:", f"        {slow}"]
    lines += ["    if stream is None:", "        stream = _current(_device)"]
    lines += ["    elif stream.__class__ is not int:", "        stream = _handle(stream)"]
    if workspace:
        lines += [f"    _p_{WORKSPACE} = _slots.get(stream) or _assign(stream)"]
    dims = "".join(f", _dim_{dim}" for dim in guards.sources)
    for name in plan.maps:
        made = f"_made_{name}.get((_p_{name}{dims or ','}))"
        lines.append(f"    _map_{name} = {made} or _make_{name}(_p_{name}{dims})")
    lines += ["    try:", "        _frame = _pop()", "    except IndexError:", "        _frame = _new()"]
    values = ", ".join(_value(value, guards, plan) for value in plan.values)
    first = "stream, " if stream_in_buffer else ""
    first += "".join(f"_behind_{place}, " for place in range(behind_stream))
    lines += ["    _buffer, _call = _frame"]
    if first or values:
        lines += [f"    _pack(_buffer, _begin, {first}{values})"]
    lines += [f"    _status = _call({'' if stream_in_buffer else 'stream'})"]
    lines += ["    if _status:", "        _retry(_frame, stream, _status)", "    _push(_frame)", ""]
    return Text(source="\n".join(lines), constants=constants)


def build(text: Text, names: Mapping[str, object]) -> Any:
    """Return the launch function. Kernels of one argument structure share the compiled code."""
    scope: dict[str, object] = {**text.constants, **names}
    exec(_code(text.source), scope)
    return scope["launch"]


@cache
def _code(source: str) -> CodeType:
    return compile(source, "<nkc launch>", "exec")


def _value(value: str | int, guards: GuardSet, plan: KernargPlan) -> str:
    if isinstance(value, int):
        return str(value)
    if value in plan.maps:
        return f"_map_{value}"
    return f"_dim_{value}" if value in guards.sources else f"_p_{value}"


def _refusals(guard: TensorGuard, constants: dict[str, object]) -> list[str]:
    name = guard.argument
    constants[f"_dtype_{name}"] = torch_dtype(guard.dtype)
    found = [f"{name}.dtype is not _dtype_{name}", f"{name}.get_device() != _device"]
    found.append(f"{name}.shape != {_tuple(guard.shape, f'_s_{name}', constants)}")
    if _always_dense(guard):
        found.append(f"not {name}.is_contiguous()")
    elif any(extent.dim is None and extent.of({}) == 1 for extent in guard.shape):
        # The stride of an axis of one element does not matter, and torch gives it as it likes.
        found += [
            f"{name}.stride({axis}) != {_extent(stride, f'_t_{name}_{axis}', constants)}"
            for axis, (size, stride) in enumerate(zip(guard.shape, guard.strides, strict=True))
            if size.dim is not None or size.of({}) != 1
        ]
    else:
        found.append(f"{name}.stride() != {_tuple(guard.strides, f'_t_{name}', constants)}")
    return found


def _always_dense(guard: TensorGuard) -> bool:
    """Return whether row-major dense memory is what the guard asks for, whatever the bounded dims are."""
    wanted: list[Extent] = [Extent(value=1)]
    for extent in reversed(guard.shape[1:]):
        last = wanted[-1]
        if last == Extent(value=1):
            wanted.append(extent)
        elif last.value is not None and extent.value is not None:
            wanted.append(Extent(value=last.value * extent.value))
        else:
            return False
    return tuple(reversed(wanted)) == tuple(
        Extent(value=extent.of({})) if extent.dim is None else extent for extent in guard.strides
    )


def _tuple(extents: tuple[Extent, ...], name: str, constants: dict[str, object]) -> str:
    """Return an expression for a tuple of extents: one constant, or written out where a dim is bounded."""
    if all(extent.dim is None for extent in extents):
        constants[name] = tuple(extent.of({}) for extent in extents)
        return name
    return (
        "(" + "".join(_extent(extent, f"{name}_{axis}", constants) + ", " for axis, extent in enumerate(extents)) + ")"
    )


def _extent(extent: Extent, name: str, constants: dict[str, object]) -> str:
    if extent.dim is None:
        constants[name] = extent.of({})
        return name
    text = f"_dim_{extent.dim}"
    if extent.divisor != 1:
        text = f"-(-{text} // {extent.divisor})"
    if extent.multiple_of != 1:
        text = f"-(-({text}) // {extent.multiple_of}) * {extent.multiple_of}"
    return text


def _misaligned(guards: GuardSet, constants: dict[str, object]) -> list[str]:
    """Return one test per alignment: the pointers that promise it, or-ed, have a low bit set."""
    by_alignment: dict[int, list[str]] = {}
    for guard in guards.tensors:
        by_alignment.setdefault(guard.alignment, []).append(f"_p_{guard.argument}")
    found = []
    for index, (alignment, pointers) in enumerate(sorted(by_alignment.items())):
        if alignment > 1:
            constants[f"_mask_{index}"] = alignment - 1
            found.append(f"({' | '.join(pointers)}) & _mask_{index}")
    return found


def _overlaps(guards: GuardSet) -> list[str]:
    """Return one test per written argument and each other argument: their bytes intersect."""
    known = {guard.argument for guard in guards.tensors}
    return [
        f"(_p_{mine} < _p_{other} + _span_{other} and _p_{other} < _p_{mine} + _span_{mine})"
        for mine, others in ((distinct.argument, distinct.others) for distinct in guards.distinct)
        for other in others
        if mine in known and other in known
    ]


def _spans(guards: GuardSet, constants: dict[str, object]) -> list[str]:
    """Return the assignments of the byte extents that depend on a bounded dim; the others become constants."""
    compared = {name for distinct in guards.distinct for name in (distinct.argument, *distinct.others)}
    lines = []
    for guard in guards.tensors:
        name = f"_span_{guard.argument}"
        if guard.argument not in compared:
            continue
        if all(extent.dim is None for extent in (*guard.shape, *guard.strides)):
            pairs = zip(guard.shape, guard.strides, strict=True)
            constants[name] = (1 + sum((s.of({}) - 1) * t.of({}) for s, t in pairs)) * guard.dtype.size_bytes
            continue
        terms = [
            f"({_extent(size, f'{name}_s{axis}', constants)} - 1) * ({_extent(stride, f'{name}_t{axis}', constants)})"
            for axis, (size, stride) in enumerate(zip(guard.shape, guard.strides, strict=True))
        ]
        lines.append(f"        {name} = ({' + '.join(terms)} + 1) * {guard.dtype.size_bytes}")
    return lines
