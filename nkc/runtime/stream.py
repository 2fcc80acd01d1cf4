"""Streams: the handle of whatever the caller passes, and torch's current one."""

import sys
from collections.abc import Callable
from typing import Any, cast


def stream_handle(stream: Any) -> int:
    """Return the driver's handle of a stream: an integer, torch's stream, or the `__cuda_stream__` protocol."""
    if isinstance(stream, int):
        return stream
    if (handle := getattr(stream, "cuda_stream", None)) is not None:
        return int(handle)
    if (protocol := getattr(stream, "__cuda_stream__", None)) is not None:
        return int(protocol()[1] if callable(protocol) else protocol[1])
    raise TypeError(f"a stream is a handle or has `cuda_stream` or `__cuda_stream__`, not a {type(stream).__name__}")


def torch_current_stream() -> Callable[[int], int] | None:
    """Return torch's cheapest look-up of a device's current stream, None where torch is not there or has no GPU.

    HIP builds of torch keep the name.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None
    return cast("Callable[[int], int]", torch._C._cuda_getCurrentRawStream)
