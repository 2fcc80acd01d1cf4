"""What every public function checks and keys its calls by. Bad arguments fail here, before any route is asked."""

from collections.abc import Mapping
from typing import Any

import torch

from nkc.ir.errors import UsageError, did_you_mean
from nkc.runtime.prepared import ADDRESS_MODULUS


def refuse_gradients(function: str, **tensors: torch.Tensor | None) -> None:
    """Refuse tensors that a backward pass would need. Errors: UsageError naming the first."""
    if not torch.is_grad_enabled():
        return
    for name, tensor in tensors.items():
        if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
            raise UsageError(
                f"{function}: `{name}` requires grad, and these kernels have no backward "
                "(call under torch.no_grad() or inference_mode(), or detach it)"
            )


def choice(function: str, name: str, value: str, known: tuple[str, ...]) -> str:
    """Return a word that is one of the known ones. Errors: UsageError with the closest."""
    if value not in known:
        raise UsageError(f"{function}: {name} `{value}` is unknown ({did_you_mean(str(value), known)})")
    return value


def matrix(function: str, name: str, tensor: torch.Tensor, *dtypes: torch.dtype) -> tuple[int, int]:
    """Return the extents of a matrix of one of these dtypes. Errors: UsageError."""
    _is_tensor(function, name, tensor)
    if tensor.dim() != 2:
        raise UsageError(f"{function}: `{name}` has {tensor.dim()} axes, not 2")
    if tensor.dtype not in dtypes:
        raise UsageError(f"{function}: `{name}` is {tensor.dtype}, not {' or '.join(map(str, dtypes))}")
    return tensor.shape[0], tensor.shape[1]


def shaped(function: str, name: str, tensor: torch.Tensor, shape: tuple[int, ...], *dtypes: torch.dtype) -> None:
    """Check a tensor's shape and dtype. Errors: UsageError."""
    _is_tensor(function, name, tensor)
    if tuple(tensor.shape) != shape or tensor.dtype not in dtypes:
        found = f"{list(tensor.shape)} {tensor.dtype}"
        raise UsageError(f"{function}: `{name}` is {found}, not {list(shape)} {' or '.join(map(str, dtypes))}")


def on_one_device(function: str, tensors: Mapping[str, torch.Tensor]) -> None:
    """Check that tensors share a device. torch itself lets `meta` meet any other, and the result is what was in memory.

    Errors: UsageError naming the first two that differ.
    """
    (first, here), *others = ((name, tensor.device) for name, tensor in tensors.items())
    for name, device in others:
        if device != here:
            raise UsageError(f"{function}: `{name}` is on {device}, and `{first}` on {here} (move one of them)")


def signature(tensors: Mapping[str, torch.Tensor], *options: Any) -> tuple[Any, ...]:
    """Return what decides a call: names, dtypes, shapes, strides, devices, alignment, and the resolved options."""
    listed = tuple(
        (
            name,
            tensor.dtype,
            tuple(tensor.shape),
            tensor.stride(),
            tensor.get_device(),
            tensor.data_ptr() % ADDRESS_MODULUS,
        )
        for name, tensor in tensors.items()
    )
    return (*listed, *options)


def _is_tensor(function: str, name: str, value: object) -> None:
    if not isinstance(value, torch.Tensor):
        raise UsageError(f"{function}: `{name}` is {type(value).__name__}, not a torch tensor")
