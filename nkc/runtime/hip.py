"""HIP through ctypes on libamdhip64, with the same interface as CUDA.

Tested against a stand-in library that checks call order, arguments and error paths; not yet run on hardware.
"""

import ctypes
import os
import re
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from nkc.ir.contract import DType
from nkc.ir.launch import Launch, TensorMap
from nkc.runtime.driver import Driver, Frame, FrameLayout, LaunchStyle, NativeCall
from nkc.runtime.errors import BundleError, DriverError
from nkc.runtime.stream import torch_current_stream

_LIBRARIES = ("libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so")

# hip_runtime_api.h: hipFunction_attribute, and the keys of `extra`.
_MAX_THREADS_PER_BLOCK = 0
_SHARED_SIZE_BYTES = 1
_PARAM_BUFFER_POINTER, _PARAM_BUFFER_SIZE, _PARAM_END = 1, 2, 3

_KDL_ROCM = 10

# hipErrorInvalidContext, hipErrorInvalidResourceHandle, hipErrorNotInitialized, hipErrorInvalidDeviceFunction.
_WRONG_CONTEXT = frozenset({201, 400, 3, 98})

# hipDeviceProp_t (R0600) is 1472 bytes and has grown between releases; its first 256 bytes are the marketing name.
_PROPERTIES_BYTES = 8192
_PROPERTIES_NAME_BYTES = 256

_Pointer, _Int, _Uint = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32
_OUT = ctypes.POINTER(ctypes.c_void_p)
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "hipInit": (_Uint,),
    "hipGetDeviceCount": (ctypes.POINTER(_Int),),
    "hipGetDevice": (ctypes.POINTER(_Int),),
    "hipSetDevice": (_Int,),
    "hipGetDevicePropertiesR0600": (_Pointer, _Int),
    "hipModuleLoadData": (_OUT, ctypes.c_char_p),
    "hipModuleUnload": (_Pointer,),
    "hipModuleGetFunction": (_OUT, _Pointer, ctypes.c_char_p),
    "hipFuncGetAttribute": (ctypes.POINTER(_Int), _Int, _Pointer),
    "hipMalloc": (_OUT, ctypes.c_size_t),
    "hipMemset": (_Pointer, _Int, ctypes.c_size_t),
    "hipDeviceSynchronize": (),
    "hipFree": (_Pointer,),
    "hipModuleLaunchKernel": (_Pointer, *[_Uint] * 7, _Pointer, _Pointer, _Pointer),
}


