"""CUDA through cuda-bindings, with the launch itself as one foreign call that has its arguments bound beforehand.

`cuLaunchKernelEx` takes a struct by pointer. The struct, the table of parameter addresses and the parameters lie in
one buffer, so that a launch writes stream and pointers by a single `struct.pack_into` and calls with four arguments
that were converted at load. With `path="native"` torch tensors are launched on by `_launch.c` where it was built, and
all else this way; the other paths never ask it, for comparison.
"""

import ctypes
import struct
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, cast

from nkc.ir.contract import DType
from nkc.ir.launch import Launch, TensorMap
from nkc.runtime.driver import Driver, Frame, FrameLayout, LaunchStyle, NativeCall
from nkc.runtime.errors import BundleError, DriverError
from nkc.runtime.stream import torch_current_stream
from nkc.runtime.tensor_map import MAP_ALIGNMENT, MAP_BYTES

LaunchPath = Literal["native", "ex", "plain", "bindings"]

# struct CUlaunchConfig of cuda.h: seven uint32 (grid, block, shared bytes), padding, stream, attributes, their number.
_CONFIG_BYTES = 56
_CONFIG_STREAM = 32
_KERNARGS = 64

# struct CUlaunchAttribute of cuda.h: an id, padding to 8 bytes, a value of 64. PROGRAMMATIC_STREAM_SERIALIZATION = 1.
_ATTRIBUTE_BYTES = 72
_DEPENDENT = struct.pack("<I4xi60x", 6, 1)

# CUtensorMapDataType, CUtensorMapSwizzle and CUtensorMapL2promotion of cuda.h. e4m3 travels as bytes.
_MAP_TYPES = {DType.FP8_E4M3: 0, DType.INT32: 4, DType.FP16: 6, DType.FP32: 7, DType.BF16: 9}
_MAP_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
_MAP_PROMOTIONS = {0: 0, 64: 1, 128: 2, 256: 3}

_KDL_CUDA = 2

# CUresult of a launch while another context, or none, is current on this thread.
_WRONG_CONTEXT = frozenset({201, 400, 709, 3})


