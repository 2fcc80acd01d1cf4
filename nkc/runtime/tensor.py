"""A tensor as a launcher sees it, whatever library it came from: torch, DLPack or `__cuda_array_interface__`."""

import ctypes
import sys
from dataclasses import dataclass
from typing import Any

from nkc.ir.contract import DType
from nkc.runtime.errors import ContractViolation, Violation

# DLPack 1.1, dlpack.h: DLDataTypeCode (and bits) of the types that a contract can name.
DLPACK_TYPES = {
    (4, 16): DType.BF16,
    (2, 16): DType.FP16,
    (2, 32): DType.FP32,
    (10, 8): DType.FP8_E4M3,
    (0, 32): DType.INT32,
}
# DLDeviceType: kDLCUDA, kDLROCM; a managed or host tensor is never launched upon.
_DLPACK_DEVICES = frozenset({2, 10})

# The array interface has no bf16 and no fp8; their bits travel as unsigned integers or raw bytes of the same size.
_TYPESTRINGS = {
    "<f2": (DType.FP16,),
    "<f4": (DType.FP32,),
    "<i4": (DType.INT32,),
    "|u1": (DType.FP8_E4M3,),
    "|V1": (DType.FP8_E4M3,),
    "<u2": (DType.BF16,),
    "|V2": (DType.BF16,),
}

_TORCH_NAMES = {
    DType.BF16: "bfloat16",
    DType.FP16: "float16",
    DType.FP32: "float32",
    DType.FP8_E4M3: "float8_e4m3fn",
    DType.INT32: "int32",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Where a tensor lies. pointer: bytes. shape, strides: elements. dtype: ours, or None with its foreign name.

    device: ordinal, None where the interface does not say, -1 for host memory. torch: whether it is torch's own.
    """

    pointer: int
    dtype: DType | None
    dtype_name: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    device: int | None
    torch: bool = False


def torch_dtype(dtype: DType) -> Any:
    """Return torch's type for one of ours. Only called where torch is already imported."""
    return getattr(sys.modules["torch"], _TORCH_NAMES[dtype])


def view(kernel: str, argument: str, tensor: Any) -> View:
    """Return how `tensor` lies in memory, without copying it or touching the device.

    Errors: ContractViolation where it is no tensor of a known interface.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(tensor, torch.Tensor):
        return _view_torch(tensor)
    if (interface := getattr(tensor, "__cuda_array_interface__", None)) is not None:
        return _view_interface(interface)
    if hasattr(tensor, "__dlpack__") and hasattr(tensor, "__dlpack_device__"):
        return _view_dlpack(tensor)
    wanted = "a tensor of torch, DLPack or __cuda_array_interface__"
    violation = Violation(guard="interface", argument=argument, wanted=wanted, actual=f"a {type(tensor).__name__}")
    raise ContractViolation(kernel, (violation,))


def _view_torch(tensor: Any) -> View:
    name = str(tensor.dtype).removeprefix("torch.")
    ours = next((dtype for dtype, word in _TORCH_NAMES.items() if word == name), None)
    return View(
        pointer=tensor.data_ptr(),
        dtype=ours,
        dtype_name=name if ours is None else str(ours),
        shape=tuple(tensor.shape),
        strides=tuple(tensor.stride()),
        device=tensor.get_device(),
        torch=True,
    )


def _view_interface(interface: dict[str, Any]) -> View:
    shape = tuple(interface["shape"])
    typestring = str(interface["typestr"])
    item_bytes = int(typestring[2:])
    strides = interface.get("strides")
    elements = row_major(shape) if strides is None else tuple(-(-stride // item_bytes) for stride in strides)
    if strides is not None and any(stride % item_bytes for stride in strides):
        elements = tuple(-1 for _ in shape)  # no whole number of elements: meets no guard
    ours = _TYPESTRINGS.get(typestring, (None,))[0]
    return View(
        pointer=int(interface["data"][0]),
        dtype=ours,
        dtype_name=typestring if ours is None else str(ours),
        shape=shape,
        strides=elements,
        device=None,
    )


class _DLTensor(ctypes.Structure):
    """DLTensor of dlpack.h."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


def _view_dlpack(tensor: Any) -> View:
    on_device = int(tensor.__dlpack_device__()[0]) in _DLPACK_DEVICES
    # -1 asks a GPU's producer for no synchronisation: the caller's stream already orders its work.
    capsule = tensor.__dlpack__(stream=-1) if on_device else tensor.__dlpack__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype = ctypes.c_void_p
    pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
    # The capsule is not renamed to `used_dltensor`: we borrow, and its destructor gives the view back.
    dl = _DLTensor.from_address(pointer(capsule, b"dltensor"))
    shape = tuple(dl.shape[axis] for axis in range(dl.ndim))
    strides = tuple(dl.strides[axis] for axis in range(dl.ndim)) if dl.strides else row_major(shape)
    ours = DLPACK_TYPES.get((dl.code, dl.bits)) if dl.lanes == 1 else None
    return View(
        pointer=(dl.data or 0) + dl.byte_offset,
        dtype=ours,
        dtype_name=f"DLPack type {dl.code} of {dl.bits} bits x {dl.lanes}" if ours is None else str(ours),
        shape=shape,
        strides=strides,
        device=dl.device_id if on_device else -1,
    )


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides in elements of a dense row-major tensor."""
    strides = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))