class HipDriver:
    """One HIP device."""

    kind = "hip"

    def __init__(self, library: ctypes.CDLL, device: int) -> None:
        self._library = library
        self.device = device
        self.isa = self._isa()

    def load(self, image: bytes) -> int:
        """Return a module of an HSACO."""
        module = ctypes.c_void_p()
        with _Current(self):
            self._call("hipModuleLoadData", ctypes.byref(module), image)
        return module.value or 0

    def unload(self, module: int) -> None:
        """Give a module back."""
        with _Current(self):
            self._call("hipModuleUnload", module)

    def symbol(self, module: int, name: str) -> int:
        """Return a kernel of a module."""
        function = ctypes.c_void_p()
        try:
            self._call("hipModuleGetFunction", ctypes.byref(function), module, name.encode())
        except DriverError as error:
            raise DriverError(f"no kernel `{name}` in the object ({error})", call=error.call, code=error.code) from None
        return function.value or 0

    def prepare(self, function: int, launch: Launch) -> None:
        """Hold the kernel against its record: fixed LDS and threads. HIP needs no leave for dynamic LDS.

        Refuses attributes of a launch by name: HIP has none of them, and a launch without would mean something else.
        """
        asked = {
            "cluster": launch.attributes.cluster != (1, 1, 1),
            "programmatic_dependent_launch": launch.attributes.programmatic_dependent_launch,
        }
        for name in (name for name, wanted in asked.items() if wanted):
            raise BundleError(f"{launch.id}: the record wants `attributes.{name}`, which HIP does not have")
        fixed, threads = (
            self._attribute(function, _SHARED_SIZE_BYTES),
            self._attribute(function, _MAX_THREADS_PER_BLOCK),
        )
        if fixed != launch.lds.fixed_bytes:
            wanted = launch.lds.fixed_bytes
            raise BundleError(f"{launch.id}: the object has {fixed} bytes of fixed LDS, its record {wanted}")
        wanted = launch.block[0] * launch.block[1] * launch.block[2]
        if wanted > threads:
            raise BundleError(f"{launch.id}: the record wants {wanted} threads, the kernel runs with at most {threads}")

    def allocate(self, size_bytes: int, *, zero: bool) -> int:
        """Return device memory; where zeroed, the zeros are there on return."""
        pointer = ctypes.c_void_p()
        with _Current(self):
            self._call("hipMalloc", ctypes.byref(pointer), size_bytes)
            if zero:
                self._call("hipMemset", pointer, 0, size_bytes)
                self._call("hipDeviceSynchronize")
        return pointer.value or 0

    def free(self, pointer: int) -> None:
        """Give device memory back."""
        with _Current(self):
            self._call("hipFree", pointer)

    def layout(self, launch: Launch) -> FrameLayout:
        """Return how frames are written: kernel parameters alone; the stream is an argument of the call."""
        del launch
        return FrameLayout(kernargs=0, stream=None)

    def frame(self, function: int, launch: Launch, static: bytes) -> Frame:
        """Return a frame: the argument buffer, handed over whole by `extra`."""
        buffer = (ctypes.c_uint64 * ((len(static) + 7) // 8))()
        ctypes.memmove(buffer, static, len(static))
        size = ctypes.c_size_t(len(static))
        extra = (ctypes.c_void_p * 5)(
            _PARAM_BUFFER_POINTER, ctypes.addressof(buffer), _PARAM_BUFFER_SIZE, ctypes.addressof(size), _PARAM_END
        )
        shape = (*launch.grid, *launch.block, launch.lds.dynamic_bytes)
        run = partial(self._library.hipModuleLaunchKernel, function, *shape)

        def call(stream: int, _keep: Any = (buffer, size)) -> int:
            return cast("int", run(stream, None, extra))

        return Frame(buffer=memoryview(buffer).cast("B"), call=call)

    def native(self, function: int, launch: Launch) -> NativeCall | None:
        """Return hipModuleLaunchKernel for this kernel, which takes the argument buffer whole."""
        del launch
        address = ctypes.cast(self._library.hipModuleLaunchKernel, ctypes.c_void_p).value
        assert address is not None
        return NativeCall(
            style=LaunchStyle.BUFFER, address=address, function=function, device_type=_KDL_ROCM, again=_WRONG_CONTEXT
        )

    def tensor_map(
        self,
        dtype: DType,
        pointer: int,
        extents: tuple[int, ...],
        strides_bytes: tuple[int, ...],
        box: tuple[int, ...],
        tensor_map: TensorMap,
    ) -> bytes:
        """Refuse: a CUtensorMap means nothing here."""
        del dtype, pointer, extents, strides_bytes, box, tensor_map
        raise DriverError("HIP has no tensor maps; the record is not for this vendor")

    def relaunch(self, frame: Frame, stream: int, status: int) -> int:
        """Try once more with our device current, if that can be what went wrong."""
        if status not in _WRONG_CONTEXT:
            return status
        with _Current(self):
            return frame.call(stream)

    def error(self, call: str, status: int) -> DriverError:
        """Return the error for a hipError_t, with its name and text."""
        name, text = self._library.hipGetErrorName(status), self._library.hipGetErrorString(status)
        words = f"{name.decode()}, {text.decode()}" if name and text else f"hipError_t {status}"
        return DriverError(f"{call} failed: {words}", call=call, code=status)

    def stream(self) -> Callable[[int], int] | None:
        """Return torch's look-up of the current stream's handle."""
        return torch_current_stream()

    def close(self) -> None:
        """Nothing is retained."""

    def _isa(self) -> str:
        properties = ctypes.create_string_buffer(_PROPERTIES_BYTES)
        self._call("hipGetDevicePropertiesR0600", properties, self.device)
        # gcnArchName (`gfx950:sramecc+:xnack-`) is looked for rather than addressed: its place is not ABI.
        found = re.search(rb"gfx[0-9a-f]+", properties.raw[_PROPERTIES_NAME_BYTES:])
        if found is None:
            raise DriverError(f"HIP device {self.device} does not say which architecture it is")
        return found.group().decode()

    def _attribute(self, function: int, attribute: int) -> int:
        value = ctypes.c_int()
        self._call("hipFuncGetAttribute", ctypes.byref(value), attribute, function)
        return value.value

    def _call(self, name: str, *arguments: Any) -> None:
        if status := getattr(self._library, name)(*arguments):
            raise self.error(name, status)


class _Current:
    """Our device current on this thread, and the caller's again afterwards."""

    def __init__(self, driver: HipDriver) -> None:
        self._driver = driver
        self._before = ctypes.c_int()

    def __enter__(self) -> None:
        self._driver._call("hipGetDevice", ctypes.byref(self._before))
        self._driver._call("hipSetDevice", self._driver.device)

    def __exit__(self, *_: object) -> None:
        self._driver._call("hipSetDevice", self._before.value)


def open_device(device: int, library: str | None = None) -> Driver:
    """Return the driver of a HIP device. Errors: DriverError where the library or the device is missing."""
    hip = _declare(_open(library))
    if status := hip.hipInit(0):
        raise DriverError(f"hipInit failed with {status} (is there a GPU, and may this process use it?)", code=status)
    count = ctypes.c_int()
    if hip.hipGetDeviceCount(ctypes.byref(count)) or not 0 <= device < count.value:
        raise DriverError(f"no HIP device {device}; this machine has {count.value}")
    return HipDriver(hip, device)


def _open(library: str | None) -> ctypes.CDLL:
    """Return the HIP library: the one this process already has (torch brings its own), else the system's."""
    names = _LIBRARIES if library is None else (library,)
    for mode in (os.RTLD_NOW | os.RTLD_NOLOAD, os.RTLD_NOW):
        for name in names:
            try:
                return ctypes.CDLL(name, mode=mode)
            except OSError:
                continue
    raise DriverError(f"no HIP runtime: none of {', '.join(names)} can be loaded (install ROCm's runtime)")


def _declare(library: ctypes.CDLL) -> ctypes.CDLL:
    for name, types in _SIGNATURES.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise DriverError(f"this libamdhip64 has no `{name}` (ROCm 6.0 or newer is needed)") from None
        function.restype, function.argtypes = ctypes.c_int, types
    for name in ("hipGetErrorName", "hipGetErrorString"):
        getattr(library, name).restype, getattr(library, name).argtypes = ctypes.c_char_p, (ctypes.c_int,)
    return library
