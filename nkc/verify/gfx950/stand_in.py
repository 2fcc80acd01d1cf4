"""Buffers of the sizes that a launch asks for, where any data will do: addresses and counts do not depend on it."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from nkc.ir.launch import Launch, RangeGuard, TensorGuard
from nkc.verify.memory import STORAGE

Array = npt.NDArray[Any]


def largest_dims(launch: Launch) -> dict[str, int]:
    """Return the largest value of every bounded dim."""
    return {guard.dim: guard.max for guard in launch.guards if isinstance(guard, RangeGuard)}


def stand_in_buffers(launch: Launch, dims: Mapping[str, int]) -> dict[str, Array]:
    """Return a zeroed buffer for every tensor argument and the workspace: flat, as long as its guard allows."""
    out: dict[str, Array] = {}
    for guard in launch.guards:
        if isinstance(guard, TensorGuard):
            extents = zip(guard.shape, guard.strides, strict=True)
            last = sum((extent.of(dict(dims)) - 1) * stride.of(dict(dims)) for extent, stride in extents)
            out[guard.argument] = np.zeros(last + 1, STORAGE[guard.dtype])
    if launch.workspace.bytes:
        out["workspace"] = np.zeros(launch.workspace.bytes, np.uint8)
    return out