class CudaDriver:
    """One CUDA device with its primary context retained."""

    kind = "cuda"

    def __init__(self, api: Any, device: int, path: LaunchPath) -> None:
        self._api = api
        self._path = path
        self._ex = path in ("native", "ex")
        self.device = device
        self._handle = self._call(api.cuDeviceGet, device)
        attribute = api.CUdevice_attribute
        major = self._call(
            api.cuDeviceGetAttribute, attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, self._handle
        )
        minor = self._call(
            api.cuDeviceGetAttribute, attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, self._handle
        )
        self.isa = f"sm_{major}{minor}"
        self._context = self._call(api.cuDevicePrimaryCtxRetain, self._handle)
        self._library = ctypes.CDLL("libcuda.so.1")
        self._dependent = ctypes.create_string_buffer(_DEPENDENT, _ATTRIBUTE_BYTES)  # read by launches, never written
        self._functions: dict[int, Any] = {}
        self._modules: dict[int, Any] = {}

    def load(self, image: bytes) -> int:
        """Return a module of a cubin."""
        with _Current(self):
            module = self._call(self._api.cuModuleLoadData, image)
        self._modules[int(module)] = module
        return int(module)

    def unload(self, module: int) -> None:
        """Give a module back."""
        with _Current(self):
            self._call(self._api.cuModuleUnload, self._modules.pop(module))

    def symbol(self, module: int, name: str) -> int:
        """Return a kernel of a module."""
        try:
            function = self._call(self._api.cuModuleGetFunction, self._modules[module], name.encode())
        except DriverError as error:
            raise DriverError(f"no kernel `{name}` in the object ({error})", call=error.call, code=error.code) from None
        self._functions[int(function)] = function
        return int(function)

    def prepare(self, function: int, launch: Launch) -> None:
        """Hold the kernel against its record: parameters, fixed LDS, threads; then allow its dynamic LDS."""
        api, handle = self._api, self._functions[function]
        attribute = api.CUfunction_attribute
        fixed = self._call(api.cuFuncGetAttribute, attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, handle)
        if fixed != launch.lds.fixed_bytes:
            raise BundleError(
                f"{launch.id}: the object has {fixed} bytes of fixed LDS, its record {launch.lds.fixed_bytes}"
            )
        threads = self._call(api.cuFuncGetAttribute, attribute.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, handle)
        wanted = launch.block[0] * launch.block[1] * launch.block[2]
        if wanted > threads:
            raise BundleError(f"{launch.id}: the record wants {wanted} threads, the kernel runs with at most {threads}")
        self._check_parameters(function, launch)
        # Under lazy loading the code would arrive with the first launch, which a capture forbids. Drivers before 12.4
        # have no call for it; asking for attributes has loaded the kernel there.
        load_now = getattr(self._library, "cuFuncLoad", None)
        if load_now is not None and (status := load_now(ctypes.c_void_p(function))):
            raise self.error("cuFuncLoad", status)
        if launch.attributes.programmatic_dependent_launch and self._path == "plain":
            raise BundleError(f"{launch.id}: it is launched dependent, which cuLaunchKernel cannot (use another path)")
        if launch.lds.dynamic_bytes:
            dynamic = attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._call(api.cuFuncSetAttribute, handle, dynamic, launch.lds.dynamic_bytes)

    def _check_parameters(self, function: int, launch: Launch) -> None:
        """Compare every parameter's place with the record; drivers before 12.4 cannot tell."""
        query = getattr(self._library, "cuFuncGetParamInfo", None)
        if query is None:
            return
        offset, size = ctypes.c_size_t(), ctypes.c_size_t()
        for index in range(len(launch.arguments) + 1):
            status = query(ctypes.c_void_p(function), ctypes.c_size_t(index), ctypes.byref(offset), ctypes.byref(size))
            found = (offset.value, size.value) if status == 0 else None
            arguments = sorted(launch.arguments, key=lambda argument: argument.offset)
            wanted = (arguments[index].offset, arguments[index].size) if index < len(arguments) else None
            if found != wanted:
                raise BundleError(
                    f"{launch.id}: parameter {index} is at (offset, size) {found} in the object, {wanted} in its record"
                )

    def allocate(self, size_bytes: int, *, zero: bool) -> int:
        """Return device memory; where zeroed, the zeros are there on return."""
        with _Current(self):
            pointer = self._call(self._api.cuMemAlloc, size_bytes)
            if zero:
                self._call(self._api.cuMemsetD8, pointer, 0, size_bytes)
                self._call(self._api.cuCtxSynchronize)
        return int(pointer)

    def free(self, pointer: int) -> None:
        """Give device memory back."""
        with _Current(self):
            self._call(self._api.cuMemFree, pointer)

    def layout(self, launch: Launch) -> FrameLayout:
        """Return how frames are written: the stream goes into the launch struct, except on the other two paths.

        Attributes and their number stand behind it there.
        """
        if not self._ex:
            return FrameLayout(kernargs=_KERNARGS, stream=None)
        dependent = launch.attributes.programmatic_dependent_launch
        behind = (ctypes.addressof(self._dependent), 1) if dependent else ()
        return FrameLayout(kernargs=_KERNARGS, stream=_CONFIG_STREAM, behind_stream=behind)

    def frame(self, function: int, launch: Launch, static: bytes) -> Frame:
        """Return a frame: the launch struct, then the parameters, and the table of their addresses beside it."""
        space = (ctypes.c_uint8 * (MAP_ALIGNMENT + _KERNARGS + len(static)))()
        shift = -ctypes.addressof(space) % MAP_ALIGNMENT  # as a map wants it in device memory
        buffer = (ctypes.c_uint8 * (_KERNARGS + len(static))).from_buffer(space, shift)
        address = ctypes.addressof(buffer)
        ctypes.memmove(address + _KERNARGS, static, len(static))
        config = (ctypes.c_uint32 * 7).from_buffer(buffer)
        config[:] = [*launch.grid, *launch.block, launch.lds.dynamic_bytes]
        arguments = sorted(launch.arguments, key=lambda argument: argument.offset)
        table = (ctypes.c_void_p * len(arguments))(*(address + _KERNARGS + each.offset for each in arguments))
        return Frame(buffer=memoryview(buffer).cast("B"), call=self._bound(function, launch, buffer, table))

    def _bound(self, function: int, launch: Launch, buffer: Any, table: Any) -> Callable[..., int]:
        shape = (*launch.grid, *launch.block, launch.lds.dynamic_bytes)
        if self._path == "bindings":
            kernel, run, params = self._functions[function], self._api.cuLaunchKernel, ctypes.addressof(table)
            keep = (buffer, table)
            if launch.attributes.programmatic_dependent_launch:
                return self._bound_dependent(kernel, launch, params, keep)

            def call(stream: int, _keep: Any = keep) -> int:
                return int(run(kernel, *shape, stream, params, 0)[0])

            return call
        if self._path == "plain":
            prototype = ctypes.CFUNCTYPE(
                ctypes.c_int, ctypes.c_void_p, *[ctypes.c_uint32] * 7, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
            )
            run_plain = prototype(("cuLaunchKernel", self._library))

            def call_plain(stream: int, _buffer: Any = buffer) -> int:
                return cast("int", run_plain(function, *shape, stream, table, None))

            return call_plain
        run_ex = self._library.cuLaunchKernelEx
        return partial(run_ex, buffer, ctypes.c_void_p(function), table, None)

    def _bound_dependent(self, kernel: Any, launch: Launch, params: int, keep: Any) -> Callable[..., int]:
        """Return the call of cuda-bindings' cuLaunchKernelEx, whose struct holds the stream."""
        api = self._api
        attribute = api.CUlaunchAttribute()
        attribute.id = api.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        attribute.value.programmaticStreamSerializationAllowed = 1
        config = api.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = launch.grid
        config.blockDimX, config.blockDimY, config.blockDimZ = launch.block
        config.sharedMemBytes = launch.lds.dynamic_bytes
        config.attrs, config.numAttrs = [attribute], 1
        run = api.cuLaunchKernelEx

        def call(stream: int, _keep: Any = keep) -> int:
            config.hStream = stream
            return int(run(config, kernel, params, 0)[0])

        return call

    def native(self, function: int, launch: Launch) -> NativeCall | None:
        """Return cuLaunchKernel for this kernel, or cuLaunchKernelEx where it is launched with attributes."""
        if self._path != "native":
            return None
        dependent = launch.attributes.programmatic_dependent_launch
        call = self._library.cuLaunchKernelEx if dependent else self._library.cuLaunchKernel
        address = ctypes.cast(call, ctypes.c_void_p).value
        assert address is not None
        return NativeCall(
            style=LaunchStyle.CONFIG if dependent else LaunchStyle.PARAMETERS,
            address=address,
            function=function,
            device_type=_KDL_CUDA,
            again=_WRONG_CONTEXT,
            attributes=_DEPENDENT if dependent else b"",
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
        """Return the 128 bytes that cuTensorMapEncodeTiled makes."""
        rank = len(extents)
        space = (ctypes.c_uint64 * (2 * MAP_BYTES // 8))()
        target = -(-ctypes.addressof(space) // MAP_ALIGNMENT) * MAP_ALIGNMENT
        status = self._library.cuTensorMapEncodeTiled(
            ctypes.c_void_p(target),
            _MAP_TYPES[dtype],
            ctypes.c_uint32(rank),
            ctypes.c_void_p(pointer),
            (ctypes.c_uint64 * rank)(*extents),
            (ctypes.c_uint64 * max(rank - 1, 1))(*strides_bytes),
            (ctypes.c_uint32 * rank)(*box),
            (ctypes.c_uint32 * rank)(*[1] * rank),
            0,  # CU_TENSOR_MAP_INTERLEAVE_NONE
            _MAP_SWIZZLES[tensor_map.swizzle_bytes],
            _MAP_PROMOTIONS[tensor_map.l2_promotion_bytes],
            0,  # CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE: zeros
        )
        if status:
            raise self.error("cuTensorMapEncodeTiled", status)
        return ctypes.string_at(target, MAP_BYTES)

    def relaunch(self, frame: Frame, stream: int, status: int) -> int:
        """Try once more with our context current, if that can be what went wrong."""
        if status not in _WRONG_CONTEXT:
            return status
        with _Current(self):
            return frame.call() if self._ex else frame.call(stream)

    def error(self, call: str, status: int) -> DriverError:
        """Return the error for a CUresult, with its name and text."""
        api = self._api
        code = api.CUresult(status) if status in set(map(int, api.CUresult)) else None
        name = api.cuGetErrorName(code)[1] if code is not None else None
        text = api.cuGetErrorString(code)[1] if code is not None else None
        words = f"{name.decode()}, {text.decode()}" if name and text else f"CUresult {status}"
        return DriverError(f"{call} failed: {words}", call=call, code=status)

    def stream(self) -> Callable[[int], int] | None:
        """Return torch's look-up of the current stream's handle."""
        return torch_current_stream()

    def close(self) -> None:
        """Release the primary context."""
        self._call(self._api.cuDevicePrimaryCtxRelease, self._handle)

    def _call(self, function: Any, *arguments: Any) -> Any:
        status, *results = function(*arguments)
        if int(status):
            raise self.error(getattr(function, "__name__", "a driver call"), int(status))
        return results[0] if results else None


class _Current:
    """Our context on top of this thread's stack, and off again: the caller's stays as it was."""

    def __init__(self, driver: CudaDriver) -> None:
        self._driver = driver

    def __enter__(self) -> None:
        self._driver._call(self._driver._api.cuCtxPushCurrent, self._driver._context)

    def __exit__(self, *_: object) -> None:
        self._driver._call(self._driver._api.cuCtxPopCurrent)


def open_device(device: int, path: LaunchPath = "native") -> Driver:
    """Return the driver of a CUDA device. Errors: DriverError where something is missing."""
    try:
        from cuda.bindings import driver as api
    except ImportError as error:
        raise DriverError(f"cuda-bindings cannot be imported: {error} (pip install 'nkc[cuda]')") from None
    try:
        status = int(api.cuInit(0)[0])
    except RuntimeError as error:  # cuda-bindings' own, when it finds no libcuda.so.1
        raise DriverError(f"no CUDA driver: {str(error).splitlines()[0]}") from None
    if status:
        raise DriverError(f"cuInit failed with {status} (is there a GPU, and may this process use it?)", code=status)
    count = int(api.cuDeviceGetCount()[1])
    if not 0 <= device < count:
        raise DriverError(f"no CUDA device {device}; this machine has {count}")
    return CudaDriver(api, device, path)
