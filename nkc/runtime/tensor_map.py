"""Tensor maps: the 128 bytes by which TMA knows a tensor, made on the host from its guard and its address.

A map holds the address, so it is made when an address is first seen and kept: weights have one, activations that an
allocator hands out again have few. Making one asks the driver's library and no device.
"""

from typing import Protocol

from nkc.ir.contract import DType
from nkc.ir.launch import ArgumentKind, Launch, LaunchArgument, TensorGuard, TensorMap
from nkc.runtime.errors import BundleError

MAP_BYTES = 128
MAP_ALIGNMENT = 64
MAP_OFFSET = 16
"""What a map's offset is a multiple of: parameters begin at 0x210 of sm_90's bank, and 64 divides 0x210 + 48."""
_KEPT = 4096
# What cuTensorMapEncodeTiled asks of addresses and of every stride but the contiguous one.
_TMA_ALIGNMENT = 16
_MAX_BOX = 256


class Encoder(Protocol):
    """What a driver does to make a map. Extents in elements and strides in bytes, contiguous axis first."""

    def tensor_map(
        self,
        dtype: DType,
        pointer: int,
        extents: tuple[int, ...],
        strides_bytes: tuple[int, ...],
        box: tuple[int, ...],
        tensor_map: TensorMap,
    ) -> bytes:
        """Return the 128 bytes. Errors: DriverError."""


class Maps:
    """The maps of one parameter, by address and the values of the bounded dims."""

    def __init__(self, argument: LaunchArgument, guard: TensorGuard, dims: tuple[str, ...], driver: Encoder) -> None:
        assert argument.tensor_map is not None
        self._guard = guard
        self._map = argument.tensor_map
        self._dims = dims
        self._driver = driver
        self._order = _contiguous_first(guard)
        self.made: dict[tuple[int, ...], bytes] = {}

    def make(self, pointer: int, *dims: int) -> bytes:
        """Return the map of an address for these values of the bounded dims, and keep it."""
        values = dict(zip(self._dims, dims, strict=True))
        extents = tuple(self._guard.shape[axis].of(values) for axis in self._order)
        size = self._guard.dtype.size_bytes
        strides = tuple(self._guard.strides[axis].of(values) * size for axis in self._order[1:])
        box = tuple(self._map.box[axis] for axis in self._order)
        made = self._driver.tensor_map(self._guard.dtype, pointer, extents, strides, box, self._map)
        if len(self.made) >= _KEPT:
            self.made.clear()
        self.made[pointer, *dims] = made
        return made

    def of(self, pointer: int, *dims: int) -> bytes:
        """Return the map of an address, made before or now."""
        return self.made.get((pointer, *dims)) or self.make(pointer, *dims)


def check(launch: Launch) -> None:
    """Hold every map of a record against its guard and against what TMA can do. Errors: BundleError."""
    guards = {guard.argument: guard for guard in launch.guards if isinstance(guard, TensorGuard)}
    for argument in launch.arguments:
        if (argument.kind is ArgumentKind.TENSOR_MAP) != (argument.tensor_map is not None):
            raise BundleError(f"{launch.id}: `{argument.name}` is a {argument.kind} and half a tensor map")
        if argument.tensor_map is None:
            continue
        guard = guards.get(argument.name)
        if guard is None or len(guard.shape) != len(argument.tensor_map.box):
            raise BundleError(f"{launch.id}: the map of `{argument.name}` has other axes than its tensor")
        if argument.size != MAP_BYTES or argument.offset % MAP_OFFSET:
            where = f"{argument.size} bytes at {argument.offset}"
            raise BundleError(
                f"{launch.id}: the map of `{argument.name}` is {where}, not {MAP_BYTES} at a multiple of {MAP_OFFSET}"
            )
        if guard.alignment % _TMA_ALIGNMENT or not all(1 <= each <= _MAX_BOX for each in argument.tensor_map.box):
            raise BundleError(f"{launch.id}: TMA cannot copy `{argument.name}` (16-byte addresses, boxes of 1 to 256)")
        _contiguous_first(guard)


def _contiguous_first(guard: TensorGuard) -> tuple[int, ...]:
    """Return the axes from the contiguous one outwards. Errors: BundleError where none is contiguous."""
    axes = range(len(guard.shape))
    last = len(guard.shape) - 1
    contiguous = [axis for axis in (last, *axes) if guard.strides[axis].dim is None and guard.strides[axis].value == 1]
    if not contiguous:
        raise BundleError(f"`{guard.argument}` has no contiguous axis, which a tensor map needs")
    return (contiguous[0], *(axis for axis in reversed(axes) if axis != contiguous[0]))
