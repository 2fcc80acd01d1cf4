"""A loaded kernel: its launch function, and the exact path behind it.

`Kernel.launch(a, b, ..., stream=None)` takes the visible tensors in the contract's order. It allocates nothing,
waits for nothing and looks nothing up: everything is prepared when the bundle is loaded, so it may be captured into a
graph. `stream` is a handle, an object with `cuda_stream` or `__cuda_stream__`, or None for torch's current stream
(the default stream without torch).
"""

import sys
import threading
from collections.abc import Callable
from typing import Any, NoReturn

from nkc.ir.contract import WorkspaceInit
from nkc.ir.launch import Launch
from nkc.runtime import guards as guard_rules
from nkc.runtime import kernargs, native, specialise
from nkc.runtime.driver import Driver, Frame
from nkc.runtime.errors import BundleError, ContractViolation, DriverError, Violation
from nkc.runtime.stream import stream_handle
from nkc.runtime.tensor import View, view
from nkc.runtime.tensor_map import Maps

_FRAMES_AT_LOAD = 2


class Kernel:
    """One kernel of a loaded bundle on one device. launch: the function to call."""

    launch: Callable[..., None]

    def __init__(self, record: Launch, driver: Driver, function: int, *, streams: int) -> None:
        self.record = record
        self.guards = guard_rules.GuardSet.of(record)
        self.arguments = guard_rules.caller_arguments(record)
        _check_names(record, self.arguments)
        self._driver = driver
        self._function = function
        self._closed = False
        self._plan = kernargs.plan(record)
        self._layout = driver.layout(record)
        self._behind_stream = self._layout.behind_stream
        prefix = ""
        if self._layout.stream is not None:
            numbers = 1 + len(self._behind_stream)
            gap = self._layout.kernargs + self._plan.begin - self._layout.stream - 8 * numbers
            prefix = f"{numbers}Q{gap}x"
        begin = self._layout.kernargs + self._plan.begin if self._layout.stream is None else self._layout.stream
        self._packer = kernargs.packer(self._plan, prefix)
        self._begin = begin
        self._frames: list[tuple[Any, Callable[..., int]]] = [self._new_frame() for _ in range(_FRAMES_AT_LOAD)]
        self._maps = self._make_maps()
        self._native = driver.native(function, record)
        self._workspaces = Workspaces(record, driver, streams) if _has_workspace(record) else None
        self.launch = self._launch_exact
        self.specialise()

    @property
    def id(self) -> str:
        """Return the id of the sealed contract."""
        return self.record.id

    @property
    def is_native(self) -> bool:
        """Return whether torch tensors are launched on by the C extension."""
        return native.is_native(self.launch)

    def specialise(self) -> None:
        """Make the short launches for torch tensors, where torch is imported: in Python, and in C in front of it.

        Called at load.
        """
        if "torch" not in sys.modules:
            return
        has_workspace = self._workspaces is not None
        text = specialise.write(
            self.guards,
            self._plan,
            device=self._driver.device,
            workspace=has_workspace,
            stream_in_buffer=self._layout.stream is not None,
            behind_stream=len(self._behind_stream),
        )
        short = specialise.build(
            text,
            {
                "_slow": self._launch_exact,
                "_handle": stream_handle,
                "_current": self._driver.stream() or _default_stream,
                "_pop": self._frames.pop,
                "_push": self._frames.append,
                "_new": self._new_frame,
                "_pack": self._packer.pack_into,
                "_begin": self._begin,
                **{f"_behind_{place}": number for place, number in enumerate(self._behind_stream)},
                "_retry": self._retry,
                "_slots": self._workspaces.slots if self._workspaces else {},
                "_assign": self._workspaces.assign if self._workspaces else None,
                **{f"_made_{name}": maps.made for name, maps in self._maps.items()},
                **{f"_make_{name}": maps.make for name, maps in self._maps.items()},
            },
        )
        self.launch = self._in_c(short) or short

    def _in_c(self, short: Callable[..., None]) -> Callable[..., None] | None:
        """Return the launch in C, which hands on to `short` whatever it does not launch; None where it cannot be."""
        if self._native is None:
            return None
        maps = [self._maps.get(name) for name in self.arguments]
        return native.build(
            self.record,
            self.guards,
            self._plan,
            self._native,
            self._driver.device,
            native.Callables(
                fallback=short,
                handle=stream_handle,
                workspace=self._workspaces.assign if self._workspaces else None,
                makers=tuple(each.of if each is not None else None for each in maps),
                failed=self._fail,
            ),
        )

    def check(self, *tensors: Any) -> tuple[Violation, ...]:
        """Return every guard that these tensors do not meet, launching nothing."""
        return guard_rules.check(self.guards, self._views(tensors), self._driver.device)[1]

    def close(self) -> None:
        """Free the workspace and refuse further launches. The library unloads the module."""
        self._closed = True
        native.close(self.launch)
        self._frames.clear()
        if self._workspaces is not None:
            self._workspaces.close()

    def __repr__(self) -> str:
        return f"<nkc kernel {self.record.symbol} {self.record.id} on {self.record.target.arch}>"

    def _views(self, tensors: tuple[Any, ...]) -> dict[str, View]:
        if len(tensors) != len(self.arguments):
            raise TypeError(
                f"{self.id} takes {len(self.arguments)} tensors ({', '.join(self.arguments)}), got {len(tensors)}"
            )
        named = zip(self.arguments, tensors, strict=True)
        return {name: view(self.record.id, name, tensor) for name, tensor in named}

    def _launch_exact(self, *tensors: Any, stream: Any = None, workspace: Any = None) -> None:
        """Check every guard exactly, and launch. Errors: ContractViolation naming each guard that fails."""
        views = self._views(tensors)
        if workspace is not None:
            views[guard_rules.WORKSPACE] = view(self.id, guard_rules.WORKSPACE, workspace)
        dims, violations = guard_rules.check(self.guards, views, self._driver.device)
        if violations:
            raise ContractViolation(self.record.id, violations)
        if self.launch == self._launch_exact and any(each.torch for each in views.values()):
            self.specialise()  # torch came after the bundle
        if 0 in dims.values():
            return  # no rows: nothing to do, and no grid of size zero
        if stream is None:
            current = self._driver.stream() if any(each.torch for each in views.values()) else None
            handle = current(self._driver.device) if current is not None else 0
        else:
            handle = stream_handle(stream)
        values: dict[str, int] = {name: each.pointer for name, each in views.items()}
        values.update(dims)
        if self._workspaces is not None:
            values[guard_rules.WORKSPACE] = self._workspaces.pointer(handle, views.get(guard_rules.WORKSPACE))
        elif workspace is not None:
            wanted = "nothing: this kernel needs none"
            raise self._violation(
                Violation(guard="workspace", argument="workspace", wanted=wanted, actual=type(workspace).__name__)
            )
        written: dict[str, int | bytes] = {**values}
        for name, maps in self._maps.items():
            written[name] = maps.of(values[name], *(dims[dim] for dim in self.guards.sources))
        self._submit(handle, [value if isinstance(value, int) else written[value] for value in self._plan.values])

    def _make_maps(self) -> dict[str, Maps]:
        guards = {guard.argument: guard for guard in self.guards.tensors}
        dims = tuple(self.guards.sources)
        parameters = {argument.name: argument for argument in self.record.arguments}
        return {name: Maps(parameters[name], guards[name], dims, self._driver) for name in self._plan.maps}

    def _submit(self, stream: int, values: list[int | bytes]) -> None:
        try:
            frame = self._frames.pop()
        except IndexError:
            frame = self._new_frame()
        buffer, call = frame
        in_buffer = self._layout.stream is not None
        self._packer.pack_into(buffer, self._begin, *([stream, *self._behind_stream] if in_buffer else []), *values)
        status = call() if in_buffer else call(stream)
        if status:
            self._retry(frame, stream, status)
        self._frames.append(frame)

    def _new_frame(self) -> tuple[Any, Callable[..., int]]:
        if self._closed:
            raise DriverError(f"{self.id}: its library was closed, and the code is gone")
        frame = self._driver.frame(self._function, self.record, self._plan.static)
        return frame.buffer, frame.call

    def _retry(self, frame: tuple[Any, Callable[..., int]], stream: int, status: int) -> None:
        """Launch again with the device's context current: a fresh thread, or another device, has another one."""
        again = self._driver.relaunch(Frame(buffer=frame[0], call=frame[1]), stream, status)
        if again:
            self._fail(again)

    def _fail(self, status: int) -> NoReturn:
        raise self._driver.error(f"launch of {self.record.symbol} ({self.record.id})", status)

    def _violation(self, violation: Violation) -> ContractViolation:
        return ContractViolation(self.record.id, (violation,))


