"""What the runtime asks of a GPU driver; CUDA and HIP answer it alike.

Handles are integers, so that a launch needs no wrapper objects. A launch goes through a *frame*: the argument buffer
of one call with everything that never changes already written, and the bound foreign call that reads it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from nkc.ir.contract import DType
from nkc.ir.launch import Launch, TensorMap


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameLayout:
    """Where a launch writes in a frame's buffer (bytes).

    kernargs: where kernel parameters begin. stream: where the stream is written, None where it is the argument of
    the call instead. behind_stream: 64-bit numbers that follow it, always the same; a launch writes over them.
    """

    kernargs: int
    stream: int | None
    behind_stream: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One prepared call. buffer: written by the launch. call: returns the driver's status, 0 for success."""

    buffer: bytearray | memoryview
    call: Callable[..., int]


class LaunchStyle(IntEnum):
    """How a driver's launch function takes its arguments; _launch.c has the same numbers.

    PARAMETERS: cuLaunchKernel with a table of addresses. BUFFER: hipModuleLaunchKernel with the whole buffer.
    CONFIG: cuLaunchKernelEx, shape, stream and attributes in one struct.
    """

    PARAMETERS = 0
    BUFFER = 1
    CONFIG = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeCall:
    """A launch function for C: its address, the kernel's handle, and what its device is to DLPack.

    attributes: CUlaunchAttribute after CUlaunchAttribute, 72 bytes each; only with CONFIG. again: statuses that
    `Driver.relaunch` may mend.
    """

    style: LaunchStyle
    address: int
    function: int
    device_type: int
    again: frozenset[int]
    attributes: bytes = b""


class Driver(Protocol):
    """One device's driver with its context retained; made by `cuda.open_device` or `hip.open_device`."""

    kind: str
    device: int
    isa: str
    """What the device runs, `sm_90` or `gfx950`: an object for another one is refused."""

    def load(self, image: bytes) -> int:
        """Return a module of a code object. Errors: DriverError."""

    def unload(self, module: int) -> None:
        """Give a module back."""

    def symbol(self, module: int, name: str) -> int:
        """Return a kernel of a module. Errors: DriverError naming the symbol."""

    def prepare(self, function: int, launch: Launch) -> None:
        """Hold the kernel against its record and allow its dynamic LDS. Errors: BundleError, DriverError."""

    def allocate(self, size_bytes: int, *, zero: bool) -> int:
        """Return device memory, zeroed and complete on return where asked. Errors: DriverError."""

    def free(self, pointer: int) -> None:
        """Give device memory back."""

    def layout(self, launch: Launch) -> FrameLayout:
        """Return how the frames of a kernel are written."""

    def frame(self, function: int, launch: Launch, static: bytes) -> Frame:
        """Return a new frame whose kernel parameters start as `static`."""

    def native(self, function: int, launch: Launch) -> NativeCall | None:
        """Return how C launches this kernel, None where the caller asked for another path."""

    def tensor_map(
        self,
        dtype: DType,
        pointer: int,
        extents: tuple[int, ...],
        strides_bytes: tuple[int, ...],
        box: tuple[int, ...],
        tensor_map: TensorMap,
    ) -> bytes:
        """Return the 128 bytes of a tensor map, contiguous axis first. Errors: DriverError."""

    def relaunch(self, frame: Frame, stream: int, status: int) -> int:
        """Try a launch once more with the device's context current, and return the status."""

    def error(self, call: str, status: int) -> Exception:
        """Return the error for a driver's status, with its name and text."""

    def stream(self) -> Callable[[int], int] | None:
        """Return torch's look-up of the current stream's handle by device, None where torch has no such device."""

    def close(self) -> None:
        """Release the context."""