class Workspaces:
    """The workspaces of one kernel: allocated at load, one per stream that will launch it.

    Two launches that run at once must not share a workspace, and only the caller knows what runs at once; so each
    stream keeps the one it was first given.
    """

    def __init__(self, record: Launch, driver: Driver, streams: int) -> None:
        self._record = record
        self._driver = driver
        self._streams = streams
        size, alignment = record.workspace.bytes, record.workspace.alignment
        self._step = -(-size // alignment) * alignment
        zero = record.workspace.init is WorkspaceInit.ZERO
        # A driver aligns an allocation to 256 bytes; more is made up for here.
        self._memory = driver.allocate(self._step * streams + alignment, zero=zero)
        base = -(-self._memory // alignment) * alignment
        self._free = [base + index * self._step for index in reversed(range(streams))]
        self.slots: dict[int, int] = {}
        self._lock = threading.Lock()

    def assign(self, stream: int) -> int:
        """Return the workspace of a stream, its own from now on. Errors: ContractViolation when none is left."""
        with self._lock:
            if stream not in self.slots:
                if not self._free:
                    wanted = f"at most {self._streams} streams (load the bundle with a larger `streams`)"
                    actual = f"one more, {stream:#x}"
                    violation = Violation(guard="workspace", argument="stream", wanted=wanted, actual=actual)
                    raise ContractViolation(self._record.id, (violation,))
                self.slots[stream] = self._free.pop()
            return self.slots[stream]

    def pointer(self, stream: int, own: View | None) -> int:
        """Return the caller's own workspace, checked, or that of the stream."""
        if own is None:
            return self.slots.get(stream) or self.assign(stream)
        wanted = self._record.workspace
        size = guard_rules.size_bytes(own)
        if size < wanted.bytes or own.pointer % wanted.alignment:
            words = f"{wanted.bytes} bytes at a multiple of {wanted.alignment}"
            actual = f"{size} bytes at {own.pointer:#x}"
            violation = Violation(guard="workspace", argument=guard_rules.WORKSPACE, wanted=words, actual=actual)
            raise ContractViolation(self._record.id, (violation,))
        return own.pointer

    def close(self) -> None:
        """Free the memory."""
        self._driver.free(self._memory)


def _default_stream(_: int) -> int:
    return 0


def _has_workspace(record: Launch) -> bool:
    return any(argument.name == guard_rules.WORKSPACE and not argument.hidden for argument in record.arguments)


def _check_names(record: Launch, arguments: tuple[str, ...]) -> None:
    """Refuse names that the launch function cannot carry. Errors: BundleError."""
    import keyword

    names = (*arguments, *(argument.dim for argument in record.arguments if argument.dim is not None))
    for name in names:
        sound = name.isidentifier() and name.isascii() and not name.startswith("_") and not keyword.iskeyword(name)
        if not sound or name in ("stream", "workspace", "launch"):
            raise BundleError(f"{record.id}: `{name}` cannot be the name of an argument or a dim")
    if len({each.name for each in record.arguments}) != len(record.arguments) or not arguments:
        raise BundleError(f"{record.id}: its arguments are not distinctly named tensors")
